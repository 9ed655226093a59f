//! BM25: chunks by the words that they share with a query, rare words first.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::limits::MAX_QUERY_TERMS;
use crate::ranked::best_of;
use crate::terms::terms;

/// Weight of repetitions, and of a chunk's length: those that Lucene and `bm25s` have come with.
const K1: f32 = 1.5;
const B: f32 = 0.75;

/// Words of a text, how often it has each, and how many it has in all.
pub fn counted(text: &str) -> (HashMap<String, u32>, u32) {
    let (mut counts, mut length) = (HashMap::<String, u32>::new(), 0);
    for term in terms(text) {
        *counts.entry(term).or_default() += 1;
        length += 1;
    }
    (counts, length)
}

/// Words of a query that are looked up, and how often it has each, in the order in which scores are added.
pub fn wanted(query: &str) -> BTreeMap<String, f32> {
    let mut wanted = BTreeMap::<String, f32>::new();
    for term in terms(query).take(MAX_QUERY_TERMS) {
        *wanted.entry(term).or_default() += 1.0;
    }
    wanted
}

/// Sizes of all rows together, by which words count more or less.
#[derive(Debug, Clone, Copy)]
pub struct LexicalTotals {
    rows: f32,
    mean: f32,
}

impl LexicalTotals {
    /// Totals of so many rows with so many words in all.
    pub fn new(rows: usize, words: u64) -> Self {
        let rows = rows as f32;
        Self {
            rows,
            mean: (words as f32 / rows.max(1.0)).max(f32::MIN_POSITIVE),
        }
    }

    /// Weight of a word that so many rows have, and which a query has so many times.
    pub fn rarity(&self, having: usize, times: f32) -> f32 {
        let having = having as f32;
        (1.0 + (self.rows - having + 0.5) / (having + 0.5)).ln() * times
    }

    /// Addend of a word of this weight to the score of a row that has it `count` times among `length` words.
    pub fn score(&self, rarity: f32, count: u32, length: u32) -> f32 {
        let count = count as f32;
        let norm = K1 * (1.0 - B + B * length as f32 / self.mean);
        rarity * count / (count + norm)
    }
}

/// Words of all rows.
#[derive(Debug, Default)]
pub(crate) struct Lexical {
    /// Rows with a word, in order, and how often they have it.
    postings: HashMap<Box<str>, Vec<(u32, u32)>>,
    /// Words of each row.
    lengths: Vec<u32>,
    total: u64,
    entries: usize,
}

impl Lexical {
    /// Add the next row.
    pub(crate) fn push(&mut self, text: &str) {
        let row = u32::try_from(self.lengths.len()).unwrap_or(u32::MAX);
        let (counts, length) = counted(text);
        self.entries += counts.len();
        for (term, count) in counts {
            let rows = self.postings.entry(term.into_boxed_str()).or_default();
            rows.push((row, count));
        }
        self.lengths.push(length);
        self.total += u64::from(length);
    }

    /// Keep the rows that `kept` gives a new place, which are in order.
    pub(crate) fn retain(&mut self, kept: &[Option<u32>]) {
        let place = |row: u32| kept.get(row as usize).copied().flatten();
        for rows in self.postings.values_mut() {
            rows.retain_mut(|(row, _)| place(*row).map(|new| *row = new).is_some());
        }
        self.postings.retain(|_, rows| !rows.is_empty());
        let mut row = 0;
        self.lengths.retain(|_| {
            row += 1;
            place(row - 1).is_some()
        });
        self.total = self.lengths.iter().copied().map(u64::from).sum();
        self.entries = self.postings.values().map(Vec::len).sum();
    }

    /// About as many bytes as it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries * 8 + self.postings.len() * 64 + self.lengths.len() * 4
    }

    /// Rows that have a word of the query, with their scores, best first; `most` of those in `ranges`, which are in order.
    pub(crate) fn search(
        &self,
        query: &str,
        most: usize,
        ranges: &[Range<usize>],
    ) -> Vec<(u32, f32)> {
        let totals = LexicalTotals::new(self.lengths.len(), self.total);
        let mut scores = vec![0.0f32; self.lengths.len()];
        for (term, times) in wanted(query) {
            let Some(found) = self.postings.get(term.as_str()) else {
                continue;
            };
            let rarity = totals.rarity(found.len(), times);
            for &(row, count) in found {
                let place = row as usize;
                if let (Some(score), Some(length)) =
                    (scores.get_mut(place), self.lengths.get(place))
                {
                    *score += totals.score(rarity, count, *length);
                }
            }
        }
        let scored = ranges.iter().flat_map(|range| {
            let scores = scores.get(range.clone()).unwrap_or_default();
            range.clone().zip(scores)
        });
        let scored = scored.filter(|(_, score)| **score > 0.0);
        best_of(scored.map(|(row, score)| (row as u32, *score)), most)
    }
}
