//! Normalizers, step by step: each works on bounded pieces where it may, and a text that grows beyond
//! reason is an error.

use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer as _};

use crate::error::{TokenizerError, failed_on_text, guarded, malformed};
use crate::limits::Meter;
use crate::pattern::Pattern;

/// Most steps of a normalizer; those in use have up to about ten.
const STEPS_MAX: usize = 64;
/// A normalized text has at most so many times the bytes of the text, and so many more. Unicode's own
/// forms make up to eleven of one.
const GROWTH_MAX: usize = 64;
const GROWTH_FREE: usize = 4096;
/// Bytes that one call of the library gets where a text may be cut. It needs some fifty times as many.
const CHUNK: usize = 16 << 10;

/// A normalizer.
pub(crate) struct Normalizer {
    steps: Vec<Step>,
}

/// One step of a normalizer.
struct Step {
    /// Name in `tokenizer.json`.
    name: String,
    work: Work,
    library: NormalizerWrapper,
}

enum Work {
    Prepend(String),
    Replace { pattern: Pattern, content: String },
    Strip { left: bool, right: bool },
    Library,
}

impl Normalizer {
    /// Read a normalizer as the library writes it.
    pub(crate) fn read(normalizer: &Value) -> Result<Self, TokenizerError> {
        let mut entries = Vec::new();
        flatten(normalizer, "normalizers", STEPS_MAX, &mut entries)?;
        let steps = entries.into_iter().map(Step::read);
        Ok(Self {
            steps: steps.collect::<Result<_, _>>()?,
        })
    }

    /// Whether texts stay as they are.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The names and entries of the steps, for those who ask what a normalizer does.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Value> {
        let written = |step: &Step| serde_json::to_value(&step.library).unwrap_or_default();
        self.steps.iter().map(written)
    }

    /// The texts that `Replace` steps look for.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match &step.work {
            Work::Replace {
                pattern: Pattern::Literal(text),
                ..
            } => Some(text.as_str()),
            _ => None,
        })
    }

    /// A normalized text.
    pub(crate) fn apply(
        &self,
        text: &str,
        meter: &mut Meter<'_>,
    ) -> Result<String, TokenizerError> {
        let most = text.len().saturating_mul(GROWTH_MAX) + GROWTH_FREE;
        let mut current = text.to_owned();
        for step in &self.steps {
            current = step.apply(current, most, meter)?;
            step.check_growth(current.len(), text.len(), most)?;
        }
        Ok(current)
    }

    /// Normalize a text that remembers where its characters come from.
    pub(crate) fn apply_aligned(
        &self,
        text: &mut NormalizedString,
        meter: &mut Meter<'_>,
    ) -> Result<(), TokenizerError> {
        let before = text.get().len();
        let most = before.saturating_mul(GROWTH_MAX) + GROWTH_FREE;
        for step in &self.steps {
            meter.spend(text.get().len())?;
            step.call(text)?;
            step.check_growth(text.get().len(), before, most)?;
        }
        Ok(())
    }
}

/// The entries of nested sequences in order.
pub(crate) fn flatten<'v>(
    entry: &'v Value,
    list: &str,
    most: usize,
    found: &mut Vec<&'v Value>,
) -> Result<(), TokenizerError> {
    match entry.get(list).and_then(Value::as_array) {
        Some(entries) => entries
            .iter()
            .try_for_each(|entry| flatten(entry, list, most, found)),
        None if entry.is_null() => Ok(()),
        None if found.len() == most => {
            let reason = format!("more than {most} {list}");
            Err(malformed("tokenizer.json", reason))
        }
        None => {
            found.push(entry);
            Ok(())
        }
    }
}

impl Step {
    fn read(entry: &Value) -> Result<Self, TokenizerError> {
        let name = entry.get("type").and_then(Value::as_str);
        let name = name.unwrap_or("normalizer").to_owned();
        let library = guarded(|| serde_json::from_value(entry.clone()))
            .and_then(|read| read.map_err(|error: serde_json::Error| error.to_string()))
            .map_err(|reason| malformed("tokenizer.json", reason))?;
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let flag = |key: &str| entry.get(key).and_then(Value::as_bool).unwrap_or(false);
        let work = match (name.as_str(), text("prepend"), text("content")) {
            ("Prepend", Some(prepend), _) => Work::Prepend(prepend),
            ("Replace", _, Some(content)) => Work::Replace {
                pattern: read_pattern(entry)?,
                content,
            },
            ("Strip", ..) => Work::Strip {
                left: flag("strip_left"),
                right: flag("strip_right"),
            },
            _ => Work::Library,
        };
        Ok(Self {
            name,
            work,
            library,
        })
    }

    fn apply(
        &self,
        text: String,
        most: usize,
        meter: &mut Meter<'_>,
    ) -> Result<String, TokenizerError> {
        meter.spend(text.len())?;
        match &self.work {
            Work::Prepend(_) if text.is_empty() => Ok(text),
            Work::Prepend(prepend) => Ok(format!("{prepend}{text}")),
            Work::Strip { left, right } => {
                let mut rest = text.as_str();
                if *left {
                    rest = rest.trim_start();
                }
                if *right {
                    rest = rest.trim_end();
                }
                Ok(rest.to_owned())
            }
            Work::Replace { pattern, content } => {
                let mut replaced = String::with_capacity(text.len());
                let mut done = 0;
                let mut matches = pattern.find_in(&text);
                while let Some(range) = matches.next(meter)? {
                    replaced.push_str(text.get(done..range.start).unwrap_or_default());
                    replaced.push_str(content);
                    done = range.end;
                    self.check_growth(replaced.len(), text.len(), most)?;
                }
                replaced.push_str(text.get(done..).unwrap_or_default());
                Ok(replaced)
            }
            Work::Library => self.apply_in_chunks(&text, most, meter),
        }
    }

    fn apply_in_chunks(
        &self,
        text: &str,
        most: usize,
        meter: &mut Meter<'_>,
    ) -> Result<String, TokenizerError> {
        let mut normalized = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(chunk_end(rest));
            let mut piece = NormalizedString::from(chunk);
            self.call(&mut piece)?;
            normalized.push_str(piece.get());
            self.check_growth(normalized.len(), text.len(), most)?;
            // Its tables of where characters come from make it slower than anything else.
            meter.spend(chunk.len() * 4)?;
            rest = later;
        }
        Ok(normalized)
    }

    fn call(&self, text: &mut NormalizedString) -> Result<(), TokenizerError> {
        guarded(|| self.library.normalize(text))
            .and_then(|done| done.map_err(|error| error.to_string()))
            .map_err(|reason| failed_on_text(&format!("the normalizer {}", self.name), &reason))
    }

    fn check_growth(&self, after: usize, before: usize, most: usize) -> Result<(), TokenizerError> {
        match after > most {
            true => Err(TokenizerError::Growth {
                step: self.name.clone(),
                before,
                after,
            }),
            false => Ok(()),
        }
    }
}

/// The pattern of a `Replace` or `Split`.
pub(crate) fn read_pattern(entry: &Value) -> Result<Pattern, TokenizerError> {
    let source = |kind: &str| entry.pointer(kind).and_then(Value::as_str);
    let empty = |text: &&str| !text.is_empty();
    let fail = |reason: String| {
        malformed(
            "tokenizer.json",
            format!("the pattern of {entry}: {reason}"),
        )
    };
    if let Some(literal) = source("/pattern/String").filter(empty) {
        return Ok(Pattern::literal(literal));
    }
    if let Some(source) = source("/pattern/Regex").filter(empty) {
        return Pattern::regex(source).map_err(fail);
    }
    Err(fail("it is empty".to_owned()))
}

/// End of the first chunk of a text: between two characters that no step of the library looks at
/// together.
fn chunk_end(text: &str) -> usize {
    let mut previous = None;
    for (at, next) in text.char_indices() {
        if at >= CHUNK
            && previous.is_some_and(stands_alone)
            && stands_alone(next)
            && (previous, next) != (Some('\r'), '\n')
        {
            return at;
        }
        previous = Some(next);
    }
    text.len()
}

/// Characters that do not compose with others, nor belong to a grapheme of several but line ends.
fn stands_alone(character: char) -> bool {
    character.is_ascii() || ('\u{4E00}'..='\u{9FFF}').contains(&character)
}
