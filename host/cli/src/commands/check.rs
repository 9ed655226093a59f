//! `mortise config check`: what is wrong with a configuration, and with what it names on this machine.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use mortise_child::Children;
use mortise_config::{Config, ConfigError, Overrides};
use mortise_harness::print;
use mortise_models::{DeviceChoice, ModelConfig};

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

/// Check files, each laid over those before it, and whether their models could be loaded here.
///
/// # Errors
/// When a file is wrong, or names files, programs or devices that are not there.
pub(crate) fn check(files: &[PathBuf]) -> Result<(), ConfigError> {
    let config = Config::load(files, Overrides::default())?;
    Certificates::read(&config)?;
    for (index, model) in config.models.iter().enumerate() {
        check_model(model)
            .map_err(|(key, message)| wrong(format!("models[{index}].{key}"), message))?;
    }
    for folder in &config.discovery.folders {
        if !folder.is_dir() {
            let message = format!("`{}` is no folder", folder.display());
            return Err(wrong("discovery.folders".to_owned(), message));
        }
    }
    if let Some(child) = &config.discovery.child {
        let checked = Children::default().check(child);
        checked.map_err(|error| wrong("discovery.child.command".to_owned(), error.to_string()))?;
    }
    if let DeviceChoice::Cuda(_) = config.engine.device
        && let Err(error) = mortise_cuda::find()
    {
        return Err(wrong(
            "engine.device".to_owned(),
            format!("there is no such device: {error}"),
        ));
    }
    Ok(())
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
