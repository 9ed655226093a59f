//! Settings of the first step of sentence-transformers, which makes tokens of a text.

use serde::Deserialize;
use serde_json::Value;

use crate::error::ModelError;
use crate::fields::ObjectFields;
use crate::folder::ModelFolder;
use crate::limits::TOKENIZER_BYTES_MAX;

/// Names of their file, of which a folder has one. Earlier releases named it by the family of the model.
const FILES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];
const TOKENIZER_FILE: &str = "tokenizer.json";

/// Refuse what would make other tokens of a text than the tokenizer does by itself. `max_seq_length` is not looked at: longer texts
/// are refused by the model's context, not cut.
pub(crate) fn check(folder: &ModelFolder) -> Result<(), ModelError> {
    for file in FILES {
        let Some(config) = ObjectFields::read(folder, file)? else {
            continue;
        };
        if let Some(kinds) = config.object("modality_config")?
            && kinds.has("message")
        {
            let problem = "has `message`: each text would be a message in the chat template, which is not supported; \
                           save the model with `text` alone";
            return Err(config.wrong("modality_config", problem));
        }
        if config.flag("do_lower_case")? == Some(true) && !lowers(folder)? {
            let problem = "is true, and the normalizer in tokenizer.json keeps capitals; add a `Lowercase` there";
            return Err(config.wrong("do_lower_case", problem));
        }
    }
    Ok(())
}

/// Part of a tokenizer's file that is read.
#[derive(Deserialize)]
struct TokenizerFile {
    normalizer: Option<Value>,
}

/// Whether the tokenizer makes small letters of all.
fn lowers(folder: &ModelFolder) -> Result<bool, ModelError> {
    let Some(bytes) = folder.read_optional(TOKENIZER_FILE, TOKENIZER_BYTES_MAX)? else {
        return Ok(false);
    };
    let json = |source| ModelError::Json {
        file: TOKENIZER_FILE.to_owned(),
        source,
    };
    let file: TokenizerFile = serde_json::from_slice(&bytes).map_err(json)?;
    Ok(file.normalizer.is_some_and(|normalizer| {
        let steps = normalizer.get("normalizers").and_then(Value::as_array);
        match steps {
            Some(steps) => steps.iter().any(lowers_itself),
            None => lowers_itself(&normalizer),
        }
    }))
}

fn lowers_itself(normalizer: &Value) -> bool {
    match normalizer.get("type").and_then(Value::as_str) {
        Some("Lowercase") => true,
        Some("BertNormalizer") => normalizer.get("lowercase") == Some(&Value::Bool(true)),
        _ => false,
    }
}
