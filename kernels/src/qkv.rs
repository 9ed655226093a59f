//! The stage between the product of queries, keys and values and attention: norms, positions and the
//! cache, row by row in one go.

use crate::kv_page::{BlockPages, KvShape};
use crate::rms_norm::{RmsNorm, rms_norm_in_place};
use crate::rope::{RopeHeads, RopeTable};

/// Stage after the QKV projection: norms, rotary embedding and query factors. A row holds `heads`
/// queries, then the keys, then the values. A row holds `heads` queries, then the keys, then the
/// values.
#[derive(Debug, Clone, Copy)]
pub struct QkvStage<'a> {
    /// Query heads.
    pub heads: usize,
    /// Norms of queries and of keys, of one head or of all.
    pub norms: Option<[RmsNorm<'a>; 2]>,
    /// Positions, and which heads turn by them.
    pub rope: Option<(&'a RopeTable, RopeHeads)>,
    /// A factor for each row's queries.
    pub query_factors: Option<&'a [f32]>,
}

/// Rows whose keys and values go to one block.
struct BlockRows<'a, P> {
    /// The block alone.
    pages: P,
    /// Number, slot and values of each row.
    rows: Vec<(usize, usize, &'a mut [f32])>,
}

impl QkvStage<'_> {
    /// Values of a row.
    pub fn stride(&self, shape: KvShape) -> usize {
        (self.heads + shape.kv_heads) * shape.key_dim + shape.kv_heads * shape.value_dim
    }

    /// Bring the rows of `qkv` to their final form and store their keys and values: those of row `r` in
    /// block and slot `slots[r]`.
    ///
    /// # Panics
    /// If rows and slots are not equally many, or the cache has no such block or slot.
    pub fn run<P: BlockPages>(&self, qkv: &mut [f32], slots: &[(usize, usize)], pages: P) {
        let shape = pages.shape();
        let stride = self.stride(shape);
        assert!(qkv.len() == slots.len() * stride);
        let sharing = crate::worth_sharing(qkv.len() * 16);
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_unstable_by_key(|row| slots[*row]);
        let mut values: Vec<Option<&mut [f32]>> = qkv.chunks_exact_mut(stride).map(Some).collect();
        let mut blocks: Vec<BlockRows<'_, P>> = Vec::new();
        // Of the blocks, each is cut off once, in ascending order: no two tasks have the same.
        let (mut rest, mut passed) = (pages, 0);
        for of_block in order.chunk_by(|a, b| slots[*a].0 == slots[*b].0) {
            let (_, after) = rest.split_at(slots[of_block[0]].0 - passed);
            let (pages, after) = after.split_at(1);
            (rest, passed) = (after, slots[of_block[0]].0 + 1);
            let rows = of_block.iter().filter_map(|row| {
                values[*row]
                    .take()
                    .map(|values| (*row, slots[*row].1, values))
            });
            blocks.push(BlockRows {
                pages,
                rows: rows.collect(),
            });
        }
        if sharing {
            crate::pool::for_each_piece(&mut blocks, 1, |_, blocks| {
                blocks.iter_mut().for_each(|block| self.block(block, shape));
            });
        } else {
            blocks.iter_mut().for_each(|block| self.block(block, shape));
        }
    }

    fn block<P: BlockPages>(&self, block: &mut BlockRows<'_, P>, shape: KvShape) {
        for (row, slot, values) in &mut block.rows {
            let (key, value) = self.finish(*row, values, shape);
            block.pages.store(0, *slot, key, value);
        }
    }

    /// Bring one row to its final form; its keys and its values.
    fn finish<'b>(
        &self,
        row: usize,
        values: &'b mut [f32],
        shape: KvShape,
    ) -> (&'b [f32], &'b [f32]) {
        let (queries, keys) = (self.heads * shape.key_dim, shape.kv_heads * shape.key_dim);
        if let Some([query_norm, key_norm]) = self.norms {
            rms_norm_in_place(&mut values[..queries], query_norm);
            rms_norm_in_place(&mut values[queries..queries + keys], key_norm);
        }
        if let Some((table, heads)) = self.rope {
            table.apply_row(row, values, heads);
        }
        if let Some(factors) = self.query_factors {
            for query in &mut values[..queries] {
                *query *= factors[row];
            }
        }
        values[queries..].split_at(keys)
    }
}
