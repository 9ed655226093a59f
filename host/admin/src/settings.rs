//! Settings of a running server: read again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_models::lifecycle::{LifecycleError, Redefinition, RedefinitionConflict};
use serde_json::{Value, json};

use crate::Admin;
use crate::discovery::Rescan;
use crate::persist::Keep;

/// An action that the admin side asks for.
pub type Action<T> = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = T> + Send>> + Send + Sync>;

/// Settings, folders and models that are read again.
pub struct Reloads {
    /// Reads the settings again.
    pub settings: Action<SettingsReload>,
    /// Scans for models again.
    pub rescan: Action<Rescan>,
    /// Unloads all models, and loads those of the start.
    pub restart: Action<Result<(), LifecycleError>>,
    /// Keeps a change for the next start.
    pub keep: Keep,
}

/// Outcome of a reload of the settings.
#[derive(Debug)]
pub enum SettingsReload {
    /// They are in force, but for the keys that need a restart.
    Taken {
        /// Change of the models; `None` if the file does not say which there are.
        models: Option<Redefinition>,
        /// Keys that have changed since the start and take effect at the next one.
        restart_keys: Vec<String>,
        /// Outcome for plugins and keys of callers.
        plugins: Value,
    },
    /// They would invalidate loaded models. Nothing has changed.
    Conflict(Vec<RedefinitionConflict>),
    /// They are wrong. Nothing has changed.
    Invalid(String),
    /// Plugins or keys of callers could not be taken. Nothing has changed.
    Plugins(String),
}

/// Read the settings again.
pub(crate) async fn reload(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let (models, restart_keys, plugins) = match (admin.reloads.settings)().await {
        SettingsReload::Taken {
            models,
            restart_keys,
            plugins,
        } => (models, restart_keys, plugins),
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
        "plugins": plugins,
    });
    Ok(json_response(StatusCode::OK, &body))
}

fn refused(conflicts: &[RedefinitionConflict]) -> Response {
    let one = |conflict: &RedefinitionConflict| {
        json!({
            "model": conflict.model,
            "state": conflict.state.name(),
            "change": if conflict.removed { "removed" } else { "updated" },
        })
    };
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
        "conflicts": conflicts.iter().map(one).collect::<Vec<_>>(),
    });
    json_response(StatusCode::CONFLICT, &body)
}
