//! The `[discovery]` table: places where models are found.

use std::path::{Path, PathBuf};

use mortise_models::DiscoveryConfig;
use serde::Deserialize;

use super::child::RawChild;
use super::upstream::RawRender;
use super::{ConfigError, hub_config, invalid};

/// Most folders that are scanned.
const FOLDERS_MAX: usize = 64;

/// The table as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDiscovery {
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) hub_cache: bool,
    pub(crate) llama_cpp_cache: bool,
    pub(crate) child: Option<RawChild>,
}

impl RawDiscovery {
    /// Whether there is a place to look, be it in the file or on the command line.
    pub(super) fn is_enabled(&self, folders: &[PathBuf]) -> bool {
        let listed = !self.folders.is_empty() || !folders.is_empty();
        listed || self.hub_cache || self.llama_cpp_cache
    }

    /// The checked table, with folders of the command line.
    pub(super) fn check(
        self,
        base: &Path,
        folders: Vec<PathBuf>,
        startup_model: Option<String>,
    ) -> Result<DiscoveryConfig, ConfigError> {
        if !self.is_enabled(&folders) {
            return match self.child {
                None => Ok(DiscoveryConfig {
                    startup_model,
                    ..DiscoveryConfig::default()
                }),
                Some(_) => Err(invalid(
                    "discovery.child",
                    "there is nothing to find models in; give `folders`, `hub_cache` or `llama_cpp_cache`",
                )),
            };
        }
        let folders: Vec<PathBuf> = self
            .folders
            .iter()
            .map(|folder| base.join(folder))
            .chain(folders)
            .collect();
        if folders.len() > FOLDERS_MAX {
            let problem = format!("it names more than {FOLDERS_MAX} folders");
            return Err(invalid("discovery.folders", problem));
        }
        let child = self
            .child
            .map(|child| check_child(child, base))
            .transpose()?;
        Ok(DiscoveryConfig {
            folders,
            hub_cache: match self.hub_cache {
                true => Some(hub_config()?.cache),
                false => None,
            },
            llama_cpp_cache: match self.llama_cpp_cache {
                true => Some(llama_cpp_cache()?),
                false => None,
            },
            child,
            startup_model,
        })
    }
}

/// The process of each model that is found. Its model is the one that was found.
fn check_child(child: RawChild, base: &Path) -> Result<mortise_models::ChildConfig, ConfigError> {
    let key = |name: &str| format!("discovery.child.{name}");
    if child.model.is_some() {
        let problem = "each process has the model that was found; leave it out";
        return Err(invalid(&key("model"), problem));
    }
    if child.render == RawRender::Here && child.thinking.is_some() {
        let problem = "the chat template here decides, since `render` is \"here\"; leave it out";
        return Err(invalid(&key("thinking"), problem));
    }
    child.check(&key, "", base)
}

/// The folder that llama.cpp keeps downloads in.
fn llama_cpp_cache() -> Result<PathBuf, ConfigError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = variable("LLAMA_CACHE").map(PathBuf::from).or_else(|| {
        let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
        let caches = caches.or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")));
        Some(caches?.join("llama.cpp"))
    });
    cache.ok_or_else(|| {
        let problem = "set LLAMA_CACHE, or HOME: no folder is known for the cache";
        invalid("discovery.llama_cpp_cache", problem)
    })
}
