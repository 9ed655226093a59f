//! The ops of encoders against their definitions in double precision.

use mortise_kernels::full_attention::full_attention;
use mortise_kernels::gelu::{gelu_in_place, gelu_mul};
use mortise_kernels::layer_norm::layer_norm_in_place;

/// Reproducible numbers in [-1, 1).
fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn gelu_agrees_with_tabulated_values() {
    // x times the distribution function of the normal distribution, to ten places.
    for (x, expected) in [
        (0.0, 0.0),
        (0.5, 0.345_731_230_6),
        (1.0, 0.841_344_746_1),
        (-1.0, -0.158_655_253_9),
        (2.0, 1.954_499_736_1),
        (-2.0, -0.045_500_263_9),
        (-4.0, -0.000_126_684_9),
        (8.0, 8.0),
        (-12.0, 0.0),
    ] {
        let mut value = [x as f32];
        gelu_in_place(&mut value);
        let error = (f64::from(value[0]) - expected).abs();
        assert!(error < 1e-6, "{x}: {} is not {expected}", value[0]);
    }
}

#[test]
fn layer_norm_agrees_with_its_definition() {
    let (rows, width) = (3, 37);
    let (weight, bias) = (noise(1, width), noise(2, width));
    // Far from zero, where a variance in single precision would be lost.
    let x: Vec<f32> = noise(3, rows * width).iter().map(|x| x + 100.0).collect();
    let mut found = x.clone();
    layer_norm_in_place(&mut found, &weight, &bias, 1e-6);
    for (row, x) in x.chunks_exact(width).enumerate() {
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let mean = wide.iter().sum::<f64>() / width as f64;
        let variance = wide.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
        for k in 0..width {
            let unit = (wide[k] - mean) / (variance + 1e-6).sqrt();
            let expected = unit * f64::from(weight[k]) + f64::from(bias[k]);
            let error = (f64::from(found[row * width + k]) - expected).abs();
            assert!(error < 1e-5, "row {row}, {k}: {error}");
        }
    }
}

#[test]
fn full_attention_agrees_with_its_definition() {
    for (heads, head_dim, lengths, within) in [
        (2, 6, [3, 1, 9], None),
        (3, 32, [40, 17, 33], None),
        (2, 6, [3, 1, 9], Some(2)),
        (3, 32, [40, 17, 33], Some(7)),
        (1, 8, [5, 16, 70], Some(64)),
    ] {
        attention_agrees(heads, head_dim, lengths, within);
    }
}

fn attention_agrees(heads: usize, head_dim: usize, lengths: [usize; 3], within: Option<usize>) {
    let width = heads * head_dim;
    let rows: usize = lengths.iter().sum();
    let qkv: Vec<f32> = noise(7, rows * 3 * width).iter().map(|x| x * 2.0).collect();
    let mut found = vec![0.0; rows * width];
    full_attention(&qkv, &lengths, heads, head_dim, within, &mut found);
    let at = |row: usize, kind: usize, head: usize, k: usize| {
        f64::from(qkv[row * 3 * width + kind * width + head * head_dim + k])
    };
    let mut first = 0;
    for length in lengths {
        for row in first..first + length {
            let seen = |other: &usize| within.is_none_or(|within| row.abs_diff(*other) <= within);
            let others: Vec<usize> = (first..first + length).filter(seen).collect();
            for head in 0..heads {
                let score = |other: usize| {
                    let products =
                        (0..head_dim).map(|k| at(row, 0, head, k) * at(other, 1, head, k));
                    (products.sum::<f64>() / (head_dim as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = others.iter().map(|other| score(*other)).collect();
                let total: f64 = scores.iter().sum();
                for k in 0..head_dim {
                    let shares = others.iter().zip(&scores);
                    let shares = shares.map(|(o, score)| score / total * at(*o, 2, head, k));
                    let expected: f64 = shares.sum();
                    let error =
                        (f64::from(found[row * width + head * head_dim + k]) - expected).abs();
                    assert!(error < 1e-5, "row {row}, head {head}, {k}: {error}");
                }
            }
        }
        first += length;
    }
}

#[test]
fn gated_gelu_is_the_product_of_both_halves() {
    let (rows, width) = (5, 21);
    let both = noise(9, rows * 2 * width);
    let mut found = vec![0.0; rows * width];
    gelu_mul(&both, width, &mut found);
    for (row, found) in found.chunks_exact(width).enumerate() {
        let (gates, ups) = both[2 * row * width..][..2 * width].split_at(width);
        let mut expected = gates.to_vec();
        gelu_in_place(&mut expected);
        expected
            .iter_mut()
            .zip(ups)
            .for_each(|(value, up)| *value *= up);
        assert_eq!(found, expected);
    }
}
