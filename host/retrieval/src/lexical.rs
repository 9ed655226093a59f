//! BM25: chunks by the words that they share with a query, rare words first.

use std::collections::{BTreeMap, HashMap};

use crate::limits::MAX_QUERY_TERMS;
use crate::terms::terms;

/// Weight of repetitions, and of a chunk's length: those that Lucene and `bm25s` have come with.
const K1: f32 = 1.5;
const B: f32 = 0.75;

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
        let mut counts = HashMap::<String, u32>::new();
        let mut length = 0;
        for term in terms(text) {
            *counts.entry(term).or_default() += 1;
            length += 1;
        }
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

    /// Rows that have a word of the query, with their scores, best first; `most` of them that `allowed` lets pass.
    pub(crate) fn search(
        &self,
        query: &str,
        most: usize,
        allowed: impl Fn(u32) -> bool,
    ) -> Vec<(u32, f32)> {
        let mut wanted = BTreeMap::<String, f32>::new();
        for term in terms(query).take(MAX_QUERY_TERMS) {
            *wanted.entry(term).or_default() += 1.0;
        }
        let rows = self.lengths.len() as f32;
        let mean = (self.total as f32 / rows.max(1.0)).max(f32::MIN_POSITIVE);
        let mut scores = vec![0.0f32; self.lengths.len()];
        let mut touched = Vec::new();
        for (term, times) in wanted {
            let Some(found) = self.postings.get(term.as_str()) else {
                continue;
            };
            let having = found.len() as f32;
            let rarity = (1.0 + (rows - having + 0.5) / (having + 0.5)).ln() * times;
            for &(row, count) in found {
                let place = row as usize;
                let (Some(score), Some(length)) = (scores.get_mut(place), self.lengths.get(place))
                else {
                    continue;
                };
                if *score == 0.0 {
                    if !allowed(row) {
                        continue;
                    }
                    touched.push(row);
                }
                let count = count as f32;
                let norm = K1 * (1.0 - B + B * *length as f32 / mean);
                *score += rarity * count / (count + norm);
            }
        }
        let score = |row: &u32| scores.get(*row as usize).copied().unwrap_or_default();
        best(
            touched.into_iter().map(|row| (row, score(&row))).collect(),
            most,
        )
    }
}

/// The `most` with the highest scores, best first; of equals the first row.
pub(crate) fn best(mut scored: Vec<(u32, f32)>, most: usize) -> Vec<(u32, f32)> {
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if most == 0 {
        return Vec::new();
    }
    if scored.len() > most {
        scored.select_nth_unstable_by(most - 1, order);
        scored.truncate(most);
    }
    scored.sort_unstable_by(order);
    scored
}
