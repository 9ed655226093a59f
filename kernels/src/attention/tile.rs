//! The attention of some rows of one sequence, and of the query heads of one key-value head, in one
//! pass through the cache: what is read and widened once serves all of them.
//!
//! Each query goes through the blocks on its own, with a running softmax, so that its result does not
//! depend on the others of its tile.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::avx2 as vector;
#[cfg(target_arch = "aarch64")]
use super::neon as vector;
use super::{AttentionInput, OutputPointer, portable};
use crate::exp::{exp, tanh};
use crate::kv_page::{BLOCK_TOKENS, KvArena, KvShape};

/// One query, as the tile goes along.
#[derive(Clone, Copy)]
struct Query {
    /// The highest score so far.
    highest: f32,
    /// The sum of the weights, relative to that.
    total: f32,
}

/// A query that sees some slots of a block.
#[derive(Clone, Copy)]
struct Looker {
    query: usize,
    /// The first slot that it sees, and that after the last.
    slots: (usize, usize),
}

/// Rows of one sequence and a key-value head.
pub(super) struct Tile<'a, A> {
    pub(super) input: &'a AttentionInput<'a, A>,
    pub(super) rows: Range<usize>,
    pub(super) kv_head: usize,
    pub(super) out: OutputPointer,
}

impl<A: KvArena> Tile<'_, A> {
    /// Attend and write the outputs of the tile's rows and heads.
    pub(super) fn attend(&self) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if crate::has_vectors() {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
            unsafe {
                self.attend_in_vectors();
            }
            return;
        }
        self.pass::<false>();
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    fn attend_in_vectors(&self) {
        self.pass::<true>();
    }

    /// Query heads of the key-value head.
    fn group(&self) -> usize {
        self.input.heads / self.input.shape.kv_heads
    }

    /// The row and the head of a query.
    fn place(&self, query: usize) -> (usize, usize) {
        let group = self.group();
        (
            self.rows.start + query / group,
            self.kv_head * group + query % group,
        )
    }

    #[inline(always)]
    fn pass<const FUSED: bool>(&self) {
        let AttentionInput { shape, scoring, .. } = self.input;
        let rows = &self.input.rows[self.rows.clone()];
        let (mut first, mut last) = (usize::MAX, 0);
        for row in rows {
            first = first.min(scoring.first_seen(row.position) / BLOCK_TOKENS);
            last = last.max(row.position / BLOCK_TOKENS);
        }
        let count = rows.len() * self.group();
        let mut queries: Vec<Query> = (0..count)
            .map(|query| match scoring.sinks {
                // A sink takes part as a position that has no value.
                Some(sinks) => Query {
                    highest: sinks[self.place(query).1],
                    total: 1.0,
                },
                None => Query {
                    highest: f32::NEG_INFINITY,
                    total: 0.0,
                },
            })
            .collect();
        let mut sums = vec![0.0; count * shape.value_dim];
        let length = |dim| if A::WIDENS { dim * BLOCK_TOKENS } else { 0 };
        let mut key_buffer = vec![0.0; length(shape.key_dim)];
        let mut value_buffer = vec![0.0; length(shape.value_dim)];
        let mut lookers = Vec::with_capacity(count);
        let table = &self.input.block_tables[rows[0].first_block..][..last + 1];
        for (index, &block) in table.iter().enumerate().skip(first) {
            let head = block as usize * shape.kv_heads + self.kv_head;
            let keys = self.input.keys.keys(head, shape.key_dim, &mut key_buffer);
            let values = &self.input.values;
            let values = values.values(head, shape.value_dim, &mut value_buffer);
            self.find_lookers(index, &mut lookers);
            let mut left = &lookers[..];
            while let [one, rest @ ..] = left {
                match rest {
                    [two, rest @ ..] if one.slots == two.slots => {
                        self.look::<FUSED, 2>([*one, *two], keys, values, &mut queries, &mut sums);
                        left = rest;
                    }
                    _ => {
                        self.look::<FUSED, 1>([*one], keys, values, &mut queries, &mut sums);
                        left = rest;
                    }
                }
            }
        }
        self.write(&queries, &sums);
    }

    /// Which queries see slots of a block. Slots outside hold other tokens or nothing and are never
    /// used.
    fn find_lookers(&self, block: usize, lookers: &mut Vec<Looker>) {
        lookers.clear();
        let begin = block * BLOCK_TOKENS;
        for (number, row) in self.input.rows[self.rows.clone()].iter().enumerate() {
            let first = self.input.scoring.first_seen(row.position);
            let slots = (
                first.saturating_sub(begin),
                (row.position + 1).saturating_sub(begin).min(BLOCK_TOKENS),
            );
            if slots.0 < slots.1 {
                let queries = number * self.group()..(number + 1) * self.group();
                lookers.extend(queries.map(|query| Looker { query, slots }));
            }
        }
    }

    /// `N` queries that see the same slots of a block.
    #[inline(always)]
    fn look<const FUSED: bool, const N: usize>(
        &self,
        lookers: [Looker; N],
        keys: &[f32],
        values: &[f32],
        queries: &mut [Query],
        sums: &mut [f32],
    ) {
        let AttentionInput { shape, scoring, .. } = self.input;
        let KvShape {
            key_dim, value_dim, ..
        } = *shape;
        let vectors: [&[f32]; N] = lookers.map(|looker| {
            let (row, head) = self.place(looker.query);
            &self.input.queries[row * self.input.query_stride + head * key_dim..][..key_dim]
        });
        let (skipped, filled) = lookers[0].slots;
        let mut weights = scores::<FUSED, N>(vectors, keys, scoring.scale);
        for (looker, weights) in lookers.iter().zip(&mut weights) {
            if let Some(cap) = scoring.soft_cap {
                for weight in &mut *weights {
                    *weight = cap * tanh(*weight / cap);
                }
            }
            weights[..skipped].fill(f32::NEG_INFINITY);
            weights[filled..].fill(f32::NEG_INFINITY);
            let query = &mut queries[looker.query];
            let highest = larger(query.highest, reduce(*weights, larger));
            for weight in &mut *weights {
                *weight = exp(*weight - highest);
            }
            weights[..skipped].fill(0.0);
            weights[filled..].fill(0.0);
            if highest != query.highest {
                let shrink = exp(query.highest - highest);
                query.highest = highest;
                query.total *= shrink;
                for value in &mut sums[looker.query * value_dim..][..value_dim] {
                    *value *= shrink;
                }
            }
            query.total += reduce(*weights, |a, b| a + b);
        }
        let values = &values[skipped * value_dim..filled * value_dim];
        let weights = weights.each_ref().map(|weights| &weights[skipped..filled]);
        add_weighted::<FUSED, N>(sums, lookers.map(|looker| looker.query), weights, values);
    }

    /// Write the sums, divided by the totals.
    fn write(&self, queries: &[Query], sums: &[f32]) {
        let value_dim = self.input.shape.value_dim;
        for (number, (query, sums)) in queries.iter().zip(sums.chunks_exact(value_dim)).enumerate()
        {
            let (row, head) = self.place(number);
            assert!(row < self.input.rows.len() && head < self.input.heads);
            let at = (row * self.input.heads + head) * value_dim;
            // SAFETY: the output holds all heads of all rows, and no other tile has this row and head.
            #[allow(unsafe_code, reason = "tiles write to disjoint heads of rows")]
            let out = unsafe { std::slice::from_raw_parts_mut(self.out.0.add(at), value_dim) };
            let inverse = 1.0 / query.total;
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum * inverse;
            }
        }
    }
}

/// Scaled products of queries with the keys of all slots of a block.
#[inline(always)]
fn scores<const FUSED: bool, const N: usize>(
    queries: [&[f32]; N],
    keys: &[f32],
    scale: f32,
) -> [[f32; BLOCK_TOKENS]; N] {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if FUSED {
        // SAFETY: who asks for fused operations has found them, and vectors.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { vector::scores(queries, keys, scale) };
    }
    queries.map(|query| portable::scores(query, keys, scale))
}

/// Add the value rows of slots, each times its weight, to the sums of queries.
#[inline(always)]
fn add_weighted<const FUSED: bool, const N: usize>(
    sums: &mut [f32],
    queries: [usize; N],
    weights: [&[f32]; N],
    values: &[f32],
) {
    let dim = values.len() / weights[0].len();
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let first = if FUSED {
        // SAFETY: who asks for fused operations has found them, and vectors.
        #[allow(unsafe_code, reason = "calls functions compiled for checked features")]
        unsafe {
            add_whole_registers(sums, queries, weights, values, dim)
        }
    } else {
        0
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let first = 0;
    if first < dim {
        for n in 0..N {
            let sums = &mut sums[queries[n] * dim..][..dim];
            portable::add_columns(sums, weights[n], values, (first, dim));
        }
    }
}

/// The same for the columns that fill registers; how many those are.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn add_whole_registers<const N: usize>(
    sums: &mut [f32],
    queries: [usize; N],
    weights: [&[f32]; N],
    values: &[f32],
    dim: usize,
) -> usize {
    /// Columns whose sums, of two queries, stay in registers.
    const MANY: usize = 32;
    const ONE: usize = vector::LANES;
    let mut first = 0;
    while first + MANY <= dim {
        vector::add_columns::<N, { MANY / ONE }>(sums, queries, weights, values, (first, dim));
        first += MANY;
    }
    while first + ONE <= dim {
        vector::add_columns::<N, 1>(sums, queries, weights, values, (first, dim));
        first += ONE;
    }
    first
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
