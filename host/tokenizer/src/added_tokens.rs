//! Added tokens: which of them are control tokens, and where a text is cut at them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use tokenizers::AddedToken;

use crate::error::{TokenizerError, malformed};
use crate::limits::{EncodeLimits, Meter};
use crate::normalize::Normalizer;

/// A token outside the ordinary vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    /// Token id.
    pub id: u32,
    /// Text of the token.
    pub text: String,
    /// Flag of a special token, which is left out of generated text.
    pub special: bool,
}

/// A split of a text: its bytes, and the added token it is, if it is one.
pub(crate) type Cut = (Option<u32>, Range<usize>);

/// Whether the ranges, which are disjoint and rising, hold all of `range` in one of them.
pub(crate) fn lies_in(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
    around(ranges, range.start).is_some_and(|found| range.end <= found.end)
}

/// The range that `position` lies in.
fn around(ranges: &[Range<usize>], position: usize) -> Option<&Range<usize>> {
    let after = ranges.partition_point(|range| range.start <= position);
    ranges
        .get(after.checked_sub(1)?)
        .filter(|range| position < range.end)
}

/// Finds added tokens in text.
pub(crate) struct ControlMatcher {
    pub(crate) verbatim: AddedTokens,
    pub(crate) normalized: AddedTokens,
    /// Ids that ordinary text must not yield.
    pub(crate) control: HashSet<u32>,
}

impl ControlMatcher {
    pub(crate) fn new(
        normalizer: &Normalizer,
        added: &BTreeMap<u32, AddedToken>,
        unknown: Option<&str>,
    ) -> Result<Self, TokenizerError> {
        let mut verbatim = Vec::new();
        let mut normalized = Vec::new();
        for (&id, token) in added {
            if token.content.is_empty() {
                continue;
            }
            if token.normalized {
                let text = normalizer
                    .apply(&token.content, &mut Meter::new(EncodeLimits::NONE))
                    .map_err(|error| malformed("tokenizer.json", error))?;
                if !text.is_empty() {
                    normalized.push((text, id, token.clone()));
                }
            } else {
                verbatim.push((token.content.clone(), id, token.clone()));
            }
        }
        let control = added
            .iter()
            .filter(|(_, token)| is_control(token) && Some(token.content.as_str()) != unknown)
            .map(|(&id, _)| id)
            .collect();
        Ok(Self {
            verbatim: AddedTokens::new(verbatim)?,
            normalized: AddedTokens::new(normalized)?,
            control,
        })
    }
}

/// Whether an added token is a control token. Runs of white space are not: some vocabularies add
/// them so that code becomes short, and they stand for themselves in any text.
pub(crate) fn is_control(token: &AddedToken) -> bool {
    let blank = |character: char| character.is_whitespace() || character == '▁';
    token.special || !token.content.chars().all(blank)
}

/// Added tokens with the texts that they are found by.
pub(crate) struct AddedTokens {
    all: Option<AhoCorasick>,
    /// Matcher of the added tokens that are found in any text.
    ordinary: Option<AhoCorasick>,
    tokens: Vec<(u32, AddedToken)>,
    /// Index in `tokens` of each pattern of `ordinary`.
    ordinary_tokens: Vec<usize>,
}

struct Found {
    token: usize,
    range: Range<usize>,
}

impl AddedTokens {
    fn new(entries: Vec<(String, u32, AddedToken)>) -> Result<Self, TokenizerError> {
        let build = |patterns: Vec<&str>| {
            if patterns.is_empty() {
                return Ok(None);
            }
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .start_kind(StartKind::Both)
                .build(patterns)
                .map(Some)
                .map_err(|error| malformed("tokenizer.json", format!("added tokens: {error}")))
        };
        let ordinary_tokens: Vec<usize> = (0..entries.len())
            .filter(|&at| !is_control(&entries[at].2))
            .collect();
        Ok(Self {
            all: build(entries.iter().map(|(text, ..)| text.as_str()).collect())?,
            ordinary: build(
                ordinary_tokens
                    .iter()
                    .map(|&at| entries[at].0.as_str())
                    .collect(),
            )?,
            tokens: entries
                .into_iter()
                .map(|(_, id, token)| (id, token))
                .collect(),
            ordinary_tokens,
        })
    }

    /// Cut a sentence at its added tokens. `special` is where control tokens may be; `allowed`
    /// has the last word on a range.
    pub(crate) fn cuts(
        &self,
        sentence: &str,
        special: &[Range<usize>],
        allowed: impl Fn(Range<usize>) -> bool,
    ) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut done = 0;
        let mut position = 0;
        while let Some(found) = self.leftmost(sentence, position) {
            let start = found.range.start;
            let ordinary = !is_control(&self.tokens[found.token].1);
            let found = if ordinary || allowed(found.range.clone()) {
                Some(found)
            } else {
                self.shorter(sentence, start, special)
            };
            let Some(found) = found else {
                position = start + sentence[start..].chars().next().map_or(1, char::len_utf8);
                continue;
            };
            position = found.range.end;
            let (id, token) = &self.tokens[found.token];
            if let Some(range) = widened(sentence, token, found.range, done) {
                if done < range.start {
                    cuts.push((None, done..range.start));
                }
                done = range.end;
                cuts.push((Some(*id), range));
            }
        }
        if done < sentence.len() || sentence.is_empty() {
            cuts.push((None, done..sentence.len()));
        }
        cuts
    }

    /// Whether any of the tokens stands in a sentence.
    pub(crate) fn occur_in(&self, sentence: &str) -> bool {
        self.all.as_ref().is_some_and(|all| all.is_match(sentence))
    }

    fn leftmost(&self, sentence: &str, position: usize) -> Option<Found> {
        let found = self
            .all
            .as_ref()?
            .find(Input::new(sentence).range(position..))?;
        Some(Found {
            token: found.pattern().as_usize(),
            range: found.range(),
        })
    }

    /// The longest token that begins at `start` and may: one that lies in the special text there,
    /// or an ordinary one.
    fn shorter(&self, sentence: &str, start: usize, special: &[Range<usize>]) -> Option<Found> {
        let anchored =
            |range: Range<usize>| Input::new(sentence).range(range).anchored(Anchored::Yes);
        if let (Some(all), Some(range)) = (&self.all, around(special, start)) {
            let found = all.find(anchored(start..range.end))?;
            return Some(Found {
                token: found.pattern().as_usize(),
                range: found.range(),
            });
        }
        let found = self
            .ordinary
            .as_ref()?
            .find(anchored(start..sentence.len()))?;
        Some(Found {
            token: self.ordinary_tokens[found.pattern().as_usize()],
            range: found.range(),
        })
    }
}

/// The range of a token with the white space that it swallows; none if it must be a word by
/// itself and is not.
fn widened(
    sentence: &str,
    token: &AddedToken,
    range: Range<usize>,
    done: usize,
) -> Option<Range<usize>> {
    let (before, after) = (&sentence[..range.start], &sentence[range.end..]);
    if token.single_word {
        let word = |character: char| character.is_alphanumeric() || character == '_';
        if before.chars().next_back().is_some_and(word) || after.chars().next().is_some_and(word) {
            return None;
        }
    }
    let mut range = range;
    if token.lstrip {
        range.start = before.trim_end().len();
    }
    if token.rstrip {
        range.end += after.len() - after.trim_start().len();
    }
    range.start = range.start.max(done);
    (range.start < range.end).then_some(range)
}
