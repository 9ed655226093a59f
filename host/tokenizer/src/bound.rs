//! Lower bound on the number of tokens of a text, from its bytes alone: what cannot fit a context is
//! refused before it is encoded.
//!
//! Every token covers at most so many bytes of a text. Where a tokenizer drops characters, or makes one
//! token of many unknown ones, only bytes count that are certain to end up in tokens of their own.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::AddedToken;

/// Bytes of a text that Unicode's normalization forms make one byte of, at most: a mathematical letter
/// becomes a plain one.
const UNICODE_SHRINKS: usize = 4;

/// Bounds the tokens of a text from below.
pub(crate) struct LowerBound {
    counted: [bool; 256],
    /// Counted bytes of a text that one token covers at most; zero if there is no bound.
    per_token: usize,
}

/// Bytes that count, from all to few.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    All,
    /// Printable characters of ASCII.
    Visible,
    /// Letters and digits of ASCII.
    Alphanumeric,
    Nothing,
}

impl Counted {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::All => true,
            Self::Visible => byte.is_ascii_graphic(),
            Self::Alphanumeric => byte.is_ascii_alphanumeric(),
            Self::Nothing => false,
        }
    }
}

/// Properties of a tokenizer that the bound depends on.
pub(crate) struct TokenizerFacts<'f> {
    /// Steps of the normalizer and of the pre-tokenizer, as the library writes them.
    pub(crate) normalizer: Vec<Value>,
    pub(crate) pre_tokenizer: Vec<Value>,
    /// `BPE`, `Unigram`, `WordPiece` or `WordLevel`.
    pub(crate) model: &'f str,
    pub(crate) byte_fallback: bool,
    pub(crate) vocabulary: &'f HashMap<String, u32>,
    pub(crate) added: Vec<&'f AddedToken>,
}

impl LowerBound {
    /// Find the bound of a tokenizer.
    pub(crate) fn new(facts: &TokenizerFacts<'_>) -> Self {
        let mut counted = Counted::All;
        let mut shrinks = 1usize;
        for step in &facts.normalizer {
            let (keeps, factor) = of_normalizer(step);
            counted = counted.max(keeps);
            shrinks = shrinks.saturating_mul(factor);
        }
        for step in &facts.pre_tokenizer {
            counted = counted.max(of_pre_tokenizer(step));
        }
        if facts.added.iter().any(|token| token.lstrip || token.rstrip) {
            counted = counted.max(Counted::Visible);
        }
        let is_byte_level = |step: &Value| step["type"] == "ByteLevel";
        let byte_level = facts
            .normalizer
            .iter()
            .chain(&facts.pre_tokenizer)
            .any(is_byte_level);
        counted = counted.max(of_model(facts, byte_level));
        let length = |token: &str| match byte_level {
            true => token.chars().count(),
            false => token.len(),
        };
        let longest = facts.vocabulary.keys().map(|token| length(token)).max();
        let added = facts.added.iter().map(|token| token.content.len()).max();
        let longest = longest.unwrap_or(0).max(added.unwrap_or(0));
        let lowered = |byte: u8| char::from(byte.to_ascii_lowercase()).to_string();
        let has_token = |byte: u8| {
            let own = char::from(byte).to_string();
            facts.vocabulary.contains_key(&own) && facts.vocabulary.contains_key(&lowered(byte))
        };
        let mut bound = Self {
            counted: [false; 256],
            per_token: longest.saturating_mul(shrinks),
        };
        for byte in 0..=255u8 {
            let sure = counted == Counted::All || has_token(byte);
            bound.counted[usize::from(byte)] = counted.has(byte) && sure;
        }
        bound
    }

    /// A text has at least so many tokens.
    pub(crate) fn tokens(&self, text: &str) -> usize {
        let counted = text.bytes().filter(|byte| self.counted[usize::from(*byte)]);
        match self.per_token {
            0 => 0,
            per_token => counted.count().div_ceil(per_token),
        }
    }
}

/// The bytes that a normalizer's step keeps, and how many of them may become one.
fn of_normalizer(step: &Value) -> (Counted, usize) {
    let text = |pointer: &str| step.pointer(pointer).and_then(Value::as_str);
    match text("/type").unwrap_or_default() {
        "Prepend" | "ByteLevel" => (Counted::All, 1),
        "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" => (Counted::All, UNICODE_SHRINKS),
        "Strip" => (Counted::Visible, 1),
        // What they drop are control characters, marks and odd spaces.
        "BertNormalizer" | "StripAccents" | "Nmt" | "Precompiled" => {
            (Counted::Alphanumeric, UNICODE_SHRINKS)
        }
        "Replace" => {
            let content = text("/content").map_or(0, str::len);
            match (text("/pattern/String"), text("/pattern/Regex")) {
                (Some(pattern), _) if content > 0 => {
                    (Counted::All, pattern.len().div_ceil(content))
                }
                // Expressions that match nothing but spaces.
                (_, Some(r"\A +| +\z" | " {2,}" | r"\s+" | r"\s{2,}")) => (Counted::Visible, 1),
                _ => (Counted::Nothing, 1),
            }
        }
        _ => (Counted::Nothing, 1),
    }
}

/// The bytes that a pre-tokenizer's step keeps.
fn of_pre_tokenizer(step: &Value) -> Counted {
    let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "ByteLevel" | "Metaspace" | "Digits" | "UnicodeScripts" => Counted::All,
        "Split" | "Punctuation" if text("behavior") != "Removed" => Counted::All,
        "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit" => Counted::Alphanumeric,
        _ => Counted::Nothing,
    }
}

/// The bytes that a model makes tokens of which are no longer than those of its vocabulary.
fn of_model(facts: &TokenizerFacts<'_>, byte_level: bool) -> Counted {
    let known = |token: String| facts.vocabulary.contains_key(&token);
    let all_bytes = match byte_level {
        true => (0..=255).all(|byte| known(crate::bytes::character_of(byte).to_string())),
        false => facts.byte_fallback && (0..=255u8).all(|byte| known(format!("<0x{byte:02X}>"))),
    };
    match facts.model {
        "BPE" | "Unigram" if all_bytes => Counted::All,
        "BPE" | "Unigram" => Counted::Alphanumeric,
        // A word that is not in the vocabulary is one token, however long it is.
        _ => Counted::Nothing,
    }
}
