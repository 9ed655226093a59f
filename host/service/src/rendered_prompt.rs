//! From a prepared prompt to the request of a runtime elsewhere that completes tokens.

use std::sync::Arc;

use mortise_engine::Share;
use mortise_models::{OutputFormat, RenderedGenerator, RenderedRequest};
use mortise_plugin::GrammarSource;

use crate::check::Request;
use crate::conversation_prompt::{check_consent, check_elsewhere, format, sampling};
use crate::error::ServiceError;
use crate::plugins::RequestId;
use crate::prepare::{Prepared, PromptModel, prompt_param};
use crate::refusal::invalid;
use crate::request::{ContentConstraint, Written};

/// A model that runs elsewhere, whose conversations are rendered and parsed here.
pub(crate) struct RenderedModel {
    /// Public name.
    pub(crate) name: Arc<str>,
    pub(crate) generator: RenderedGenerator,
}

impl RenderedModel {
    pub(crate) fn prompts(&self) -> PromptModel<'_> {
        PromptModel {
            name: &self.name,
            tokenizer: &self.generator.tokenizer,
            arguments: &self.generator.template_arguments,
            context: self.context(),
        }
    }

    fn context(&self) -> usize {
        self.generator
            .runtime
            .context_length()
            .unwrap_or(usize::MAX)
    }
}

/// Check that the runtime can answer the request.
///
/// # Errors
/// When the request may not leave this server, or needs an engine here.
pub(crate) fn check(model: &RenderedModel, request: &Request) -> Result<(), ServiceError> {
    let required = model.generator.runtime.requires_allow_remote();
    check_consent(&model.name, required, request.fields().allow_remote)?;
    check_elsewhere(&model.name, request)?;
    if request.fields().logprobs.is_some() {
        let message = format!(
            "the model `{}` runs elsewhere and is parsed here, where log-probabilities of its text are not known",
            model.name
        );
        return Err(invalid("logprobs", message));
    }
    Ok(())
}

/// Most tokens of each choice behind a prompt of so many tokens.
pub(crate) fn max_tokens(
    model: &RenderedModel,
    request: &Request,
    prompt: usize,
    allowed: Option<u32>,
    default: u32,
) -> Result<u32, ServiceError> {
    let context = model.context();
    let asked = request.fields().max_tokens;
    let requested = request.fields().least_room();
    if prompt.saturating_add(requested) > context {
        return Err(ServiceError::ContextLength {
            param: prompt_param(request.fields()),
            prompt,
            at_least: false,
            requested,
            context,
        });
    }
    let room = u32::try_from(context - prompt).unwrap_or(u32::MAX);
    let share = allowed.map_or(u32::MAX, |all| (all / request.candidates().0).max(1));
    Ok(asked.unwrap_or(default).min(room).min(share))
}

/// A constraint as the caller has written it in GBNF, where the parser has added nothing to it: some servers read that,
/// and no Lark.
fn as_written(request: &Request, source: &GrammarSource) -> OutputFormat {
    match &request.fields().constraint {
        Some(ContentConstraint {
            source: asked,
            written: Some(Written::Gbnf(grammar)),
            ..
        }) if asked == source => OutputFormat::Gbnf(grammar.clone()),
        _ => format(source),
    }
}

/// Request for the choice at `index`.
pub(crate) fn runtime_request(
    request: &Request,
    prepared: &Prepared,
    request_id: &RequestId,
    share: &Share,
    index: u32,
    max_tokens: u32,
) -> RenderedRequest {
    let fields = request.fields();
    let stops = fields.stop.iter().chain(&prepared.template_stops);
    RenderedRequest {
        request_id: request_id.to_string(),
        share: share.clone(),
        prompt: prepared.ids.clone(),
        keep_special: prepared.keep_special,
        format: prepared
            .constraint
            .as_ref()
            .map(|source| as_written(request, source)),
        max_tokens,
        stop: stops.cloned().collect(),
        sampling: sampling(fields, index),
    }
}
