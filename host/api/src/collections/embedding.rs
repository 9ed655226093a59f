//! The model that makes the vectors of a collection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_http::Problem;
use mortise_service::{
    ApiCall, EmbeddingBackend, EmbeddingInput, EmbeddingRequest, Granted, Principal, PromptUse,
    RequestId, ServedModel, Service, ServiceError,
};
use tokio::time::sleep;

use crate::state::ApiState;

/// Pauses before a request that met a full queue, or a model that is being loaded, is made again.
const PAUSE: Duration = Duration::from_secs(1);
/// Attempts.
const ATTEMPTS: u32 = 120;

/// Bytes of a token where nobody here knows the model's tokens.
pub(super) const TOKEN_BYTES: usize = 3;

/// The model of a name, if it embeds, and its public name, with that of an adapter if one is named; without a name
/// the only model that embeds.
pub(crate) fn embedder_of(
    state: &ApiState,
    name: Option<&str>,
    param: &str,
) -> Result<(Arc<ServedModel>, String), Problem> {
    let embeds = |model: &Arc<ServedModel>| {
        let loaded = model.loaded.as_ref();
        loaded.is_some_and(|loaded| loaded.model.embedder.is_some())
    };
    let Some(name) = name else {
        let models = state.service.models();
        let mut able = models.into_iter().filter(embeds);
        return match (able.next(), able.next()) {
            (Some(only), None) => {
                let name = only.listing.name.clone();
                Ok((only, name))
            }
            (None, _) => {
                let message =
                    "no model here makes embeddings; operators can add one, as with `pooling`";
                Err(Problem::unsupported(param, message))
            }
            _ => {
                let message = format!("`{param}` must name one of the models that make embeddings");
                Err(Problem::invalid(param, message))
            }
        };
    };
    let found = state.service.model_and_name(name);
    let (model, name) = found.map_err(|error| crate::problem::problem_of(error).at(param))?;
    match embeds(&model) {
        true => Ok((model, name)),
        false => {
            let message =
                format!("`{param}`: the model `{name}` is not loaded, or makes no embeddings");
            Err(Problem::invalid(param, message))
        }
    }
}

/// Tokens that a document's text may have for a model: those of its context beside its instruction.
pub(crate) fn room_for_documents(model: &ServedModel) -> usize {
    let Some(counter) = TokenCounter::of(model) else {
        return usize::MAX;
    };
    let prompt = counter.0.prompts().text(&PromptUse::Document);
    let taken = match prompt.unwrap_or_default() {
        "" => 0,
        prompt => counter.count(prompt),
    };
    let context = counter.0.context_length().unwrap_or(usize::MAX);
    context.saturating_sub(taken)
}

/// Counts the tokens of texts for a model that makes embeddings; by their bytes where another server has the tokenizer.
pub(super) struct TokenCounter<'a>(&'a EmbeddingBackend);

impl<'a> TokenCounter<'a> {
    /// The counter for a model; `None` if it is not loaded, or makes no embeddings.
    pub(super) fn of(model: &'a ServedModel) -> Option<Self> {
        let loaded = model.loaded.as_ref()?;
        loaded.model.embedder.as_ref().map(Self)
    }

    /// Tokens of a text.
    pub(super) fn count(&self, text: &str) -> usize {
        match self.0 {
            EmbeddingBackend::Local(embedder) => {
                let encoded = embedder.tokenizer.encode_plain(text);
                // What has no tokens counts by its bytes, of which none is more than a token.
                encoded.map_or(text.len(), |ids| ids.len())
            }
            EmbeddingBackend::Remote(_) => text.len().div_ceil(TOKEN_BYTES),
        }
    }
}

/// Vectors of texts for a caller that was admitted before. Waits while others are before it.
pub(super) async fn embed(
    service: &Service,
    model: &str,
    principal: &Principal,
    prompted: bool,
    texts: Vec<String>,
) -> Result<Vec<Vec<f32>>, ServiceError> {
    let mut attempts = 0;
    loop {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let call = ApiCall {
            request_id: RequestId::new(id),
            route: "/v1/vector_stores",
            method: "POST",
            peer: String::new(),
            headers: Vec::new(),
            arrived: Instant::now(),
            granted: Some(Granted {
                principal: principal.clone(),
                ..Granted::default()
            }),
            waived_priority: 0,
        };
        let inputs = texts.iter().cloned().map(EmbeddingInput::Text);
        let request = EmbeddingRequest {
            model: model.to_owned(),
            inputs: inputs.collect(),
            dimensions: None,
            // A chunk is counted by its words, which may have a token more together.
            truncate: true,
            prompt: match prompted {
                true => PromptUse::Document,
                false => PromptUse::Plain,
            },
            allow_remote: false,
        };
        match service.embed(&call, request).await {
            Ok(made) => return Ok(made.vectors),
            Err(error) => {
                let passing = matches!(
                    error,
                    ServiceError::QueueFull { .. }
                        | ServiceError::TenantQueueFull { .. }
                        | ServiceError::Overloaded { .. }
                        | ServiceError::Model(_)
                );
                attempts += 1;
                if !passing || attempts >= ATTEMPTS {
                    return Err(error);
                }
            }
        }
        sleep(PAUSE).await;
    }
}
