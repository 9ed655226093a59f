//! Checks of the numbers and texts in `tokenizer.json` that its library takes on trust.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::error::{TokenizerError, malformed};

/// Longest replacement of a `Replace` or `Prepend`; those in use have up to about ten bytes.
const REPLACEMENT_BYTES_MAX: usize = 64;
/// Growth of a text by all `Replace` steps together, at most.
const REPLACEMENT_GROWTH_MAX: usize = 1024;
/// Bytes that the library may make of all added tokens when it normalizes them.
const ADDED_TOKEN_BYTES_MAX: usize = 64 << 20;
/// Longest pattern; those in use have up to about 2,000 bytes.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Longest replacement in SentencePiece's table of characters; the longest in use has 33 bytes.
const CHARACTER_BYTES_MAX: usize = 256;
/// Most bytes of such a table; those in use have some 500 KB.
const CHARACTER_MAP_BYTES_MAX: usize = 16 << 20;

/// Check the entries of a normalizer, pre-tokenizer or decoder. Returns how many times longer its
/// replacements may make a text.
pub(crate) fn check_steps(entry: &Value) -> Result<usize, TokenizerError> {
    let mut growth = 1usize;
    check_entry(entry, &mut growth)?;
    match growth > REPLACEMENT_GROWTH_MAX {
        true => fail(format!(
            "its Replace steps make a text up to {growth} times longer; at most \
             {REPLACEMENT_GROWTH_MAX} times are allowed"
        )),
        false => Ok(growth),
    }
}

/// Check what the library makes of the added tokens that it normalizes, `bytes` in all.
pub(crate) fn check_added_tokens(bytes: usize, growth: usize) -> Result<(), TokenizerError> {
    let after = bytes.saturating_mul(growth);
    match after > ADDED_TOKEN_BYTES_MAX {
        true => fail(format!(
            "its normalizer makes up to {after} bytes of its added tokens; at most \
             {ADDED_TOKEN_BYTES_MAX} are allowed"
        )),
        false => Ok(()),
    }
}

fn check_entry(entry: &Value, growth: &mut usize) -> Result<(), TokenizerError> {
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
    if let Some(map) = text("precompiled_charsmap") {
        check_character_map(map)?;
    }
    if let Some(pattern) = fields.get("pattern") {
        let (length, shortest) = check_pattern(kind, pattern)?;
        let content = text("content").map_or(0, str::len);
        if length > 0 {
            *growth = growth.saturating_mul(content.div_ceil(shortest).max(1));
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
/// zero bytes. The library asks for memory for a trie of the size that stands there.
fn check_character_map(encoded: &str) -> Result<(), TokenizerError> {
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
        _ => Ok(()),
    }
}

fn fail<T>(reason: String) -> Result<T, TokenizerError> {
    Err(malformed("tokenizer.json", reason))
}
