//! The engine on a fake model: the output of each stream, whatever the others do.

mod support;

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use mortise_engine::{
    Engine, EngineConfig, EngineError, EngineHandle, LogprobParams, SamplingParams, SequenceEnd,
    SequenceError, SequenceRequest, Speculation, SubmitError, TokenEvent, TokenStream,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use support::{
    ERROR, FakeModel, NAN, PANIC, collect, config, engine, expected, greedy, next, until,
    until_empty,
};

#[test]
fn a_sequence_runs_to_its_limit() {
    let engine = engine(10, 100, config());
    let prompt = [1, 2, 3, 4, 5];
    let (tokens, end) = collect(&mut engine.submit(greedy(&prompt, 30)).unwrap());
    assert_eq!(tokens, expected(&prompt, 30));
    let (reason, usage) = end.unwrap();
    assert_eq!(reason, SequenceEnd::Length);
    assert_eq!(
        (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens
        ),
        (5, 30, 0)
    );
    until_empty(&engine);
    let load = engine.load();
    assert_eq!(
        (load.prefill_tokens, load.decode_tokens, load.steps),
        (5, 30, 30)
    );
    assert_eq!(load.kv_blocks_total, 10);
}

#[test]
fn the_context_bounds_what_max_tokens_allows() {
    let engine = engine(2, 100, config());
    assert_eq!(
        engine.context_length(),
        32,
        "the cache holds less than the model could"
    );
    let (tokens, end) = collect(&mut engine.submit(greedy(&[7; 20], u32::MAX)).unwrap());
    assert_eq!(tokens, expected(&[7; 20], 12));
    assert_eq!(end.unwrap().0, SequenceEnd::Length);
    let refused = engine.submit(greedy(&[7; 32], 1)).unwrap_err();
    assert_eq!(
        refused,
        SubmitError::ContextLength {
            prompt: 32,
            context: 32
        }
    );
}

#[test]
fn stop_tokens_end_and_are_not_emitted() {
    let engine = engine(10, 100, config());
    let all = expected(&[3], 20);
    let stop = all[7];
    let before: Vec<u32> = all
        .iter()
        .copied()
        .take_while(|token| *token != stop)
        .collect();
    let request = SequenceRequest {
        stop_tokens: vec![49, stop],
        ..greedy(&[3], 20)
    };
    let (tokens, end) = collect(&mut engine.submit(request).unwrap());
    assert_eq!(tokens, before);
    let (reason, usage) = end.unwrap();
    assert_eq!(reason, SequenceEnd::Stop);
    assert_eq!(usage.completion_tokens as usize, before.len());
}

#[test]
fn a_seed_gives_the_same_tokens_alone_and_in_a_crowd() {
    let engine = engine(200, 200, config());
    let request = |seed: u64| SequenceRequest {
        sampling: SamplingParams {
            seed: Some(seed),
            top_p: 0.9,
            ..SamplingParams::default()
        },
        logprobs: Some(LogprobParams { top: 3 }),
        ..greedy(&[seed as u32 % 40, 2, 3], 40)
    };
    let events = |mut stream: TokenStream| {
        let mut events = Vec::new();
        while !matches!(events.last(), Some(TokenEvent::Finished { .. })) {
            events.push(next(&mut stream));
        }
        events
    };
    let alone: Vec<_> = (0..8)
        .map(|seed| events(engine.submit(request(seed)).unwrap()))
        .collect();
    let streams: Vec<_> = (0..8)
        .map(|seed| engine.submit(request(seed)).unwrap())
        .collect();
    let crowd: Vec<_> = streams.into_iter().map(events).collect();
    assert_eq!(crowd, alone);
    assert_ne!(alone[0], alone[1]);
}

#[test]
fn random_crowds_get_what_each_would_get_alone() {
    for seed in 0..60 {
        let mut random = Pcg64::seed_from_u64(seed);
        let sequences = random.random_range(1..7);
        let config = EngineConfig {
            max_sequences: sequences,
            step_token_budget: sequences + random.random_range(0..30),
            ..config()
        };
        let engine = engine(random.random_range(8..30), 120, config);
        let mut streams = Vec::new();
        for _ in 0..random.random_range(1..20) {
            let length = random.random_range(1..60);
            let prompt: Vec<u32> = (0..length).map(|_| random.random_range(0..40)).collect();
            let max_tokens = random.random_range(1..120);
            let stream = engine.submit(greedy(&prompt, max_tokens)).unwrap();
            let patience = random.random_range(0..5usize);
            streams.push((prompt, max_tokens as usize, stream, patience));
        }
        for (prompt, max_tokens, mut stream, patience) in streams {
            let count = max_tokens.min(120 - prompt.len());
            let all = expected(&prompt, count);
            if patience == 0 {
                // Reads a little, then leaves.
                for token in all.iter().take(3) {
                    assert!(
                        matches!(next(&mut stream), TokenEvent::Token(got) if got.id == *token)
                    );
                }
                continue;
            }
            let (tokens, end) = collect(&mut stream);
            assert_eq!(tokens, all, "seed {seed}");
            assert_eq!(end.unwrap().0, SequenceEnd::Length);
        }
        until_empty(&engine);
    }
}

#[test]
fn a_reader_that_does_not_read_stops_only_itself() {
    let engine = engine(40, 400, config());
    let mut idle = engine.submit(greedy(&[1], 200)).unwrap();
    let (tokens, _) = collect(&mut engine.submit(greedy(&[2], 150)).unwrap());
    assert_eq!(tokens, expected(&[2], 150));
    until("the idle stream is full and its sequence paused", || {
        let steps = engine.load().steps;
        std::thread::sleep(Duration::from_millis(30));
        engine.load().steps == steps
    });
    assert_eq!(engine.load().running, 1);
    assert!((engine.load().decode_tokens as usize) < 150 + TokenStream::CAPACITY + 2);
    let (tokens, end) = collect(&mut idle);
    assert_eq!(tokens, expected(&[1], 200));
    assert_eq!(end.unwrap().0, SequenceEnd::Length);
    until_empty(&engine);
}

#[test]
fn asynchronous_readers_wake_a_stalled_engine() {
    let engine = engine(40, 400, config());
    let mut stream = engine.submit(greedy(&[1], 300)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let count = runtime.block_on(async {
        let mut count = 0;
        while let Some(event) = stream.next().await {
            count += usize::from(matches!(event, TokenEvent::Token(_)));
        }
        count
    });
    assert_eq!(count, 300);
}

#[test]
fn dropping_a_stream_frees_its_blocks() {
    let engine = engine(40, 400, config());
    // One that is paused or had to yield, one that runs, one that runs or waits.
    let paused = engine.submit(greedy(&[1; 100], 200)).unwrap();
    let mut running = engine.submit(greedy(&[2; 300], 200)).unwrap();
    let waiting = engine.submit(greedy(&[3; 300], 90)).unwrap();
    for _ in 0..80 {
        next(&mut running);
    }
    drop((waiting, running, paused));
    until_empty(&engine);
}

/// An engine that stands still with one sequence in it, until the sender is dropped.
fn busy(config: EngineConfig) -> (EngineHandle, TokenStream, Sender<()>) {
    let (permits, receiver) = channel();
    let model = FakeModel::new(40, 400).with_permits(receiver);
    let engine = Engine::start_with(Box::new(model), config).unwrap();
    let mut first = engine.submit(greedy(&[1], 300)).unwrap();
    permits.send(()).unwrap();
    next(&mut first);
    (engine, first, permits)
}

#[test]
fn a_full_queue_refuses() {
    let config = EngineConfig {
        max_sequences: 1,
        max_queue: 2,
        ..config()
    };
    let (engine, first, permits) = busy(config);
    let waiting: Vec<_> = (0..2)
        .map(|_| engine.submit(greedy(&[2], 10)).unwrap())
        .collect();
    let refused = engine.submit(greedy(&[2], 10)).unwrap_err();
    assert_eq!(refused, SubmitError::QueueFull { limit: 2 });
    assert_eq!(engine.load().waiting, 2);
    drop((first, permits));
    for mut stream in waiting {
        assert_eq!(collect(&mut stream).0, expected(&[2], 10));
    }
    engine.submit(greedy(&[2], 10)).unwrap();
}

#[test]
fn a_queue_full_of_tokens_refuses() {
    let config = EngineConfig {
        max_sequences: 1,
        max_queued_tokens: 50,
        ..config()
    };
    let (engine, first, permits) = busy(config);
    // A long one may wait alone.
    let mut long = engine.submit(greedy(&[2; 60], 10)).unwrap();
    let refused = engine.submit(greedy(&[2], 10)).unwrap_err();
    assert_eq!(refused, SubmitError::QueuedTokens { limit: 50 });
    let load = engine.load();
    assert_eq!((load.waiting, load.waiting_tokens), (1, 60));
    drop((first, permits));
    assert_eq!(collect(&mut long).0, expected(&[2; 60], 10));
    until("the queue is empty", || engine.load().waiting_tokens == 0);
    engine.submit(greedy(&[2; 50], 10)).unwrap();
}

#[test]
fn only_the_culprit_of_a_failed_batch_fails() {
    let model = FakeModel::new(80, 200).with_delay(Duration::from_millis(1));
    let engine = Engine::start_with(Box::new(model), config()).unwrap();
    for (culprit, message) in [
        (PANIC, "panicked: told to panic"),
        (ERROR, "another model"),
        (NAN, "no numbers"),
    ] {
        let mut others: Vec<_> = (0..3)
            .map(|n| engine.submit(greedy(&[n, 1], 60)).unwrap())
            .collect();
        next(&mut others[0]);
        let mut guilty = engine.submit(greedy(&[5, 6, culprit], 60)).unwrap();
        let (tokens, end) = collect(&mut guilty);
        assert!(tokens.is_empty());
        let error = end.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert!(matches!(error, SequenceError::Inference(_)));
        for (n, mut stream) in (0..3).zip(others) {
            let all = expected(&[n, 1], 60);
            let all = if n == 0 { &all[1..] } else { &all[..] };
            assert_eq!(collect(&mut stream).0, all);
        }
        until_empty(&engine);
    }
}

#[test]
fn shutting_down_closes_streams_and_refuses() {
    let engine = engine(40, 400, config());
    let mut stream = engine.submit(greedy(&[1], 300)).unwrap();
    next(&mut stream);
    engine.shutdown();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let last = runtime.block_on(async {
        let mut last = None;
        while let Some(event) = stream.next().await {
            last = Some(event);
        }
        last
    });
    assert!(matches!(last, Some(TokenEvent::Token(_))), "{last:?}");
    assert_eq!(
        engine.submit(greedy(&[1], 1)).unwrap_err(),
        SubmitError::Stopped
    );
}

#[test]
fn requests_that_break_a_rule_are_refused() {
    let engine = engine(4, 64, config());
    let sampled = |sampling| SequenceRequest {
        sampling,
        ..greedy(&[1], 1)
    };
    let standard = SamplingParams::default;
    let table = [
        (greedy(&[], 1), "the prompt has no tokens"),
        (greedy(&[1, 50], 1), "prompt token 50"),
        (greedy(&[1], 0), "`max_tokens`"),
        (
            SequenceRequest {
                logprobs: Some(LogprobParams { top: 21 }),
                ..greedy(&[1], 1)
            },
            "`top`",
        ),
        (
            sampled(SamplingParams {
                temperature: -0.1,
                ..standard()
            }),
            "`temperature`",
        ),
        (
            sampled(SamplingParams {
                temperature: f32::NAN,
                ..standard()
            }),
            "`temperature`",
        ),
        (
            sampled(SamplingParams {
                temperature: f32::INFINITY,
                ..standard()
            }),
            "`temperature`",
        ),
        (
            sampled(SamplingParams {
                top_p: 1.1,
                ..standard()
            }),
            "`top_p`",
        ),
        (
            sampled(SamplingParams {
                min_p: -1.0,
                ..standard()
            }),
            "`min_p`",
        ),
        (
            sampled(SamplingParams {
                repetition_penalty: 0.0,
                ..standard()
            }),
            "`repetition_penalty`",
        ),
        (
            sampled(SamplingParams {
                frequency_penalty: f32::NAN,
                ..standard()
            }),
            "`frequency_penalty`",
        ),
        (
            sampled(SamplingParams {
                presence_penalty: 1e9,
                ..standard()
            }),
            "`presence_penalty`",
        ),
        (
            sampled(SamplingParams {
                logit_bias: vec![(50, 0.0)],
                ..standard()
            }),
            "token 50",
        ),
        (
            sampled(SamplingParams {
                logit_bias: vec![(5, f32::NAN)],
                ..standard()
            }),
            "`logit_bias`",
        ),
    ];
    for (request, expected) in table {
        match engine.submit(request) {
            Err(SubmitError::Invalid(message)) => assert!(message.contains(expected), "{message}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let table = [
        (
            EngineConfig {
                max_sequences: 0,
                ..config()
            },
            "`max_sequences`",
        ),
        (
            EngineConfig {
                max_queue: 0,
                ..config()
            },
            "`max_queue`",
        ),
        (
            EngineConfig {
                step_token_budget: 7,
                ..config()
            },
            "`step_token_budget`",
        ),
        (
            EngineConfig {
                max_queued_tokens: 0,
                ..config()
            },
            "`max_queued_tokens`",
        ),
        (
            EngineConfig {
                speculation: Speculation::PromptLookup { draft_tokens: 33 },
                ..config()
            },
            "`draft_tokens`",
        ),
        (
            EngineConfig {
                threads: 1_000_000,
                ..config()
            },
            "`threads`",
        ),
    ];
    for (config, expected) in table {
        let error = Engine::start_with(Box::new(FakeModel::new(4, 64)), config).unwrap_err();
        assert!(matches!(error, EngineError::Config { .. }));
        assert!(error.to_string().contains(expected), "{error}");
    }
}
