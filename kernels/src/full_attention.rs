//! Attention of every token of a text to every other, before and behind, or to those near it: that of encoders.
//!
//! Keys and values are laid out as blocks of a cache, so that [`attention`] computes it.

use crate::attention::{AttentionInput, AttentionRow, Scoring, attention};
use crate::kv_page::{BLOCK_TOKENS, KvShape};

/// Texts one after the other: rows of `qkv` have `heads * head_dim` queries, as many keys and as many
/// values; rows of `out` the outputs of all heads. Scores are divided by the root of `head_dim`. With `within`, a token sees
/// as many others on either side.
///
/// # Panics
/// If the rows of all `lengths` together are not those of `qkv` and `out`.
pub fn full_attention(
    qkv: &[f32],
    lengths: &[usize],
    heads: usize,
    head_dim: usize,
    within: Option<usize>,
    out: &mut [f32],
) {
    let width = heads * head_dim;
    let total: usize = lengths.iter().sum();
    assert!(width > 0 && qkv.len() == total * 3 * width && out.len() == total * width);
    let shape = KvShape {
        kv_heads: heads,
        key_dim: head_dim,
        value_dim: head_dim,
    };
    let mut rows = Vec::with_capacity(total);
    // The first row of each block, and the number of its rows.
    let mut blocks = Vec::new();
    for &length in lengths {
        let (first, first_block) = (rows.len(), blocks.len());
        rows.extend((0..length).map(|position| {
            let behind = length - 1 - position;
            AttentionRow {
                first_block,
                position,
                ahead: within.map_or(behind, |within| within.min(behind)),
            }
        }));
        let starts = (0..length).step_by(BLOCK_TOKENS);
        blocks.extend(starts.map(|at| (first + at, (length - at).min(BLOCK_TOKENS))));
    }
    let row = |row: usize, kind: usize| &qkv[(row * 3 + kind) * width..][..width];
    let mut keys = vec![0.0; blocks.len() * shape.key_block_len()];
    crate::pool::for_each_piece(&mut keys, shape.key_block_len(), |block, keys| {
        let (first, rows) = blocks[block];
        for slot in 0..rows {
            let columns = keys.chunks_exact_mut(BLOCK_TOKENS);
            for (column, key) in columns.zip(row(first + slot, 1)) {
                column[slot] = *key;
            }
        }
    });
    let mut values = vec![0.0; blocks.len() * shape.value_block_len()];
    crate::pool::for_each_piece(&mut values, shape.value_block_len(), |block, values| {
        let (first, rows) = blocks[block];
        let of_heads = values.chunks_exact_mut(shape.value_head_len());
        for (head, values) in of_heads.enumerate() {
            for (slot, stored) in values.chunks_exact_mut(head_dim).take(rows).enumerate() {
                stored.copy_from_slice(&row(first + slot, 2)[head * head_dim..][..head_dim]);
            }
        }
    });
    let block_tables: Vec<u32> = (0..).take(blocks.len()).collect();
    let input = AttentionInput {
        queries: qkv,
        query_stride: 3 * width,
        heads,
        keys: &keys[..],
        values: &values[..],
        shape,
        block_tables: &block_tables,
        rows: &rows,
        scoring: Scoring {
            window: within.map(|within| within.saturating_add(1)),
            ..Scoring::scaled(1.0 / (head_dim as f32).sqrt())
        },
    };
    attention(&input, out);
}
