//! Files of a model: tokenizer, chat template and end tokens, from a Hugging Face folder or a GGUF file.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_hub::ModelReference;
use mortise_model::gguf::{Gguf, GgufError};
use mortise_model::{
    FileBytes, GenerationConfig, ModelFolder, TOKENIZER_BYTES_MAX, vocabulary_size,
};
use mortise_tokenizer::{GgufVocabulary, Tokenizer, TokenizerFiles};
use serde_json::Value;

use crate::config::ModelConfig;
use crate::digest::check_pin;
use crate::lifecycle::{LoadProgress, LoadStage};

/// Bytes of a file with settings of the tokenizer, or with a template.
const TEXT_FILE_BYTES_MAX: u64 = 16 << 20;
/// Templates beside `chat_template.jinja`, where `transformers` saves them, by their names.
const FURTHER_TEMPLATES: [(&str, &str); 2] = [
    ("rag", "additional_chat_templates/rag.jinja"),
    ("tool_use", "additional_chat_templates/tool_use.jinja"),
];
/// Control tokens that end an answer wherever a vocabulary has them: GGUF files often name one only.
const END_TOKENS: [&str; 7] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
];

/// The files of the model that is part of the program, by name.
pub type EmbeddedFiles = &'static [(&'static str, &'static [u8])];

/// Fetches a model from the hub, with reports of the progress; the result is the place of the files.
pub type FetchModel =
    Arc<dyn Fn(&ModelReference, &LoadProgress) -> anyhow::Result<PathBuf> + Send + Sync>;

/// Sources of model files.
#[derive(Clone)]
pub struct ModelSource {
    /// Files of the demo model, for models without a path.
    pub demo: EmbeddedFiles,
    /// Fetches models from the hub.
    pub fetch: FetchModel,
}

impl std::fmt::Debug for ModelSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ModelSource")
    }
}

impl ModelSource {
    /// Folders and the embedded model, without a hub.
    pub fn local(demo: EmbeddedFiles) -> Self {
        let fetch = |reference: &ModelReference, _: &LoadProgress| {
            bail!("no hub is known to fetch `{reference}` from")
        };
        Self {
            demo,
            fetch: Arc::new(fetch),
        }
    }

    /// Read the files of a model, fetched first if they have to be. Blocks.
    pub fn open(&self, config: &ModelConfig) -> anyhow::Result<ModelFiles> {
        self.open_telling(config, &LoadProgress::default())
    }

    /// Read the files of a model, fetched first if they have to be, and report the progress. Blocks.
    pub(crate) fn open_telling(
        &self,
        config: &ModelConfig,
        progress: &LoadProgress,
    ) -> anyhow::Result<ModelFiles> {
        let fetched = match &config.hf {
            Some(reference) => {
                let fetched = (self.fetch)(reference, progress)?;
                progress.stage(LoadStage::Reading);
                Some(fetched)
            }
            None => None,
        };
        let folder = match fetched.as_ref().or(config.path.as_ref()) {
            Some(path) => {
                check_pin(config, path)?;
                ModelFolder::open(path)?
            }
            None => ModelFolder::embedded(self.demo),
        };
        ModelFiles::open(folder, &config.name)
    }
}

/// Contents of a model's files, without the weights.
#[derive(Debug)]
pub struct ModelFiles {
    /// The public name.
    pub name: String,
    /// The folder or file.
    pub folder: ModelFolder,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Architecture, as `config.json` or a GGUF file names it; empty if the files do not tell.
    pub architecture: String,
    /// Logits of the model: at least the tokens that the tokenizer knows.
    pub vocabulary_size: usize,
    /// Generation defaults.
    pub defaults: GenerationConfig,
}

impl ModelFiles {
    /// Read the files. Blocks.
    fn open(folder: ModelFolder, name: &str) -> anyhow::Result<Self> {
        Self::read(folder, name).with_context(|| format!("the model `{name}` cannot be served"))
    }

    fn read(folder: ModelFolder, name: &str) -> anyhow::Result<Self> {
        if let Some(gguf) = folder.gguf().cloned() {
            return Self::of_gguf(folder, &gguf, name);
        }
        let tokenizer_json = folder.read("tokenizer.json", TOKENIZER_BYTES_MAX)?;
        let small = |file| folder.read_optional(file, TEXT_FILE_BYTES_MAX);
        let config = small("tokenizer_config.json")?;
        let special = small("special_tokens_map.json")?;
        let template = small("chat_template.jinja")?;
        let further = FURTHER_TEMPLATES.map(|(name, file)| small(file).map(|read| (name, read)));
        let further: Vec<_> = further.into_iter().collect::<Result<_, _>>()?;
        let further = further.iter();
        let further: Vec<(&str, &[u8])> = further
            .filter_map(|(name, bytes)| Some((*name, bytes.as_deref()?)))
            .collect();
        let tokenizer = Tokenizer::load(TokenizerFiles {
            tokenizer: &tokenizer_json,
            config: config.as_deref(),
            special_tokens_map: special.as_deref(),
            chat_template: template.as_deref(),
            further_templates: &further,
        })
        .with_context(|| format!("in the model folder `{}`", folder.name()))?;
        let model: Value = match small("config.json")? {
            Some(bytes) => parse_json("config.json", &bytes)?,
            None => Value::Null,
        };
        let architecture = model
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let size = padded_vocabulary(&folder, &tokenizer)?;
        let defaults = GenerationConfig::read(&folder, size)?.with_eos_tokens(tokenizer.eos());
        let architecture = architecture.to_owned();
        Ok(Self::new(
            folder,
            tokenizer,
            defaults,
            &architecture,
            size,
            name,
        ))
    }

    /// Read the files of a model whose tokenizer, template and settings are in one GGUF file.
    fn of_gguf(folder: ModelFolder, gguf: &Gguf, name: &str) -> anyhow::Result<Self> {
        let vocabulary = gguf_vocabulary(gguf)
            .with_context(|| format!("in the GGUF file `{}`", folder.name()))?;
        let architecture = vocabulary.architecture.clone();
        let tokenizer = Tokenizer::from_gguf(vocabulary)
            .with_context(|| format!("in the GGUF file `{}`", folder.name()))?;
        let named = END_TOKENS
            .iter()
            .filter_map(|text| tokenizer.token_id(text))
            .filter(|id| tokenizer.table().is_special(*id));
        let size = padded_vocabulary(&folder, &tokenizer)?;
        let defaults = GenerationConfig::read(&folder, size)?.with_eos_tokens(named);
        Ok(Self::new(
            folder,
            tokenizer,
            defaults,
            &architecture,
            size,
            name,
        ))
    }

    fn new(
        folder: ModelFolder,
        tokenizer: Tokenizer,
        defaults: GenerationConfig,
        architecture: &str,
        size: usize,
        name: &str,
    ) -> Self {
        // What a tokenizer puts behind every text ends texts; encoders know no other end.
        let around = tokenizer.encode_text("").unwrap_or_default();
        let defaults = match around.as_slice() {
            [_, .., last] if defaults.eos_tokens.is_empty() => defaults.with_eos_tokens([*last]),
            _ => defaults,
        };
        Self {
            name: name.to_owned(),
            architecture: architecture.to_owned(),
            vocabulary_size: size,
            tokenizer: Arc::new(tokenizer),
            defaults,
            folder,
        }
    }
}

/// Tokens of the model: logits may be padded beyond those that the tokenizer knows.
fn padded_vocabulary(folder: &ModelFolder, tokenizer: &Tokenizer) -> anyhow::Result<usize> {
    let known = tokenizer.vocabulary_size();
    let rows = vocabulary_size(folder)?;
    Ok(rows.map_or(known, |rows| rows.max(known)))
}

/// The entries of a GGUF file that describe its tokenizer. What is no tokenizer is found when one is
/// built from them.
fn gguf_vocabulary(gguf: &Gguf) -> anyhow::Result<GgufVocabulary> {
    let metadata = gguf.metadata();
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let text = |name: &str| Ok::<_, GgufError>(metadata.text(&key(name))?.map(str::to_owned));
    let id = |name: &str| {
        let id = metadata.count(&key(name))?;
        id.map(u32::try_from)
            .transpose()
            .with_context(|| format!("`{}` is too large for a token id", key(name)))
    };
    let texts = |name: &str| match metadata.array(&key(name))? {
        None => Ok(Vec::new()),
        Some(array) => array
            .texts()
            .map(|text| text.map(str::to_owned))
            .collect::<Result<_, GgufError>>(),
    };
    let integers = |name: &str| match metadata.array(&key(name))? {
        None => Ok(Vec::new()),
        Some(array) => array
            .integers()
            .map(|number| number.map(|number| i32::try_from(number).unwrap_or(i32::MAX)))
            .collect::<Result<Vec<i32>, GgufError>>(),
    };
    let scores = match metadata.array(&key("scores"))? {
        None => Vec::new(),
        Some(array) => array
            .floats()
            .map(|score| score.map(|score| score as f32))
            .collect::<Result<_, GgufError>>()?,
    };
    let flag = |name: &str| metadata.flag(&key(name));
    let Some(model) = text("model")? else {
        bail!("it has no tokenizer: `tokenizer.ggml.model` is missing");
    };
    let bytes = integers("precompiled_charsmap")?;
    Ok(GgufVocabulary {
        architecture: gguf.architecture()?.to_owned(),
        model,
        pre: text("pre")?,
        tokens: texts("tokens")?,
        scores,
        types: integers("token_type")?,
        merges: texts("merges")?,
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        unknown: id("unknown_token_id")?,
        // The format's own spelling.
        separator: id("seperator_token_id")?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
        remove_extra_whitespaces: flag("remove_extra_whitespaces")?,
        // Written as signed or unsigned bytes.
        character_map: bytes.into_iter().map(|byte| byte as u8).collect(),
        chat_templates: chat_templates(gguf)?,
    })
}

fn chat_templates(gguf: &Gguf) -> Result<Vec<(String, String)>, GgufError> {
    const KEY: &str = "tokenizer.chat_template";
    let metadata = gguf.metadata();
    let mut templates = Vec::new();
    for key in metadata.keys() {
        let name = match key.strip_prefix(KEY) {
            Some("") => "default",
            Some(named) => match named.strip_prefix('.') {
                Some(name) => name,
                None => continue,
            },
            None => continue,
        };
        if let Some(template) = metadata.text(key)? {
            templates.push((name.to_owned(), template.to_owned()));
        }
    }
    Ok(templates)
}

fn parse_json(file: &str, bytes: &FileBytes) -> anyhow::Result<Value> {
    serde_json::from_slice(bytes).with_context(|| format!("`{file}` is not valid JSON"))
}
