//! Opens what a model's files say about text: its tokenizer, its description for plugins, its
//! vocabulary. Used by the server and by the offline commands, so that both serve the same.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_model::{FileBytes, ModelFolder};
use mortise_plugin::{ModelDescription, Vocabulary};
use mortise_service::{GenerationDefaults, Tokenizer, TokenizerFiles};
use serde_json::Value;

use crate::config::ModelConfig;

/// Largest tokenizer file that is read; a vocabulary of 256 000 tokens has about 20 MB.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
/// Largest configuration file of a model that is read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// What a model's files say about text: everything but its weights.
pub(crate) struct ModelText {
    pub(crate) folder: ModelFolder,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) description: Arc<ModelDescription>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) defaults: GenerationDefaults,
}

impl ModelText {
    /// Read the files. Blocks.
    pub(crate) fn open(config: &ModelConfig) -> anyhow::Result<Self> {
        let folder = match &config.path {
            Some(path) => ModelFolder::open(path)?,
            None => ModelFolder::embedded(mortise_bundle::demo_model()),
        };
        Self::read(folder, &config.name)
            .with_context(|| format!("the model `{}` cannot be served", config.name))
    }

    fn read(folder: ModelFolder, name: &str) -> anyhow::Result<Self> {
        let tokenizer_json = folder.read("tokenizer.json", TOKENIZER_BYTES_MAX)?;
        let small = |file| folder.read_optional(file, CONFIG_BYTES_MAX);
        let config = small("tokenizer_config.json")?;
        let special = small("special_tokens_map.json")?;
        let template = small("chat_template.jinja")?;
        let tokenizer = Tokenizer::load(TokenizerFiles {
            tokenizer: &tokenizer_json,
            config: config.as_deref(),
            special_tokens_map: special.as_deref(),
            chat_template: template.as_deref(),
        })
        .with_context(|| format!("in the model folder `{}`", folder.name()))?;
        let model: Value = match small("config.json")? {
            Some(bytes) => parse_json("config.json", &bytes)?,
            None => Value::Null,
        };
        let mut defaults = match small("generation_config.json")? {
            Some(bytes) => GenerationDefaults::read(&bytes)
                .context("`generation_config.json` is not valid JSON")?,
            None => GenerationDefaults::default(),
        };
        defaults = defaults.with_eos(tokenizer.eos());
        let architecture = model
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let known = tokenizer.vocabulary_size();
        // Logits may be padded beyond the tokens that the tokenizer knows.
        let size = model
            .get("vocab_size")
            .and_then(Value::as_u64)
            .and_then(|size| usize::try_from(size).ok())
            .map_or(known, |size| size.max(known));
        Ok(Self {
            description: Arc::new(tokenizer.describe(name, architecture)),
            vocabulary: Arc::new(tokenizer.vocabulary(&defaults.eos, size)),
            tokenizer: Arc::new(tokenizer),
            defaults,
            folder,
        })
    }
}

fn parse_json(file: &str, bytes: &FileBytes) -> anyhow::Result<Value> {
    serde_json::from_slice(bytes).with_context(|| format!("`{file}` is not valid JSON"))
}
