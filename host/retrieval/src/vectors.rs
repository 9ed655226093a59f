//! Vectors of all rows, and the rows nearest to a query: exactly, by a scan.
//!
//! The scan is over copies in eight bits, which are a quarter of the memory. How far a copy is from its vector is
//! known, so that the scan bounds each row's similarity from both sides; the few rows that may be among the nearest are compared
//! in full.

use crate::lexical::best;

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
        let mut other = Self::new(self.dimensions);
        for (row, kept) in kept.iter().enumerate() {
            if let (Some(_), Some(vector)) = (kept, self.row(row)) {
                other.push(vector);
            }
        }
        *self = other;
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

    /// The rows nearest to a query, with their similarities, best first; `most` of them that `allowed` lets pass.
    pub(crate) fn search(
        &self,
        query: &[f32],
        most: usize,
        allowed: impl Fn(u32) -> bool,
    ) -> Vec<(u32, f32)> {
        if query.len() != self.dimensions || self.dimensions == 0 || most == 0 {
            return Vec::new();
        }
        let (small, rounded) = round(query);
        let wide: Vec<i16> = small.iter().map(|number| i16::from(*number)).collect();
        let length = dot(query, query).sqrt();
        // The `most`-th of the least similarities so far: what cannot come to that is not among the nearest.
        let mut least = f32::NEG_INFINITY;
        let mut lows = Vec::with_capacity(KEPT * most);
        let mut bounds = Vec::new();
        let rows = self.small.chunks_exact(self.dimensions).zip(&self.rounded);
        for (row, (small, of_row)) in (0u32..).zip(rows) {
            if !allowed(row) {
                continue;
            }
            let near = dot_small(&wide, small) as f32 * rounded.step * of_row.step;
            // |q·v - q̂·v̂| is at most |q - q̂| |v̂| + |q| |v - v̂|; vectors have a length of about 1.
            let error =
                rounded.error * (1.0 + of_row.error + SLACK) + length * of_row.error + SLACK;
            if near + error < least {
                continue;
            }
            bounds.push((row, near + error));
            lows.push(near - error);
            if lows.len() >= KEPT * most {
                lows.select_nth_unstable_by(most - 1, |a, b| b.total_cmp(a));
                lows.truncate(most);
                least = lows.last().copied().unwrap_or(least);
            }
        }
        let near = bounds.into_iter().filter(|(_, most)| *most >= least);
        let exact = near.map(|(row, _)| (row, self.similarity(query, row)));
        best(exact.collect(), most)
    }
}

/// Least similarities that are kept for each wanted row before they are sorted out.
const KEPT: usize = 4;

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
pub(crate) fn dot(one: &[f32], other: &[f32]) -> f32 {
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

/// The same in integers. One sum, which the compiler makes of products of pairs.
fn dot_small(query: &[i16], row: &[i8]) -> i32 {
    let pairs = query.iter().zip(row);
    pairs
        .map(|(query, row)| i32::from(*query) * i32::from(*row))
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let mut vectors = Vectors::new(37);
            rows.iter().for_each(|row| assert!(vectors.push(row)));
            let odd = |row: u32| row % 3 != 1;
            let all = rows.iter().zip(0u32..).filter(|(_, row)| odd(*row));
            let expected = best(all.map(|(vector, row)| (row, dot(&query, vector))).collect(), most);
            prop_assert_eq!(vectors.search(&query, most, odd), expected);
        }
    }

    #[test]
    fn vectors_of_another_size_are_not_taken() {
        let mut vectors = Vectors::new(3);
        assert!(!vectors.push(&[1.0, 0.0]));
        assert!(vectors.push(&[1.0, 0.0, 0.0]));
        assert!(vectors.search(&[1.0], 3, |_| true).is_empty());
        assert!(vectors.search(&[1.0, 0.0, 0.0], 0, |_| true).is_empty());
    }
}
