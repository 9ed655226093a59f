//! `GET /v1/metrics`: what the caller has used since the start, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use mortise_http::{Context, Problem, RequestSums, append_headers, json_response};
use serde_json::{Value, json};

use super::SUMS;
use crate::call::{call_of, record_principal};
use crate::problem::problem_of;
use crate::state::ApiState;

/// Sums of the caller's account, over the models that it may use and of each. Those of others are told on `/metrics`,
/// for who runs the server.
pub(super) async fn sums(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let call = call_of(&context, SUMS, "GET", &headers);
    let admission = state.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    record_principal(&context, &admission.allowance().principal);
    let observer = &state.http.observer;
    let used = observer.sums(&admission.account());
    let permitted = state.service.permitted(&call).await;
    let names = permitted.iter().map(|model| model.listing.name.as_str());
    let models = names.filter_map(|name| Some((name, *used.get(name)?)));
    let mut all = RequestSums::default();
    let models: BTreeMap<&str, Value> = models
        .inspect(|(_, sums)| all += *sums)
        .map(|(name, sums)| (name, body(sums)))
        .collect();
    let mut told = body(all);
    told["uptime_seconds"] = json!(observer.figures().uptime.as_secs());
    told["models"] = json!(models);
    let mut response = json_response(StatusCode::OK, &told);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

fn body(sums: RequestSums) -> Value {
    json!({
        "total_requests": sums.requests,
        "total_prompt_tokens": sums.prompt_tokens,
        "total_completion_tokens": sums.completion_tokens,
    })
}
