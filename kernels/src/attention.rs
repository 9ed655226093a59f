//! Causal attention over paged keys and values.
//!
//! Each row attends on its own to the blocks of its sequence, from the first to the one that holds
//! its position, with a running softmax. Prefill chunks and decode rows are therefore the same
//! thing, may stand in one batch, and give the same bits however a prompt was cut.
//!
//! A layer may see a window of positions only, cap its scores, or let each head attend to a sink: a
//! learned score that takes its share of the attention and gives nothing.

use crate::exp::{exp, tanh};
use crate::kv_page::{BLOCK_TOKENS, KvArena, KvShape};

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
pub struct AttentionInput<'a, A> {
    /// Query rows, `query_stride` apart, of `heads * key_dim` values.
    pub queries: &'a [f32],
    /// Values from one query row to the next.
    pub query_stride: usize,
    /// Query heads, a multiple of the key-value heads.
    pub heads: usize,
    /// Key arena of the layer.
    pub keys: A,
    /// Value arena of the layer.
    pub values: A,
    /// Shape of the arenas.
    pub shape: KvShape,
    /// Block tables of the sequences, one after the other.
    pub block_tables: &'a [u32],
    /// What each row sees.
    pub rows: &'a [AttentionRow],
    /// How the scores become weights.
    pub scoring: Scoring<'a>,
}

/// How the products of queries and keys become weights.
#[derive(Debug, Clone, Copy)]
pub struct Scoring<'a> {
    /// Factor of the products, commonly `1 / sqrt(key_dim)`.
    pub scale: f32,
    /// Positions that a row sees, its own included; at least 1. `None` is all.
    pub window: Option<usize>,
    /// Bends scores towards this bound: `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// A score for each query head that takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
}

impl Scoring<'_> {
    /// Plain scaled attention to all positions.
    pub fn scaled(scale: f32) -> Self {
        Self {
            scale,
            window: None,
            soft_cap: None,
            sinks: None,
        }
    }

    /// The first position that a row of position `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        self.window
            .map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// Attend, writing `heads * value_dim` values a row to `out`.
pub fn attention<A: KvArena>(input: &AttentionInput<'_, A>, out: &mut [f32]) {
    let KvShape {
        kv_heads,
        key_dim,
        value_dim,
    } = input.shape;
    assert!(kv_heads > 0 && key_dim > 0 && value_dim > 0 && input.heads.is_multiple_of(kv_heads));
    assert!(input.query_stride >= input.heads * key_dim);
    assert!(out.len() == input.rows.len() * input.heads * value_dim);
    assert!(input.queries.len() >= input.rows.len() * input.query_stride);
    assert!(input.scoring.window != Some(0));
    assert!(
        input
            .scoring
            .sinks
            .is_none_or(|sinks| sinks.len() == input.heads)
    );
    let group = input.heads / kv_heads;
    let one = |(index, out): (usize, &mut [f32])| {
        attend(input, index / kv_heads, index % kv_heads, out);
    };
    let seen = |row: &AttentionRow| row.position + 1 - input.scoring.first_seen(row.position);
    let seen: usize = input.rows.iter().map(seen).sum();
    if crate::worth_sharing(seen * input.heads * (key_dim + value_dim)) {
        crate::pool::for_each_piece(out, group * value_dim, |index, out| one((index, out)));
    } else {
        out.chunks_mut(group * value_dim).enumerate().for_each(one);
    }
}

/// One row, the query heads of one key-value head.
fn attend<A: KvArena>(input: &AttentionInput<'_, A>, row: usize, kv_head: usize, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            attend_avx2(input, row, kv_head, out);
        }
        return;
    }
    attend_group::<A, false>(input, row, kv_head, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn attend_avx2<A: KvArena>(
    input: &AttentionInput<'_, A>,
    row: usize,
    kv_head: usize,
    out: &mut [f32],
) {
    attend_group::<A, true>(input, row, kv_head, out);
}

#[inline(always)]
fn attend_group<A: KvArena, const FUSED: bool>(
    input: &AttentionInput<'_, A>,
    row: usize,
    kv_head: usize,
    out: &mut [f32],
) {
    let KvShape {
        kv_heads,
        key_dim,
        value_dim,
    } = input.shape;
    let group = input.heads / kv_heads;
    let first_head = kv_head * group;
    let queries = &input.queries[row * input.query_stride + first_head * key_dim..];
    let queries = &queries[..group * key_dim];
    let tiles = queries
        .chunks(GROUP_TILE * key_dim)
        .zip(out.chunks_mut(GROUP_TILE * value_dim));
    let length = |dim| if A::WIDENS { dim * BLOCK_TOKENS } else { 0 };
    let mut buffers = (vec![0.0; length(key_dim)], vec![0.0; length(value_dim)]);
    for (number, (queries, out)) in tiles.enumerate() {
        let heads = Heads {
            kv_head,
            first: first_head + number * GROUP_TILE,
        };
        attend_tile::<A, FUSED>(input, input.rows[row], heads, queries, &mut buffers, out);
    }
}

/// The query heads of a tile and the key-value head that they share.
#[derive(Clone, Copy)]
struct Heads {
    kv_head: usize,
    first: usize,
}

/// Up to [`GROUP_TILE`] query heads in one pass through the sequence's blocks.
#[inline(always)]
fn attend_tile<A: KvArena, const FUSED: bool>(
    input: &AttentionInput<'_, A>,
    row: AttentionRow,
    heads: Heads,
    queries: &[f32],
    buffers: &mut (Vec<f32>, Vec<f32>),
    out: &mut [f32],
) {
    let AttentionInput { shape, scoring, .. } = input;
    let seen = row.position + 1;
    let first_seen = scoring.first_seen(row.position);
    let table = &input.block_tables[row.first_block..][..seen.div_ceil(BLOCK_TOKENS)];
    let mut highest = [f32::NEG_INFINITY; GROUP_TILE];
    let mut total = [0.0f32; GROUP_TILE];
    if let Some(sinks) = scoring.sinks {
        let sinks = &sinks[heads.first..][..queries.len() / shape.key_dim];
        highest[..sinks.len()].copy_from_slice(sinks);
        total = [1.0; GROUP_TILE];
    }
    out.fill(0.0);
    for (index, &block) in table.iter().enumerate().skip(first_seen / BLOCK_TOKENS) {
        let kv_head = block as usize * shape.kv_heads + heads.kv_head;
        let keys = input.keys.keys(kv_head, shape.key_dim, &mut buffers.0);
        let values = input
            .values
            .values(kv_head, shape.value_dim, &mut buffers.1);
        // Slots outside of these hold other tokens or nothing: they are never used.
        let skipped = first_seen.saturating_sub(index * BLOCK_TOKENS);
        let filled = (seen - index * BLOCK_TOKENS).min(BLOCK_TOKENS);
        let tile = queries
            .chunks_exact(shape.key_dim)
            .zip(out.chunks_exact_mut(shape.value_dim));
        for (head, (query, out)) in tile.enumerate() {
            let mut weights = scores::<FUSED>(query, keys, scoring.scale);
            if let Some(cap) = scoring.soft_cap {
                for weight in &mut weights {
                    *weight = cap * tanh(*weight / cap);
                }
            }
            weights[..skipped].fill(f32::NEG_INFINITY);
            weights[filled..].fill(f32::NEG_INFINITY);
            let block_highest = larger(highest[head], reduce(weights, larger));
            for weight in &mut weights {
                *weight = exp(*weight - block_highest);
            }
            weights[..skipped].fill(0.0);
            weights[filled..].fill(0.0);
            let shrink = exp(highest[head] - block_highest);
            highest[head] = block_highest;
            total[head] = total[head] * shrink + reduce(weights, |a, b| a + b);
            for value in &mut *out {
                *value *= shrink;
            }
            let values = &values[skipped * shape.value_dim..];
            add_weighted::<FUSED>(out, &weights[skipped..filled], values);
        }
    }
    for (head, out) in out.chunks_exact_mut(shape.value_dim).enumerate() {
        let inverse = 1.0 / total[head];
        for value in out {
            *value *= inverse;
        }
    }
}

/// Scaled products of a query with the keys of all slots of a block. Even and odd dimensions are
/// summed apart, which keeps more additions in flight.
#[inline(always)]
fn scores<const FUSED: bool>(query: &[f32], keys: &[f32], scale: f32) -> [f32; BLOCK_TOKENS] {
    let mut even = [0.0f32; BLOCK_TOKENS];
    let mut odd = [0.0f32; BLOCK_TOKENS];
    let pairs = query.chunks_exact(2);
    let last = pairs
        .remainder()
        .iter()
        .zip(keys.rchunks_exact(BLOCK_TOKENS));
    for (query, keys) in pairs.zip(keys.chunks_exact(2 * BLOCK_TOKENS)) {
        let (even_keys, odd_keys) = keys.split_at(BLOCK_TOKENS);
        for slot in 0..BLOCK_TOKENS {
            even[slot] = multiply_add::<FUSED>(query[0], even_keys[slot], even[slot]);
            odd[slot] = multiply_add::<FUSED>(query[1], odd_keys[slot], odd[slot]);
        }
    }
    for (query, keys) in last {
        for (sum, key) in even.iter_mut().zip(keys) {
            *sum = multiply_add::<FUSED>(*query, *key, *sum);
        }
    }
    for (even, odd) in even.iter_mut().zip(odd) {
        *even = (*even + odd) * scale;
    }
    even
}

/// Add the value rows of a block, each times its weight, to `out`. The sums stay in registers.
#[inline(always)]
fn add_weighted<const FUSED: bool>(out: &mut [f32], weights: &[f32], values: &[f32]) {
    let head_dim = out.len();
    let mut first = 0;
    while first + 32 <= head_dim {
        add_weighted_columns::<FUSED, 32>(out, weights, values, first);
        first += 32;
    }
    while first + 8 <= head_dim {
        add_weighted_columns::<FUSED, 8>(out, weights, values, first);
        first += 8;
    }
    while first < head_dim {
        add_weighted_columns::<FUSED, 1>(out, weights, values, first);
        first += 1;
    }
}

/// The same for `WIDTH` columns from `first` on.
#[inline(always)]
fn add_weighted_columns<const FUSED: bool, const WIDTH: usize>(
    out: &mut [f32],
    weights: &[f32],
    values: &[f32],
    first: usize,
) {
    let head_dim = out.len();
    let out = &mut out[first..][..WIDTH];
    let mut sums = [0.0f32; WIDTH];
    sums.copy_from_slice(out);
    for (weight, row) in weights.iter().zip(values.chunks_exact(head_dim)) {
        for (sum, value) in sums.iter_mut().zip(&row[first..][..WIDTH]) {
            *sum = multiply_add::<FUSED>(*weight, *value, *sum);
        }
    }
    out.copy_from_slice(&sums);
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

/// The larger of two, without the care for NaN that does not vectorise.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `a * b + c`, in one instruction where the caller is compiled for it: elsewhere a fused multiply
/// would be a slow call.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The same by definition, in double precision, for tests.
pub fn reference<A: KvArena>(input: &AttentionInput<'_, A>, out: &mut [f32]) {
    let AttentionInput { shape, scoring, .. } = input;
    let group = input.heads / shape.kv_heads;
    let last = input.block_tables.iter().max();
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for head in 0..last.map_or(0, |last| *last as usize + 1) * shape.kv_heads {
        let mut buffer = vec![0.0; shape.key_head_len()];
        keys.extend_from_slice(input.keys.keys(head, shape.key_dim, &mut buffer));
        let mut buffer = vec![0.0; shape.value_head_len()];
        values.extend_from_slice(input.values.values(head, shape.value_dim, &mut buffer));
    }
    for (index, row) in input.rows.iter().enumerate() {
        for head in 0..input.heads {
            let query = index * input.query_stride + head * shape.key_dim;
            let query = &input.queries[query..][..shape.key_dim];
            let block = |position: usize| {
                input.block_tables[row.first_block + position / BLOCK_TOKENS] as usize
            };
            let seen = scoring.first_seen(row.position)..=row.position;
            let score = |position: usize| {
                let first = block(position) * shape.key_block_len();
                let first = first + head / group * shape.key_head_len() + position % BLOCK_TOKENS;
                let product = |(dimension, query): (usize, &f32)| {
                    f64::from(*query) * f64::from(keys[first + dimension * BLOCK_TOKENS])
                };
                let sum: f64 = query.iter().enumerate().map(product).sum();
                let score = sum * f64::from(scoring.scale);
                scoring.soft_cap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            };
            let scores: Vec<f64> = seen.clone().map(score).collect();
            let sink = scoring.sinks.map(|sinks| f64::from(sinks[head]));
            let all = scores.iter().copied().chain(sink);
            let highest = all.clone().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = all.map(|score| (score - highest).exp()).sum();
            for dimension in 0..shape.value_dim {
                let weighted = seen.clone().zip(&scores).map(|(position, score)| {
                    let first = block(position) * shape.value_block_len();
                    let first = first + head / group * shape.value_head_len();
                    let slot = position % BLOCK_TOKENS * shape.value_dim;
                    let value = values[first + slot + dimension];
                    (score - highest).exp() / total * f64::from(value)
                });
                out[(index * input.heads + head) * shape.value_dim + dimension] =
                    weighted.sum::<f64>() as f32;
            }
        }
    }
}
