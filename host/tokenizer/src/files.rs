//! Reading the JSON files beside a tokenizer, and a first look at `tokenizer.json` itself, whose
//! library panics on some malformed files.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::AddedToken;

use crate::error::{TokenizerError, malformed};

/// The files that describe a tokenizer, as bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenizerFiles<'a> {
    /// `tokenizer.json`
    pub tokenizer: &'a [u8],
    /// `tokenizer_config.json`
    pub config: Option<&'a [u8]>,
    /// `special_tokens_map.json`
    pub special_tokens_map: Option<&'a [u8]>,
    /// `chat_template.jinja`; it wins over a template in `tokenizer_config.json`.
    pub chat_template: Option<&'a [u8]>,
}

/// Largest `tokenizer.json`. The largest in use have 35 MB.
const MAX_TOKENIZER_BYTES: usize = 256 << 20;
/// Most added tokens. The most in use are about 6,000.
const MAX_ADDED_TOKENS: usize = 1 << 18;
/// Longest text of an added token.
const MAX_ADDED_TOKEN_BYTES: usize = 4096;
/// Largest chat template. The largest in use have 30 KB.
const MAX_TEMPLATE_BYTES: usize = 4 << 20;

/// What must be true of `tokenizer.json` before the library sees it.
pub(crate) struct Outline {
    pub(crate) unknown_token: Option<String>,
}

#[derive(Deserialize)]
struct RawOutline {
    model: RawModel,
    #[serde(default)]
    added_tokens: Vec<RawAddedToken>,
}

#[derive(Deserialize)]
struct RawModel {
    vocab: Option<RawVocabulary>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

enum RawVocabulary {
    Scored(Vec<(String, f64)>),
    /// How many entries there are; what they are is read once, by the library.
    Numbered(usize),
}

impl<'de> Deserialize<'de> for RawVocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawVocabulary;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tokens with numbers, or a list with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut count = 0;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(RawVocabulary::Numbered(count))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut scored = Vec::new();
                while let Some(entry) = list.next_element()? {
                    scored.push(entry);
                }
                Ok(RawVocabulary::Scored(scored))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
struct RawAddedToken {
    #[serde(rename = "id")]
    _id: u32,
    content: String,
}

impl Outline {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let fail = |reason: String| Err(malformed("tokenizer.json", reason));
        if bytes.len() > MAX_TOKENIZER_BYTES {
            let size = bytes.len();
            return fail(format!(
                "it has {size} bytes, and at most {MAX_TOKENIZER_BYTES} are read"
            ));
        }
        let raw: RawOutline =
            serde_json::from_slice(bytes).map_err(|error| malformed("tokenizer.json", error))?;
        if raw.added_tokens.len() > MAX_ADDED_TOKENS {
            let count = raw.added_tokens.len();
            return fail(format!(
                "{count} added tokens, and at most {MAX_ADDED_TOKENS} are read"
            ));
        }
        if let Some(token) = raw
            .added_tokens
            .iter()
            .find(|t| t.content.len() > MAX_ADDED_TOKEN_BYTES)
        {
            let size = token.content.len();
            return fail(format!(
                "an added token has {size} bytes, and at most {MAX_ADDED_TOKEN_BYTES} are read"
            ));
        }
        let unknown_token = match (&raw.model.vocab, raw.model.unk_id) {
            (Some(RawVocabulary::Scored(scored)), Some(id)) => {
                let Some((text, _)) = scored.get(id as usize) else {
                    return fail(format!("unk_id {id} is beyond the vocabulary"));
                };
                Some(text.clone())
            }
            (Some(RawVocabulary::Numbered(0)), None) => {
                return fail("its vocabulary is empty".to_owned());
            }
            (None, _) => return fail("its model has no vocabulary".to_owned()),
            _ => raw.model.unk_token,
        };
        Ok(Self { unknown_token })
    }
}

/// What the smaller files say.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) bos_token: Option<String>,
    pub(crate) eos_token: Option<String>,
    pub(crate) add_bos_token: Option<bool>,
    pub(crate) chat_templates: Vec<(String, String)>,
    pub(crate) added_tokens: BTreeMap<u32, AddedToken>,
}

impl Config {
    pub(crate) fn read(files: &TokenizerFiles<'_>) -> Result<Self, TokenizerError> {
        let mut config = Self::default();
        if let Some(bytes) = files.special_tokens_map {
            config.take("special_tokens_map.json", bytes)?;
        }
        if let Some(bytes) = files.config {
            config.take("tokenizer_config.json", bytes)?;
        }
        if let Some(bytes) = files.chat_template {
            let source = std::str::from_utf8(bytes)
                .map_err(|error| malformed("chat_template.jinja", error))?;
            config.chat_templates = vec![("default".to_owned(), source.to_owned())];
        }
        if config
            .chat_templates
            .iter()
            .any(|(_, source)| source.len() > MAX_TEMPLATE_BYTES)
        {
            let reason = format!("the chat template has more than {MAX_TEMPLATE_BYTES} bytes");
            return Err(malformed("tokenizer_config.json", reason));
        }
        Ok(config)
    }

    /// Take what one file says; it wins over what was taken before.
    fn take(&mut self, file: &'static str, bytes: &[u8]) -> Result<(), TokenizerError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| malformed(file, error))?;
        let Value::Object(fields) = value else {
            return Err(malformed(file, "it is not a JSON object"));
        };
        self.bos_token = token_text(fields.get("bos_token")).or(self.bos_token.take());
        self.eos_token = token_text(fields.get("eos_token")).or(self.eos_token.take());
        if let Some(add) = fields.get("add_bos_token").and_then(Value::as_bool) {
            self.add_bos_token = Some(add);
        }
        if let Some(templates) = fields.get("chat_template").filter(|value| !value.is_null()) {
            self.chat_templates = named_templates(templates).ok_or_else(|| {
                malformed(
                    file,
                    "chat_template is neither text nor a list of {name, template}",
                )
            })?;
        }
        if let Some(Value::Object(tokens)) = fields.get("added_tokens_decoder") {
            for (id, token) in tokens {
                let id = id.parse::<u32>().map_err(|_| {
                    malformed(
                        file,
                        format!("added_tokens_decoder: `{id}` is not a token id"),
                    )
                })?;
                let token = added_token(token).ok_or_else(|| {
                    malformed(file, format!("added_tokens_decoder.{id} has no content"))
                })?;
                self.added_tokens.insert(id, token);
            }
        }
        Ok(())
    }
}

/// A token is given as text or as an object with `content`.
fn token_text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) => fields.get("content")?.as_str().map(str::to_owned),
        _ => None,
    }
}

fn named_templates(value: &Value) -> Option<Vec<(String, String)>> {
    match value {
        Value::String(source) => Some(vec![("default".to_owned(), source.clone())]),
        Value::Array(list) => list
            .iter()
            .map(|entry| {
                let text = |key| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                Some((text("name")?, text("template")?))
            })
            .collect(),
        _ => None,
    }
}

fn added_token(value: &Value) -> Option<AddedToken> {
    let content = value.get("content")?.as_str()?;
    let flag = |key| value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let special = flag("special");
    let normalized = value
        .get("normalized")
        .and_then(Value::as_bool)
        .unwrap_or(!special);
    Some(
        AddedToken::from(content, special)
            .normalized(normalized)
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .single_word(flag("single_word")),
    )
}
