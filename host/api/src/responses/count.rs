//! `POST /v1/responses/input_tokens` and `…/render`: the tokens and the prompt of a request that is not answered.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem, reserve_more};
use mortise_service::{ChatPrompt, EncodedPrompt, Prompt, PromptEnd, Request};
use serde_json::{Value, json};

use super::items::input_bytes;
use super::messages::conversation;
use super::{INPUT_TOKENS, RENDER, checks, file_search, history, request};
use crate::ids::Ids;
use crate::ignored::prompt_response;
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, encode_prompt, receive};
use crate::state::ApiState;
use crate::stored::account;
use crate::template_use;

/// Render and encode what goes before and the request's own items, as `POST /v1/responses` would. Returns the fields that
/// are ignored, too.
async fn encoded(
    state: &Arc<ApiState>,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<(EncodedPrompt, Vec<String>), Problem> {
    let ReceivedRequest {
        parts,
        object,
        mut reserved,
        account: known,
    } = receive(state, context, route, request).await?;
    checks::check_hints(&object)?;
    let call = request::parse(object, state.unsupported, &mut Ids::of(&parts))?;
    let owner = account(state, context, route, &parts, known).await?;
    let (previous, joined) = (call.previous.as_deref(), call.conversation.as_deref());
    let mut items = history::before(state, &owner, previous, joined, &mut reserved).await?;
    reserve_more(&mut reserved, input_bytes(&call.input))?;
    let input = history::resolved(&items, call.input)?;
    let own = input.len();
    items.extend(input);
    let items: Vec<&Value> = items.iter().collect();
    let mut fields = call.fields;
    file_search::open(state, &owner, call.file_search, &mut fields).await?;
    fields.prompt = Prompt::Chat(ChatPrompt {
        conversation: conversation(call.instructions.as_deref(), &items, own)?,
        arguments: call.arguments,
        template: call.template,
        end: PromptEnd::AssistantTurn,
    });
    context.record.asked(&fields.model, false);
    let request = Request::check(fields).map_err(problem_of)?;
    let headers = &parts.headers;
    let prompt = encode_prompt(state, context, route, headers, &request).await?;
    drop(reserved);
    Ok((prompt, call.ignored))
}

/// The number of tokens.
pub(super) async fn input_tokens(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (prompt, ignored) = encoded(&state, &context, INPUT_TOKENS, request).await?;
    let body = json!({"object": "response.input_tokens", "input_tokens": prompt.ids.len()});
    Ok(prompt_response(&body, &prompt, &ignored))
}

/// The prompt, token by token: with what searches found, where items of searches carry it. An extension.
pub(super) async fn render(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (prompt, ignored) = encoded(&state, &context, RENDER, request).await?;
    let body = json!({
        "object": "response.prompt",
        "model": prompt.model,
        "prompt": prompt.text,
        "prompt_token_ids": prompt.ids,
        "prompt_token_strs": prompt.token_texts(),
        "count": prompt.ids.len(),
        "max_model_len": prompt.context_length,
        "stop": prompt.stop,
        "template": prompt.template.as_ref().map(template_use::shown),
    });
    Ok(prompt_response(&body, &prompt, &ignored))
}
