//! Text completions that repeat their prompts and generate nothing: `echo` with a `max_tokens` of 0.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};
use mortise_http::{Context, Problem, json_response};
use mortise_service::{FinishReason, Request, Usage};

use super::answer::AnswerWriter;
use super::completions::{CompletionCall, CompletionChunks, CompletionWhole, Opening};
use super::{COMPLETIONS, identity};
use crate::ignored::add_headers;
use crate::problem::problem_of;
use crate::receive::encode_prompt;
use crate::state::ApiState;

/// Answer with the prompts, encoded for their count of tokens.
pub(super) async fn echoed(
    state: &ApiState,
    context: &Context,
    parts: &Parts,
    call: CompletionCall,
) -> Result<Response, Problem> {
    let (mut usage, mut openings) = (Usage::default(), Vec::new());
    let (mut model, mut headers, mut stream) = (String::new(), Vec::new(), false);
    let mut each = 1;
    let texts = call.echo.unwrap_or_default();
    for (fields, text) in call.requests.into_iter().zip(texts) {
        context.record.asked(&fields.model, fields.stream);
        stream = fields.stream;
        let request = Request::check(fields).map_err(problem_of)?;
        let asked = &parts.headers;
        let prompt = encode_prompt(state, context, COMPLETIONS, asked, &request).await?;
        let tokens = u32::try_from(prompt.ids.len()).unwrap_or(u32::MAX);
        usage.prompt_tokens = usage.prompt_tokens.saturating_add(tokens);
        let ids = call.shape.token_ids.then_some(prompt.ids);
        let opening = Opening::new(text, ids);
        each = request.choices();
        openings.extend(vec![opening; each as usize]);
        headers.clone_from(&prompt.admission.allowance().headers);
        model = prompt.model;
    }
    let identity = identity("cmpl-", &model);
    let choices = (0_u32..).take(openings.len());
    let mut response = if stream {
        let mut writer = CompletionChunks::new(identity, call.shape, openings);
        let mut out = Vec::new();
        writer.opening(&mut out);
        choices.for_each(|at| writer.finished(at, FinishReason::Length, Vec::new(), &mut out));
        writer.completed(usage, &mut out);
        out.extend_from_slice(b"data: [DONE]\n\n");
        events(out)
    } else {
        let mut whole = CompletionWhole::new(identity, call.shape, each, openings);
        choices.for_each(|at| whole.finished(at, FinishReason::Length, &[]));
        json_response(StatusCode::OK, &whole.body(usage))
    };
    add_headers(&mut response, &headers, &call.ignored);
    Ok(response)
}

/// Chunks that are all there.
fn events(chunks: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(chunks));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    response
}
