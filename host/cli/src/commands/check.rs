//! `mortise config check`: problems of a configuration and of what it names on this machine, and the changes that it
//! would bring to a running server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use mortise_child::Children;
use mortise_config::{Config, ConfigError, Overrides, UnsetVariable, with_placeholders};
use mortise_harness::{print, print_as};
use mortise_library::Library;
use mortise_models::{DeviceChoice, ModelConfig};
use serde_json::{Value, json};

use crate::admin_args::Against;
use crate::admin_client::AdminClient;
use crate::aliases::{configured as configured_aliases, dangling};
use crate::configured;
use crate::discovery::{KnownModels, check_folders};
use crate::doors::Certificates;

/// Print a router's file as a configuration.
pub(crate) fn import_router(file: &Path) -> anyhow::Result<()> {
    let about = || format!("`{}`", file.display());
    let text = std::fs::read_to_string(file).with_context(about)?;
    let imported = mortise_config::import_router(&text);
    let imported = imported.map_err(anyhow::Error::msg).with_context(about)?;
    for note in &imported.notes {
        eprintln!("mortise: {note}");
    }
    print(&imported.text)
}

/// Check a configuration: `mortise config check`.
pub(crate) fn run(files: &[PathBuf], against: &Against) -> anyhow::Result<()> {
    let files = &configured::files(files)?;
    let (unset, warnings) = check(files)?;
    if let Some(url) = &against.against {
        return compare(url, against, files);
    }
    let unset = unset.iter();
    let unset = unset.map(|unset| json!({"key": unset.key, "variable": unset.variable}));
    let unset = unset.collect::<Value>();
    let found = json!({"valid": true, "unset_variables": unset, "warnings": warnings});
    print_as(against.json, &found, |_| {
        "the configuration is right; `mortise plugin list --config FILE` also loads its plugins and \
         checks their settings\n"
            .to_owned()
    })
}

/// Variables that are not set, and warnings.
type Found = (Vec<UnsetVariable>, Vec<String>);

/// Check files, each laid over those before it, and whether their models could be loaded here. A variable that is not set
/// here may be set where the server runs: it is warned of.
///
/// # Errors
/// When a file is wrong, or names files, programs or devices that are not there.
fn check(files: &[PathBuf]) -> anyhow::Result<Found> {
    let (config, unset) = with_placeholders(|| Config::load(files, Overrides::default()));
    let config = config?;
    for UnsetVariable { key, variable } in &unset {
        eprintln!(
            "mortise: `{key}`: the variable `{variable}` is not set here; the server does not start without it"
        );
    }
    Certificates::read(&config)?;
    for (index, model) in config.models.iter().enumerate() {
        check_model(model)
            .map_err(|(key, message)| wrong(format!("models[{index}].{key}"), message))?;
    }
    check_folders(&config)?;
    if let Some(child) = &config.discovery.child {
        let checked = Children::default().check(child);
        checked.map_err(|error| wrong("discovery.child.command".to_owned(), error.to_string()))?;
    }
    check_device(config.engine.device)
        .map_err(|message| wrong("engine.device".to_owned(), message))?;
    let mut warnings = config.warnings.clone();
    warnings.extend(without_model(config)?);
    for warning in &warnings {
        eprintln!("mortise: {warning}");
    }
    Ok((unset, warnings))
}

/// Aliases whose models are neither configured nor found here. Which models an object store has is not asked: then none is
/// told of.
fn without_model(config: Config) -> anyhow::Result<Vec<String>> {
    let library = match &config.library {
        Some(library) if library.object_store.is_some() => return Ok(Vec::new()),
        Some(library) => Some(Library::read(library.clone())?),
        None => None,
    };
    let Some(known) = KnownModels::of(&config, library) else {
        return Ok(Vec::new());
    };
    let models = known.scan_now()?.models;
    let is_model = |name: &str| models.iter().any(|model| model.name == name);
    Ok(dangling(configured_aliases(&config.aliases), &is_model))
}

/// Advice for a device that is missing.
pub(crate) const OTHER_DEVICES: &str = "`mortise devices` lists what is there, `--device cpu` or `engine.device = \"cpu\"` takes the processor";

/// Look for the GPU that is chosen, if one is.
pub(crate) fn check_device(device: DeviceChoice) -> Result<(), String> {
    let DeviceChoice::Cuda(number) = device else {
        return Ok(());
    };
    let found = mortise_cuda::find()
        .map_err(|error| format!("there is no such device: {error}; {OTHER_DEVICES}"))?;
    match found.len() {
        count if number < count => Ok(()),
        count => Err(format!(
            "there is no GPU {number}; this machine has {count}, counted from 0; {OTHER_DEVICES}"
        )),
    }
}

/// Say what a reload with these files would change on a running server.
///
/// # Errors
/// When the server does not answer, or finds the settings wrong where it runs.
fn compare(url: &str, against: &Against, files: &[PathBuf]) -> anyhow::Result<()> {
    let settings = mortise_config::merged_text(files)?;
    let server = AdminClient::of_comparison(url, against, files)?;
    let body = json!({"settings": settings});
    let changes = server.post("/v1/admin/settings/check", &body)?;
    print_as(against.json, &changes, told)
}

/// Changes in lines.
fn told(changes: &Value) -> String {
    let list = |key: &str| {
        let names = changes[key].as_array().map_or(&[][..], Vec::as_slice);
        names
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut lines = String::new();
    for (key, about) in [
        ("added", "models added:"),
        ("removed", "models removed:"),
        ("updated", "models updated:"),
        ("reload_keys", "taken by a reload:"),
        ("restart_keys", "taken by a restart:"),
    ] {
        let names = list(key);
        if !names.is_empty() {
            let _ = writeln!(lines, "{about:19} {names}");
        }
    }
    for conflict in changes["conflicts"].as_array().into_iter().flatten() {
        let text = |key: &str| conflict[key].as_str().unwrap_or_default().to_owned();
        let (model, state, change) = (text("model"), text("state"), text("change"));
        let _ = writeln!(
            lines,
            "a reload is refused: {model} is {state} and would be {change}; unload it first"
        );
    }
    let mut told = match lines.is_empty() {
        true => "the configuration is right, and the server has it\n".to_owned(),
        false => format!("the configuration is right; on the server it would change:\n{lines}"),
    };
    for warning in changes["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(told, "a warning: {}", warning.as_str().unwrap_or_default());
    }
    told
}

/// Look for what a model needs; an error has the key and the problem.
fn check_model(model: &ModelConfig) -> Result<(), (&'static str, String)> {
    let exists = |key, path: &Path| match path.exists() {
        true => Ok(()),
        false => Err((key, format!("`{}` is not there", path.display()))),
    };
    if let Some(path) = &model.path {
        exists("path", path)?;
    }
    if let Some(path) = model.draft.as_ref().and_then(|draft| draft.path.as_ref()) {
        exists("draft_model", path)?;
    }
    for lora in &model.loras {
        exists("loras", &lora.path)?;
    }
    let device = model.engine.device.map_or(Ok(()), check_device);
    device.map_err(|message| ("engine.device", message))?;
    match &model.child {
        None => Ok(()),
        Some(child) => {
            let checked = Children::default().check(child);
            checked.map_err(|error| ("child.command", error.to_string()))
        }
    }
}

fn wrong(key: String, message: String) -> ConfigError {
    ConfigError::Invalid {
        key,
        line: None,
        message,
    }
}
