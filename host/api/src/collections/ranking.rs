//! Options of a search as callers write them, checked.

use mortise_http::Problem;
use mortise_retrieval::limits::MAX_RESULTS;
use mortise_retrieval::{AttributeFilter, Weights};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::find::ChunkSearch;
use crate::fields::{FieldPath, words};

words! {
    /// Order of the results.
    Ranker {
        Auto = "auto",
        Default = "default-2024-11-15",
        None = "none",
    }
}

/// Ranking of results. The shares, the diversity and the model that ranks anew are extensions.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct RankingFields {
    ranker: Option<Ranker>,
    score_threshold: Option<f64>,
    hybrid_search: Option<Shares>,
    diversity: Option<f64>,
    rerank: Option<String>,
}

/// Shares of meaning and of words in the ranking.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Shares {
    embedding_weight: f64,
    text_weight: f64,
}

/// Options that a caller gives.
#[derive(Debug, Default)]
pub(crate) struct RankingOptions {
    pub(crate) filters: Option<Map<String, Value>>,
    pub(crate) most: Option<u32>,
    pub(crate) ranking: Option<RankingFields>,
}

/// Options whose bounds hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct RankingRules {
    weights: Weights,
    pub(crate) most: usize,
    filter: Option<AttributeFilter>,
    threshold: f32,
    diversity: Option<f32>,
    /// Model that scores what was found.
    pub(crate) rerank: Option<String>,
}

impl RankingRules {
    /// The options of `asked`, which stand in the object at `path`, with `usual` results where it does not say.
    pub(crate) fn of(asked: RankingOptions, path: &FieldPath, usual: u32) -> Result<Self, Problem> {
        let ranking = asked.ranking.unwrap_or_default();
        let most = usize::try_from(asked.most.unwrap_or(usual)).ok();
        let most = most.filter(|most| (1..=MAX_RESULTS).contains(most));
        let most = most.ok_or_else(|| {
            let path = path.key("max_num_results");
            wrong(&path, &format!("must be from 1 to {MAX_RESULTS}"))
        })?;
        let inner = path.key("ranking_options");
        let filters = path.key("filters").to_string();
        let filter = asked.filters.map(Value::Object);
        let filter = filter.map(|filter| AttributeFilter::of(&filter, &filters));
        let filter = filter.transpose();
        if ranking.rerank.is_some() && ranking.diversity.is_some() {
            let path = inner.key("diversity");
            let message = "cannot be given beside `rerank`, which orders results by its scores";
            return Err(wrong(&path, message));
        }
        Ok(Self {
            weights: weights(&ranking, &inner)?,
            most,
            filter: filter
                .map_err(|error| Problem::invalid(error.path.clone(), error.to_string()))?,
            threshold: part(&inner.key("score_threshold"), ranking.score_threshold)?.unwrap_or(0.0),
            diversity: part(&inner.key("diversity"), ranking.diversity)?,
            rerank: ranking.rerank,
        })
    }

    /// The usual options with so many results.
    pub(super) fn usual(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// The search for a text.
    pub(crate) fn search(&self, text: String) -> ChunkSearch {
        ChunkSearch {
            queries: vec![text.clone()],
            text,
            weights: self.weights,
            most: self.most,
            filter: self.filter.clone(),
            least_similarity: None,
            diversity: self.diversity,
            rerank: self.rerank.clone(),
        }
    }

    /// True if a score is high enough.
    pub(crate) fn admits(&self, score: f32) -> bool {
        score >= self.threshold
    }
}

fn weights(ranking: &RankingFields, path: &FieldPath) -> Result<Weights, Problem> {
    let inner = path.key("hybrid_search");
    let weights = match (&ranking.hybrid_search, &ranking.ranker) {
        (Some(shares), _) => Weights {
            meaning: part(
                &inner.key("embedding_weight"),
                Some(shares.embedding_weight),
            )?
            .unwrap_or(0.0),
            words: part(&inner.key("text_weight"), Some(shares.text_weight))?.unwrap_or(0.0),
        },
        // By meaning alone.
        (None, Some(Ranker::None)) => Weights {
            meaning: 1.0,
            words: 0.0,
        },
        (None, _) => Weights::default(),
    };
    match weights.meaning + weights.words > 0.0 {
        true => Ok(weights),
        false => Err(wrong(
            &inner,
            "must give one of the two weights more than 0",
        )),
    }
}

/// A number from 0 to 1.
fn part(path: &FieldPath, value: Option<f64>) -> Result<Option<f32>, Problem> {
    match value {
        Some(value) if !(0.0..=1.0).contains(&value) => Err(wrong(path, "must be from 0 to 1")),
        value => Ok(value.map(|value| value as f32)),
    }
}

fn wrong(path: &FieldPath, message: &str) -> Problem {
    Problem::invalid(path.to_string(), format!("`{path}` {message}"))
}
