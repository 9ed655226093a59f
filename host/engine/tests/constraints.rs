//! Constraints: masks that are late, finished, wrong or that panic.

mod support;

use std::sync::Arc;
use std::task::{Poll, Waker};

use mortise_engine::{
    Constraint, ConstraintError, Engine, EngineConfig, EngineHandle, LogprobParams, MaskStep,
    SamplingParams, SequenceEnd, SequenceError, SequenceRequest, Speculation,
};
use support::{FakeModel, collect, config, engine, expected, greedy, until_empty};

/// Constraint that allows exactly the tokens of a script, one after the other. Each mask is `late` polls late.
struct Script {
    tokens: Vec<u32>,
    done: usize,
    /// Polls that find no mask, after each `advance`.
    late: usize,
    left: usize,
    mask: Arc<Vec<u32>>,
    /// Behaviour after the last token of the script, in place of a mask.
    at_end: AtEnd,
}

#[derive(Clone, Copy)]
enum AtEnd {
    Finish,
    Fail,
    AllowNothing,
    PanicInPoll,
    PanicInAdvance,
}

impl Script {
    fn new(tokens: &[u32], late: usize, at_end: AtEnd) -> Self {
        Self {
            tokens: tokens.to_vec(),
            done: 0,
            late,
            left: usize::MAX,
            mask: Arc::new(vec![0; 2]),
            at_end,
        }
    }

    fn ended(&self) -> bool {
        self.done == self.tokens.len()
    }
}

impl Constraint for Script {
    fn advance(&mut self, committed: &[u32]) {
        match committed {
            [] => assert_eq!(
                self.left,
                usize::MAX,
                "the first call, and only the first, is empty"
            ),
            [token] => {
                assert_eq!(
                    *token, self.tokens[self.done],
                    "a token that was not allowed"
                );
                self.done += 1;
            }
            more => panic!("committed {more:?} at once"),
        }
        assert!(
            !(self.ended() && matches!(self.at_end, AtEnd::PanicInAdvance)),
            "told to panic"
        );
        self.left = self.late;
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        assert_ne!(self.left, usize::MAX, "polled before the first advance");
        if self.left > 0 {
            self.left -= 1;
            waker.wake_by_ref();
            return Poll::Pending;
        }
        let mut mask = vec![0; 2];
        if let Some(token) = self.tokens.get(self.done) {
            mask[*token as usize / 32] |= 1 << (token % 32);
            self.mask = Arc::new(mask);
            return Poll::Ready(Ok(MaskStep::Allow(&self.mask)));
        }
        self.mask = Arc::new(mask);
        Poll::Ready(match self.at_end {
            AtEnd::Finish => Ok(MaskStep::Finished),
            AtEnd::Fail => Err(ConstraintError {
                message: "plugin x broke".to_owned(),
            }),
            AtEnd::PanicInPoll => panic!("told to panic"),
            _ => Ok(MaskStep::Allow(&self.mask)),
        })
    }
}

fn request(script: Script) -> SequenceRequest {
    SequenceRequest {
        constraint: Some(Box::new(script)),
        ..greedy(&[1, 2, 3], 30)
    }
}

/// Speculation under a constraint: masks in time, late, and with tokens that the model would not choose.
#[test]
fn speculation_under_a_constraint_changes_no_token() {
    let prompt = [1, 2, 3];
    let mut likely = expected(&prompt, 20);
    let mut forced = likely.clone();
    forced[7] = (forced[7] + 1) % 40;
    likely.truncate(20);
    for (tokens, late) in [(&likely, 0), (&likely, 1), (&forced, 0), (&forced, 3)] {
        let config = EngineConfig {
            speculation: Speculation::DraftModel { draft_tokens: 4 },
            ..config()
        };
        let model = || Box::new(FakeModel::new(40, 400));
        let engine = Engine::start_drafted_with(model(), model(), config).unwrap();
        let script = Script::new(tokens, late, AtEnd::Finish);
        // Log-probabilities need logits for every token, even where there is no choice.
        let request = SequenceRequest {
            logprobs: Some(LogprobParams { top: 0 }),
            ..request(script)
        };
        let (found, end) = collect(&mut engine.submit(request).unwrap());
        assert_eq!(
            (&found, end.unwrap().0),
            (tokens, SequenceEnd::Stop),
            "{late} late"
        );
        until_empty(&engine);
        let load = engine.load();
        // Where the first mask is late already, the step's draft tokens are lost.
        assert_eq!(load.accepted_tokens > 0, late == 0, "{load:?}");
        if late == 0 && tokens == &likely {
            assert!(load.steps < 10, "{load:?}");
        }
    }
}

#[test]
fn masks_are_obeyed_and_the_end_is_a_stop() {
    let engine = engine(40, 200, config());
    for late in [0, 1, 5] {
        let script = Script::new(&[9, 33, 9, 46], late, AtEnd::Finish);
        let (tokens, end) = collect(&mut engine.submit(request(script)).unwrap());
        assert_eq!(tokens, [9, 33, 9, 46]);
        let (reason, usage) = end.unwrap();
        assert_eq!((reason, usage.completion_tokens), (SequenceEnd::Stop, 4));
    }
    until_empty(&engine);
}

#[test]
fn late_masks_and_other_sequences_do_not_change_each_other() {
    let engine = engine(40, 400, config());
    let script = || Script::new(&[9, 33, 8], 1000, AtEnd::Finish);
    let alone = collect(&mut engine.submit(request(script())).unwrap());
    assert_eq!(alone.0, [9, 33, 8]);
    let mut other = engine.submit(greedy(&[4], 300)).unwrap();
    let mut constrained = engine.submit(request(script())).unwrap();
    let reader = std::thread::spawn(move || collect(&mut constrained));
    let (tokens, _) = collect(&mut other);
    assert_eq!(tokens, expected(&[4], 300));
    assert_eq!(reader.join().unwrap(), alone);
    until_empty(&engine);
}

/// Constraint that allows one token at every fifth to eighth place, and any ordinary token elsewhere.
struct Pattern {
    done: usize,
    way: Way,
    mask: Arc<Vec<u32>>,
    forced: Vec<u32>,
}

/// Form in which a pattern tells the token that must follow.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Masks of one token.
    Masks,
    /// Lists of forced tokens.
    Lists,
}

impl Pattern {
    /// Token that the pattern forces at a place of the output, if any.
    fn must(place: usize) -> Option<u32> {
        (place % 8 >= 4).then_some((place * 7 % 40) as u32)
    }
}

impl Constraint for Pattern {
    fn advance(&mut self, committed: &[u32]) {
        for token in committed {
            assert!(Self::must(self.done).is_none_or(|must| must == *token));
            self.done += 1;
        }
        assert!(self.forced.is_empty() || self.forced == committed);
        self.forced.clear();
    }

    fn poll(&mut self, _: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        let Some(token) = Self::must(self.done) else {
            self.mask = Arc::new(vec![u32::MAX, 0xFF]);
            return Poll::Ready(Ok(MaskStep::Allow(&self.mask)));
        };
        if self.way == Way::Lists {
            self.forced = (self.done..).map_while(Self::must).collect();
            return Poll::Ready(Ok(MaskStep::Forced(&self.forced)));
        }
        let mut mask = vec![0; 2];
        mask[token as usize / 32] |= 1 << (token % 32);
        self.mask = Arc::new(mask);
        Poll::Ready(Ok(MaskStep::Allow(&self.mask)))
    }
}

#[test]
fn forced_tokens_cost_no_steps_and_change_nothing() {
    let request = |way, logprobs| SequenceRequest {
        sampling: SamplingParams {
            seed: Some(3),
            ..SamplingParams::default()
        },
        logprobs,
        constraint: Some(Box::new(Pattern {
            done: 0,
            way,
            mask: Arc::default(),
            forced: Vec::new(),
        })),
        ..greedy(&[1, 2, 3], 61)
    };
    // With log-probabilities, every token is sampled from a row of logits.
    let engine_of = || engine(40, 200, config());
    let stepwise = engine_of();
    let wanted = Some(LogprobParams { top: 0 });
    let run = |engine: &EngineHandle, request| collect(&mut engine.submit(request).unwrap());
    let expected = run(&stepwise, request(Way::Masks, wanted));
    assert_eq!(run(&stepwise, request(Way::Lists, wanted)), expected);
    assert_eq!(stepwise.load().steps, 2 * 61);
    // A mask of one token is sampled like any other.
    assert_eq!(run(&engine_of(), request(Way::Masks, None)), expected);
    let engine = engine_of();
    assert_eq!(run(&engine, request(Way::Lists, None)), expected);
    until_empty(&engine);
    let load = engine.load();
    // Of eight tokens, four are forced: the step that computes them is one.
    assert!(load.steps <= 61 - 7 * 4 + 1, "{load:?}");
    assert!(load.forced_tokens >= 7 * 3, "{load:?}");
    assert_eq!(load.decode_tokens, 61);
}

#[test]
fn a_constraint_that_forces_nonsense_ends_its_own_sequence_only() {
    struct Nonsense(Vec<u32>);
    impl Constraint for Nonsense {
        fn advance(&mut self, _: &[u32]) {}
        fn poll(&mut self, _: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
            Poll::Ready(Ok(MaskStep::Forced(&self.0)))
        }
    }
    let engine = engine(40, 200, config());
    for (tokens, message) in [(vec![], "names none"), (vec![3, 50], "token 50")] {
        let mut other = engine.submit(greedy(&[4], 20)).unwrap();
        let request = SequenceRequest {
            constraint: Some(Box::new(Nonsense(tokens))),
            ..greedy(&[1, 2, 3], 30)
        };
        let (none, end) = collect(&mut engine.submit(request).unwrap());
        assert!(none.is_empty());
        let error = end.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(collect(&mut other).0, expected(&[4], 20));
    }
    // One that forces for ever is bounded by the sequence's own limits.
    let request = SequenceRequest {
        constraint: Some(Box::new(Nonsense(vec![7, 8, 9]))),
        ..greedy(&[1, 2, 3], 100)
    };
    let (tokens, _) = collect(&mut engine.submit(request).unwrap());
    assert_eq!(tokens, [7, 8, 9].repeat(34)[..100]);
}

#[test]
fn a_broken_constraint_ends_its_own_sequence_only() {
    let engine = engine(40, 200, config());
    for (at_end, message) in [
        (AtEnd::Fail, "constraint failed: plugin x broke"),
        (
            AtEnd::AllowNothing,
            "constraint failed: the constraint allows no token at all",
        ),
        (AtEnd::PanicInPoll, "panicked: told to panic"),
        (
            AtEnd::PanicInAdvance,
            "the constraint panicked: told to panic",
        ),
    ] {
        for late in [0, 3] {
            let mut other = engine.submit(greedy(&[4], 20)).unwrap();
            let script = Script::new(&[9, 33], late, at_end);
            let (tokens, end) = collect(&mut engine.submit(request(script)).unwrap());
            assert_eq!(tokens, [9, 33]);
            let error = end.unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            let by_constraint = matches!(error, SequenceError::Constraint(_));
            assert_eq!(
                by_constraint,
                matches!(at_end, AtEnd::Fail | AtEnd::AllowNothing)
            );
            assert_eq!(collect(&mut other).0, expected(&[4], 20));
        }
    }
    until_empty(&engine);
}
