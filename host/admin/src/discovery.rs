//! Scans for models, and restarts of all models.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_models::Skipped;
use mortise_models::lifecycle::Redefinition;
use serde_json::{Value, json};

use crate::Admin;
use crate::models::problem;

/// Outcome of a scan.
#[derive(Debug, Default)]
pub struct Rescan {
    /// Change of the models.
    pub models: Redefinition,
    /// Models whose files have changed or are gone, and which stay as they are until they are unloaded.
    pub in_use: Vec<String>,
    /// Files and folders that were left out.
    pub skipped: Vec<Skipped>,
    /// Aliases without a model, told to a person.
    pub warnings: Vec<String>,
    /// Why nothing was changed.
    pub error: Option<String>,
}

impl Rescan {
    /// A scan that changed nothing, for this reason.
    pub fn failed(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

/// Scan for models again.
pub(crate) async fn rescan(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let scan = (admin.reloads.rescan)().await;
    if let Some(error) = scan.error {
        return Err(Problem::new(StatusCode::CONFLICT, "rescan_failed", error));
    }
    let skipped = scan.skipped.iter().map(
        |skipped| json!({"path": skipped.path.display().to_string(), "reason": skipped.reason}),
    );
    let body = json!({
        "status": "rescanned",
        "new_models": scan.models.added.len(),
        "removed": scan.models.removed.len(),
        "models": {
            "added": scan.models.added,
            "removed": scan.models.removed,
            "updated": scan.models.updated,
            "in_use": scan.in_use,
        },
        "skipped": skipped.collect::<Vec<Value>>(),
        "warnings": scan.warnings,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Unload all models, and load those of the start.
pub(crate) async fn restart(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    (admin.reloads.restart)().await.map_err(problem)?;
    Ok(json_response(
        StatusCode::OK,
        &json!({"status": "reloaded"}),
    ))
}
