//! Requests that are being answered: listed, cancelled.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use serde_json::json;

use crate::Admin;
use crate::models::{ModelName, name_of};
use crate::watch;

/// List the requests that are being answered, up to a bound.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    json_response(StatusCode::OK, &watch::requests(&*admin.watch))
}

/// Cancel a request that is being answered.
pub(crate) async fn cancel(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let id = name_of(id)?;
    if !admin.watch.cancel(&id) {
        let message = "no request of this id is being answered; it may have ended";
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "unknown_request",
            message,
        ));
    }
    tracing::info!(request = id, "an operator cancelled a request");
    let body = json!({"id": id, "cancelled": true});
    Ok(json_response(StatusCode::OK, &body))
}
