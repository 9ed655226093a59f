//! Vectors of all rows, and the rows nearest to a query: exactly, by a scan.
//!
//! The scan is over copies in eight bits, which are a quarter of the memory. How far a copy is from its vector is
//! known, so that the scan bounds each row's similarity from both sides; the few rows that may be among the nearest are compared
//! in full. Those behind them, which a fusion of rankings asks for, are in the order of their copies.

use std::ops::Range;

use mortise_kernels::byte_dot::byte_dots;

use crate::candidates::Candidates;

/// Rows whose products are computed together.
const ROWS_TOGETHER: usize = 256;
/// Numbers that are added up together, so that the compiler can use vector instructions.
const LANES: usize = 16;

/// A vector in eight bits.
#[derive(Debug, Clone, Copy)]
struct Rounded {
    /// The size of a step.
    step: f32,
    /// Length of what rounding has left out.
    error: f32,
}

/// Vectors of all rows, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    dimensions: usize,
    full: Vec<f32>,
    small: Vec<i8>,
    rounded: Vec<Rounded>,
}

impl Vectors {
    pub(crate) fn new(dimensions: usize) -> Self {
        Self {
            dimensions,
            ..Self::default()
        }
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Add the next row. False if its vector has another number of dimensions; then nothing is added.
    pub(crate) fn push(&mut self, vector: &[f32]) -> bool {
        if vector.len() != self.dimensions {
            return false;
        }
        let (small, rounded) = round(vector);
        self.full.extend_from_slice(vector);
        self.small.extend_from_slice(&small);
        self.rounded.push(rounded);
        true
    }

    pub(crate) fn bytes(&self) -> usize {
        self.full.len() * 4 + self.small.len() + self.rounded.len() * size_of::<Rounded>()
    }

    /// Keep the rows that have a new place, which are in order.
    pub(crate) fn retain(&mut self, kept: &[Option<u32>]) {
        let (width, mut to) = (self.dimensions, 0);
        for (from, _) in kept.iter().enumerate().filter(|(_, kept)| kept.is_some()) {
            if from != to && from < self.rounded.len() {
                let range = from * width..(from + 1) * width;
                self.full.copy_within(range.clone(), to * width);
                self.small.copy_within(range, to * width);
                self.rounded.copy_within(from..from + 1, to);
            }
            to += 1;
        }
        self.full.truncate(to * width);
        self.small.truncate(to * width);
        self.rounded.truncate(to);
    }

    pub(crate) fn row(&self, row: usize) -> Option<&[f32]> {
        let start = row.checked_mul(self.dimensions)?;
        self.full.get(start..start + self.dimensions)
    }

    /// The similarity of two rows.
    pub(crate) fn between(&self, one: u32, other: u32) -> f32 {
        match (self.row(one as usize), self.row(other as usize)) {
            (Some(one), Some(other)) => dot(one, other),
            _ => 0.0,
        }
    }

    /// The similarity of a row to a query.
    pub(crate) fn similarity(&self, query: &[f32], row: u32) -> f32 {
        self.row(row as usize).map_or(0.0, |row| dot(query, row))
    }

    /// The copies of some rows.
    fn small_rows(&self, rows: &Range<usize>) -> Option<&[i8]> {
        let width = self.dimensions;
        self.small.get(rows.start * width..rows.end * width)
    }

    /// The rows nearest to a query, with their similarities, best first; `most` of those in `ranges`, which are in order. The
    /// order of the first `exact`, at least, is that of the vectors themselves, and behind them that of the copies.
    pub(crate) fn search(
        &self,
        query: &[f32],
        (exact, most): (usize, usize),
        ranges: &[Range<usize>],
    ) -> Vec<(u32, f32)> {
        if query.len() != self.dimensions || self.dimensions == 0 || most == 0 {
            return Vec::new();
        }
        let (small, rounded) = round(query);
        let length = dot(query, query).sqrt();
        let mut candidates = Candidates::new(exact, most);
        let mut products = [0; ROWS_TOGETHER];
        let mut blocks = blocks(ranges).peekable();
        while let Some(block) = blocks.next() {
            let next = blocks.peek().and_then(|next| self.small_rows(next));
            let (Some(rows), Some(of_rows)) =
                (self.small_rows(&block), self.rounded.get(block.clone()))
            else {
                break;
            };
            let products = &mut products[..block.len()];
            byte_dots(&small, rows, next.unwrap_or_default(), products);
            for ((row, product), of_row) in block.zip(products).zip(of_rows) {
                let near = *product as f32 * rounded.step * of_row.step;
                // |q·v - q̂·v̂| is at most |q - q̂| |v̂| + |q| |v - v̂|; vectors have a length of about 1.
                let error = rounded.error * (1.0 + of_row.error + SLACK) + length * of_row.error;
                candidates.offer(row as u32, near, error + SLACK);
            }
        }
        candidates.nearest(|row| self.similarity(query, row))
    }
}

/// Ranges in pieces of rows that are computed together.
fn blocks(ranges: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    ranges.iter().flat_map(|range| {
        let starts = range.clone().step_by(ROWS_TOGETHER);
        starts.map(|start| start..range.end.min(start + ROWS_TOGETHER))
    })
}

/// Rounding of the sums themselves, and of a length that is not quite 1.
const SLACK: f32 = 1e-3;

/// A vector in eight bits.
fn round(vector: &[f32]) -> (Vec<i8>, Rounded) {
    let largest = vector
        .iter()
        .fold(0.0f32, |most, number| most.max(number.abs()));
    let step = (largest / 127.0).max(f32::MIN_POSITIVE);
    let small: Vec<i8> = vector
        .iter()
        .map(|number| (number / step).round() as i8)
        .collect();
    let left = vector.iter().zip(&small).map(|(number, small)| {
        let left = number - f32::from(*small) * step;
        left * left
    });
    let error = left.sum::<f32>().sqrt();
    (small, Rounded { step, error })
}

/// The sum of the products of two vectors.
pub fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (ones, rest) = one.as_chunks::<LANES>();
    let (others, other_rest) = other.as_chunks::<LANES>();
    for (one, other) in ones.iter().zip(others) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    let rest = rest.iter().zip(other_rest).map(|(one, other)| one * other);
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ranked::best;

    fn unit(mut vector: Vec<f32>) -> Vec<f32> {
        let length = dot(&vector, &vector).sqrt().max(1e-6);
        vector.iter_mut().for_each(|number| *number /= length);
        vector
    }

    proptest! {
        /// The scan in eight bits finds what a scan of the vectors themselves does.
        #[test]
        fn the_nearest_rows_are_exact(
            rows in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 37), 1..60),
            query in prop::collection::vec(-1.0f32..1.0, 37), most in 1usize..12,
        ) {
            let rows: Vec<Vec<f32>> = rows.into_iter().map(unit).collect();
            let query = unit(query);
            let rows_in_all = rows.len();
            let mut vectors = Vectors::new(37);
            rows.iter().for_each(|row| assert!(vectors.push(row)));
            // One row of three is left out.
            let ranges: Vec<Range<usize>> = (0..rows_in_all)
                .step_by(3)
                .flat_map(|row| [row..row + 1, row + 2..row + 3])
                .filter(|range| range.end <= rows_in_all)
                .collect();
            let odd = |row: u32| row % 3 != 1;
            let all = rows.iter().zip(0u32..).filter(|(_, row)| odd(*row));
            let expected = best(all.map(|(vector, row)| (row, dot(&query, vector))).collect(), most);
            prop_assert_eq!(&vectors.search(&query, (most, most), &ranges), &expected);
            // Behind those that are exact stand others, each once.
            let more = vectors.search(&query, (most, 2 * most), &ranges);
            prop_assert_eq!(&more[..expected.len()], &expected[..]);
            let rows: std::collections::BTreeSet<u32> = more.iter().map(|(row, _)| *row).collect();
            let all = (0..rows_in_all as u32).filter(|row| odd(*row)).count();
            prop_assert_eq!((more.len(), rows.len()), (all.min(2 * most), more.len()));
        }
    }

    #[test]
    fn vectors_of_another_size_are_not_taken() {
        let mut vectors = Vectors::new(3);
        assert!(!vectors.push(&[1.0, 0.0]));
        assert!(vectors.push(&[1.0, 0.0, 0.0]));
        let all = std::slice::from_ref(&(0..1));
        assert!(vectors.search(&[1.0], (3, 3), all).is_empty());
        assert!(vectors.search(&[1.0, 0.0, 0.0], (0, 0), all).is_empty());
    }
}
