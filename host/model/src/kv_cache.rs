//! KV cache: one arena of fixed-size blocks for each layer. The engine assigns blocks to sequences.

use std::marker::PhantomData;

use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use memmap2::MmapMut;
use mortise_kernels::attention::{AttentionInput, Scoring, attention};
use mortise_kernels::kv_page::{KvArena, KvElement, KvPages, KvShape};
use mortise_kernels::kv_q8::{Q8Arena, Q8Pages, groups};
use mortise_kernels::qkv::QkvStage;
use zerocopy::{FromBytes, Immutable, IntoBytes};

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
        keys: Zeros<f32>,
        values: Zeros<f32>,
    },
    /// Bits.
    F16 {
        keys: Zeros<u16>,
        values: Zeros<u16>,
    },
    /// Bits.
    Bf16 {
        keys: Zeros<u16>,
        values: Zeros<u16>,
    },
    /// Numbers, and the bits of their scales.
    Q8 {
        keys: (Zeros<i8>, Zeros<u16>),
        values: (Zeros<i8>, Zeros<u16>),
    },
}

/// Numbers that begin as zeros and take memory only where they are written: pages of their own, which
/// the allocator could not have used before and would not clear.
struct Zeros<T> {
    pages: MmapMut,
    numbers: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Immutable> Zeros<T> {
    fn new(count: usize) -> std::io::Result<Self> {
        let bytes = count.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or(std::io::ErrorKind::OutOfMemory)?;
        // No page cannot be asked for.
        Ok(Self {
            pages: MmapMut::map_anon(bytes.max(size_of::<T>()))?,
            numbers: PhantomData,
        })
    }

    fn get(&mut self) -> &mut [T] {
        <[T]>::mut_from_bytes(&mut self.pages).expect("pages are aligned and hold whole numbers")
    }
}

impl<T> std::fmt::Debug for Zeros<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.pages.len())
    }
}

impl Arenas {
    /// Arenas of zeros.
    fn new(kv_type: KvType, blocks: usize, shape: KvShape) -> std::io::Result<Self> {
        let keys = blocks * shape.key_block_len();
        let values = blocks * shape.value_block_len();
        Ok(match kv_type {
            KvType::F32 => Self::F32 {
                keys: Zeros::new(keys)?,
                values: Zeros::new(values)?,
            },
            KvType::F16 => Self::F16 {
                keys: Zeros::new(keys)?,
                values: Zeros::new(values)?,
            },
            KvType::Bf16 => Self::Bf16 {
                keys: Zeros::new(keys)?,
                values: Zeros::new(values)?,
            },
            KvType::Q8_0 => {
                let scales = |dim| Zeros::new(blocks * shape.kv_heads * BLOCK_TOKENS * groups(dim));
                Self::Q8 {
                    keys: (Zeros::new(keys)?, scales(shape.key_dim)?),
                    values: (Zeros::new(values)?, scales(shape.value_dim)?),
                }
            }
        })
    }
}

/// Cache slots of the rows of a batch, and the blocks that they attend to.
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
        let refused = || ModelError::CacheSize {
            blocks,
            block_bytes,
        };
        // What no address can reach would wrap below; what no memory can hold, the system refuses.
        let whole = blocks.checked_mul(block_bytes);
        let whole = whole.filter(|bytes| isize::try_from(*bytes).is_ok());
        whole.ok_or_else(refused)?;
        let mut layers = Vec::new();
        for _ in 0..spec.layers {
            let arenas = Arenas::new(kv_type, blocks, shape).map_err(|_| refused())?;
            layers.push(LayerCache { arenas, shape });
        }
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
    /// Bring all rows of `qkv` through their stage, which stores their keys and values, then let each row
    /// attend. One of `out` holds the values of all heads.
    pub(crate) fn attend(
        &mut self,
        qkv: &mut [f32],
        stage: QkvStage<'_>,
        scoring: Scoring<'_>,
        plan: &CachePlan<'_>,
        out: &mut [f32],
    ) {
        let batch = Batch {
            stage,
            shape: self.shape,
            plan,
            scoring,
        };
        match &mut self.arenas {
            Arenas::F32 { keys, values } => batch.run_plain(keys.get(), values.get(), qkv, out),
            Arenas::F16 { keys, values } => {
                let keys = keys.get().reinterpret_cast_mut::<f16>();
                batch.run_plain(keys, values.get().reinterpret_cast_mut(), qkv, out);
            }
            Arenas::Bf16 { keys, values } => {
                let keys = keys.get().reinterpret_cast_mut::<bf16>();
                batch.run_plain(keys, values.get().reinterpret_cast_mut(), qkv, out);
            }
            Arenas::Q8 { keys, values } => {
                let (keys, values) = (
                    (keys.0.get(), keys.1.get()),
                    (values.0.get(), values.1.get()),
                );
                let pages = Q8Pages {
                    keys: &mut *keys.0,
                    key_scales: &mut *keys.1,
                    values: &mut *values.0,
                    value_scales: &mut *values.1,
                    shape: self.shape,
                };
                stage.run(qkv, plan.slots, pages);
                let arena = |(numbers, scales)| Q8Arena { numbers, scales };
                let (keys, values) = (arena((&*keys.0, &*keys.1)), (&*values.0, &*values.1));
                batch.attend(keys, arena(values), qkv, out);
            }
        }
    }
}

/// Attention parameters of a layer.
#[derive(Clone, Copy)]
struct Batch<'a> {
    stage: QkvStage<'a>,
    shape: KvShape,
    plan: &'a CachePlan<'a>,
    scoring: Scoring<'a>,
}

impl Batch<'_> {
    fn run_plain<T: KvElement>(
        self,
        keys: &mut [T],
        values: &mut [T],
        qkv: &mut [f32],
        out: &mut [f32],
    ) {
        let pages = KvPages {
            keys: &mut *keys,
            values: &mut *values,
            shape: self.shape,
        };
        self.stage.run(qkv, self.plan.slots, pages);
        self.attend(&*keys, &*values, qkv, out);
    }

    fn attend<A: KvArena>(self, keys: A, values: A, qkv: &[f32], out: &mut [f32]) {
        let input = AttentionInput {
            queries: qkv,
            query_stride: self.stage.stride(self.shape),
            heads: self.stage.heads,
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
