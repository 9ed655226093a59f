use proptest::prelude::*;

use super::super::tests::{blocks, values};
use super::super::{BlockType, GROUP, PASS_ROWS, QuantisedRows, dequantise};
use super::{PANEL_ROWS, PackedMatrix, panel_products};
use crate::isa::Isa;
use crate::linear::RowOrder;

fn pack(kind: BlockType, outputs: usize, count: usize) -> (PackedMatrix, Vec<u8>) {
    let bytes = blocks(kind, 5, outputs * count);
    let inputs = count * kind.weights();
    let matrix = PackedMatrix::new(kind, &bytes, RowOrder::Plain, outputs, inputs).unwrap();
    (matrix, bytes)
}

/// All products, row by row.
fn products(matrix: &PackedMatrix, x: &QuantisedRows, isa: Isa) -> Vec<f32> {
    let mut out = vec![0.0; x.rows() * matrix.outputs()];
    let mut sums = [[0.0; PANEL_ROWS]; PASS_ROWS];
    for panel in 0..matrix.outputs().div_ceil(PANEL_ROWS) {
        let mut row = 0;
        while row < x.rows() {
            let pass = x.pass(row);
            matrix.products(isa, panel, pass, &mut sums);
            for sums in &sums[..pass.1] {
                let first = row * matrix.outputs() + panel * PANEL_ROWS;
                let count = PANEL_ROWS.min(matrix.outputs() - panel * PANEL_ROWS);
                out[first..first + count].copy_from_slice(&sums[..count]);
                row += 1;
            }
        }
    }
    out
}

#[test]
fn packed_rows_are_the_rows_of_the_blocks_bit_for_bit() {
    for kind in BlockType::ALL {
        for (outputs, count) in [(1, 1), (8, 2), (13, 3), (300, 1)] {
            let (matrix, bytes) = pack(kind, outputs, count);
            let inputs = matrix.inputs();
            let mut expected = vec![0.0; outputs * inputs];
            dequantise(kind, &bytes, &mut expected);
            let mut found = vec![0.0; inputs];
            for (row, expected) in expected.chunks_exact(inputs).enumerate() {
                matrix.row(row, &mut found);
                for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
                    assert!(
                        found == expected,
                        "{}, row {row} of {outputs}, {k}: {found} is not {expected}",
                        kind.name()
                    );
                }
            }
        }
    }
}

#[test]
fn rows_are_put_in_the_order_of_outputs() {
    let kind = BlockType::Q8_0;
    let bytes = blocks(kind, 5, 24);
    let plain = PackedMatrix::new(kind, &bytes, RowOrder::Plain, 24, GROUP).unwrap();
    let order = RowOrder::Paired { head: 12 };
    let paired = PackedMatrix::new(kind, &bytes, order, 24, GROUP).unwrap();
    let (mut stored, mut found) = (vec![0.0; GROUP], vec![0.0; GROUP]);
    for row in 0..24 {
        plain.row(row, &mut stored);
        paired.row(order.output(row), &mut found);
        assert_eq!(stored, found, "row {row}");
    }
}

fn check_products(kind: BlockType, outputs: usize, count: usize, rows: usize, seed: u64) {
    let (matrix, bytes) = pack(kind, outputs, count);
    let inputs = matrix.inputs();
    let x = QuantisedRows::new(&values(seed, rows * inputs), inputs);
    let mut weights = vec![0.0; outputs * inputs];
    dequantise(kind, &bytes, &mut weights);
    let portable = products(&matrix, &x, Isa::Portable);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
        let found = products(&matrix, &x, isa);
        for row in 0..rows {
            for (output, weights) in weights.chunks_exact(inputs).enumerate() {
                let (mut exact, mut size) = (0.0, 0.0);
                for (k, weight) in weights.iter().enumerate() {
                    let group = x.group(row, k / GROUP);
                    let x = f64::from(group.scale) * f64::from(group.quants[k % GROUP]);
                    exact += x * f64::from(*weight);
                    size += (x * f64::from(*weight)).abs();
                }
                let found = found[row * outputs + output];
                assert!(
                    (f64::from(found) - exact).abs() <= 1e-5 * size.max(1e-3),
                    "{} {outputs}x{inputs}, {}, row {row}, output {output}: {found} is not {exact}",
                    kind.name(),
                    isa.name()
                );
            }
        }
        assert_eq!(portable, found, "{}: {} differs", kind.name(), isa.name());
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    for kind in BlockType::ALL {
        for filler in [0x00, 0x7f, 0x80, 0xff] {
            // Every code at an end of its range; scales of 1.
            let mut bytes = vec![filler; 8 * kind.bytes()];
            super::super::tests::set_scales(kind, &mut bytes, |_, _| 1.0);
            let inputs = kind.weights();
            let matrix = PackedMatrix::new(kind, &bytes, RowOrder::Plain, 8, inputs).unwrap();
            for sign in [1.0, -1.0] {
                let rows = QuantisedRows::new(&vec![sign; 4 * inputs], inputs);
                let mut weights = vec![0.0; 8 * inputs];
                dequantise(kind, &bytes, &mut weights);
                for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
                    for (index, found) in products(&matrix, &rows, isa).into_iter().enumerate() {
                        let weights = &weights[index % 8 * inputs..][..inputs];
                        let exact: f64 = weights.iter().map(|w| f64::from(*w)).sum();
                        let error = (f64::from(found) - exact * f64::from(sign)).abs();
                        assert!(
                            error <= 1e-4 * exact.abs().max(1.0),
                            "{} {filler}, {}: {found} is not {exact}",
                            kind.name(),
                            isa.name()
                        );
                    }
                }
            }
        }
    }
}

/// The matrix lies in mapped memory, whose bounds an address sanitizer does not know. Here the panel and the activations
/// are heap allocations of their exact length.
#[test]
fn nothing_beyond_a_panel_is_read() {
    for kind in BlockType::ALL {
        let (matrix, _) = pack(kind, PANEL_ROWS, 3);
        for rows in [1, 2, 4, 8] {
            let inputs = matrix.inputs();
            let x = QuantisedRows::new(&values(2, rows * inputs), inputs);
            let groups: Box<[_]> = x.pass(0).0.into();
            let panel: Box<[u8]> = matrix.panel(0).into();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
                let mut found = [[0.0; PANEL_ROWS]; PASS_ROWS];
                panel_products(&matrix.shape, isa, &panel, (&groups, rows), &mut found);
                let expected = products(&matrix, &x, isa);
                assert_eq!(found[..rows].as_flattened(), expected, "{}", isa.name());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_agree_on_odd_shapes(
        outputs in 1usize..40, count in 1usize..5, rows in 1usize..20, seed: u64,
    ) {
        for kind in BlockType::ALL {
            check_products(kind, outputs, count, rows, seed);
        }
    }

    #[test]
    fn a_row_alone_has_the_bits_it_has_among_others(rows in 2usize..20, seed: u64) {
        for kind in BlockType::ALL {
            let (matrix, _) = pack(kind, 9, 2);
            let inputs = matrix.inputs();
            let x = values(seed, rows * inputs);
            let all = QuantisedRows::new(&x, inputs);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
                let together = products(&matrix, &all, isa);
                for (row, x) in x.chunks_exact(inputs).enumerate() {
                    let alone = products(&matrix, &QuantisedRows::new(x, inputs), isa);
                    prop_assert_eq!(&alone[..], &together[row * 9..][..9], "{}", kind.name());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_some_weights(bytes in proptest::collection::vec(any::<u8>(), 3 * 210)) {
        // Not-a-number and infinite scales included: nothing may panic or read out of bounds.
        for kind in BlockType::ALL {
            let (bytes, inputs) = (&bytes[..3 * kind.bytes()], kind.weights());
            let matrix = PackedMatrix::new(kind, bytes, RowOrder::Plain, 3, inputs).unwrap();
            let x = QuantisedRows::new(&values(1, 3 * inputs), inputs);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_there()) {
                products(&matrix, &x, isa);
            }
            matrix.row(2, &mut vec![0.0; inputs]);
        }
    }
}
