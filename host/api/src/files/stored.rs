//! Files that are stored: listed, read, deleted.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Request as HttpRequest, StatusCode, header};
use mortise_http::{Context, Problem};
use mortise_store::{Change, Key, RecordFilter, RecordKind, RecordPage, Store, StoreError};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{CONTENT, FILE, FILES};
use crate::contents::file;
use crate::held::is_read;
use crate::limits::MAX_FILES_LISTED;
use crate::paging::{QueryParameters, list_body};
use crate::state::ApiState;
use crate::stored::{after_absent, caller, store_problem, value_of};

type Handled = Result<Response, Problem>;

/// `GET /v1/files`
pub(super) async fn list(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, FILES, "GET", &parts).await?;
    let query = QueryParameters::of(&parts.uri, &["purpose", "after", "limit", "order"])?;
    let page = query.page_within(false, MAX_FILES_LISTED, MAX_FILES_LISTED)?;
    let purpose = query.get("purpose").map(str::to_owned);
    let filter: RecordFilter = Box::new(move |record| {
        let wanted = |purpose: &String| value_of(record)["purpose"] == purpose.as_str();
        !record.open && purpose.as_ref().is_none_or(wanted)
    });
    let after = page.after.clone();
    let listing = state
        .store
        .list(&caller.owner, RecordKind::File, page, Some(filter))
        .await
        .map_err(|error| after_absent("file", error, after.as_deref()))?;
    let entries = listing.entries.iter().map(value_of).collect();
    let more = listing.more;
    Ok(caller.answer(&list_body(RecordPage { entries, more })))
}

/// `GET /v1/files/{id}`
pub(super) async fn retrieve(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, FILE, "GET", &parts).await?;
    let record = file(&state, &caller.owner, &id, "file_id").await?;
    Ok(caller.answer(&value_of(&record)))
}

/// `DELETE /v1/files/{id}`
pub(super) async fn delete(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, FILE, "DELETE", &parts).await?;
    let record = file(&state, &caller.owner, &id, "file_id").await?;
    let read = is_read(&*state.store, &record.key);
    if state.files.is_held(&record.key) || read.await.map_err(store_problem)? {
        let problem = "a batch reads this file; cancel the batch, or wait for its end";
        let problem = Problem::new(StatusCode::CONFLICT, "file_in_use", problem);
        return Err(problem.at("file_id").with_header("x-should-retry", "false"));
    }
    let changes = vec![Change::Delete(record.key)];
    state.store.commit(changes).await.map_err(store_problem)?;
    let body = json!({"id": id, "object": "file", "deleted": true});
    Ok(caller.answer(&body))
}

/// `GET /v1/files/{id}/content`
pub(super) async fn content(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CONTENT, "GET", &parts).await?;
    let record = file(&state, &caller.owner, &id, "file_id").await?;
    let object = value_of(&record);
    let pieces = Pieces {
        store: Arc::clone(&state.store),
        key: record.key,
        after: None,
        ended: false,
    };
    let stream = stream::unfold(pieces, |mut pieces| async move {
        let next = pieces.next().await.transpose()?;
        pieces.ended |= next.is_err();
        Some((next.map_err(io::Error::other), pieces))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    // Whatever was uploaded, no browser shows it as a page of this server.
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_DISPOSITION, disposition(&object));
    caller.add_headers(&mut response);
    Ok(response)
}

fn disposition(object: &Value) -> HeaderValue {
    let name = object["filename"].as_str().unwrap_or_default();
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{name}"))
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

/// The content of a file while it is read.
struct Pieces {
    store: Arc<dyn Store>,
    key: Key,
    /// The last piece that was read.
    after: Option<String>,
    ended: bool,
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let after = self.after.take();
        let listing = self.store.pieces(self.key.clone(), after).await?;
        self.ended = !listing.more;
        self.after = listing.entries.last().map(|item| item.id.clone());
        let bytes: Vec<u8> = listing
            .entries
            .into_iter()
            .flat_map(|item| item.body)
            .collect();
        Ok((!bytes.is_empty()).then(|| bytes.into()))
    }
}
