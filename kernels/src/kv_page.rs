//! The layout of the KV cache: an arena of blocks, each of [`BLOCK_TOKENS`] tokens.
//!
//! Within a block the heads follow one another. A head's keys are stored by dimension, so that the
//! scores of a block's tokens are computed side by side; its values are stored by token.
//!
//! ```text
//! keys    [block][kv head][dimension][token]
//! values  [block][kv head][token][dimension]
//! ```

use half::{bf16, f16};

/// Tokens in a block.
pub const BLOCK_TOKENS: usize = 16;

/// A number as the cache stores it.
pub trait KvElement: Copy + Send + Sync {
    /// Widen.
    fn to_f32(self) -> f32;
    /// Round.
    fn from_f32(value: f32) -> Self;

    /// Whether widening changes anything.
    const WIDENS: bool = true;

    /// Widen all of `numbers`, into a buffer of their length if they are not f32 already.
    #[inline(always)]
    fn widen<'a>(numbers: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32] {
        for (wide, number) in buffer.iter_mut().zip(numbers) {
            *wide = number.to_f32();
        }
        buffer
    }
}

/// The keys or the values of one layer as attention reads them: in f32, head by head.
pub trait KvArena: Copy + Send + Sync {
    /// Whether the buffers are used.
    const WIDENS: bool;

    /// The keys of one head of one block, `[dimension][token]`: those of head `h` of block `b` are
    /// number `b * kv_heads + h`. A buffer that is used has `dim * BLOCK_TOKENS` places.
    fn keys<'a>(&'a self, head: usize, dim: usize, buffer: &'a mut [f32]) -> &'a [f32];

    /// The values of one head of one block, `[token][dimension]`, in the same way.
    fn values<'a>(&'a self, head: usize, dim: usize, buffer: &'a mut [f32]) -> &'a [f32];

    /// Begin to fetch the keys or the values of one head of one block, which are needed soon.
    fn fetch(&self, head: usize, dim: usize);
}

/// Begin to fetch numbers that are needed soon.
#[inline(always)]
pub(crate) fn fetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let start = numbers.as_ptr().cast::<i8>();
        for line in (0..size_of_val(numbers)).step_by(LINE) {
            // SAFETY: nothing is read; the address lies within the slice.
            #[allow(unsafe_code, reason = "prefetches")]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(start.add(line));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

impl<T: KvElement> KvArena for &[T] {
    const WIDENS: bool = T::WIDENS;

    #[inline(always)]
    fn keys<'a>(&'a self, head: usize, dim: usize, buffer: &'a mut [f32]) -> &'a [f32] {
        let length = dim * BLOCK_TOKENS;
        T::widen(&self[head * length..][..length], buffer)
    }

    #[inline(always)]
    fn values<'a>(&'a self, head: usize, dim: usize, buffer: &'a mut [f32]) -> &'a [f32] {
        self.keys(head, dim, buffer)
    }

    #[inline(always)]
    fn fetch(&self, head: usize, dim: usize) {
        let length = dim * BLOCK_TOKENS;
        fetch(&self[head * length..][..length]);
    }
}

impl KvElement for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    const WIDENS: bool = false;

    #[inline(always)]
    fn widen<'a>(numbers: &'a [Self], _: &'a mut [f32]) -> &'a [f32] {
        numbers
    }
}

impl KvElement for f16 {
    // Not `f16::to_f32`, which asks the processor what it can and does not vectorise.
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let bits = u32::from(self.to_bits());
        // The exponent moves to its place and is off by 112; subnormal numbers come right by it.
        let magnitude = f32::from_bits((bits & 0x7FFF) << 13) * f32::from_bits((127 + 112) << 23);
        // What was infinite or no number has become 2^16 or more.
        let beyond = if magnitude >= 65_536.0 {
            0x7F80_0000
        } else {
            0
        };
        f32::from_bits(magnitude.to_bits() | beyond | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn widen<'a>(numbers: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32] {
        #[cfg(target_arch = "x86_64")]
        if crate::has_avx2_fma() {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
            unsafe {
                widen_f16c(numbers, buffer);
            }
            return buffer;
        }
        #[cfg(target_arch = "aarch64")]
        if crate::has_vectors() {
            // SAFETY: the processor has NEON.
            #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
            unsafe {
                widen_neon(numbers, buffer);
            }
            return buffer;
        }
        for (wide, number) in buffer.iter_mut().zip(numbers) {
            *wide = KvElement::to_f32(*number);
        }
        buffer
    }

    /// Saturates: an infinity in the cache would spoil all that attend to it.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value.clamp(-65_504.0, 65_504.0))
    }
}

/// Eight numbers by one instruction.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen_f16c(numbers: &[f16], buffer: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    assert_eq!(numbers.len(), buffer.len());
    let (eights, last) = numbers.as_chunks::<8>();
    let (wide_eights, wide_last) = buffer.as_chunks_mut::<8>();
    for (wide, numbers) in wide_eights.iter_mut().zip(eights) {
        // SAFETY: both sides have eight numbers.
        #[allow(unsafe_code, reason = "vector loads through pointers")]
        unsafe {
            let halves = _mm_loadu_si128(numbers.as_ptr().cast());
            _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
    }
    for (wide, number) in wide_last.iter_mut().zip(last) {
        *wide = KvElement::to_f32(*number);
    }
}

/// Four numbers by one instruction.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
fn widen_neon(numbers: &[f16], buffer: &mut [f32]) {
    use std::arch::aarch64::{vld1_u16, vst1q_f32};
    assert_eq!(numbers.len(), buffer.len());
    let (fours, last) = numbers.as_chunks::<4>();
    let (wide_fours, wide_last) = buffer.as_chunks_mut::<4>();
    for (wide, numbers) in wide_fours.iter_mut().zip(fours) {
        // SAFETY: both sides have four numbers.
        #[allow(unsafe_code, reason = "vector loads through pointers")]
        unsafe {
            let halves = vld1_u16(numbers.as_ptr().cast());
            vst1q_f32(wide.as_mut_ptr(), crate::neon::widen_halves(halves));
        }
    }
    for (wide, number) in wide_last.iter_mut().zip(last) {
        *wide = KvElement::to_f32(*number);
    }
}

impl KvElement for bf16 {
    // Not `bf16::to_f32`, whose care for signalling NaNs does not vectorise.
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

/// The shape of one layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Key-value heads.
    pub kv_heads: usize,
    /// Numbers of a head's key.
    pub key_dim: usize,
    /// Numbers of a head's value.
    pub value_dim: usize,
}

impl KvShape {
    /// Numbers that a block takes in the key arena.
    pub fn key_block_len(self) -> usize {
        self.kv_heads * self.key_head_len()
    }

    /// Numbers that a block takes in the value arena.
    pub fn value_block_len(self) -> usize {
        self.kv_heads * self.value_head_len()
    }

    /// Numbers that one head's keys take within a block.
    pub fn key_head_len(self) -> usize {
        self.key_dim * BLOCK_TOKENS
    }

    /// Numbers that one head's values take within a block.
    pub fn value_head_len(self) -> usize {
        self.value_dim * BLOCK_TOKENS
    }
}

/// The key arena and the value arena of one layer.
#[derive(Debug)]
pub struct KvPages<'a, T> {
    /// Keys.
    pub keys: &'a mut [T],
    /// Values.
    pub values: &'a mut [T],
    /// Their shape.
    pub shape: KvShape,
}

/// The cache of one layer, to be written.
pub trait BlockPages: Sized + Send {
    /// Its shape.
    fn shape(&self) -> KvShape;

    /// The first so many blocks, and those behind them.
    fn split_at(self, blocks: usize) -> (Self, Self);

    /// Store the key and the value of one token, all heads of each, in place `slot` of `block`.
    fn store(&mut self, block: usize, slot: usize, key: &[f32], value: &[f32]);
}

impl<T: KvElement> BlockPages for KvPages<'_, T> {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn split_at(self, blocks: usize) -> (Self, Self) {
        let shape = self.shape;
        let (keys, more_keys) = self.keys.split_at_mut(blocks * shape.key_block_len());
        let (values, more_values) = self.values.split_at_mut(blocks * shape.value_block_len());
        let pages = |keys, values| Self {
            keys,
            values,
            shape,
        };
        (pages(keys, values), pages(more_keys, more_values))
    }

    fn store(&mut self, block: usize, slot: usize, key: &[f32], value: &[f32]) {
        let KvShape {
            kv_heads,
            key_dim,
            value_dim,
        } = self.shape;
        assert!(slot < BLOCK_TOKENS);
        assert!(key.len() == kv_heads * key_dim && value.len() == kv_heads * value_dim);
        let length = self.shape.key_block_len();
        let keys = &mut self.keys[block * length..][..length];
        for (column, value) in keys.chunks_exact_mut(BLOCK_TOKENS).zip(key) {
            column[slot] = T::from_f32(*value);
        }
        let length = self.shape.value_block_len();
        let values = &mut self.values[block * length..][..length];
        let heads = values.chunks_exact_mut(self.shape.value_head_len());
        for (head, value) in heads.zip(value.chunks_exact(value_dim)) {
            let row = &mut head[slot * value_dim..][..value_dim];
            for (stored, value) in row.iter_mut().zip(value) {
                *stored = T::from_f32(*value);
            }
        }
    }
}
