//! Causal attention over blocks of keys and values, and the rotation and storing of keys and values before it.
//!
//! A block holds [`BLOCK_TOKENS`] tokens; in it lie, head by head, the keys (in the other arena the
//! values) of one token after the other.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::{Buffer, Slice, address_of};
use crate::device::{Address, Device, DeviceError, Launch};
use crate::linear::Rows;

/// Tokens of a block.
pub const BLOCK_TOKENS: usize = 16;
/// Rows of a tile of [`prefill`].
pub const TILE_ROWS: usize = 64;
/// Rows of a block of the kernel that keeps f32.
const EXACT_ROWS: usize = 16;
/// Numbers of a head at most.
pub const DIM_MAX: usize = 256;
/// Tokens of a split of [`decode`] at least, and splits of a sequence at most.
const SPLIT_TOKENS: usize = 128;
const SPLITS_MAX: usize = 256;
/// Tokens whose scores are computed at once.
const TOKENS: usize = 32;

/// As what keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvNumbers {
    /// f32.
    F32,
    /// f16; what is beyond its range is cut to it.
    F16,
    /// bf16.
    Bf16,
    /// Eight bits, and a scale in f16 for each 32 numbers of a token's head.
    Q8_0,
}

impl KvNumbers {
    /// Bytes of a token's head.
    fn bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => 4 * dim,
            Self::F16 | Self::Bf16 => 2 * dim,
            Self::Q8_0 => dim + 2 * dim.div_ceil(32),
        }
    }
}

/// The kernel for keys and values that are kept as `$numbers`.
macro_rules! kernel {
    ($numbers:expr, $name:literal $(, $kind:literal)?) => {
        match $numbers {
            KvNumbers::F32 => concat!($name, "_f32" $(, $kind)?),
            KvNumbers::F16 => concat!($name, "_f16" $(, $kind)?),
            KvNumbers::Bf16 => concat!($name, "_bf16" $(, $kind)?),
            KvNumbers::Q8_0 => concat!($name, "_q8_0" $(, $kind)?),
        }
    };
}

/// Heads of queries and of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values; they divide those of queries.
    pub kv_heads: usize,
    /// Numbers of a head, at most [`DIM_MAX`].
    pub dim: usize,
}

impl Heads {
    fn check(self) {
        assert!(self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads));
        assert!(self.dim > 0 && self.dim <= DIM_MAX);
    }
}

/// Keys and values of one layer.
#[derive(Debug)]
pub struct KvBlocks {
    keys: Buffer<u8>,
    values: Buffer<u8>,
    numbers: KvNumbers,
    heads: Heads,
}

impl KvBlocks {
    /// `blocks` blocks of zeros.
    pub fn new(
        device: &Arc<dyn Device>,
        blocks: usize,
        heads: Heads,
        numbers: KvNumbers,
    ) -> Result<Self, DeviceError> {
        heads.check();
        let token = heads.kv_heads * numbers.bytes(heads.dim);
        let bytes = blocks.saturating_mul(BLOCK_TOKENS).saturating_mul(token);
        Ok(Self {
            keys: Buffer::zeros(device, bytes)?,
            values: Buffer::zeros(device, bytes)?,
            numbers,
            heads,
        })
    }
}

/// Places of the rows of a batch. Values are not checked here: positions must lie in the tables,
/// tables in `blocks`, and blocks and slots in the cache.
#[derive(Debug, Clone, Copy)]
pub struct BatchPlaces<'a> {
    /// Position of each row in its sequence; negative for padding rows.
    pub positions: Slice<'a, i32>,
    /// Cache slot of each row's token, in tokens; negative for none.
    pub slots: Slice<'a, i32>,
    /// Start of each row's table in `blocks`.
    pub tables: Slice<'a, i32>,
    /// Block tables.
    pub blocks: Slice<'a, i32>,
}

/// Cosines and sines of all positions, `turned / 2` of each.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'a> {
    /// Cosines.
    pub cosines: Slice<'a, f32>,
    /// Sines.
    pub sines: Slice<'a, f32>,
    /// Numbers of a head that turn.
    pub turned: usize,
    /// Whether neighbours turn together, rather than numbers half of the turned ones apart.
    pub neighbours: bool,
}

/// Norms and rotary embedding of queries and keys.
#[derive(Debug, Clone, Copy)]
pub struct FinishQkv<'a> {
    /// Weights of the norms of each head's queries and keys.
    pub norms: Option<[Slice<'a, f32>; 2]>,
    /// Added to the mean square.
    pub epsilon: f32,
    /// Positions.
    pub rope: Option<Rope<'a>>,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct FinishQkvParams {
    qkv: Address,
    query_norm: Address,
    key_norm: Address,
    cosines: Address,
    sines: Address,
    positions: Address,
    slots: Address,
    keys: Address,
    values: Address,
    stride: i32,
    heads: i32,
    kv_heads: i32,
    dim: i32,
    turned: i32,
    neighbours: i32,
    epsilon: f32,
    padding: u32,
}

/// Finish rows of queries, keys and values: queries where they stand, keys and values into the
/// cache. Cosines and sines must reach to the highest position.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn finish_qkv(
    device: &dyn Device,
    finish: &FinishQkv<'_>,
    qkv: Rows<'_>,
    places: &BatchPlaces<'_>,
    cache: &KvBlocks,
) -> Result<(), DeviceError> {
    let Heads {
        heads,
        kv_heads,
        dim,
    } = cache.heads;
    let all = heads + 2 * kv_heads;
    assert!(qkv.hold(all * dim));
    assert!(places.positions.len() >= qkv.count && places.slots.len() >= qkv.count);
    let norms = finish
        .norms
        .map(|norms| norms.map(|norm| (norm.address(), norm.len())));
    assert!(norms.is_none_or(|norms| norms.iter().all(|(_, length)| *length == dim)));
    if let Some(rope) = finish.rope {
        assert!(rope.turned.is_multiple_of(2) && rope.turned <= dim);
        assert!(rope.cosines.len() == rope.sines.len());
    }
    if qkv.count == 0 {
        return Ok(());
    }
    let [query_norm, key_norm] = norms.map_or([Address::NULL; 2], |norms| norms.map(|norm| norm.0));
    let params = FinishQkvParams {
        qkv: qkv.slice.address(),
        query_norm,
        key_norm,
        cosines: address_of(finish.rope.map(|rope| rope.cosines)),
        sines: address_of(finish.rope.map(|rope| rope.sines)),
        positions: places.positions.address(),
        slots: places.slots.address(),
        keys: cache.keys.all().address(),
        values: cache.values.all().address(),
        stride: qkv.stride as i32,
        heads: heads as i32,
        kv_heads: kv_heads as i32,
        dim: dim as i32,
        turned: finish.rope.map_or(0, |rope| rope.turned as i32),
        neighbours: finish.rope.map_or(0, |rope| i32::from(rope.neighbours)),
        epsilon: finish.epsilon,
        padding: 0,
    };
    let launch = Launch {
        kernel: kernel!(cache.numbers, "finish_qkv"),
        grid: [qkv.count as u32, all as u32, 1],
        threads: 32,
        shared: (dim * size_of::<f32>()) as u32,
        params: params.as_bytes(),
    };
    // SAFETY: rows hold all heads; what the numbers of `places` mean is the caller's promise.
    unsafe { device.launch(&launch) }
}

/// From products of queries and keys to attention weights.
#[derive(Debug, Clone, Copy)]
pub struct Scoring<'a> {
    /// Factor of the products.
    pub scale: f32,
    /// Positions that a row sees, its own included; at least 1. `None` is all.
    pub window: Option<usize>,
    /// Bends scores towards this bound: `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// A score for each query head that takes part in the softmax and has no value.
    pub sinks: Option<Slice<'a, f32>>,
}

/// Room that [`decode`] needs for long sequences.
#[derive(Debug)]
pub struct Splits {
    partials: Buffer<f32>,
    tickets: Buffer<u32>,
    /// Tokens of a split.
    tokens: usize,
    count: usize,
    rows: usize,
    heads: Heads,
}

impl Splits {
    /// For up to `rows` rows of sequences of up to `tokens` tokens.
    pub fn new(
        device: &Arc<dyn Device>,
        heads: Heads,
        rows: usize,
        tokens: usize,
    ) -> Result<Self, DeviceError> {
        let split = tokens
            .div_ceil(SPLITS_MAX)
            .next_multiple_of(TOKENS)
            .max(SPLIT_TOKENS);
        let count = tokens.div_ceil(split).max(1);
        Ok(Self {
            tokens: split,
            partials: Buffer::zeros(device, rows * heads.heads * count * (heads.dim + 2))?,
            tickets: Buffer::zeros(device, rows * heads.kv_heads)?,
            count,
            rows,
            heads,
        })
    }

    /// Number of splits for sequences of so many tokens, rounded up so that there are few distinct
    /// numbers.
    pub fn needed(&self, tokens: usize) -> usize {
        let needed = tokens.div_ceil(self.tokens).max(1);
        needed.next_power_of_two().min(self.count)
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct AttentionParams {
    queries: Address,
    keys: Address,
    values: Address,
    out: Address,
    positions: Address,
    tables: Address,
    blocks: Address,
    sinks: Address,
    partials: Address,
    tickets: Address,
    tiles: Address,
    stride: i32,
    heads: i32,
    kv_heads: i32,
    dim: i32,
    window: i32,
    scale: f32,
    soft_cap: f32,
    split_tokens: i32,
}

impl AttentionParams {
    fn new(
        scoring: &Scoring<'_>,
        queries: Rows<'_>,
        places: &BatchPlaces<'_>,
        cache: &KvBlocks,
        out: Slice<'_, f32>,
    ) -> Self {
        let Heads {
            heads,
            kv_heads,
            dim,
        } = cache.heads;
        assert!(queries.hold(heads * dim) && out.len() >= queries.count * heads * dim);
        assert!(places.positions.len() >= queries.count && places.tables.len() >= queries.count);
        assert!(scoring.sinks.is_none_or(|sinks| sinks.len() == heads));
        assert!(scoring.window != Some(0) && scoring.soft_cap.is_none_or(|cap| cap > 0.0));
        Self {
            queries: queries.slice.address(),
            keys: cache.keys.all().address(),
            values: cache.values.all().address(),
            out: out.address(),
            positions: places.positions.address(),
            tables: places.tables.address(),
            blocks: places.blocks.address(),
            sinks: address_of(scoring.sinks),
            partials: Address::NULL,
            tickets: Address::NULL,
            tiles: Address::NULL,
            stride: queries.stride as i32,
            heads: heads as i32,
            kv_heads: kv_heads as i32,
            dim: dim as i32,
            window: scoring
                .window
                .map_or(0, |window| window.min(1 << 30) as i32),
            scale: scoring.scale,
            soft_cap: scoring.soft_cap.unwrap_or(0.0),
            split_tokens: 0,
        }
    }
}

/// Let each row attend by itself, writing `heads * dim` numbers a row to `out`. `splits` of them
/// must be enough for the highest position: see [`Splits::needed`]. Its room is shared by all calls.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn decode(
    device: &dyn Device,
    scoring: &Scoring<'_>,
    queries: Rows<'_>,
    places: &BatchPlaces<'_>,
    cache: &KvBlocks,
    (room, splits): (&Splits, usize),
    out: Slice<'_, f32>,
) -> Result<(), DeviceError> {
    let Heads {
        heads,
        kv_heads,
        dim,
    } = cache.heads;
    assert!(room.heads == cache.heads && queries.count <= room.rows);
    assert!(splits > 0 && splits <= room.count);
    let mut params = AttentionParams::new(scoring, queries, places, cache, out);
    if queries.count == 0 {
        return Ok(());
    }
    params.partials = room.partials.all().address();
    params.tickets = room.tickets.all().address();
    params.split_tokens = room.tokens as i32;
    let group = heads / kv_heads;
    let floats = 2 * group * dim + TOKENS * (dim + 1) + TOKENS * group + 3 * group + 1;
    let launch = Launch {
        kernel: kernel!(cache.numbers, "decode_attention"),
        grid: [kv_heads as u32, queries.count as u32, splits as u32],
        threads: 128,
        shared: (floats * size_of::<f32>()) as u32,
        params: params.as_bytes(),
    };
    // SAFETY: rows and room are large enough; what the numbers of `places` mean is the caller's
    // promise.
    unsafe { device.launch(&launch) }
}

/// Let tiles of consecutive rows of one sequence attend together, writing `heads * dim` numbers a
/// row to `out`. `tiles` holds the first row and the number of rows, at most [`TILE_ROWS`], of each
/// of `count` tiles; they must be rows of `queries`, which is not looked at here. Where keys and values
/// are not kept in f32, tensor cores multiply: queries and weights are rounded to 16 bits.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn prefill(
    device: &dyn Device,
    scoring: &Scoring<'_>,
    queries: Rows<'_>,
    places: &BatchPlaces<'_>,
    cache: &KvBlocks,
    (tiles, count): (Slice<'_, i32>, usize),
    out: Slice<'_, f32>,
) -> Result<(), DeviceError> {
    let Heads { heads, dim, .. } = cache.heads;
    assert!(tiles.len() >= 2 * count);
    let mut params = AttentionParams::new(scoring, queries, places, cache, out);
    if count == 0 {
        return Ok(());
    }
    params.tiles = tiles.address();
    let (kernel, parts, shared) = match cache.numbers {
        KvNumbers::F32 => {
            let floats = (EXACT_ROWS + TOKENS) * (dim + 1) + EXACT_ROWS * (TOKENS + 4);
            let bytes = floats * size_of::<f32>();
            ("prefill_attention_f32", TILE_ROWS / EXACT_ROWS, bytes)
        }
        numbers => {
            let (kernel, dim) = match dim {
                0..=64 => (kernel!(numbers, "prefill_attention", "_64"), 64),
                65..=128 => (kernel!(numbers, "prefill_attention", "_128"), 128),
                _ => (kernel!(numbers, "prefill_attention", "_256"), DIM_MAX),
            };
            let halves = (TILE_ROWS + TOKENS) * (dim + 8) + dim * (TOKENS + 2);
            (kernel, 1, halves * size_of::<u16>())
        }
    };
    let launch = Launch {
        kernel,
        grid: [heads as u32, count as u32, parts as u32],
        threads: 128,
        shared: shared as u32,
        params: params.as_bytes(),
    };
    // SAFETY: rows are large enough; what the numbers of `places` and `tiles` mean is the caller's
    // promise.
    unsafe { device.launch(&launch) }
}
