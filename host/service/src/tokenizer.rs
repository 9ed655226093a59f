//! Text to token ids and back, by the model's own files.
//!
//! Control tokens are recognised only where the prompt's author put them: text that came from a
//! caller never yields one, whatever it contains.

mod bytes;
mod decode;
mod encode;
mod files;
mod gguf;
mod probe;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mortise_plugin::{ControlToken, ModelDescription, Vocabulary};
use sha2::{Digest, Sha256};
use tokenizers::AddedToken;

pub(crate) use decode::TextStart;
pub use decode::TokenTable;
pub use gguf::GgufVocabulary;

use encode::ControlMatcher;
use files::{Config, Outline};

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

/// Why a tokenizer could not be loaded or could not encode a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// A file is not what it should be.
    #[error("{file} is malformed: {reason}")]
    Malformed {
        /// Name of the file.
        file: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The file is well-formed and asks for something this server does not do.
    #[error("tokenizer.json: {0} is not supported")]
    Unsupported(String),
    /// The text cannot be encoded.
    #[error("cannot encode the text: {0}")]
    Encode(String),
    /// A text from a caller could only be encoded as a control token.
    #[error(
        "the text contains `{text}`, which this model's tokenizer can only encode as a control token; remove it"
    )]
    ControlToken {
        /// The part of the text.
        text: String,
    },
}

/// A model's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    matcher: ControlMatcher,
    table: Arc<TokenTable>,
    /// By id, rising.
    control: Vec<ControlToken>,
    config: Config,
    bos: Option<u32>,
    eos: Option<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("tokens", &self.table.len())
            .field("control", &self.control.len())
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Read a tokenizer from its files.
    pub fn load(files: TokenizerFiles<'_>) -> Result<Self, TokenizerError> {
        let outline = Outline::read(files.tokenizer)?;
        let config = Config::read(&files)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(files.tokenizer))
            .and_then(|loaded| loaded.map_err(|error| error.to_string()))
            .map_err(|reason| TokenizerError::Malformed {
                file: "tokenizer.json",
                reason,
            })?;
        probe::check(&inner)?;
        add_configured_tokens(&mut inner, &config);
        let added: BTreeMap<u32, AddedToken> =
            inner.get_added_tokens_decoder().into_iter().collect();
        let control: Vec<ControlToken> = added
            .iter()
            .filter(|(_, token)| encode::is_control(token))
            .map(|(&id, token)| ControlToken {
                id,
                text: token.content.clone(),
                special: token.special,
            })
            .collect();
        let token_id = |text: &Option<String>| text.as_deref().and_then(|t| inner.token_to_id(t));
        let bos = token_id(&config.bos_token);
        let eos = token_id(&config.eos_token);
        let table = guarded(|| TokenTable::build(&inner, &added))
            .map_err(|reason| malformed("tokenizer.json", reason))??;
        let matcher = ControlMatcher::new(&inner, &added, outline.unknown_token.as_deref())?;
        Ok(Self {
            matcher,
            table: Arc::new(table),
            control,
            config,
            bos,
            eos,
            inner,
        })
    }

    /// The chat template of the model's files: the one named `default` if there are several.
    pub fn chat_template(&self) -> Option<&str> {
        let templates = &self.config.chat_templates;
        let first = templates.first();
        let default = templates.iter().find(|(name, _)| name == "default");
        default.or(first).map(|(_, source)| source.as_str())
    }

    /// All chat templates of the model's files by name; a single one is called `default`.
    pub fn chat_templates(&self) -> &[(String, String)] {
        &self.config.chat_templates
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Every token outside the ordinary vocabulary, by rising id.
    pub fn control_tokens(&self) -> &[ControlToken] {
        &self.control
    }

    /// The id of a token by its exact text.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// One more than the highest id.
    pub fn vocabulary_size(&self) -> usize {
        self.table.len()
    }

    /// The bytes of every token.
    pub fn table(&self) -> &Arc<TokenTable> {
        &self.table
    }

    /// Text of tokens that stand at the start of a text. Special tokens are left out unless
    /// `keep_special`.
    pub fn decode(&self, ids: &[u32], keep_special: bool) -> String {
        let mut detokenizer =
            crate::detokenizer::Detokenizer::new(Arc::clone(&self.table), keep_special, true);
        let mut text = String::new();
        for &id in ids {
            detokenizer.push(id, &mut text);
        }
        detokenizer.finish(&mut text);
        text
    }

    /// What plugins are told of the model.
    pub fn describe(&self, name: &str, architecture: &str) -> ModelDescription {
        ModelDescription {
            name: name.to_owned(),
            architecture: architecture.to_owned(),
            chat_template: self.chat_template().map(str::to_owned),
            bos_token: self.config.bos_token.clone().unwrap_or_default(),
            eos_token: self.config.eos_token.clone().unwrap_or_default(),
            control_tokens: self.control.clone(),
        }
    }

    /// The vocabulary as grammars see it. `size` is the number of the model's logits: ids that the
    /// tokenizer does not know get no bytes, so that no grammar allows them.
    pub fn vocabulary(&self, eos: &[u32], size: usize) -> Vocabulary {
        let mut bytes = Vec::new();
        let mut offsets = Vec::with_capacity(size + 1);
        offsets.push(0u32);
        for id in 0..size as u32 {
            bytes.extend_from_slice(self.table.bytes(id));
            offsets.push(bytes.len() as u32);
        }
        let known = |id: &u32| (*id as usize) < size;
        let eos: Vec<u32> = eos.iter().copied().filter(known).collect();
        let control: Vec<u32> = self.control.iter().map(|t| t.id).filter(known).collect();
        let digest = digest(&bytes, &offsets, &eos, &control);
        Vocabulary {
            bytes,
            offsets,
            eos,
            control,
            digest,
        }
    }
}

fn digest(bytes: &[u8], offsets: &[u32], eos: &[u32], control: &[u32]) -> String {
    let mut hash = Sha256::new();
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
    for list in [offsets, eos, control] {
        hash.update((list.len() as u64).to_le_bytes());
        for value in list {
            hash.update(value.to_le_bytes());
        }
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Tokens that only `tokenizer_config.json` declares. The library numbers them itself; one that it
/// would number otherwise than the file says is left out, since the model was not trained on it.
fn add_configured_tokens(inner: &mut tokenizers::Tokenizer, config: &Config) {
    for (&id, token) in &config.added_tokens {
        if inner.token_to_id(&token.content).is_some() {
            continue;
        }
        let next = inner.get_vocab_size(true) as u32;
        if next != id {
            tracing::warn!(
                token = token.content,
                id,
                next,
                "token of tokenizer_config.json left out: its id does not follow the vocabulary"
            );
            continue;
        }
        if let Err(error) = inner.add_tokens([token.clone()]) {
            tracing::warn!(token = token.content, %error, "token of tokenizer_config.json left out");
        }
    }
}

/// Run code of the tokenizers crate, which panics on some malformed files.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        format!(
            "the tokenizers library gave up: {}",
            text.unwrap_or("no reason given")
        )
    })
}

fn malformed(file: &'static str, reason: impl ToString) -> TokenizerError {
    TokenizerError::Malformed {
        file,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests;
