//! Models that are uploaded: as a form in one request, or in chunks.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use mortise_http::{FormLimits, FormPart, Multipart, Problem, json_response};
use mortise_library::{
    Appending, Library, LibraryEntry, Receiving, UploadInfo, UploadOrder, UploadStatus,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

use crate::Admin;
use crate::audit::AuditDetail;
use crate::library::{entry_row, problem};
use crate::limits::{MAX_FORM_BYTES, MAX_UPLOAD_PAUSE, MAX_UPLOAD_TIME};
use crate::models::{ModelName, name_of, read};

/// Bytes of a field of the form.
const FIELD_BYTES: usize = 4096;

/// Fields of the form, as far as they have come.
#[derive(Default)]
struct Form {
    model_id: Option<String>,
    about: UploadInfo,
    receiving: Option<Receiving>,
}

/// Take a model that comes as a form, its files in the parts `file`.
pub(crate) async fn ingest(
    State(admin): State<Arc<Admin>>,
    request: Request,
) -> Result<Response, Problem> {
    let library = admin.library()?;
    let (entry, body) = take_form(library, admin.draining.clone(), request).await?;
    Ok(made(&entry, &body))
}

/// Take a model that comes as a form, its files in the parts `file`. Returns it, and what its sender is told.
///
/// # Errors
/// When the form is wrong, is cut, or the library refuses.
pub async fn take_form(
    library: &Arc<Library>,
    draining: Receiver<bool>,
    request: Request,
) -> Result<(LibraryEntry, Value), Problem> {
    let began = Instant::now();
    let (parts, body) = request.into_parts();
    let limits = FormLimits {
        bytes: u64::MAX,
        pause: MAX_UPLOAD_PAUSE,
        time: MAX_UPLOAD_TIME,
        draining,
    };
    let mut body = Multipart::open(&parts.headers, body, limits)?;
    let mut form = Form::default();
    let mut fields = 0;
    while let Some(part) = body.part().await? {
        if part.name != "file" {
            fields += FIELD_BYTES;
            if fields > MAX_FORM_BYTES {
                return Err(Problem::invalid(part.name, "the form has too many fields"));
            }
        }
        form.read(library, &mut body, part).await?;
    }
    let missing = |name: &str| {
        let problem = Problem::invalid(name, format!("the form lacks the field `{name}`"));
        Problem {
            code: "missing_required_parameter".into(),
            ..problem
        }
    };
    let name = form.model_id.ok_or_else(|| missing("model_id"))?;
    let receiving = form.receiving.ok_or_else(|| missing("file"))?;
    let entry = receiving.finish(&name, form.about).await.map_err(problem)?;
    let body = kept(library, &entry, Some(began));
    Ok((entry, body))
}

/// Properties of a model beside its files, in one part of the form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    version: Option<String>,
    description: Option<String>,
    shard_affinity: Option<String>,
    replicate: Option<bool>,
}

impl Form {
    async fn read(
        &mut self,
        library: &Arc<Library>,
        body: &mut Multipart,
        part: FormPart,
    ) -> Result<(), Problem> {
        let field = match part.name.as_str() {
            "file" => return self.read_file(library, body, part).await,
            "model_id" => &mut self.model_id,
            "sha256" => &mut self.about.sha256,
            "version" => &mut self.about.version,
            "description" => &mut self.about.description,
            "metadata" => {
                let text = body.text(&part.name, FIELD_BYTES).await?;
                return self.read_metadata(library, &text);
            }
            name @ ("shard_affinity" | "replicate") => return Err(unsupported(name)),
            name => {
                let name: String = name.chars().take(64).collect();
                let message = format!(
                    "unknown field `{name}`; known are `model_id`, `file`, `sha256`, `version`, `description` and `metadata`"
                );
                return Err(Problem::invalid(name, message));
            }
        };
        if field.is_some() {
            return Err(twice(&part.name));
        }
        let text = body.text(&part.name, FIELD_BYTES).await?;
        if part.name == "model_id" {
            // Before the files come, if it stands before them.
            library.check_name(&text).map_err(problem)?;
        }
        *field = Some(text);
        Ok(())
    }

    /// Take what is known of the model. Whether it is replicated is told by the configuration: metadata may say it,
    /// and may not want another.
    fn read_metadata(&mut self, library: &Library, text: &str) -> Result<(), Problem> {
        let metadata: Metadata = serde_json::from_str(text).map_err(|error| {
            Problem::invalid("metadata", format!("`metadata` is wrong: {error}"))
        })?;
        if metadata.shard_affinity.is_some() {
            return Err(unsupported("metadata.shard_affinity"));
        }
        let replicates = library.replicates();
        match metadata.replicate {
            Some(wanted) if wanted != replicates => {
                let message = match replicates {
                    true => {
                        "`metadata.replicate` cannot be false: `library.object_store` keeps every model"
                    }
                    false => {
                        "`metadata.replicate` cannot be true: a model is kept by this server alone, without `library.object_store`"
                    }
                };
                return Err(Problem::unsupported("metadata.replicate", message));
            }
            _ => {}
        }
        let UploadInfo {
            version,
            description,
            ..
        } = &mut self.about;
        for (name, field, value) in [
            ("version", version, metadata.version),
            ("description", description, metadata.description),
        ] {
            if value.is_some() && field.is_some() {
                return Err(twice(name));
            }
            *field = value.or(field.take());
        }
        Ok(())
    }

    async fn read_file(
        &mut self,
        library: &Arc<Library>,
        body: &mut Multipart,
        part: FormPart,
    ) -> Result<(), Problem> {
        let name = part
            .file_name
            .ok_or_else(|| Problem::invalid("file", "`file` must be a file, with a name"))?;
        let receiving = match &mut self.receiving {
            Some(receiving) => receiving,
            none => none.insert(library.receive().await.map_err(problem)?),
        };
        receiving.begin(&name).await.map_err(problem)?;
        while let Some(data) = body.data().await? {
            receiving.write(&data).await.map_err(problem)?;
        }
        Ok(())
    }
}

fn twice(field: &str) -> Problem {
    let message = format!("the form has the field `{field}` twice");
    Problem::invalid(field, message)
}

fn unsupported(field: &str) -> Problem {
    let message =
        format!("`{field}` is not supported: a model is kept by this server alone; leave it out");
    Problem::unsupported(field, message)
}

/// Report of an upload that is complete.
fn kept(library: &Library, entry: &LibraryEntry, began: Option<Instant>) -> Value {
    let mut body = entry_row(library, entry);
    let began = began.map(|began| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    body["upload_time_ms"] = json!(began);
    // A server keeps a model as a whole.
    body["shards_replicated"] = json!(1);
    body["total_shards"] = json!(1);
    body
}

/// Answer of an upload that is complete.
fn made(entry: &LibraryEntry, body: &Value) -> Response {
    let mut response = json_response(StatusCode::CREATED, body);
    let detail = json!({"model": entry.name, "bytes": entry.size_bytes, "sha256": entry.sha256});
    response.extensions_mut().insert(AuditDetail(detail));
    response
}

/// Begin an upload in chunks.
pub(crate) async fn begin(
    State(admin): State<Arc<Admin>>,
    body: Body,
) -> Result<Response, Problem> {
    let library = admin.library()?;
    let invalid = |problem: Problem| Problem {
        code: "invalid_upload".into(),
        ..problem
    };
    let order = read::<UploadOrder>(body).await.map_err(invalid)?;
    let order = order.ok_or_else(|| {
        let message = "the body must say what will come, as in {\"model_id\": \"my-model\", \"size_bytes\": 1000}";
        invalid(Problem::new(StatusCode::BAD_REQUEST, "", message))
    })?;
    let status = library.begin_upload(order).await.map_err(problem)?;
    Ok(standing(StatusCode::CREATED, &status))
}

/// List the uploads in chunks that are not complete.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let rows: Vec<Value> = admin.library()?.uploads().iter().map(row).collect();
    let body = json!({"object": "list", "data": rows});
    Ok(json_response(StatusCode::OK, &body))
}

/// Show the state of an upload in chunks.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let status = admin.library()?.upload(&name_of(id)?).map_err(problem)?;
    Ok(standing(StatusCode::OK, &status))
}

/// Cancel an upload, and remove what has come.
pub(crate) async fn cancel(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let id = name_of(id)?;
    let status = admin.library()?.cancel_upload(&id).await;
    let body = json!({"id": status.map_err(problem)?.id, "deleted": true});
    Ok(json_response(StatusCode::OK, &body))
}

/// Write a chunk where the last one ended.
pub(crate) async fn append(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
    request: Request,
) -> Result<Response, Problem> {
    let id = name_of(id)?;
    let library = admin.library()?;
    let (parts, body) = request.into_parts();
    let (first, last, total) = range_of(&parts.headers)?;
    let appending = library.append(&id, first, last - first + 1, total).await;
    let mut appending = appending.map_err(problem)?;
    take_chunk(&admin, &mut appending, body).await?;
    let (status, entry) = appending.finish().await.map_err(problem)?;
    Ok(match entry {
        Some(entry) => made(&entry, &kept(library, &entry, None)),
        None => standing(StatusCode::ACCEPTED, &status),
    })
}

async fn take_chunk(
    admin: &Admin,
    appending: &mut Appending,
    mut body: Body,
) -> Result<(), Problem> {
    let cut = |message: &str| Problem::new(StatusCode::REQUEST_TIMEOUT, "chunk_cut", message);
    loop {
        let frame = timeout(MAX_UPLOAD_PAUSE, body.frame()).await;
        let frame =
            frame.map_err(|_| cut("nothing came for long; go on where the upload stands"))?;
        if *admin.draining.borrow() {
            return Err(mortise_http::stopping());
        }
        match frame {
            None => return Ok(()),
            Some(Err(_)) => return Err(cut("the body broke off; go on where the upload stands")),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    appending.write(&data).await.map_err(problem)?;
                }
            }
        }
    }
}

/// First and last byte of a chunk, and the bytes of the file.
fn range_of(headers: &HeaderMap) -> Result<(u64, u64, u64), Problem> {
    let text = headers.get(header::CONTENT_RANGE);
    let range = text.and_then(|value| read_range(value.to_str().ok()?));
    range.ok_or_else(|| {
        let message = "a chunk needs the header `Content-Range: bytes FIRST-LAST/SIZE`, such as bytes 0-1023/4096";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_range", message).at("Content-Range")
    })
}

fn read_range(text: &str) -> Option<(u64, u64, u64)> {
    let number = |text: &str| -> Option<u64> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits)
    };
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    (first <= last && last < total).then_some((first, last, total))
}

fn row(status: &UploadStatus) -> Value {
    json!({
        "id": status.id,
        "model_id": status.order.model_id,
        "file_name": status.order.file_name,
        "files": status.order.files,
        "size_bytes": status.order.size_bytes,
        "offset": status.offset,
    })
}

fn standing(code: StatusCode, status: &UploadStatus) -> Response {
    let mut response = json_response(code, &row(status));
    let detail = json!({"model": status.order.model_id, "upload": status.id});
    response.extensions_mut().insert(AuditDetail(detail));
    response
}

#[cfg(test)]
mod tests {
    use super::read_range;

    #[test]
    fn ranges_are_read_exactly() {
        assert_eq!(read_range("bytes 0-9/10"), Some((0, 9, 10)));
        assert_eq!(read_range("bytes 5-5/10"), Some((5, 5, 10)));
        for wrong in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes 9-0/10",
            "bytes 0-10/10",
            "bytes */10",
            "bytes 0-9/*",
            "bytes +0-9/10",
            "bytes -1-9/10",
            "items 0-9/10",
            "bytes 0-18446744073709551616/18446744073709551617",
            "bytes 0-9/10 ",
        ] {
            assert_eq!(read_range(wrong), None, "{wrong:?}");
        }
    }
}
