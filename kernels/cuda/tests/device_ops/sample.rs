//! Tokens and logprobs of the device have the bits of the host's sampler.

use std::sync::Arc;

use mortise_cuda::sample::{
    Adjustment, LogprobReport, SAMPLED_WORDS, SampleBatch, SampleError, SampleParams, SampledToken,
    sample, take_tokens,
};
use mortise_cuda::{Buffer, Device};
use mortise_kernels::mask::apply_mask;
use mortise_kernels::select::{
    LogitScan, ScanScratch, WEIGHT_UNIT, draw, keep_min_p, keep_top_k, keep_top_p, top,
};
use proptest::prelude::*;

use crate::{devices, numbers};

/// As the sampler of the engine does it, op by op.
fn on_the_host(logits: &[f32], one: &SampleParams) -> SampledToken {
    let mut logits = logits.to_vec();
    for adjustment in &one.adjustments {
        let logit = &mut logits[adjustment.token as usize];
        *logit = adjustment.apply(*logit);
    }
    let none = |reason| SampledToken {
        token: Err(reason),
        report: None,
    };
    if !logits.iter().all(|logit| *logit < f32::INFINITY) {
        return none(SampleError::NotNumbers);
    }
    let mut scratch = ScanScratch::default();
    let report = one.reported.map(|count| {
        let mut scan = LogitScan::new(&logits, &mut scratch);
        LogprobReport {
            highest: scan.highest(),
            weights: scan.total(1.0),
            likeliest: scan
                .top(count)
                .iter()
                .map(|one| (one.id, one.value))
                .collect(),
        }
    });
    if let Some(mask) = &one.mask {
        apply_mask(&mut logits, mask);
    }
    let scan = LogitScan::new(&logits, &mut scratch);
    let token = if one.temperature == 0.0 {
        scan.likeliest()
    } else {
        let mut candidates = Vec::new();
        scan.at_least(one.temperature, WEIGHT_UNIT, &mut candidates);
        if one.top_k > 0 {
            keep_top_k(&mut candidates, one.top_k as usize);
        }
        if one.min_p > 0.0 {
            keep_min_p(&mut candidates, one.min_p);
        }
        if one.top_p < 1.0 {
            keep_top_p(&mut candidates, one.top_p);
        }
        draw(&mut candidates, one.random)
    };
    match token {
        Some(token) => SampledToken {
            token: Ok((token, logits[token as usize])),
            report,
        },
        None => none(SampleError::Impossible),
    }
}

fn on(
    device: &Arc<dyn Device>,
    logits: &[f32],
    params: &[SampleParams],
    vocabulary: usize,
) -> Vec<SampledToken> {
    let logits = Buffer::of(device, logits).unwrap();
    let batch = SampleBatch::new(params, vocabulary);
    let copied = Buffer::of(device, batch.words()).unwrap();
    let sampled = Buffer::zeros(device, params.len() * SAMPLED_WORDS).unwrap();
    let (from, to) = (copied.all(), sampled.all());
    sample(&**device, logits.all(), vocabulary, &batch, from, to).unwrap();
    let words = sampled.to_vec().unwrap();
    let (rows, _) = words.as_chunks();
    rows.iter()
        .zip(params)
        .map(|(row, one)| SampledToken::read(row, one))
        .collect()
}

fn drawn() -> impl Strategy<Value = SampleParams> {
    let temperature = prop_oneof![Just(0.0f32), Just(1.0), 0.05f32..4.0];
    let top_k = prop_oneof![Just(0u32), 1u32..60, Just(100_000)];
    let min_p = prop_oneof![3 => Just(0.0f32), 1 => 0.0f32..=1.0];
    let top_p = prop_oneof![2 => Just(1.0f32), 1 => Just(0.0f32), 3 => 0.0f32..1.0];
    let adjustments = (0usize..6, any::<u64>());
    let masked = prop_oneof![2 => Just(None), 1 => (0u64..1000).prop_map(Some)];
    let reported = prop_oneof![Just(None), (0usize..=20).prop_map(Some)];
    let ways = (temperature, top_k, min_p, top_p);
    (ways, adjustments, masked, reported, any::<u64>()).prop_map(
        |((temperature, top_k, min_p, top_p), (count, seed), masked, reported, random)| {
            SampleParams {
                row: 0,
                adjustments: numbers(seed, 3 * count)
                    .chunks(3)
                    .enumerate()
                    .map(|(place, x)| Adjustment {
                        token: place as u32,
                        bias: (4.0 * x[0]).round(),
                        repetition: 1.5 + x[1],
                        penalty: x[2],
                    })
                    .collect(),
                // Made longer or shorter below.
                mask: masked.map(|seed| Arc::new(vec![seed as u32])),
                temperature,
                top_k,
                min_p,
                top_p,
                random,
                reported,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Logits of few values, so that many are equal, or of many.
    #[test]
    fn tokens_are_the_hosts_to_the_bit(
        vocabulary in prop_oneof![1usize..70, 100usize..5000],
        mut params in proptest::collection::vec(drawn(), 1..4),
        (seed, spread, levels) in (0u64..1000, 1.0f32..40.0, prop_oneof![Just(1e6f32), 1f32..20.0]),
        short in 0usize..3,
    ) {
        let mut logits = numbers(seed, params.len() * vocabulary);
        for logit in &mut logits {
            *logit = match *logit {
                x if x < -0.98 => f32::NEG_INFINITY,
                x => (x * levels).round() / levels * spread,
            };
        }
        let words = vocabulary.div_ceil(32).saturating_sub(short).max(1);
        for (row, one) in params.iter_mut().enumerate() {
            one.row = row;
            one.adjustments.truncate(vocabulary);
            if let Some(mask) = &mut one.mask {
                let bits = numbers(u64::from(mask[0]), words);
                let word = |x: &f32| if *x < -0.5 { 0 } else { x.to_bits().wrapping_mul(0x9e37_79b9) };
                *mask = Arc::new(bits.iter().map(word).collect());
            }
        }
        let rows = logits.chunks(vocabulary);
        let expected: Vec<SampledToken> = rows.zip(&params).map(|(row, one)| on_the_host(row, one)).collect();
        for device in devices() {
            prop_assert_eq!(&on(&device, &logits, &params, vocabulary), &expected);
        }
    }
}

fn plain() -> SampleParams {
    SampleParams {
        row: 0,
        adjustments: Vec::new(),
        mask: None,
        temperature: 1.0,
        top_k: 0,
        min_p: 0.0,
        top_p: 1.0,
        random: 0,
        reported: None,
    }
}

/// Draws at regular places are the distribution, which is not the host's op but a softmax in f64.
#[test]
fn draws_follow_the_softmax() {
    const DRAWS: usize = 2000;
    let logits = [1.0f32, 3.0, -2.0, 3.0, 0.5, 2.0];
    let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
    let rows: Vec<f32> = logits.repeat(DRAWS);
    let params: Vec<SampleParams> = (0..DRAWS)
        .map(|row| SampleParams {
            row,
            random: (u64::MAX / DRAWS as u64) * row as u64,
            ..plain()
        })
        .collect();
    let device = devices().remove(0);
    let sampled = on(&device, &rows, &params, logits.len());
    for (token, logit) in (0u32..).zip(logits) {
        let drawn = sampled.iter().filter(|one| one.token == Ok((token, logit)));
        let expected = f64::from(logit).exp() / total * DRAWS as f64;
        assert!(
            (drawn.count() as f64 - expected).abs() <= 2.0,
            "token {token}"
        );
    }
}

#[test]
fn rows_without_a_token_tell_the_reason() {
    for device in devices() {
        for temperature in [0.0, 1.0] {
            let one = SampleParams {
                temperature,
                reported: Some(2),
                ..plain()
            };
            let of = |logits: &[f32], one: &SampleParams| {
                on(&device, logits, std::slice::from_ref(one), logits.len()).remove(0)
            };
            for wrong in [f32::NAN, f32::INFINITY] {
                let sampled = of(&[0.0, wrong, 1.0], &one);
                assert_eq!(sampled.token, Err(SampleError::NotNumbers));
            }
            let impossible = of(&[f32::NEG_INFINITY; 40], &one);
            assert_eq!(impossible.token, Err(SampleError::Impossible));
            let masked = SampleParams {
                mask: Some(Arc::new(vec![0b10])),
                ..one
            };
            let sampled = of(&[5.0, -3.0, 9.0], &masked);
            assert_eq!(sampled.token, Ok((1, -3.0)));
            assert_eq!(sampled.report.unwrap().likeliest, [(2, 9.0), (0, 5.0)]);
            let impossible = of(&[0.0, f32::NEG_INFINITY], &masked);
            assert_eq!(impossible.token, Err(SampleError::Impossible));
        }
    }
}

#[test]
fn sampled_tokens_become_a_batch() {
    for device in devices() {
        let logits: Vec<f32> = (0..3 * 40).map(|i| (i * 7 % 31) as f32).collect();
        let params: Vec<SampleParams> = (0..3)
            .map(|row| SampleParams {
                row,
                temperature: 0.0,
                ..plain()
            })
            .collect();
        let batch = SampleBatch::new(&params, 40);
        let copied = Buffer::of(&device, batch.words()).unwrap();
        let sampled = Buffer::zeros(&device, 3 * SAMPLED_WORDS).unwrap();
        let given = Buffer::of(&device, &logits).unwrap();
        sample(
            &*device,
            given.all(),
            40,
            &batch,
            copied.all(),
            sampled.all(),
        )
        .unwrap();
        let tokens = Buffer::of(&device, &[11, 12, 13, 14]).unwrap();
        let sources = Buffer::of(&device, &[2, -1, 0, 2]).unwrap();
        take_tokens(&*device, sampled.all(), sources.all(), tokens.all(), 4).unwrap();
        let best = |row: usize| top(&logits[row * 40..][..40], 1)[0].id as i32;
        assert_eq!(tokens.to_vec().unwrap(), [best(2), 12, best(0), best(2)]);
    }
}
