//! `POST /v1/vector_stores/{id}/search`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::SEARCH;
use super::request::{VectorStoreRequest as Request, asked};
use crate::collections::{
    Collection, Collections, FoundChunk, RankingFields, RankingOptions as Options, RankingRules,
    Retrieval, RetrieverCaller, collection, find, on_page, shown_attributes,
};
use crate::fields::{FieldPath, FieldReader, RouteFields, TextOrTexts};
use crate::unsupported::Unsupported;

/// Results where the caller does not say, as at OpenAI.
const USUAL_RESULTS: u32 = 10;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct SearchFields {
    query: TextOrTexts,
    filters: Option<Map<String, Value>>,
    max_num_results: Option<u32>,
    ranking_options: Option<RankingFields>,
    rewrite_query: Option<bool>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<SearchFields>()
}

/// `POST /v1/vector_stores/{id}/search`
pub(super) async fn search(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let mut request = asked(&collections, &context, SEARCH, request).await?;
    let object = std::mem::take(&mut request.object);
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: SearchFields = reader.read()?;
    reader.finish(|_| false)?;
    let asked = Options {
        filters: fields.filters,
        most: fields.max_num_results,
        ranking: fields.ranking_options,
    };
    let rules = RankingRules::of(asked, &FieldPath::default(), USUAL_RESULTS)?;
    let query = fields.query.0.join("\n");
    let mut search = rules.search(query.clone());
    let owner = &request.caller.owner;
    let of = collection(&collections.api, owner, &id, "vector_store_id").await?;
    if fields.rewrite_query == Some(true) {
        search.queries = rewritten(&collections, &context, &request, &of, &query).await?;
    }
    let queries = search.queries.clone();
    let asker = (&context, SEARCH, &request.parts);
    let mut found = find(&collections.api, asker, &of, search, "query").await?;
    found.retain(|hit| rules.admits(hit.score));
    let body = json!({
        "object": "vector_store.search_results.page",
        "search_query": queries,
        "data": found.iter().map(row).collect::<Vec<_>>(),
        "has_more": false,
        "next_page": null,
    });
    Ok(request.caller.answer(&body))
}

/// The queries that the retriever of a collection makes of one.
async fn rewritten(
    collections: &Collections,
    context: &Context,
    request: &Request,
    of: &Collection,
    query: &str,
) -> Result<Vec<String>, Problem> {
    let asker = RetrieverCaller::of(&context.id, request.caller.principal());
    let retrieval = Retrieval::of(&collections.api, of, asker)?;
    match retrieval.filter(Retrieval::rewrites) {
        Some(retrieval) => retrieval.queries(query).await,
        None => {
            let why = "the vector store has no retriever that rewrites queries";
            Err(Problem::unsupported("rewrite_query", why))
        }
    }
}

fn row(found: &FoundChunk) -> Value {
    let content = json!({
        "type": "text", "text": found.text, "start": found.start, "end": found.end,
    });
    json!({
        "file_id": found.file,
        "filename": found.name,
        "score": found.score,
        "attributes": shown_attributes(&found.attributes),
        "content": [on_page(content, found.page)],
    })
}
