//! Causal attention over paged keys and values.
//!
//! Each row attends on its own to the blocks of its sequence, from the first to the one that holds
//! its position, with a running softmax for each part of so many blocks. Prefill chunks and decode rows
//! are therefore the same thing, may stand in one batch, and give the same bits however a prompt was cut
//! and on however many threads: where rows are few, threads share the parts of a sequence.
//!
//! A layer may see a window of positions only, cap its scores, or let each head attend to a sink: a
//! learned score that takes its share of the attention and gives nothing.

use std::ops::Range;

use crate::kv_page::{BLOCK_TOKENS, KvArena, KvShape};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod tile;

use tile::{Attended, Tile};

/// Queries in one pass through the KV cache, unless one row has more: as many as the L1 cache holds.
const TILE_QUERIES: usize = 32;
/// Tiles for each thread from which on threads share tiles only, and no parts of sequences.
const TILES_PER_THREAD: usize = 4;

/// One query row: which tokens it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionRow {
    /// Start of the sequence's table in the block tables.
    pub first_block: usize,
    /// The row's position: it sees the positions up to and with this one.
    pub position: usize,
    /// Positions behind its own that it sees as well: none in a decoder.
    pub ahead: usize,
}

impl AttentionRow {
    /// The last position that it sees.
    fn last_seen(self) -> usize {
        self.position + self.ahead
    }
}

/// Inputs of attention over the paged cache.
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
    /// The positions that each row attends to.
    pub rows: &'a [AttentionRow],
    /// Scaling, window, soft cap and sinks of the scores.
    pub scoring: Scoring<'a>,
}

/// Computation of attention weights from products of queries and keys.
#[derive(Debug, Clone, Copy)]
pub struct Scoring<'a> {
    /// Factor of the products, commonly `1 / sqrt(key_dim)`.
    pub scale: f32,
    /// Positions that a row sees, its own included; at least 1. `None` is all.
    pub window: Option<usize>,
    /// Soft cap of scores: `cap * tanh(score / cap)`.
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
    let row_tiles = row_tiles(input.rows, TILE_QUERIES / (input.heads / kv_heads));
    let out = OutputPointer(out.as_mut_ptr());
    let tile = |number: usize| Tile {
        input,
        rows: row_tiles[number / kv_heads].clone(),
        kv_head: number % kv_heads,
    };
    let seen = |row: &AttentionRow| row.last_seen() + 1 - input.scoring.first_seen(row.position);
    let seen: usize = input.rows.iter().map(seen).sum();
    let tiles = row_tiles.len() * kv_heads;
    if !crate::worth_sharing(seen * input.heads * (key_dim + value_dim)) {
        (0..tiles).for_each(|number| tile(number).attend(out));
    } else if tiles < crate::pool::threads() * TILES_PER_THREAD {
        by_parts(tiles, tile, out);
    } else {
        crate::pool::for_each(tiles, |number| tile(number).attend(out));
    }
}

/// The part of a sequence that a tile attends to, as a task.
struct PartTask {
    tile: usize,
    part: usize,
    found: Option<Attended>,
}

/// Attend with too few tiles for all threads: they share parts of sequences.
fn by_parts<'a, A: KvArena + 'a>(
    tiles: usize,
    tile: impl Fn(usize) -> Tile<'a, A> + Sync,
    out: OutputPointer,
) {
    let tasks = (0..tiles).flat_map(|number| {
        let parts = tile(number).parts();
        parts.map(move |part| PartTask {
            tile: number,
            part,
            found: None,
        })
    });
    let mut tasks: Vec<PartTask> = tasks.collect();
    crate::pool::for_each_piece(&mut tasks, 1, |_, tasks| {
        for task in tasks {
            task.found = Some(tile(task.tile).attend_to(task.part));
        }
    });
    for parts in tasks.chunk_by_mut(|a, b| a.tile == b.tile) {
        let tile = tile(parts[0].tile);
        tile.finish(parts.iter_mut().filter_map(|task| task.found.take()), out);
    }
}

/// Groups of neighbouring rows of one sequence, of one to `most` rows.
fn row_tiles(rows: &[AttentionRow], most: usize) -> Vec<Range<usize>> {
    let mut tiles: Vec<Range<usize>> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        match tiles.last_mut() {
            Some(tile) if tile.len() < most && rows[tile.start].first_block == row.first_block => {
                tile.end = index + 1;
            }
            _ => tiles.push(index..index + 1),
        }
    }
    tiles
}

/// Pointer to the outputs. Tiles write to disjoint heads of rows, which slices cannot express.
#[derive(Clone, Copy)]
struct OutputPointer(*mut f32);

#[allow(unsafe_code, reason = "tiles write to disjoint heads of rows")]
// SAFETY: the pointer comes from a `&mut [f32]` that outlives all tiles, and each row and head is of
// one tile.
unsafe impl Send for OutputPointer {}
#[allow(unsafe_code, reason = "tiles write to disjoint heads of rows")]
// SAFETY: as above.
unsafe impl Sync for OutputPointer {}

/// Reference implementation in double precision, for tests.
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
            let seen = scoring.first_seen(row.position)..=row.last_seen();
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
