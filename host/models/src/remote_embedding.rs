//! Embeddings of models that answer elsewhere: texts in, vectors out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mortise_engine::{EngineLoad, Share};
use mortise_model::{EmbeddingPrompts, PromptUse};

use crate::conversation_runtime::RuntimeEnd;
use crate::embedding_runtime::EmbedError;

/// Vectors of a request, once they have come.
pub type RemoteEmbeddingFuture<'a> =
    Pin<Box<dyn Future<Output = Result<RemoteEmbeddings, EmbedError>> + Send + 'a>>;

/// Computes embeddings of texts that it encodes by itself: a server elsewhere, or a process of this one.
pub trait RemoteEmbeddingRuntime: Send + Sync {
    /// Compute one vector for each input, in order, all with as many numbers. Dropping the future cancels
    /// what has not come.
    fn embed(&self, request: RemoteEmbeddingRequest) -> RemoteEmbeddingFuture<'_>;

    /// Whether the runtime has the instructions that stand before texts, and is told the use of the texts.
    fn has_prompts(&self) -> bool {
        false
    }

    /// Whether a request must say that it may leave this machine.
    fn embedding_requires_allow_remote(&self) -> bool {
        false
    }

    /// Tokens that a text may have, if known.
    fn text_length(&self) -> Option<usize>;

    /// Counters and gauges of the runtime, as far as they are known.
    fn embedding_load(&self) -> EngineLoad;

    /// Resident memory of the processes that the runtime runs on this machine, in bytes.
    fn process_bytes(&self) -> u64 {
        0
    }

    /// Watch of the end of a runtime that may end by itself; `None` if it ends only when it is dropped.
    fn process_end(&self) -> Option<RuntimeEnd> {
        None
    }
}

/// Input of one vector.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbeddingInput {
    /// A text, which gets the tokens around it that the model was trained with.
    Text(String),
    /// Tokens, taken as they are.
    Tokens(Vec<u32>),
}

/// Texts to embed elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteEmbeddingRequest {
    /// Server's id of the request, to be passed on.
    pub request_id: String,
    /// Share against which the request counts.
    pub share: Share,
    /// Inputs, at least one.
    pub inputs: Vec<EmbeddingInput>,
    /// Texts that are longer than the context are cut, where the runtime can be asked for that.
    pub truncate: bool,
    /// Use of the texts, for a runtime that has instructions of its own.
    pub prompt: PromptUse,
}

/// Vectors that came from elsewhere.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RemoteEmbeddings {
    /// Vectors, in the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all inputs, if the runtime reports them.
    pub prompt_tokens: Option<u32>,
}

/// An embedding model that answers elsewhere. Its tokens are not known here.
#[derive(Clone)]
pub struct RemoteEmbedder {
    /// Computes vectors.
    pub runtime: Arc<dyn RemoteEmbeddingRuntime>,
    /// Instructions that stand before texts, where the runtime has none of its own.
    pub prompts: Arc<EmbeddingPrompts>,
}
