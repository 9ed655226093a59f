//! Models at the start of a server: which are loaded, and what is told meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mortise_child::Children;
use mortise_config::{Config, hub_config};
use mortise_hub::DownloadProgress;
use mortise_library::Library;
use mortise_models::lifecycle::{
    LifecycleError, LoadModel, LoadOverrides, LoadProgress, LoadStage, ModelManager, ModelStatus,
};
use mortise_models::{
    DeviceChoice, LocalLoader, Model, ModelConfig, ModelSource, check_pin, download,
};
use mortise_supervise::faults;
use serde_json::{Value, json};

use crate::advice::{self, Advise as _};
use crate::commands::check::{OTHER_DEVICES, check_device};
use crate::remote;

/// Sources of model files: folders, the hub, and the demo model.
pub(crate) fn model_source() -> ModelSource {
    ModelSource {
        demo: mortise_bundle::demo_model(),
        fetch: Arc::new(|reference, progress| download(&hub_config()?, reference, progress)),
    }
}

/// The manager of all configured models, none of which is loaded.
pub(crate) fn model_manager(config: &Config, library: Option<Arc<Library>>) -> Arc<ModelManager> {
    let loader = LocalLoader::new(
        model_source(),
        config.engine.clone(),
        config.limits.max_context,
        config.models.clone(),
    );
    let loader = Arc::new(Loader {
        local: loader,
        children: Children::default(),
        library,
    });
    ModelManager::new(config.models.clone(), loader, config.lifecycle)
}

/// Loader of models of each kind: local ones, models of upstreams, and models of child processes.
struct Loader {
    local: LocalLoader,
    children: Children,
    /// Library that downloads files of models when they are needed.
    library: Option<Arc<Library>>,
}

impl Loader {
    /// Have the files of a model here.
    fn bring(&self, config: &ModelConfig, progress: &LoadProgress) -> anyhow::Result<()> {
        if let (Some(library), Some(path)) = (&self.library, &config.path) {
            let brought = library.bring_files(path, &Told(progress));
            if brought.context("its files cannot be had from the object store")? {
                progress.stage(LoadStage::Reading);
            }
        }
        Ok(())
    }

    /// Bytes of files that would come first.
    fn absent_bytes(&self, config: &ModelConfig) -> Option<u64> {
        self.library.as_ref()?.absent_bytes(config.path.as_deref()?)
    }
}

/// Adapter that passes the library's progress on to the progress of a load.
struct Told<'a>(&'a LoadProgress);

impl DownloadProgress for Told<'_> {
    fn begin(&self, file: &str, total: u64, present: u64) {
        self.0.file(file, total, present);
    }

    fn advance(&self, bytes: u64) {
        self.0.advance(bytes);
    }

    fn end(&self) {}

    fn note(&self, text: &str) {
        tracing::warn!("{text}");
    }
}

impl LoadModel for Loader {
    fn load(
        &self,
        config: &ModelConfig,
        overrides: &LoadOverrides,
        progress: &LoadProgress,
    ) -> anyhow::Result<Model> {
        faults::stall("load");
        let (local, children) = (&self.local, &self.children);
        match (&config.upstream, &config.child) {
            (None, None) => local.load(config, overrides, progress),
            (Some(upstream), _) => remote::load(config, upstream, local, progress),
            (None, Some(child)) => {
                if let Some(path) = &config.path {
                    check_pin(config, path)?;
                }
                remote::load_child(config, child, children, local, progress)
            }
        }
    }

    fn check(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Result<(), LifecycleError> {
        let overrides = overrides.of_runtime();
        let message = match (&config.upstream, &config.child) {
            _ if overrides.is_empty() => return Ok(()),
            (None, None) => return self.local.check(config, &overrides),
            (Some(_), _) => "the model runs on another server, which has settings of its own",
            (None, Some(_)) => "the model runs in a process, whose `command` has its settings",
        };
        Err(LifecycleError::BadOverride {
            field: overrides.first().unwrap_or("overrides"),
            message: message.to_owned(),
        })
    }

    fn prepare(&self, config: &ModelConfig, progress: &LoadProgress) -> anyhow::Result<()> {
        if config.upstream.is_some() {
            return Ok(());
        }
        if let Some(child) = &config.child {
            self.children.check(child)?;
        }
        self.bring(config, progress)?;
        match (&config.child, &config.path) {
            // The process fetches what it serves.
            (Some(_), None) => Ok(()),
            _ => self.local.prepare(config, progress),
        }
    }

    fn redefine(&self, models: &[ModelConfig]) {
        self.local.redefine(models);
    }

    fn artifact_bytes(&self, config: &ModelConfig) -> Option<u64> {
        let without_files = config.path.is_none() && config.child.is_some();
        match config.upstream.is_some() || without_files {
            true => Some(0),
            false => {
                let absent = self.absent_bytes(config);
                absent.or_else(|| self.local.artifact_bytes(config))
            }
        }
    }

    fn expected_bytes(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Option<u64> {
        let elsewhere = config.upstream.is_some() || config.child.is_some();
        match elsewhere || self.absent_bytes(config).is_some() {
            true => self.artifact_bytes(config),
            false => self.local.expected_bytes(config, overrides),
        }
    }
}

/// Time that the processes of models have to end.
pub(crate) fn longest_end(models: &[ModelStatus]) -> Duration {
    let children = models.iter().filter(|model| model.loaded.is_some());
    let children = children.filter_map(|model| model.config.child.as_ref());
    let times = children.map(|child| child.stop_timeout);
    times.max().unwrap_or_default()
}

/// Load the models that are to be loaded at the start, one after another.
///
/// # Errors
/// When none of them can be loaded, or one cannot and `strict` is set.
pub(crate) async fn load_enabled(
    models: &Arc<ModelManager>,
    strict: bool,
    device: DeviceChoice,
) -> anyhow::Result<()> {
    let Err(error) = load_those_of_the_start(models, strict).await else {
        return Ok(());
    };
    let failed = match &error {
        LifecycleError::Failed { model, .. } => models.status(model),
        _ => None,
    };
    let failed = failed.and_then(|model| what_to_do(&model.config, device));
    match failed {
        Some(advice) => Err(cause(error)).advise(|| advice),
        None => Err(cause(error)),
    }
}

/// Advice for a model that cannot be loaded, where its error is not enough.
fn what_to_do(model: &ModelConfig, device: DeviceChoice) -> Option<String> {
    if check_device(model.engine.device.unwrap_or(device)).is_err() {
        return Some(OTHER_DEVICES.to_owned());
    }
    match (&model.path, &model.hf) {
        (Some(path), _) => advice::model_path(path),
        (None, Some(_)) => Some(
            "`mortise pull --help` says how the hub is asked; `mortise serve --model PATH` serves files that are here"
                .to_owned(),
        ),
        (None, None) => None,
    }
}

/// Load the models that are enabled at the start; fails with the error of the life cycle.
pub(crate) async fn load_those_of_the_start(
    models: &Arc<ModelManager>,
    strict: bool,
) -> Result<(), LifecycleError> {
    let (mut wanted, mut loaded, mut first) = (0, 0, None);
    for status in models.statuses() {
        if !status.config.lifecycle.enabled {
            continue;
        }
        let name = &status.listing.name;
        if loaded > 0 && !models.has_room(name) {
            // Those that came first stay.
            tracing::info!(
                model = name,
                "model is left unloaded: there is no room for it"
            );
            continue;
        }
        wanted += 1;
        match models.load(name, LoadOverrides::default()).await {
            Ok(()) => loaded += 1,
            Err(error) if strict => return Err(error),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if loaded == 0 && wanted > 0 => Err(error),
        _ => Ok(()),
    }
}

/// The error of a load, for the one line that ends the program.
fn cause(error: LifecycleError) -> anyhow::Error {
    match error {
        // It names the model itself.
        LifecycleError::Failed { error, .. } => anyhow::Error::msg(error),
        error => error.into(),
    }
}

/// Body of `GET /ready` while models are loaded. Names and files are not for callers without a key: the log
/// has them.
pub(crate) fn progress(models: &[ModelStatus]) -> Value {
    let models = models.iter().map(|model| {
        let mut progress = model.progress.clone();
        if let Some(progress) = &mut progress {
            progress.file = None;
        }
        json!({"state": model.state.name(), "progress": progress})
    });
    json!({"status": "starting", "models": models.collect::<Vec<_>>()})
}
