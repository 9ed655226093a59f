use std::sync::Arc;

use proptest::prelude::*;

use super::{
    Activations, Forms, LogitScale, Matrix, RowLogits, RowOrder, Stack, WantedLogits, linear,
    reference,
};
use crate::floats::tests::{matrix_of, noise};
use crate::floats::{FloatMatrix, FloatType};
use crate::gate_mul::{Activation, gate_mul};
use crate::mask::apply_mask;
use crate::pool::ThreadPool;
use crate::quant::{BlockType, GROUP, PackedMatrix, QuantisedRows, quantise_q4_k, quantise_q8_0};
use crate::rms_norm::{RmsNorm, rms_norm};
use crate::select::top;

/// A matrix of f32 in the order of its outputs.
fn single(weights: &[f32], outputs: usize) -> FloatMatrix {
    matrix_of(FloatType::F32, weights, RowOrder::Plain, outputs)
}

#[test]
fn no_rows_is_no_work() {
    let matrix = single(&[1.0], 1);
    linear(&[], Matrix::Floats(&matrix), None, &mut []);
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
    let packed = |kind, blocks, order| PackedMatrix::new(kind, blocks, order, 48, inputs).unwrap();
    let eight = packed(BlockType::Q8_0, &eight, RowOrder::Paired { head: 16 });
    let four = packed(BlockType::Q4K, &four, RowOrder::Plain);
    let half = matrix_of(FloatType::F16, &weights, RowOrder::Plain, 48);
    let full = matrix_of(FloatType::F32, &weights, RowOrder::Paired { head: 6 }, 48);
    let stack = [
        Matrix::Quantised(&eight),
        Matrix::Floats(&half),
        Matrix::Quantised(&four),
        Matrix::Floats(&full),
    ];
    let bias = noise(8, 4 * 48);
    let mut found = vec![0.0; rows * 4 * 48];
    let whole = Stack {
        matrices: &stack,
        bias: Some(&bias),
    };
    let rows_of = |x| Activations::new(x, inputs, whole.forms());
    whole.write(&rows_of(&x[..]), &mut found);
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
        whole.write(&rows_of(&x[row * inputs..][..inputs]), &mut alone);
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

/// Matrices of 96 outputs and 64 inputs: packed, dense, and one of each.
fn stacks(run: impl Fn(Stack<'_>)) {
    let (outputs, inputs) = (96, 64);
    let weights = noise(5, outputs * inputs);
    let blocks = quantise_q8_0(&weights);
    let pack = |blocks: &[u8], outputs| {
        PackedMatrix::new(BlockType::Q8_0, blocks, RowOrder::Plain, outputs, inputs).unwrap()
    };
    let (packed, twice) = (pack(&blocks, outputs), [&blocks[..], &blocks].concat());
    let twice = pack(&twice, 2 * outputs);
    let dense = single(&weights, outputs);
    let [packed, dense] = [Matrix::Quantised(&packed), Matrix::Floats(&dense)];
    let bias = noise(6, 2 * outputs);
    let bias = Some(&bias[..]);
    for matrices in [
        &[packed, packed][..],
        &[Matrix::Quantised(&twice)],
        &[dense, dense],
        &[packed, dense],
    ] {
        run(Stack { matrices, bias });
        let bias = None;
        run(Stack { matrices, bias });
    }
}

proptest! {
    /// A stage gives the bits of its steps, one after the other, on one thread or several.
    #[test]
    fn stages_are_as_their_steps(
        rows in 1usize..70, threads in 1usize..4, scale in -2f32..2.0, choice in 0usize..4,
        soft_cap in prop::option::of(0.5f32..9.0), seed in any::<u32>(),
    ) {
        let pool = ThreadPool::new(threads).unwrap();
        let (x, norm_weight) = (noise(seed, rows * 64), noise(2, 64));
        let norm = RmsNorm { weight: &norm_weight, epsilon: 1e-5 };
        let mut normed = vec![0.0; x.len()];
        rms_norm(&x, norm, &mut normed);
        pool.install(|| stacks(|stack| {
            let width = stack.outputs();
            let steps = Activations::new(&normed[..], 64, stack.forms());
            let stage = Activations::normed(&x, norm, stack.forms());
            let (mut expected, mut found) = (vec![0.0; rows * width], vec![0.0; rows * width]);
            stack.write(&steps, &mut expected);
            stack.write(&stage, &mut found);
            assert_eq!(&expected, &found, "normalised");

            let residual = noise(seed ^ 1, rows * width);
            found.copy_from_slice(&residual);
            stack.add(&stage, scale, &mut found);
            for ((found, expected), residual) in found.iter().zip(&expected).zip(&residual) {
                assert_eq!(*found, residual + scale * expected, "added");
            }

            let forms = Forms { plain: true, rounded: true };
            let mut gated = vec![0.0; rows * width / 2];
            gate_mul(Activation::Silu, &expected, width / 2, &mut gated);
            let stage = stack.gate(&stage, Activation::Silu, forms);
            assert_eq!(stage.plain(), &gated, "gated");
            let rounded = QuantisedRows::new(&gated, width / 2);
            for group in (0..rows * width / 2 / GROUP).map(|k| (k % rows, k / rows)) {
                let found = stage.rounded().group(group.0, group.1);
                assert_eq!(found, rounded.group(group.0, group.1), "gated and rounded");
            }

            let logits = LogitScale { scale: scale.abs() + 0.1, soft_cap };
            logits.apply(&mut expected);
            let wanted: Vec<WantedLogits> = (0..rows).map(|row| match (row + choice) % 4 {
                0 | 1 => WantedLogits::All,
                2 => WantedLogits::Highest(None),
                _ => {
                    // Some masks end before the row does.
                    let words = width.div_ceil(32) - usize::from(row % 3 == 0);
                    let word = |k| ((row + k + 1) as u32).wrapping_mul(0x9e37_79b9) ^ seed;
                    WantedLogits::Highest(Some(Arc::new((0..words).map(word).collect())))
                }
            }).collect();
            let mut found = stack.scores(&steps, logits, &wanted);
            assert_eq!(found.len(), rows);
            for ((found, logits), wanted) in found.rows_mut().zip(expected.chunks_mut(width)).zip(&wanted) {
                if let WantedLogits::Highest(Some(mask)) = wanted {
                    apply_mask(logits, mask);
                }
                let highest = top(logits, 1).into_iter().find(|one| one.value > f32::NEG_INFINITY);
                match (wanted, found) {
                    (WantedLogits::All, RowLogits::All(found)) => assert_eq!(found, logits),
                    (WantedLogits::Highest(_), RowLogits::Highest(found)) => {
                        assert!(found.all_numbers);
                        assert_eq!(found.candidate, highest);
                    }
                    (wanted, found) => panic!("{wanted:?} gave {found:?}"),
                }
            }
        }));
    }
}

#[test]
fn what_is_no_number_is_told_and_minus_infinity_is_no_candidate() {
    const EQUAL: f32 = 1.0;
    for (weight, mask, all_numbers, kept) in [
        (f32::NAN, None, false, Some(1)),
        (f32::NAN, Some(0b10), false, Some(1)),
        (f32::NEG_INFINITY, None, true, Some(1)),
        (f32::NEG_INFINITY, Some(0b01), true, None),
        (f32::INFINITY, Some(0b10), false, Some(1)),
        (2.0, None, true, Some(0)),
        (2.0, Some(0b10), true, Some(1)),
        (2.0, Some(0), true, None),
        (EQUAL, None, true, Some(0)),
    ] {
        let matrix = single(&[weight, EQUAL], 2);
        let stack = Stack {
            matrices: &[Matrix::Floats(&matrix)],
            bias: None,
        };
        let x = Activations::new(&[1.0][..], 1, Forms::PLAIN);
        let wanted = WantedLogits::Highest(mask.map(|word| Arc::new(vec![word])));
        let mut scores = stack.scores(&x, LogitScale::PLAIN, &[wanted]);
        let Some(RowLogits::Highest(highest)) = scores.rows_mut().next() else {
            panic!("one row");
        };
        let id = highest.candidate.map(|one| one.id);
        assert_eq!(
            (highest.all_numbers, id),
            (all_numbers, kept),
            "{weight}, {mask:?}"
        );
    }
}
