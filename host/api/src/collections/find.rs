//! A search in a collection.

use http::request::Parts;
use mortise_http::{Context, Problem};
use mortise_retrieval::{Attribute, Attributes, Chunk, Filter, Query, Weights};
use mortise_service::{EmbeddingInput, EmbeddingRequest};
use serde_json::{Value, json};

use super::ingest::chunk_id;
use super::limits::MAX_SEARCH_TEXT;
use super::read;
use super::stored::Collection;
use crate::embed::embed;
use crate::state::ApiState;
use crate::stored::store_problem;

/// A search.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) text: String,
    pub(crate) weights: Weights,
    /// Results at most.
    pub(crate) most: usize,
    pub(crate) filter: Option<Filter>,
    /// Least similarity of a result.
    pub(crate) least_similarity: Option<f32>,
    pub(crate) diversity: Option<f32>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// Id of the file.
    pub(crate) file: String,
    /// Name of the file.
    pub(crate) name: String,
    pub(crate) attributes: Attributes,
    pub(crate) score: f32,
    pub(crate) similarity: f32,
    /// First byte in the document's text.
    pub(crate) start: u32,
    /// Byte behind its last.
    pub(crate) end: u32,
    pub(crate) text: String,
}

/// Chunks of a collection that a search finds, best first. The text is embedded as a request of the caller's.
pub(crate) async fn find(
    state: &ApiState,
    (context, route, parts): (&Context, &'static str, &Parts),
    collection: &Collection,
    search: Search,
    param: &str,
) -> Result<Vec<Found>, Problem> {
    check_text(&search.text, param)?;
    let request = EmbeddingRequest {
        model: collection.model.clone(),
        inputs: vec![EmbeddingInput::Text(search.text.clone())],
        dimensions: None,
        truncate: true,
    };
    let made = embed(state, context, route, parts, request).await?;
    let vector = made.vectors.into_iter().next().unwrap_or_default();
    nearest(state, collection, search, vector).await
}

/// Refuse a text that cannot be searched for.
pub(super) fn check_text(text: &str, param: &str) -> Result<(), Problem> {
    if text.trim().is_empty() || text.len() > MAX_SEARCH_TEXT {
        let message =
            format!("`{param}` must have 1 to {MAX_SEARCH_TEXT} bytes that are not all blank");
        return Err(Problem::invalid(param, message));
    }
    Ok(())
}

/// Chunks of a collection that a search with the vector of its text finds, best first.
pub(super) async fn nearest(
    state: &ApiState,
    collection: &Collection,
    search: Search,
    vector: Vec<f32>,
) -> Result<Vec<Found>, Problem> {
    let (key, dimensions) = (&collection.key, vector.len());
    let revision = super::revision(state, key).await?;
    let index = state
        .indexes
        .of(key, dimensions, revision.as_deref(), || {
            read::index(state, key, dimensions)
        })
        .await?;
    let hits = tokio::task::spawn_blocking(move || {
        let query = Query {
            text: &search.text,
            vector: &vector,
            weights: search.weights,
            most: search.most,
            filter: search.filter.as_ref(),
            least_similarity: search.least_similarity,
            diversity: search.diversity,
        };
        let hits = index.search(&query).into_iter();
        let hits = hits.map(|hit| (hit.document.clone(), hit.chunk, hit.score, hit.similarity));
        hits.collect::<Vec<_>>()
    });
    let failed = |_| {
        let status = http::StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "search_failed", "the search broke off")
    };
    let mut found = Vec::new();
    for (document, number, score, similarity) in hits.await.map_err(failed)? {
        let parent = super::member_key(&collection.key, &document.id);
        let item = state.store.item(parent, chunk_id(number as usize)).await;
        let item = item.map_err(store_problem)?;
        // A document may be removed meanwhile.
        let Some(chunk) = item.and_then(|item| Chunk::decode(&item.body)) else {
            continue;
        };
        found.push(Found {
            file: document.id,
            name: document.name,
            attributes: document.attributes,
            score,
            similarity,
            start: chunk.start,
            end: chunk.end,
            text: chunk.text,
        });
    }
    Ok(found)
}

/// Attributes as clients see them.
pub(crate) fn shown_attributes(attributes: &Attributes) -> Value {
    let members = attributes.iter().map(|(name, value)| {
        let value = match value {
            Attribute::Text(text) => json!(text),
            Attribute::Number(number) => json!(number),
            Attribute::Flag(flag) => json!(flag),
        };
        (name.clone(), value)
    });
    Value::Object(members.collect())
}
