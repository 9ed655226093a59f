//! Products of queries with keys and of weights with values, in what vectors the compiler finds.

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
