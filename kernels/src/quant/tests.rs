use half::f16;
use proptest::prelude::*;

use super::activations::round_group_portable;
use super::{
    BlockType, GROUP, QuantisedGroup, QuantisedRows, dequantise, quantise_q4_k, quantise_q8_0,
};

/// Reproducible bytes.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

pub(super) fn values(seed: u64, count: usize) -> Vec<f32> {
    noise(seed, count * 2)
        .chunks_exact(2)
        .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0)
        .collect()
}

/// Blocks with random contents and sane half-precision numbers.
pub(super) fn blocks(kind: BlockType, seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = noise(seed, count * kind.bytes());
    set_scales(kind, &mut bytes, |number, place| {
        0.01 * (1.0 + ((number * 7 + place * 3) % 11) as f32)
    });
    bytes
}

/// Set the half-precision numbers of blocks, by the number of the block and that within it.
pub(super) fn set_scales(kind: BlockType, bytes: &mut [u8], scale: impl Fn(usize, usize) -> f32) {
    let halves: &[usize] = match kind {
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
        BlockType::Iq4Nl | BlockType::Iq4Xs => &[0],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
        BlockType::Q2K => &[80, 82],
        BlockType::Q3K => &[108],
        BlockType::Q6K => &[208],
        BlockType::Mxfp4 => &[],
    };
    for (number, block) in bytes.chunks_exact_mut(kind.bytes()).enumerate() {
        for (place, &at) in halves.iter().enumerate() {
            let value = scale(number, place);
            block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        }
        if kind == BlockType::Mxfp4 {
            block[0] = 118 + (number % 5) as u8;
        }
    }
}

proptest! {
    #[test]
    fn rounding_activations_is_within_half_a_step(
        x in proptest::collection::vec(-1e4f32..1e4, GROUP),
    ) {
        let rows = QuantisedRows::new(&x, GROUP);
        let group = rows.group(0, 0);
        for (quant, x) in group.quants.iter().zip(&x) {
            let error = (f32::from(*quant) * group.scale - x).abs();
            prop_assert!(error <= 0.501 * group.scale, "{error}");
        }
        let mut portable = QuantisedGroup::ZERO;
        round_group_portable(&x, &mut portable);
        prop_assert_eq!(&portable, group);
    }

    #[test]
    fn rows_are_found_in_their_tiles(rows in 1usize..11, groups in 1usize..4) {
        let x = values(3, rows * groups * GROUP);
        let all = QuantisedRows::new(&x, groups * GROUP);
        for row in 0..rows {
            for group in 0..groups {
                let x = &x[(row * groups + group) * GROUP..][..GROUP];
                let alone = QuantisedRows::new(x, GROUP);
                prop_assert_eq!(all.group(row, group), alone.group(0, 0));
            }
        }
    }

    #[test]
    fn quantised_weights_come_back_within_a_step(
        weights in proptest::collection::vec(-2f32..2.0, 256),
    ) {
        let mut back = vec![0.0; 256];
        dequantise(BlockType::Q8_0, &quantise_q8_0(&weights), &mut back);
        for (group, back) in weights.chunks(GROUP).zip(back.chunks(GROUP)) {
            let largest = group.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
            for (weight, back) in group.iter().zip(back) {
                prop_assert!((weight - back).abs() <= largest / 127.0);
            }
        }
        dequantise(BlockType::Q4K, &quantise_q4_k(&weights), &mut back);
        let spread = weights.iter().fold(0f32, |spread, weight| spread.max(weight.abs()));
        for (weight, back) in weights.iter().zip(&back) {
            // A level is at most 2 * spread / 15; scales and minima are rounded to 1/63.
            prop_assert!((weight - back).abs() <= 0.2 * spread, "{weight} became {back}");
        }
    }
}

#[test]
fn quantising_special_rows_keeps_them() {
    for weights in [vec![0.0; 256], vec![0.5; 256], vec![-0.25; 256]] {
        for (kind, blocks) in [
            (BlockType::Q8_0, quantise_q8_0(&weights)),
            (BlockType::Q4K, quantise_q4_k(&weights)),
        ] {
            let mut back = vec![0.0; 256];
            dequantise(kind, &blocks, &mut back);
            for (weight, back) in weights.iter().zip(&back) {
                assert!(
                    (weight - back).abs() <= 1e-3,
                    "{}: {weight} {back}",
                    kind.name()
                );
            }
        }
    }
}
