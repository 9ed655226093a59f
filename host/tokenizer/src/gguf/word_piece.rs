//! Word pieces, as BERT models have them.

use serde_json::{Value, json};

use super::{CONTROL, GgufVocabulary, UNKNOWN, wrong};
use crate::error::TokenizerError;

/// GGUF marks the beginnings of words where BERT marks what continues them.
const WORD: char = '▁';
const CONTINUES: &str = "##";

/// `tokenizer.json`.
pub(super) fn describe(vocabulary: &GgufVocabulary) -> Result<Value, TokenizerError> {
    let unknown = vocabulary.unknown.map(|id| id as usize);
    let unknown = unknown.or_else(|| {
        let named = |token: &String| token == "[UNK]";
        vocabulary.tokens.iter().position(named)
    });
    let Some(unknown) = unknown.map(|id| &vocabulary.tokens[id]) else {
        return Err(wrong("it has no unknown token".to_owned()));
    };
    let special = |id: usize| {
        let token = &vocabulary.tokens[id];
        let bracketed = token.starts_with('[') && token.ends_with(']') && token.len() > 2;
        matches!(vocabulary.kind(id), CONTROL | UNKNOWN) || bracketed
    };
    // The files do not say whether text is lowered; a vocabulary without capitals does.
    let lowered = vocabulary
        .tokens
        .iter()
        .enumerate()
        .all(|(id, token)| special(id) || !token.contains(|c: char| c.is_ascii_uppercase()));
    let text = |id: usize, token: &str| match token.strip_prefix(WORD) {
        Some(word) if !word.is_empty() => word.to_owned(),
        _ if special(id) => token.to_owned(),
        _ => format!("{CONTINUES}{token}"),
    };
    let vocab = vocabulary.numbered(text);
    if vocab.len() != vocabulary.tokens.len() {
        return Err(wrong("two tokens have the same text".to_owned()));
    }
    let separator = vocabulary.separator.or(vocabulary.eos);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": lowered,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": vocabulary.around(vocabulary.bos, separator),
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": CONTINUES,
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    }))
}
