//! A model's tokenizer, loaded from its files.
//!
//! Control tokens are recognised only where the prompt's author put them. Text from a caller never
//! becomes one, whatever it contains.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tokenizers::AddedToken;

use crate::added_tokens::{ControlMatcher, SpecialToken, is_control};
use crate::checks::AddedBytes;
use crate::detokenizer::Detokenizer;
use crate::error::{TokenizerError, guarded, malformed};
use crate::files::{Outline, TokenizerConfig, TokenizerFiles};
use crate::pipeline::Pipeline;
use crate::token_table::TokenTable;

/// A model's tokenizer.
pub struct Tokenizer {
    pub(crate) inner: tokenizers::Tokenizer,
    pub(crate) pipeline: Pipeline,
    pub(crate) matcher: ControlMatcher,
    table: Arc<TokenTable>,
    /// By id, rising.
    control: Vec<SpecialToken>,
    pub(crate) config: TokenizerConfig,
    pub(crate) bos: Option<u32>,
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
        let config = TokenizerConfig::read(&files)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(files.tokenizer))
            .and_then(|loaded| loaded.map_err(|error| error.to_string()))
            .map_err(|reason| TokenizerError::Malformed {
                file: "tokenizer.json",
                reason,
            })?;
        add_configured_tokens(&mut inner, &config, outline.added_bytes)?;
        let added: BTreeMap<u32, AddedToken> =
            inner.get_added_tokens_decoder().into_iter().collect();
        let control: Vec<SpecialToken> = added
            .iter()
            .filter(|(_, token)| is_control(token))
            .map(|(&id, token)| SpecialToken {
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
        let pipeline = Pipeline::new(&inner, &outline, &added)?;
        let unknown = outline.unknown_token.as_deref();
        let matcher = ControlMatcher::new(&pipeline.normalizer, &added, unknown)?;
        Ok(Self {
            pipeline,
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

    /// The `response_template` of `tokenizer_config.json`, as JSON text: how answers are taken apart.
    pub fn response_template(&self) -> Option<&str> {
        self.config.response_template.as_deref()
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
    pub fn control_tokens(&self) -> &[SpecialToken] {
        &self.control
    }

    /// Text of the beginning-of-sequence token, as the model's files name it.
    pub fn bos_token(&self) -> Option<&str> {
        self.config.bos_token.as_deref()
    }

    /// Text of the end-of-sequence token, as the model's files name it.
    pub fn eos_token(&self) -> Option<&str> {
        self.config.eos_token.as_deref()
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
        let mut detokenizer = Detokenizer::new(Arc::clone(&self.table), keep_special, true);
        let mut text = String::new();
        for &id in ids {
            detokenizer.push(id, &mut text);
        }
        detokenizer.finish(&mut text);
        text
    }
}

/// Tokens that only `tokenizer_config.json` declares. The library numbers them itself; one that it
/// would number otherwise than the file says is left out, since the model was not trained on it.
fn add_configured_tokens(
    inner: &mut tokenizers::Tokenizer,
    config: &TokenizerConfig,
    mut bytes: AddedBytes,
) -> Result<(), TokenizerError> {
    // Added at once: the library builds its automaton anew each time.
    let (mut added, mut texts) = (Vec::new(), HashSet::new());
    let mut next = inner.get_vocab_size(true) as u32;
    for (&id, token) in &config.added_tokens {
        let text = token.content.as_str();
        if inner.token_to_id(text).is_some() || texts.contains(text) {
            continue;
        }
        if next != id {
            tracing::warn!(
                token = token.content,
                id,
                next,
                "token of tokenizer_config.json left out: its id does not follow the vocabulary"
            );
            continue;
        }
        // The library leaves an empty one out.
        if !text.is_empty() {
            bytes.add("tokenizer_config.json", text, token.normalized)?;
            texts.insert(text);
            added.push(token.clone());
            next += 1;
        }
    }
    if let Err(error) = inner.add_tokens(added) {
        tracing::warn!(%error, "tokens of tokenizer_config.json left out");
    }
    Ok(())
}

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
