//! Plugins that a configuration takes from registries: what a binding names by `source` is in the folder before the
//! server reads it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use mortise_plugin::read_component;
use mortise_plugin_manager::{BindingConfig, PluginConfig};
use mortise_registry::{Digest, Lock, Reference};

use crate::registries::one;
use crate::registry_args::{PlaceArgs, PluginPullArgs, WireArgs};
use crate::sign::signature_of;

/// Put the plugins that bindings take from registries into the folder, pinned by its lock file. What is there as the
/// lock file has it is not asked for, so a registry that is away, or was taken over, changes nothing. Blocks.
///
/// # Errors
/// When one is not there and cannot be had, or is not what is pinned, signed or sound. Those before it are in the folder.
pub fn install_sources(config: &PluginConfig, credentials: &[PathBuf]) -> anyhow::Result<()> {
    for (index, binding) in config.bindings.iter().enumerate() {
        let Some(source) = &binding.source else {
            continue;
        };
        let failed = || format!("plugins.bindings[{index}].source: `{source}`");
        let reference: Reference = source.parse().with_context(failed)?;
        install(config, binding, &reference, credentials).with_context(failed)?;
    }
    Ok(())
}

fn install(
    config: &PluginConfig,
    binding: &BindingConfig,
    reference: &Reference,
    credentials: &[PathBuf],
) -> anyhow::Result<()> {
    let Some((folder, path)) = config.dir.as_deref().zip(binding.file.as_deref()) else {
        bail!("there is no folder for it; set plugins.dir");
    };
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.context("it has no name")?;
    let other = config.bindings.iter().find(|other| {
        other.source != binding.source && other.file == binding.file && other.source.is_some()
    });
    if let Some(source) = other.and_then(|other| other.source.as_ref()) {
        bail!("`{source}` would be `{name}` as well");
    }
    let mut lock = Lock::of(folder)?;
    let signed = !config.require_signed || signature_of(path).is_file();
    if signed && is_installed(&lock, name, reference, path) {
        return Ok(());
    }
    let args = PluginPullArgs {
        reference: None,
        plugins: folder.to_owned(),
        file: None,
        // Another source in the configuration is what the operator wants; the same one is what the lock file pins.
        update: lock
            .entry(name)
            .is_some_and(|locked| locked.source != reference.named()),
        trusted_keys: Vec::new(),
        cosign_keys: Vec::new(),
        mirror: None,
        place: PlaceArgs {
            layout: None,
            wire: WireArgs {
                plain_http: false,
                origins: config.registry_origins.clone(),
            },
        },
    };
    let keys = match config.require_signed {
        true => &*config.trusted_keys,
        false => &[],
    };
    one(&args, credentials, keys, &mut lock, reference, name)?;
    tracing::info!(file = name, source = %reference, "a plugin was pulled");
    Ok(())
}

/// True if the folder has the file as the lock file pins it for this reference.
fn is_installed(lock: &Lock, name: &str, reference: &Reference, path: &Path) -> bool {
    let pinned = lock.entry(name).filter(|locked| {
        let wanted = reference.digest.as_ref();
        locked.source == reference.named() && wanted.is_none_or(|wanted| *wanted == locked.manifest)
    });
    // What is no file is told of by those who read the folder.
    let content = path.is_file().then(|| read_component(path).ok());
    pinned
        .zip(content.flatten())
        .is_some_and(|(locked, content)| Digest::of(&content) == locked.content)
}
