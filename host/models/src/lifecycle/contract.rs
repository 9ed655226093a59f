//! Traits of the manager's loader and publisher, its settings, and the status of a model.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::error::LifecycleError;
use super::load_time::LoadTime;
use super::overrides::LoadOverrides;
use super::progress::{LoadProgress, LoadStatus};
use super::state::{ModelState, RoomLimits};
use crate::adapters::AdapterStatus;
use crate::config::ModelConfig;
use crate::model::{Listing, Model};

/// Loads models. Called on threads that may block, one call at a time.
pub trait LoadModel: Send + Sync {
    /// Load a model and start its runtime.
    ///
    /// # Errors
    /// When its files or settings are wrong, or it does not fit.
    fn load(
        &self,
        config: &ModelConfig,
        overrides: &LoadOverrides,
        progress: &LoadProgress,
    ) -> anyhow::Result<Model>;

    /// Check settings of a load before it begins.
    ///
    /// # Errors
    /// When a setting cannot be had for this model.
    fn check(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Result<(), LifecycleError>;

    /// Bring the files of a model to this machine, before others are unloaded for it.
    ///
    /// # Errors
    /// When a load would fail for lack of them.
    fn prepare(&self, config: &ModelConfig, progress: &LoadProgress) -> anyhow::Result<()>;

    /// Bytes of the files that a load would read, as far as they are known.
    fn artifact_bytes(&self, config: &ModelConfig) -> Option<u64>;

    /// Bytes of memory that a load with these settings would take, as far as the files tell: the weights, the KV cache
    /// of each replica, and what a draft model takes. Looks at the disk.
    fn expected_bytes(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Option<u64> {
        let _ = overrides;
        self.artifact_bytes(config)
    }

    /// The models are these from now on, among which drafts are found by name.
    fn redefine(&self, models: &[ModelConfig]) {
        let _ = models;
    }
}

/// A model that the server knows, with its runtime if it is loaded.
#[derive(Debug, Clone)]
pub struct KnownModel {
    /// Names and what lists of models show.
    pub listing: Arc<Listing>,
    /// The loaded model.
    pub loaded: Option<Arc<Model>>,
}

/// Result of [`PublishModels::publish`].
pub type Published<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Serves what is loaded: binds plugins and takes the models into the service.
pub trait PublishModels: Send + Sync {
    /// Serve these models from the next request on. After an error, what served before goes on.
    fn publish(&self, models: Vec<KnownModel>) -> Published<'_>;
}

/// Settings of the manager.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleConfig {
    /// Bounds of what is loaded at once.
    pub room: RoomLimits,
    /// Requests load models that are not loaded, where the model does not say.
    pub load_on_demand: bool,
    /// Time without a request after which a model is unloaded, where the model does not say.
    pub idle_timeout: Option<Duration>,
    /// Pause between looks for idle models.
    pub idle_check: Duration,
    /// Requests may say how long a model stays loaded after them.
    pub keep_alive: bool,
    /// Callers of streams are told of the loads that they wait for.
    pub swap_notices: bool,
    /// Bounds of the time of a load.
    pub load_time: LoadTime,
}

impl Default for LifecycleConfig {
    fn default() -> Self {
        Self {
            room: RoomLimits::default(),
            load_on_demand: false,
            idle_timeout: None,
            idle_check: Duration::from_secs(30),
            keep_alive: false,
            swap_notices: false,
            load_time: LoadTime::default(),
        }
    }
}

/// Origin of the estimate of a model's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySource {
    /// Growth of the process during a load, and the KV cache.
    ObservedLoadDelta,
    /// Size of its files, and the KV cache.
    ModelArtifactSize,
    /// Unknown.
    Unavailable,
}

impl MemorySource {
    /// Of an estimate by the files, if there is one.
    pub(super) fn of_files(bytes: Option<u64>) -> Self {
        match bytes {
            Some(_) => Self::ModelArtifactSize,
            None => Self::Unavailable,
        }
    }

    /// Name of the origin on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::ObservedLoadDelta => "observed_load_delta",
            Self::ModelArtifactSize => "model_artifact_size",
            Self::Unavailable => "unavailable",
        }
    }
}

/// State of one model, for operators.
#[derive(Debug, Clone)]
pub struct ModelStatus {
    /// Names and what lists of models show.
    pub listing: Arc<Listing>,
    /// Its definition.
    pub config: Arc<ModelConfig>,
    /// State.
    pub state: ModelState,
    /// Why its last load failed.
    pub last_error: Option<String>,
    /// Progress, while it is loading.
    pub progress: Option<LoadStatus>,
    /// Settings of the load in force.
    pub overrides: Option<LoadOverrides>,
    /// The loaded model.
    pub loaded: Option<Arc<Model>>,
    /// Never evicted, never unloaded for being idle.
    pub pinned: bool,
    /// Requests that use it or wait for it.
    pub in_flight: usize,
    /// Requests that have used it since the start.
    pub uses: u64,
    /// Memory that it takes, or is expected to take.
    pub memory_bytes: u64,
    /// Origin of that number.
    pub memory_source: MemorySource,
    /// When it was loaded, in milliseconds since 1970.
    pub loaded_at_ms: Option<u64>,
    /// Duration of its load.
    pub load_time: Option<Duration>,
    /// Time since its last request or its load; `None` if it is not loaded.
    pub idle: Option<Duration>,
}

impl ModelStatus {
    /// Its adapters: all that it knows while it is loaded, else those that are loaded with it.
    pub fn adapters(&self) -> Vec<AdapterStatus> {
        let loaded = self.loaded.as_ref().and_then(|model| model.adapters());
        let known = loaded.map(|adapters| adapters.statuses());
        known.unwrap_or_else(|| {
            let configured = self.config.loras.iter().cloned();
            configured.map(AdapterStatus::available).collect()
        })
    }
}
