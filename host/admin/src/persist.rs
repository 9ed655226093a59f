//! Changes that are kept for the next start, if a request asks for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use http::{HeaderValue, StatusCode};
use mortise_http::Problem;
use mortise_models::AliasMeanings;
use serde_json::{Map, Value};

use crate::Admin;

/// Header of an answer that tells whether a change had to be written.
const PERSISTED: &str = "x-persisted";

/// A change that is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub enum PersistRequest {
    /// Meaning of an alias, and the one before; `None`: it is removed.
    Alias(String, Option<AliasMeanings>),
    /// True if a model is loaded at the start.
    Enabled(String, bool),
    /// Binding of a plugin, with the keys of the configuration; `None`: it is removed.
    Binding(String, Option<Map<String, Value>>),
}

/// Bindings of plugins that are kept, by name; an error with the reason if they cannot be read.
pub type KeptBindings = Result<BTreeMap<String, Value>, String>;

/// Keeps a change; false if nothing had to be written, an error with the reason if it could not be.
pub type KeepChange = Arc<
    dyn Fn(PersistRequest) -> Pin<Box<dyn Future<Output = Result<bool, String>> + Send>>
        + Send
        + Sync,
>;

/// True if a query asks for a change to be kept.
pub(crate) fn is_wanted(query: Option<&str>) -> Result<bool, Problem> {
    match query {
        None | Some("" | "persist=false") => Ok(false),
        Some("persist=true") => Ok(true),
        Some(_) => {
            let message =
                "the query may be `persist=true`, which keeps the change for the next start";
            Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "invalid_query",
                message,
            ))
        }
    }
}

/// Keep a change that is in force, if that is wanted, and tell of it in the answer.
pub(crate) async fn kept(
    admin: &Admin,
    wanted: bool,
    change: PersistRequest,
    mut response: Response,
) -> Result<Response, Problem> {
    if wanted {
        let written = (admin.reloads.keep)(change).await.map_err(|reason| {
            let message = format!(
                "the change is in force until the server ends, and could not be kept: {reason}"
            );
            Problem::new(StatusCode::CONFLICT, "not_persisted", message)
        })?;
        let told = HeaderValue::from_static(if written { "written" } else { "unchanged" });
        response.headers_mut().insert(PERSISTED, told);
    }
    Ok(response)
}
