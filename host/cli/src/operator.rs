//! The operator's side of the dialect `/api/v1/llm`: models are loaded and unloaded, and their files described.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::HeaderMap;
use mortise_admin::{carries_key, library_off, take_form};
use mortise_api::llm::{ModelFileFacts, ModelForm, ModelShape, Operator};
use mortise_http::Problem;
use mortise_library::Library;
use mortise_model::{ModelFolder, ModelSpec};
use mortise_models::lifecycle::{
    AdapterRefusal, LifecycleError, LoadOverrides, ModelManager, ModelStatus,
};
use mortise_models::{AdapterConfig, AdapterStatus};
use mortise_service::PluginFuture;
use serde_json::Value;
use tokio::sync::watch::Receiver;

/// Models whose facts are kept.
const MAX_KNOWN: usize = 4096;

/// Actions of operators, and what files tell.
pub(crate) struct Operating {
    models: Arc<ModelManager>,
    /// Key of the admin side, if it is taken here.
    key: Option<String>,
    /// Models that come over the network; `None`: none do.
    library: Option<Arc<Library>>,
    /// Becomes true when the server takes no new work.
    draining: Receiver<bool>,
    /// Facts of files, by the model's name and their path.
    known: Mutex<HashMap<(String, Option<PathBuf>), ModelFileFacts>>,
}

impl Operating {
    pub(crate) fn new(
        models: Arc<ModelManager>,
        key: Option<String>,
        library: Option<Arc<Library>>,
        draining: Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            models,
            key,
            library,
            draining,
            known: Mutex::default(),
        })
    }
}

impl Operator for Operating {
    fn knows_key(&self, headers: &HeaderMap) -> Option<bool> {
        self.key.as_ref().map(|key| carries_key(headers, key))
    }

    fn has_gpu(&self) -> bool {
        static FOUND: OnceLock<bool> = OnceLock::new();
        *FOUND.get_or_init(|| mortise_cuda::find().is_ok_and(|gpus| !gpus.is_empty()))
    }

    fn statuses(&self) -> Vec<ModelStatus> {
        self.models.statuses()
    }

    fn status(&self, name: &str) -> Option<ModelStatus> {
        self.models.status(name)
    }

    fn facts<'a>(&'a self, model: &'a ModelStatus) -> PluginFuture<'a, ModelFileFacts> {
        Box::pin(async move {
            let key = (model.listing.name.clone(), model.config.path.clone());
            let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = lock().get(&key) {
                return known.clone();
            }
            let status = model.clone();
            let size_bytes = self.models.artifact_bytes(&model.listing.name);
            let read = tokio::task::spawn_blocking(move || facts(&status, size_bytes)).await;
            let facts = read.unwrap_or_default();
            let mut known = lock();
            // Models of files that are gone are not asked for again.
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(key, facts.clone());
            facts
        })
    }

    fn load<'a>(
        &'a self,
        name: &'a str,
        settings: LoadOverrides,
    ) -> PluginFuture<'a, Result<(), LifecycleError>> {
        Box::pin(self.models.load(name, settings))
    }

    fn unload<'a>(&'a self, name: &'a str) -> PluginFuture<'a, Result<(), LifecycleError>> {
        Box::pin(self.models.unload(name))
    }

    fn ingest(&self, request: ModelForm) -> PluginFuture<'_, Result<Value, Problem>> {
        Box::pin(async move {
            let library = self.library.as_ref().ok_or_else(library_off)?;
            let (_, made) = take_form(library, self.draining.clone(), request).await?;
            Ok(made)
        })
    }

    fn load_adapter<'a>(
        &'a self,
        model: &'a str,
        config: AdapterConfig,
    ) -> PluginFuture<'a, Result<AdapterStatus, AdapterRefusal>> {
        Box::pin(self.models.load_adapter(model, config))
    }

    fn unload_adapter<'a>(
        &'a self,
        model: &'a str,
        name: &'a str,
    ) -> PluginFuture<'a, Result<usize, AdapterRefusal>> {
        Box::pin(self.models.unload_adapter(model, name))
    }
}

/// Facts of a model's files. Blocks.
fn facts(model: &ModelStatus, size_bytes: Option<u64>) -> ModelFileFacts {
    let config = &model.config;
    let elsewhere = config.upstream.is_some() || config.hf.is_some();
    let folder = match (&config.path, elsewhere || config.child.is_some()) {
        (Some(path), false) => ModelFolder::open(path).ok(),
        (None, false) => Some(ModelFolder::embedded(mortise_bundle::demo_model())),
        (_, true) => None,
    };
    let spec = folder
        .as_ref()
        .and_then(|folder| ModelSpec::read(folder).ok());
    let format = folder.as_ref().map(|folder| match folder.gguf() {
        Some(_) => "GGUF",
        None => "safetensors",
    });
    ModelFileFacts {
        path: config.path.as_ref().map(|path| path.display().to_string()),
        size_bytes: size_bytes.filter(|_| !elsewhere),
        format: format.filter(|_| config.script.is_none()),
        shape: spec
            .filter(|_| config.script.is_none())
            .map(|spec| ModelShape {
                architecture: spec.architecture.name().to_owned(),
                layers: spec.layers,
                heads: spec.heads,
                width: spec.hidden,
                vocabulary: spec.vocabulary,
                context: spec.context,
            }),
        gpu_layers: (!cfg!(feature = "cuda")).then_some(0),
    }
}
