//! `POST /parse`: generated text as the model's output parser reads it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, json_response};
use mortise_service::{ParseRequest, RequestFields};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::ChatToolFields;
use super::{PARSE, read};
use crate::call::{call_of, record_admitted};
use crate::fields::{FieldReader, RouteFields};
use crate::ignored::add_headers;
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, wait_limits};
use crate::state::ApiState;
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ParseFields {
    model: String,
    text: String,
    opens_reasoning: Option<bool>,
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .with::<ParseFields>()
        .with::<ChatToolFields>()
}

/// `POST /parse`
pub(super) async fn parse(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved: _reserved,
        ..
    } = read(&state, &context, PARSE, request).await?;
    let mut reader = FieldReader::new(object, state.unsupported);
    let fields: ParseFields = reader.read()?;
    let tools: ChatToolFields = reader.read()?;
    let mut request = RequestFields::default();
    tools.write(&mut reader, &mut request)?;
    let ignored = reader.finish(|_| false)?;
    context.record.asked(&fields.model, false);
    let call = call_of(&context, PARSE, "POST", &parts.headers);
    let limits = wait_limits(&state, &context, &parts.headers)?;
    let request = ParseRequest {
        model: fields.model,
        text: fields.text,
        tools: request.tools,
        opens_reasoning: fields.opens_reasoning.unwrap_or(false),
    };
    let parsing = async {
        let parsed = state.service.parse(&call, request).await;
        parsed.map_err(problem_of)
    };
    let parsed = limits.bound(parsing).await?;
    record_admitted(&context, &parsed.model, &parsed.admission);
    let calls = parsed.calls.iter().map(|(id, name, arguments)| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    });
    let body = json!({
        "model": parsed.model,
        "content": parsed.content,
        "reasoning_content": parsed.reasoning,
        "tool_calls": calls.collect::<Vec<Value>>(),
    });
    let mut response = json_response(StatusCode::OK, &body);
    add_headers(
        &mut response,
        &parsed.admission.allowance().headers,
        &ignored,
    );
    Ok(response)
}
