//! Products of queries with keys, their softmax, and products of weights with values, vectorised by the
//! compiler.

use crate::exp::exp;
use crate::kv_page::BLOCK_TOKENS;

/// Scaled products of a query with the keys of all slots of a block. Even and odd dimensions are
/// summed apart, as the vector path does.
pub(super) fn scores(query: &[f32], keys: &[f32], scale: f32) -> [f32; BLOCK_TOKENS] {
    let mut sums = [[0.0f32; BLOCK_TOKENS]; 2];
    for (dimension, (query, keys)) in query
        .iter()
        .zip(keys.chunks_exact(BLOCK_TOKENS))
        .enumerate()
    {
        for (sum, key) in sums[dimension % 2].iter_mut().zip(keys) {
            *sum += query * key;
        }
    }
    std::array::from_fn(|slot| (sums[0][slot] + sums[1][slot]) * scale)
}

/// Add columns from `first` on of the value rows of slots, `dim` numbers each and each times its weight.
pub(super) fn add_columns(
    sums: &mut [f32],
    weights: &[f32],
    values: &[f32],
    (first, dim): (usize, usize),
) {
    for (weight, row) in weights.iter().zip(values.chunks_exact(dim)) {
        for (sum, value) in sums[first..].iter_mut().zip(&row[first..]) {
            *sum += weight * value;
        }
    }
}

/// Make weights of the scores of a block, relative to the highest of them and of `highest`: that, and the
/// sum of the weights. Slots outside of those that are seen have weight 0.
pub(super) fn weigh(
    scores: &mut [f32; BLOCK_TOKENS],
    (skipped, filled): (usize, usize),
    highest: f32,
) -> (f32, f32) {
    scores[..skipped].fill(f32::NEG_INFINITY);
    scores[filled..].fill(f32::NEG_INFINITY);
    let highest = larger(highest, reduce(*scores, larger));
    for weight in &mut *scores {
        *weight = exp(*weight - highest);
    }
    scores[..skipped].fill(0.0);
    scores[filled..].fill(0.0);
    (highest, reduce(*scores, |a, b| a + b))
}

/// Combine the numbers of a block by halves: a fixed order without a chain of sixteen steps.
#[inline(always)]
fn reduce(numbers: [f32; BLOCK_TOKENS], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut numbers = numbers;
    let mut width = BLOCK_TOKENS / 2;
    while width > 0 {
        for index in 0..width {
            numbers[index] = combine(numbers[index], numbers[index + width]);
        }
        width /= 2;
    }
    numbers[0]
}

/// The larger of two, without the NaN rule of `f32::max`, which does not vectorise.
#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
