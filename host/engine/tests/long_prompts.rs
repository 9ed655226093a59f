//! The cost of a long prompt, to others and the second time: counted in steps, which no busy machine
//! changes. The engine takes a step when the test permits it.

mod support;

use std::sync::mpsc::{Sender, channel};

use mortise_engine::{Engine, EngineConfig, EngineHandle, TokenEvent, TokenStream};
use support::{FakeModel, config, greedy, next, until_empty};

const BUDGET: usize = 64;

/// An engine that takes a step for each message.
fn stepped() -> (EngineHandle, Sender<()>) {
    let (permits, receiver) = channel();
    let model = FakeModel::new(1000, 5000).with_permits(receiver);
    let config = EngineConfig {
        max_sequences: 9,
        step_token_budget: BUDGET,
        ..config()
    };
    let engine = Engine::start_with(Box::new(model), config).unwrap();
    (engine, permits)
}

/// Take one step.
fn step(engine: &EngineHandle, permits: &Sender<()>) {
    let before = engine.load().steps;
    permits.send(()).unwrap();
    support::until("the step is taken", || engine.load().steps > before);
}

/// Steps until the first token of a stream comes, give or take the one that is under way.
fn steps_to_first_token(
    stream: &mut TokenStream,
    engine: &EngineHandle,
    permits: &Sender<()>,
) -> u64 {
    let before = engine.load().steps;
    while !matches!(stream.try_next(), Some(TokenEvent::Token(_))) {
        step(engine, permits);
    }
    engine.load().steps - before
}

#[test]
fn a_prompt_of_4096_tokens_delays_no_running_stream() {
    let (engine, permits) = stepped();
    let mut streams: Vec<TokenStream> = (0..8)
        .map(|n| engine.submit(greedy(&[n, 1], 1000)).unwrap())
        .collect();
    for stream in &mut streams {
        steps_to_first_token(stream, &engine, &permits);
    }
    let prompt: Vec<u32> = (0..4096).map(|n| n * n % 37).collect();
    let mut long = engine.submit(greedy(&prompt, 4)).unwrap();
    let begun = engine.load();
    while long.try_next().is_none() {
        step(&engine, &permits);
        // Waits where a stream has had no token in this step.
        for stream in &mut streams {
            next(stream);
        }
    }
    let ended = engine.load();
    let steps = ended.steps - begun.steps;
    let tokens = ended.decode_tokens - begun.decode_tokens;
    // Eight of each step's tokens are the streams'; the prompt took all others.
    assert!(steps >= 4096_u64.div_ceil((BUDGET - 8) as u64), "{steps}");
    assert!(
        tokens + 2 * 8 >= 8 * steps,
        "{tokens} tokens in {steps} steps"
    );
    drop((permits, streams, long));
    until_empty(&engine);
}

#[test]
fn the_second_request_with_a_prefix_of_2000_tokens_starts_at_once() {
    let (engine, permits) = stepped();
    let prefix: Vec<u32> = (0..2000).map(|n| n * n % 37).collect();
    let ask = |end: u32| {
        let mut prompt = prefix.clone();
        prompt.push(end);
        let mut stream = engine.submit(greedy(&prompt, 2)).unwrap();
        steps_to_first_token(&mut stream, &engine, &permits)
    };
    let (cold, warm) = (ask(1), ask(2));
    assert!(cold >= 2001_u64.div_ceil(BUDGET as u64), "{cold}");
    assert!(10 * warm <= cold, "{warm} steps after {cold}");
    drop(permits);
    until_empty(&engine);
}
