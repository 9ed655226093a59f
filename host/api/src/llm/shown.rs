//! Figures for callers whom the policies let in.

use axum::body::Body;
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response, metrics_elsewhere};
use serde_json::Value;

use super::Llm;
use crate::call::call_of;
use crate::problem::problem_of;

/// Answer a caller whom the policies let in.
pub(super) async fn shown(
    llm: &Llm,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
    body: impl FnOnce(&Llm) -> Value,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    // Figures of all callers together, as `/metrics` has them.
    let operator = llm.operator.knows_key(&parts.headers) == Some(true);
    if !llm.api.http.shows_metrics && !operator {
        return Err(metrics_elsewhere(route));
    }
    let call = call_of(context, route, "GET", &parts.headers);
    let admission = llm.api.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    let mut response = json_response(StatusCode::OK, &body(llm));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}
