//! Aliases of a running server: switched, rolled back, removed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_models::{Alias, AliasError, AliasMeanings, AliasRow};
use serde_json::{Value, json};

use crate::Admin;
use crate::audit::AuditDetail;
use crate::models::{ModelName, name_of, read};
use crate::persist::{PersistRequest, is_wanted, kept};

/// All aliases.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    json_response(StatusCode::OK, &all(&admin))
}

/// The list of all aliases.
pub(crate) fn all(admin: &Admin) -> Value {
    let rows = admin.aliases.rows().into_iter();
    let rows = rows.map(|row| told(admin, &row));
    json!({"object": "list", "data": rows.collect::<Vec<Value>>()})
}

/// One alias.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
) -> Result<Response, Problem> {
    shown(&admin, &name_of(name)?, StatusCode::OK)
}

/// Give an alias a meaning, or another one.
pub(crate) async fn set(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let keep = is_wanted(query.as_deref())?;
    let alias = read::<Alias>(body).await.map_err(|problem| Problem {
        code: "invalid_alias".into(),
        ..problem
    })?;
    let alias = alias.ok_or_else(|| {
        let message = "the body must name a model, as in {\"target\": \"NAME\"}";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_alias", message)
    })?;
    let new = admin.aliases.set(&name, alias.clone(), &is_model(&admin));
    let new = new.map_err(problem)?;
    tracing::info!(
        alias = name,
        target = alias.target,
        canary = alias.canary.as_ref().map(|canary| canary.target.as_str()),
        percent = alias.canary.as_ref().map(|canary| canary.percent),
        "alias was set"
    );
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    changed(&admin, name, keep, status).await
}

/// Give an alias its earlier meaning back.
pub(crate) async fn roll_back(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let keep = is_wanted(query.as_deref())?;
    let rolled = admin.aliases.roll_back(&name, &is_model(&admin));
    rolled.map_err(problem)?;
    tracing::info!(alias = name, "alias was rolled back");
    changed(&admin, name, keep, StatusCode::OK).await
}

/// Show an alias after a change, and keep its meanings if that is wanted.
async fn changed(
    admin: &Admin,
    name: String,
    keep: bool,
    status: StatusCode,
) -> Result<Response, Problem> {
    let response = shown(admin, &name, status)?;
    let meanings = meanings(admin, &name);
    kept(admin, keep, PersistRequest::Alias(name, meanings), response).await
}

/// Remove an alias.
pub(crate) async fn remove(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let keep = is_wanted(query.as_deref())?;
    admin.aliases.remove(&name).map_err(problem)?;
    tracing::info!(alias = name, "alias was removed");
    let body = json!({"name": name, "deleted": true});
    let response = json_response(StatusCode::OK, &body);
    kept(&admin, keep, PersistRequest::Alias(name, None), response).await
}

fn is_model(admin: &Admin) -> impl Fn(&str) -> bool {
    |name| admin.models.status(name).is_some()
}

/// Meanings of an alias that are kept.
fn meanings(admin: &Admin, name: &str) -> Option<AliasMeanings> {
    let row = admin.aliases.row(name)?;
    Some(AliasMeanings {
        alias: row.alias,
        previous: row.previous,
    })
}

/// An alias with all that is known of it, and the models that it means and that are not there.
fn told(admin: &Admin, row: &AliasRow) -> Value {
    let mut value = json!(row);
    let missing = row.alias.missing(&is_model(admin)).into_iter();
    value["missing"] = missing.map(|(_, model)| Value::from(model)).collect();
    value
}

fn shown(admin: &Admin, name: &str, status: StatusCode) -> Result<Response, Problem> {
    let row = admin.aliases.row(name);
    let row = row.ok_or_else(|| problem(AliasError::Unknown(name.to_owned())))?;
    let row = told(admin, &row);
    let mut response = json_response(status, &row);
    response.extensions_mut().insert(AuditDetail(row));
    Ok(response)
}

fn problem(error: AliasError) -> Problem {
    let (status, code) = match &error {
        AliasError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_alias"),
        AliasError::NoPrevious(_) => (StatusCode::CONFLICT, "no_previous_target"),
        AliasError::IsModel(_) => (StatusCode::CONFLICT, "name_in_use"),
        AliasError::NoModel { .. } => (StatusCode::BAD_REQUEST, "unknown_model"),
        AliasError::Bad { .. } => (StatusCode::BAD_REQUEST, "invalid_alias"),
    };
    Problem::new(status, code, error.to_string())
}
