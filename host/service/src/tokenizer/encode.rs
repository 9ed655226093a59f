//! Text to token ids, with the library's own steps: split at added tokens, normalize, split at
//! normalized added tokens, pre-tokenize, look up. Only the splits at control tokens are done
//! here, since they depend on who wrote the text.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use mortise_plugin::Segment;
use tokenizers::normalizer::Range as Referential;
use tokenizers::{
    AddedToken, Encoding, Model, NormalizedString, Normalizer, OffsetType, PostProcessor,
    PreTokenizedString, PreTokenizer, Token,
};

use super::{Tokenizer, TokenizerError, guarded, malformed};

/// A split of a text: its bytes, and the added token it is, if it is one.
type Cut = (Option<u32>, Range<usize>);

impl Tokenizer {
    /// Encode a prompt. Control tokens are recognised in special segments only; all other text
    /// between two control tokens is encoded as one piece, whichever segments it came from.
    pub fn encode_segments(&self, segments: &[Segment]) -> Result<Vec<u32>, TokenizerError> {
        let mut text = String::new();
        let mut special: Vec<Range<usize>> = Vec::new();
        for segment in segments {
            let from = text.len();
            match segment {
                Segment::Plain(plain) => text.push_str(plain),
                Segment::Special(piece) => {
                    text.push_str(piece);
                    match special.last_mut() {
                        Some(last) if last.end == from => last.end = text.len(),
                        _ if piece.is_empty() => {}
                        _ => special.push(from..text.len()),
                    }
                }
            }
        }
        Ok(self.encode(&text, &special)?.get_ids().to_vec())
    }

    /// Encode text in which control tokens are recognised, such as a script or a file that the
    /// operator wrote.
    pub fn encode_special(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let whole = 0..text.len();
        Ok(self
            .encode(text, std::slice::from_ref(&whole))?
            .get_ids()
            .to_vec())
    }

    /// Encode text in which control tokens are not recognised.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.encode(text, &[])?.get_ids().to_vec())
    }

    /// Encode a text prompt: as [`Tokenizer::encode_plain`], between the tokens that the
    /// tokenizer puts around a text, such as beginning-of-sequence.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let plain = self.encode(text, &[])?;
        let length = plain.len();
        let processed = match self.inner.get_post_processor() {
            None => Ok(plain),
            Some(processor) => guarded(|| processor.process(plain, None, true))
                .and_then(|result| result.map_err(|error| error.to_string())),
        };
        let mut ids = processed
            .map_err(TokenizerError::Encode)?
            .get_ids()
            .to_vec();
        if let (Some(add), Some(bos)) = (self.config.add_bos_token, self.bos) {
            let has = ids.first() == Some(&bos);
            if add && !has {
                ids.insert(0, bos);
            } else if !add && has && ids.len() > length {
                ids.remove(0);
            }
        }
        Ok(ids)
    }

    fn encode(&self, text: &str, special: &[Range<usize>]) -> Result<Encoding, TokenizerError> {
        let fault = RefCell::new(None);
        let result = guarded(|| self.encode_steps(text, special, &fault));
        if let Some(error) = fault.into_inner() {
            return Err(error);
        }
        result
            .and_then(|encoded| encoded.map_err(|error| error.to_string()))
            .map_err(TokenizerError::Encode)
    }

    fn encode_steps(
        &self,
        text: &str,
        special: &[Range<usize>],
        fault: &RefCell<Option<TokenizerError>>,
    ) -> tokenizers::Result<Encoding> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, sentence| {
            let allowed = |range: Range<usize>| lies_in(special, &range);
            let cuts = self.matcher.verbatim.cuts(sentence.get(), special, allowed);
            split(&sentence, cuts)
        })?;
        pieces.split(|_, mut sentence| {
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut sentence)?;
            }
            let shift = sentence.offsets_original().0;
            let whole = shift..shift + sentence.len_original();
            let allowed = |range: Range<usize>| {
                lies_in(special, &whole)
                    || sentence
                        .convert_offsets(Referential::Normalized(range))
                        .is_some_and(|own| lies_in(special, &(own.start + shift..own.end + shift)))
            };
            let cuts = self.matcher.normalized.cuts(sentence.get(), &[], allowed);
            split(&sentence, cuts)
        })?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|piece| {
            self.tokenize_plain(piece.get()).map_err(|error| {
                let text = error.to_string();
                fault.replace(Some(error));
                text.into()
            })
        })?;
        pieces.into_encoding(None, 0, OffsetType::None)
    }

    /// Look up text that is no control token. Vocabularies that are matched by text (Unigram,
    /// WordLevel, BPE that ignores merges) may hold the control tokens too; a text that would be
    /// taken for one is cut behind its first character until it is not.
    fn tokenize_plain(&self, text: &str) -> Result<Vec<Token>, TokenizerError> {
        let mut tokens = Vec::new();
        let mut work = vec![text];
        while let Some(piece) = work.pop() {
            let found = self
                .inner
                .get_model()
                .tokenize(piece)
                .map_err(|error| TokenizerError::Encode(error.to_string()))?;
            let taken = |token: &&Token| self.matcher.control.contains(&token.id);
            if !found.iter().any(|token| taken(&token)) {
                tokens.extend(found);
                continue;
            }
            let mut rest = piece;
            let mut cut = Vec::new();
            for token in found.iter().filter(taken) {
                let (from, to) = token.offsets;
                let text = piece.get(from..to).unwrap_or_default();
                let first = text.chars().next().map_or(0, char::len_utf8);
                let done = piece.len() - rest.len();
                if first == 0 || first == text.len() || from + first <= done {
                    return Err(TokenizerError::ControlToken {
                        text: if text.is_empty() {
                            piece.to_owned()
                        } else {
                            text.to_owned()
                        },
                    });
                }
                let (head, tail) = rest.split_at(from + first - done);
                cut.push(head);
                rest = tail;
            }
            work.push(rest);
            work.extend(cut.into_iter().rev());
        }
        Ok(tokens)
    }
}

fn split(
    sentence: &NormalizedString,
    cuts: Vec<Cut>,
) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
    cuts.into_iter()
        .map(|(id, range)| {
            let slice = sentence
                .slice(Referential::Normalized(range))
                .ok_or("a token does not lie on character boundaries")?;
            let tokens = id.map(|id| {
                let value = slice.get().to_owned();
                let length = value.len();
                vec![Token::new(id, value, (0, length))]
            });
            Ok((slice, tokens))
        })
        .collect()
}

/// Whether the ranges, which are disjoint and rising, hold all of `range` in one of them.
fn lies_in(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
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
pub(super) struct ControlMatcher {
    verbatim: AddedTokens,
    normalized: AddedTokens,
    /// Ids that ordinary text must not yield.
    control: HashSet<u32>,
}

impl ControlMatcher {
    pub(super) fn new(
        tokenizer: &tokenizers::Tokenizer,
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
                let mut text = NormalizedString::from(token.content.as_str());
                if let Some(normalizer) = tokenizer.get_normalizer() {
                    guarded(|| normalizer.normalize(&mut text))
                        .and_then(|done| done.map_err(|error| error.to_string()))
                        .map_err(|reason| malformed("tokenizer.json", reason))?;
                }
                if !text.is_empty() {
                    normalized.push((text.get().to_owned(), id, token.clone()));
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
pub(super) fn is_control(token: &AddedToken) -> bool {
    let blank = |character: char| character.is_whitespace() || character == '▁';
    token.special || !token.content.chars().all(blank)
}

/// Added tokens with the texts that they are found by.
struct AddedTokens {
    all: Option<AhoCorasick>,
    /// Those that are found in any text.
    ordinary: Option<AhoCorasick>,
    tokens: Vec<(u32, AddedToken)>,
    /// Where the patterns of `ordinary` are in `tokens`.
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
    fn cuts(
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
