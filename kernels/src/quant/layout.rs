//! Block formats: location of scales, minima and codes of each group.

use half::f16;

use super::{BlockType, GROUP, Group};

/// The steps of `IQ4_NL` and `IQ4_XS`.
pub(super) const IQ4_STEPS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
/// The values of a 4-bit float, doubled so that they are integers.
pub(super) const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Unpack group `index` of a block. `block` has the bytes of the format and the index is below its
/// number of groups.
pub(super) fn unpack(kind: BlockType, block: &[u8], index: usize) -> Group {
    match kind {
        BlockType::Q4_0 => symmetric(half_at(block, 0), |k| nibble(&block[2..], k) - 8),
        BlockType::Q4_1 => {
            let [scale, min] = [half_at(block, 0), -half_at(block, 2)];
            affine(scale, min, |k| nibble(&block[4..], k))
        }
        BlockType::Q5_0 => symmetric(half_at(block, 0), |k| {
            (nibble(&block[6..], k) | bit(&block[2..], k) << 4) - 16
        }),
        BlockType::Q5_1 => {
            let [scale, min] = [half_at(block, 0), -half_at(block, 2)];
            affine(scale, min, |k| {
                nibble(&block[8..], k) | bit(&block[4..], k) << 4
            })
        }
        BlockType::Q8_0 => symmetric(half_at(block, 0), |k| block[2 + k] as i8),
        BlockType::Iq4Nl => symmetric(half_at(block, 0), |k| {
            IQ4_STEPS[nibble(&block[2..], k) as usize]
        }),
        BlockType::Mxfp4 => symmetric(half_power(block[0]), |k| {
            FP4_DOUBLED[nibble(&block[1..], k) as usize]
        }),
        BlockType::Q2K => q2_k(block, index),
        BlockType::Q3K => q3_k(block, index),
        BlockType::Q4K => {
            let [scale, min] = k_scales(block, index);
            affine(scale, min, |k| pair_nibble(&block[16..], index, k))
        }
        BlockType::Q5K => {
            let [scale, min] = k_scales(block, index);
            affine(scale, min, |k| {
                let high = block[16 + k] >> index & 1;
                pair_nibble(&block[48..], index, k) | (high << 4) as i8
            })
        }
        BlockType::Q6K => q6_k(block, index),
        BlockType::Iq4Xs => {
            let scale = half_at(block, 0) * f32::from(iq4_xs_multiple(block, index));
            let quants = &block[8 + 16 * index..];
            symmetric(scale, |k| IQ4_STEPS[nibble(quants, k) as usize])
        }
    }
}

fn symmetric(scale: f32, quant: impl Fn(usize) -> i8) -> Group {
    affine(scale, 0.0, quant)
}

fn affine(scale: f32, min: f32, quant: impl Fn(usize) -> i8) -> Group {
    Group {
        quants: std::array::from_fn(quant),
        scales: [scale; 2],
        mins: [min; 2],
    }
}

/// The half-precision number at a byte.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Weight `k` of sixteen bytes that hold the first half in their low nibbles.
fn nibble(bytes: &[u8], k: usize) -> i8 {
    let byte = bytes[k % 16];
    (if k < 16 { byte & 15 } else { byte >> 4 }) as i8
}

/// Bit `k` of four bytes.
fn bit(bytes: &[u8], k: usize) -> i8 {
    (bytes[k / 8] >> (k % 8) & 1) as i8
}

/// Weight `k` of a group whose even neighbour has the low nibbles of the same 32 bytes.
fn pair_nibble(bytes: &[u8], index: usize, k: usize) -> i8 {
    let byte = bytes[index / 2 * GROUP + k];
    (if index.is_multiple_of(2) {
        byte & 15
    } else {
        byte >> 4
    }) as i8
}

/// Half of the power of two that an exponent byte stands for; the two smallest are subnormal.
pub(super) fn half_power(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}

/// Scale and minimum of a group of `Q4_K` or `Q5_K`.
fn k_scales(block: &[u8], index: usize) -> [f32; 2] {
    let [scale, min] = k_multiples(block, index);
    [
        half_at(block, 0) * f32::from(scale),
        half_at(block, 2) * f32::from(min),
    ]
}

/// Scale and minimum of a group as multiples of the block's, six bits each in twelve bytes.
pub(super) fn k_multiples(block: &[u8], index: usize) -> [u8; 2] {
    let packed = &block[4..16];
    if index < 4 {
        return [packed[index] & 63, packed[index + 4] & 63];
    }
    let low = packed[index + 4];
    [
        low & 15 | packed[index - 4] >> 6 << 4,
        low >> 4 | packed[index] >> 6 << 4,
    ]
}

fn q2_k(block: &[u8], index: usize) -> Group {
    let (scale, min) = (half_at(block, 80), half_at(block, 82));
    let halves = [block[2 * index], block[2 * index + 1]];
    let quants = &block[16 + index / 4 * GROUP..];
    Group {
        quants: std::array::from_fn(|k| (quants[k] >> (index % 4 * 2) & 3) as i8),
        scales: halves.map(|packed| scale * f32::from(packed & 15)),
        mins: halves.map(|packed| min * f32::from(packed >> 4)),
    }
}

fn q3_k(block: &[u8], index: usize) -> Group {
    let scale = half_at(block, 108);
    let packed = &block[96..108];
    let half_scale = |half: usize| {
        let number = 2 * index + half;
        let low = packed[number % 8] >> (number / 8 * 4) & 15;
        let high = packed[8 + number % 4] >> (number / 4 * 2) & 3;
        scale * f32::from((low | high << 4) as i8 - 32)
    };
    let quants = &block[32 + index / 4 * GROUP..];
    Group {
        quants: std::array::from_fn(|k| {
            // The fourth is taken off where the bit is not set.
            let low = (quants[k] >> (index % 4 * 2) & 3) as i8;
            low - if block[k] >> index & 1 == 1 { 0 } else { 4 }
        }),
        scales: [half_scale(0), half_scale(1)],
        mins: [0.0; 2],
    }
}

fn q6_k(block: &[u8], index: usize) -> Group {
    let scale = half_at(block, 208);
    let (part, place) = (index / 4, index % 4);
    let low = &block[part * 64 + place % 2 * GROUP..];
    let high = &block[128 + part * GROUP..];
    Group {
        quants: std::array::from_fn(|k| {
            let low = low[k] >> (place / 2 * 4) & 15;
            let high = high[k] >> (place * 2) & 3;
            (low | high << 4) as i8 - 32
        }),
        scales: [0, 1].map(|half| scale * f32::from(block[192 + 2 * index + half] as i8)),
        mins: [0.0; 2],
    }
}

/// The scale of a group of `IQ4_XS` as a multiple of the block's: six bits, four in one place and two in
/// another.
pub(super) fn iq4_xs_multiple(block: &[u8], index: usize) -> i8 {
    let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * index) & 3;
    let low = block[4 + index / 2] >> (index % 2 * 4) & 15;
    (low | (high << 4) as u8) as i8 - 32
}
