//! Logits: whole rows, or only the highest logit of a row, which is all that greedy sampling reads.

use std::sync::{Arc, Mutex, PoisonError};

use super::job::Job;
use super::sink::{Cells, MOST_TOGETHER, Sink};
use crate::select::Candidate;
use crate::soft_cap::soft_cap;

/// Scaling and soft cap of logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitScale {
    /// Factor.
    pub scale: f32,
    /// Soft cap: `cap * tanh(logit / cap)`.
    pub soft_cap: Option<f32>,
}

impl LogitScale {
    /// Neither scaling nor soft cap.
    pub const PLAIN: Self = Self {
        scale: 1.0,
        soft_cap: None,
    };

    /// Scale and cap products.
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

/// Reduction of a row of logits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedLogits {
    /// The whole row.
    All,
    /// The highest of the allowed ones: all, or those whose bits are 1 in a mask of the kind that
    /// [`apply_mask`](crate::mask::apply_mask) takes.
    Highest(Option<Arc<Vec<u32>>>),
}

/// The highest logit of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Highest {
    /// The lowest output that has it; `None` where all allowed ones are minus infinity or NaN.
    pub candidate: Option<Candidate>,
    /// Whether no logit of the row, allowed or not, is NaN or infinity.
    pub all_numbers: bool,
}

/// Result of a row of logits.
#[derive(Debug, PartialEq)]
pub enum RowLogits<'a> {
    /// The whole row.
    All(&'a mut [f32]),
    /// The highest.
    Highest(Highest),
}

/// Results of rows of logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Whole rows, in their order.
    values: Vec<f32>,
    width: usize,
    /// For each row the highest logit, or `None` if the whole row was asked for.
    highest: Vec<Option<Highest>>,
}

impl Scores {
    /// Whole rows of `width` logits.
    ///
    /// # Panics
    /// If the length of `values` is no multiple of `width`.
    pub fn whole(values: Vec<f32>, width: usize) -> Self {
        assert!(width > 0 && values.len().is_multiple_of(width));
        Self {
            highest: vec![None; values.len() / width],
            values,
            width,
        }
    }

    /// Add a row.
    ///
    /// # Panics
    /// If it has more or fewer logits than the others.
    pub fn push(&mut self, row: RowLogits<'_>) {
        match row {
            RowLogits::All(logits) => {
                assert!(logits.len() == self.width);
                self.values.extend_from_slice(logits);
                self.highest.push(None);
            }
            RowLogits::Highest(highest) => self.highest.push(Some(highest)),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.highest.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.highest.is_empty()
    }

    /// All rows.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = RowLogits<'_>> {
        let mut whole = self.values.chunks_exact_mut(self.width);
        self.highest
            .iter()
            .filter_map(move |highest| match highest {
                Some(highest) => Some(RowLogits::Highest(*highest)),
                None => whole.next().map(RowLogits::All),
            })
    }

    /// Logits of the whole rows.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}

pub(super) fn run(job: &Job<'_>, scale: LogitScale, wanted: &[WantedLogits]) -> Scores {
    assert!(
        job.rows() == wanted.len(),
        "each row says what is wanted of it"
    );
    let (width, mut whole) = (job.outputs(), 0);
    let rows: Vec<Row<'_>> = wanted
        .iter()
        .map(|wanted| match wanted {
            WantedLogits::All => {
                whole += 1;
                Row::Whole(whole - 1)
            }
            WantedLogits::Highest(mask) => {
                Row::Search(mask.as_ref().map(|mask| &mask[..]), Lanes::NONE)
            }
        })
        .collect();
    let mut values = vec![0.0; whole * width];
    let cells = Cells::new(&mut values, whole, width);
    let none = |row: &Row<'_>| match row {
        Row::Whole(_) => None,
        Row::Search(_, lanes) => Some(lanes.highest()),
    };
    let found = Mutex::new(rows.iter().map(none).collect());
    job.run(|| Search {
        scale,
        rows: rows.clone(),
        cells,
        found: &found,
    });
    Scores {
        highest: found.into_inner().unwrap_or_else(PoisonError::into_inner),
        values,
        width,
    }
}

/// A row as one task sees it.
#[derive(Clone)]
enum Row<'a> {
    /// Written to a row of the cells.
    Whole(usize),
    /// Searched, by the mask if there is one.
    Search(Option<&'a [u32]>, Lanes),
}

/// Writes and searches a task's outputs.
struct Search<'a> {
    scale: LogitScale,
    rows: Vec<Row<'a>>,
    cells: Cells,
    found: &'a Mutex<Vec<Option<Highest>>>,
}

impl Sink for Search<'_> {
    #[inline(always)]
    fn put(&mut self, row: usize, first: usize, sums: &[f32]) {
        let mut logits = [0.0; MOST_TOGETHER];
        let logits = &mut logits[..sums.len()];
        logits.copy_from_slice(sums);
        self.scale.apply(logits);
        match &mut self.rows[row] {
            Row::Whole(row) => {
                // SAFETY: a job lives no longer than its output, and gives each output to one task once.
                #[allow(unsafe_code, reason = "tasks write to disjoint columns")]
                let out = unsafe { self.cells.get(*row, first, logits.len()) };
                out.copy_from_slice(logits);
            }
            Row::Search(mask, lanes) => {
                let allowed = mask.map_or(u32::MAX, |mask| bits_from(mask, first));
                lanes.take(first, logits, allowed);
            }
        }
    }

    fn end(self) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (found, row) in found.iter_mut().zip(self.rows) {
            if let (Some(found), Row::Search(_, lanes)) = (found, row) {
                found.join(lanes.highest());
            }
        }
    }
}

/// The bits of outputs from `first` on, as many as a panel has.
#[inline(always)]
fn bits_from(mask: &[u32], first: usize) -> u32 {
    const { assert!(MOST_TOGETHER <= 32) };
    let word = |number| u64::from(mask.get(number).copied().unwrap_or(0));
    let pair = word(first / 32) | word(first / 32 + 1) << 32;
    (pair >> (first % 32)) as u32
}

/// Running maximum in each lane, with the first output of the group that it came with.
#[derive(Clone, Copy)]
struct Lanes {
    highest: [f32; MOST_TOGETHER],
    firsts: [u32; MOST_TOGETHER],
    /// Not 0 in lanes that met NaN or infinity.
    others: [u32; MOST_TOGETHER],
}

impl Lanes {
    const NONE: Self = Self {
        highest: [f32::NEG_INFINITY; MOST_TOGETHER],
        firsts: [u32::MAX; MOST_TOGETHER],
        others: [0; MOST_TOGETHER],
    };

    /// Without branches, so that it vectorises: most logits are not the highest.
    #[inline(always)]
    fn take(&mut self, first: usize, logits: &[f32], allowed: u32) {
        let first = first as u32;
        for (lane, &logit) in logits.iter().enumerate() {
            let (highest, firsts) = (self.highest[lane], self.firsts[lane]);
            self.others[lane] |= u32::from(logit.is_nan() || logit == f32::INFINITY);
            let may = allowed & (1 << lane) != 0;
            let better = (logit > highest) | ((logit == highest) & (first < firsts));
            self.highest[lane] = if may & better { logit } else { highest };
            self.firsts[lane] = if may & better { first } else { firsts };
        }
    }

    fn highest(&self) -> Highest {
        let mut found = Highest {
            candidate: None,
            all_numbers: self.others.iter().all(|others| *others == 0),
        };
        for lane in 0..MOST_TOGETHER {
            let (value, first) = (self.highest[lane], self.firsts[lane]);
            if value > f32::NEG_INFINITY {
                let id = first + lane as u32;
                found.join(Highest {
                    candidate: Some(Candidate { id, value }),
                    all_numbers: true,
                });
            }
        }
        found
    }
}

impl Highest {
    /// The highest of this and of other outputs of the row.
    fn join(&mut self, other: Self) {
        self.all_numbers &= other.all_numbers;
        let better =
            |a: &Candidate, b: &Candidate| a.value > b.value || a.value == b.value && a.id < b.id;
        self.candidate = match (self.candidate, other.candidate) {
            (Some(own), Some(other)) if better(&other, &own) => Some(other),
            (own, other) => own.or(other),
        };
    }
}
