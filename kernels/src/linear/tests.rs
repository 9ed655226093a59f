use half::bf16;
use proptest::prelude::*;

use super::{Matrix, Weights, linear, portable, reference};

/// Reproducible numbers in [-1, 1).
fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn bf16_of(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|value| bf16::from_f32(*value)).collect()
}

fn check(rows: usize, outputs: usize, inputs: usize, weights: Weights<'_>, bias: Option<&[f32]>) {
    let x = noise(7, rows * inputs);
    let matrix = Matrix {
        weights,
        outputs,
        inputs,
    };
    let (mut found, mut expected) = (vec![0.0; rows * outputs], vec![0.0; rows * outputs]);
    linear(&x, matrix, bias, &mut found);
    reference(&x, matrix, bias, &mut expected);
    let limit = 1e-6 * (inputs as f32 + 1.0);
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(
            (found - expected).abs() <= limit,
            "{index}: {found} is not {expected}"
        );
    }
    for row in 0..rows {
        let mut alone = vec![0.0; outputs];
        linear(&x[row * inputs..][..inputs], matrix, bias, &mut alone);
        assert_eq!(
            alone,
            found[row * outputs..][..outputs],
            "row {row} alone differs"
        );
    }
}

proptest! {
    #[test]
    fn agrees_with_the_reference_on_odd_shapes(
        rows in 1usize..11, outputs in 1usize..60, inputs in 1usize..70, biased: bool,
    ) {
        let weights = noise(3, outputs * inputs);
        let bias = noise(5, outputs);
        let bias = biased.then_some(&bias[..]);
        check(rows, outputs, inputs, Weights::F32(&weights), bias);
        check(rows, outputs, inputs, Weights::Bf16(&bf16_of(&weights)), bias);
    }
}

#[test]
fn threads_change_nothing() {
    let (rows, outputs, inputs) = (37, 301, 259);
    let (x, weights) = (noise(1, rows * inputs), noise(2, outputs * inputs));
    let matrix = Matrix {
        weights: Weights::F32(&weights),
        outputs,
        inputs,
    };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let mut out = vec![0.0; rows * outputs];
        pool.install(|| linear(&x, matrix, None, &mut out));
        out
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn the_portable_path_agrees() {
    let (x, weights) = (noise(1, 259), noise(2, 259));
    let [[found]] = portable::dot_tile([&x[..]], [&weights[..]]);
    let expected: f64 = x
        .iter()
        .zip(&weights)
        .map(|(x, w)| f64::from(*x) * f64::from(*w))
        .sum();
    assert!((f64::from(found) - expected).abs() < 1e-4);
}

#[test]
fn no_rows_is_no_work() {
    linear(
        &[],
        Matrix {
            weights: Weights::F32(&[1.0]),
            outputs: 1,
            inputs: 1,
        },
        None,
        &mut [],
    );
}
