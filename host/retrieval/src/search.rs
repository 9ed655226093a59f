//! The search: by meaning, by words, or both.

use crate::filter::AttributeFilter;
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
pub struct PassageQuery<'a> {
    /// Text whose words are looked for.
    pub text: &'a str,
    /// Its vector, of length 1; empty if meaning has no share.
    pub vector: &'a [f32],
    /// Shares of the rankings.
    pub weights: Weights,
    /// Results at most, up to [`MAX_RESULTS`].
    pub most: usize,
    /// Documents that are meant; all without one.
    pub filter: Option<&'a AttributeFilter>,
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

/// Results of each ranking, for one that is wanted, and at least.
const DEPTH: usize = 8;
const LEAST_DEPTH: usize = 100;
/// Results of each ranking that are fused. What is far down in one still tells results apart that the other cannot, such as the
/// chunks of one document that all have a rare word.
const FUSED: usize = 1000;

impl PassageQuery<'_> {
    /// Results at most.
    fn most(&self) -> usize {
        self.most.min(MAX_RESULTS)
    }

    /// Results of which some are chosen.
    fn depth(&self) -> usize {
        (self.most() * DEPTH).max(LEAST_DEPTH)
    }

    /// Rows of the ranking by meaning, of which at least the first so many are in their exact order. None where meaning has no
    /// share.
    pub fn near(&self) -> Option<(usize, usize)> {
        let ranked = match self.weights.words > 0.0 {
            true => self.depth().max(FUSED),
            false => self.depth(),
        };
        (self.weights.meaning > 0.0).then_some((self.depth(), ranked))
    }

    /// Rows of the ranking by words. None where words have no share.
    pub fn alike(&self) -> Option<usize> {
        (self.weights.words > 0.0).then(|| self.depth().max(FUSED))
    }

    /// The two rankings as one, best first.
    pub fn merge(&self, near: &[(u32, f32)], alike: &[(u32, f32)]) -> Vec<(u32, f32)> {
        let Weights { meaning, words } = self.weights;
        match words > 0.0 {
            false => near
                .iter()
                .map(|(row, score)| (*row, score.clamp(0.0, 1.0)))
                .collect(),
            true => fuse(&[(near, meaning), (alike, words)], self.depth()),
        }
    }

    /// Rows of the merged ranking whose vectors tell which are results.
    pub fn compared(&self) -> usize {
        match self.least_similarity.is_some() || self.diversity.is_some() {
            true => self.depth(),
            false => self.most(),
        }
    }

    /// The results among the rows of the merged ranking, by the similarities of rows to the query and to one another.
    pub fn choose(
        &self,
        mut found: Vec<(u32, f32)>,
        similarity: impl Fn(u32) -> f32,
        between: impl Fn(u32, u32) -> f32,
    ) -> Vec<(u32, f32)> {
        if let Some(least) = self.least_similarity {
            found.retain(|(row, _)| similarity(*row) >= least);
        }
        if let Some(weight) = self.diversity {
            found = diverse(found, self.most(), weight, between);
        }
        found.truncate(self.most());
        found
    }
}

impl Index {
    /// Chunks that a query finds, best first.
    pub fn search(&self, query: &PassageQuery<'_>) -> Vec<Hit<'_>> {
        let admitted = self.admitted(query.filter);
        let near = query.near();
        let near = near.map(|depth| self.vectors.search(query.vector, depth, &admitted));
        let alike = query.alike();
        let alike = alike.map(|most| self.lexical.search(query.text, most, &admitted));
        let found = query.merge(&near.unwrap_or_default(), &alike.unwrap_or_default());
        let similarity = |row| self.vectors.similarity(query.vector, row);
        let between = |one, other| self.vectors.between(one, other);
        let found = query.choose(found, similarity, between);
        let hits = found.into_iter().filter_map(|(row, score)| {
            let place = self.rows.get(row as usize)?;
            Some(Hit {
                document: self.documents.get(place.document as usize)?,
                chunk: place.chunk,
                score,
                similarity: similarity(row),
            })
        });
        hits.collect()
    }
}

#[cfg(test)]
mod tests;
