//! Plugin files that operators send, take away and put back while the server runs. Each change is tried before
//! anything is written, and taken back if the set of plugins does not take it after all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortise_plugin::{Component, ComponentSource, MAX_COMPONENT_BYTES};
use serde_json::{Value, json};

use crate::config::PluginConfig;
use crate::declared::DeclaredModels;
use crate::folder::shown;
use crate::live::{LivePlugins, LiveState, Reload};
use crate::shelf::{
    MAX_FOLDER_FILES, SIGNATURE_BYTES, Shelf, SignedComponent, Version, check_name,
    names_with_versions,
};
use crate::signature::check_signature;

/// Reason of reloads that a change asks for.
const REASON: &str = "admin request";

/// A component that an operator sends.
#[derive(Debug)]
pub struct Incoming {
    /// The component.
    pub wasm: Vec<u8>,
    /// Signature of the component (ed25519), if it has one.
    pub signature: Option<Vec<u8>>,
}

/// Errors of a change. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The configuration does not allow changes.
    #[error(
        "plugin files neither come nor go over HTTP here; `plugins.dir` and `plugins.upload` of the configuration allow it"
    )]
    Off,
    /// The name is none of a plugin file.
    #[error("{0}")]
    Name(String),
    /// The signature cannot be checked, or is wrong.
    #[error("{0}")]
    Signature(String),
    /// There is no plugin folder.
    #[error(
        "there is no plugin folder that the file could lie in; `plugins.dir` of the configuration names it"
    )]
    NoFolder,
    /// The component is larger than any plugin.
    #[error("a plugin has at most {MAX_COMPONENT_BYTES} bytes")]
    TooLarge,
    /// The folder is full.
    #[error("the plugin folder has {MAX_FOLDER_FILES} files, as many as it may have; remove one")]
    Full,
    /// The component cannot serve.
    #[error("{0}")]
    Unfit(String),
    /// A binding of the configuration needs the file.
    #[error("plugins.bindings[{0}] of the configuration names this file; change the binding first")]
    Bound(usize),
    /// There is no such file.
    #[error("the plugin folder has no file `{0}`")]
    Unknown(String),
    /// There is no such version.
    #[error("`{0}` has no such version")]
    UnknownVersion(String),
    /// There is no version before.
    #[error("`{0}` has no version before the present one")]
    NoVersion(String),
    /// The set of plugins did not take the change.
    #[error("the plugins could not be replaced, and the folder is as it was: {0}")]
    Reload(String),
    /// The folder could not be read or written.
    #[error("the plugin folder cannot be changed: {0}")]
    Folder(#[from] io::Error),
}

/// Outcome of a change.
#[derive(Debug)]
pub struct FileChange {
    /// True if there was no file of this name.
    pub is_new: bool,
    /// The change as the admin API shows it.
    pub told: Value,
}

/// A component that could serve.
struct Examined {
    component: Arc<Component>,
    /// Golden cases that the component carries and has passed.
    cases: usize,
    /// Flag of a component that a trusted key signed.
    signed: bool,
}

impl Examined {
    fn to_json(&self) -> Value {
        let component = &self.component;
        let kinds = component.kinds().iter().map(|kind| kind.as_str());
        json!({
            "version": component.version(),
            "digest": component.digest(),
            "kinds": kinds.collect::<Vec<_>>(),
            "built_against": component.built_against(),
            "cases": self.cases,
            "signed": self.signed,
        })
    }
}

impl LivePlugins {
    /// Examine a component as a change would, and write nothing.
    ///
    /// # Errors
    /// When the change would be refused.
    pub async fn check_file(&self, file: &str, incoming: Incoming) -> Result<Value, ChangeError> {
        let _turn = self.turn.lock().await;
        let (shelf, content) = {
            let state = self.state.lock().await;
            (shelf(&state, file)?, content(incoming, &state.config)?)
        };
        let (examined, _) = self.examine(&shelf, content).await?;
        self.fits(&shelf.path(), Some(&examined)).await?;
        Ok(told(file, &examined.to_json()))
    }

    /// Put a component into the plugin folder, and serve by it. What was there is kept as a version.
    ///
    /// # Errors
    /// When it cannot serve, or the folder cannot be written.
    pub async fn put_file(
        &self,
        file: &str,
        incoming: Incoming,
    ) -> Result<FileChange, ChangeError> {
        let _turn = self.turn.lock().await;
        let (shelf, content) = {
            let state = self.state.lock().await;
            let (shelf, folder) = (shelf(&state, file)?, &state.library.folder);
            if folder.len() >= MAX_FOLDER_FILES && !folder.contains(&shelf.path()) {
                return Err(ChangeError::Full);
            }
            (shelf, content(incoming, &state.config)?)
        };
        self.serve(file, shelf, content, None).await
    }

    /// Put an earlier version of a file back: the one of a digest, or the last one.
    ///
    /// # Errors
    /// When there is none, it cannot serve now, or the folder cannot be written.
    pub async fn roll_back_file(
        &self,
        file: &str,
        digest: Option<String>,
    ) -> Result<FileChange, ChangeError> {
        let _turn = self.turn.lock().await;
        let shelf = shelf(&*self.state.lock().await, file)?;
        let reading = {
            let (shelf, name) = (shelf.clone(), file.to_owned());
            move || version_of(&shelf, &name, digest.as_deref())
        };
        let (version, content) = self.blocking("reading a version", reading).await??;
        self.serve(file, shelf, content, Some(version)).await
    }

    /// Take a file out of the plugin folder, and keep it as a version.
    ///
    /// # Errors
    /// When there is none, the plugins do not work without it, or the folder cannot be written.
    pub async fn remove_file(&self, file: &str) -> Result<FileChange, ChangeError> {
        let _turn = self.turn.lock().await;
        let (shelf, config) = {
            let state = self.state.lock().await;
            (shelf(&state, file)?, Arc::clone(&state.config))
        };
        let path = shelf.path();
        let named = |binding: &crate::BindingConfig| binding.file.as_ref() == Some(&path);
        if let Some(index) = config.bindings.iter().position(named) {
            return Err(ChangeError::Bound(index));
        }
        let present = {
            let shelf = shelf.clone();
            move || shelf.present()
        };
        if self
            .blocking("reading a plugin file", present)
            .await??
            .is_none()
        {
            return Err(ChangeError::Unknown(file.to_owned()));
        }
        self.fits(&path, None).await?;
        self.exchange(file, shelf, None, None).await
    }

    /// Files of the plugin folder that can be changed, and those that are gone and have versions.
    ///
    /// # Errors
    /// When changes are not allowed, or the folder cannot be read.
    pub async fn folder_files(&self) -> Result<Value, ChangeError> {
        let (dir, present) = {
            let state = self.state.lock().await;
            (allowed(&state)?, state.library.folder.clone())
        };
        let listing = {
            let dir = dir.clone();
            move || names_with_versions(&dir)
        };
        let mut names = self.blocking("listing versions", listing).await??;
        let name_of = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let named = present.iter().filter_map(name_of);
        names.extend(named.filter(|name| check_name(name).is_ok()));
        let row = |name: String| {
            let path = dir.join(&name);
            json!({"file": name, "path": shown(&path), "present": present.contains(&path)})
        };
        let rows: Vec<Value> = names.into_iter().map(row).collect();
        Ok(json!({"object": "list", "data": rows}))
    }

    /// Path of a file of the plugin folder, whether it is there or not.
    ///
    /// # Errors
    /// When there is no folder, or the name is none of a plugin file.
    pub async fn folder_file(&self, file: &str) -> Result<PathBuf, ChangeError> {
        check_name(file).map_err(ChangeError::Name)?;
        let dir = self.state.lock().await.config.dir.clone();
        Ok(dir.ok_or(ChangeError::NoFolder)?.join(file))
    }

    /// Versions of a file, the last one first.
    ///
    /// # Errors
    /// When changes are not allowed, or the folder cannot be read.
    pub async fn file_versions(&self, file: &str) -> Result<Value, ChangeError> {
        let shelf = shelf(&*self.state.lock().await, file)?;
        let listing = {
            let shelf = shelf.clone();
            move || shelf.versions()
        };
        let versions = self.blocking("listing versions", listing).await??;
        let rows: Vec<Value> = versions.iter().map(version_json).collect();
        Ok(json!({"object": "list", "file": file, "data": rows}))
    }

    /// Serve by a content, if it can serve.
    async fn serve(
        &self,
        file: &str,
        shelf: Shelf,
        content: SignedComponent,
        used: Option<Version>,
    ) -> Result<FileChange, ChangeError> {
        let (examined, content) = self.examine(&shelf, content).await?;
        self.fits(&shelf.path(), Some(&examined)).await?;
        let same = {
            let state = self.state.lock().await;
            let serving = state.library.files.get(&shelf.path());
            serving.is_some_and(|now| now.digest() == examined.component.digest())
        };
        let unchanged = {
            let (shelf, content) = (shelf.clone(), content.clone());
            move || Ok::<_, io::Error>(shelf.present()?.as_ref() == Some(&content))
        };
        if same && self.blocking("reading a plugin file", unchanged).await?? {
            let mut told = told(file, &examined.to_json());
            told["changed"] = json!(false);
            return Ok(FileChange {
                is_new: false,
                told,
            });
        }
        let mut change = self.exchange(file, shelf, Some(content), used).await?;
        let examined = examined.to_json();
        for (name, value) in examined.as_object().into_iter().flatten() {
            change.told[name] = value.clone();
        }
        Ok(change)
    }

    /// Check the signature of a component, load it, and let it run its golden cases.
    async fn examine(
        &self,
        shelf: &Shelf,
        content: SignedComponent,
    ) -> Result<(Examined, SignedComponent), ChangeError> {
        let (host, prove) = (self.host.clone(), Arc::clone(&self.prove));
        let config = Arc::clone(&self.state.lock().await.config);
        let path = shelf.path();
        let examining = move || {
            let signed = signed(&content, &config)?;
            let wasm = content.wasm.clone();
            let component = host
                .load(ComponentSource::Read { path, wasm })
                .map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
            DeclaredModels::of(&component)?;
            let cases = prove(&host, &component, &config).map_err(|error| format!("{error:#}"))?;
            let examined = Examined {
                component,
                cases,
                signed,
            };
            Ok((examined, content))
        };
        let examined: Result<_, String> = self.blocking("examining a plugin", examining).await?;
        examined.map_err(ChangeError::Unfit)
    }

    /// Bind the plugins as they would be with a component at a path, or without one, beside those that serve.
    async fn fits(&self, path: &Path, with: Option<&Examined>) -> Result<(), ChangeError> {
        let state = &mut *self.state.lock().await;
        let mut library = state.library.clone();
        match with {
            Some(examined) => {
                let component = Arc::clone(&examined.component);
                library.files.insert(path.to_owned(), component);
                library.folder.insert(path.to_owned());
            }
            None => {
                library.files.remove(path);
                library.folder.remove(path);
            }
        }
        let (config, auth, models) = (
            Arc::clone(&state.config),
            state.auth.clone(),
            state.models.clone(),
        );
        let bound = self.bind(state, &config, &auth, &library, &models).await;
        bound
            .map(drop)
            .map_err(|error| ChangeError::Unfit(error.message))
    }

    /// Change the file, and read the files again. A change that is not taken is taken back.
    async fn exchange(
        &self,
        file: &str,
        shelf: Shelf,
        content: Option<SignedComponent>,
        used: Option<Version>,
    ) -> Result<FileChange, ChangeError> {
        let writing = {
            let shelf = shelf.clone();
            move || shelf.exchange(content.as_ref(), used)
        };
        let exchange = self.blocking("writing a plugin file", writing).await??;
        let (reload, refused) = self.read_files(&shelf.path()).await;
        if let Some(reason) = refused {
            let undoing = move || shelf.undo(&exchange);
            self.blocking("writing a plugin file", undoing).await??;
            self.read_files(Path::new("")).await;
            return Err(ChangeError::Reload(reason));
        }
        let is_new = exchange.is_new();
        let settling = move || shelf.settle(&exchange);
        if let Err(error) = self.blocking("writing a plugin file", settling).await? {
            tracing::warn!(file, %error, "old versions of a plugin file could not be removed");
        }
        let mut told = told(file, &Value::Null);
        told["changed"] = json!(reload.changed);
        Ok(FileChange { is_new, told })
    }

    /// Read the files again; the reason for which the one at `path` is not taken, if it is not.
    async fn read_files(&self, path: &Path) -> (Reload, Option<String>) {
        let config = Arc::clone(&self.state.lock().await.config);
        let found = self.read(&config).await;
        let state = &mut *self.state.lock().await;
        let outcome = match found {
            Ok(found) => {
                let auth = state.auth.clone();
                self.put(state, config, auth, found).await
            }
            Err(error) => Err(error),
        };
        let refused = match &outcome {
            Err(unfit) => Some(unfit.message.clone()),
            Ok(_) => {
                let mut rejected = state.rejected.iter();
                let found = rejected.find(|file| file.path == path);
                found.map(|file| file.reason.clone())
            }
        };
        (self.conclude(state, outcome, REASON), refused)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        step: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ChangeError> {
        let done = self.on_a_thread(step, work).await;
        done.map_err(|reason| ChangeError::Folder(io::Error::other(reason)))
    }
}

/// The file of a name, where the configuration allows changes.
fn shelf(state: &LiveState, file: &str) -> Result<Shelf, ChangeError> {
    let dir = allowed(state)?;
    check_name(file).map_err(ChangeError::Name)?;
    Ok(Shelf::new(dir, file))
}

/// The plugin folder, where the configuration allows changes.
fn allowed(state: &LiveState) -> Result<PathBuf, ChangeError> {
    let dir = state.config.dir.clone().filter(|_| state.config.upload);
    dir.ok_or(ChangeError::Off)
}

/// Check the component and the signature that an operator sends: their sizes, and that trusted keys are configured if
/// there is a signature.
fn content(incoming: Incoming, config: &PluginConfig) -> Result<SignedComponent, ChangeError> {
    let Incoming { wasm, signature } = incoming;
    if wasm.len() as u64 > MAX_COMPONENT_BYTES {
        return Err(ChangeError::TooLarge);
    }
    if let Some(signature) = &signature {
        if signature.len() != SIGNATURE_BYTES {
            let message = format!("a signature has {SIGNATURE_BYTES} bytes, those of ed25519");
            return Err(ChangeError::Signature(message));
        }
        if config.trusted_keys.is_empty() {
            let message = "the configuration has no `plugins.trusted_keys` to check a signature by";
            return Err(ChangeError::Signature(message.to_owned()));
        }
    }
    Ok(SignedComponent { wasm, signature })
}

/// True if a trusted key signed a content; an error where one must have, or the signature is bad.
fn signed(content: &SignedComponent, config: &PluginConfig) -> Result<bool, String> {
    let keys = &config.trusted_keys;
    match &content.signature {
        // Of a version that was signed when there were keys.
        Some(_) if keys.is_empty() => Ok(false),
        Some(signature) => check_signature(&content.wasm, signature, keys).map(|()| true),
        None if config.require_signed => Err(
            "it has no signature, and `plugins.require_signed` asks for one by a trusted key"
                .to_owned(),
        ),
        None => Ok(false),
    }
}

fn version_of(
    shelf: &Shelf,
    file: &str,
    digest: Option<&str>,
) -> Result<(Version, SignedComponent), ChangeError> {
    let versions = shelf.versions()?;
    let found = match digest {
        None => versions.into_iter().next(),
        Some(digest) => {
            let mut versions = versions.into_iter();
            let found = versions.find(|version| version.digest == digest);
            Some(found.ok_or_else(|| ChangeError::UnknownVersion(file.to_owned()))?)
        }
    };
    let version = found.ok_or_else(|| ChangeError::NoVersion(file.to_owned()))?;
    let content = shelf.content_of(&version)?;
    Ok((version, content))
}

fn version_json(version: &Version) -> Value {
    json!({
        "digest": version.digest,
        "bytes": version.bytes,
        "signed": version.signed,
        "replaced_at": version.replaced_at,
    })
}

/// A file with what is known of its component.
fn told(file: &str, examined: &Value) -> Value {
    let mut told = json!({"file": file});
    for (name, value) in examined.as_object().into_iter().flatten() {
        told[name] = value.clone();
    }
    told
}
