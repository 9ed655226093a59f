//! `mortise template`, `parse`, `grammar` and `tokenize`: JSON in, JSON out, through the same components as
//! the server's.

use std::sync::Arc;

use anyhow::bail;
use mortise_harness::{Harness, golden_cases, model_files, print_json, read};
use mortise_plugin_manager::{AuthConfig, LoadedPlugins, PluginConfig};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::ModelInput;

/// `mortise template render`
pub(crate) fn template(input: &ModelInput) -> anyhow::Result<()> {
    answer(input, Harness::template)
}

/// `mortise parse`
pub(crate) fn parse(input: &ModelInput) -> anyhow::Result<()> {
    answer(input, Harness::parse)
}

/// `mortise grammar check`
pub(crate) fn grammar(input: &ModelInput) -> anyhow::Result<()> {
    answer(input, Harness::grammar)
}

/// Read the input, ask the plugin, print what it said.
fn answer(
    input: &ModelInput,
    ask: impl FnOnce(&Harness, Value) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let request = read(input.input.as_deref())?;
    let plugins = PluginConfig {
        dir: input.plugins.clone(),
        // A bad file is told here, not left out.
        quarantine: false,
        ..PluginConfig::default()
    };
    let plugins = LoadedPlugins::load(plugins, golden_cases())?;
    let text = Arc::new(model_files(input.model.as_deref())?);
    let harness = Harness::open(plugins, &AuthConfig::default(), text, None)?;
    print_json(&ask(&harness, request)?)
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
    let tokenizer = model_files(input.model.as_deref())?.tokenizer;
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
