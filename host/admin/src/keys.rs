//! Issued keys: made, listed, changed, rotated, revoked. A secret is told once, when it is made.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_identity::{IssuedKey, KeyError, NewKey, Terms};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Admin;
use crate::models::{ModelName, name_of, read};

/// Longest overlap of a rotation, in seconds: thirty days.
const MAX_OVERLAP: u32 = 30 * 86_400;

/// Terms of a key, as a body gives them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyTerms {
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    expires_at: Option<i64>,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    terms: Terms,
}

/// A key to issue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    id: String,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    expires_at: Option<i64>,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    terms: Terms,
}

/// A rotation.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    #[serde(default)]
    overlap_seconds: u32,
}

/// All keys.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    let keys = admin.identity.keys().list();
    json_response(StatusCode::OK, &rows(keys.iter()))
}

/// A key with what time changes of it: its state, and how many secrets it has.
pub(crate) type Standing = (Arc<IssuedKey>, &'static str, usize);

/// All keys as they stand now. Far less work than their rows.
pub(crate) fn standing(admin: &Admin) -> Vec<Standing> {
    let now = now();
    let keys = admin.identity.keys().list().into_iter();
    let of = |key: Arc<IssuedKey>| {
        let (state, secrets) = (key.state(now), key.secrets_in_force(now));
        (key, state, secrets)
    };
    keys.map(of).collect()
}

/// The list of these keys.
pub(crate) fn rows<'a>(keys: impl Iterator<Item = &'a Arc<IssuedKey>>) -> Value {
    let rows: Vec<Value> = keys.map(|key| row(key)).collect();
    json!({"object": "list", "data": rows})
}

/// One key.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let key = admin.identity.keys().get(&name_of(id)?).map_err(problem)?;
    Ok(json_response(StatusCode::OK, &row(&key)))
}

/// Issue a key.
pub(crate) async fn create(
    State(admin): State<Arc<Admin>>,
    body: Body,
) -> Result<Response, Problem> {
    let wanted: KeyRequest = given(body).await?;
    let created = admin.identity.keys().create(NewKey {
        id: wanted.id,
        tenant: wanted.tenant,
        expires_at: wanted.expires_at,
        disabled: wanted.disabled,
        terms: wanted.terms,
    });
    let (key, secret) = created.await.map_err(problem)?;
    tracing::info!(key = key.id, tenant = key.tenant, "a key was issued");
    Ok(json_response(StatusCode::CREATED, &told(&key, &secret)))
}

/// Give a key other terms.
pub(crate) async fn update(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
    body: Body,
) -> Result<Response, Problem> {
    let id = name_of(id)?;
    let wanted: KeyTerms = given(body).await?;
    let updated = admin.identity.keys().update(NewKey {
        id,
        tenant: wanted.tenant,
        expires_at: wanted.expires_at,
        disabled: wanted.disabled,
        terms: wanted.terms,
    });
    let key = updated.await.map_err(problem)?;
    tracing::info!(key = key.id, state = key.state(now()), "a key was changed");
    Ok(json_response(StatusCode::OK, &row(&key)))
}

/// Give a key another secret.
pub(crate) async fn rotate(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
    body: Body,
) -> Result<Response, Problem> {
    let id = name_of(id)?;
    let rotation = read::<Rotation>(body).await.map_err(invalid)?;
    let overlap = rotation.unwrap_or_default().overlap_seconds;
    if overlap > MAX_OVERLAP {
        let message = format!("`overlap_seconds` must be at most {MAX_OVERLAP}");
        let problem = Problem::new(StatusCode::BAD_REQUEST, "invalid_key", message);
        return Err(problem.at("overlap_seconds"));
    }
    let rotated = admin.identity.keys().rotate(&id, overlap).await;
    let (key, secret) = rotated.map_err(problem)?;
    tracing::info!(key = key.id, overlap, "a key was rotated");
    Ok(json_response(StatusCode::OK, &told(&key, &secret)))
}

/// Refuse a key for good.
pub(crate) async fn revoke(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let key = admin.identity.keys().revoke(&name_of(id)?).await;
    let key = key.map_err(problem)?;
    tracing::info!(key = key.id, "a key was revoked");
    Ok(json_response(StatusCode::OK, &row(&key)))
}

/// Forget a key.
pub(crate) async fn remove(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let id = name_of(id)?;
    admin.identity.keys().delete(&id).await.map_err(problem)?;
    tracing::info!(key = id, "a key was deleted");
    Ok(json_response(
        StatusCode::OK,
        &json!({"id": id, "deleted": true}),
    ))
}

async fn given<T: DeserializeOwned>(body: Body) -> Result<T, Problem> {
    let given = read::<T>(body).await.map_err(invalid)?;
    given.ok_or_else(|| {
        let message = "the body must describe a key, as in {\"id\": \"alice\"}";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_key", message)
    })
}

fn invalid(problem: Problem) -> Problem {
    Problem {
        code: "invalid_key".into(),
        ..problem
    }
}

/// A key without its secret.
fn row(key: &IssuedKey) -> Value {
    json!({
        "object": "api_key",
        "id": key.id,
        "tenant": key.tenant,
        "state": key.state(now()),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "disabled": key.disabled,
        "revoked_at": key.revoked_at,
        "secrets": key.secrets_in_force(now()),
        "terms": key.terms,
    })
}

/// A key with the secret that was just made.
fn told(key: &IssuedKey, secret: &str) -> Value {
    let mut row = row(key);
    if let Some(fields) = row.as_object_mut() {
        fields.insert("key".to_owned(), json!(secret));
    }
    row
}

fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}

/// A refusal as it is answered.
pub(crate) fn problem(error: KeyError) -> Problem {
    let (status, code) = match &error {
        KeyError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_key"),
        KeyError::Exists(_) => (StatusCode::CONFLICT, "key_exists"),
        KeyError::Revoked(_) => (StatusCode::CONFLICT, "key_revoked"),
        KeyError::TooMany => (StatusCode::CONFLICT, "too_many_keys"),
        KeyError::Terms(_) => (StatusCode::BAD_REQUEST, "invalid_key"),
        KeyError::Random(_) | KeyError::Store(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable")
        }
    };
    let field = match &error {
        KeyError::Terms(error) => Some(error.field),
        _ => None,
    };
    let problem = Problem::new(status, code, error.to_string());
    match field {
        Some(field) => problem.at(field),
        None => problem,
    }
}
