//! Bindings of plugins: made, changed and removed while the server runs. They are kept in the file of `admin.persist`
//! beside those of the configuration, and serve from the next request on.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_plugin_manager::{ChangeError, Kind, OnFailure, deserialize_kind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Admin;
use crate::audit::AuditDetail;
use crate::limits::{MAX_BINDING_NAME_BYTES, MAX_KEPT_BINDINGS};
use crate::models::{ModelName, name_of, read};
use crate::persist::PersistRequest;

/// Body of a change. Grants (hosts, secrets, headers, changes of requests) are left to the configuration: a binding made here
/// has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BindingRequest {
    #[serde(deserialize_with = "deserialize_kind")]
    kind: Kind,
    /// Name of a file in the plugin folder.
    file: Option<String>,
    sha256: Option<String>,
    models: Option<Vec<String>>,
    architectures: Option<Vec<String>>,
    tenants: Option<Vec<String>>,
    routes: Option<Vec<String>>,
    order: Option<i32>,
    on_failure: Option<OnFailure>,
    settings: Option<Map<String, Value>>,
}

impl BindingRequest {
    /// The binding with the keys of the configuration.
    async fn keys(self, admin: &Admin) -> Result<Map<String, Value>, Problem> {
        let file = match &self.file {
            Some(name) => Some(admin.live.folder_file(name).await.map_err(unnamed)?),
            None => None,
        };
        if let Some(settings) = &self.settings
            && settings.values().any(has_null)
        {
            return Err(invalid("a setting is null; leave it out").at("settings"));
        }
        let keys = [
            ("kind", json!(self.kind.as_str())),
            ("file", json!(file)),
            ("sha256", json!(self.sha256)),
            ("models", json!(self.models)),
            ("architectures", json!(self.architectures)),
            ("tenants", json!(self.tenants)),
            ("routes", json!(self.routes)),
            ("order", json!(self.order)),
            ("on_failure", json!(self.on_failure.map(OnFailure::as_str))),
            ("settings", json!(self.settings)),
        ];
        let given = keys.into_iter().filter(|(_, value)| !value.is_null());
        Ok(given.map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

/// All bindings.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let rows = rows(&admin, &kept(&admin).await?);
    let body = json!({"object": "list", "data": rows});
    Ok(json_response(StatusCode::OK, &body))
}

/// Make a binding, or give it other terms.
pub(crate) async fn set(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    body: Body,
) -> Result<Response, Problem> {
    let name = checked_name(name)?;
    let request = read::<BindingRequest>(body)
        .await
        .map_err(|problem| Problem {
            code: "invalid_binding".into(),
            ..problem
        })?;
    let request = request.ok_or_else(|| {
        invalid("the body must name a kind, as in {\"kind\": \"policy\", \"file\": \"mine.wasm\"}")
    })?;
    let keys = request.keys(&admin).await?;
    whole(change(admin, name, Some(keys))).await
}

/// Remove a binding.
pub(crate) async fn remove(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
) -> Result<Response, Problem> {
    whole(change(admin, name_of(name)?, None)).await
}

/// The outcome of a change, which goes on to its end when its caller leaves.
async fn whole(
    change: impl Future<Output = Result<Response, Problem>> + Send + 'static,
) -> Result<Response, Problem> {
    tokio::spawn(change).await.map_err(|panic| {
        let message = format!("the change failed: {panic}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    })?
}

/// Keep a binding, and serve by it. One that the plugins do not take is taken back.
async fn change(
    admin: Arc<Admin>,
    name: String,
    keys: Option<Map<String, Value>>,
) -> Result<Response, Problem> {
    let _turn = admin.bindings.lock().await;
    let mut known = kept(&admin).await?;
    let before = known.remove(&name);
    if keys.is_none() && before.is_none() {
        let message = format!("no binding `{name}` was made on the admin side");
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "unknown_binding",
            message,
        ));
    }
    let removed = keys.is_none();
    let file = keys
        .as_ref()
        .and_then(|keys| keys.get("file")?.as_str().map(PathBuf::from));
    if !removed && known.len() >= MAX_KEPT_BINDINGS {
        let message = format!(
            "there are {MAX_KEPT_BINDINGS} bindings of the admin side, as many as there may be; remove one"
        );
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "too_many_bindings",
            message,
        ));
    }
    keep(&admin, &name, keys).await?;
    let reload = admin.live.reload("admin request").await;
    let refused = reload
        .rejected
        .into_iter()
        .find(|refused| Some(&refused.path) == file.as_ref());
    if let Some(reason) = reload.error.or(refused.map(|refused| refused.reason)) {
        let before = before.and_then(|before| before.as_object().cloned());
        keep(&admin, &name, before).await?;
        admin.live.reload("admin request").await;
        let message = format!("the plugins serve as before: {reason}");
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "binding_refused",
            message,
        ));
    }
    tracing::info!(binding = name, removed, "binding of a plugin was changed");
    let (status, body) = match removed {
        true => (StatusCode::OK, json!({"name": name, "deleted": true})),
        false => {
            let rows = rows(&admin, &kept(&admin).await?);
            let row = rows.into_iter().find(|row| row["name"] == json!(name));
            let new = before.is_none();
            let status = if new {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            (status, row.unwrap_or_default())
        }
    };
    let mut response = json_response(status, &body);
    response.extensions_mut().insert(AuditDetail(body));
    Ok(response)
}

/// Bindings that serve. Those that are kept can be changed.
fn rows(admin: &Admin, kept: &BTreeMap<String, Value>) -> Vec<Value> {
    let mut status = admin.live.status();
    let bindings = status["bindings"].as_array_mut().map(std::mem::take);
    let mut rows = bindings.unwrap_or_default();
    for row in &mut rows {
        let own = row["name"].as_str().and_then(|name| kept.get(name));
        row["changeable"] = json!(own.is_some());
        if let Some(own) = own {
            row["settings"] = own.get("settings").cloned().unwrap_or_else(|| json!({}));
        }
    }
    rows
}

async fn kept(admin: &Admin) -> Result<BTreeMap<String, Value>, Problem> {
    (admin.reloads.bindings)().await.map_err(|reason| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "bindings_unreadable", reason)
    })
}

async fn keep(admin: &Admin, name: &str, keys: Option<Map<String, Value>>) -> Result<(), Problem> {
    let change = PersistRequest::Binding(name.to_owned(), keys);
    let written = (admin.reloads.keep)(change).await;
    written.map(drop).map_err(|reason| {
        let message = format!("the binding could not be kept: {reason}");
        Problem::new(StatusCode::CONFLICT, "not_persisted", message)
    })
}

fn checked_name(name: ModelName) -> Result<String, Problem> {
    let name = name_of(name)?;
    let bad = name.is_empty()
        || name.len() > MAX_BINDING_NAME_BYTES
        || name.chars().any(char::is_control);
    match bad {
        true => Err(invalid(format!(
            "the name of a binding has 1 to {MAX_BINDING_NAME_BYTES} bytes and no control characters"
        ))),
        false => Ok(name),
    }
}

/// True if a value is null or has one in it, which the file of a configuration cannot say.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

fn unnamed(error: ChangeError) -> Problem {
    invalid(error.to_string()).at("file")
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_binding", message)
}
