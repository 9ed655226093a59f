//! Runtime of embedding models: texts in, vectors out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mortise_engine::{EngineLoad, Share, SubmitError};
use mortise_model::Adapter;

use crate::conversation_runtime::RuntimeError;
use crate::token_runtime::AdapterBase;

/// Vectors of a batch of texts, once they are computed.
pub type EmbeddingFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Vec<f32>>, EmbedError>> + Send + 'a>>;

/// Computes embeddings.
pub trait EmbeddingRuntime: Send + Sync {
    /// Numbers of a vector.
    fn dimensions(&self) -> usize;

    /// Tokens that a text may have.
    fn context_length(&self) -> usize;

    /// Compute one vector of length 1 for each text, in order, with an adapter where one is given. The tokens count
    /// against a share. Dropping the future cancels what has not begun.
    fn embed<'a>(
        &'a self,
        texts: Vec<Vec<u32>>,
        adapter: Option<Arc<Adapter>>,
        share: &'a Share,
    ) -> EmbeddingFuture<'a>;

    /// Shapes that adapters are checked against.
    fn adapter_base(&self) -> AdapterBase;

    /// Counters and gauges of the runtime. Tokens of texts count as prefill.
    fn load(&self) -> EngineLoad;
}

/// Failure to compute vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The queue is full.
    #[error("the queue of {limit} requests is full")]
    QueueFull {
        /// Requests that may wait.
        limit: usize,
    },
    /// The tenant has its share of the queue; the free places are reserved for other tenants.
    #[error("{waiting} of your requests wait already, and what is left of the queue is for others")]
    TenantQueueFull {
        /// Requests of the tenant.
        waiting: usize,
    },
    /// The model is being shut down.
    #[error("the model has stopped")]
    Stopped,
    /// The model failed on these texts.
    #[error("{0}")]
    Failed(String),
    /// The model's server refused the request, or failed.
    #[error(transparent)]
    Elsewhere(#[from] RuntimeError),
}

impl From<SubmitError> for EmbedError {
    /// A request that found no place.
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::TenantQueue { waiting } => Self::TenantQueueFull { waiting },
            SubmitError::QueueFull { limit } => Self::QueueFull { limit },
            error => Self::Failed(error.to_string()),
        }
    }
}
