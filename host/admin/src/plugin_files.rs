//! Files of the plugin folder: sent, examined, taken away, put back.

use std::future::Future;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use mortise_http::{Problem, json_response, stopping};
use mortise_plugin_manager::{ChangeError, FileChange, Incoming};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::Admin;
use crate::audit::AuditDetail;
use crate::limits::{MAX_PLUGIN_BYTES, MAX_PLUGIN_TIME};
use crate::models::{ModelName, name_of, read};
use crate::plugin_contract::SIGNATURE;

/// Put a component into the folder.
pub(crate) async fn put(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    request: Request,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let (incoming, permit) = incoming(&admin, request).await?;
    let live = Arc::clone(&admin.live);
    let change = whole(async move {
        let _permit = permit;
        live.put_file(&name, incoming).await
    });
    changed(change.await?)
}

/// Examine a component as if it were put into the folder.
pub(crate) async fn check(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    request: Request,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let (incoming, permit) = incoming(&admin, request).await?;
    let live = Arc::clone(&admin.live);
    let checked = whole(async move {
        let _permit = permit;
        live.check_file(&name, incoming).await
    });
    Ok(told(StatusCode::OK, checked.await?))
}

/// Take a file out of the folder.
pub(crate) async fn remove(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let live = Arc::clone(&admin.live);
    let file = name.clone();
    whole(async move { live.remove_file(&file).await }).await?;
    Ok(told(StatusCode::OK, json!({"file": name, "deleted": true})))
}

/// Files of the folder, and those that are gone and have versions.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let files = admin.live.folder_files().await.map_err(problem)?;
    Ok(json_response(StatusCode::OK, &files))
}

/// Versions of a file.
pub(crate) async fn versions(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
) -> Result<Response, Problem> {
    let versions = admin.live.file_versions(&name_of(name)?).await;
    Ok(json_response(StatusCode::OK, &versions.map_err(problem)?))
}

/// The version to put back.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rollback {
    #[serde(default)]
    digest: Option<String>,
}

/// Put an earlier version of a file back.
pub(crate) async fn roll_back(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    body: Body,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let wanted = read::<Rollback>(body).await.map_err(|problem| Problem {
        code: "invalid_rollback".into(),
        ..problem
    })?;
    let digest = wanted.unwrap_or_default().digest;
    let live = Arc::clone(&admin.live);
    changed(whole(async move { live.roll_back_file(&name, digest).await }).await?)
}

/// The outcome of a change, which goes on to its end when its caller leaves.
async fn whole<T: Send + 'static>(
    change: impl Future<Output = Result<T, ChangeError>> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::spawn(change).await.map_err(|panic| {
        let message = format!("the change failed: {panic}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    })?;
    done.map_err(problem)
}

fn changed(change: FileChange) -> Result<Response, Problem> {
    let status = match change.is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok(told(status, change.told))
}

fn told(status: StatusCode, body: Value) -> Response {
    let mut response = json_response(status, &body);
    response.extensions_mut().insert(AuditDetail(body));
    response
}

/// The component of a request with its signature, and the place that it takes.
async fn incoming(
    admin: &Admin,
    request: Request,
) -> Result<(Incoming, OwnedSemaphorePermit), Problem> {
    let permit = Arc::clone(&admin.plugin_uploads).try_acquire_owned();
    let permit = permit.map_err(|_| {
        let message = "as many plugins as may be sent at once are being sent; try again";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Problem::new(status, "plugin_upload_busy", message).with_header("retry-after", "5")
    })?;
    let (parts, body) = request.into_parts();
    let signature = signature(&parts.headers)?;
    let mut draining = admin.draining.clone();
    let body = timeout(MAX_PLUGIN_TIME, to_bytes(body, MAX_PLUGIN_BYTES));
    let body = tokio::select! {
        body = body => body,
        _ = draining.wait_for(|draining| *draining) => return Err(stopping()),
    };
    let late = |_| {
        let message = format!(
            "the plugin has not come within {} s",
            MAX_PLUGIN_TIME.as_secs()
        );
        Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    };
    let wasm = body.map_err(late)?.map_err(|_| {
        let message = format!("the body is incomplete or longer than {MAX_PLUGIN_BYTES} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "plugin_too_large", message)
    })?;
    let wasm = Vec::from(wasm);
    Ok((Incoming { wasm, signature }, permit))
}

/// The signature in the headers, if there is one.
fn signature(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let Some(given) = headers.get(SIGNATURE) else {
        return Ok(None);
    };
    let digits = given.to_str().ok().filter(|text| text.len() % 2 == 0);
    let bytes = digits.and_then(|text| {
        let pairs = (0..text.len()).step_by(2);
        let byte = |at: usize| {
            let pair = text.get(at..at + 2)?;
            let digits = pair.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(pair, 16).ok().filter(|_| digits)
        };
        pairs.map(byte).collect::<Option<Vec<u8>>>()
    });
    bytes.map(Some).ok_or_else(|| {
        let message = format!("`{SIGNATURE}` is the signature in hexadecimal digits");
        Problem::new(StatusCode::BAD_REQUEST, "invalid_signature", message).at(SIGNATURE)
    })
}

/// A refusal of a change, with every detail: its reader is the operator.
fn problem(error: ChangeError) -> Problem {
    use ChangeError as E;
    let (status, code) = match &error {
        E::Off => (StatusCode::FORBIDDEN, "plugin_upload_off"),
        E::Name(_) | E::NoFolder => (StatusCode::BAD_REQUEST, "invalid_plugin_name"),
        E::Signature(_) => (StatusCode::BAD_REQUEST, "invalid_signature"),
        E::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "plugin_too_large"),
        E::Full => (StatusCode::CONFLICT, "plugin_folder_full"),
        E::Unfit(_) => (StatusCode::UNPROCESSABLE_ENTITY, "plugin_refused"),
        E::Bound(_) => (StatusCode::CONFLICT, "plugin_in_use"),
        E::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_plugin_file"),
        E::UnknownVersion(_) => (StatusCode::NOT_FOUND, "unknown_plugin_version"),
        E::NoVersion(_) => (StatusCode::CONFLICT, "no_previous_version"),
        E::Reload(_) => (StatusCode::CONFLICT, "plugin_reload_failed"),
        E::Folder(source) if source.kind() == std::io::ErrorKind::StorageFull => {
            (StatusCode::INSUFFICIENT_STORAGE, "no_room")
        }
        E::Folder(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "plugin_folder_unwritable",
        ),
    };
    Problem::new(status, code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read_exactly() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(SIGNATURE, text.parse().expect("a header"));
            signature(&headers).map_err(|problem| problem.code)
        };
        assert_eq!(signature(&HeaderMap::new()).expect("none"), None);
        assert_eq!(read("00fF10"), Ok(Some(vec![0, 255, 16])));
        assert_eq!(read(""), Ok(Some(Vec::new())));
        for wrong in ["0", "+1", "0x", "zz", "00 1"] {
            assert_eq!(read(wrong), Err("invalid_signature".to_owned()), "{wrong}");
        }
    }
}
