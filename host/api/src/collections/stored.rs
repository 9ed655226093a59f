//! Records of collections and of their documents. The body of each is its object as clients see it, with what they do not
//! see beside it.

use std::sync::Arc;

use mortise_http::Problem;
use mortise_retrieval::{Attributes, Chunking, Document, attributes_of};
use mortise_service::Principal;
use mortise_store::{Filter, Key, Kind, Listing, Page, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::limits::PAGE;
use super::member_key;
use crate::state::ApiState;
use crate::stored::{absent, after_absent, found, store_problem};

/// Chunks where the caller does not say, as at OpenAI; shorter where the model takes less.
const USUAL: Chunking = Chunking {
    tokens: 800,
    overlap: 400,
};

/// Tokens that models put around a text.
const AROUND: usize = 2;

/// A collection.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    pub(crate) key: Key,
    pub(crate) created: i64,
    pub(crate) object: Value,
    /// Public name of the model that makes its vectors.
    pub(crate) model: String,
    /// True if the model's instructions for documents and for questions are used. Those that were made before there were
    /// any are searched without.
    pub(crate) prompted: bool,
}

/// The part of a collection's record that clients do not see.
#[derive(Serialize, Deserialize)]
struct Hidden {
    model: String,
    #[serde(default)]
    prompted: bool,
}

impl Collection {
    pub(crate) fn record(&self) -> Record {
        let hidden = Hidden {
            model: self.model.clone(),
            prompted: self.prompted,
        };
        let body = json!([self.object, hidden]);
        Record {
            key: self.key.clone(),
            created: self.created,
            expires: None,
            open: false,
            body: body.to_string().into_bytes(),
        }
    }

    fn of(record: &Record) -> Option<Self> {
        let (object, hidden): (Value, Hidden) = serde_json::from_slice(&record.body).ok()?;
        Some(Self {
            key: record.key.clone(),
            created: record.created,
            object,
            model: hidden.model,
            prompted: hidden.prompted,
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.object["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> &str {
        &self.key.id
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
}

/// A document of a collection.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) created: i64,
    pub(crate) object: Value,
    inner: Inner,
}

impl Member {
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
            key: member_key(&collection.key, file),
            created,
            object,
            inner: Inner {
                name: name.to_owned(),
                model: collection.model.clone(),
                subject: principal.subject.clone(),
                tenant: principal.tenant.clone(),
                attempt: uuid::Uuid::new_v4().simple().to_string(),
                prompted: collection.prompted,
            },
        }
    }

    pub(crate) fn record(&self) -> Record {
        let body = serde_json::to_vec(&(&self.object, &self.inner)).unwrap_or_default();
        Record {
            key: self.key.clone(),
            created: self.created,
            expires: None,
            open: self.status() == "in_progress",
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

    /// True if a record is this one, and not of the same file attached anew.
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

    pub(crate) fn prompted(&self) -> bool {
        self.inner.prompted
    }

    pub(crate) fn collection_key(&self) -> Key {
        let id = self.key.id.split_once('/');
        let id = id.map_or("", |(collection, _)| collection);
        Key::new(&self.key.owner, Kind::VectorStore, id)
    }

    /// Caller for whom it is ingested.
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

/// A collection of an owner; a problem that names `param` without one.
pub(crate) async fn collection(
    state: &ApiState,
    owner: &Arc<str>,
    id: &str,
    param: &str,
) -> Result<Collection, Problem> {
    let key = Key::new(owner, Kind::VectorStore, id);
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
) -> Result<Listing<Collection>, Problem> {
    let after = page.after.clone();
    let filter: Filter = Box::new(move |record| {
        Collection::of(record).is_some_and(|collection| admits(&collection))
    });
    let listing = state
        .store
        .list(owner, Kind::VectorStore, page, Some(filter))
        .await;
    let listing = listing.map_err(|error| after_absent("vector store", error, after.as_deref()))?;
    Ok(Listing {
        entries: listing.entries.iter().filter_map(Collection::of).collect(),
        more: listing.more,
    })
}

/// A document of a collection.
pub(crate) async fn member(
    state: &ApiState,
    collection: &Key,
    file: &str,
) -> Result<Member, Problem> {
    let key = member_key(collection, file);
    let record = state.store.get(key).await.map_err(store_problem)?;
    let absent = || absent("file in the vector store", file, "file_id");
    Member::of(&record.ok_or_else(absent)?).ok_or_else(unreadable)
}

/// Some documents of a collection, behind the one of the id `after`.
pub(crate) async fn members(
    state: &ApiState,
    collection: &Key,
    after: Option<String>,
    limit: usize,
    ascending: bool,
) -> Result<Listing<Member>, Problem> {
    let prefix = format!("{}/", collection.id);
    let behind = after.as_ref().map(|file| format!("{prefix}{file}"));
    let page = Page {
        after: behind,
        limit,
        ascending,
    };
    let filter: Filter = Box::new(move |record| record.key.id.starts_with(&prefix));
    let owner = &collection.owner;
    let listing = state
        .store
        .list(owner, Kind::VectorStoreFile, page, Some(filter))
        .await;
    let listing = listing.map_err(|error| after_absent("file", error, after.as_deref()))?;
    Ok(Listing {
        entries: listing.entries.iter().filter_map(Member::of).collect(),
        more: listing.more,
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
            .list(owner, Kind::VectorStoreFile, page, None)
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

/// The size of chunks that a `chunking_strategy` asks for, within a model's context.
pub(crate) fn chunking_of(strategy: Option<&Value>, context: usize) -> Result<Chunking, Problem> {
    let room = context.saturating_sub(AROUND).max(1);
    let usual = Chunking {
        tokens: USUAL.tokens.min(room),
        overlap: USUAL.overlap.min(room / 2),
    };
    let path = "chunking_strategy";
    let wrong = |path: String, message: String| {
        Err(Problem::invalid(
            path.clone(),
            format!("`{path}` {message}"),
        ))
    };
    let strategy = match strategy {
        None | Some(Value::Null) => return Ok(usual),
        Some(strategy) => strategy,
    };
    match strategy["type"].as_str() {
        Some("auto") => return Ok(usual),
        Some("static") => {}
        _ => {
            return wrong(
                format!("{path}.type"),
                "must be `auto` or `static`".to_owned(),
            );
        }
    }
    let number = |name: &str| {
        let value = strategy["static"][name].as_u64();
        value.and_then(|value| usize::try_from(value).ok())
    };
    let most = room.min(4096);
    let tokens = number("max_chunk_size_tokens").filter(|tokens| (1..=most).contains(tokens));
    let Some(tokens) = tokens else {
        let message =
            format!("must be from 1 to {most}: the model embeds texts of {context} tokens");
        return wrong(format!("{path}.static.max_chunk_size_tokens"), message);
    };
    let overlap = number("chunk_overlap_tokens").filter(|overlap| *overlap <= tokens / 2);
    let Some(overlap) = overlap else {
        let message = "must be from 0 to half of `max_chunk_size_tokens`".to_owned();
        return wrong(format!("{path}.static.chunk_overlap_tokens"), message);
    };
    Ok(Chunking { tokens, overlap })
}
