//! The highest outputs of rows: what the head of a model is asked for where few tokens are candidates.

use std::sync::{Mutex, PoisonError};

use super::job::Job;
use super::sink::{MOST_TOGETHER, Sink};
use crate::select::Candidate;
use crate::soft_cap::soft_cap;

/// What makes logits of products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitScale {
    /// Factor.
    pub scale: f32,
    /// Bends them towards this bound.
    pub soft_cap: Option<f32>,
}

impl LogitScale {
    /// Products as they are.
    pub const PLAIN: Self = Self {
        scale: 1.0,
        soft_cap: None,
    };

    /// Make logits of products.
    #[inline(always)]
    pub fn apply(self, values: &mut [f32]) {
        if self.scale != 1.0 {
            for value in &mut *values {
                *value *= self.scale;
            }
        }
        if let Some(cap) = self.soft_cap {
            soft_cap(values, cap);
        }
    }
}

/// The best outputs of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// Those with the highest values, the highest first, among equals that of the lowest number. None is
    /// minus infinity.
    pub candidates: Vec<Candidate>,
    /// Whether all values of the row, also those not kept, were numbers below infinity.
    pub all_numbers: bool,
}

impl Best {
    fn none(count: usize) -> Self {
        Self {
            candidates: Vec::with_capacity(count + 1),
            all_numbers: true,
        }
    }

    /// Keep a candidate if it is one of the best `count`.
    #[inline(always)]
    fn take(&mut self, found: Candidate, count: usize) {
        self.all_numbers &= found.value < f32::INFINITY;
        let lowest = match self.candidates.last() {
            Some(last) if self.candidates.len() >= count => *last,
            _ if found.value > f32::NEG_INFINITY => return self.insert(found, count),
            _ => return,
        };
        if is_better(&found, &lowest) {
            self.insert(found, count);
        }
    }

    #[cold]
    fn insert(&mut self, found: Candidate, count: usize) {
        let place = self
            .candidates
            .partition_point(|other| is_better(other, &found));
        self.candidates.insert(place, found);
        self.candidates.truncate(count);
    }
}

fn is_better(a: &Candidate, b: &Candidate) -> bool {
    a.value > b.value || a.value == b.value && a.id < b.id
}

pub(super) fn run(job: &Job<'_>, scale: LogitScale, count: usize) -> Vec<Best> {
    let found = Mutex::new(vec![Best::none(count); job.rows()]);
    job.run(|| Search {
        scale,
        count,
        rows: vec![Best::none(count); job.rows()],
        found: &found,
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The best of a task's outputs.
struct Search<'a> {
    scale: LogitScale,
    count: usize,
    rows: Vec<Best>,
    found: &'a Mutex<Vec<Best>>,
}

impl Sink for Search<'_> {
    #[inline(always)]
    fn put(&mut self, row: usize, first: usize, sums: &[f32]) {
        let best = &mut self.rows[row];
        let mut logits = [0.0; MOST_TOGETHER];
        let logits = &mut logits[..sums.len()];
        logits.copy_from_slice(sums);
        self.scale.apply(logits);
        for (id, value) in (first as u32..).zip(&*logits) {
            best.take(Candidate { id, value: *value }, self.count);
        }
    }

    fn end(self) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (best, own) in found.iter_mut().zip(self.rows) {
            best.all_numbers &= own.all_numbers;
            for candidate in own.candidates {
                best.take(candidate, self.count);
            }
        }
    }
}
