use std::collections::BTreeMap;

use super::Sampler;
use crate::event::SequenceError;
use crate::request::{LogprobParams, SamplingParams};

const LOGITS: [f32; 6] = [1.0, 3.0, -2.0, 3.0, 0.5, 2.0];

fn params(seed: u64) -> SamplingParams {
    SamplingParams {
        seed: Some(seed),
        ..SamplingParams::default()
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    }
}

fn draw(sampler: &mut Sampler, mask: Option<&[u32]>) -> u32 {
    sampler.sample(&mut LOGITS.clone(), mask, None).unwrap().id
}

/// How often each token is drawn.
fn shares(params: SamplingParams, mask: Option<&[u32]>) -> BTreeMap<u32, f64> {
    const DRAWS: usize = 20_000;
    let mut sampler = Sampler::new(params, &[]);
    let mut shares = BTreeMap::new();
    for _ in 0..DRAWS {
        *shares.entry(draw(&mut sampler, mask)).or_insert(0.0) += 1.0 / DRAWS as f64;
    }
    shares
}

fn check_shares(params: SamplingParams, mask: Option<&[u32]>, kept: &[u32]) {
    let temperature = f64::from(params.temperature);
    let weight = |token: u32| (f64::from(LOGITS[token as usize]) / temperature).exp();
    let total: f64 = kept.iter().map(|token| weight(*token)).sum();
    let found = shares(params, mask);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), kept);
    for (token, share) in found {
        let expected = weight(token) / total;
        assert!(
            (share - expected).abs() < 0.015,
            "{token}: {share} is not {expected}"
        );
    }
}

#[test]
fn draws_follow_the_probabilities() {
    check_shares(params(1), None, &[0, 1, 2, 3, 4, 5]);
    let warm = SamplingParams {
        temperature: 2.5,
        ..params(2)
    };
    check_shares(warm, None, &[0, 1, 2, 3, 4, 5]);
}

#[test]
fn filters_keep_the_likeliest() {
    check_shares(
        SamplingParams {
            top_k: 3,
            ..params(3)
        },
        None,
        &[1, 3, 5],
    );
    // The two best have 37 % each.
    check_shares(
        SamplingParams {
            top_p: 0.7,
            ..params(4)
        },
        None,
        &[1, 3],
    );
    check_shares(
        SamplingParams {
            top_p: 0.0,
            ..params(4)
        },
        None,
        &[1],
    );
    check_shares(
        SamplingParams {
            min_p: 0.3,
            ..params(5)
        },
        None,
        &[1, 3, 5],
    );
    // top-p counts among what top-k left: 42 % of it each.
    let both = SamplingParams {
        top_k: 3,
        top_p: 0.8,
        ..params(6)
    };
    check_shares(both, None, &[1, 3]);
}

#[test]
fn a_mask_forbids() {
    check_shares(params(7), Some(&[0b11_0101]), &[0, 2, 4, 5]);
    let error = Sampler::new(greedy(), &[]).sample(&mut LOGITS.clone(), Some(&[0]), None);
    assert!(
        matches!(error, Err(SequenceError::Constraint(_))),
        "{error:?}"
    );
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut sampler = Sampler::new(greedy(), &[]);
    assert_eq!(draw(&mut sampler, None), 1);
    assert_eq!(draw(&mut sampler, Some(&[0b11_1101])), 3);
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let run = |seed| {
        let mut sampler = Sampler::new(SamplingParams { seed, ..params(0) }, &[]);
        (0..50)
            .map(|_| draw(&mut sampler, None))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(Some(9)), run(Some(9)));
    assert_ne!(run(Some(9)), run(Some(10)));
    assert_ne!(run(None), run(None));
}

#[test]
fn penalties_and_bias_change_logits_before_the_choice() {
    let adjusted = |params: SamplingParams, prompt: &[u32], output: &[u32]| {
        let mut sampler = Sampler::new(params, prompt);
        for token in output {
            sampler.observe(*token);
        }
        let mut logits = LOGITS;
        sampler.adjust(&mut logits);
        logits
    };
    let repetition = SamplingParams {
        repetition_penalty: 2.0,
        ..greedy()
    };
    let expected = [1.0, 1.5, -4.0, 3.0, 0.5, 1.0];
    assert_eq!(adjusted(repetition, &[1, 2, 1], &[5]), expected);
    let counted = SamplingParams {
        frequency_penalty: 0.5,
        presence_penalty: 0.25,
        ..greedy()
    };
    let expected = [1.0, 1.75, -2.0, 3.0, 0.5, 1.25];
    assert_eq!(adjusted(counted, &[0, 2], &[1, 5, 1]), expected);
    let biased = SamplingParams {
        logit_bias: vec![(2, 10.0), (1, -3.0)],
        ..greedy()
    };
    assert_eq!(adjusted(biased, &[], &[]), [1.0, 0.0, 8.0, 3.0, 0.5, 2.0]);
}

#[test]
fn logprobs_are_those_of_the_model_before_mask_and_temperature() {
    let biased = SamplingParams {
        logit_bias: vec![(2, 10.0)],
        ..greedy()
    };
    let mut sampler = Sampler::new(biased, &[]);
    let wanted = Some(LogprobParams { top: 2 });
    let token = sampler
        .sample(&mut LOGITS.clone(), Some(&[0b10_0000]), wanted)
        .unwrap();
    assert_eq!(token.id, 5);
    let logits = [1.0, 3.0, 8.0, 3.0, 0.5, 2.0f64];
    let total = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    let logprobs = token.logprobs.unwrap();
    assert!((f64::from(logprobs.chosen) - (2.0 - total)).abs() < 1e-5);
    let top: Vec<u32> = logprobs.top.iter().map(|(token, _)| *token).collect();
    assert_eq!(top, [2, 1]);
    assert!((f64::from(logprobs.top[1].1) - (3.0 - total)).abs() < 1e-5);
}

#[test]
fn numbers_that_are_none_are_an_error() {
    for wrong in [f32::NAN, f32::INFINITY] {
        let error = Sampler::new(greedy(), &[]).sample(&mut [0.0, wrong], None, None);
        assert!(
            matches!(error, Err(SequenceError::Inference(_))),
            "{error:?}"
        );
    }
    let nothing = Sampler::new(params(1), &[]).sample(&mut [f32::NEG_INFINITY; 2], None, None);
    assert!(nothing.is_err());
}
