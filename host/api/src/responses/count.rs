//! `POST /v1/responses/input_tokens`: the tokens of a request that is not answered.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, json_response};
use mortise_service::{ChatPrompt, Prompt, PromptEnd, Request};
use serde_json::json;

use super::messages::conversation;
use super::{INPUT_TOKENS, checks, file_search, history, request};
use crate::ids::Ids;
use crate::ignored::add_headers;
use crate::problem::problem_of;
use crate::receive::{Received, encode_prompt, receive};
use crate::state::ApiState;
use crate::stored::account;

/// Render and encode what goes before and the request's own items, as `POST /v1/responses` would.
pub(super) async fn input_tokens(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let Received {
        parts,
        object,
        reserved,
        account: known,
    } = receive(&state, &context, INPUT_TOKENS, request).await?;
    checks::check_hints(&object)?;
    let call = request::parse(object, state.unsupported, &mut Ids::of(&parts))?;
    let owner = account(&state, &context, INPUT_TOKENS, &parts, known).await?;
    let (previous, joined) = (call.previous.as_deref(), call.conversation.as_deref());
    let mut items = history::before(&state, &owner, previous, joined).await?;
    let input = history::resolved(&items, call.input)?;
    let own = input.len();
    items.extend(input);
    let mut fields = call.fields;
    file_search::open(&state, &owner, call.file_search, &mut fields).await?;
    fields.prompt = Prompt::Chat(ChatPrompt {
        conversation: conversation(call.instructions.as_deref(), &items, own)?,
        arguments: call.arguments,
        template: call.template,
        end: PromptEnd::AssistantTurn,
    });
    context.record.asked(&fields.model, false);
    let request = Request::check(fields).map_err(problem_of)?;
    let headers = &parts.headers;
    let prompt = encode_prompt(&state, &context, INPUT_TOKENS, headers, &request).await?;
    drop(reserved);
    let body = json!({"object": "response.input_tokens", "input_tokens": prompt.ids.len()});
    let mut response = json_response(StatusCode::OK, &body);
    let headers = &prompt.admission.allowance().headers;
    add_headers(&mut response, headers, &call.ignored);
    Ok(response)
}
