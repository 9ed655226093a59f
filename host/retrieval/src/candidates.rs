//! Rows that may be among the nearest, while a scan of rounded vectors goes on.

use crate::ranked::{best, nth_highest};

/// Rows that are kept for one that is wanted, before those that cannot be among the nearest are dropped.
const ROOM: usize = 4;

/// A row with the similarity of its copy, and how far that may be from its own.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: u32,
    near: f32,
    error: f32,
}

/// Candidates of one search. The order of the first `exact` is that of the vectors themselves, and behind them, up to `most`,
/// that of the copies.
#[derive(Debug)]
pub(crate) struct Candidates {
    exact: usize,
    most: usize,
    kept: Vec<Candidate>,
    /// The least upper bound of a similarity with which a row is kept.
    cut: f32,
    room: usize,
    numbers: Vec<f32>,
}

impl Candidates {
    pub(crate) fn new(exact: usize, most: usize) -> Self {
        Self {
            exact: exact.min(most),
            most,
            kept: Vec::new(),
            cut: f32::NEG_INFINITY,
            room: most.saturating_mul(ROOM),
            numbers: Vec::new(),
        }
    }

    /// Keep a row, if it may be among the nearest.
    #[inline]
    pub(crate) fn offer(&mut self, row: u32, near: f32, error: f32) {
        if near + error >= self.cut {
            self.kept.push(Candidate { row, near, error });
            if self.kept.len() >= self.room {
                self.tighten();
            }
        }
    }

    /// Drop rows that are behind enough others in both orders.
    fn tighten(&mut self) {
        let nearest = self.nth(self.most, |one| one.near);
        self.cut = self.least().min(nearest);
        let cut = self.cut;
        self.kept.retain(|one| one.near + one.error >= cut);
        self.room = self.room.max(2 * self.kept.len());
    }

    /// A similarity that at least `exact` rows have: what cannot come to it is not among the nearest so many. Minus infinity
    /// where there are no more rows, and infinity where none is compared.
    fn least(&mut self) -> f32 {
        match self.exact {
            0 => f32::INFINITY,
            exact => self.nth(exact, |one| one.near - one.error),
        }
    }

    fn nth(&mut self, nth: usize, of: impl Fn(&Candidate) -> f32) -> f32 {
        self.numbers.clear();
        self.numbers.extend(self.kept.iter().map(of));
        nth_highest(&mut self.numbers, nth)
    }

    /// The nearest, best first, with their similarities: by `similarity` of those that may be among the first, and else of their
    /// copies.
    pub(crate) fn nearest(mut self, similarity: impl Fn(u32) -> f32) -> Vec<(u32, f32)> {
        let least = self.least();
        let may = |one: &Candidate| one.near + one.error >= least;
        let (may, behind): (Vec<Candidate>, Vec<Candidate>) = self.kept.into_iter().partition(may);
        let compared = may.iter().map(|one| (one.row, similarity(one.row)));
        let mut found = best(compared.collect(), self.most);
        let behind = behind.iter().map(|one| (one.row, one.near));
        let more = best(behind.collect(), self.most - found.len());
        found.extend(more);
        found
    }
}
