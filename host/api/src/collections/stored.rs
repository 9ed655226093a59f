//! Records of collections and of their documents. The body of each is its object as clients see it, with what they do not
//! see beside it.

use std::sync::Arc;

use mortise_http::Problem;
use mortise_retrieval::{Attributes, Chunking, Document, attributes_of};
use mortise_search::IndexState;
use mortise_service::Principal;
use mortise_store::{Change, Key, Page, Record, RecordFilter, RecordKind, RecordPage, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::chunking::USUAL;
use super::limits::{ATTEMPTS, PAGE, REMOVED_TOGETHER};
use super::member_key;
use crate::state::ApiState;
use crate::stored::{absent, after_absent, found, store_problem};

/// A collection.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    pub(crate) key: Key,
    pub(crate) created: i64,
    pub(crate) object: Value,
    /// Public name of the model that makes its vectors.
    pub(crate) model: String,
    /// True if the model's instructions for documents and for questions are used. Collections that are older than the
    /// instructions are searched without them.
    pub(crate) prompted: bool,
    /// Generation of the vectors: a number that is another one each time that the vectors are made anew.
    pub(super) generation: u32,
    /// Vectors that are being made.
    pub(crate) next: Option<Next>,
    /// Numbers of vectors that are to be removed.
    pub(super) gone: Vec<u32>,
    /// Body of the collection's record as it was read.
    read: Vec<u8>,
}

/// Vectors of a collection that are being made, beside those in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Next {
    /// Public name of the model.
    pub(super) model: String,
    pub(super) generation: u32,
    /// Caller for whom the vectors are made.
    subject: String,
    tenant: Option<String>,
}

/// The part of a collection's record that clients do not see.
#[derive(Default, Serialize, Deserialize)]
struct Hidden {
    model: String,
    #[serde(default)]
    prompted: bool,
    #[serde(default)]
    generation: u32,
    #[serde(default)]
    next: Option<Next>,
    #[serde(default)]
    gone: Vec<u32>,
}

impl Collection {
    /// A collection without documents.
    pub(crate) fn new(key: Key, created: i64, object: Value, model: &str) -> Self {
        let mut made = Self {
            key,
            created,
            object,
            model: model.to_owned(),
            prompted: true,
            generation: 0,
            next: None,
            gone: Vec::new(),
            read: Vec::new(),
        };
        made.read = made.record().body;
        made
    }

    pub(crate) fn record(&self) -> Record {
        let hidden = Hidden {
            model: self.model.clone(),
            prompted: self.prompted,
            generation: self.generation,
            next: self.next.clone(),
            gone: self.gone.clone(),
        };
        let body = json!([self.object, hidden]).to_string();
        Record {
            body: body.into_bytes(),
            ..self.record_of(Vec::new())
        }
    }

    fn record_of(&self, body: Vec<u8>) -> Record {
        Record {
            key: self.key.clone(),
            created: self.created,
            expires: None,
            open: self.next.is_some() || !self.gone.is_empty(),
            body,
        }
    }

    /// Precondition of a commit: fails unless the stored collection is as it was read.
    pub(crate) fn unchanged(&self) -> Change {
        Change::Replace {
            record: self.record_of(self.read.clone()),
            before: self.read.clone(),
        }
    }

    /// Key under which its documents, its index and its mark are.
    pub(crate) fn space(&self) -> Key {
        space(&self.key, self.generation)
    }

    /// Keys under which documents of the collection may be.
    pub(super) fn spaces(&self) -> Vec<Key> {
        let next = self.next.iter().map(|next| next.generation);
        let all = next.chain(self.gone.iter().copied());
        let all = std::iter::once(self.generation).chain(all);
        all.map(|generation| space(&self.key, generation)).collect()
    }

    /// Have new vectors made by a model for a caller. False if some are being made.
    pub(crate) fn renew(&mut self, model: &str, principal: &Principal, started: i64) -> bool {
        if self.next.is_some() {
            return false;
        }
        let used = self.gone.iter().copied().chain([self.generation]);
        self.next = Some(Next {
            model: model.to_owned(),
            generation: used.max().unwrap_or_default().saturating_add(1),
            subject: principal.subject.clone(),
            tenant: principal.tenant.clone(),
        });
        self.object["reembedding"] = json!({
            "status": "in_progress", "embedding_model": model, "files_done": 0, "chunks_done": 0,
            "started_at": started, "ended_at": null, "last_error": null,
        });
        true
    }

    pub(super) fn of(record: &Record) -> Option<Self> {
        let (object, hidden): (Value, Hidden) = serde_json::from_slice(&record.body).ok()?;
        Some(Self {
            key: record.key.clone(),
            created: record.created,
            object,
            model: hidden.model,
            prompted: hidden.prompted,
            generation: hidden.generation,
            next: hidden.next,
            gone: hidden.gone,
            read: record.body.clone(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.object["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> &str {
        &self.key.id
    }

    /// Name of the collection's own retriever.
    pub(crate) fn retriever(&self) -> Option<&str> {
        self.object["retriever"].as_str()
    }
}

/// The part of a document's record that clients do not see.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Inner {
    name: String,
    model: String,
    subject: String,
    tenant: Option<String>,
    /// Tells this record from a later one of the same file.
    attempt: String,
    /// True if the model's instruction for documents is used.
    #[serde(default)]
    prompted: bool,
    /// Name of the collection's own retriever, if it had one when the document was attached.
    #[serde(default)]
    retriever: Option<String>,
    /// In a copy: the `attempt` of the document whose chunks the copy has with other vectors.
    #[serde(default)]
    copied: Option<String>,
}

/// A document of a collection.
#[derive(Debug, Clone)]
pub(crate) struct StoredDocument {
    pub(crate) key: Key,
    pub(crate) created: i64,
    pub(crate) object: Value,
    inner: Inner,
}

impl StoredDocument {
    /// A document that is not ingested yet.
    pub(crate) fn new(
        collection: &Collection,
        (file, name): (&str, &str),
        created: i64,
        chunking: Chunking,
        attributes: Value,
        principal: &Principal,
    ) -> Self {
        let object = json!({
            "id": file,
            "object": "vector_store.file",
            "usage_bytes": 0,
            "created_at": created,
            "vector_store_id": collection.id(),
            "status": "in_progress",
            "last_error": null,
            "chunking_strategy": {"type": "static", "static": {
                "max_chunk_size_tokens": chunking.tokens, "chunk_overlap_tokens": chunking.overlap,
            }},
            "attributes": attributes,
            "filename": name,
            "progress": {"chunks_done": 0, "chunks_total": null},
        });
        Self {
            key: member_key(&collection.space(), file),
            created,
            object,
            inner: Inner {
                name: name.to_owned(),
                model: collection.model.clone(),
                subject: principal.subject.clone(),
                tenant: principal.tenant.clone(),
                attempt: uuid::Uuid::new_v4().simple().to_string(),
                prompted: collection.prompted,
                retriever: collection.retriever().map(str::to_owned),
                copied: None,
            },
        }
    }

    /// Copy of the document for other vectors of its collection, without chunks yet.
    pub(super) fn copy(&self, collection: &Key, next: &Next) -> Self {
        let mut copy = self.clone();
        copy.key = member_key(&space(collection, next.generation), &self.file());
        copy.object["status"] = json!("in_progress");
        copy.inner = Inner {
            name: self.inner.name.clone(),
            model: next.model.clone(),
            subject: next.subject.clone(),
            tenant: next.tenant.clone(),
            attempt: uuid::Uuid::new_v4().simple().to_string(),
            prompted: true,
            retriever: self.inner.retriever.clone(),
            copied: Some(self.inner.attempt.clone()),
        };
        copy
    }

    /// True if the document is a copy of `other`.
    pub(super) fn is_copy_of(&self, other: &Self) -> bool {
        self.inner.copied.as_ref() == Some(&other.inner.attempt)
    }

    /// Give a copy the status of the document.
    pub(super) fn finish_copy(&mut self, of: &Self) {
        self.object["status"] = of.object["status"].clone();
    }

    pub(crate) fn record(&self) -> Record {
        let body = serde_json::to_vec(&(&self.object, &self.inner)).unwrap_or_default();
        Record {
            key: self.key.clone(),
            created: self.created,
            expires: None,
            // Copies are taken up with their collection.
            open: self.status() == "in_progress" && self.inner.copied.is_none(),
            body,
        }
    }

    pub(crate) fn of(record: &Record) -> Option<Self> {
        let (object, inner) = serde_json::from_slice(&record.body).ok()?;
        Some(Self {
            key: record.key.clone(),
            created: record.created,
            object,
            inner,
        })
    }

    /// True if `other` is the same attachment of the file, and not a later one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.inner.attempt == other.inner.attempt
    }

    pub(crate) fn status(&self) -> &str {
        self.object["status"].as_str().unwrap_or_default()
    }

    /// Id of its file.
    pub(crate) fn file(&self) -> String {
        let id = self.key.id.split_once('/');
        id.map_or("", |(_, file)| file).to_owned()
    }

    pub(crate) fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn model(&self) -> &str {
        &self.inner.model
    }

    /// Name of the retriever that divides the document, if the collection has its own.
    pub(super) fn retriever(&self) -> Option<&str> {
        self.inner.retriever.as_deref()
    }

    pub(crate) fn prompted(&self) -> bool {
        self.inner.prompted
    }

    /// Key under which the documents of its collection are.
    pub(crate) fn space(&self) -> Key {
        let id = self.key.id.split_once('/');
        let id = id.map_or("", |(space, _)| space);
        Key::new(&self.key.owner, RecordKind::VectorStore, id)
    }

    /// Caller for whom the document is ingested.
    pub(crate) fn principal(&self) -> Principal {
        Principal {
            subject: self.inner.subject.clone(),
            tenant: self.inner.tenant.clone(),
            labels: Vec::new(),
        }
    }

    pub(crate) fn chunking(&self) -> Chunking {
        let of = |name: &str| {
            let number = self.object["chunking_strategy"]["static"][name].as_u64();
            number.and_then(|number| usize::try_from(number).ok())
        };
        Chunking {
            tokens: of("max_chunk_size_tokens").unwrap_or(USUAL.tokens),
            overlap: of("chunk_overlap_tokens").unwrap_or(0),
        }
    }

    /// The document for the index.
    pub(crate) fn document(&self) -> Document {
        Document {
            id: self.file(),
            name: self.inner.name.clone(),
            attributes: self.attributes(),
        }
    }

    fn attributes(&self) -> Attributes {
        let object = self.object["attributes"].as_object();
        let read = object.and_then(|object| attributes_of(object, "attributes").ok());
        read.unwrap_or_default()
    }
}

/// The document of a record and its state, for the index.
pub(super) fn document_of(record: &Record) -> Option<(Document, IndexState)> {
    let member = StoredDocument::of(record)?;
    let state = match member.status() {
        "completed" => IndexState::Complete,
        "in_progress" => IndexState::UnderWay,
        _ => IndexState::Failed,
    };
    Some((member.document(), state))
}

/// Key under which the documents of a collection with the vectors of a number are, their index and their mark.
pub(super) fn space(collection: &Key, generation: u32) -> Key {
    match generation {
        0 => collection.clone(),
        n => {
            let id = format!("{}~{n}", collection.id);
            Key::new(&collection.owner, collection.kind, id)
        }
    }
}

/// Read a collection from the store, if it is there.
pub(super) async fn load(state: &ApiState, key: &Key) -> Result<Option<Collection>, StoreError> {
    let record = state.store.get(key.clone()).await?;
    Ok(record.as_ref().and_then(Collection::of))
}

/// Change a collection in the store, unless `wanted` declines. `None` if `wanted` declines, or the collection is not
/// there. A conflict where another server makes the vectors of the collection anew.
pub(crate) async fn change<T>(
    state: &ApiState,
    key: &Key,
    wanted: impl Fn(&mut Collection) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    for _ in 0..ATTEMPTS {
        let Some(mut of) = load(state, key).await? else {
            return Ok(None);
        };
        let Some(done) = wanted(&mut of) else {
            return Ok(None);
        };
        let change = Change::Replace {
            record: of.record(),
            before: of.read,
        };
        match state.store.commit(vec![change]).await {
            Err(StoreError::Conflict) => {}
            Err(StoreError::NotFound) => return Ok(None),
            result => return result.map(|()| Some(done)),
        }
    }
    Err(StoreError::Conflict)
}

/// A collection of an owner; a problem that names `param` without one.
pub(crate) async fn collection(
    state: &ApiState,
    owner: &Arc<str>,
    id: &str,
    param: &str,
) -> Result<Collection, Problem> {
    let key = Key::new(owner, RecordKind::VectorStore, id);
    let record = found(state, key, "vector store", param).await?;
    Collection::of(&record).ok_or_else(unreadable)
}

/// The collection that a caller means by its id or its name.
pub(crate) async fn named(
    state: &ApiState,
    owner: &Arc<str>,
    name: &str,
) -> Result<Collection, Problem> {
    if name.starts_with("vs_") {
        return collection(state, owner, name, "collection").await;
    }
    let wanted = name.to_owned();
    let page = Page {
        after: None,
        limit: 2,
        ascending: true,
    };
    let listing = collections(state, owner, page, move |one| one.name() == wanted).await?;
    let mut found = listing.entries.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(absent("collection", name, "collection")),
        _ => {
            let message = "several vector stores have this name; give the id of one";
            Err(Problem::invalid("collection", message))
        }
    }
}

/// The collections of a page that a condition admits.
pub(crate) async fn collections(
    state: &ApiState,
    owner: &Arc<str>,
    page: Page,
    admits: impl Fn(&Collection) -> bool + Send + Sync + 'static,
) -> Result<RecordPage<Collection>, Problem> {
    let after = page.after.clone();
    let filter: RecordFilter = Box::new(move |record| {
        Collection::of(record).is_some_and(|collection| admits(&collection))
    });
    let listing = state
        .store
        .list(owner, RecordKind::VectorStore, page, Some(filter))
        .await;
    let listing = listing.map_err(|error| after_absent("vector store", error, after.as_deref()))?;
    Ok(RecordPage {
        entries: listing.entries.iter().filter_map(Collection::of).collect(),
        more: listing.more,
    })
}

/// A document of a collection.
pub(crate) async fn member(
    state: &ApiState,
    collection: &Key,
    file: &str,
) -> Result<StoredDocument, Problem> {
    let key = member_key(collection, file);
    let record = state.store.get(key).await.map_err(store_problem)?;
    let absent = || absent("file in the vector store", file, "file_id");
    StoredDocument::of(&record.ok_or_else(absent)?).ok_or_else(unreadable)
}

/// Some documents of a collection, behind the one of the id `after`.
pub(crate) async fn members(
    state: &ApiState,
    collection: &Key,
    after: Option<String>,
    limit: usize,
    ascending: bool,
) -> Result<RecordPage<StoredDocument>, Problem> {
    let prefix = format!("{}/", collection.id);
    let behind = after.as_ref().map(|file| format!("{prefix}{file}"));
    let page = Page {
        after: behind,
        limit,
        ascending,
    };
    let filter: RecordFilter = Box::new(move |record| record.key.id.starts_with(&prefix));
    let owner = &collection.owner;
    let listing = state
        .store
        .list(owner, RecordKind::VectorStoreFile, page, Some(filter))
        .await;
    let listing = listing.map_err(|error| after_absent("file", error, after.as_deref()))?;
    Ok(RecordPage {
        entries: listing
            .entries
            .iter()
            .filter_map(StoredDocument::of)
            .collect(),
        more: listing.more,
    })
}

/// Keys of some documents that are under a key.
pub(super) async fn keys(state: &ApiState, space: &Key) -> Result<RecordPage<Key>, StoreError> {
    let prefix = format!("{}/", space.id);
    let page = Page {
        after: None,
        limit: REMOVED_TOGETHER,
        ascending: false,
    };
    let filter: RecordFilter = Box::new(move |record| record.key.id.starts_with(&prefix));
    let some = state.store.list(
        &space.owner,
        RecordKind::VectorStoreFile,
        page,
        Some(filter),
    );
    let some = some.await?;
    Ok(RecordPage {
        entries: some.entries.into_iter().map(|record| record.key).collect(),
        more: some.more,
    })
}

/// Documents of all collections of an owner, as far as `most`.
pub(crate) async fn count(
    state: &ApiState,
    owner: &Arc<str>,
    most: usize,
) -> Result<usize, Problem> {
    let (mut all, mut after) = (0, None);
    loop {
        let page = Page {
            after,
            limit: PAGE,
            ascending: true,
        };
        let some = state
            .store
            .list(owner, RecordKind::VectorStoreFile, page, None)
            .await;
        let some = some.map_err(store_problem)?;
        all += some.entries.len();
        after = some.entries.last().map(|record| record.key.id.clone());
        if !some.more || all >= most {
            return Ok(all);
        }
    }
}

fn unreadable() -> Problem {
    let status = http::StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "unreadable_record", "the record cannot be read")
}
