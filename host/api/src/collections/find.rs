//! A search in a collection.

use http::request::Parts;
use mortise_http::{Context, Problem};
use mortise_retrieval::limits::MAX_RESULTS;
use mortise_retrieval::{Attribute, AttributeFilter, Attributes, Weights};
use mortise_search::Lookup;
use mortise_service::{EmbeddingInput, EmbeddingRequest, PromptUse, ScoreRequest};
use serde_json::{Value, json};

use super::limits::{MAX_SEARCH_TEXT, RERANKED};
use super::stored::Collection;
use crate::embed::{embed, score};
use crate::state::ApiState;
use crate::stored::store_problem;

/// A search.
#[derive(Debug, Clone)]
pub(crate) struct ChunkSearch {
    pub(crate) text: String,
    /// Texts that are searched for in its place.
    pub(crate) queries: Vec<String>,
    pub(crate) weights: Weights,
    /// Results at most.
    pub(crate) most: usize,
    pub(crate) filter: Option<AttributeFilter>,
    /// Least similarity of a result.
    pub(crate) least_similarity: Option<f32>,
    pub(crate) diversity: Option<f32>,
    /// Model that scores what was found, and orders it anew.
    pub(crate) rerank: Option<String>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundChunk {
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
    /// Page on which it begins.
    pub(crate) page: Option<u16>,
    pub(crate) text: String,
}

/// Chunks of a collection that a search finds, best first. The text is embedded as a request of the caller's.
pub(crate) async fn find(
    state: &ApiState,
    (context, route, parts): (&Context, &'static str, &Parts),
    collection: &Collection,
    search: ChunkSearch,
    param: &str,
) -> Result<Vec<FoundChunk>, Problem> {
    check_text(&search.text, param)?;
    let asked = questions(collection, &search.queries);
    let made = embed(state, context, route, parts, asked).await?;
    let (most, model) = (search.most, search.rerank.clone());
    let query = search.text.clone();
    let mut found = nearest_of_all(state, collection, search, made.vectors).await?;
    if let Some(request) = model.and_then(|model| ranking(model, query, &found)) {
        let made = score(state, context, route, parts, request).await?;
        reorder(&mut found, &made.values, most);
    }
    Ok(found)
}

/// The request for the vectors of texts that are searched for.
pub(super) fn questions(collection: &Collection, texts: &[String]) -> EmbeddingRequest {
    let inputs = texts.iter().map(|text| EmbeddingInput::Text(text.clone()));
    EmbeddingRequest {
        model: collection.model.clone(),
        inputs: inputs.collect(),
        dimensions: None,
        truncate: true,
        prompt: match collection.prompted {
            true => PromptUse::Query,
            false => PromptUse::Plain,
        },
        allow_remote: false,
    }
}

/// The request for scores of what was found; `None` if there is nothing.
pub(super) fn ranking(model: String, query: String, found: &[FoundChunk]) -> Option<ScoreRequest> {
    let texts: Vec<String> = found.iter().map(|one| one.text.clone()).collect();
    (!texts.is_empty()).then(|| ScoreRequest {
        model,
        queries: vec![query],
        texts,
        truncate: true,
        raw: None,
        search: true,
    })
}

/// Keep the best of what was found by new scores, best first; equal ones in their order.
pub(super) fn reorder(found: &mut Vec<FoundChunk>, scores: &[f32], most: usize) {
    for (one, score) in found.iter_mut().zip(scores) {
        one.score = *score;
    }
    found.sort_by(|one, other| other.score.total_cmp(&one.score));
    found.truncate(most);
}

/// Results that are fetched: more than are wanted where a model orders them anew.
fn candidates(search: &ChunkSearch) -> usize {
    match search.rerank {
        None => search.most,
        Some(_) => search.most.saturating_mul(RERANKED).min(MAX_RESULTS),
    }
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

/// Chunks of a collection that a search for each of its queries finds, best first, with the vectors of the queries. A chunk
/// that several find has the best of its scores.
pub(super) async fn nearest_of_all(
    state: &ApiState,
    collection: &Collection,
    mut search: ChunkSearch,
    vectors: Vec<Vec<f32>>,
) -> Result<Vec<FoundChunk>, Problem> {
    let most = candidates(&search);
    let queries = std::mem::take(&mut search.queries);
    let mut all: Vec<FoundChunk> = Vec::new();
    for (query, vector) in queries.iter().zip(vectors) {
        for chunk in nearest(state, collection, query, &search, vector).await? {
            let there =
                |one: &&mut FoundChunk| (&one.file, one.start) == (&chunk.file, chunk.start);
            match all.iter_mut().find(there) {
                Some(one) if one.score >= chunk.score => {}
                Some(one) => *one = chunk,
                None => all.push(chunk),
            }
        }
    }
    if queries.len() > 1 {
        all.sort_by(|one, other| other.score.total_cmp(&one.score));
        all.truncate(most);
    }
    Ok(all)
}

/// Chunks of a collection that a search with the vector of a query finds, best first.
async fn nearest(
    state: &ApiState,
    collection: &Collection,
    text: &str,
    search: &ChunkSearch,
    vector: Vec<f32>,
) -> Result<Vec<FoundChunk>, Problem> {
    let lookup = Lookup {
        text: text.to_owned(),
        vector,
        weights: search.weights,
        most: candidates(search),
        filter: search.filter.clone(),
        least_similarity: search.least_similarity,
        diversity: search.diversity,
    };
    let found = state.index.search(&collection.space(), lookup).await;
    let found = found.map_err(store_problem)?.into_iter();
    let found = found.map(|one| FoundChunk {
        file: one.document.id,
        name: one.document.name,
        attributes: one.document.attributes,
        score: one.score,
        similarity: one.similarity,
        start: one.chunk.start,
        end: one.chunk.end,
        page: one.chunk.page,
        text: one.chunk.text,
    });
    Ok(found.collect())
}

/// A passage as clients see it, with the page on which it begins, if its document has pages.
pub(crate) fn on_page(mut passage: Value, page: Option<u16>) -> Value {
    if let Some(page) = page {
        passage["page"] = json!(page);
    }
    passage
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
