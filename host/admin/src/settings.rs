//! Settings of a running server: read again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_models::lifecycle::{LifecycleError, Redefinition, RedefinitionConflict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Admin;
use crate::discovery::Rescan;
use crate::limits::MAX_SETTINGS_BYTES;
use crate::persist::{KeepChange, KeptBindings};

/// An action that the admin side asks for.
pub type Action<T> = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = T> + Send>> + Send + Sync>;

/// An action that the admin side asks for, about a text of settings; `None` asks about the files of the server.
pub type Inquiry<T> =
    Arc<dyn Fn(Option<String>) -> Pin<Box<dyn Future<Output = T> + Send>> + Send + Sync>;

/// Settings, folders and models that are read again.
pub struct Reloads {
    /// Reads the settings again.
    pub settings: Action<SettingsReload>,
    /// Tells what a reload would change.
    pub check: Inquiry<SettingsCheck>,
    /// Scans for models again.
    pub rescan: Action<Rescan>,
    /// Unloads all models, and loads the models that are enabled at the start.
    pub restart: Action<Result<(), LifecycleError>>,
    /// True if a file is configured in which changes are kept for the next start.
    pub keeps: bool,
    /// Keeps a change for the next start.
    pub keep: KeepChange,
    /// Reads the bindings of plugins that are kept.
    pub bindings: Action<KeptBindings>,
}

/// Outcome of a reload of the settings.
#[derive(Debug)]
pub enum SettingsReload {
    /// The settings are in force, but for the keys that need a restart.
    Taken {
        /// Change of the models; `None` if the file does not list models.
        models: Option<Redefinition>,
        /// Keys that have changed since the start and take effect at the next one.
        restart_keys: Vec<String>,
        /// Warnings about what is right and may mean something else than what was wanted.
        warnings: Vec<String>,
        /// Outcome for plugins and keys of callers.
        plugins: Value,
    },
    /// The settings would invalidate loaded models. Nothing has changed.
    Conflict(Vec<RedefinitionConflict>),
    /// The settings are wrong. Nothing has changed.
    Invalid(String),
    /// Plugins or keys of callers could not be taken. Nothing has changed.
    Plugins(String),
}

/// Changes that a reload would bring.
#[derive(Debug)]
pub enum SettingsCheck {
    /// The settings are right.
    Right {
        /// Change of the models; `None` if the file does not list models.
        models: Option<Redefinition>,
        /// Loaded models that are in the way of a reload.
        conflicts: Vec<RedefinitionConflict>,
        /// Keys that take effect at a reload.
        reload_keys: Vec<String>,
        /// Keys that have changed since the start and take effect at the next one.
        restart_keys: Vec<String>,
        /// Warnings about what is right and may mean something else than what was wanted.
        warnings: Vec<String>,
    },
    /// The settings are wrong.
    Invalid(String),
}

/// Body of a check: settings, or nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Candidate {
    /// Text of a file.
    settings: String,
}

/// Tell what a reload would change. Nothing is changed.
pub(crate) async fn check(
    State(admin): State<Arc<Admin>>,
    body: Body,
) -> Result<Response, Problem> {
    let invalid =
        |message: String| Problem::new(StatusCode::BAD_REQUEST, "invalid_settings", message);
    let Ok(body) = to_bytes(body, MAX_SETTINGS_BYTES).await else {
        let message = format!("the body is incomplete or longer than {MAX_SETTINGS_BYTES} bytes");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(Problem::new(status, "invalid_settings", message));
    };
    let candidate = match body.is_empty() {
        true => None,
        false => {
            let candidate: Result<Candidate, _> = serde_json::from_slice(&body);
            let wrong = |error| invalid(format!("the body is wrong: {error}"));
            Some(candidate.map_err(wrong)?.settings)
        }
    };
    match (admin.reloads.check)(candidate).await {
        SettingsCheck::Invalid(message) => Err(invalid(message)),
        SettingsCheck::Right {
            models,
            conflicts,
            reload_keys,
            restart_keys,
            warnings,
        } => {
            let models = models.unwrap_or_default();
            let body = json!({
                "added": models.added,
                "removed": models.removed,
                "updated": models.updated,
                "unchanged": models.unchanged,
                "conflicts": conflicts.iter().map(conflict).collect::<Vec<_>>(),
                "reload_keys": reload_keys,
                "service_restart_required": !restart_keys.is_empty(),
                "restart_keys": restart_keys,
                "warnings": warnings,
            });
            Ok(json_response(StatusCode::OK, &body))
        }
    }
}

/// Read the settings again.
pub(crate) async fn reload(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let (models, restart_keys, warnings, plugins) = match (admin.reloads.settings)().await {
        SettingsReload::Taken {
            models,
            restart_keys,
            warnings,
            plugins,
        } => (models, restart_keys, warnings, plugins),
        SettingsReload::Conflict(conflicts) => return Ok(refused(&conflicts)),
        SettingsReload::Invalid(message) => {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "invalid_settings",
                message,
            ));
        }
        SettingsReload::Plugins(message) => {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "plugin_reload_failed",
                message,
            ));
        }
    };
    let models = models.unwrap_or_default();
    let body = json!({
        "added": models.added,
        "removed": models.removed,
        "updated": models.updated,
        "unchanged": models.unchanged,
        "service_restart_required": !restart_keys.is_empty(),
        "restart_keys": restart_keys,
        "warnings": warnings,
        "plugins": plugins,
    });
    Ok(json_response(StatusCode::OK, &body))
}

fn conflict(conflict: &RedefinitionConflict) -> Value {
    json!({
        "model": conflict.model,
        "state": conflict.state.name(),
        "change": if conflict.removed { "removed" } else { "updated" },
    })
}

fn refused(conflicts: &[RedefinitionConflict]) -> Response {
    let names = conflicts.iter().map(|conflict| conflict.model.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let message = format!(
        "the settings change models that are loaded: {names}; nothing was changed. Unload them first"
    );
    let body = json!({
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": null,
            "code": "settings_reload_conflict",
        },
        "conflicts": conflicts.iter().map(conflict).collect::<Vec<_>>(),
    });
    json_response(StatusCode::CONFLICT, &body)
}
