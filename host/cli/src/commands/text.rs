//! `mortise template`, `parse`, `grammar` and `tokenize`: JSON in, JSON out, through the same components as
//! the server's.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_harness::{Harness, model_files, print_as, print_json, read};
use mortise_plugin::Kind;
use mortise_plugin_manager::{AuthConfig, BindingConfig, PluginConfig};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::advice;
use crate::cli::{OfflineInput, ParseArgs};

/// `mortise template render`
pub(crate) fn template(input: &OfflineInput) -> anyhow::Result<()> {
    answer(input, Vec::new(), Harness::template)
}

/// `mortise parse`
pub(crate) fn parse(args: &ParseArgs) -> anyhow::Result<()> {
    if args.formats {
        return formats(&args.input, args.json);
    }
    let chosen = args.format.iter().map(|name| BindingConfig {
        // Whichever serves: the folder's, or the embedded one.
        file: None,
        ..BindingConfig::of_file(Kind::OutputParser, PathBuf::new(), json!({"format": name}))
    });
    answer(&args.input, chosen.collect(), Harness::parse)
}

/// Names of formats with a line about each: what the settings of the output parser may say.
fn formats(input: &OfflineInput, as_json: bool) -> anyhow::Result<()> {
    let plugins = advice::load_plugins(plugins(input, Vec::new()))?;
    let schema = plugins.settings_schema(Kind::OutputParser);
    let schema: Value = serde_json::from_str(schema.unwrap_or("{}"))
        .context("the settings schema of the output parser is no JSON")?;
    let list = |key: &str| {
        let all = schema.pointer(&format!("/properties/format/{key}"));
        all.and_then(Value::as_array).into_iter().flatten()
    };
    let mut about = list("enumDescriptions").filter_map(Value::as_str);
    let names = list("enum").filter_map(Value::as_str);
    let formats: Vec<(&str, &str)> = names
        .map(|name| (name, about.next().unwrap_or_default()))
        .collect();
    if formats.is_empty() {
        bail!("the output parser that serves has no list of formats in its settings");
    }
    let row = |(name, about): &(&str, &str)| json!({"name": name, "description": about});
    let rows: Value = formats.iter().map(row).collect();
    print_as(as_json, &rows, |_| {
        let line = |(name, about): &(&str, &str)| {
            format!("{name:<18} {about}").trim_end().to_owned() + "\n"
        };
        formats.iter().map(line).collect()
    })
}

fn plugins(input: &OfflineInput, bindings: Vec<BindingConfig>) -> PluginConfig {
    PluginConfig {
        dir: input.plugins.clone(),
        bindings,
        // A bad file is told here, not left out.
        quarantine: false,
        ..PluginConfig::default()
    }
}

/// `mortise grammar check`
pub(crate) fn grammar(input: &OfflineInput) -> anyhow::Result<()> {
    answer(input, Vec::new(), Harness::grammar)
}

/// Read the input, ask the plugin, print what it said.
fn answer(
    input: &OfflineInput,
    bindings: Vec<BindingConfig>,
    ask: impl FnOnce(&Harness, Value) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let request = read(input.input.as_deref())?;
    let plugins = advice::load_plugins(plugins(input, bindings))?;
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
pub(crate) fn tokenize(input: &OfflineInput) -> anyhow::Result<()> {
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
