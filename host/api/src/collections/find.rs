//! A search in a collection.

use std::sync::Arc;

use http::request::Parts;
use mortise_http::{Context, Problem};
use mortise_retrieval::{Attributes, Chunk, Filter, Query, Weights};
use mortise_service::{EmbeddingInput, EmbeddingRequest};

use super::Collections;
use super::ingest::chunk_id;
use super::limits::MAX_SEARCH_TEXT;
use super::stored::Collection;
use crate::embed::embed;
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
    collections: &Arc<Collections>,
    (context, route, parts): (&Context, &'static str, &Parts),
    collection: &Collection,
    search: Search,
    param: &str,
) -> Result<Vec<Found>, Problem> {
    if search.text.trim().is_empty() || search.text.len() > MAX_SEARCH_TEXT {
        let message =
            format!("`{param}` must have 1 to {MAX_SEARCH_TEXT} bytes that are not all blank");
        return Err(Problem::invalid(param, message));
    }
    let request = EmbeddingRequest {
        model: collection.model.clone(),
        inputs: vec![EmbeddingInput::Text(search.text.clone())],
        dimensions: None,
        truncate: true,
    };
    let state = &collections.api;
    let made = embed(state, context, route, parts, request).await?;
    let vector = made.vectors.into_iter().next().unwrap_or_default();
    let index = collections
        .indexes
        .of(state, &collection.key, vector.len())
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
