//! `/v1/vector_stores/{id}/files` and what is below it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem};
use mortise_retrieval::Chunking;
use mortise_retrieval::limits::MAX_DOCUMENT_BYTES;
use mortise_service::Principal;
use mortise_store::{Change, RecordPage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::request::{asked, attributes, may_embed};
use super::{CONTENT, FILE, FILES};
use crate::collections::{
    Collection, Collections, MAX_DOCUMENTS, StoredDocument, chunking_of, collection, count,
    embedder_of, member, member_key, members, on_page, room_for_documents,
};
use crate::contents::file;
use crate::fields::{FieldReader, RouteFields};
use crate::ids::now;
use crate::paging::{QueryParameters, list_body};
use crate::stored::{AccountCaller, caller, store_problem, value_of};
use crate::unsupported::Unsupported;

type Handled = Result<Response, Problem>;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct AttachFields {
    file_id: String,
    attributes: Option<Map<String, Value>>,
    chunking_strategy: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct AttributeFields {
    attributes: Map<String, Value>,
}

/// The fields of a body that attaches a file, for the contract.
pub(super) fn attach_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<AttachFields>()
}

/// The fields of a body that changes the attributes of one.
pub(super) fn attribute_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<AttributeFields>()
}

/// A file that is to be attached.
pub(super) struct Attached<'a> {
    pub(super) file: &'a str,
    /// The field that names it.
    pub(super) param: &'a str,
    pub(super) chunking: Chunking,
    pub(super) attributes: Value,
}

/// Store the record of a document, and begin to ingest it. One that is there is ingested anew.
pub(super) async fn begin(
    collections: &Arc<Collections>,
    caller: &AccountCaller,
    of: &Collection,
    attached: Attached<'_>,
) -> Result<StoredDocument, Problem> {
    let state = &collections.api;
    not_renewed(of)?;
    let found = file(state, &caller.owner, attached.file, attached.param).await?;
    let object = value_of(&found);
    let bytes = object["bytes"].as_u64().unwrap_or(0);
    if bytes > MAX_DOCUMENT_BYTES as u64 {
        let message =
            format!("the file has {bytes} bytes; a document may have {MAX_DOCUMENT_BYTES}");
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "file_too_large", message);
        return Err(problem.at(attached.param));
    }
    let old = state
        .store
        .get(member_key(&of.space(), attached.file))
        .await;
    let old = old.map_err(store_problem)?;
    if let Some(old) = old.as_ref().and_then(StoredDocument::of) {
        if old.status() == "in_progress" {
            return Err(being_ingested());
        }
        collections.remove(of, &old).await.map_err(store_problem)?;
    }
    if count(state, &caller.owner, MAX_DOCUMENTS).await? >= MAX_DOCUMENTS {
        let message = format!("your vector stores have {MAX_DOCUMENTS} files, which is the limit");
        let problem = Problem::new(StatusCode::FORBIDDEN, "store_quota_exceeded", message);
        return Err(problem);
    }
    let name = object["filename"].as_str().unwrap_or_default();
    let principal = Principal {
        subject: caller.subject().to_owned(),
        tenant: caller.tenant(),
        labels: Vec::new(),
    };
    let names = (attached.file, name);
    let chunking = attached.chunking;
    let member = StoredDocument::new(of, names, now(), chunking, attached.attributes, &principal);
    let changes = vec![of.unchanged(), Change::Put(member.record())];
    state.store.commit(changes).await.map_err(store_problem)?;
    collections.ingest(member.clone(), principal);
    Ok(member)
}

/// Refuse a change of the documents of a collection whose vectors are made anew.
fn not_renewed(of: &Collection) -> Result<(), Problem> {
    match of.next {
        None => Ok(()),
        Some(_) => {
            let message =
                "the vector store's vectors are being made anew; retry when they are complete";
            let problem = Problem::new(StatusCode::CONFLICT, "vector_store_busy", message);
            Err(problem.with_header("retry-after", "5"))
        }
    }
}

fn being_ingested() -> Problem {
    let message = "the file is being ingested; retry when it is complete, or take it out";
    let problem = Problem::new(StatusCode::CONFLICT, "file_in_use", message);
    problem.with_header("retry-after", "1")
}

/// `POST /v1/vector_stores/{id}/files`
pub(super) async fn attach(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let mut request = asked(&collections, &context, FILES, request).await?;
    let object = std::mem::take(&mut request.object);
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: AttachFields = reader.read()?;
    reader.finish(|_| false)?;
    let state = &collections.api;
    let found = collection(state, &request.caller.owner, &id, "vector_store_id").await?;
    let (model, _) = embedder_of(state, Some(&found.model), "vector_store_id")?;
    let strategy = fields.chunking_strategy.map(Value::Object);
    let attached = Attached {
        file: &fields.file_id,
        param: "file_id",
        chunking: chunking_of(strategy.as_ref(), room_for_documents(&model))?,
        attributes: attributes(fields.attributes)?,
    };
    may_embed(&collections, (&context, FILES), &request, &found.model).await?;
    let member = begin(&collections, &request.caller, &found, attached).await?;
    Ok(request.caller.answer(&member.object))
}

/// `GET /v1/vector_stores/{id}/files`
pub(super) async fn list(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, FILES, "GET", &parts).await?;
    let query = QueryParameters::of(&parts.uri, &["after", "limit", "order"])?;
    let page = query.page(false)?;
    let state = &collections.api;
    let found = collection(state, &caller.owner, &id, "vector_store_id").await?;
    let listing = members(
        state,
        &found.space(),
        page.after,
        page.limit,
        page.ascending,
    )
    .await?;
    let more = listing.more;
    let entries = listing
        .entries
        .into_iter()
        .map(|member| member.object)
        .collect();
    Ok(caller.answer(&list_body(RecordPage { entries, more })))
}

/// A document that a caller means.
async fn meant(
    collections: &Arc<Collections>,
    caller: &AccountCaller,
    (id, file): (String, String),
) -> Result<(Collection, StoredDocument), Problem> {
    let state = &collections.api;
    let found = collection(state, &caller.owner, &id, "vector_store_id").await?;
    let member = member(state, &found.space(), &file).await?;
    Ok((found, member))
}

/// `GET /v1/vector_stores/{id}/files/{file_id}`
pub(super) async fn retrieve(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(path): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, FILE, "GET", &parts).await?;
    let (_, member) = meant(&collections, &caller, path).await?;
    Ok(caller.answer(&member.object))
}

/// `POST /v1/vector_stores/{id}/files/{file_id}`: other attributes.
pub(super) async fn update(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(path): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Handled {
    let request = asked(&collections, &context, FILE, request).await?;
    let mut reader = FieldReader::new(request.object, Unsupported::Refuse);
    let fields: AttributeFields = reader.read()?;
    reader.finish(|_| false)?;
    let (of, mut member) = meant(&collections, &request.caller, path).await?;
    not_renewed(&of)?;
    if member.status() == "in_progress" {
        return Err(being_ingested());
    }
    member.object["attributes"] = attributes(Some(fields.attributes))?;
    collections
        .set_attributes(&of, &member)
        .await
        .map_err(store_problem)?;
    Ok(request.caller.answer(&member.object))
}

/// `DELETE /v1/vector_stores/{id}/files/{file_id}`: the file itself stays.
pub(super) async fn detach(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(path): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, FILE, "DELETE", &parts).await?;
    let (of, member) = meant(&collections, &caller, path).await?;
    not_renewed(&of)?;
    let removed = collections.remove(&of, &member).await;
    removed.map_err(store_problem)?;
    let body = json!({"id": member.file(), "object": "vector_store.file.deleted", "deleted": true});
    Ok(caller.answer(&body))
}

/// `GET /v1/vector_stores/{id}/files/{file_id}/content`: the chunks.
pub(super) async fn content(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(path): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, CONTENT, "GET", &parts).await?;
    let (_, member) = meant(&collections, &caller, path).await?;
    let chunks = collections.chunks(&member).await?;
    let data = chunks.into_iter().map(|chunk| {
        let (text, start, end) = (chunk.text, chunk.start, chunk.end);
        let shown = json!({"type": "text", "text": text, "start": start, "end": end});
        on_page(shown, chunk.page)
    });
    let body = json!({
        "object": "vector_store.file_content.page",
        "data": data.collect::<Vec<_>>(),
        "has_more": false,
        "next_page": null,
    });
    Ok(caller.answer(&body))
}
