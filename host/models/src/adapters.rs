//! LoRA adapters of a loaded model: which there are, which are loaded, and who uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mortise_engine::{BeamRequest, EngineLoad, SequenceRequest, SubmitError, TokenStream};
use mortise_model::{Adapter, ModelFolder};

use crate::limits::{MAX_ADAPTER_NAME_BYTES, MAX_ADAPTERS};
use crate::token_runtime::{AdapterBase, TokenRuntime};

/// Separator between the name of a model and that of its adapter.
pub const ADAPTER_SEPARATOR: char = ':';
/// Pause between looks whether an adapter is still in use.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// An adapter of a model, as the configuration or an operator names it.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterConfig {
    /// Name among the adapters of its model.
    pub name: String,
    /// A folder as PEFT writes it, or a GGUF file.
    pub path: PathBuf,
    /// Scale of the adapter: factor of what it adds to the products of the model.
    pub scale: f32,
}

/// State of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterState {
    /// Known, not loaded.
    Available,
    /// Being read.
    Loading,
    /// Requests can use it.
    Loaded,
    /// Requests that use it are being answered; new ones are refused.
    Unloading,
}

impl AdapterState {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Unloading => "unloading",
        }
    }
}

/// An adapter as operators are shown it.
#[derive(Debug, Clone)]
pub struct AdapterStatus {
    /// Name, path and scale of the adapter.
    pub config: AdapterConfig,
    /// State.
    pub state: AdapterState,
    /// The loaded adapter.
    pub loaded: Option<Arc<Adapter>>,
    /// Place among the loaded adapters of the model, from 0; none else has it.
    pub slot: Option<usize>,
    /// Time at which the adapter was loaded, in milliseconds since 1970.
    pub loaded_at_ms: Option<u64>,
    /// Duration of the adapter's load.
    pub load_time: Option<Duration>,
    /// Requests that have used the adapter since its model was loaded.
    pub uses: u64,
    /// Time at which the last of these requests began, in milliseconds since 1970.
    pub last_used_ms: Option<u64>,
    /// Reason why the adapter's last load failed.
    pub last_error: Option<String>,
}

/// Reason why an adapter is not loaded, not unloaded, or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// No adapter of the name is loaded.
    #[error(
        "the model `{model}` has no adapter `{adapter}`; loaded: {}",
        if available.is_empty() { "none".to_owned() } else { available.join(", ") }
    )]
    Unknown {
        /// Public name of the model.
        model: String,
        /// The adapter asked for.
        adapter: String,
        /// Adapters that are loaded.
        available: Vec<String>,
    },
    /// The adapter's state does not allow the change.
    #[error("the adapter `{adapter}` is {}; retry later", state.name())]
    Busy {
        /// The adapter.
        adapter: String,
        /// State of the adapter.
        state: AdapterState,
    },
    /// The adapter is loaded with another path or scale.
    #[error("the adapter `{0}` is loaded with another path or scale; unload it first")]
    Loaded(String),
    /// A name, path or scale is wrong.
    #[error("`{field}` is wrong: {message}")]
    Invalid {
        /// Field that is wrong.
        field: &'static str,
        /// Message: what is wrong and what would be right.
        message: String,
    },
    /// The model takes no adapters.
    #[error("the model `{model}` takes no adapters: {reason}")]
    Unsupported {
        /// Public name of the model.
        model: String,
        /// Reason.
        reason: String,
    },
    /// The adapter's files are wrong, or do not fit the model.
    #[error("the adapter `{adapter}` could not be loaded: {error}")]
    Files {
        /// The adapter.
        adapter: String,
        /// Cause.
        error: String,
    },
}

/// The adapters of one loaded model.
#[derive(Debug)]
pub struct Adapters {
    model: String,
    base: AdapterBase,
    entries: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    config: AdapterConfig,
    state: AdapterState,
    loaded: Option<Loaded>,
    uses: u64,
    last_used_ms: Option<u64>,
    last_error: Option<String>,
}

#[derive(Debug)]
struct Loaded {
    adapter: Arc<Adapter>,
    slot: usize,
    at_ms: u64,
    took: Duration,
}

impl AdapterStatus {
    /// The status of an adapter that is known, and not loaded.
    pub fn available(config: AdapterConfig) -> Self {
        Self {
            config,
            state: AdapterState::Available,
            loaded: None,
            slot: None,
            loaded_at_ms: None,
            load_time: None,
            uses: 0,
            last_used_ms: None,
            last_error: None,
        }
    }
}

impl Adapters {
    /// The adapters of a model of this public name, none so far.
    pub fn new(model: &str, base: AdapterBase) -> Self {
        Self {
            model: model.to_owned(),
            base,
            entries: Mutex::default(),
        }
    }

    /// Names of the adapters that requests can use, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = self.lock();
        let loaded = entries.iter();
        let loaded = loaded.filter(|(_, entry)| entry.state == AdapterState::Loaded);
        loaded.map(|(name, _)| name.clone()).collect()
    }

    /// True if no adapter is known.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Statuses of all known adapters, in the order of their names.
    pub fn statuses(&self) -> Vec<AdapterStatus> {
        self.lock().values().map(Entry::status).collect()
    }

    /// Status of one adapter; `None` if it is not known.
    pub fn status(&self, name: &str) -> Option<AdapterStatus> {
        self.lock().get(name).map(Entry::status)
    }

    /// Bytes of all loaded adapters.
    pub fn bytes(&self) -> u64 {
        let entries = self.lock();
        let loaded = entries.values().filter_map(|entry| entry.loaded.as_ref());
        loaded.map(|loaded| loaded.adapter.bytes()).sum()
    }

    /// Load an adapter, unless it is loaded. Blocks. Returns it, and whether it was loaded by this.
    ///
    /// # Errors
    /// When there are too many, another load or unload of it is under way, or its files are wrong.
    pub fn load(&self, config: AdapterConfig) -> Result<(AdapterStatus, bool), AdapterError> {
        let base = self.base.as_ref().map_err(|reason| self.none(reason))?;
        check(&config)?;
        if let Some(status) = self.begin(&config)? {
            return Ok((status, false));
        }
        let begun = Instant::now();
        let read = ModelFolder::open(&config.path)
            .and_then(|folder| Adapter::load(&folder, base, config.scale))
            .map_err(|error| format!("{:#}", anyhow::Error::from(error)));
        let mut entries = self.lock();
        let taken: BTreeSet<usize> = entries.values().filter_map(Entry::slot).collect();
        let slot = (0..).find(|slot| !taken.contains(slot)).unwrap_or_default();
        let Some(entry) = entries.get_mut(&config.name) else {
            return Err(self.unknown_of(&config.name));
        };
        match read {
            Ok(adapter) => {
                entry.state = AdapterState::Loaded;
                entry.last_error = None;
                entry.loaded = Some(Loaded {
                    adapter: Arc::new(adapter),
                    slot,
                    at_ms: now_ms(),
                    took: begun.elapsed(),
                });
                Ok((entry.status(), true))
            }
            Err(error) => {
                entry.state = AdapterState::Available;
                entry.last_error = Some(error.clone());
                let adapter = config.name;
                Err(AdapterError::Files { adapter, error })
            }
        }
    }

    /// A load ended without a result.
    pub(crate) fn load_failed(&self, name: &str, error: &str) {
        if let Some(entry) = self.lock().get_mut(name) {
            entry.state = AdapterState::Available;
            entry.last_error = Some(error.to_owned());
        }
    }

    /// Mark an adapter as being loaded; its status if it is loaded already.
    fn begin(&self, config: &AdapterConfig) -> Result<Option<AdapterStatus>, AdapterError> {
        let mut entries = self.lock();
        let count = entries.len();
        let Some(entry) = entries.get_mut(&config.name) else {
            if count >= MAX_ADAPTERS {
                let message =
                    format!("the model has {count} adapters; it can have {MAX_ADAPTERS} at most");
                return Err(invalid("lora_id", message));
            }
            let entry = Entry {
                config: config.clone(),
                state: AdapterState::Loading,
                loaded: None,
                uses: 0,
                last_used_ms: None,
                last_error: None,
            };
            entries.insert(config.name.clone(), entry);
            return Ok(None);
        };
        match entry.state {
            AdapterState::Available => {
                entry.config = config.clone();
                entry.state = AdapterState::Loading;
                Ok(None)
            }
            AdapterState::Loaded if entry.config == *config => Ok(Some(entry.status())),
            AdapterState::Loaded => Err(AdapterError::Loaded(config.name.clone())),
            state => Err(AdapterError::Busy {
                adapter: config.name.clone(),
                state,
            }),
        }
    }

    /// Unload an adapter, and wait until no request uses it. The adapter stays known. Returns the place and the
    /// bytes that it had.
    ///
    /// # Errors
    /// When it is not loaded, or is being loaded or unloaded.
    pub async fn unload(&self, name: &str) -> Result<(usize, u64), AdapterError> {
        {
            let mut entries = self.lock();
            let entry = entries.get_mut(name).ok_or_else(|| self.unknown_of(name))?;
            match entry.state {
                AdapterState::Loaded => entry.state = AdapterState::Unloading,
                AdapterState::Available => {
                    drop(entries);
                    return Err(self.unknown(name));
                }
                state => {
                    let adapter = name.to_owned();
                    return Err(AdapterError::Busy { adapter, state });
                }
            }
        }
        loop {
            {
                let mut entries = self.lock();
                let entry = entries.get_mut(name).ok_or_else(|| self.unknown_of(name))?;
                let used = |loaded: &Loaded| Arc::strong_count(&loaded.adapter) > 1;
                if !entry.loaded.as_ref().is_some_and(used) {
                    entry.state = AdapterState::Available;
                    let freed = entry.loaded.take();
                    let freed = freed.map(|loaded| (loaded.slot, loaded.adapter.bytes()));
                    return Ok(freed.unwrap_or_default());
                }
            }
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    /// Get a loaded adapter for one request. The adapter stays loaded as long as the handle is held.
    ///
    /// # Errors
    /// When no such adapter is loaded.
    pub fn chosen(&self, name: &str) -> Result<Arc<Adapter>, AdapterError> {
        let mut entries = self.lock();
        let entry = entries.get_mut(name);
        let entry = entry.filter(|entry| entry.state == AdapterState::Loaded);
        let Some((entry, adapter)) = entry.and_then(|entry| {
            let adapter = Arc::clone(&entry.loaded.as_ref()?.adapter);
            Some((entry, adapter))
        }) else {
            drop(entries);
            return Err(self.unknown(name));
        };
        entry.uses += 1;
        entry.last_used_ms = Some(now_ms());
        Ok(adapter)
    }

    /// A runtime that applies an adapter to every request, and keeps the adapter until the last of them has ended.
    ///
    /// # Errors
    /// When no such adapter is loaded.
    pub fn adapted(
        &self,
        name: &str,
        runtime: &Arc<dyn TokenRuntime>,
    ) -> Result<Arc<dyn TokenRuntime>, AdapterError> {
        Ok(Arc::new(AdaptedRuntime {
            runtime: Arc::clone(runtime),
            adapter: self.chosen(name)?,
        }))
    }

    /// The error of an adapter that requests cannot use.
    pub fn unknown(&self, name: &str) -> AdapterError {
        AdapterError::Unknown {
            model: self.model.clone(),
            adapter: name.to_owned(),
            available: self.names(),
        }
    }

    /// Error of an adapter that requests cannot use, without the names of the loaded ones, for callers that hold the
    /// lock.
    fn unknown_of(&self, name: &str) -> AdapterError {
        AdapterError::Unknown {
            model: self.model.clone(),
            adapter: name.to_owned(),
            available: Vec::new(),
        }
    }

    fn none(&self, reason: &str) -> AdapterError {
        AdapterError::Unsupported {
            model: self.model.clone(),
            reason: reason.to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn slot(&self) -> Option<usize> {
        self.loaded.as_ref().map(|loaded| loaded.slot)
    }

    fn status(&self) -> AdapterStatus {
        let loaded = self.loaded.as_ref();
        AdapterStatus {
            config: self.config.clone(),
            state: self.state,
            loaded: loaded.map(|loaded| Arc::clone(&loaded.adapter)),
            slot: self.slot(),
            loaded_at_ms: loaded.map(|loaded| loaded.at_ms),
            load_time: loaded.map(|loaded| loaded.took),
            uses: self.uses,
            last_used_ms: self.last_used_ms,
            last_error: self.last_error.clone(),
        }
    }
}

/// A model's runtime with an adapter.
struct AdaptedRuntime {
    runtime: Arc<dyn TokenRuntime>,
    adapter: Arc<Adapter>,
}

impl TokenRuntime for AdaptedRuntime {
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        let adapter = Some(Arc::clone(&self.adapter));
        self.runtime.submit(SequenceRequest { adapter, ..request })
    }

    fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        let adapter = Some(Arc::clone(&self.adapter));
        self.runtime
            .submit_beams(BeamRequest { adapter, ..request })
    }

    fn context_length(&self) -> usize {
        self.runtime.context_length()
    }

    fn load(&self) -> EngineLoad {
        self.runtime.load()
    }

    fn replicas(&self) -> usize {
        self.runtime.replicas()
    }
}

fn invalid(field: &'static str, message: String) -> AdapterError {
    AdapterError::Invalid { field, message }
}

/// Check the name of an adapter, which stands behind that of its model in the name of both.
///
/// # Errors
/// A message that says what is wrong, as the rest of a sentence.
pub fn check_adapter_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_ADAPTER_NAME_BYTES || !name.chars().all(plain) {
        return Err(format!(
            "it must have 1 to {MAX_ADAPTER_NAME_BYTES} letters of ASCII, digits, `-`, `_` and `.`"
        ));
    }
    Ok(())
}

fn check(config: &AdapterConfig) -> Result<(), AdapterError> {
    check_adapter_name(&config.name).map_err(|message| invalid("lora_id", message))?;
    if config.path.as_os_str().is_empty() {
        let message = "it is empty; it must name a folder or a GGUF file".to_owned();
        return Err(invalid("path", message));
    }
    Ok(())
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}
