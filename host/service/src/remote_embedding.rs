//! Embeddings of a model that answers elsewhere: its server encodes the texts and counts their tokens.

use mortise_engine::Share;
use mortise_models::{EmbeddingInput, Model, PromptUse, RemoteEmbedder, RemoteEmbeddingRequest};

use crate::admission::Admission;
use crate::conversation_prompt::check_consent;
use crate::embedding::{WantedVectors, bytes, check_count, ids_length, prompted};
use crate::error::ServiceError;
use crate::limits::MAX_PROMPT_TOKENS_BESIDE_TEXT;
use crate::refusal::invalid;
use crate::service::Service;
use crate::spending::tokens_of_bytes;

impl Service {
    /// The vectors of texts that another server makes, paid for by what it counts.
    pub(crate) async fn vectors_elsewhere(
        &self,
        admission: &mut Admission,
        model: &Model,
        remote: &RemoteEmbedder,
        wanted: WantedVectors,
    ) -> Result<Vec<Vec<f32>>, ServiceError> {
        let required = remote.runtime.embedding_requires_allow_remote();
        check_consent(&model.name, required, wanted.allow_remote)?;
        check_inputs(&wanted)?;
        let share = self.share(&admission.allowance().principal, None);
        let requests = requests(remote, (admission.request_id(), &share), wanted)?;
        let lengths = requests.iter().map(|request| length(&request.inputs));
        let length: u64 = lengths.sum();
        let estimated = tokens_of_bytes(length);
        let texts = requests.iter().map(|request| request.inputs.len() as u64);
        let beside = texts.sum::<u64>() * MAX_PROMPT_TOKENS_BESIDE_TEXT;
        let most = u32::try_from(length.saturating_add(beside)).unwrap_or(u32::MAX);
        self.reserve(admission, model, estimated, true).await?;
        let mut vectors: Vec<Vec<f32>> = Vec::new();
        let mut tokens = Some(0_u32);
        for request in requests {
            let made = remote.runtime.embed(request).await;
            let made = made.map_err(|error| self.not_made(model, error))?;
            check_alike(vectors.first(), made.vectors.first())?;
            vectors.extend(made.vectors);
            tokens = tokens
                .zip(made.prompt_tokens)
                .map(|(sum, more)| sum.saturating_add(more));
        }
        // A token has a byte at least; servers elsewhere are not trusted with the quotas of callers.
        let tokens = tokens.map(|tokens| tokens.min(most));
        // Nothing is known of a server that does not count: then what was reserved is charged.
        admission.spent().usage.prompt_tokens = tokens.unwrap_or(0);
        Ok(vectors)
    }
}

/// Requests to the server: one, or, where it has the instructions itself, one for each use of the texts.
fn requests(
    remote: &RemoteEmbedder,
    (request_id, share): (&str, &Share),
    wanted: WantedVectors,
) -> Result<Vec<RemoteEmbeddingRequest>, ServiceError> {
    let truncate = wanted.truncate;
    let request = |inputs, prompt| RemoteEmbeddingRequest {
        request_id: request_id.to_owned(),
        share: share.clone(),
        inputs,
        truncate,
        prompt,
    };
    if remote.runtime.has_prompts() {
        let groups = wanted.groups.into_iter();
        let groups = groups.filter(|group| !group.inputs.is_empty());
        return Ok(groups
            .map(|group| request(group.inputs, group.prompt))
            .collect());
    }
    let inputs = prompted(&remote.prompts, wanted.groups)?;
    Ok(vec![request(inputs, PromptUse::Plain)])
}

/// Check what this server can tell without the tokenizer.
fn check_inputs(wanted: &WantedVectors) -> Result<(), ServiceError> {
    let inputs = || wanted.groups.iter().flat_map(|group| &group.inputs);
    check_count(inputs().count())?;
    let empty =
        |input: &EmbeddingInput| matches!(input, EmbeddingInput::Tokens(ids) if ids.is_empty());
    match inputs().position(empty) {
        None => Ok(()),
        Some(index) => {
            let param = format!("input[{index}]");
            let message = format!("{param} has no tokens");
            Err(invalid(param, message))
        }
    }
}

/// Refuse vectors that cannot be compared with those that came before.
fn check_alike(one: Option<&Vec<f32>>, other: Option<&Vec<f32>>) -> Result<(), ServiceError> {
    match (one.map(Vec::len), other.map(Vec::len)) {
        (Some(one), Some(other)) if one != other => Err(ServiceError::Upstream(format!(
            "the model's server answered with vectors of {other} numbers after some of {one}"
        ))),
        _ => Ok(()),
    }
}

/// Bytes of inputs, of which tokens count as many as estimates take for one of a text.
fn length(inputs: &[EmbeddingInput]) -> u64 {
    ids_length(inputs).saturating_add(u64::try_from(bytes(inputs)).unwrap_or(u64::MAX))
}
