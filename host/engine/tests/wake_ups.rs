//! One wake-up: the engine never waits for one sequence's mask. Requests, readers and masks all wake the
//! same loop. Everything here is a matter of order: masks come when the test says so, or never.

mod support;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use mortise_engine::{
    Constraint, ConstraintError, EngineConfig, EngineHandle, MaskStep, SequenceEnd,
    SequenceRequest, TokenEvent, TokenStream,
};
use support::{collect, config, engine, expected, greedy, next, until, until_empty};

/// The masks of a constraint, which another thread makes ready.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Masks that may be read.
    ready: usize,
    /// Polls that found no mask.
    polls: usize,
    /// Set while the engine waits for a mask.
    waker: Option<Waker>,
}

impl Gate {
    /// Make the next mask ready, and wake the engine as a plugin's thread would.
    fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.ready += 1;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Whether the prompt is computed: the first poll is during the forward pass, the second after it.
    fn is_awaited(&self) -> bool {
        self.0.lock().unwrap().polls >= 2
    }
}

/// Allows every ordinary token, each time the gate is opened.
struct Gated {
    gate: Gate,
    asked: usize,
    mask: Arc<Vec<u32>>,
}

impl Constraint for Gated {
    fn advance(&mut self, _: &[u32]) {
        self.asked += 1;
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        let mut state = self.gate.0.lock().unwrap();
        if state.ready < self.asked {
            state.polls += 1;
            state.waker = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(MaskStep::Allow(&self.mask)))
    }
}

fn gated(prompt: &[u32], max_tokens: u32) -> (Gate, SequenceRequest) {
    let gate = Gate::default();
    let constraint = Gated {
        gate: gate.clone(),
        asked: 0,
        mask: Arc::new(vec![u32::MAX; 2]),
    };
    let request = SequenceRequest {
        constraint: Some(Box::new(constraint)),
        ..greedy(prompt, max_tokens)
    };
    (gate, request)
}

/// Sequences that are computed as far as they can be without their masks.
fn blocked(engine: &EngineHandle, count: u32, max_tokens: u32) -> Vec<(Gate, TokenStream)> {
    let submit = |number| {
        let (gate, request) = gated(&[number, 9, 9], max_tokens);
        (gate, engine.submit(request).unwrap())
    };
    let waiting: Vec<_> = (0..count).map(submit).collect();
    until("all masks are awaited", || {
        waiting.iter().all(|(gate, _)| gate.is_awaited()) && engine.load().waiting == 0
    });
    waiting
}

#[test]
fn a_new_request_does_not_wait_for_the_masks_of_others() {
    let engine = engine(40, 200, config());
    let mut waiting = blocked(&engine, 3, 5);
    let before = engine.load().steps;
    // Its tokens come although no mask ever does, in as many steps as on an idle engine.
    let (tokens, end) = collect(&mut engine.submit(greedy(&[4], 20)).unwrap());
    assert_eq!(tokens, expected(&[4], 20));
    assert_eq!(end.unwrap().0, SequenceEnd::Length);
    assert_eq!(engine.load().steps - before, 20);
    for (_, stream) in &mut waiting {
        assert_eq!(stream.try_next(), None);
    }
    drop(waiting);
    until_empty(&engine);
}

#[test]
fn a_mask_that_is_ready_does_not_wait_for_one_that_is_not() {
    let engine = engine(40, 200, config());
    let mut waiting = blocked(&engine, 3, 5);
    // The last one's masks become ready, and never those of the sequences before it.
    let (gate, stream) = waiting.last_mut().unwrap();
    for _ in 0..5 {
        gate.open();
        assert!(matches!(next(stream), TokenEvent::Token(_)));
    }
    assert!(matches!(next(stream), TokenEvent::Finished { .. }));
    let (_, first) = &mut waiting[0];
    assert_eq!(first.try_next(), None);
    // Opened all at once, masks are used without anybody else's doing.
    let (gate, stream) = &mut waiting[1];
    (0..5).for_each(|_| gate.open());
    assert_eq!(collect(stream).0, expected(&[1, 9, 9], 5));
    drop(waiting);
    until_empty(&engine);
}

#[test]
fn sequences_that_wait_for_masks_lose_their_places_to_those_that_can_run() {
    let config = EngineConfig {
        max_sequences: 2,
        ..config()
    };
    let engine = engine(40, 200, config);
    let mut waiting = blocked(&engine, 2, 5);
    let (tokens, _) = collect(&mut engine.submit(greedy(&[4], 20)).unwrap());
    assert_eq!(tokens, expected(&[4], 20));
    assert_eq!(engine.load().preemptions, 1, "and no more than are needed");
    // Preempted or not, they go on where they were.
    for (number, (gate, stream)) in waiting.iter_mut().enumerate() {
        (0..5).for_each(|_| gate.open());
        assert_eq!(collect(stream).0, expected(&[number as u32, 9, 9], 5));
    }
    until_empty(&engine);
}

#[test]
fn sequences_that_wait_for_masks_lose_their_blocks_to_those_that_can_run() {
    // Four blocks: two for each of the sequences that wait.
    let engine = engine(4, 64, config());
    let submit = |number: u32| {
        let (gate, request) = gated(&[number; 20], 5);
        (gate, engine.submit(request).unwrap())
    };
    let mut waiting = [submit(0)];
    until("its mask is awaited", || waiting[0].0.is_awaited());
    let prompt = [4; 40];
    let (tokens, _) = collect(&mut engine.submit(greedy(&prompt, 20)).unwrap());
    assert_eq!(tokens, expected(&prompt, 20));
    let (gate, stream) = &mut waiting[0];
    (0..5).for_each(|_| gate.open());
    assert_eq!(collect(stream).0, expected(&[0; 20], 5));
    until_empty(&engine);
}

/// A cancelled sequence leaves the queue at the next step, and nothing is computed for it.
#[test]
fn a_sequence_that_is_cancelled_in_the_queue_costs_nothing() {
    let (permits, steps) = mpsc::channel();
    let config = EngineConfig {
        max_sequences: 1,
        ..config()
    };
    let model = support::FakeModel::new(40, 200).with_permits(steps);
    let engine = mortise_engine::Engine::start_with(Box::new(model), config).unwrap();
    let mut first = engine.submit(greedy(&[4], 5)).unwrap();
    permits.send(()).unwrap();
    assert!(matches!(next(&mut first), TokenEvent::Token(_)));
    let queued: Vec<_> = (0..3)
        .map(|number| engine.submit(greedy(&[number; 30], 5)).unwrap())
        .collect();
    assert_eq!(engine.load().waiting, 3);
    drop(queued);
    // The step in progress ends, and no more than one is needed to see that they are gone.
    permits.send(()).unwrap();
    assert!(matches!(next(&mut first), TokenEvent::Token(_)));
    until("the queue is empty", || engine.load().waiting == 0);
    let left = (0..3).map(|_| permits.send(()).unwrap());
    left.for_each(drop);
    collect(&mut first).1.unwrap();
    until_empty(&engine);
    let load = engine.load();
    assert_eq!((load.prefill_tokens, load.steps), (1, 5), "{load:?}");
}
