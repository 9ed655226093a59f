//! Pre-tokenizers: a text is cut into pieces one by one, so that the work can stop at any of them and
//! none is kept longer than it is needed.

use std::ops::Range;

use serde_json::Value;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

use crate::bytes::character_of;
use crate::error::{TokenizerError, failed_on_text, guarded, malformed};
use crate::limits::Meter;
use crate::normalize::{flatten, read_pattern};
use crate::pattern::Pattern;

/// Most steps of a pre-tokenizer; those in use have up to about six.
const STEPS_MAX: usize = 64;
/// Words as GPT-2 cuts them, which `ByteLevel` does unless told otherwise.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Bytes that one call of the library gets where a text may be cut.
const CHUNK: usize = 16 << 10;

/// Takes a part of a text, and whether it matched.
type TakeRegion<'s> =
    &'s mut dyn FnMut(Range<usize>, bool, &mut Meter<'_>) -> Result<(), TokenizerError>;

/// Takes a piece of a text.
type Sink<'s> = &'s mut dyn FnMut(&str, &mut Meter<'_>) -> Result<(), TokenizerError>;

/// A pre-tokenizer.
pub(crate) struct PreTokenizer {
    steps: Vec<Step>,
}

enum Step {
    Split {
        pattern: Pattern,
        behavior: Behavior,
        invert: bool,
    },
    Digits(Behavior),
    /// Every byte becomes a printable character.
    ByteLevel {
        prefix: bool,
        words: Option<Pattern>,
    },
    Metaspace {
        replacement: char,
        prepend: Prepend,
        split: bool,
    },
    Library {
        name: String,
        library: PreTokenizerWrapper,
        /// Pieces never hold spaces, so a text may be cut before one.
        by_words: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prepend {
    First,
    Never,
    Always,
}

/// Treatment of the matches of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

impl PreTokenizer {
    /// Read a pre-tokenizer as the library writes it.
    pub(crate) fn read(pre_tokenizer: &Value) -> Result<Self, TokenizerError> {
        let mut entries = Vec::new();
        flatten(pre_tokenizer, "pretokenizers", STEPS_MAX, &mut entries)?;
        let steps = entries.into_iter().map(Step::read);
        Ok(Self {
            steps: steps.collect::<Result<_, _>>()?,
        })
    }

    /// Hand the pieces of a text to `sink`. `at_start`: the text begins where the prompt does.
    pub(crate) fn cut(
        &self,
        text: &str,
        at_start: bool,
        meter: &mut Meter<'_>,
        sink: Sink<'_>,
    ) -> Result<(), TokenizerError> {
        cut(&self.steps, text, at_start, meter, sink)
    }
}

fn cut(
    steps: &[Step],
    text: &str,
    at_start: bool,
    meter: &mut Meter<'_>,
    sink: Sink<'_>,
) -> Result<(), TokenizerError> {
    if text.is_empty() {
        return Ok(());
    }
    let Some((step, later)) = steps.split_first() else {
        return sink(text, meter);
    };
    let mut next = Next {
        later,
        text,
        at_start,
        sink,
    };
    match step {
        Step::Split {
            pattern,
            behavior,
            invert,
        } => next.split(pattern, *behavior, *invert, meter),
        Step::Digits(behavior) => next.digits(*behavior, meter),
        Step::ByteLevel { prefix, words } => next.byte_level(*prefix, words.as_ref(), meter),
        Step::Metaspace {
            replacement,
            prepend,
            split,
        } => next.metaspace(*replacement, *prepend, *split, meter),
        Step::Library {
            name,
            library,
            by_words,
        } => {
            let sink = next.sink;
            cut_by_library(
                name,
                library,
                *by_words,
                text,
                meter,
                &mut |piece, meter| cut(later, piece, false, meter, sink),
            )
        }
    }
}

/// The steps that follow one, and the text that it cuts for them.
struct Next<'n, 's> {
    later: &'n [Step],
    text: &'n str,
    at_start: bool,
    sink: Sink<'s>,
}

impl Next<'_, '_> {
    fn region(&mut self, range: Range<usize>, meter: &mut Meter<'_>) -> Result<(), TokenizerError> {
        let start = self.at_start && range.start == 0;
        let text = self.text.get(range).unwrap_or_default();
        cut(self.later, text, start, meter, self.sink)
    }

    fn split(
        &mut self,
        pattern: &Pattern,
        behavior: Behavior,
        invert: bool,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let text = self.text;
        let mut regions = Merged::new(behavior);
        let mut emit = |range: Range<usize>, meter: &mut Meter<'_>| self.region(range, meter);
        for_each_region(pattern, text, meter, &mut |range, matched, meter| {
            regions.take(range, matched != invert, meter, &mut emit)
        })?;
        regions.finish(meter, &mut emit)
    }

    fn digits(&mut self, behavior: Behavior, meter: &mut Meter<'_>) -> Result<(), TokenizerError> {
        let text = self.text;
        let mut regions = Merged::new(behavior);
        let mut emit = |range: Range<usize>, meter: &mut Meter<'_>| self.region(range, meter);
        let mut plain = 0;
        for (at, character) in text.char_indices() {
            if character.is_numeric() {
                if plain < at {
                    regions.take(plain..at, false, meter, &mut emit)?;
                }
                plain = at + character.len_utf8();
                regions.take(at..plain, true, meter, &mut emit)?;
            }
        }
        if plain < text.len() {
            regions.take(plain..text.len(), false, meter, &mut emit)?;
        }
        regions.finish(meter, &mut emit)
    }

    fn byte_level(
        &mut self,
        prefix: bool,
        words: Option<&Pattern>,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let prefixed = (prefix && !self.text.starts_with(' ')).then(|| format!(" {}", self.text));
        let text = prefixed.as_deref().unwrap_or(self.text);
        let mut emit = |range: Range<usize>, meter: &mut Meter<'_>| {
            let start = self.at_start && range.start == 0;
            let bytes = text.as_bytes().get(range).unwrap_or_default();
            let piece: String = bytes.iter().map(|&byte| character_of(byte)).collect();
            cut(self.later, &piece, start, meter, self.sink)
        };
        match words {
            None => emit(0..text.len(), meter),
            Some(words) => for_each_region(words, text, meter, &mut |range, _, meter| {
                emit(range, meter)
            }),
        }
    }

    fn metaspace(
        &mut self,
        replacement: char,
        prepend: Prepend,
        split: bool,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let mut encoded = [0; 4];
        let replacement_text: &str = replacement.encode_utf8(&mut encoded);
        let mut spelled = self.text.replace(' ', replacement_text);
        let wanted = match prepend {
            Prepend::Always => true,
            Prepend::First => self.at_start,
            Prepend::Never => false,
        };
        if wanted && !spelled.starts_with(replacement) {
            spelled.insert(0, replacement);
        }
        let mut spelled = Next {
            later: self.later,
            text: &spelled,
            at_start: self.at_start,
            sink: self.sink,
        };
        match split {
            false => spelled.region(0..spelled.text.len(), meter),
            true => {
                let literal = Pattern::literal(replacement_text);
                spelled.split(&literal, Behavior::MergedWithNext, false, meter)
            }
        }
    }
}

/// The matches of a pattern and what lies between them, from left to right.
fn for_each_region(
    pattern: &Pattern,
    text: &str,
    meter: &mut Meter<'_>,
    take: TakeRegion<'_>,
) -> Result<(), TokenizerError> {
    let mut done = 0;
    let mut matches = pattern.find_in(text);
    while let Some(range) = matches.next(meter)? {
        if done < range.start {
            take(done..range.start, false, meter)?;
        }
        done = range.end;
        take(range, true, meter)?;
    }
    match done < text.len() {
        true => take(done..text.len(), false, meter),
        false => Ok(()),
    }
}

/// Joins regions as a behaviour has it.
struct Merged {
    behavior: Behavior,
    pending: Option<Range<usize>>,
    previous: bool,
}

/// Takes a region of a text.
type Emit<'e> = &'e mut dyn FnMut(Range<usize>, &mut Meter<'_>) -> Result<(), TokenizerError>;

impl Merged {
    fn new(behavior: Behavior) -> Self {
        Self {
            behavior,
            pending: None,
            previous: false,
        }
    }

    fn take(
        &mut self,
        range: Range<usize>,
        matched: bool,
        meter: &mut Meter<'_>,
        emit: Emit<'_>,
    ) -> Result<(), TokenizerError> {
        let joins = match self.behavior {
            Behavior::Removed if matched => return Ok(()),
            Behavior::Removed | Behavior::Isolated => return emit(range, meter),
            Behavior::MergedWithPrevious => matched && !self.previous,
            Behavior::MergedWithNext => !matched && self.previous,
            Behavior::Contiguous => matched == self.previous,
        };
        self.previous = matched;
        match &mut self.pending {
            Some(pending) if joins => pending.end = range.end,
            pending => {
                if let Some(done) = pending.replace(range) {
                    emit(done, meter)?;
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, meter: &mut Meter<'_>, emit: Emit<'_>) -> Result<(), TokenizerError> {
        match self.pending.take() {
            Some(range) => emit(range, meter),
            None => Ok(()),
        }
    }
}

fn cut_by_library(
    name: &str,
    library: &PreTokenizerWrapper,
    by_words: bool,
    text: &str,
    meter: &mut Meter<'_>,
    take: Sink<'_>,
) -> Result<(), TokenizerError> {
    let mut rest = text;
    while !rest.is_empty() {
        let end = match by_words {
            true => word_end(rest),
            false => rest.len(),
        };
        let (chunk, later) = rest.split_at(end);
        meter.spend(chunk.len() * 4)?;
        let mut pieces = PreTokenizedString::from(chunk);
        guarded(|| library.pre_tokenize(&mut pieces))
            .and_then(|done| done.map_err(|error| error.to_string()))
            .map_err(|reason| failed_on_text(&format!("the pre-tokenizer {name}"), &reason))?;
        for (piece, ..) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            take(piece, meter)?;
        }
        rest = later;
    }
    Ok(())
}

/// End of the first chunk of a text: before a space.
fn word_end(text: &str) -> usize {
    let later = text.as_bytes().get(CHUNK..).unwrap_or_default();
    let space = later.iter().position(|&byte| byte == b' ');
    space.map_or(text.len(), |at| CHUNK + at)
}

impl Step {
    fn read(entry: &Value) -> Result<Self, TokenizerError> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let flag = |key: &str, default| entry.get(key).and_then(Value::as_bool).unwrap_or(default);
        let name = text("type").unwrap_or("pre-tokenizer");
        Ok(match name {
            "Split" => Self::Split {
                pattern: read_pattern(entry)?,
                behavior: Behavior::read(entry)?,
                invert: flag("invert", false),
            },
            "Digits" => Self::Digits(match flag("individual_digits", false) {
                true => Behavior::Isolated,
                false => Behavior::Contiguous,
            }),
            "ByteLevel" => Self::ByteLevel {
                prefix: flag("add_prefix_space", true),
                words: match flag("use_regex", true) {
                    true => Some(Pattern::regex(GPT2).map_err(|e| malformed("tokenizer.json", e))?),
                    false => None,
                },
            },
            "Metaspace" => Self::Metaspace {
                replacement: text("replacement")
                    .and_then(|text| text.chars().next())
                    .unwrap_or('▁'),
                prepend: match text("prepend_scheme") {
                    Some("never") => Prepend::Never,
                    Some("first") => Prepend::First,
                    _ => Prepend::Always,
                },
                split: flag("split", true),
            },
            _ => Self::Library {
                library: guarded(|| serde_json::from_value(entry.clone()))
                    .and_then(|read| read.map_err(|error: serde_json::Error| error.to_string()))
                    .map_err(|reason| malformed("tokenizer.json", reason))?,
                name: name.to_owned(),
                by_words: matches!(name, "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit"),
            },
        })
    }
}

impl Behavior {
    fn read(entry: &Value) -> Result<Self, TokenizerError> {
        Ok(match entry.get("behavior").and_then(Value::as_str) {
            Some("Removed") => Self::Removed,
            Some("Isolated") => Self::Isolated,
            Some("MergedWithPrevious") => Self::MergedWithPrevious,
            Some("MergedWithNext") => Self::MergedWithNext,
            Some("Contiguous") => Self::Contiguous,
            _ => {
                let reason = format!("the behavior of {entry} is not one of the known");
                return Err(malformed("tokenizer.json", reason));
            }
        })
    }
}
