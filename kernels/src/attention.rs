//! Causal attention over paged keys and values.
//!
//! Each row attends on its own to the blocks of its sequence, from the first to the one that holds
//! its position, with a running softmax. Prefill chunks and decode rows are therefore the same
//! thing, may stand in one batch, and give the same bits however a prompt was cut.

use rayon::prelude::*;

use crate::exp::exp;
use crate::kv_page::{BLOCK_TOKENS, KvElement, KvShape};

/// Heads that share the keys and values of one pass through the cache.
const GROUP_TILE: usize = 4;

/// One query row: which tokens it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionRow {
    /// Where in the block tables the sequence's table begins.
    pub first_block: usize,
    /// The row's position: it sees the positions up to and with this one.
    pub position: usize,
}

/// What the rows of a batch attend to.
#[derive(Debug, Clone, Copy)]
pub struct AttentionInput<'a, T> {
    /// Query rows, `query_stride` apart, of `heads * head_dim` values.
    pub queries: &'a [f32],
    /// Values from one query row to the next.
    pub query_stride: usize,
    /// Query heads, a multiple of the key-value heads.
    pub heads: usize,
    /// Key arena of the layer.
    pub keys: &'a [T],
    /// Value arena of the layer.
    pub values: &'a [T],
    /// Shape of the arenas.
    pub shape: KvShape,
    /// Block tables of the sequences, one after the other.
    pub block_tables: &'a [u32],
    /// What each row sees.
    pub rows: &'a [AttentionRow],
    /// Factor of the scores, commonly `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// Attend, writing `heads * head_dim` values a row to `out`.
pub fn attention<T: KvElement>(input: &AttentionInput<'_, T>, out: &mut [f32]) {
    let KvShape { kv_heads, head_dim } = input.shape;
    assert!(kv_heads > 0 && head_dim > 0 && input.heads.is_multiple_of(kv_heads));
    assert!(input.query_stride >= input.heads * head_dim);
    assert!(out.len() == input.rows.len() * input.heads * head_dim);
    assert!(input.queries.len() >= input.rows.len() * input.query_stride);
    let group = input.heads / kv_heads;
    let one = |(index, out): (usize, &mut [f32])| {
        attend(input, index / kv_heads, index % kv_heads, out);
    };
    let seen: usize = input.rows.iter().map(|row| row.position + 1).sum();
    if crate::worth_sharing(2 * seen * input.heads * head_dim) {
        out.par_chunks_mut(group * head_dim)
            .enumerate()
            .for_each(one);
    } else {
        out.chunks_mut(group * head_dim).enumerate().for_each(one);
    }
}

/// One row, the query heads of one key-value head.
fn attend<T: KvElement>(
    input: &AttentionInput<'_, T>,
    row: usize,
    kv_head: usize,
    out: &mut [f32],
) {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            attend_avx2(input, row, kv_head, out);
        }
        return;
    }
    attend_group::<T, false>(input, row, kv_head, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn attend_avx2<T: KvElement>(
    input: &AttentionInput<'_, T>,
    row: usize,
    kv_head: usize,
    out: &mut [f32],
) {
    attend_group::<T, true>(input, row, kv_head, out);
}

#[inline(always)]
fn attend_group<T: KvElement, const FUSED: bool>(
    input: &AttentionInput<'_, T>,
    row: usize,
    kv_head: usize,
    out: &mut [f32],
) {
    let head_dim = input.shape.head_dim;
    let first = row * input.query_stride + kv_head * out.len();
    let queries = &input.queries[first..][..out.len()];
    let tiles = queries
        .chunks(GROUP_TILE * head_dim)
        .zip(out.chunks_mut(GROUP_TILE * head_dim));
    for (queries, out) in tiles {
        attend_tile::<T, FUSED>(input, input.rows[row], kv_head, queries, out);
    }
}

/// Up to [`GROUP_TILE`] query heads in one pass through the sequence's blocks.
#[inline(always)]
fn attend_tile<T: KvElement, const FUSED: bool>(
    input: &AttentionInput<'_, T>,
    row: AttentionRow,
    kv_head: usize,
    queries: &[f32],
    out: &mut [f32],
) {
    let head_dim = input.shape.head_dim;
    let seen = row.position + 1;
    let table = &input.block_tables[row.first_block..][..seen.div_ceil(BLOCK_TOKENS)];
    let mut highest = [f32::NEG_INFINITY; GROUP_TILE];
    let mut total = [0.0f32; GROUP_TILE];
    out.fill(0.0);
    for (index, &block) in table.iter().enumerate() {
        let start = block as usize * input.shape.block_len() + kv_head * input.shape.head_len();
        let keys = &input.keys[start..][..input.shape.head_len()];
        let values = &input.values[start..][..input.shape.head_len()];
        // Slots beyond the row's position hold other tokens or nothing: they are never used.
        let filled = (seen - index * BLOCK_TOKENS).min(BLOCK_TOKENS);
        let heads = queries
            .chunks_exact(head_dim)
            .zip(out.chunks_exact_mut(head_dim));
        for (head, (query, out)) in heads.enumerate() {
            let mut weights = scores::<T, FUSED>(query, keys, input.scale);
            let block_highest = weights[..filled]
                .iter()
                .copied()
                .fold(highest[head], f32::max);
            for weight in &mut weights {
                *weight = exp(*weight - block_highest);
            }
            weights[filled..].fill(0.0);
            let shrink = exp(highest[head] - block_highest);
            highest[head] = block_highest;
            total[head] = total[head] * shrink + weights.iter().sum::<f32>();
            for value in &mut *out {
                *value *= shrink;
            }
            for (weight, row) in weights[..filled].iter().zip(values.chunks_exact(head_dim)) {
                for (out, value) in out.iter_mut().zip(row) {
                    *out = multiply_add::<FUSED>(*weight, value.to_f32(), *out);
                }
            }
        }
    }
    for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let inverse = 1.0 / total[head];
        for value in out {
            *value *= inverse;
        }
    }
}

/// Scaled products of a query with the keys of all slots of a block. Even and odd dimensions are
/// summed apart, which keeps more additions in flight.
#[inline(always)]
fn scores<T: KvElement, const FUSED: bool>(
    query: &[f32],
    keys: &[T],
    scale: f32,
) -> [f32; BLOCK_TOKENS] {
    let mut even = [0.0f32; BLOCK_TOKENS];
    let mut odd = [0.0f32; BLOCK_TOKENS];
    let pairs = query.chunks(2).zip(keys.chunks(2 * BLOCK_TOKENS));
    for (query, keys) in pairs {
        let columns = keys.chunks_exact(BLOCK_TOKENS).zip([&mut even, &mut odd]);
        for (query, (keys, sums)) in query.iter().zip(columns) {
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = multiply_add::<FUSED>(*query, key.to_f32(), *sum);
            }
        }
    }
    for (even, odd) in even.iter_mut().zip(odd) {
        *even = (*even + odd) * scale;
    }
    even
}

/// `a * b + c`, in one instruction where the caller is compiled for it: elsewhere a fused multiply
/// would be a slow call.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The same by definition, in double precision, for tests.
pub fn reference<T: KvElement>(input: &AttentionInput<'_, T>, out: &mut [f32]) {
    let KvShape { kv_heads, head_dim } = input.shape;
    let group = input.heads / kv_heads;
    for (index, row) in input.rows.iter().enumerate() {
        for head in 0..input.heads {
            let query = &input.queries[index * input.query_stride + head * head_dim..][..head_dim];
            let place = |position: usize| {
                let block = input.block_tables[row.first_block + position / BLOCK_TOKENS] as usize;
                let head = block * input.shape.block_len() + head / group * input.shape.head_len();
                (head, position % BLOCK_TOKENS)
            };
            let scores: Vec<f64> = (0..=row.position)
                .map(|position| {
                    let (start, slot) = place(position);
                    let product = |(dimension, query): (usize, &f32)| {
                        let key = input.keys[start + dimension * BLOCK_TOKENS + slot];
                        f64::from(*query) * f64::from(key.to_f32())
                    };
                    let sum: f64 = query.iter().enumerate().map(product).sum();
                    sum * f64::from(input.scale)
                })
                .collect();
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
            for dimension in 0..head_dim {
                let weighted = scores.iter().enumerate().map(|(position, score)| {
                    let (start, slot) = place(position);
                    let value = input.values[start + slot * head_dim + dimension];
                    (score - highest).exp() / total * f64::from(value.to_f32())
                });
                out[(index * input.heads + head) * head_dim + dimension] =
                    weighted.sum::<f64>() as f32;
            }
        }
    }
}
