//! `POST /v1/vector_stores/{id}/search`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem};
use mortise_retrieval::limits::MAX_RESULTS;
use mortise_retrieval::{Attribute, Attributes, Filter, Weights};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::SEARCH;
use super::request::{asked, wrong};
use crate::collections::{Collections, Found, Search, collection, find};
use crate::fields::{FieldReader, Fields, Texts, words};
use crate::unsupported::Unsupported;

/// Results where the caller does not say, as at OpenAI.
const USUAL_RESULTS: u32 = 10;

words! {
    /// Order of the results.
    Ranker {
        Auto = "auto",
        Default = "default-2024-11-15",
        None = "none",
    }
}

/// Ranking of results. The shares and the diversity are extensions.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Ranking {
    ranker: Option<Ranker>,
    score_threshold: Option<f64>,
    hybrid_search: Option<Shares>,
    diversity: Option<f64>,
}

/// Shares of meaning and of words in the ranking.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Shares {
    embedding_weight: f64,
    text_weight: f64,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct SearchFields {
    query: Texts,
    filters: Option<Map<String, Value>>,
    max_num_results: Option<u32>,
    ranking_options: Option<Ranking>,
    rewrite_query: Option<bool>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> Fields {
    Fields::new(Unsupported::Refuse).with::<SearchFields>()
}

/// `POST /v1/vector_stores/{id}/search`
pub(super) async fn search(
    State(collections): State<Arc<Collections>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let request = asked(&collections, &context, SEARCH, request).await?;
    let mut reader = FieldReader::new(request.object, Unsupported::Refuse);
    let fields: SearchFields = reader.read()?;
    if fields.rewrite_query == Some(true) {
        let why = "queries are searched as they are written";
        reader.unsupported(&"rewrite_query".into(), why)?;
    }
    reader.finish(|_| false)?;
    let (search, threshold) = parse(fields)?;
    let query = search.text.clone();
    let owner = &request.caller.owner;
    let of = collection(&collections.api, owner, &id, "vector_store_id").await?;
    let asker = (&context, SEARCH, &request.parts);
    let mut found = find(&collections, asker, &of, search, "query").await?;
    found.retain(|hit| f64::from(hit.score) >= threshold);
    let body = json!({
        "object": "vector_store.search_results.page",
        "search_query": [query],
        "data": found.iter().map(row).collect::<Vec<_>>(),
        "has_more": false,
        "next_page": null,
    });
    Ok(request.caller.answer(&body))
}

fn parse(fields: SearchFields) -> Result<(Search, f64), Problem> {
    let ranking = fields.ranking_options.unwrap_or_default();
    let most = fields.max_num_results.unwrap_or(USUAL_RESULTS);
    let most = usize::try_from(most)
        .ok()
        .filter(|most| (1..=MAX_RESULTS).contains(most));
    let most = most.ok_or_else(|| {
        let message = format!("`max_num_results` must be from 1 to {MAX_RESULTS}");
        Problem::invalid("max_num_results", message)
    })?;
    let part = |name: &str, value: Option<f64>| match value {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            let path = format!("ranking_options.{name}");
            let message = format!("`{path}` must be from 0 to 1");
            Err(Problem::invalid(path, message))
        }
        value => Ok(value.map(|value| value as f32)),
    };
    let weights = match (&ranking.hybrid_search, &ranking.ranker) {
        (Some(shares), _) => Weights {
            meaning: part(
                "hybrid_search.embedding_weight",
                Some(shares.embedding_weight),
            )?
            .unwrap_or(0.0),
            words: part("hybrid_search.text_weight", Some(shares.text_weight))?.unwrap_or(0.0),
        },
        // By meaning alone.
        (None, Some(Ranker::None)) => Weights {
            meaning: 1.0,
            words: 0.0,
        },
        (None, _) => Weights::default(),
    };
    if weights.meaning + weights.words <= 0.0 {
        let message =
            "`ranking_options.hybrid_search` must give one of the two weights more than 0";
        return Err(Problem::invalid("ranking_options.hybrid_search", message));
    }
    let filter = fields.filters.map(Value::Object);
    let filter = filter
        .map(|filter| Filter::of(&filter, "filters"))
        .transpose();
    let threshold = part("score_threshold", ranking.score_threshold)?;
    let search = Search {
        text: fields.query.0.join("\n"),
        weights,
        most,
        filter: filter.map_err(wrong)?,
        least_similarity: None,
        diversity: part("diversity", ranking.diversity)?,
    };
    Ok((search, f64::from(threshold.unwrap_or(0.0))))
}

fn row(found: &Found) -> Value {
    json!({
        "file_id": found.file,
        "filename": found.name,
        "score": found.score,
        "attributes": shown(&found.attributes),
        "content": [{
            "type": "text", "text": found.text, "start": found.start, "end": found.end,
        }],
    })
}

fn shown(attributes: &Attributes) -> Value {
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
