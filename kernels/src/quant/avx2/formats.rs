//! How vectors read each format. The places are those of [`layout`](super::super::layout), which
//! tests compare with.

use super::{
    __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_cvtepi8_epi32, _mm256_cvtepu8_epi32,
    _mm256_or_si256, _mm256_set1_epi8, _mm256_sub_epi8, BlockType, FP4_DOUBLED, Format, IQ4_STEPS,
    Parameters, field, half_at, half_power, iq4_xs_scale, load_16, load_32, look_up, nibbles,
    single, six_bit_parameters, sixteen, sixteens,
};
use std::arch::x86_64::{
    _mm_and_si128, _mm_set1_epi8, _mm_srli_epi16, _mm_srli_si128, _mm256_andnot_si256,
    _mm256_slli_epi16,
};

/// Names a format with blocks of one group: how to find scale and minimum, and how the integers.
macro_rules! short_format {
    ($name:ident, mins: $mins:literal, |$block:ident| $parameters:expr, $quants:expr) => {
        pub(super) struct $name;

        impl Format for $name {
            const KIND: BlockType = BlockType::$name;
            const MINS: bool = $mins;

            #[inline(always)]
            unsafe fn parameters($block: *const u8) -> Parameters {
                // SAFETY: the caller promises a whole block and the features.
                let (scale, min) = unsafe { $parameters };
                single(scale, min)
            }

            #[inline(always)]
            unsafe fn quants($block: *const u8, _: usize) -> __m256i {
                // SAFETY: the caller promises a whole block and the features.
                unsafe { $quants }
            }
        }
    };
}

short_format!(
    Q4_0, mins: false, |block| (half_at(block, 0), 0.0),
    _mm256_sub_epi8(nibbles(block.add(2)), _mm256_set1_epi8(8))
);
short_format!(
    Q4_1, mins: true, |block| (half_at(block, 0), -half_at(block, 2)),
    nibbles(block.add(4))
);
short_format!(
    Q5_0, mins: false, |block| (half_at(block, 0), 0.0),
    _mm256_sub_epi8(
        _mm256_or_si256(nibbles(block.add(6)), sixteens(block.add(2))),
        _mm256_set1_epi8(16),
    )
);
short_format!(
    Q5_1, mins: true, |block| (half_at(block, 0), -half_at(block, 2)),
    _mm256_or_si256(nibbles(block.add(8)), sixteens(block.add(4)))
);
short_format!(
    Q8_0, mins: false, |block| (half_at(block, 0), 0.0),
    load_32(block.add(2))
);
short_format!(
    Iq4Nl, mins: false, |block| (half_at(block, 0), 0.0),
    look_up(&IQ4_STEPS, nibbles(block.add(2)))
);
short_format!(
    Mxfp4, mins: false, |block| (half_power(*block), 0.0),
    look_up(&FP4_DOUBLED, nibbles(block.add(1)))
);

pub(super) struct Q2K;

impl Format for Q2K {
    const KIND: BlockType = BlockType::Q2K;
    const MINS: bool = true;
    const HALVES: bool = true;

    #[inline(always)]
    unsafe fn parameters(block: *const u8) -> Parameters {
        // SAFETY: the caller promises a whole block and the features.
        unsafe {
            let packed = load_16(block);
            let fifteen = _mm_set1_epi8(15);
            let low = _mm_and_si128(packed, fifteen);
            let high = _mm_and_si128(_mm_srli_epi16::<4>(packed), fifteen);
            let wide = |bytes| {
                [
                    _mm256_cvtepu8_epi32(bytes),
                    _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)),
                ]
            };
            Parameters {
                scales: sixteen(wide(low), half_at(block, 80)),
                mins: sixteen(wide(high), half_at(block, 82)),
            }
        }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8, group: usize) -> __m256i {
        // SAFETY: the caller promises a whole block and the features.
        unsafe { field(load_32(block.add(16 + group / 4 * 32)), group % 4 * 2, 3) }
    }
}

pub(super) struct Q3K;

impl Format for Q3K {
    const KIND: BlockType = BlockType::Q3K;
    const HALVES: bool = true;

    #[inline(always)]
    unsafe fn parameters(block: *const u8) -> Parameters {
        // SAFETY: the caller promises a whole block and the features.
        unsafe {
            let unit = half_at(block, 108);
            let packed = |at: usize| *block.add(96 + at);
            let scale = |number: usize| {
                let low = packed(number % 8) >> (number / 8 * 4) & 15;
                let high = packed(8 + number % 4) >> (number / 4 * 2) & 3;
                unit * f32::from((low | high << 4) as i8 - 32)
            };
            let mut scales = [0.0; 16];
            for (number, out) in scales.iter_mut().enumerate() {
                *out = scale(number);
            }
            Parameters {
                scales,
                mins: [0.0; 16],
            }
        }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8, group: usize) -> __m256i {
        // SAFETY: the caller promises a whole block and the features.
        unsafe {
            let low = field(load_32(block.add(32 + group / 4 * 32)), group % 4 * 2, 3);
            let bit = _mm256_set1_epi8((1_u8 << group) as i8);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32(block), bit), bit);
            _mm256_sub_epi8(low, _mm256_andnot_si256(set, _mm256_set1_epi8(4)))
        }
    }
}

pub(super) struct Q4K;

impl Format for Q4K {
    const KIND: BlockType = BlockType::Q4K;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn parameters(block: *const u8) -> Parameters {
        // SAFETY: the caller promises a whole block and the features.
        unsafe { six_bit_parameters(block) }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8, group: usize) -> __m256i {
        // SAFETY: the caller promises a whole block and the features.
        unsafe { field(load_32(block.add(16 + group / 2 * 32)), group % 2 * 4, 15) }
    }
}

pub(super) struct Q5K;

impl Format for Q5K {
    const KIND: BlockType = BlockType::Q5K;
    const MINS: bool = true;

    #[inline(always)]
    unsafe fn parameters(block: *const u8) -> Parameters {
        // SAFETY: the caller promises a whole block and the features.
        unsafe { six_bit_parameters(block) }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8, group: usize) -> __m256i {
        // SAFETY: the caller promises a whole block and the features.
        unsafe {
            let low = field(load_32(block.add(48 + group / 2 * 32)), group % 2 * 4, 15);
            let bit = _mm256_set1_epi8((1_u8 << group) as i8);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32(block.add(16)), bit), bit);
            _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi8(16)))
        }
    }
}

pub(super) struct Q6K;

impl Format for Q6K {
    const KIND: BlockType = BlockType::Q6K;
    const HALVES: bool = true;

    #[inline(always)]
    unsafe fn parameters(block: *const u8) -> Parameters {
        // SAFETY: the caller promises a whole block and the features.
        unsafe {
            let packed = load_16(block.add(192));
            let wide = [
                _mm256_cvtepi8_epi32(packed),
                _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(packed)),
            ];
            Parameters {
                scales: sixteen(wide, half_at(block, 208)),
                mins: [0.0; 16],
            }
        }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8, group: usize) -> __m256i {
        let (part, place) = (group / 4, group % 4);
        // SAFETY: the caller promises a whole block and the features.
        unsafe {
            let low = load_32(block.add(part * 64 + place % 2 * 32));
            let low = field(low, place / 2 * 4, 15);
            let high = field(load_32(block.add(128 + part * 32)), place * 2, 3);
            let whole = _mm256_or_si256(low, _mm256_slli_epi16::<4>(high));
            _mm256_sub_epi8(whole, _mm256_set1_epi8(32))
        }
    }
}

pub(super) struct Iq4Xs;

impl Format for Iq4Xs {
    const KIND: BlockType = BlockType::Iq4Xs;

    #[inline(always)]
    unsafe fn parameters(block: *const u8) -> Parameters {
        // SAFETY: the caller promises a whole block.
        let bytes = unsafe { std::slice::from_raw_parts(block, Self::KIND.bytes()) };
        let mut scales = [0.0; 16];
        for (group, pair) in scales.chunks_exact_mut(2).enumerate() {
            pair.fill(iq4_xs_scale(bytes, group));
        }
        Parameters {
            scales,
            mins: [0.0; 16],
        }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8, group: usize) -> __m256i {
        // SAFETY: the caller promises a whole block and the features.
        unsafe { look_up(&IQ4_STEPS, nibbles(block.add(8 + group * 16))) }
    }
}
