//! Constraints: masks that are late, finished, wrong or that panic.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mortise_engine::{
    Constraint, ConstraintError, FinishReason, MaskStep, SequenceError, SequenceRequest,
};
use support::{collect, config, engine, expected, greedy, until_empty};

/// Allows exactly the tokens of a script, one after the other, each mask some polls late.
struct Script {
    tokens: Vec<u32>,
    done: usize,
    /// Polls that find no mask, after each `advance`.
    late: usize,
    left: usize,
    mask: Vec<u32>,
    waits: Arc<AtomicUsize>,
    /// What happens instead of the mask after the script.
    at_end: AtEnd,
}

#[derive(Clone, Copy)]
enum AtEnd {
    Finish,
    Fail,
    AllowNothing,
    PanicInPoll,
    PanicInAdvance,
    PanicInWait,
}

impl Script {
    fn new(tokens: &[u32], late: usize, at_end: AtEnd) -> Self {
        Self {
            tokens: tokens.to_vec(),
            done: 0,
            late,
            left: usize::MAX,
            mask: vec![0; 2],
            waits: Arc::default(),
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
        if self.ended() && matches!(self.at_end, AtEnd::PanicInWait) {
            self.left = usize::MAX - 1;
        }
    }

    fn poll(&mut self) -> Option<Result<MaskStep<'_>, ConstraintError>> {
        assert_ne!(self.left, usize::MAX, "polled before the first advance");
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.mask.fill(0);
        if let Some(token) = self.tokens.get(self.done) {
            self.mask[*token as usize / 32] |= 1 << (token % 32);
            return Some(Ok(MaskStep::Allow(&self.mask)));
        }
        match self.at_end {
            AtEnd::Finish => Some(Ok(MaskStep::Finished)),
            AtEnd::Fail => Some(Err(ConstraintError {
                message: "plugin x broke".to_owned(),
            })),
            AtEnd::PanicInPoll => panic!("told to panic"),
            _ => Some(Ok(MaskStep::Allow(&self.mask))),
        }
    }

    fn wait(&mut self) {
        assert!(
            !(self.ended() && matches!(self.at_end, AtEnd::PanicInWait)),
            "told to panic"
        );
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.left = 0;
    }
}

fn request(script: Script) -> SequenceRequest {
    SequenceRequest {
        constraint: Some(Box::new(script)),
        ..greedy(&[1, 2, 3], 30)
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
        assert_eq!((reason, usage.completion_tokens), (FinishReason::Stop, 4));
    }
    until_empty(&engine);
}

#[test]
fn the_engine_waits_only_with_nothing_else_to_do() {
    let engine = engine(40, 400, config());
    let script = Script::new(&[9, 33, 8], 1000, AtEnd::Finish);
    let waits = Arc::clone(&script.waits);
    let alone = collect(&mut engine.submit(request(script)).unwrap());
    assert_eq!(waits.load(Ordering::Relaxed), 4);
    // While another sequence decodes, late masks neither stall it nor are waited for.
    let mut other = engine.submit(greedy(&[4], 300)).unwrap();
    let script = Script::new(&[9, 33, 8], 5, AtEnd::Finish);
    let waits = Arc::clone(&script.waits);
    let mut constrained = engine.submit(request(script)).unwrap();
    let reader = std::thread::spawn(move || collect(&mut constrained));
    let (tokens, _) = collect(&mut other);
    assert_eq!(tokens, expected(&[4], 300));
    assert_eq!(reader.join().unwrap(), alone);
    assert!(waits.load(Ordering::Relaxed) <= 4);
    until_empty(&engine);
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
        (AtEnd::PanicInWait, "the constraint panicked: told to panic"),
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
