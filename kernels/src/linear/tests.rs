use half::{bf16, f16};
use proptest::prelude::*;

use super::{Matrix, RowOrder, Weights, linear, linear_stack, portable, reference};
use crate::pool::ThreadPool;
use crate::quant::{BlockType, PackedMatrix, quantise_q4_k, quantise_q8_0};

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
        order: RowOrder::Plain,
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
        let halves: Vec<f16> = weights.iter().map(|weight| f16::from_f32(*weight)).collect();
        check(rows, outputs, inputs, Weights::F16(&halves), bias);
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
        order: RowOrder::Plain,
    };
    let run = |threads: usize| {
        let pool = ThreadPool::new(threads).unwrap();
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
            order: RowOrder::Plain,
        },
        None,
        &mut [],
    );
}

/// Activations of whole groups that rounding to eight bits keeps exactly.
fn round_numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|k| {
            if k % 32 == 0 {
                127.0
            } else {
                ((k * 37) % 255) as f32 - 127.0
            }
        })
        .collect()
}

#[test]
fn a_stack_of_any_types_is_as_one_matrix() {
    let (rows, inputs) = (5, 256);
    let x = round_numbers(rows * inputs);
    let weights = noise(3, 48 * inputs);
    let (eight, four) = (quantise_q8_0(&weights), quantise_q4_k(&weights));
    let half: Vec<f16> = weights
        .iter()
        .map(|weight| f16::from_f32(*weight))
        .collect();
    let matrix = |weights, order| Matrix {
        weights,
        outputs: 48,
        inputs,
        order,
    };
    let packed = |kind, blocks, order| PackedMatrix::new(kind, blocks, order, 48, inputs).unwrap();
    let eight = packed(BlockType::Q8_0, &eight, RowOrder::Paired { head: 16 });
    let four = packed(BlockType::Q4K, &four, RowOrder::Plain);
    let stack = [
        matrix(Weights::Packed(&eight), RowOrder::Plain),
        matrix(Weights::F16(&half), RowOrder::Plain),
        matrix(Weights::Packed(&four), RowOrder::Plain),
        matrix(Weights::F32(&weights), RowOrder::Paired { head: 6 }),
    ];
    let bias = noise(8, 4 * 48);
    let mut found = vec![0.0; rows * 4 * 48];
    linear_stack(&x, &stack, Some(&bias), &mut found);
    for (number, matrix) in stack.into_iter().enumerate() {
        let bias = &bias[number * 48..][..48];
        let mut expected = vec![0.0; rows * 48];
        reference(&x, matrix, Some(bias), &mut expected);
        for (row, expected) in expected.chunks_exact(48).enumerate() {
            let found = &found[(row * 4 + number) * 48..][..48];
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 0.02,
                    "matrix {number}, row {row}: {found} is not {expected}"
                );
            }
        }
    }
    for row in 0..rows {
        let mut alone = vec![0.0; 4 * 48];
        linear_stack(
            &x[row * inputs..][..inputs],
            &stack,
            Some(&bias),
            &mut alone,
        );
        assert_eq!(
            alone,
            found[row * 4 * 48..][..4 * 48],
            "row {row} alone differs"
        );
    }
}

#[test]
fn paired_rows_go_to_the_halves_of_their_head() {
    let order = RowOrder::Paired { head: 6 };
    let outputs: Vec<usize> = (0..12).map(|row| order.output(row)).collect();
    assert_eq!(outputs, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    assert!((0..12).all(|row| order.row(order.output(row)) == row));
}
