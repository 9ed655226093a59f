//! `GET /v1/models` and `GET /v1/models/{id}` for callers of this dialect, who are known by their header
//! `anthropic-version`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{RequestExt as _, Router, middleware};
use http::request::Parts;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::ServedModel;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::VERSION_HEADER;
use crate::call::{call_of, record_admitted};
use crate::problem::problem_of;
use crate::state::ApiState;

pub(super) const MODELS: &str = "/v1/models";
pub(super) const MODEL: &str = "/v1/models/{id}";

/// Models on a page, where the caller does not say.
const PAGE: usize = 20;
/// Models on a page of Anthropic's list, at most.
pub(super) const MAX_PAGE: usize = 1000;

/// Routes of another dialect, on which callers of this one get models in their own shape.
pub fn beside(router: Router, state: Arc<ApiState>) -> Router {
    router.layer(middleware::from_fn_with_state(state, by_header))
}

async fn by_header(
    State(state): State<Arc<ApiState>>,
    mut request: HttpRequest<Body>,
    next: Next,
) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let models = path == MODELS || path.starts_with("/v1/models/");
    if !(reads && models && request.headers().contains_key(VERSION_HEADER)) {
        return next.run(request).await;
    }
    let context = request.extract_parts::<Extension<Context>>().await;
    let Ok(Extension(context)) = context else {
        return mortise_http::panicked().into_response();
    };
    let id = request.extract_parts::<Path<String>>().await;
    let (parts, _) = request.into_parts();
    let answer = match parts.uri.path() == MODELS {
        true => list(&state, &context, &parts).await,
        false => retrieve(&state, &context, &parts.headers, id).await,
    };
    answer.unwrap_or_else(Problem::into_response)
}

/// Page of a list.
#[derive(Debug, Default)]
struct Page {
    after_id: Option<String>,
    before_id: Option<String>,
    limit: Option<usize>,
    /// Stages of life of its models; all that are served if none is named.
    stages: Vec<String>,
}

/// Stages of a model's life. None of those here is retired: such a model would not be served.
pub(super) const STAGES: [&str; 3] = [ACTIVE, DEPRECATED, "retired"];
const ACTIVE: &str = "active";
const DEPRECATED: &str = "deprecated";

impl Page {
    /// Read the query of an address.
    fn read(query: &str) -> Result<Self, Problem> {
        let mut page = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match decoded(name).as_str() {
                "after_id" => page.after_id = Some(decoded(value)),
                "before_id" => page.before_id = Some(decoded(value)),
                "limit" => {
                    let limit = value.parse().map_err(|_| {
                        let text = format!("`limit` must be a number; it is `{value}`");
                        Problem::invalid("limit", text)
                    })?;
                    page.limit = Some(limit);
                }
                "lifecycle" | "lifecycle[]" => {
                    let stage = decoded(value);
                    if !STAGES.contains(&stage.as_str()) {
                        let text = format!("`lifecycle` has `{stage}`; stages are {STAGES:?}");
                        return Err(Problem::invalid("lifecycle", text));
                    }
                    page.stages.push(stage);
                }
                // The SDK marks calls of beta routes so.
                "beta" => {}
                other => {
                    let text = format!("unknown parameter `{other}` in the query of the address");
                    return Err(Problem::invalid(other, text));
                }
            }
        }
        Ok(page)
    }

    /// True if a model may be on the page.
    fn shows(&self, model: &ServedModel) -> bool {
        let stage = stage_of(model);
        self.stages.is_empty() || self.stages.iter().any(|shown| shown == stage)
    }
}

fn stage_of(model: &ServedModel) -> &'static str {
    match model.listing.deprecation_date {
        Some(_) => DEPRECATED,
        None => ACTIVE,
    }
}

/// A value of a query without its percent escapes.
fn decoded(value: &str) -> String {
    let value = value.replace('+', " ");
    percent_decode_str(&value).decode_utf8_lossy().into_owned()
}

async fn list(state: &ApiState, context: &Context, parts: &Parts) -> Result<Response, Problem> {
    let call = call_of(context, MODELS, "GET", &parts.headers);
    let admission = state.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    let page = Page::read(parts.uri.query().unwrap_or_default())?;
    let models = state.service.permitted(&call).await;
    let models = models.iter().map(AsRef::as_ref);
    let listed: Vec<&ServedModel> = models.filter(|model| page.shows(model)).collect();
    let (from, to) = bounds(&listed, &page)?;
    let rows = listed.get(from..to).unwrap_or_default();
    let id = |model: Option<&&ServedModel>| model.map(|model| model.listing.name.clone());
    let body = json!({
        "data": rows.iter().map(|model| model_body(model)).collect::<Vec<Value>>(),
        "first_id": id(rows.first()),
        "last_id": id(rows.last()),
        "has_more": match page.before_id {
            Some(_) => from > 0,
            None => to < listed.len(),
        },
    });
    let mut response = json_response(StatusCode::OK, &body);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// The part of the list that a page shows.
fn bounds(listed: &[&ServedModel], page: &Page) -> Result<(usize, usize), Problem> {
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        let text = format!("`limit` must be between 1 and {MAX_PAGE}; it is {limit}");
        return Err(Problem::invalid("limit", text));
    }
    let find = |field: &str, id: &str| {
        let at = listed.iter().position(|model| model.listing.name == id);
        at.ok_or_else(|| {
            let text = format!("`{field}` is `{id}`, and no model of the list has this id");
            Problem::invalid(field, text)
        })
    };
    match (&page.after_id, &page.before_id) {
        (Some(_), Some(_)) => {
            let text = "`after_id` and `before_id` exclude each other";
            Err(Problem::invalid("before_id", text))
        }
        (Some(id), None) => {
            let from = find("after_id", id)? + 1;
            Ok((from, listed.len().min(from.saturating_add(limit))))
        }
        (None, Some(id)) => {
            let to = find("before_id", id)?;
            Ok((to.saturating_sub(limit), to))
        }
        (None, None) => Ok((0, listed.len().min(limit))),
    }
}

async fn retrieve(
    state: &ApiState,
    context: &Context,
    headers: &HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let call = call_of(context, MODEL, "GET", headers);
    let Ok(Path(id)) = id else {
        state.service.identify(&call).await.map_err(problem_of)?;
        let message = "the name of the model in the address is not UTF-8";
        return Err(Problem::invalid("model", message));
    };
    context.record.asked(&id, false);
    let admission = state.service.authorize(&call, Some(&id)).await;
    let admission = admission.map_err(problem_of)?;
    let model = state.service.model_for(&call, &id).await;
    let model = model.map_err(problem_of)?;
    record_admitted(context, &model.listing.name, &admission);
    let mut response = json_response(StatusCode::OK, &model_body(&model));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

fn model_body(served: &ServedModel) -> Value {
    let (listing, model) = (&served.listing, served.loaded.as_ref());
    let context = model.and_then(|loaded| loaded.model.context_length());
    let deprecated = listing.deprecation_date.as_deref();
    json!({
        "type": "model",
        "id": listing.name,
        "display_name": listing.name,
        "created_at": written(listing.created),
        "lifecycle": stage_of(served),
        "deprecated_at": deprecated.map(at_midnight),
        "max_input_tokens": context,
        "max_tokens": context,
    })
}

/// Seconds since 1970 as RFC 3339 has them.
fn written(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    // Only years beyond 9999 cannot be written.
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// A date of the configuration as a time.
fn at_midnight(date: &str) -> String {
    match date.contains('T') {
        true => date.to_owned(),
        false => format!("{date}T00:00:00Z"),
    }
}
