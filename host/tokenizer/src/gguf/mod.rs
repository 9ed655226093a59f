//! Tokenizers of GGUF files. The vocabulary and the flags of a file are rewritten as the `tokenizer.json`
//! of the same tokenizer.

mod byte_level;
mod sentence_piece;
mod word_piece;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::error::{TokenizerError, malformed};
use crate::files::TokenizerFiles;
use crate::tokenizer::Tokenizer;

/// Name of the file in messages.
const FILE: &str = "the GGUF file's tokenizer";
/// Tokens at most; as many as `tokenizer.json` may have.
const TOKENS_MAX: usize = 1 << 22;
/// Bytes of one token.
const TOKEN_BYTES_MAX: usize = 4096;

/// The entries `tokenizer.*` of a GGUF file.
#[derive(Debug, Clone, Default)]
pub struct GgufVocabulary {
    /// `general.architecture`: Gemma's vocabularies have peculiarities.
    pub architecture: String,
    /// `ggml.model`: the algorithm.
    pub model: String,
    /// `ggml.pre`: how text is cut into words before it.
    pub pre: Option<String>,
    /// `ggml.tokens`: texts by id.
    pub tokens: Vec<String>,
    /// `ggml.scores`, as many as tokens, or none.
    pub scores: Vec<f32>,
    /// `ggml.token_type`, as many as tokens, or none.
    pub types: Vec<i32>,
    /// `ggml.merges`: pairs of tokens with a space between, the most frequent first.
    pub merges: Vec<String>,
    /// `ggml.bos_token_id`
    pub bos: Option<u32>,
    /// `ggml.eos_token_id`
    pub eos: Option<u32>,
    /// `ggml.unknown_token_id`
    pub unknown: Option<u32>,
    /// `ggml.seperator_token_id` (as the format spells it).
    pub separator: Option<u32>,
    /// `ggml.add_bos_token`
    pub add_bos: Option<bool>,
    /// `ggml.add_eos_token`
    pub add_eos: Option<bool>,
    /// `ggml.add_space_prefix`
    pub add_space_prefix: Option<bool>,
    /// `ggml.remove_extra_whitespaces`
    pub remove_extra_whitespaces: Option<bool>,
    /// `ggml.precompiled_charsmap`: SentencePiece's normalizer.
    pub character_map: Vec<u8>,
    /// `chat_template` and `chat_template.NAME`, by name; the first is called `default`.
    pub chat_templates: Vec<(String, String)>,
}

/// `general.architecture` of encoders.
const ENCODER: &str = "bert";

/// The types of tokens.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

impl Tokenizer {
    /// Build a tokenizer from the entries of a GGUF file.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self, TokenizerError> {
        vocabulary.check()?;
        let config = vocabulary.config().to_string();
        let tokenizer = vocabulary.describe()?.to_string();
        // Each of these has all tokens; one at a time is enough.
        drop(vocabulary);
        Self::load(TokenizerFiles {
            tokenizer: tokenizer.as_bytes(),
            config: Some(config.as_bytes()),
            ..TokenizerFiles::default()
        })
    }
}

impl GgufVocabulary {
    /// The `tokenizer.json` of the same tokenizer.
    fn describe(&self) -> Result<Value, TokenizerError> {
        match self.model.as_str() {
            "gpt2" => byte_level::describe(self),
            "llama" => sentence_piece::describe_merging(self),
            "t5" => sentence_piece::describe_scored(self),
            "bert" => word_piece::describe(self),
            other => Err(malformed(
                FILE,
                format!(
                    "the model `{other}` is not supported; supported are gpt2, llama, t5 and bert"
                ),
            )),
        }
    }

    fn check(&self) -> Result<(), TokenizerError> {
        let count = self.tokens.len();
        if !(1..=TOKENS_MAX).contains(&count) {
            return Err(wrong(format!(
                "it has {count} tokens; expected 1 to {TOKENS_MAX}"
            )));
        }
        for (what, found) in [
            ("scores", self.scores.len()),
            ("token types", self.types.len()),
        ] {
            if found != 0 && found != count {
                return Err(wrong(format!("it has {count} tokens and {found} {what}")));
            }
        }
        let mut seen = HashMap::new();
        for (id, token) in self.tokens.iter().enumerate() {
            if token.len() > TOKEN_BYTES_MAX {
                return Err(wrong(format!("token {id} has {} bytes", token.len())));
            }
            if let Some(first) = seen.insert(token.as_str(), id) {
                return Err(wrong(format!("tokens {first} and {id} are both `{token}`")));
            }
        }
        if let Some(kind) = self.types.iter().find(|kind| !(0..=BYTE).contains(*kind)) {
            return Err(wrong(format!(
                "a token has type {kind}; expected 0 to {BYTE}"
            )));
        }
        if self.scores.iter().any(|score| score.is_nan()) {
            return Err(wrong("a score is not a number".to_owned()));
        }
        for (what, id) in [
            ("bos_token_id", self.bos),
            ("eos_token_id", self.eos),
            ("unknown_token_id", self.unknown),
            ("seperator_token_id", self.separator),
        ] {
            if let Some(id) = id.filter(|id| *id as usize >= count) {
                return Err(wrong(format!(
                    "{what} is {id} and there are {count} tokens"
                )));
            }
        }
        Ok(())
    }

    fn kind(&self, id: usize) -> i32 {
        self.types.get(id).copied().unwrap_or(1)
    }

    fn text(&self, id: Option<u32>) -> Option<&str> {
        id.and_then(|id| self.tokens.get(id as usize))
            .map(String::as_str)
    }

    /// `vocab` of `tokenizer.json`, with `text` for each token.
    fn numbered<'a>(&'a self, text: impl Fn(usize, &'a str) -> String) -> Map<String, Value> {
        let tokens = self.tokens.iter().enumerate();
        tokens
            .map(|(id, token)| (text(id, token), json!(id)))
            .collect()
    }

    /// `added_tokens` of `tokenizer.json`: control tokens, and those that the model's authors
    /// defined.
    fn added_tokens(&self) -> Vec<Value> {
        let mut added = Vec::new();
        for (id, content) in self.tokens.iter().enumerate() {
            let special = matches!(self.kind(id), CONTROL | UNKNOWN);
            if special || self.kind(id) == USER_DEFINED {
                added.push(json!({
                    "id": id, "content": content, "special": special, "normalized": false,
                    "single_word": false, "lstrip": false, "rstrip": false,
                }));
            }
        }
        added
    }

    /// `post_processor` of `tokenizer.json`: what is put around a text.
    fn around(&self, bos: Option<u32>, eos: Option<u32>) -> Value {
        let mut single = Vec::new();
        let mut special = Map::new();
        let mut token = |id: Option<u32>, segment: u8| {
            let text = self.text(id)?;
            special.insert(
                text.to_owned(),
                json!({"id": text, "ids": [id], "tokens": [text]}),
            );
            Some(json!({"SpecialToken": {"id": text, "type_id": segment}}))
        };
        let behind_pair = [token(eos, 0), token(eos, 1)];
        let (bos, eos) = (token(bos, 0), token(eos, 0));
        if bos.is_none() && eos.is_none() {
            return Value::Null;
        }
        single.extend(bos);
        single.push(json!({"Sequence": {"id": "A", "type_id": 0}}));
        single.extend(eos);
        let mut pair = single.clone();
        let [of_first, of_second] = behind_pair;
        let second = |segment: u8| json!({"Sequence": {"id": "B", "type_id": segment}});
        match (self.architecture.as_str(), self.model.as_str()) {
            (ENCODER, "bert") => {
                pair.push(second(1));
                pair.extend(of_second);
            }
            // RoBERTa and XLM-RoBERTa: two ends between the texts, and one segment.
            (ENCODER, _) => {
                pair.extend(of_first.clone());
                pair.push(second(0));
                pair.extend(of_first);
            }
            _ => pair.push(second(1)),
        }
        json!({
            "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special,
        })
    }

    /// The tokens around a text that the flags ask for; `add` is what holds if they say nothing.
    fn flagged(&self, add_bos: bool, add_eos: bool) -> Value {
        let bos = self.bos.filter(|_| self.add_bos.unwrap_or(add_bos));
        let eos = self.eos.filter(|_| self.add_eos.unwrap_or(add_eos));
        self.around(bos, eos)
    }

    /// `tokenizer_config.json`.
    fn config(&self) -> Value {
        let templates: Vec<Value> = self
            .chat_templates
            .iter()
            .map(|(name, template)| json!({"name": name, "template": template}))
            .collect();
        let mut config = json!({
            "bos_token": self.text(self.bos),
            "eos_token": self.text(self.eos),
        });
        if !templates.is_empty() {
            config["chat_template"] = Value::Array(templates);
        }
        config
    }
}

fn wrong(reason: String) -> TokenizerError {
    malformed(FILE, reason)
}

#[cfg(test)]
mod tests;
