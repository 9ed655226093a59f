//! The memory of keys and values: for each layer one arena of fixed blocks. Which sequence owns
//! which block is the engine's business.

use half::bf16;
use half::slice::HalfBitsSliceExt;
use mortise_kernels::attention::{AttentionInput, Scoring, attention};
use mortise_kernels::kv_page::{KvPages, KvShape};

pub use mortise_kernels::kv_page::BLOCK_TOKENS;

use crate::error::ModelError;
use crate::spec::ModelSpec;

/// In which precision keys and values are kept. Arithmetic is in f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvPrecision {
    /// f32.
    #[default]
    F32,
    /// bf16: half the memory and half the traffic.
    Bf16,
}

impl KvPrecision {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Keys and values of all layers.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    blocks: usize,
    shape: KvShape,
}

/// Keys and values of one layer.
#[derive(Debug)]
pub(crate) struct LayerCache {
    arenas: Arenas,
    shape: KvShape,
}

#[derive(Debug)]
enum Arenas {
    F32 {
        keys: Vec<f32>,
        values: Vec<f32>,
    },
    /// Bits of bf16: the allocator hands out zeroed pages for integers without touching them.
    Bf16 {
        keys: Vec<u16>,
        values: Vec<u16>,
    },
}

/// Where in the cache the rows of a batch go and what they see.
pub(crate) struct CachePlan<'a> {
    /// Block and slot of each row.
    pub(crate) slots: &'a [(usize, usize)],
    pub(crate) block_tables: &'a [u32],
    pub(crate) rows: &'a [mortise_kernels::attention::AttentionRow],
}

impl KvCache {
    /// Bytes that one block of [`BLOCK_TOKENS`] tokens takes, all layers together.
    pub fn block_bytes(spec: &ModelSpec, precision: KvPrecision) -> usize {
        let shape = spec.kv_shape();
        let numbers = shape.key_block_len() + shape.value_block_len();
        spec.layers * numbers * precision.bytes()
    }

    /// An empty cache of `blocks` blocks. Memory is used only as blocks are.
    pub fn new(
        spec: &ModelSpec,
        blocks: usize,
        precision: KvPrecision,
    ) -> Result<Self, ModelError> {
        let shape = spec.kv_shape();
        let block_bytes = Self::block_bytes(spec, precision);
        let refused = ModelError::CacheSize {
            blocks,
            block_bytes,
        };
        let allocated = blocks.checked_mul(block_bytes).is_some_and(|bytes| {
            // Asking first gives an error where asking for the arenas would end the process.
            Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
        });
        if !allocated {
            return Err(refused);
        }
        let keys = blocks * shape.key_block_len();
        let values = blocks * shape.value_block_len();
        let arenas = || match precision {
            KvPrecision::F32 => Arenas::F32 {
                keys: vec![0.0; keys],
                values: vec![0.0; values],
            },
            KvPrecision::Bf16 => Arenas::Bf16 {
                keys: vec![0; keys],
                values: vec![0; values],
            },
        };
        let layers = (0..spec.layers)
            .map(|_| LayerCache {
                arenas: arenas(),
                shape,
            })
            .collect();
        Ok(Self {
            layers,
            blocks,
            shape,
        })
    }

    /// Blocks in all.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether the cache was made for a model of this shape.
    pub(crate) fn fits(&self, spec: &ModelSpec) -> bool {
        self.layers.len() == spec.layers && self.shape == spec.kv_shape()
    }

    pub(crate) fn layers_mut(&mut self) -> &mut [LayerCache] {
        &mut self.layers
    }
}

impl LayerCache {
    /// Store the keys and values of all rows, then let each row attend. A row of `qkv` holds
    /// `heads` queries, then the keys, then the values; one of `out` holds `heads` values.
    pub(crate) fn attend(
        &mut self,
        qkv: &[f32],
        heads: usize,
        scoring: Scoring<'_>,
        plan: &CachePlan<'_>,
        out: &mut [f32],
    ) {
        let shape = self.shape;
        match &mut self.arenas {
            Arenas::F32 { keys, values } => {
                attend(
                    KvPages {
                        keys,
                        values,
                        shape,
                    },
                    qkv,
                    heads,
                    scoring,
                    plan,
                    out,
                );
            }
            Arenas::Bf16 { keys, values } => {
                let keys = keys.reinterpret_cast_mut::<bf16>();
                let values = values.reinterpret_cast_mut::<bf16>();
                attend(
                    KvPages {
                        keys,
                        values,
                        shape,
                    },
                    qkv,
                    heads,
                    scoring,
                    plan,
                    out,
                );
            }
        }
    }
}

fn attend<T: mortise_kernels::kv_page::KvElement>(
    mut pages: KvPages<'_, T>,
    qkv: &[f32],
    heads: usize,
    scoring: Scoring<'_>,
    plan: &CachePlan<'_>,
    out: &mut [f32],
) {
    let KvShape {
        kv_heads,
        key_dim,
        value_dim,
    } = pages.shape;
    let stride = (heads + kv_heads) * key_dim + kv_heads * value_dim;
    for (row, &(block, slot)) in qkv.chunks_exact(stride).zip(plan.slots) {
        let (key, value) = row[heads * key_dim..].split_at(kv_heads * key_dim);
        pages.store(block, slot, key, value);
    }
    let input = AttentionInput {
        queries: qkv,
        query_stride: stride,
        heads,
        keys: pages.keys,
        values: pages.values,
        shape: pages.shape,
        block_tables: plan.block_tables,
        rows: plan.rows,
        scoring,
    };
    attention(&input, out);
}
