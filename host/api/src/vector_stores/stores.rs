//! `/v1/vector_stores` and `/v1/vector_stores/{id}`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem};
use mortise_store::{Change, Key, RecordKind, RecordPage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::{Attached, begin};
use super::request::{VectorStoreRequest, asked, may_embed};
use super::{STORE, STORES};
use crate::collections::{
    Collection, Collections, Retrieval, RetrieverCaller, StoredDocument, change, chunking_of,
    collection, collections as all, embedder_of, members, room_for_documents,
};
use crate::fields::{FieldReader, RouteFields};
use crate::ids::{Ids, now};
use crate::limits::MAX_FILE_NAME;
use crate::paging::{QueryParameters, list_body};
use crate::stored::{absent, caller, store_problem};
use crate::unsupported::Unsupported;

type Handled = Result<Response, Problem>;

/// Files that are attached to a collection when it is made.
const MAX_FIRST_FILES: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct CreateFields {
    name: Option<String>,
    description: Option<String>,
    file_ids: Option<Vec<String>>,
    chunking_strategy: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    /// Public name of a model; an extension.
    embedding_model: Option<String>,
    /// Name of a retriever; an extension.
    retriever: Option<String>,
    expires_after: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct UpdateFields {
    name: Option<String>,
    metadata: Option<Map<String, Value>>,
    /// Name of a retriever, or an empty text for none; an extension.
    retriever: Option<String>,
    expires_after: Option<Value>,
}

/// The fields of a body that makes a collection, for the contract.
pub(super) fn create_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<CreateFields>()
}

/// The fields of a body that changes one.
pub(super) fn update_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<UpdateFields>()
}

/// `POST /v1/vector_stores`
pub(super) async fn create(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Handled {
    let mut request = asked(&collections, &context, STORES, request).await?;
    let state = &collections.api;
    let object = std::mem::take(&mut request.object);
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: CreateFields = reader.read()?;
    no_expiry(fields.expires_after.as_ref(), &mut reader)?;
    reader.finish(|_| false)?;
    let name = named(fields.name)?;
    let files = fields.file_ids.unwrap_or_default();
    if files.len() > MAX_FIRST_FILES {
        let message = format!(
            "`file_ids` has {} files; the limit is {MAX_FIRST_FILES}",
            files.len()
        );
        return Err(Problem::invalid("file_ids", message));
    }
    let (model, name_of_model) =
        embedder_of(state, fields.embedding_model.as_deref(), "embedding_model")?;
    let strategy = fields.chunking_strategy.map(Value::Object);
    let chunking = chunking_of(strategy.as_ref(), room_for_documents(&model))?;
    may_embed(&collections, (&context, STORES), &request, &name_of_model).await?;
    let owner = Arc::clone(&request.caller.owner);
    state.store.promise(&owner).await.map_err(store_problem)?;
    let mut ids = Ids::of(&request.parts);
    let created = now();
    let key = Key::new(&owner, RecordKind::VectorStore, ids.make("vs_"));
    let retriever = retriever(&collections, &context, &request, fields.retriever)?;
    let object = json!({
        "id": key.id,
        "object": "vector_store",
        "created_at": created,
        "name": name,
        "description": fields.description,
        "metadata": fields.metadata.unwrap_or_default(),
        "last_active_at": created,
        "expires_after": null,
        "expires_at": null,
        "embedding_model": name_of_model,
        "retriever": retriever,
    });
    let made = Collection::new(key, created, object, &name_of_model);
    let change = Change::Put(made.record());
    state
        .store
        .commit(vec![change])
        .await
        .map_err(store_problem)?;
    for file in &files {
        let attached = Attached {
            file,
            param: "file_ids",
            chunking,
            attributes: json!({}),
        };
        begin(&collections, &request.caller, &made, attached).await?;
    }
    let body = shown(&collections, &made).await?;
    Ok(request.caller.answer(&body))
}

/// `GET /v1/vector_stores`
pub(super) async fn list(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, STORES, "GET", &parts).await?;
    let query = QueryParameters::of(&parts.uri, &["after", "limit", "order"])?;
    let listing = all(&collections.api, &caller.owner, query.page(false)?, |_| {
        true
    })
    .await?;
    let mut entries = Vec::new();
    for collection in &listing.entries {
        entries.push(shown(&collections, collection).await?);
    }
    let more = listing.more;
    Ok(caller.answer(&list_body(RecordPage { entries, more })))
}

/// `GET /v1/vector_stores/{id}`
pub(super) async fn retrieve(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, STORE, "GET", &parts).await?;
    let found = collection(&collections.api, &caller.owner, &id, "vector_store_id").await?;
    Ok(caller.answer(&shown(&collections, &found).await?))
}

/// `POST /v1/vector_stores/{id}`
pub(super) async fn update(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let mut request = asked(&collections, &context, STORE, request).await?;
    let object = std::mem::take(&mut request.object);
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: UpdateFields = reader.read()?;
    no_expiry(fields.expires_after.as_ref(), &mut reader)?;
    reader.finish(|_| false)?;
    let state = &collections.api;
    let found = collection(state, &request.caller.owner, &id, "vector_store_id").await?;
    let name = fields.name.map(|name| named(Some(name))).transpose()?;
    let changes = fields.retriever.is_some();
    let retriever = retriever(&collections, &context, &request, fields.retriever)?;
    let changed = change(state, &found.key, |of| {
        if changes {
            of.object["retriever"] = json!(retriever);
        }
        if let Some(name) = &name {
            of.object["name"] = json!(name);
        }
        if let Some(metadata) = &fields.metadata {
            of.object["metadata"] = json!(metadata);
        }
        Some(of.clone())
    });
    let found = changed.await.map_err(store_problem)?;
    let found = found.ok_or_else(|| absent("vector store", &id, "vector_store_id"))?;
    Ok(request.caller.answer(&shown(&collections, &found).await?))
}

/// `DELETE /v1/vector_stores/{id}`
pub(super) async fn delete(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&collections.api, &context, STORE, "DELETE", &parts).await?;
    let found = collection(&collections.api, &caller.owner, &id, "vector_store_id").await?;
    collections.drop_collection(&found).await?;
    let body = json!({"id": id, "object": "vector_store.deleted", "deleted": true});
    Ok(caller.answer(&body))
}

/// The retriever that a body names, which must be there; `None` of an empty text.
fn retriever(
    collections: &Collections,
    context: &Context,
    request: &VectorStoreRequest,
    name: Option<String>,
) -> Result<Option<String>, Problem> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let asker = RetrieverCaller::of(&context.id, request.caller.principal());
    Retrieval::named(&collections.api, &name, "", asker, "retriever")?;
    Ok(Some(name))
}

fn named(name: Option<String>) -> Result<String, Problem> {
    let name = name.unwrap_or_default();
    match name.chars().count() <= MAX_FILE_NAME {
        true => Ok(name),
        false => {
            let message = format!("`name` must have at most {MAX_FILE_NAME} characters");
            Err(Problem::invalid("name", message))
        }
    }
}

fn no_expiry(given: Option<&Value>, reader: &mut FieldReader) -> Result<(), Problem> {
    match given {
        None => Ok(()),
        Some(_) => {
            let why = "vector stores stay until they are deleted";
            reader.unsupported(&"expires_after".into(), why)
        }
    }
}

/// Files of a collection by their status, with what they take.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    in_progress: u64,
    completed: u64,
    failed: u64,
    total: u64,
    bytes: u64,
    /// Chunks that are stored.
    pub(super) chunks: u64,
}

impl Counts {
    pub(super) fn add(&mut self, member: &StoredDocument) {
        match member.status() {
            "in_progress" => self.in_progress += 1,
            "completed" => self.completed += 1,
            _ => self.failed += 1,
        }
        self.total += 1;
        self.bytes += member.object["usage_bytes"].as_u64().unwrap_or(0);
        let done = member.object["progress"]["chunks_done"].as_u64();
        self.chunks += done.unwrap_or(0);
    }

    /// The object of a collection with these numbers.
    pub(super) fn shown(&self, of: &Collection) -> Value {
        let mut object = of.object.clone();
        object["usage_bytes"] = json!(self.bytes);
        object["file_counts"] = json!({
            "in_progress": self.in_progress,
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": 0,
            "total": self.total,
        });
        object["status"] = json!(match self.in_progress {
            0 => "completed",
            _ => "in_progress",
        });
        object
    }
}

/// A collection as clients see it, with the numbers of its files.
pub(super) async fn shown(
    collections: &Arc<Collections>,
    of: &Collection,
) -> Result<Value, Problem> {
    let (mut counts, mut after) = (Counts::default(), None);
    loop {
        let some = members(&collections.api, &of.space(), after, 500, true).await?;
        some.entries.iter().for_each(|member| counts.add(member));
        after = some.entries.last().map(StoredDocument::file);
        if !some.more {
            return Ok(counts.shown(of));
        }
    }
}
