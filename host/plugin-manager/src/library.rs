//! Plugin files: listing, loading, and fingerprints that show changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use mortise_plugin::{
    Component, ComponentSource, Kind, LoadError, MAX_COMPONENT_BYTES, PluginHost,
};

use crate::config::{BindingConfig, PluginConfig};
use crate::declared::DeclaredModels;
use crate::folder::{self, FolderPlugins, Rejected};
use crate::signature::{self, signature_of};

/// Loaded components by origin.
#[derive(Clone, Default)]
pub(crate) struct PluginLibrary {
    /// Embedded plugins, which are part of the program.
    pub(crate) embedded: Vec<Arc<Component>>,
    /// Plugin files of the operator, by path.
    pub(crate) files: BTreeMap<PathBuf, Arc<Component>>,
    /// Paths in the plugin folder.
    pub(crate) folder: BTreeSet<PathBuf>,
}

/// Runs the golden cases that a plugin carries, within the bounds of a configuration, and says how many there are.
///
/// # Errors
/// When a case fails: its name, and what differed.
pub type Prove =
    Arc<dyn Fn(&PluginHost, &Arc<Component>, &PluginConfig) -> anyhow::Result<usize> + Send + Sync>;

impl PluginLibrary {
    /// Load the embedded plugins. Blocks.
    pub(crate) fn embedded(host: &PluginHost) -> anyhow::Result<Self> {
        let embedded = mortise_bundle::plugins()
            .into_iter()
            .map(|source| host.load(source))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            embedded,
            ..Self::default()
        })
    }

    /// Read all files of the configuration again, and let those that are new or changed run the golden
    /// cases that they carry. A file that cannot be loaded, or fails a case, is told of, and what `self`
    /// had at its path stays. Blocks: compiling a plugin can take seconds, and so can its cases.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn read_again(
        &self,
        host: &PluginHost,
        config: &PluginConfig,
        prove: &Prove,
    ) -> anyhow::Result<(Self, Vec<Rejected>)> {
        let FolderPlugins { files, odd } = folder::list(config.dir.as_deref())?;
        let mut next = Self {
            embedded: self.embedded.clone(),
            files: BTreeMap::new(),
            folder: files.clone(),
        };
        let mut rejected = odd;
        for path in all_files(config, files) {
            let loaded = load(host, config, &path).and_then(|component| {
                // What is served already has proved itself.
                let known = self.files.get(&path);
                if known.is_none_or(|known| known.digest() != component.digest()) {
                    prove(host, &component, config)?;
                }
                Ok(component)
            });
            match loaded {
                Ok(component) => {
                    next.files.insert(path, component);
                }
                Err(error) => {
                    if let Some(old) = self.files.get(&path) {
                        next.files.insert(path.clone(), Arc::clone(old));
                    }
                    let reason = format!("{error:#}");
                    rejected.push(Rejected { path, reason });
                }
            }
        }
        Ok((next, rejected))
    }

    /// Leave out a file of the folder that turned out to be unfit. `false` if the configuration names it, or
    /// if it may be a policy: without one that the operator wanted, everybody might be let in.
    pub(crate) fn quarantine(&mut self, path: &Path, config: &PluginConfig) -> bool {
        let bound = |binding: &BindingConfig| binding.file.as_deref() == Some(path);
        let Some(component) = self.files.get(path) else {
            return false;
        };
        let policy = component.kinds().contains(&Kind::Policy);
        if policy || config.bindings.iter().any(bound) {
            return false;
        }
        self.files.remove(path);
        true
    }

    /// Put back what `old` had at a path whose file cannot serve. `false` if nothing changes.
    pub(crate) fn revert(&mut self, path: &Path, old: &Self) -> bool {
        let before = old.files.get(path);
        let now = self.files.get(path);
        if before.map(|component| component.digest()) == now.map(|component| component.digest()) {
            return false;
        }
        match before {
            Some(component) => self.files.insert(path.to_owned(), Arc::clone(component)),
            None => self.files.remove(path),
        };
        true
    }
}

/// Name that every policy has among its exports, in whatever state its file is.
const POLICY_EXPORT: &[u8] = b"mortise:plugin/policy@";

/// Whether a server may start without a file that was refused: the folder has it, and nothing says that it
/// is a policy.
pub(crate) fn is_dispensable(file: &Rejected, config: &PluginConfig) -> bool {
    let bound = |binding: &BindingConfig| binding.file.as_ref() == Some(&file.path);
    if config.bindings.iter().any(bound) {
        return false;
    }
    let bytes = mortise_files::read_beginning(&file.path, MAX_COMPONENT_BYTES).unwrap_or_default();
    let mut windows = bytes.windows(POLICY_EXPORT.len());
    !windows.any(|window| window == POLICY_EXPORT)
}

/// Read a file once, check its signature, and load what was read.
fn load(host: &PluginHost, config: &PluginConfig, path: &Path) -> anyhow::Result<Arc<Component>> {
    let wasm = mortise_files::read_beginning(path, MAX_COMPONENT_BYTES).map_err(|source| {
        let path = path.to_owned();
        LoadError::Unreadable { path, source }
    })?;
    signature::check(path, &wasm, config).map_err(anyhow::Error::msg)?;
    let path = path.to_owned();
    let component = host.load(ComponentSource::Read { path, wasm })?;
    DeclaredModels::of(&component).map_err(anyhow::Error::msg)?;
    Ok(component)
}

/// Files of the folder and of the bindings.
fn all_files(config: &PluginConfig, mut files: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let bound = config.bindings.iter();
    files.extend(bound.filter_map(|binding| binding.file.clone()));
    files
}

/// Signs of a change without reading the file: length, time of modification, time of status change, inode.
/// `None` if there is no file.
type Trace = Option<(u64, Option<SystemTime>, (i64, i64), u64)>;

/// Traces of all plugin files and their signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilesFingerprint(BTreeMap<PathBuf, Trace>);

impl FilesFingerprint {
    /// Trace all files of the configuration. A folder that cannot be read counts as empty: the
    /// reload that follows reports why.
    pub(crate) fn take(config: &PluginConfig) -> Self {
        let FolderPlugins { files, odd } = folder::list(config.dir.as_deref()).unwrap_or_default();
        let mut files = all_files(config, files);
        files.extend(odd.into_iter().map(|file| file.path));
        let traced = files.into_iter().flat_map(|path| {
            let signature = signature_of(&path);
            [path, signature].map(|path| {
                let trace = trace(&path);
                (path, trace)
            })
        });
        Self(traced.collect())
    }
}

fn trace(path: &Path) -> Trace {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Some((
        metadata.len(),
        metadata.modified().ok(),
        changed,
        metadata.ino(),
    ))
}
