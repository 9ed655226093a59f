//! Checks of the numbers and texts in `tokenizer.json` that its library takes on trust.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::error::{TokenizerError, malformed};

/// Longest replacement of a `Replace` or `Prepend`; those in use have up to about ten bytes.
const REPLACEMENT_BYTES_MAX: usize = 64;
/// Growth of a text by all `Replace` steps together, at most.
const REPLACEMENT_GROWTH_MAX: usize = 1024;
/// Bytes of all added tokens, as texts are searched for them: those that are normalized first count with what that may
/// make of them. The automata of the search take many times as much memory. 65,536 tokens of speech have 1 MB.
const MAX_ADDED_BYTES: usize = 8 << 20;
/// Longest pattern; those in use have up to about 2,000 bytes.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Longest replacement in SentencePiece's table of characters; the longest in use has 33 bytes.
const CHARACTER_BYTES_MAX: usize = 256;
/// Most bytes of such a table; those in use have some 500 KB.
const CHARACTER_MAP_BYTES_MAX: usize = 16 << 20;

/// Growth of a text by the steps of a normalizer, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Times, by `Replace` steps alone.
    replacements: usize,
    /// Times, by all other steps.
    others: usize,
    /// Bytes that are put in front.
    prepended: usize,
}

impl Growth {
    /// Bytes that a text of so many bytes may have afterwards.
    fn of(self, bytes: usize) -> usize {
        let times = self.replacements.saturating_mul(self.others);
        bytes.saturating_add(self.prepended).saturating_mul(times)
    }
}

/// Check the entries of a normalizer, pre-tokenizer or decoder. Returns how much longer they may make a text.
pub(crate) fn check_steps(entry: &Value) -> Result<Growth, TokenizerError> {
    let mut growth = Growth {
        replacements: 1,
        others: 1,
        prepended: 0,
    };
    check_entry(entry, &mut growth)?;
    let times = growth.replacements;
    match times > REPLACEMENT_GROWTH_MAX {
        true => fail(format!(
            "its Replace steps make a text up to {times} times longer; at most \
             {REPLACEMENT_GROWTH_MAX} times are allowed"
        )),
        false => Ok(growth),
    }
}

/// Sum of the added tokens of a tokenizer, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddedBytes {
    growth: Growth,
    bytes: usize,
}

impl AddedBytes {
    /// None yet, of a tokenizer whose normalizer makes texts grow so.
    pub(crate) fn new(growth: Growth) -> Self {
        Self { growth, bytes: 0 }
    }

    /// Count a token that `file` adds.
    ///
    /// # Errors
    /// When they are too many bytes together.
    pub(crate) fn add(
        &mut self,
        file: &'static str,
        content: &str,
        normalized: bool,
    ) -> Result<(), TokenizerError> {
        let bytes = match normalized {
            true => self.growth.of(content.len()),
            false => content.len(),
        };
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= MAX_ADDED_BYTES {
            return Ok(());
        }
        let reason = format!(
            "the added tokens, those that are normalized with what the normalizer may make of them, have more than \
             {MAX_ADDED_BYTES} bytes together"
        );
        Err(malformed(file, reason))
    }
}

/// Times by which a step of this type may make a text longer, beside the texts that it is given.
fn growth_of(kind: &str) -> usize {
    match kind {
        // U+FDFA has 3 bytes, and 33 afterwards.
        "NFKC" | "NFKD" => 11,
        "NFC" | "NFD" => 3,
        // A character for each byte; spaces around ideographs; lower case with a dot of its own.
        "ByteLevel" | "BertNormalizer" | "Lowercase" => 2,
        _ => 1,
    }
}

fn check_entry(entry: &Value, growth: &mut Growth) -> Result<(), TokenizerError> {
    if let Some(list) = entry.as_array() {
        return list.iter().try_for_each(|entry| check_entry(entry, growth));
    }
    let Some(fields) = entry.as_object() else {
        return Ok(());
    };
    let kind = fields
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("a step");
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    for key in ["content", "prepend"] {
        let length = text(key).map_or(0, str::len);
        if length > REPLACEMENT_BYTES_MAX {
            return fail(format!(
                "{kind} puts in {length} bytes; at most {REPLACEMENT_BYTES_MAX} are allowed"
            ));
        }
    }
    growth.others = growth.others.saturating_mul(growth_of(kind));
    growth.prepended = growth
        .prepended
        .saturating_add(text("prepend").map_or(0, str::len));
    if let Some(map) = text("precompiled_charsmap") {
        let longest = check_character_map(map)?;
        growth.others = growth.others.saturating_mul(longest.max(1));
    }
    if let Some(pattern) = fields.get("pattern") {
        let (length, shortest) = check_pattern(kind, pattern)?;
        let content = text("content").map_or(0, str::len);
        if length > 0 {
            let times = content.div_ceil(shortest).max(1);
            growth.replacements = growth.replacements.saturating_mul(times);
        }
    }
    if kind == "FixedLength" && fields.get("length").and_then(Value::as_u64) == Some(0) {
        return fail("FixedLength has the length 0".to_owned());
    }
    fields
        .values()
        .try_for_each(|value| check_entry(value, growth))
}

/// The bytes of a pattern, and those of its shortest match as far as is known.
fn check_pattern(kind: &str, pattern: &Value) -> Result<(usize, usize), TokenizerError> {
    let source = |key: &str| pattern.get(key).and_then(Value::as_str);
    let (length, shortest) = match (source("String"), source("Regex"), pattern.as_str()) {
        (Some(text), ..) => (text.len(), text.len().max(1)),
        (_, Some(source), _) | (.., Some(source)) => (source.len(), 1),
        (None, None, None) => return Ok((0, 1)),
    };
    if length == 0 {
        return fail(format!("the pattern of {kind} is empty"));
    }
    match length > PATTERN_BYTES_MAX {
        true => fail(format!(
            "the pattern of {kind} has {length} bytes; at most {PATTERN_BYTES_MAX} are allowed"
        )),
        false => Ok((length, shortest)),
    }
}

/// SentencePiece's table of characters: the size of a trie, the trie, and replacements that end in
/// zero bytes. The library asks for memory for a trie of the size that stands there. Returns the bytes of the longest
/// replacement.
fn check_character_map(encoded: &str) -> Result<usize, TokenizerError> {
    if encoded.len() > CHARACTER_MAP_BYTES_MAX * 4 / 3 + 4 {
        let size = encoded.len();
        return fail(format!(
            "the precompiled_charsmap has {size} characters; at most {CHARACTER_MAP_BYTES_MAX} \
             bytes are allowed"
        ));
    }
    let Ok(map) = STANDARD.decode(encoded) else {
        return fail("the precompiled_charsmap is not base64".to_owned());
    };
    let size = map
        .first_chunk()
        .map(|size| u32::from_le_bytes(*size) as usize);
    let replacements = size.and_then(|size| map.get(4..)?.get(size / 4 * 4..));
    let Some(replacements) = replacements else {
        return fail("the precompiled_charsmap is shorter than its trie".to_owned());
    };
    let longest = replacements.split(|&byte| byte == 0).map(<[u8]>::len).max();
    match longest.unwrap_or(0) {
        longest if longest > CHARACTER_BYTES_MAX => fail(format!(
            "the precompiled_charsmap replaces a character by {longest} bytes; at most \
             {CHARACTER_BYTES_MAX} are allowed"
        )),
        longest => Ok(longest),
    }
}

fn fail<T>(reason: String) -> Result<T, TokenizerError> {
    Err(malformed("tokenizer.json", reason))
}
