//! Mixture of experts, against its definition in double precision.

use std::sync::Arc;

use mortise_cuda::experts::{
    Common, ExpertLinear, FEW_PARTS, Inputs, Router, Routes, combine, products, route,
};
use mortise_cuda::linear::Rows;
use mortise_cuda::{Buffer, Device, Format, Scalars};
use proptest::prelude::*;

use crate::linear::{narrowed, of_format};
use crate::{check_close, devices, numbers};

#[derive(Debug, Clone, Copy)]
struct Choice {
    experts: usize,
    chosen: usize,
    sigmoid: bool,
    corrected: bool,
    normalised: bool,
}

/// Experts and shares of a row: the best by score and correction, equals by number.
fn expected_routes(choice: &Choice, logits: &[f32], correction: &[f32]) -> Vec<(usize, f64)> {
    let logits: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    let whole: f64 = logits.iter().map(|logit| logit.exp()).sum();
    let score = |logit: &f64| match choice.sigmoid {
        true => 1.0 / (1.0 + (-logit).exp()),
        false => logit.exp() / whole,
    };
    let scores: Vec<f64> = logits.iter().map(score).collect();
    let rank = |expert: usize| match choice.corrected {
        true => scores[expert] + f64::from(correction[expert]),
        false => scores[expert],
    };
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| rank(*b).total_cmp(&rank(*a)));
    order.truncate(choice.chosen);
    let total: f64 = order.iter().map(|expert| scores[*expert]).sum();
    let divisor = if choice.normalised { total } else { 1.0 };
    let share = |expert: usize| (expert, 1.5 * scores[expert] / divisor);
    order.into_iter().map(share).collect()
}

fn routed(
    device: &Arc<dyn Device>,
    choice: &Choice,
    logits: &[f32],
    correction: &[f32],
) -> (Routes, Vec<i32>, Vec<f32>) {
    let rows = logits.len() / choice.experts;
    let routes = Routes::new(device, choice.experts, choice.chosen, rows).unwrap();
    let logits = Buffer::of(device, logits).unwrap();
    let correction = Buffer::of(device, correction).unwrap();
    let router = Router {
        experts: choice.experts,
        chosen: choice.chosen,
        sigmoid: choice.sigmoid,
        correction: choice.corrected.then(|| correction.all()),
        normalised: choice.normalised,
        scale: 1.5,
    };
    route(&**device, &router, logits.all(), rows, &routes).unwrap();
    let (experts, shares) = routes.to_vecs().unwrap();
    (routes, experts, shares)
}

#[derive(Debug, Clone, Copy)]
struct Case {
    choice: Choice,
    format: Format,
    outputs: usize,
    columns: usize,
    rows: usize,
    biased: bool,
    inputs: Inputs,
    /// With an expert for all rows, and perhaps its gate.
    common: Option<bool>,
    accumulate: bool,
}

/// One product of experts, summed by their shares.
fn check(device: &Arc<dyn Device>, case: &Case) {
    let Case {
        choice,
        format,
        outputs,
        columns,
        rows,
        ..
    } = *case;
    let Choice {
        experts, chosen, ..
    } = choice;
    let what = format!("{case:?} on {}", device.name());
    // Scores are equal or far enough apart for single precision.
    let coarse = |seed, count, steps: f32| -> Vec<f32> {
        let numbers = numbers(seed, count).into_iter();
        numbers.map(|x| (x * steps).round() * 2.0 / steps).collect()
    };
    let (logits, correction) = (coarse(31, rows * experts, 64.0), coarse(32, experts, 2.0));
    let expected: Vec<(usize, f64)> = logits
        .chunks(experts)
        .flat_map(|logits| expected_routes(&choice, logits, &correction))
        .collect();
    let (routes, found, shares) = routed(device, &choice, &logits, &correction);
    let best: Vec<i32> = expected.iter().map(|(expert, _)| *expert as i32).collect();
    assert_eq!(found, best, "{what}");
    let exact_shares: Vec<f64> = expected.iter().map(|(_, share)| *share).collect();
    check_close(&what, &shares, &exact_shares, 1e-5);

    let (matrix, exact) = of_format(device, format, experts * outputs, columns, 33);
    let parts = rows * chosen;
    let narrow = parts.div_ceil(experts) > FEW_PARTS;
    let as_multiplied = |number: f64| match narrow {
        true => narrowed(format, number),
        false => number,
    };
    let exact: Vec<f64> = exact.into_iter().map(as_multiplied).collect();
    let shared_by = if case.inputs == Inputs::OfRows {
        chosen
    } else {
        1
    };
    let x = numbers(34, parts / shared_by * columns);
    let bias = numbers(35, experts * outputs);
    let exact_parts: Vec<f64> = (0..parts)
        .flat_map(|part| {
            let expert = expected[part].0;
            let x = &x[part / shared_by * columns..][..columns];
            let (exact, bias) = (&exact, &bias);
            (expert * outputs..(expert + 1) * outputs).map(move |row| {
                let weights = exact[row * columns..][..columns].iter();
                let products = weights
                    .zip(x)
                    .map(|(w, x)| w * as_multiplied(f64::from(*x)));
                let sum: f64 = products.sum();
                sum + if case.biased {
                    f64::from(bias[row])
                } else {
                    0.0
                }
            })
        })
        .collect();
    let of = |numbers: &[f32]| Buffer::of(device, numbers).unwrap();
    let (given, biases) = (of(&x), of(&bias));
    let results = Buffer::zeros(device, parts * outputs).unwrap();
    let linear = ExpertLinear {
        matrix: &matrix,
        bias: case.biased.then(|| biases.all()),
    };
    let x = (given.all(), case.inputs);
    products(&**device, &linear, &routes, rows, x, results.all()).unwrap();
    check_close(&what, &results.to_vec().unwrap(), &exact_parts, 1e-5);

    let (common, gates, before) = (
        numbers(36, rows * outputs),
        numbers(37, rows),
        numbers(38, rows * outputs),
    );
    let (given_common, given_gates, out) = (of(&common), of(&gates), of(&before));
    let given = case.common.map(|gated| Common {
        results: given_common.all(),
        gates: gated.then(|| given_gates.all()),
    });
    let scalars = Scalars {
        scale: 0.75,
        accumulate: case.accumulate,
    };
    let out_rows = Rows {
        slice: out.all(),
        stride: outputs,
        count: rows,
    };
    combine(&**device, &routes, results.all(), given, scalars, out_rows).unwrap();
    let exact_out: Vec<f64> = (0..rows * outputs)
        .map(|index| {
            let (row, output) = (index / outputs, index % outputs);
            let parts = (row * chosen..(row + 1) * chosen)
                .map(|part| expected[part].1 * exact_parts[part * outputs + output]);
            let share = match case.common {
                None => 0.0,
                Some(false) => 1.0,
                Some(true) => 1.0 / (1.0 + (-f64::from(gates[row])).exp()),
            };
            let sum = parts.sum::<f64>() + share * f64::from(common[index]);
            let before = if case.accumulate { before[index] } else { 0.0 };
            0.75 * sum + f64::from(before)
        })
        .collect();
    check_close(&what, &out.to_vec().unwrap(), &exact_out, 1e-5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn experts_are_those_of_double_precision(
        (experts, chosen) in (1usize..70).prop_flat_map(|experts| (Just(experts), 1..=experts.min(6))),
        (sigmoid, corrected, normalised) in any::<(bool, bool, bool)>(),
        which in 0usize..7,
        outputs in 1usize..12,
        rows in 1usize..14,
        (biased, of_rows, accumulate) in any::<(bool, bool, bool)>(),
        common in prop::option::of(any::<bool>()),
    ) {
        let format = Format::ALL[which];
        let case = Case {
            choice: Choice { experts, chosen, sigmoid, corrected, normalised },
            format,
            outputs,
            columns: format.columns(),
            rows,
            biased,
            inputs: if of_rows { Inputs::OfRows } else { Inputs::OfParts },
            common,
            accumulate,
        };
        for device in devices() {
            check(&device, &case);
        }
    }
}

/// Tiles of each size, more parts of an expert than one tile has, and experts without any.
#[test]
fn many_rows_are_those_of_double_precision() {
    for device in devices() {
        for format in Format::ALL {
            for (experts, chosen, rows) in
                [(3, 2, 2), (2, 1, 5), (4, 2, 15), (3, 2, 120), (40, 2, 9)]
            {
                let choice = Choice {
                    experts,
                    chosen,
                    sigmoid: false,
                    corrected: false,
                    normalised: true,
                };
                let case = Case {
                    choice,
                    format,
                    outputs: 35,
                    columns: 3 * 40usize.next_multiple_of(format.columns()),
                    rows,
                    biased: true,
                    inputs: Inputs::OfRows,
                    common: None,
                    accumulate: false,
                };
                check(&device, &case);
            }
        }
    }
}

/// A row of the best batch size gives what it gives alone, whoever shares its experts.
#[test]
fn a_part_has_the_same_bits_alone_and_among_others() {
    const ROWS: usize = mortise_cuda::linear::FEW_ROWS;
    let choice = Choice {
        experts: 4,
        chosen: 2,
        sigmoid: false,
        corrected: false,
        normalised: true,
    };
    for device in devices() {
        for format in Format::ALL {
            let columns = 300usize.next_multiple_of(format.columns());
            let (matrix, _) = of_format(&device, format, 4 * 9, columns, 3);
            let linear = ExpertLinear {
                matrix: &matrix,
                bias: None,
            };
            let (logits, x) = (numbers(4, ROWS * 4), numbers(5, ROWS * columns));
            let run = |first: usize, rows: usize| -> Vec<u32> {
                let (routes, ..) = routed(
                    &device,
                    &choice,
                    &logits[first * 4..][..rows * 4],
                    &[0.0; 4],
                );
                let x = Buffer::of(&device, &x[first * columns..][..rows * columns]).unwrap();
                let out = Buffer::zeros(&device, rows * 2 * 9).unwrap();
                let x = (x.all(), Inputs::OfRows);
                products(&*device, &linear, &routes, rows, x, out.all()).unwrap();
                let bits = |value: &f32| value.to_bits();
                out.to_vec().unwrap().iter().map(bits).collect()
            };
            let alone: Vec<u32> = (0..ROWS).flat_map(|row| run(row, 1)).collect();
            for rows in 2..=ROWS {
                assert_eq!(
                    run(0, rows),
                    alone[..rows * 2 * 9],
                    "{format:?}, {rows} rows"
                );
            }
        }
    }
}

#[test]
fn equal_experts_are_chosen_by_number_and_no_number_chooses_none_twice() {
    let choice = Choice {
        experts: 37,
        chosen: 5,
        sigmoid: true,
        corrected: false,
        normalised: false,
    };
    for device in devices() {
        let (_, experts, _) = routed(&device, &choice, &[0.25; 37], &[0.0; 37]);
        assert_eq!(experts, [0, 1, 2, 3, 4]);
        let mut logits = [f32::NAN; 37];
        logits[20] = -3.0;
        for sigmoid in [true, false] {
            let choice = Choice { sigmoid, ..choice };
            let (_, mut experts, _) = routed(&device, &choice, &logits, &[0.0; 37]);
            experts.sort_unstable();
            experts.dedup();
            assert!(experts.len() == 5 && experts.iter().all(|expert| (0..37).contains(expert)));
        }
    }
}
