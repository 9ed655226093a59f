use half::f16;
use proptest::prelude::*;

use super::activations::round_group_portable;
use super::{
    BlockType, GROUP, QuantisedRows, dequantise, dot_rows, portable, quantise_q4_k, quantise_q8_0,
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

fn values(seed: u64, count: usize) -> Vec<f32> {
    noise(seed, count * 2)
        .chunks_exact(2)
        .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0)
        .collect()
}

/// Blocks with random contents and sane half-precision numbers.
fn blocks(kind: BlockType, seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = noise(seed, count * kind.bytes());
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
            let value = 0.01 * (1.0 + ((number * 7 + place * 3) % 11) as f32);
            block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        }
        if kind == BlockType::Mxfp4 {
            block[0] = 118 + (number % 5) as u8;
        }
    }
    bytes
}

#[test]
fn products_agree_with_dequantised_weights_and_rounded_activations() {
    for kind in BlockType::ALL {
        for count in [1, 2, 3, 8] {
            let inputs = count * kind.weights();
            let weights = blocks(kind, 5, count);
            let x = values(9, 4 * inputs);
            let rows = QuantisedRows::new(&x, inputs);
            let mut plain = vec![0.0; inputs];
            dequantise(kind, &weights, &mut plain);
            for r in 0..4 {
                let row = rows.row(r);
                let (mut exact, mut size) = (0.0, 0.0);
                for (k, weight) in plain.iter().enumerate() {
                    let x = f64::from(row.scales[k / GROUP]) * f64::from(row.quants[k]);
                    let product = x * f64::from(*weight);
                    exact += product;
                    size += product.abs();
                }
                let [vector] = dot_rows(kind, [row], &weights);
                for (path, found) in [
                    ("vector", vector),
                    ("portable", portable::dot(kind, row, &weights)),
                ] {
                    let error = (f64::from(found) - exact).abs();
                    assert!(
                        error <= 1e-5 * size.max(1e-3),
                        "{} of {count} blocks, {path}: {found} is not {exact}",
                        kind.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_alone_has_the_bits_it_has_among_others() {
    for kind in BlockType::ALL {
        let inputs = 3 * kind.weights();
        let weights = blocks(kind, 3, 3);
        let rows = QuantisedRows::new(&values(4, 4 * inputs), inputs);
        let together = dot_rows(
            kind,
            std::array::from_fn::<_, 4, _>(|r| rows.row(r)),
            &weights,
        );
        for (r, found) in together.iter().enumerate() {
            let [alone] = dot_rows(kind, [rows.row(r)], &weights);
            assert_eq!(alone.to_bits(), found.to_bits(), "{}, row {r}", kind.name());
        }
    }
}

proptest! {
    #[test]
    fn rounding_activations_is_within_half_a_step(
        x in proptest::collection::vec(-1e4f32..1e4, GROUP),
    ) {
        let rows = QuantisedRows::new(&x, GROUP);
        let row = rows.row(0);
        for (quant, x) in row.quants.iter().zip(&x) {
            let error = (f32::from(*quant) * row.scales[0] - x).abs();
            prop_assert!(error <= 0.501 * row.scales[0], "{error}");
        }
        let mut portable = [0; GROUP];
        let scale = round_group_portable(&x, &mut portable);
        prop_assert_eq!(&portable[..], row.quants);
        prop_assert_eq!(scale.to_bits(), row.scales[0].to_bits());
        let half: i32 = portable[..16].iter().map(|quant| i32::from(*quant)).sum();
        prop_assert_eq!(row.sums[0], scale * half as f32);
    }

    #[test]
    fn any_bytes_are_some_weights(bytes in proptest::collection::vec(any::<u8>(), 210)) {
        // Not-a-number and infinite scales included: nothing may panic or read out of bounds.
        for kind in BlockType::ALL {
            let block = &bytes[..kind.bytes()];
            let mut weights = vec![0.0; kind.weights()];
            dequantise(kind, block, &mut weights);
            let rows = QuantisedRows::new(&values(1, kind.weights()), kind.weights());
            dot_rows(kind, [rows.row(0)], block);
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
