use half::{bf16, f16};
use proptest::prelude::*;

use super::{FloatMatrix, FloatType, TilePlace};
use crate::isa::Isa;
use crate::linear::{Matrix, RowOrder, linear, reference};
use crate::pool::ThreadPool;

/// Reproducible numbers in [-1, 1).
pub(crate) fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The bytes of numbers rounded to a type.
fn bytes_of(kind: FloatType, values: &[f32]) -> Vec<u8> {
    let values = values.iter();
    match kind {
        FloatType::F32 => values.flat_map(|value| value.to_ne_bytes()).collect(),
        FloatType::F16 => values
            .flat_map(|value| f16::from_f32(*value).to_ne_bytes())
            .collect(),
        FloatType::Bf16 => values
            .flat_map(|value| bf16::from_f32(*value).to_ne_bytes())
            .collect(),
    }
}

pub(crate) fn matrix_of(
    kind: FloatType,
    values: &[f32],
    order: RowOrder,
    outputs: usize,
) -> FloatMatrix {
    let bytes = bytes_of(kind, values);
    FloatMatrix::new(kind, &bytes, order, outputs, values.len() / outputs).unwrap()
}

/// The products of rows with all panels, in tiles as the instruction set has them for so many rows.
fn products(matrix: &FloatMatrix, isa: Isa, x: &[f32]) -> Vec<f32> {
    let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
    let rows = x.len() / inputs;
    let mut out = vec![0.0; rows * outputs];
    let mut sums = [[0.0; super::PANEL_ROWS]; super::TILE_SUMS];
    let (together, tiles) = (super::panels_together(isa, rows), super::tiles(isa, rows));
    let end = outputs.div_ceil(super::PANEL_ROWS);
    let mut panel = 0;
    while panel < end {
        let panels = if panel + together <= end { together } else { 1 };
        for tile in 0..tiles {
            let [row, next] = [tile, tile + 1].map(|tile| rows * tile / tiles);
            let place = TilePlace {
                first_panel: panel,
                panels,
                tile,
                tiles,
            };
            let x = &x[row * inputs..next * inputs];
            matrix.tile(isa, place, x, &mut sums);
            for (index, sums) in sums[..(next - row) * panels].iter().enumerate() {
                let first = (panel + index % panels) * super::PANEL_ROWS;
                let out = &mut out[(row + index / panels) * outputs..][..outputs];
                for (out, sum) in out[first..].iter_mut().zip(sums) {
                    *out = *sum;
                }
            }
        }
        panel += panels;
    }
    out
}

proptest! {
    /// All instruction sets agree with sums in double precision, those that fuse with one another to the
    /// bit; and so do a row alone and in a batch.
    #[test]
    fn agrees_with_the_reference_on_odd_shapes(
        rows in 1usize..30, outputs in 1usize..90, inputs in 1usize..600, seed in any::<u32>(),
    ) {
        let (x, weights) = (noise(seed, rows * inputs), noise(seed ^ 1, outputs * inputs));
        for kind in FloatType::ALL {
            let matrix = matrix_of(kind, &weights, RowOrder::Plain, outputs);
            let mut expected = vec![0.0; rows * outputs];
            reference(&x, Matrix::Floats(&matrix), None, &mut expected);
            let mut fused: Option<Vec<f32>> = None;
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
                let found = products(&matrix, isa, &x);
                let limit = 1e-6 * (inputs as f32 + 1.0);
                for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    prop_assert!(
                        (found - expected).abs() <= limit,
                        "{kind:?} {isa:?} {index}: {found} is not {expected}"
                    );
                }
                for row in [0, rows / 2] {
                    let alone = products(&matrix, isa, &x[row * inputs..][..inputs]);
                    let found = &found[row * outputs..][..outputs];
                    prop_assert_eq!(&alone[..], found, "{:?} {:?} row {} alone", kind, isa, row);
                }
                if isa != Isa::Portable {
                    let fused = fused.get_or_insert_with(|| found.clone());
                    prop_assert_eq!(&*fused, &found, "{:?} {:?}", kind, isa);
                }
            }
        }
    }

    /// Threads, batches and biases, through the op.
    #[test]
    fn threads_and_neighbours_change_nothing(
        rows in 1usize..80, outputs in 1usize..400, inputs in 1usize..300, biased: bool,
        threads in 2usize..5,
    ) {
        let (x, weights) = (noise(1, rows * inputs), noise(2, outputs * inputs));
        let bias = noise(3, outputs);
        let bias = biased.then_some(&bias[..]);
        let matrix = matrix_of(FloatType::Bf16, &weights, RowOrder::Plain, outputs);
        let run = |threads, x: &[f32]| {
            let mut out = vec![0.0; x.len() / inputs * outputs];
            let pool = ThreadPool::new(threads).unwrap();
            pool.install(|| linear(x, Matrix::Floats(&matrix), bias, &mut out));
            out
        };
        let found = run(1, &x);
        prop_assert_eq!(&found, &run(threads, &x));
        let row = rows / 2;
        prop_assert_eq!(&found[row * outputs..][..outputs], run(1, &x[row * inputs..][..inputs]));
        let mut expected = vec![0.0; rows * outputs];
        reference(&x, Matrix::Floats(&matrix), bias, &mut expected);
        for (found, expected) in found.iter().zip(expected) {
            let limit = 1e-6 * (inputs as f32 + 1.0);
            prop_assert!((found - expected).abs() < limit, "{} is not {}", found, expected);
        }
    }
}

#[test]
fn rows_are_what_was_packed_in_the_order_of_the_outputs() {
    let (outputs, inputs) = (24, 131);
    let order = RowOrder::Paired { head: 12 };
    for kind in FloatType::ALL {
        let values = noise(9, outputs * inputs);
        let bytes = bytes_of(kind, &values);
        let matrix = FloatMatrix::new(kind, &bytes, order, outputs, inputs).unwrap();
        assert_eq!((matrix.kind(), matrix.inputs()), (kind, inputs));
        let (mut found, mut expected) = (vec![0.0; inputs], vec![0.0; inputs]);
        for output in 0..outputs {
            let row = inputs * kind.bytes();
            kind.widen(&bytes[order.row(output) * row..][..row], &mut expected);
            matrix.row(output, &mut found);
            assert_eq!(found, expected, "{kind:?}, output {output}");
        }
    }
}

/// Numbers of all kinds, NaN and infinity included, reach the sums unchanged.
#[test]
fn every_number_is_widened_exactly() {
    for kind in [FloatType::F16, FloatType::Bf16] {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        let mut expected = vec![0.0; 1 << 16];
        kind.widen(&bits, &mut expected);
        // One input: a sum is zero and a number.
        let matrix = FloatMatrix::new(kind, &bits, RowOrder::Plain, 1 << 16, 1).unwrap();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
            let found = products(&matrix, isa, &[1.0]);
            for (found, expected) in found.iter().zip(&expected) {
                let same = found == expected || found.is_nan() && expected.is_nan();
                assert!(same, "{kind:?} {isa:?}: {found} is not {expected}");
            }
        }
    }
}
