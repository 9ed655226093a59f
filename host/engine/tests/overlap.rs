//! Overlap scheduling: steps enqueued before the tokens of the previous one are known, and sampling on
//! the device. Readers get what they get from a model that returns whole rows, to the bit.

#[path = "support/device_model.rs"]
mod device_model;
mod support;

use std::sync::Arc;
use std::task::{Poll, Waker};

use device_model::{DeviceCalls, FakeDeviceModel};
use mortise_engine::{
    BeamParams, BeamRequest, Constraint, ConstraintError, EarlyStopping, Engine, EngineConfig,
    EngineHandle, LogprobParams, MaskStep, SamplingParams, SequenceEnd, SequenceRequest, Share,
    Speculation, TokenEvent, TokenStream,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use support::{
    ERROR, FakeModel, NAN, PANIC, collect, config, engine, expected, greedy, next, until_empty,
};

fn on_device(
    blocks: usize,
    context: usize,
    config: EngineConfig,
) -> (EngineHandle, Arc<DeviceCalls>) {
    start(
        FakeDeviceModel::new(FakeModel::new(blocks, context)),
        config,
    )
}

fn start(model: FakeDeviceModel, config: EngineConfig) -> (EngineHandle, Arc<DeviceCalls>) {
    let asked = model.asked();
    (Engine::start_with(Box::new(model), config).unwrap(), asked)
}

/// All events, to the bit.
fn events(mut stream: TokenStream) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let event = next(&mut stream);
        let bits = match &event {
            TokenEvent::Token(token) => token.logprobs.iter().flat_map(|logprobs| {
                let top = logprobs.top.iter().map(|(_, logprob)| logprob.to_bits());
                std::iter::once(logprobs.chosen.to_bits()).chain(top)
            }),
            _ => {
                events.push(format!("{event:?}"));
                return events;
            }
        };
        events.push(format!("{event:?} {:?}", bits.collect::<Vec<_>>()));
    }
}

#[test]
fn the_next_step_is_enqueued_before_the_last_one_is_known() {
    let (engine, asked) = on_device(20, 200, config());
    let prompt = [1, 2, 3, 4, 5];
    let (tokens, end) = collect(&mut engine.submit(greedy(&prompt, 30)).unwrap());
    assert_eq!(tokens, expected(&prompt, 30));
    assert_eq!(end.unwrap().0, SequenceEnd::Length);
    until_empty(&engine);
    // The length is known before: no result is discarded.
    assert_eq!(DeviceCalls::get(&asked.batches), 30);
    assert_eq!(DeviceCalls::get(&asked.ahead), 29);
    assert_eq!(DeviceCalls::get(&asked.rows), 0);
    let load = engine.load();
    assert_eq!((load.steps, load.decode_tokens), (30, 30));
}

#[test]
fn the_step_in_flight_of_a_finished_sequence_is_discarded() {
    let (engine, asked) = on_device(20, 200, config());
    let all = expected(&[3], 20);
    let before: Vec<u32> = all
        .iter()
        .copied()
        .take_while(|token| *token != all[7])
        .collect();
    let request = SequenceRequest {
        stop_tokens: vec![49, all[7]],
        ..greedy(&[3], 20)
    };
    let (tokens, end) = collect(&mut engine.submit(request).unwrap());
    assert_eq!(tokens, before);
    let (reason, usage) = end.unwrap();
    assert_eq!(reason, SequenceEnd::Stop);
    assert_eq!(usage.completion_tokens as usize, before.len());
    until_empty(&engine);
    // One batch for each token and for the stop token, and one that is discarded.
    assert_eq!(DeviceCalls::get(&asked.batches), before.len() + 2);
    assert_eq!(engine.load().steps as usize, before.len() + 1);
}

/// A request of any sort, but for constraints.
fn any_request(random: &mut Pcg64) -> SequenceRequest {
    let length = random.random_range(1..60);
    let prompt: Vec<u32> = (0..length).map(|_| random.random_range(0..40)).collect();
    let mut chance = |one_in: u32| random.random_range(0..one_in) == 0;
    let penalty = if chance(5) { 0.8 } else { 0.0 };
    let sampling = SamplingParams {
        temperature: if chance(3) { 0.0 } else { 0.9 },
        top_p: if chance(3) { 0.8 } else { 1.0 },
        top_k: if chance(4) { 7 } else { 0 },
        min_p: if chance(6) { 0.05 } else { 0.0 },
        frequency_penalty: penalty,
        repetition_penalty: 1.0 + penalty / 4.0,
        logit_bias: if chance(4) {
            vec![(3, 2.0), (5, -4.0), (3, 0.5)]
        } else {
            Vec::new()
        },
        seed: Some(length as u64),
        ..SamplingParams::default()
    };
    let logprobs = chance(3).then_some(LogprobParams { top: 4 });
    SequenceRequest {
        stop_tokens: vec![random.random_range(0..40), 49],
        sampling,
        logprobs,
        priority: random.random_range(0..6) / 5,
        ..greedy(&prompt, random.random_range(1..120))
    }
}

#[test]
fn random_crowds_get_what_each_would_get_of_whole_rows() {
    let (mut ahead, mut preemptions) = (0, 0);
    for seed in 0..40 {
        let mut random = Pcg64::seed_from_u64(seed);
        let sequences = random.random_range(1..7);
        let config = EngineConfig {
            max_sequences: sequences,
            step_token_budget: sequences + random.random_range(0..30),
            ..config()
        };
        let (engine, asked) = on_device(random.random_range(8..30), 120, config);
        let reference = support::engine(200, 120, support::config());
        let mut streams = Vec::new();
        for number in 0..random.random_range(1..20) {
            let before = random.clone();
            let request = any_request(&mut random);
            let alone = any_request(&mut before.clone());
            let stream = engine.submit(request).unwrap();
            let alone = reference.submit(alone).unwrap();
            streams.push((stream, events(alone), number % 5 == 4));
        }
        for (mut stream, expected, leaves) in streams {
            if leaves {
                // Reads a little, then leaves.
                let _ = next(&mut stream);
                continue;
            }
            // How much was cached is not the reader's.
            let found = events(stream);
            let tokens = |events: &[String]| events[..events.len() - 1].to_vec();
            assert_eq!(tokens(&found), tokens(&expected), "seed {seed}");
            let end = |events: &[String]| events[events.len() - 1].contains("Stop");
            assert_eq!(end(&found), end(&expected), "seed {seed}");
        }
        until_empty(&engine);
        assert_eq!(DeviceCalls::get(&asked.rows), 0, "seed {seed}");
        ahead += DeviceCalls::get(&asked.ahead);
        preemptions += engine.load().preemptions;
    }
    // What is never exercised is not tested.
    assert!(
        ahead > 500 && preemptions > 20,
        "{ahead} ahead, {preemptions} preemptions"
    );
}

/// Even tokens and odd ones in turns; every mask is some polls late.
struct InTurns {
    done: usize,
    late: usize,
    left: usize,
    mask: Arc<Vec<u32>>,
}

impl Constraint for InTurns {
    fn advance(&mut self, committed: &[u32]) {
        for token in committed {
            assert_eq!(
                *token as usize % 2,
                self.done % 2,
                "a token that was not allowed"
            );
            self.done += 1;
        }
        self.left = self.late;
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        if self.left > 0 {
            self.left -= 1;
            waker.wake_by_ref();
            return Poll::Pending;
        }
        let even = 0x5555_5555 << (self.done % 2);
        self.mask = Arc::new(vec![even, even & 0xff]);
        Poll::Ready(Ok(MaskStep::Allow(&self.mask)))
    }
}

#[test]
fn masks_are_obeyed_however_late() {
    let request = |late, seed| SequenceRequest {
        sampling: SamplingParams {
            seed,
            temperature: seed.map_or(0.0, |_| 1.0),
            ..SamplingParams::default()
        },
        logprobs: Some(LogprobParams { top: 2 }),
        constraint: Some(Box::new(InTurns {
            done: 0,
            late,
            left: 0,
            mask: Arc::default(),
        })),
        ..greedy(&[1, 2, 3], 40)
    };
    let reference = engine(40, 200, config());
    let (engine, asked) = on_device(40, 200, config());
    for seed in [None, Some(4)] {
        for late in [0, 1, 4] {
            let free = engine.submit(greedy(&[4], 90)).unwrap();
            let rows = DeviceCalls::get(&asked.rows);
            let found = events(engine.submit(request(late, seed)).unwrap());
            let expected = events(reference.submit(request(late, seed)).unwrap());
            assert_eq!(found, expected, "{late} late");
            // Rows are copied where their masks are late, and only there.
            assert_eq!(
                DeviceCalls::get(&asked.rows) > rows,
                late > 0,
                "{late} late"
            );
            let tokens = events(free);
            assert_eq!(tokens.len(), 91);
        }
    }
    until_empty(&engine);
}

#[test]
fn slow_readers_lose_nothing() {
    let (engine, _) = on_device(60, 500, config());
    let mut slow = engine.submit(greedy(&[9, 1], 300)).unwrap();
    // Its stream is full long before this one ends.
    let (tokens, _) = collect(&mut engine.submit(greedy(&[2, 7], 300)).unwrap());
    assert_eq!(tokens, expected(&[2, 7], 300));
    let (tokens, end) = collect(&mut slow);
    assert_eq!(tokens, expected(&[9, 1], 300));
    assert_eq!(end.unwrap().0, SequenceEnd::Length);
    until_empty(&engine);
}

#[test]
fn speculation_and_beams_copy_whole_rows() {
    let config = EngineConfig {
        speculation: Speculation::PromptLookup { draft_tokens: 3 },
        ..config()
    };
    let (engine, asked) = on_device(40, 200, config);
    let prompt = [7, 8, 9];
    let (tokens, _) = collect(&mut engine.submit(greedy(&prompt, 150)).unwrap());
    assert_eq!(tokens, expected(&prompt, 150));
    assert_eq!(DeviceCalls::get(&asked.ahead), 0);
    assert!(engine.load().drafted_tokens > 0);
    let rows = DeviceCalls::get(&asked.rows);
    assert!(rows > 0);

    let reference = support::engine(40, 200, support::config());
    let search = |engine: &EngineHandle| -> Vec<Vec<String>> {
        let request = BeamRequest {
            prompt: prompt.to_vec(),
            max_tokens: 9,
            stop_tokens: vec![49],
            beams: BeamParams {
                size: 3,
                results: 2,
                length_penalty: 1.0,
                early_stopping: EarlyStopping::Unlikely,
            },
            priority: 0,
            share: Share::default(),
            salt: None,
            adapter: None,
        };
        let streams = engine.submit_beams(request).unwrap();
        let tokens = |stream| {
            let mut events = events(stream);
            events.pop();
            events
        };
        streams.into_iter().map(tokens).collect()
    };
    assert_eq!(search(&engine), search(&reference));
    assert!(DeviceCalls::get(&asked.rows) > rows);
    until_empty(&engine);
}

#[test]
fn a_batch_that_fails_ends_only_the_sequence_at_fault() {
    for (culprit, message) in [
        (ERROR, "made for another model"),
        (PANIC, "panicked: told to panic"),
        (NAN, "no numbers"),
    ] {
        let (engine, _) = on_device(40, 200, config());
        let mut other = engine.submit(greedy(&[4], 80)).unwrap();
        let (none, end) = collect(&mut engine.submit(greedy(&[1, culprit], 20)).unwrap());
        assert!(none.is_empty());
        let error = end.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(collect(&mut other).0, expected(&[4], 80));
        until_empty(&engine);
    }
}

#[test]
fn an_outcome_that_is_lost_ends_its_sequences_and_no_others() {
    let model = FakeDeviceModel::new(FakeModel::new(40, 200)).that_loses(5);
    let (engine, _) = start(model, config());
    let (tokens, end) = collect(&mut engine.submit(greedy(&[4], 80)).unwrap());
    assert_eq!(tokens, expected(&[4], 5));
    assert!(end.is_err());
    until_empty(&engine);
    let (tokens, _) = collect(&mut engine.submit(greedy(&[4], 80)).unwrap());
    assert_eq!(tokens, expected(&[4], 80));
    until_empty(&engine);
}
