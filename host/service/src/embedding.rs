//! Texts to vectors: authorize, encode, embed.

use std::sync::Arc;
use std::time::Instant;

use mortise_plugin::Finish;

use crate::admission::{Admission, Call};
use crate::check::invalid;
use crate::encoding;
use crate::error::ServiceError;
use crate::plugins::BoxFuture;
use crate::service::Service;
use mortise_tokenizer::Tokenizer;

/// Texts in one request at most.
pub const MAX_EMBEDDING_INPUTS: usize = 2048;

/// Makes vectors of texts.
pub trait Embed: Send + Sync {
    /// Numbers of a vector.
    fn dimensions(&self) -> usize;

    /// Tokens that a text may have.
    fn context_length(&self) -> usize;

    /// One vector of length 1 for each text, in order.
    fn embed(&self, texts: Vec<Vec<u32>>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>>;
}

/// Why no vectors were made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// As many requests wait as may.
    #[error("the queue of {limit} requests is full")]
    QueueFull {
        /// Requests that may wait.
        limit: usize,
    },
    /// The model is being shut down.
    #[error("the model has stopped")]
    Stopped,
    /// The model failed on these texts.
    #[error("{0}")]
    Failed(String),
}

/// What a vector is asked of.
#[derive(Debug, Clone, PartialEq)]
pub enum EmbeddingInput {
    /// A text, which gets the tokens around it that the model was trained with.
    Text(String),
    /// Tokens, taken as they are.
    Tokens(Vec<u32>),
}

/// A request for vectors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingRequest {
    /// The model's name.
    pub model: String,
    /// Texts, at most [`MAX_EMBEDDING_INPUTS`].
    pub inputs: Vec<EmbeddingInput>,
    /// Numbers of a vector, if the caller says.
    pub dimensions: Option<u32>,
}

/// Vectors, and what they cost.
pub struct Embeddings {
    /// The public name of the model.
    pub model: String,
    /// In the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all inputs.
    pub tokens: u32,
    /// The policy is told when this is dropped.
    pub admission: Admission,
}

impl Service {
    /// Make vectors of texts.
    pub async fn embed(
        &self,
        call: &Call,
        request: EmbeddingRequest,
    ) -> Result<Embeddings, ServiceError> {
        let (mut admission, entry) = self.admit(call, &request.model).await?;
        let Some(embedder) = &entry.value.embedder else {
            let message = format!(
                "the model `{}` generates text and makes no embeddings",
                entry.name
            );
            return Err(invalid("model", message));
        };
        check_dimensions(request.dimensions, embedder.dimensions())?;
        let tokenizer = Arc::clone(&entry.value.tokenizer);
        let (context, inputs) = (embedder.context_length(), request.inputs);
        let encoded = encoding::encode(bytes(&inputs), move || encode(&tokenizer, context, inputs));
        let texts = encoded.await??;
        let tokens: usize = texts.iter().map(Vec::len).sum();
        admission.spent().prompt_tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let backend = &entry.value.backend;
        self.paces
            .note(&entry.name, &backend.load(), Instant::now());
        let made = embedder.embed(texts).await;
        let vectors = made.map_err(|error| match error {
            EmbedError::QueueFull { limit } => ServiceError::QueueFull {
                limit,
                unit: "requests",
                retry_after: self.paces.retry_after(&entry.name, &backend.load()),
            },
            EmbedError::Stopped => ServiceError::Stopping,
            EmbedError::Failed(message) => ServiceError::Engine(message),
        })?;
        admission.spent().finish = Finish::Stop;
        Ok(Embeddings {
            model: entry.name.clone(),
            vectors,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            admission,
        })
    }
}

fn check_dimensions(wanted: Option<u32>, dimensions: usize) -> Result<(), ServiceError> {
    match wanted {
        Some(wanted) if wanted as usize != dimensions => Err(invalid(
            "dimensions",
            format!(
                "dimensions is {wanted}; this model's embeddings have {dimensions} and were not \
                 trained to be shortened"
            ),
        )),
        _ => Ok(()),
    }
}

/// Bytes of all texts.
fn bytes(inputs: &[EmbeddingInput]) -> usize {
    let lengths = inputs.iter().map(|input| match input {
        EmbeddingInput::Text(text) => text.len(),
        EmbeddingInput::Tokens(_) => 0,
    });
    lengths.sum()
}

fn encode(
    tokenizer: &Tokenizer,
    context: usize,
    inputs: Vec<EmbeddingInput>,
) -> Result<Vec<Vec<u32>>, ServiceError> {
    if !(1..=MAX_EMBEDDING_INPUTS).contains(&inputs.len()) {
        let message = format!(
            "input has {} texts; expected 1 to {MAX_EMBEDDING_INPUTS}",
            inputs.len()
        );
        return Err(invalid("input", message));
    }
    let mut texts = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.into_iter().enumerate() {
        let param = format!("input[{index}]");
        let tokens = match input {
            EmbeddingInput::Tokens(tokens) => {
                if let Some(unknown) = tokens.iter().find(|id| !tokenizer.table().contains(**id)) {
                    return Err(invalid(
                        &param,
                        format!("{unknown} is no token of this model"),
                    ));
                }
                tokens
            }
            EmbeddingInput::Text(text) => tokenizer
                .encode_text(&text)
                .map_err(|error| invalid(&param, error.to_string()))?,
        };
        if tokens.is_empty() {
            return Err(invalid(&param, format!("{param} has no tokens")));
        }
        if tokens.len() > context {
            return Err(ServiceError::ContextLength {
                param: "input",
                prompt: tokens.len(),
                requested: 0,
                context,
            });
        }
        texts.push(tokens);
    }
    Ok(texts)
}
