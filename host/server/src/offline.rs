//! The offline commands: JSON in, JSON out, through the same components as the server's.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_model::EmbedderOptions;
use mortise_plugin_manager::{AuthConfig, LoadedPlugins, PluginConfig};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::golden_cases;
use crate::assembly::ModelText;
use crate::cli::ModelInput;
use crate::config::{DEMO_MODEL, ModelConfig};
use crate::workbench::Workbench;

/// Largest input that is read.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Write to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write the output")
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// The JSON of an offline command, as `T`.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(input: Option<&Path>) -> anyhow::Result<T> {
    let mut text = String::new();
    let read = match input {
        Some(path) => std::fs::File::open(path)
            .with_context(|| format!("cannot open `{}`", path.display()))?
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text),
        None => std::io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text),
    };
    read.context("cannot read the input as UTF-8")?;
    serde_json::from_str(&text).context("the input is not what the command reads; see --help")
}

/// What the model's files say about text; without a folder, those of the demo model.
pub(crate) fn model_text(folder: Option<&Path>) -> anyhow::Result<ModelText> {
    ModelText::open(&ModelConfig {
        name: DEMO_MODEL.to_owned(),
        aliases: Vec::new(),
        path: folder.map(Path::to_owned),
        hf: None,
        script: None,
        quantize: None,
        draft: None,
        embedding: EmbedderOptions::default(),
    })
}

/// `mortise template render`
pub(crate) fn template(input: &ModelInput) -> anyhow::Result<()> {
    answer(input, Workbench::template)
}

/// `mortise parse`
pub(crate) fn parse(input: &ModelInput) -> anyhow::Result<()> {
    answer(input, Workbench::parse)
}

/// `mortise grammar check`
pub(crate) fn grammar(input: &ModelInput) -> anyhow::Result<()> {
    answer(input, Workbench::grammar)
}

/// Read the input, ask the plugin, print what it said.
fn answer(
    input: &ModelInput,
    ask: impl FnOnce(&Workbench, Value) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let request = read(input.input.as_deref())?;
    let plugins = PluginConfig {
        dir: input.plugins.clone(),
        ..PluginConfig::default()
    };
    let plugins = LoadedPlugins::load(plugins, golden_cases())?;
    let text = Arc::new(model_text(input.model.as_deref())?);
    let bench = Workbench::open(plugins, &AuthConfig::default(), text, None)?;
    print_json(&ask(&bench, request)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizeRequest {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    tokens: Option<Vec<u32>>,
    #[serde(default)]
    special: Option<bool>,
}

/// `mortise tokenize`
pub(crate) fn tokenize(input: &ModelInput) -> anyhow::Result<()> {
    let request: TokenizeRequest = read(input.input.as_deref())?;
    let tokenizer = model_text(input.model.as_deref())?.tokenizer;
    let tokens = match (request.text, request.tokens) {
        (Some(text), None) if request.special.unwrap_or(false) => {
            tokenizer.encode_special(&text)?
        }
        (Some(text), None) => tokenizer.encode_plain(&text)?,
        (None, Some(tokens)) => tokens,
        _ => bail!("give either `text` or `tokens`"),
    };
    let keep = request.special.unwrap_or(true);
    let pieces: Vec<_> = tokens
        .iter()
        .map(|&id| String::from_utf8_lossy(tokenizer.table().bytes(id)).into_owned())
        .collect();
    print_json(&json!({
        "tokens": tokens,
        "pieces": pieces,
        "text": tokenizer.decode(&tokens, keep),
        "count": tokens.len(),
    }))
}

/// `mortise inspect`
pub(crate) fn inspect(path: &Path) -> anyhow::Result<()> {
    print_json(&crate::inspect::inspect(path)?)
}
