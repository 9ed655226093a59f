//! The attention of some rows of one sequence, and of the query heads of one key-value head, in one
//! pass through the cache: what is read and widened once serves all of them.
//!
//! Each query goes through the blocks on its own, with a running softmax for each part of them, so that
//! its result does not depend on the others of its tile.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::avx2 as vector;
#[cfg(target_arch = "aarch64")]
use super::neon as vector;
use super::{AttentionInput, OutputPointer, portable};
use crate::exp::{exp, tanh};
use crate::kv_page::{BLOCK_TOKENS, KvArena, KvShape};

/// Blocks that queries go through with one running softmax. A longer sequence is attended to in parts,
/// whose results are merged in their order. Where parts begin depends on positions alone: who computes
/// them, and in which batch, changes no bit.
const PART_BLOCKS: usize = 32;

/// Running state of one query.
#[derive(Clone, Copy)]
struct Query {
    /// The highest score so far.
    highest: f32,
    /// Sum of the weights, relative to the highest score.
    total: f32,
}

/// Running softmax of the queries of a tile over one part of the context, or over all parts so far.
pub(super) struct Attended {
    queries: Vec<Query>,
    /// For each query the weighted sum of the values.
    sums: Vec<f32>,
}

impl Attended {
    /// Empty softmax.
    fn new(queries: usize, value_dim: usize) -> Self {
        let nothing = Query {
            highest: f32::NEG_INFINITY,
            total: 0.0,
        };
        Self {
            queries: vec![nothing; queries],
            sums: vec![0.0; queries * value_dim],
        }
    }

    /// Merge the softmax of the next part.
    fn merge(&mut self, part: &Self) {
        let value_dim = self.sums.len() / self.queries.len();
        let sums = self.sums.chunks_exact_mut(value_dim);
        let part_sums = part.sums.chunks_exact(value_dim);
        let queries = self.queries.iter_mut().zip(&part.queries);
        for ((query, more), (sums, more_sums)) in queries.zip(sums.zip(part_sums)) {
            if more.total == 0.0 {
                // The query sees no position of this part.
                continue;
            }
            let highest = portable::larger(query.highest, more.highest);
            let factors = [query.highest, more.highest].map(|of| exp(of - highest));
            query.highest = highest;
            query.total = query.total * factors[0] + more.total * factors[1];
            for (sum, more) in sums.iter_mut().zip(more_sums) {
                *sum = *sum * factors[0] + more * factors[1];
            }
        }
    }
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
}

impl<A: KvArena> Tile<'_, A> {
    /// Attend to all parts and write the outputs of the tile's rows and heads.
    pub(super) fn attend(&self, out: OutputPointer) {
        let mut whole = self.begin();
        for part in self.parts() {
            whole.merge(&self.attend_to(part));
        }
        self.write(&whole, out);
    }

    /// Merge the results of the parts in their order.
    pub(super) fn finish(&self, parts: impl Iterator<Item = Attended>, out: OutputPointer) {
        let mut whole = self.begin();
        parts.for_each(|part| whole.merge(&part));
        self.write(&whole, out);
    }

    /// Range of parts in which a row of the tile sees a position.
    pub(super) fn parts(&self) -> Range<usize> {
        let Range { start, end } = self.blocks();
        start / PART_BLOCKS..end.div_ceil(PART_BLOCKS)
    }

    /// Attend to one part.
    pub(super) fn attend_to(&self, part: usize) -> Attended {
        let count = self.rows.len() * self.group();
        let mut found = Attended::new(count, self.input.shape.value_dim);
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if crate::has_vectors() {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
            unsafe {
                self.attend_in_vectors(part, &mut found);
            }
            return found;
        }
        self.pass::<false>(part, &mut found);
        found
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    fn attend_in_vectors(&self, part: usize, found: &mut Attended) {
        self.pass::<true>(part, found);
    }

    /// State before the first part: a sink is a position without a value.
    fn begin(&self) -> Attended {
        let count = self.rows.len() * self.group();
        let mut attended = Attended::new(count, self.input.shape.value_dim);
        if let Some(sinks) = self.input.scoring.sinks {
            for (number, query) in attended.queries.iter_mut().enumerate() {
                *query = Query {
                    highest: sinks[self.place(number).1],
                    total: 1.0,
                };
            }
        }
        attended
    }

    /// Range of blocks in which a row of the tile sees a position.
    fn blocks(&self) -> Range<usize> {
        let (mut first, mut end) = (usize::MAX, 0);
        for row in &self.input.rows[self.rows.clone()] {
            first = first.min(self.input.scoring.first_seen(row.position) / BLOCK_TOKENS);
            end = end.max(row.last_seen() / BLOCK_TOKENS + 1);
        }
        first..end
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
    fn pass<const FUSED: bool>(&self, part: usize, found: &mut Attended) {
        let shape = self.input.shape;
        let seen = self.blocks();
        let first = seen.start.max(part * PART_BLOCKS);
        let end = seen.end.min((part + 1) * PART_BLOCKS);
        let length = |dim| if A::WIDENS { dim * BLOCK_TOKENS } else { 0 };
        let mut key_buffer = vec![0.0; length(shape.key_dim)];
        let mut value_buffer = vec![0.0; length(shape.value_dim)];
        let mut lookers = Vec::with_capacity(found.queries.len());
        let table = &self.input.block_tables[self.input.rows[self.rows.start].first_block..];
        let head_of = |block: u32| block as usize * shape.kv_heads + self.kv_head;
        let (keys, values) = (&self.input.keys, &self.input.values);
        for (index, &block) in table[..end].iter().enumerate().skip(first) {
            let head = head_of(block);
            // Blocks are not contiguous in memory: the hardware prefetcher does not find the next one.
            let next = table[..end].get(index + 1).map(|next| head_of(*next));
            if let Some(next) = next {
                keys.fetch(next, shape.key_dim);
            }
            let keys = keys.keys(head, shape.key_dim, &mut key_buffer);
            if let Some(next) = next {
                values.fetch(next, shape.value_dim);
            }
            let values = values.values(head, shape.value_dim, &mut value_buffer);
            self.find_lookers(index, &mut lookers);
            let mut left = &lookers[..];
            while let [one, rest @ ..] = left {
                match rest {
                    [two, rest @ ..] if one.slots == two.slots => {
                        self.look::<FUSED, 2>([*one, *two], keys, values, found);
                        left = rest;
                    }
                    _ => {
                        self.look::<FUSED, 1>([*one], keys, values, found);
                        left = rest;
                    }
                }
            }
        }
    }

    /// Queries that attend to slots of a block. Slots outside of a query's range hold other tokens or nothing and
    /// are never used.
    fn find_lookers(&self, block: usize, lookers: &mut Vec<Looker>) {
        lookers.clear();
        let begin = block * BLOCK_TOKENS;
        for (number, row) in self.input.rows[self.rows.clone()].iter().enumerate() {
            let first = self.input.scoring.first_seen(row.position);
            let slots = (
                first.saturating_sub(begin),
                (row.last_seen() + 1)
                    .saturating_sub(begin)
                    .min(BLOCK_TOKENS),
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
        Attended { queries, sums }: &mut Attended,
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
            let query = &mut queries[looker.query];
            let (highest, total) = weigh::<FUSED>(weights, looker.slots, query.highest);
            if highest != query.highest {
                let shrink = exp(query.highest - highest);
                query.highest = highest;
                query.total *= shrink;
                for value in &mut sums[looker.query * value_dim..][..value_dim] {
                    *value *= shrink;
                }
            }
            query.total += total;
        }
        let values = &values[skipped * value_dim..filled * value_dim];
        let weights = weights.each_ref().map(|weights| &weights[skipped..filled]);
        add_weighted::<FUSED, N>(sums, lookers.map(|looker| looker.query), weights, values);
    }

    /// Write the sums, divided by the totals.
    fn write(&self, attended: &Attended, out: OutputPointer) {
        let value_dim = self.input.shape.value_dim;
        let sums = attended.sums.chunks_exact(value_dim);
        for (number, (query, sums)) in attended.queries.iter().zip(sums).enumerate() {
            let (row, head) = self.place(number);
            assert!(row < self.input.rows.len() && head < self.input.heads);
            let at = (row * self.input.heads + head) * value_dim;
            // SAFETY: the output holds all heads of all rows, and no other tile has this row and head.
            #[allow(unsafe_code, reason = "tiles write to disjoint heads of rows")]
            let out = unsafe { std::slice::from_raw_parts_mut(out.0.add(at), value_dim) };
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
        // SAFETY: fused operations are asked for only where they and vectors were detected.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { vector::scores(queries, keys, scale) };
    }
    queries.map(|query| portable::scores(query, keys, scale))
}

/// Make weights of the scores of a block, relative to the highest of them and of `highest`: that, and the
/// sum of the weights.
#[inline(always)]
fn weigh<const FUSED: bool>(
    scores: &mut [f32; BLOCK_TOKENS],
    slots: (usize, usize),
    highest: f32,
) -> (f32, f32) {
    #[cfg(target_arch = "x86_64")]
    if FUSED {
        // SAFETY: fused operations are asked for only where they and AVX2 were detected.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { vector::weigh(scores, slots, highest) };
    }
    portable::weigh(scores, slots, highest)
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
        // SAFETY: fused operations are asked for only where they and vectors were detected.
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

/// Multiply the columns that fill registers. Returns their number.
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
