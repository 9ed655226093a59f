//! The JSON files of a tokenizer: the small ones are read here, and `tokenizer.json` is checked before the
//! library, which panics on some malformed files, reads it.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::AddedToken;

use crate::checks::{AddedBytes, check_steps};
use crate::error::{TokenizerError, malformed};
use crate::file_values::check_values;

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
    /// Files of `additional_chat_templates`, by their names without `.jinja`; they count beside `chat_template.jinja`.
    pub further_templates: &'a [(&'a str, &'a [u8])],
}

/// Largest `tokenizer.json`. The largest in use have 35 MB.
const MAX_TOKENIZER_BYTES: usize = 256 << 20;
/// Most added tokens. The most in use are about 6,000.
const MAX_ADDED_TOKENS: usize = 1 << 18;
/// Longest text of an added token.
const MAX_ADDED_TOKEN_BYTES: usize = 4096;
/// Largest chat template. The largest in use have 30 KB.
const MAX_TEMPLATE_BYTES: usize = 4 << 20;

/// Longest word, in characters, that a WordPiece model looks up; 100 is usual. The time that a word
/// takes grows with the square of its length.
const MAX_WORD_CHARACTERS: u64 = 1000;

/// Facts about `tokenizer.json` that are read and checked before the library sees it.
pub(crate) struct Outline {
    pub(crate) unknown_token: Option<String>,
    /// `BPE`, `Unigram`, `WordPiece` or `WordLevel`.
    pub(crate) model: String,
    pub(crate) byte_fallback: bool,
    /// The merges, if the model is a byte-pair encoding.
    pub(crate) bpe: Option<BpeOutline>,
    /// Sum of the added tokens.
    pub(crate) added_bytes: AddedBytes,
}

/// A byte-pair model as the file describes it.
pub(crate) struct BpeOutline {
    /// Pairs, the first to be merged first.
    pub(crate) merges: Vec<(String, String)>,
    /// Tokens are spelled otherwise at the end of a word, or everywhere but at its beginning.
    pub(crate) has_affixes: bool,
    pub(crate) byte_fallback: bool,
    pub(crate) unknown_token: Option<String>,
    pub(crate) fuse_unknown: bool,
    pub(crate) ignore_merges: bool,
}

#[derive(Deserialize)]
struct RawOutline {
    model: RawModel,
    #[serde(default)]
    added_tokens: Vec<RawAddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
}

#[derive(Deserialize)]
struct RawModel {
    vocab: Option<RawVocabulary>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
    #[serde(rename = "type")]
    kind: Option<String>,
    merges: Option<Vec<RawMerge>>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    dropout: Option<f64>,
    max_input_chars_per_word: Option<u64>,
}

/// A merge as `["a", "b"]` or `"a b"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawMerge {
    Pair(String, String),
    Joined(String),
}

enum RawVocabulary {
    Scored(Vec<(String, f64)>),
    /// The number of entries; the library reads the entries themselves.
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
    #[serde(default)]
    normalized: Option<bool>,
}

impl RawModel {
    fn check(&self) -> Result<(), TokenizerError> {
        if self.dropout.is_some_and(|dropout| dropout != 0.0) {
            let feature = "dropout, which makes the tokens of a text random,";
            return Err(TokenizerError::Unsupported(feature.to_owned()));
        }
        let longest = self.max_input_chars_per_word.unwrap_or(0);
        if longest > MAX_WORD_CHARACTERS {
            let reason = format!(
                "max_input_chars_per_word is {longest}; at most {MAX_WORD_CHARACTERS} are allowed"
            );
            return Err(malformed("tokenizer.json", reason));
        }
        Ok(())
    }

    /// The byte-pair encoding, if the model is one. Files may leave the type out, but only these models
    /// have merges.
    fn bpe(&mut self) -> Option<BpeOutline> {
        let merges = self.merges.take()?;
        let pair = |merge| match merge {
            RawMerge::Pair(left, right) => Some((left, right)),
            RawMerge::Joined(joined) => joined
                .split_once(' ')
                .filter(|_| !joined.starts_with("#version"))
                .map(|(left, right)| (left.to_owned(), right.to_owned())),
        };
        let has = |affix: &Option<String>| affix.as_ref().is_some_and(|text| !text.is_empty());
        Some(BpeOutline {
            merges: merges.into_iter().filter_map(pair).collect(),
            has_affixes: has(&self.continuing_subword_prefix) || has(&self.end_of_word_suffix),
            byte_fallback: self.byte_fallback.unwrap_or(false),
            unknown_token: self.unk_token.clone(),
            fuse_unknown: self.fuse_unk.unwrap_or(false),
            ignore_merges: self.ignore_merges.unwrap_or(false),
        })
    }
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
        check_values("tokenizer.json", bytes)?;
        let mut raw: RawOutline =
            serde_json::from_slice(bytes).map_err(|error| malformed("tokenizer.json", error))?;
        raw.model.check()?;
        check_added_count("tokenizer.json", raw.added_tokens.len())?;
        for token in &raw.added_tokens {
            check_added_token("tokenizer.json", &token.content)?;
        }
        check_steps(&raw.pre_tokenizer)?;
        check_steps(&raw.decoder)?;
        let mut added_bytes = AddedBytes::new(check_steps(&raw.normalizer)?);
        for token in &raw.added_tokens {
            let normalized = token.normalized != Some(false);
            added_bytes.add("tokenizer.json", &token.content, normalized)?;
        }
        let bpe = raw.model.bpe();
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
            _ => raw.model.unk_token.clone(),
        };
        let kind = raw.model.kind.as_deref();
        Ok(Self {
            unknown_token,
            model: kind.unwrap_or_default().to_owned(),
            byte_fallback: raw.model.byte_fallback.unwrap_or(false),
            bpe,
            added_bytes,
        })
    }
}

/// Settings from the smaller files.
#[derive(Debug, Default)]
pub(crate) struct TokenizerConfig {
    pub(crate) bos_token: Option<String>,
    pub(crate) eos_token: Option<String>,
    pub(crate) add_bos_token: Option<bool>,
    pub(crate) chat_templates: Vec<(String, String)>,
    pub(crate) response_template: Option<String>,
    pub(crate) added_tokens: BTreeMap<u32, AddedToken>,
}

impl TokenizerConfig {
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
            for (name, bytes) in files.further_templates {
                let source = std::str::from_utf8(bytes)
                    .map_err(|error| malformed("additional_chat_templates", error))?;
                config
                    .chat_templates
                    .push(((*name).to_owned(), source.to_owned()));
            }
        }
        if config
            .chat_templates
            .iter()
            .any(|(_, source)| source.len() > MAX_TEMPLATE_BYTES)
        {
            let reason = format!("the chat template has more than {MAX_TEMPLATE_BYTES} bytes");
            return Err(malformed("tokenizer_config.json", reason));
        }
        let response = config.response_template.as_ref();
        if response.is_some_and(|template| template.len() > MAX_TEMPLATE_BYTES) {
            let reason = format!("the response template has more than {MAX_TEMPLATE_BYTES} bytes");
            return Err(malformed("tokenizer_config.json", reason));
        }
        Ok(config)
    }

    /// Take what one file says; it wins over what was taken before.
    fn take(&mut self, file: &'static str, bytes: &[u8]) -> Result<(), TokenizerError> {
        check_values(file, bytes)?;
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
        // Whether it makes sense is for the output parser to say, which reads answers without it as well.
        let response = fields
            .get("response_template")
            .filter(|value| !value.is_null());
        self.response_template = response
            .map(Value::to_string)
            .or(self.response_template.take());
        if let Some(Value::Object(tokens)) = fields.get("added_tokens_decoder") {
            check_added_count(file, tokens.len())?;
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
                check_added_token(file, &token.content)?;
                self.added_tokens.insert(id, token);
            }
        }
        Ok(())
    }
}

fn check_added_count(file: &'static str, count: usize) -> Result<(), TokenizerError> {
    match count > MAX_ADDED_TOKENS {
        true => Err(malformed(
            file,
            format!("{count} added tokens, and at most {MAX_ADDED_TOKENS} are read"),
        )),
        false => Ok(()),
    }
}

fn check_added_token(file: &'static str, content: &str) -> Result<(), TokenizerError> {
    let size = content.len();
    match size > MAX_ADDED_TOKEN_BYTES {
        true => Err(malformed(
            file,
            format!(
                "an added token has {size} bytes, and at most {MAX_ADDED_TOKEN_BYTES} are read"
            ),
        )),
        false => Ok(()),
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
