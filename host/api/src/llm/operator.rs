//! The operator's side of the dialect, as the server ties it in.

use axum::body::Body;
use futures::future::BoxFuture;
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use mortise_http::Problem;
use mortise_service::{
    AdapterConfig, AdapterRefusal, AdapterStatus, LifecycleError, LoadOverrides, ModelStatus,
};
use serde_json::Value;

/// A request with a model as a form.
pub type ModelForm = HttpRequest<Body>;

/// Loads and unloads models, and knows what their files say.
pub trait Operator: Send + Sync {
    /// True if a request carries the operator's key. `None` if no key is taken on these routes.
    fn knows_key(&self, headers: &HeaderMap) -> Option<bool>;

    /// True if models can be computed on a GPU here.
    fn has_gpu(&self) -> bool;

    /// States of all models, in the order of the configuration.
    fn statuses(&self) -> Vec<ModelStatus>;

    /// State of one model, by its exact name.
    fn status(&self, name: &str) -> Option<ModelStatus>;

    /// Facts of a model that its files tell.
    fn facts<'a>(&'a self, model: &'a ModelStatus) -> BoxFuture<'a, ModelFileFacts>;

    /// Load a model, and wait until it serves.
    fn load<'a>(
        &'a self,
        name: &'a str,
        settings: LoadOverrides,
    ) -> BoxFuture<'a, Result<(), LifecycleError>>;

    /// Unload a model, and wait until its memory is free.
    fn unload<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), LifecycleError>>;

    /// Take a model that comes as a form, and tell what became of it: an object with its `name`, `version`,
    /// `size_bytes`, `checksum` and so on.
    fn ingest(&self, request: ModelForm) -> BoxFuture<'_, Result<Value, Problem>>;

    /// Load an adapter of a loaded model, and wait until requests can use it.
    fn load_adapter<'a>(
        &'a self,
        model: &'a str,
        config: AdapterConfig,
    ) -> BoxFuture<'a, Result<AdapterStatus, AdapterRefusal>>;

    /// Unload an adapter, and wait until no request uses it. Returns the place that is free.
    fn unload_adapter<'a>(
        &'a self,
        model: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<usize, AdapterRefusal>>;
}

/// Facts of a model's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelFileFacts {
    /// Folder or file.
    pub path: Option<String>,
    /// Bytes of the weights; `None` if they are not known.
    pub size_bytes: Option<u64>,
    /// `GGUF` or `safetensors`; `None` without files.
    pub format: Option<&'static str>,
    /// Shape of the model; `None` if its files do not tell.
    pub shape: Option<ModelShape>,
    /// Layers on a GPU; `None` if that is not known.
    pub gpu_layers: Option<u32>,
}

/// Shape of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelShape {
    /// Name of the family.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Numbers of an embedding.
    pub width: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Tokens of the context that the model was made for.
    pub context: usize,
}

/// Refuse who is no operator.
pub(super) fn operators_only(operator: &dyn Operator, headers: &HeaderMap) -> Result<(), Problem> {
    match operator.knows_key(headers) {
        Some(true) => Ok(()),
        Some(false) => {
            let message = "this route needs the key of the admin side, as `X-Admin-Token: KEY` or \
                           `Authorization: Bearer KEY`";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "invalid_admin_key", message);
            Err(problem.with_header("www-authenticate", "Bearer"))
        }
        None => {
            let message = "models and adapters are loaded and caches cleared on the admin side; an operator can allow it here, \
                           for who knows the key of that side, as `admin.llm_routes`";
            Err(Problem::new(StatusCode::FORBIDDEN, "admin_only", message))
        }
    }
}
