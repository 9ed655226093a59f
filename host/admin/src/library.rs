//! Models that come and go while the server runs: pulls from the hub, and removal. Uploads are beside.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_library::{Library, LibraryEntry, LibraryError, PullStatus};
use mortise_models::lifecycle::{LifecycleError, ModelManager, ModelState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Admin;
use crate::audit::AuditDetail;
use crate::models::{self, ModelName, name_of, read};

/// List the models of the library.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let library = admin.library()?;
    let entries = library.entries();
    let rows: Vec<Value> = entries
        .iter()
        .map(|entry| entry_row(library, entry))
        .collect();
    let body = json!({"object": "list", "data": rows});
    Ok(json_response(StatusCode::OK, &body))
}

/// A model to pull.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PullRequest {
    model: String,
}

/// Begin to pull a model, or join a pull of the same model in progress.
pub(crate) async fn pull(State(admin): State<Arc<Admin>>, body: Body) -> Result<Response, Problem> {
    let library = admin.library()?;
    let request = read::<PullRequest>(body).await.map_err(invalid_pull)?;
    let request = request.ok_or_else(|| {
        let message = "the body must name a model of the hub, as in {\"model\": \"org/name:Q8_0\"}";
        invalid_pull(Problem::new(StatusCode::BAD_REQUEST, "", message))
    })?;
    let pull = library.pull(&request.model).map_err(problem)?;
    Ok(told(StatusCode::ACCEPTED, &pull))
}

fn invalid_pull(problem: Problem) -> Problem {
    Problem {
        code: "invalid_pull".into(),
        ..problem
    }
}

/// List the pulls in progress, and the last ones that have ended.
pub(crate) async fn list_pulls(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let pulls = admin.library()?.pulls();
    let body = json!({"object": "list", "data": pulls});
    Ok(json_response(StatusCode::OK, &body))
}

/// Show a pull.
pub(crate) async fn show_pull(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let pull = admin.library()?.pull_status(&name_of(id)?);
    Ok(json_response(StatusCode::OK, &pull.map_err(problem)?))
}

/// Cancel a pull.
pub(crate) async fn cancel_pull(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let pull = admin.library()?.cancel_pull(&name_of(id)?);
    Ok(told(StatusCode::OK, &pull.map_err(problem)?))
}

fn told(status: StatusCode, pull: &PullStatus) -> Response {
    let mut response = json_response(status, pull);
    let detail = json!({"model": pull.model, "pull": pull.id});
    response.extensions_mut().insert(AuditDetail(detail));
    response
}

/// Remove a model of the library that is not loaded, with its files.
pub(crate) async fn remove(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let removed = remove_unloaded(admin.library()?, &admin.models, &name).await;
    let entry = removed.map_err(Removal::into_problem)?;
    let body = json!({"name": name, "deleted": true});
    let mut response = json_response(StatusCode::OK, &body);
    let detail = json!({"model": name, "bytes": entry.size_bytes});
    response.extensions_mut().insert(AuditDetail(detail));
    Ok(response)
}

/// Reason for which a model was not removed.
#[derive(Debug)]
pub enum Removal {
    /// The model is unknown, or loaded.
    Lifecycle(LifecycleError),
    /// The library refused.
    Library(LibraryError),
}

impl Removal {
    fn into_problem(self) -> Problem {
        match self {
            Self::Lifecycle(error) => models::problem(error),
            Self::Library(error) => problem(error),
        }
    }
}

/// Remove a model of the library, unless it is loaded or about to be.
///
/// # Errors
/// When the library has no such model, the model is in use, or the library refuses.
pub async fn remove_unloaded(
    library: &Arc<Library>,
    models: &ModelManager,
    name: &str,
) -> Result<LibraryEntry, Removal> {
    let name = name.to_owned();
    let status = models.status(&name);
    if library.entry(&name).is_none() {
        return Err(match status {
            Some(_) => Removal::Library(LibraryError::NotInLibrary(name)),
            None => Removal::Lifecycle(LifecycleError::Unknown(name)),
        });
    }
    if let Some(status) = status {
        let refused = |error| Err(Removal::Lifecycle(error));
        match status.state {
            ModelState::Unloaded | ModelState::Failed => {}
            ModelState::Loaded => return refused(LifecycleError::Loaded(name)),
            ModelState::Loading => return refused(LifecycleError::Loading(name)),
            ModelState::Unloading => return refused(LifecycleError::Unloading(name)),
        }
    }
    library.remove(&name).await.map_err(Removal::Library)
}

/// A model of the library as answers have it.
pub(crate) fn entry_row(library: &Library, entry: &LibraryEntry) -> Value {
    let places = library.places(entry);
    json!({
        "name": entry.name,
        "urn": format!("urn:mortise:model:{}", entry.name),
        "source": entry.source,
        "size_bytes": entry.size_bytes,
        "checksum": entry.sha256.as_ref().map(|digest| format!("sha256:{digest}")),
        "version": entry.version,
        "description": entry.description,
        "added_at": entry.added_at,
        "on_disk": places.on_disk,
        "replication_status": places.replication,
        "replication_error": places.error,
    })
}

impl Admin {
    /// The library, if there is one.
    pub(crate) fn library(&self) -> Result<&Arc<Library>, Problem> {
        self.library.as_ref().ok_or_else(library_off)
    }
}

/// Refusal of a server without a library.
pub fn library_off() -> Problem {
    let message = "models neither come nor go over HTTP here; `library.folder` of the configuration allows it";
    Problem::new(StatusCode::FORBIDDEN, "library_off", message)
}

/// A refusal of the library, with every detail: its reader is the operator.
pub(crate) fn problem(error: LibraryError) -> Problem {
    use LibraryError as E;
    let status = match &error {
        E::Invalid { .. } | E::WrongLength { .. } | E::Checksum { .. } | E::NoModel(_) => {
            StatusCode::BAD_REQUEST
        }
        E::Hub(_) => StatusCode::BAD_REQUEST,
        E::NameInUse(_) | E::NotInLibrary(_) | E::BeingPulled(_) | E::UploadBusy => {
            StatusCode::CONFLICT
        }
        E::UnknownPull(_) | E::UnknownUpload(_) => StatusCode::NOT_FOUND,
        E::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
        E::WrongOffset { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        E::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        E::NoRoom(_) => StatusCode::INSUFFICIENT_STORAGE,
        E::Store(_) => StatusCode::BAD_GATEWAY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let code = match &error {
        // No download has begun: the reference is wrong.
        E::Hub(_) => "invalid_pull",
        other => other.code(),
    };
    let field = match &error {
        E::Invalid { field, .. } => Some(*field),
        _ => None,
    };
    let offset = match &error {
        E::WrongOffset { offset } | E::WrongLength { offset, .. } => Some(*offset),
        _ => None,
    };
    let mut problem = Problem::new(status, code, error.to_string());
    if let Some(field) = field {
        problem = problem.at(field);
    }
    match (offset, status) {
        (Some(offset), _) => problem.with_header("upload-offset", offset.to_string()),
        (None, StatusCode::TOO_MANY_REQUESTS) => problem.with_header("retry-after", "5"),
        _ => problem,
    }
}
