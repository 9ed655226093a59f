//! Keys and values in the numbers of the `q8_0` format: eight bits each, with one scale in f16 for
//! every 32 of a token's numbers. The numbers lie as [`kv_page`](crate::kv_page) describes; the
//! scales beside them:
//!
//! ```text
//! keys    [block][kv head][group of 32 dimensions][token]
//! values  [block][kv head][token][group of 32 dimensions]
//! ```
//!
//! A number is off by half a scale at most, which is 1/254 of the largest of its group, and as much
//! more as a place of f16 adds to the scale.

use half::f16;

use crate::kv_page::{BLOCK_TOKENS, BlockPages, KvArena, KvElement, KvShape, fetch};

/// Numbers that share a scale.
pub const GROUP: usize = 32;

/// Scales that a token's numbers of one head need.
pub fn groups(dim: usize) -> usize {
    dim.div_ceil(GROUP)
}

/// One arena: keys or values of a layer.
#[derive(Debug, Clone, Copy)]
pub struct Q8Arena<'a> {
    /// Numbers in units of their scales.
    pub numbers: &'a [i8],
    /// Bits of the scales in f16.
    pub scales: &'a [u16],
}

/// The arenas of one layer, to be written.
#[derive(Debug)]
pub struct Q8Pages<'a> {
    /// Numbers of the keys.
    pub keys: &'a mut [i8],
    /// Scales of the keys, as f16 bits.
    pub key_scales: &'a mut [u16],
    /// Numbers of the values.
    pub values: &'a mut [i8],
    /// Scales of the values, as f16 bits.
    pub value_scales: &'a mut [u16],
    /// Their shape.
    pub shape: KvShape,
}

impl BlockPages for Q8Pages<'_> {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn split_at(self, blocks: usize) -> (Self, Self) {
        let shape = self.shape;
        let scales = |dim| blocks * shape.kv_heads * groups(dim) * BLOCK_TOKENS;
        let keys = self.keys.split_at_mut(blocks * shape.key_block_len());
        let key_scales = self.key_scales.split_at_mut(scales(shape.key_dim));
        let values = self.values.split_at_mut(blocks * shape.value_block_len());
        let value_scales = self.value_scales.split_at_mut(scales(shape.value_dim));
        let pages = |keys, key_scales, values, value_scales| Self {
            keys,
            key_scales,
            values,
            value_scales,
            shape,
        };
        (
            pages(keys.0, key_scales.0, values.0, value_scales.0),
            pages(keys.1, key_scales.1, values.1, value_scales.1),
        )
    }

    fn store(&mut self, block: usize, slot: usize, key: &[f32], value: &[f32]) {
        let KvShape {
            kv_heads,
            key_dim,
            value_dim,
        } = self.shape;
        assert!(slot < BLOCK_TOKENS);
        assert!(key.len() == kv_heads * key_dim && value.len() == kv_heads * value_dim);
        for (head, key) in key.chunks_exact(key_dim).enumerate() {
            let index = block * kv_heads + head;
            let numbers = &mut self.keys[index * key_dim * BLOCK_TOKENS..];
            let scales = &mut self.key_scales[index * groups(key_dim) * BLOCK_TOKENS..];
            for (group, key) in key.chunks(GROUP).enumerate() {
                let scale = scale_of(key);
                scales[group * BLOCK_TOKENS + slot] = scale.to_bits();
                for (place, value) in key.iter().enumerate() {
                    let dimension = group * GROUP + place;
                    numbers[dimension * BLOCK_TOKENS + slot] = quantise(*value, scale);
                }
            }
        }
        for (head, value) in value.chunks_exact(value_dim).enumerate() {
            let row = (block * kv_heads + head) * BLOCK_TOKENS + slot;
            let numbers = &mut self.values[row * value_dim..][..value_dim];
            let scales = &mut self.value_scales[row * groups(value_dim)..];
            for (group, (numbers, value)) in numbers
                .chunks_mut(GROUP)
                .zip(value.chunks(GROUP))
                .enumerate()
            {
                let scale = scale_of(value);
                scales[group] = scale.to_bits();
                for (number, value) in numbers.iter_mut().zip(value) {
                    *number = quantise(*value, scale);
                }
            }
        }
    }
}

/// The least scale at which no number exceeds 127. Rounded to nearest it could be too small by half
/// a place of f16, which is much for a tiny scale, and the largest number would be cut off.
fn scale_of(numbers: &[f32]) -> f16 {
    let largest = numbers
        .iter()
        .fold(0.0f32, |most, number| most.max(number.abs()));
    let scale = <f16 as KvElement>::from_f32(largest / 127.0);
    if KvElement::to_f32(scale) * 127.0 < largest && scale < f16::MAX {
        f16::from_bits(scale.to_bits() + 1)
    } else {
        scale
    }
}

fn quantise(value: f32, scale: f16) -> i8 {
    let scale = KvElement::to_f32(scale);
    if scale == 0.0 {
        return 0;
    }
    // The cast saturates, for what is beyond the largest scale.
    (value / scale).round().max(-127.0) as i8
}

impl KvArena for Q8Arena<'_> {
    const WIDENS: bool = true;

    #[inline(always)]
    fn keys<'b>(&'b self, head: usize, dim: usize, buffer: &'b mut [f32]) -> &'b [f32] {
        let numbers = &self.numbers[head * dim * BLOCK_TOKENS..][..dim * BLOCK_TOKENS];
        let length = groups(dim) * BLOCK_TOKENS;
        let scales = &self.scales[head * length..][..length];
        let groups = numbers
            .chunks(GROUP * BLOCK_TOKENS)
            .zip(buffer.chunks_mut(GROUP * BLOCK_TOKENS))
            .zip(scales.as_chunks::<BLOCK_TOKENS>().0);
        for ((numbers, out), scales) in groups {
            let scales = scales.map(|scale| KvElement::to_f32(f16::from_bits(scale)));
            let columns = numbers.as_chunks::<BLOCK_TOKENS>().0;
            let out = out.as_chunks_mut::<BLOCK_TOKENS>().0;
            for (numbers, out) in columns.iter().zip(out) {
                for slot in 0..BLOCK_TOKENS {
                    out[slot] = f32::from(numbers[slot]) * scales[slot];
                }
            }
        }
        buffer
    }

    #[inline(always)]
    fn values<'b>(&'b self, head: usize, dim: usize, buffer: &'b mut [f32]) -> &'b [f32] {
        let numbers = &self.numbers[head * dim * BLOCK_TOKENS..][..dim * BLOCK_TOKENS];
        let length = groups(dim) * BLOCK_TOKENS;
        let scales = &self.scales[head * length..][..length];
        let rows = numbers
            .chunks_exact(dim)
            .zip(buffer.chunks_exact_mut(dim))
            .zip(scales.chunks_exact(groups(dim)));
        for ((numbers, out), scales) in rows {
            let (whole, last) = numbers.as_chunks::<GROUP>();
            let (out, out_last) = out.as_chunks_mut::<GROUP>();
            let mut scales = scales
                .iter()
                .map(|scale| KvElement::to_f32(f16::from_bits(*scale)));
            // A length that the compiler knows makes vectors of it.
            for ((numbers, out), scale) in whole.iter().zip(out).zip(&mut scales) {
                for (out, number) in out.iter_mut().zip(numbers) {
                    *out = f32::from(*number) * scale;
                }
            }
            for ((number, out), scale) in last.iter().zip(out_last).zip(scales.cycle()) {
                *out = f32::from(*number) * scale;
            }
        }
        buffer
    }

    #[inline(always)]
    fn fetch(&self, head: usize, dim: usize) {
        let length = dim * BLOCK_TOKENS;
        fetch(&self.numbers[head * length..][..length]);
        let length = groups(dim) * BLOCK_TOKENS;
        fetch(&self.scales[head * length..][..length]);
    }
}
