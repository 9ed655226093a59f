//! Embedding, norms, gates, soft caps.

use mortise_cuda::linear::Rows;
use mortise_cuda::memory::copy;
use mortise_cuda::rows::{Activation, RmsNorm, embed, gate_mul, rms_norm, soft_cap};
use mortise_cuda::{Buffer, Device, Format};
use proptest::prelude::*;

use crate::linear::of_format;
use crate::{check_close, devices, numbers};

fn whole<'a>(buffer: &'a Buffer<f32>, stride: usize, count: usize) -> Rows<'a> {
    Rows {
        slice: buffer.all(),
        stride,
        count,
    }
}

#[test]
fn embedding_gathers_rows_of_every_format() {
    for device in devices() {
        for format in Format::ALL {
            let columns = 3 * format.columns().max(32);
            let (matrix, exact) = of_format(&device, format, 7, columns, 5);
            let tokens = Buffer::of(&device, &[6, 0, 3, 3]).unwrap();
            let out = Buffer::zeros(&device, 4 * columns).unwrap();
            embed(
                &*device,
                &matrix,
                tokens.all(),
                2.0,
                whole(&out, columns, 4),
            )
            .unwrap();
            let expected: Vec<f64> = [6, 0, 3, 3]
                .iter()
                .flat_map(|row| exact[row * columns..][..columns].iter().map(|w| 2.0 * w))
                .collect();
            check_close(
                &format!("{format:?}"),
                &out.to_vec().unwrap(),
                &expected,
                1e-6,
            );
        }
    }
}

fn norm_of(row: &[f32], weight: &[f32], epsilon: f64) -> Vec<f64> {
    let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
    let factor = 1.0 / (squares / row.len() as f64 + epsilon).sqrt();
    row.iter()
        .zip(weight)
        .map(|(x, w)| f64::from(*x) * factor * f64::from(*w))
        .collect()
}

fn check_norm(device: &std::sync::Arc<dyn Device>, width: usize, count: usize, gap: usize) {
    let stride = width + gap;
    let (x, weight) = (numbers(1, stride * count), numbers(2, width));
    let sources: Vec<i32> = (0..count as i32).rev().collect();
    let given = Buffer::of(device, &x).unwrap();
    let (weights, rows) = (
        Buffer::of(device, &weight).unwrap(),
        Buffer::of(device, &sources).unwrap(),
    );
    let norm = RmsNorm {
        weight: weights.all(),
        epsilon: 1e-5,
        sources: None,
        added: None,
    };
    let exact: Vec<Vec<f64>> = x
        .chunks(stride)
        .map(|row| norm_of(&row[..width], &weight, 1e-5))
        .collect();

    let out = Buffer::zeros(device, width * count).unwrap();
    rms_norm(
        &**device,
        &norm,
        whole(&given, stride, count),
        whole(&out, width, count),
    )
    .unwrap();
    check_close("norm", &out.to_vec().unwrap(), &exact.concat(), 1e-5);

    let reversed = RmsNorm {
        sources: Some(rows.all()),
        ..norm
    };
    rms_norm(
        &**device,
        &reversed,
        whole(&given, stride, count),
        whole(&out, width, count),
    )
    .unwrap();
    let expected: Vec<f64> = exact.iter().rev().flatten().copied().collect();
    check_close(
        "norm of chosen rows",
        &out.to_vec().unwrap(),
        &expected,
        1e-5,
    );

    let added = RmsNorm {
        added: Some(0.5),
        ..norm
    };
    rms_norm(
        &**device,
        &added,
        whole(&given, stride, count),
        whole(&out, width, count),
    )
    .unwrap();
    let expected: Vec<f64> = expected
        .iter()
        .zip(exact.concat())
        .map(|(a, b)| a + 0.5 * b)
        .collect();
    check_close("added norm", &out.to_vec().unwrap(), &expected, 1e-5);

    rms_norm(
        &**device,
        &norm,
        whole(&given, stride, count),
        whole(&given, stride, count),
    )
    .unwrap();
    let found: Vec<f32> = given
        .to_vec()
        .unwrap()
        .chunks(stride)
        .flat_map(|row| row[..width].to_vec())
        .collect();
    check_close("norm in place", &found, &exact.concat(), 1e-5);
}

#[test]
fn a_soft_cap_bends_all_numbers_and_no_others() {
    for device in devices() {
        let x: Vec<f32> = numbers(3, 1500).iter().map(|x| 100.0 * x).collect();
        let buffer = Buffer::of(&device, &x).unwrap();
        soft_cap(&*device, buffer.all(), 1400, 30.0).unwrap();
        let expected: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(i, x)| {
                if i < 1400 {
                    30.0 * (f64::from(*x) / 30.0).tanh()
                } else {
                    f64::from(*x)
                }
            })
            .collect();
        check_close("soft cap", &buffer.to_vec().unwrap(), &expected, 1e-6);
    }
}

fn gate(activation: Activation, gate: f64, up: f64) -> f64 {
    match activation {
        Activation::Silu => gate / (1.0 + (-gate).exp()) * up,
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Activation::ClampedSwish { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            let gate = gate.min(limit);
            (up.clamp(-limit, limit) + 1.0) * gate / (1.0 + (-alpha * gate).exp())
        }
    }
}

#[test]
fn a_copy_is_equal_and_leaves_the_rest() {
    for device in devices() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        let from = Buffer::of(&device, &bytes[..4992]).unwrap();
        let to = Buffer::of(&device, &[9u8; 5000]).unwrap();
        copy(&*device, from.all(), to.all()).unwrap();
        let found = to.to_vec().unwrap();
        assert!(found[..4992] == bytes[..4992] && found[4992..] == [9; 8]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn norms_are_those_of_double_precision(width in 1usize..300, count in 1usize..4, gap in 0usize..3) {
        for device in devices() {
            check_norm(&device, width, count, gap);
        }
    }

    #[test]
    fn gates_are_those_of_double_precision(width in 1usize..600, rows in 1usize..4, which in 0usize..3) {
        let activation = [
            Activation::Silu,
            Activation::GeluTanh,
            Activation::ClampedSwish { alpha: 1.7, limit: 2.5 },
        ][which];
        let gate_up: Vec<f32> = numbers(9, 2 * width * rows).iter().map(|x| 5.0 * x).collect();
        let expected: Vec<f64> = gate_up
            .chunks(2 * width)
            .flat_map(|row| {
                let (gates, ups) = row.split_at(width);
                let pairs = gates.iter().zip(ups);
                pairs.map(|(g, u)| gate(activation, f64::from(*g), f64::from(*u))).collect::<Vec<_>>()
            })
            .collect();
        for device in devices() {
            let given = Buffer::of(&device, &gate_up).unwrap();
            let out = Buffer::zeros(&device, width * rows).unwrap();
            gate_mul(&*device, activation, given.all(), width, rows, out.all()).unwrap();
            check_close("gate", &out.to_vec().unwrap(), &expected, 1e-5);
        }
    }
}
