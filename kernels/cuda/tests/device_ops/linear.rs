//! Products with matrices of every format.

use std::sync::Arc;

use half::{bf16, f16};
use mortise_cuda::linear::{FEW_ROWS, Linear, Rows, Workspace, linear};
use mortise_cuda::{Buffer, Device, FP8_SCALED, Format, Matrix, Scalars};
use mortise_kernels::quant::{BlockType, dequantise, quantise_q4_k, quantise_q8_0};
use proptest::prelude::*;

use crate::{check_close, devices, numbers};

/// A matrix of numbers that look random, and exactly what it holds.
pub(crate) fn of_format(
    device: &Arc<dyn Device>,
    format: Format,
    rows: usize,
    columns: usize,
    seed: u64,
) -> (Matrix, Vec<f64>) {
    let weights = numbers(seed, rows * columns);
    let mut scales = Vec::new();
    let blocks = |kind, bytes: Vec<u8>| {
        let mut values = vec![0.0; weights.len()];
        dequantise(kind, &bytes, &mut values);
        (bytes, values.into_iter().map(f64::from).collect())
    };
    let (bytes, exact): (Vec<u8>, Vec<f64>) = match format {
        Format::F32 => (
            weights.iter().flat_map(|w| w.to_le_bytes()).collect(),
            weights.iter().map(|w| f64::from(*w)).collect(),
        ),
        Format::Bf16 => {
            let halves: Vec<bf16> = weights.iter().map(|w| bf16::from_f32(*w)).collect();
            (
                halves.iter().flat_map(|w| w.to_le_bytes()).collect(),
                halves.iter().map(|w| w.to_f64()).collect(),
            )
        }
        Format::F16 => {
            // Numbers below the normal ones too.
            let scaled = weights
                .iter()
                .enumerate()
                .map(|(i, w)| if i % 7 == 0 { w * 1e-6 } else { *w });
            let halves: Vec<f16> = scaled.map(f16::from_f32).collect();
            (
                halves.iter().flat_map(|w| w.to_le_bytes()).collect(),
                halves.iter().map(|w| w.to_f64()).collect(),
            )
        }
        Format::Q8_0 => blocks(BlockType::Q8_0, quantise_q8_0(&weights)),
        Format::Q4K => blocks(BlockType::Q4K, quantise_q4_k(&weights)),
        Format::Fp8 => {
            let groups = columns.div_ceil(FP8_SCALED);
            scales = (0..rows * groups).map(|n| 0.5 + (n % 13) as f32).collect();
            // Any bits but the two that are no number.
            let bytes: Vec<u8> = weights
                .iter()
                .map(|w| (w.to_bits().wrapping_mul(0x9e37_79b9) >> 24) as u8)
                .map(|bits| if bits & 0x7f == 0x7f { bits ^ 1 } else { bits })
                .collect();
            let exact = bytes.iter().enumerate();
            let scale = |i: usize| scales[i / columns * groups + i % columns / FP8_SCALED];
            let exact = exact.map(|(i, bits)| e4m3(*bits) * f64::from(scale(i)));
            (bytes.clone(), exact.collect())
        }
        Format::Mxfp4 => {
            let bytes: Vec<u8> = weights
                .chunks(32)
                .enumerate()
                .flat_map(|(block, weights)| {
                    let numbers = weights[..16].iter().map(|w| (w.to_bits() >> 9) as u8);
                    std::iter::once(120 + (block % 9) as u8).chain(numbers)
                })
                .collect();
            let exact = bytes.chunks(17).flat_map(|block| {
                let scale = 2f64.powi(i32::from(block[0]) - 127);
                let low = block[1..].iter().map(|byte| byte & 15);
                let high = block[1..].iter().map(|byte| byte >> 4);
                low.chain(high)
                    .map(move |bits| scale * e2m1(bits))
                    .collect::<Vec<_>>()
            });
            (bytes.clone(), exact.collect())
        }
    };
    let matrix = Matrix::upload(device, format, [rows, columns], &bytes, &scales).unwrap();
    (matrix, exact)
}

/// A number with four bits of exponent, by the OCP's definition.
fn e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = match exponent {
        0 => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if bits >> 7 == 1 { -size } else { size }
}

/// A number with two bits of exponent: all that there are.
fn e2m1(bits: u8) -> f64 {
    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits & 7)];
    if bits & 8 == 0 { size } else { -size }
}

struct Case {
    format: Format,
    outputs: usize,
    columns: usize,
    rows: usize,
    biased: bool,
    accumulate: bool,
}

/// A number as it is where tensor cores multiply, or a library: matrices in f16 are multiplied as such,
/// all others but those in f32 as bf16.
pub(crate) fn narrowed(format: Format, number: f64) -> f64 {
    match format {
        Format::F32 => number,
        Format::F16 => f16::from_f64(number).to_f64(),
        _ => f64::from(bf16::from_f32(number as f32)),
    }
}

fn check(device: &Arc<dyn Device>, case: &Case) {
    let Case {
        format,
        outputs,
        columns,
        rows,
        ..
    } = *case;
    let (matrix, exact) = of_format(device, format, outputs, columns, 11);
    let (x_stride, out_stride) = (columns + 4 * (rows % 2), outputs + rows % 3);
    let x = numbers(12, rows * x_stride);
    let (bias, before) = (numbers(13, outputs), numbers(14, rows * out_stride));
    let given = Buffer::of(device, &x).unwrap();
    let biases = Buffer::of(device, &bias).unwrap();
    let out = Buffer::of(device, &before).unwrap();
    let workspace = Workspace::new(device, rows * columns, outputs * columns).unwrap();
    let product = Linear {
        matrix: &matrix,
        bias: case.biased.then(|| biases.all()),
        scalars: Scalars {
            scale: 0.75,
            accumulate: case.accumulate,
        },
    };
    let x_rows = Rows {
        slice: given.all(),
        stride: x_stride,
        count: rows,
    };
    let out_rows = Rows {
        slice: out.all(),
        stride: out_stride,
        count: rows,
    };
    linear(&**device, &product, x_rows, out_rows, &workspace).unwrap();
    let halves = matches!(format, Format::Bf16 | Format::F16);
    // Few rows, and somewhat more with quantised matrices, are multiplied as they are.
    let narrow = rows > FEW_ROWS && (halves || rows > 32);
    let as_multiplied = |number: f64| match narrow {
        true => narrowed(format, number),
        false => number,
    };
    let mut expected: Vec<f64> = before.iter().map(|value| f64::from(*value)).collect();
    for row in 0..rows {
        for output in 0..outputs {
            let weights = &exact[output * columns..][..columns];
            let inputs = &x[row * x_stride..][..columns];
            let inputs = inputs.iter().map(|x| as_multiplied(f64::from(*x)));
            let products = weights.iter().zip(inputs);
            let mut sum: f64 = products.map(|(w, x)| as_multiplied(*w) * x).sum();
            if case.biased {
                sum += f64::from(bias[output]);
            }
            let to = &mut expected[row * out_stride + output];
            *to = 0.75 * sum + if case.accumulate { *to } else { 0.0 };
        }
    }
    let what = format!(
        "{format:?} on {}, {outputs} x {columns}, {rows} rows",
        device.name()
    );
    check_close(&what, &out.to_vec().unwrap(), &expected, 1e-5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_double_precision(
        which in 0usize..7,
        outputs in 1usize..40,
        steps in 1usize..6,
        rows in 1usize..12,
        biased in any::<bool>(),
        accumulate in any::<bool>(),
    ) {
        let format = Format::ALL[which];
        let case = Case { format, outputs, columns: steps * format.columns(), rows, biased, accumulate };
        for device in devices() {
            check(&device, &case);
        }
    }
}

/// Products of more rows than one tile, of columns that no tile divides, and with more threads than a block has.
#[test]
fn large_products_are_those_of_double_precision() {
    for device in devices() {
        for format in Format::ALL {
            for rows in [5, 33, 70] {
                check(
                    &device,
                    &Case {
                        format,
                        outputs: 37,
                        columns: 5 * 72usize.next_multiple_of(format.columns()),
                        rows,
                        biased: true,
                        accumulate: rows == 33,
                    },
                );
            }
        }
    }
}

/// A sequence's result does not depend on the other rows of the batch, up to [`FEW_ROWS`].
#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    for device in devices() {
        for format in Format::ALL {
            let columns = 2 * format
                .columns()
                .max(300usize.next_multiple_of(format.columns()));
            let (matrix, _) = of_format(&device, format, 21, columns, 8);
            let x = Buffer::of(&device, &numbers(9, FEW_ROWS * columns)).unwrap();
            let workspace = Workspace::new(&device, 1, 1).unwrap();
            let product = Linear {
                matrix: &matrix,
                bias: None,
                scalars: Scalars::PLAIN,
            };
            let run = |first: usize, count: usize| -> Vec<u32> {
                let out = Buffer::zeros(&device, count * 21).unwrap();
                let x = Rows {
                    slice: x.from(first * columns),
                    stride: columns,
                    count,
                };
                let rows = Rows {
                    slice: out.all(),
                    stride: 21,
                    count,
                };
                linear(&*device, &product, x, rows, &workspace).unwrap();
                out.to_vec()
                    .unwrap()
                    .iter()
                    .map(|value: &f32| value.to_bits())
                    .collect()
            };
            let alone: Vec<u32> = (0..FEW_ROWS).flat_map(|row| run(row, 1)).collect();
            for count in 2..=FEW_ROWS {
                assert_eq!(
                    run(0, count),
                    alone[..count * 21],
                    "{format:?}, {count} rows"
                );
            }
        }
    }
}
