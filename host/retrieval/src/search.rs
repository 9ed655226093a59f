//! The search: by meaning, by words, or both.

use crate::filter::Filter;
use crate::fusion::{diverse, fuse};
use crate::index::{Document, Index};
use crate::limits::MAX_RESULTS;

/// Shares of the two rankings in the one of both. One of 0 leaves its ranking out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Share of the similarity of meaning.
    pub meaning: f32,
    /// Share of the words in common.
    pub words: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            meaning: 1.0,
            words: 1.0,
        }
    }
}

/// A search.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    /// Text whose words are looked for.
    pub text: &'a str,
    /// Its vector, of length 1; empty if meaning has no share.
    pub vector: &'a [f32],
    /// Shares of the rankings.
    pub weights: Weights,
    /// Results at most, up to [`MAX_RESULTS`].
    pub most: usize,
    /// Documents that are meant; all without one.
    pub filter: Option<&'a Filter>,
    /// Least similarity of a result's meaning to the query's.
    pub least_similarity: Option<f32>,
    /// Share of the score against that of being different from better results; `None` minds the scores only.
    pub diversity: Option<f32>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit<'a> {
    /// Its document.
    pub document: &'a Document,
    /// Its number in the document.
    pub chunk: u32,
    /// Score, from 0 to 1 with 1 the best: the similarity where only meaning counts, else the fused rank.
    pub score: f32,
    /// Similarity of its meaning to the query's, -1 to 1; 0 if the query has no vector.
    pub similarity: f32,
}

/// Results of each ranking that are fused, for one that is wanted, and at least.
const DEPTH: usize = 8;
const LEAST_DEPTH: usize = 100;

impl Index {
    /// Chunks that a query finds, best first.
    pub fn search(&self, query: &Query<'_>) -> Vec<Hit<'_>> {
        let most = query.most.min(MAX_RESULTS);
        let depth = (most * DEPTH).max(LEAST_DEPTH);
        let admitted = self.admitted(query.filter);
        let allowed = |row: u32| {
            let place = self.rows.get(row as usize);
            place.is_some_and(|place| {
                let document = admitted.get(place.document as usize);
                document.copied().unwrap_or(false)
            })
        };
        let Weights { meaning, words } = query.weights;
        let near = match meaning > 0.0 {
            true => self.vectors.search(query.vector, depth, allowed),
            false => Vec::new(),
        };
        let mut found = match words > 0.0 {
            false => near
                .iter()
                .map(|(row, score)| (*row, score.clamp(0.0, 1.0)))
                .collect(),
            true => {
                let alike = self.lexical.search(query.text, depth, allowed);
                fuse(&[(&near, meaning), (&alike, words)], depth)
            }
        };
        if let Some(least) = query.least_similarity {
            found.retain(|(row, _)| self.vectors.similarity(query.vector, *row) >= least);
        }
        if let Some(weight) = query.diversity {
            found = diverse(found, most, weight, |one, other| {
                self.vectors.between(one, other)
            });
        }
        found.truncate(most);
        let hits = found.into_iter().filter_map(|(row, score)| {
            let place = self.rows.get(row as usize)?;
            Some(Hit {
                document: self.documents.get(place.document as usize)?,
                chunk: place.chunk,
                score,
                similarity: self.vectors.similarity(query.vector, row),
            })
        });
        hits.collect()
    }
}

#[cfg(test)]
mod tests;
