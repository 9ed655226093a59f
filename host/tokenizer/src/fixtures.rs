//! Loading of the test tokenizers, by this crate and by the library that is the oracle.

use serde_json::Value;

use crate::{Tokenizer, TokenizerFiles};

/// The tokenizer that a `tokenizer.json` describes.
pub(crate) fn load(json: &Value) -> Tokenizer {
    let bytes = json.to_string().into_bytes();
    Tokenizer::load(TokenizerFiles {
        tokenizer: &bytes,
        ..TokenizerFiles::default()
    })
    .expect("a good tokenizer")
}

/// The library itself, as the oracle.
pub(crate) fn oracle(json: &Value) -> tokenizers::Tokenizer {
    json.to_string().parse().expect("a good tokenizer")
}
