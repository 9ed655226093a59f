//! Discovery of models on the disk: in folders, in the cache of the Hugging Face hub, and in that of llama.cpp.
//!
//! Names and files are untrusted: a scan is bounded, follows no loop of links, opens regular files only, and tells what
//! it left out and why.

mod folder;
mod gguf_name;
mod hub_cache;
mod llama_cpp;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use self::folder::ScannedEntries;
use crate::child_config::ChildConfig;
use crate::config::{DefinitionOrigin, ModelConfig, ModelLifecycle};
use crate::limits::MAX_MODEL_NAME_BYTES;

/// Places that are scanned for models, and what serves those that are found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoveryConfig {
    /// Folders, with all that lies below them.
    pub folders: Vec<PathBuf>,
    /// Cache of the Hugging Face hub.
    pub hub_cache: Option<PathBuf>,
    /// Cache of llama.cpp.
    pub llama_cpp_cache: Option<PathBuf>,
    /// Process that serves each model that is found; `None`: the engine does.
    pub child: Option<ChildConfig>,
    /// Model that is loaded when the server starts.
    pub startup_model: Option<String>,
}

/// Result of a scan.
#[derive(Debug, Default, PartialEq)]
pub struct Scan {
    /// Models that were found, by name.
    pub models: Vec<ModelConfig>,
    /// Files and folders that look like models and are left out.
    pub skipped: Vec<Skipped>,
}

/// A file or folder that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// Reason.
    pub reason: String,
}

impl Skipped {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Files of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    name: String,
    /// A folder, or a GGUF file (the first part of several).
    path: PathBuf,
    /// The projector of images that lies beside a GGUF file.
    projector: Option<PathBuf>,
}

impl DiscoveryConfig {
    /// Whether there is a place to scan.
    pub fn is_enabled(&self) -> bool {
        !self.folders.is_empty() || self.hub_cache.is_some() || self.llama_cpp_cache.is_some()
    }

    /// Scan all places. Names in `taken` stay with those who have them. Blocks.
    pub fn scan<'a>(&self, taken: impl IntoIterator<Item = &'a str>) -> Scan {
        let mut scan = Scan::default();
        let mut found = Vec::new();
        let mut entries = ScannedEntries::default();
        for folder in &self.folders {
            folder::scan(folder, &mut entries, &mut found, &mut scan.skipped);
        }
        if let Some(cache) = &self.hub_cache {
            hub_cache::scan(cache, &mut entries, &mut found, &mut scan.skipped);
        }
        if let Some(cache) = &self.llama_cpp_cache {
            llama_cpp::scan(cache, &mut entries, &mut found, &mut scan.skipped);
        }
        if entries.exhausted() {
            tracing::warn!("discovery stopped early: there are too many files in the folders");
        }
        let mut names: HashSet<String> = taken.into_iter().map(str::to_owned).collect();
        for found in found {
            match check_name(&found.name, &names) {
                Ok(()) => {
                    names.insert(found.name.clone());
                    scan.models.push(self.model(found));
                }
                Err(reason) => scan.skipped.push(Skipped::new(&found.path, reason)),
            }
        }
        scan.models.sort_by(|one, other| one.name.cmp(&other.name));
        scan
    }

    /// A model whose files are known to be at a path, as if a scan had found them.
    pub fn model_at(&self, name: String, path: PathBuf) -> ModelConfig {
        self.model(Found {
            name,
            path,
            projector: None,
        })
    }

    fn model(&self, found: Found) -> ModelConfig {
        let child = self.child.clone().map(|mut child| {
            child.upstream.model.clone_from(&found.name);
            if let Some(projector) = &found.projector {
                let projector = projector.display().to_string();
                child.command.extend(["--mmproj".to_owned(), projector]);
            }
            child
        });
        let enabled = self.startup_model.as_ref() == Some(&found.name);
        ModelConfig {
            name: found.name,
            origin: DefinitionOrigin::Discovered,
            child,
            lifecycle: ModelLifecycle {
                enabled,
                load_on_demand: Some(true),
                ..ModelLifecycle::default()
            },
            ..ModelConfig::of_path(Some(found.path))
        }
    }
}

/// Whether a model may have this name; an error has the reason.
fn check_name(name: &str, taken: &HashSet<String>) -> Result<(), String> {
    if taken.contains(name) {
        return Err(format!("another model is called `{name}`"));
    }
    // Commands of processes have placeholders in braces, and would replace them in a path.
    if name
        .chars()
        .any(|char| char.is_control() || "{}".contains(char))
    {
        return Err("its name has control characters or braces".to_owned());
    }
    match name.len() {
        0 => Err("it has no name".to_owned()),
        1..=MAX_MODEL_NAME_BYTES => Ok(()),
        _ => Err(format!(
            "its name has more than {MAX_MODEL_NAME_BYTES} bytes"
        )),
    }
}
