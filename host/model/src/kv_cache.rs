//! The memory of keys and values: for each layer one arena of fixed blocks. Which sequence owns
//! which block is the engine's business.

use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use mortise_kernels::attention::{AttentionInput, Scoring, attention};
use mortise_kernels::kv_page::{KvArena, KvElement, KvPages, KvShape};
use mortise_kernels::kv_q8::{Q8Arena, Q8Pages, groups};

pub use mortise_kernels::kv_page::BLOCK_TOKENS;

use crate::error::ModelError;
use crate::spec::ModelSpec;

/// As what keys and values are kept. Arithmetic is in f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvType {
    /// f32.
    #[default]
    F32,
    /// f16: half the memory and half the traffic. Numbers beyond 65504 are cut to that.
    F16,
    /// bf16: half the memory, with the range of f32 and less of its precision than f16.
    Bf16,
    /// Eight bits, and a scale for every 32 numbers: little more than a quarter of the memory.
    Q8_0,
}

impl KvType {
    /// Bytes of a token's numbers, `dim` for each head.
    fn bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => 4 * dim,
            Self::F16 | Self::Bf16 => 2 * dim,
            Self::Q8_0 => dim + 2 * groups(dim),
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
    /// Bits: the allocator hands out zeroed pages for integers without touching them.
    F16 {
        keys: Vec<u16>,
        values: Vec<u16>,
    },
    /// Bits.
    Bf16 {
        keys: Vec<u16>,
        values: Vec<u16>,
    },
    /// Numbers, and the bits of their scales.
    Q8 {
        keys: (Vec<i8>, Vec<u16>),
        values: (Vec<i8>, Vec<u16>),
    },
}

impl Arenas {
    /// Arenas of zeros.
    fn new(kv_type: KvType, blocks: usize, shape: KvShape) -> Self {
        let keys = blocks * shape.key_block_len();
        let values = blocks * shape.value_block_len();
        match kv_type {
            KvType::F32 => Self::F32 {
                keys: vec![0.0; keys],
                values: vec![0.0; values],
            },
            KvType::F16 => Self::F16 {
                keys: vec![0; keys],
                values: vec![0; values],
            },
            KvType::Bf16 => Self::Bf16 {
                keys: vec![0; keys],
                values: vec![0; values],
            },
            KvType::Q8_0 => {
                let tokens = blocks * shape.kv_heads * BLOCK_TOKENS;
                Self::Q8 {
                    keys: (vec![0; keys], vec![0; tokens * groups(shape.key_dim)]),
                    values: (vec![0; values], vec![0; tokens * groups(shape.value_dim)]),
                }
            }
        }
    }
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
    pub fn block_bytes(spec: &ModelSpec, kv_type: KvType) -> usize {
        let shape = spec.kv_shape();
        let token = kv_type.bytes(shape.key_dim) + kv_type.bytes(shape.value_dim);
        spec.layers * shape.kv_heads * BLOCK_TOKENS * token
    }

    /// An empty cache of `blocks` blocks. Memory is used only as blocks are.
    pub fn new(spec: &ModelSpec, blocks: usize, kv_type: KvType) -> Result<Self, ModelError> {
        let shape = spec.kv_shape();
        let block_bytes = Self::block_bytes(spec, kv_type);
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
        let layers = (0..spec.layers)
            .map(|_| LayerCache {
                arenas: Arenas::new(kv_type, blocks, shape),
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
        let batch = Batch {
            qkv,
            heads,
            shape: self.shape,
            plan,
            scoring,
        };
        match &mut self.arenas {
            Arenas::F32 { keys, values } => batch.run_plain(keys, values, out),
            Arenas::F16 { keys, values } => {
                let keys = keys.reinterpret_cast_mut::<f16>();
                batch.run_plain(keys, values.reinterpret_cast_mut(), out);
            }
            Arenas::Bf16 { keys, values } => {
                let keys = keys.reinterpret_cast_mut::<bf16>();
                batch.run_plain(keys, values.reinterpret_cast_mut(), out);
            }
            Arenas::Q8 { keys, values } => {
                let mut pages = Q8Pages {
                    keys: &mut keys.0,
                    key_scales: &mut keys.1,
                    values: &mut values.0,
                    value_scales: &mut values.1,
                    shape: self.shape,
                };
                batch.store(|block, slot, key, value| pages.store(block, slot, key, value));
                batch.attend(arena(keys), arena(values), out);
            }
        }
    }
}

fn arena((numbers, scales): &(Vec<i8>, Vec<u16>)) -> Q8Arena<'_> {
    Q8Arena { numbers, scales }
}

/// What a layer attends with.
#[derive(Clone, Copy)]
struct Batch<'a> {
    qkv: &'a [f32],
    heads: usize,
    shape: KvShape,
    plan: &'a CachePlan<'a>,
    scoring: Scoring<'a>,
}

impl Batch<'_> {
    fn run_plain<T: KvElement>(self, keys: &mut [T], values: &mut [T], out: &mut [f32]) {
        let mut pages = KvPages {
            keys: &mut *keys,
            values: &mut *values,
            shape: self.shape,
        };
        self.store(|block, slot, key, value| pages.store(block, slot, key, value));
        self.attend(&*keys, &*values, out);
    }

    /// Values from one row of queries, keys and values to the next.
    fn stride(self) -> usize {
        let KvShape {
            kv_heads,
            key_dim,
            value_dim,
        } = self.shape;
        (self.heads + kv_heads) * key_dim + kv_heads * value_dim
    }

    fn store(self, mut store: impl FnMut(usize, usize, &[f32], &[f32])) {
        let (queries, keys) = (
            self.heads * self.shape.key_dim,
            self.shape.kv_heads * self.shape.key_dim,
        );
        let rows = self.qkv.chunks_exact(self.stride());
        for (row, &(block, slot)) in rows.zip(self.plan.slots) {
            let (key, value) = row[queries..].split_at(keys);
            store(block, slot, key, value);
        }
    }

    fn attend<A: KvArena>(self, keys: A, values: A, out: &mut [f32]) {
        let input = AttentionInput {
            queries: self.qkv,
            query_stride: self.stride(),
            heads: self.heads,
            keys,
            values,
            shape: self.shape,
            block_tables: self.plan.block_tables,
            rows: self.plan.rows,
            scoring: self.scoring,
        };
        attention(&input, out);
    }
}
