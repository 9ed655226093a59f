//! `/v1/vector_stores/{id}/reembed`: new vectors for all documents.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem};
use mortise_service::Principal;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::REEMBED;
use super::request::{asked, may_embed};
use super::stores::shown;
use crate::collections::{Collections, change, collection, embedder_of};
use crate::fields::{FieldReader, RouteFields};
use crate::ids::now;
use crate::paging::QueryParameters;
use crate::stored::{AccountCaller, absent, caller, store_problem};
use crate::unsupported::Unsupported;

type Handled = Result<Response, Problem>;

/// Pause between two looks at the work, for who watches it.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks without news before a comment says that the stream is there.
const SILENT: u32 = 20;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ReembedFields {
    /// Public name of the model; that which the vector store has where there is none.
    embedding_model: Option<String>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<ReembedFields>()
}

/// `POST /v1/vector_stores/{id}/reembed`
pub(super) async fn begin(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let mut request = asked(&collections, &context, REEMBED, request).await?;
    let object = std::mem::take(&mut request.object);
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: ReembedFields = reader.read()?;
    reader.finish(|_| false)?;
    let state = &collections.api;
    let found = collection(state, &request.caller.owner, &id, "vector_store_id").await?;
    let wanted = fields.embedding_model.as_deref().unwrap_or(&found.model);
    let (_, name) = embedder_of(state, Some(wanted), "embedding_model")?;
    may_embed(&collections, (&context, REEMBED), &request, &name).await?;
    let owner = &request.caller.owner;
    state.store.promise(owner).await.map_err(store_problem)?;
    let principal = Principal {
        subject: request.caller.subject().to_owned(),
        tenant: request.caller.tenant(),
        labels: Vec::new(),
    };
    let begun = change(state, &found.key, |of| {
        of.renew(&name, &principal, now())
            .then(|| of.object["reembedding"].clone())
    });
    let Some(begun) = begun.await.map_err(store_problem)? else {
        let message = "the vector store's vectors are being made anew already, or it is gone";
        let problem = Problem::new(StatusCode::CONFLICT, "vector_store_busy", message);
        return Err(problem.with_header("retry-after", "5"));
    };
    collections.reembed(found.key);
    Ok(request.caller.answer(&begun))
}

/// Progress of the work; a problem where there was none.
async fn progress(
    collections: &Arc<Collections>,
    caller: &AccountCaller,
    id: &str,
) -> Result<Value, Problem> {
    let state = &collections.api;
    let found = collection(state, &caller.owner, id, "vector_store_id").await?;
    let mut object = shown(collections, &found).await?;
    match object["reembedding"].take() {
        Value::Null => Err(absent("re-embedding", id, "vector_store_id")),
        mut progress => {
            if progress["status"] == "in_progress" {
                progress["files_total"] = object["file_counts"]["total"].take();
            }
            Ok(progress)
        }
    }
}

/// `GET /v1/vector_stores/{id}/reembed`: how far the work has come, or events of it until it ends.
pub(super) async fn retrieve(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, REEMBED, "GET", &parts).await?;
    let query = QueryParameters::of(&parts.uri, &["stream"])?;
    let first = progress(&collections, &caller, &id).await?;
    if !query.flag("stream")? {
        return Ok(caller.answer(&first));
    }
    let mut response = Response::new(Body::empty());
    caller.add_headers(&mut response);
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
        // Proxies that buffer know this name.
        ("x-accel-buffering", "no"),
    ] {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    let watch = Watch {
        collections,
        caller,
        id,
        ready: VecDeque::from([first.clone()]),
        last: first,
    };
    let events = stream::unfold(Some(watch), |watch| async move {
        let (event, watch) = watch?.next().await;
        Some((Ok::<_, std::convert::Infallible>(event), watch))
    });
    *response.body_mut() = Body::from_stream(events);
    Ok(response)
}

/// Watcher of the work on a collection.
struct Watch {
    collections: Arc<Collections>,
    caller: AccountCaller,
    id: String,
    ready: VecDeque<Value>,
    last: Value,
}

impl Watch {
    /// The next event, and the watch, unless that was the last.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        let mut silent = 0;
        loop {
            if let Some(event) = self.ready.pop_front() {
                let frame = format!("data: {event}\n\n").into();
                let goes_on = event["status"] == "in_progress";
                return (frame, goes_on.then_some(self));
            }
            sleep(PAUSE).await;
            if *self.collections.api.http.draining.borrow() {
                return (Bytes::from_static(b": the server ends\n\n"), None);
            }
            let Ok(now) = progress(&self.collections, &self.caller, &self.id).await else {
                let gone = json!({"status": "cancelled"});
                return (format!("data: {gone}\n\n").into(), None);
            };
            silent += 1;
            if now != self.last {
                self.last.clone_from(&now);
                self.ready.push_back(now);
            } else if silent == SILENT {
                return (Bytes::from_static(b": waiting\n\n"), Some(self));
            }
        }
    }
}

/// `DELETE /v1/vector_stores/{id}/reembed`: the vectors that are there stay, and so does the end of work that has ended.
pub(super) async fn cancel(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, REEMBED, "DELETE", &parts).await?;
    let state = &collections.api;
    let found = collection(state, &caller.owner, &id, "vector_store_id").await?;
    // Work that has ended stays as it ended.
    collections.keep_vectors(&found).await?;
    let progress = progress(&collections, &caller, &id).await?;
    Ok(caller.answer(&progress))
}
