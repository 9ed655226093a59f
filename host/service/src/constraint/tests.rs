use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use mortise_engine::{Constraint, MaskStep, blocking_poll};
use mortise_plugin::{Fault, Kind, MatchStatus, MatchStep, PluginError};
use tokio::sync::oneshot;

use super::MaskThreads;
use crate::plugins::{MatchTokens, PluginFuture};

/// No deadline that a test meets.
const PATIENCE: Duration = Duration::from_secs(60);

/// Allows the number of tokens taken so far and token 32, and is finished after `limit`.
struct Counting {
    taken: u32,
    limit: u32,
    /// Waited for before the first answer.
    gate: Option<oneshot::Receiver<()>>,
    fault_at: Option<u32>,
    /// There is no choice while fewer tokens are taken than this: 32 is not allowed.
    strict: u32,
}

impl Counting {
    async fn write(&mut self, mask: &mut [u32]) -> Result<MatchStatus, PluginError> {
        if let Some(gate) = self.gate.take() {
            gate.await.expect("the gate is opened");
        }
        if self.fault_at == Some(self.taken) {
            return Err(PluginError {
                plugin: "counting".into(),
                version: "1.0.0".into(),
                kind: Kind::Grammar,
                function: "grammar.matcher.advance",
                request_id: "request-1".into(),
                fault: Fault::Stack,
                printed: Box::default(),
            });
        }
        assert!(mask.iter().all(|&word| word == 0), "masks come empty");
        mask[0] = 1 << self.taken;
        mask[1] = u32::from(self.taken >= self.strict);
        Ok(if self.taken == self.limit {
            MatchStatus::Finished
        } else {
            MatchStatus::Active
        })
    }
}

impl MatchTokens for Counting {
    fn mask<'a>(
        &'a mut self,
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStatus, PluginError>> {
        Box::pin(self.write(mask))
    }

    fn advance<'a>(
        &'a mut self,
        tokens: &'a [u32],
        mask: &'a mut Vec<u32>,
    ) -> PluginFuture<'a, Result<MatchStep, PluginError>> {
        Box::pin(async move {
            self.taken += tokens.len() as u32;
            let status = self.write(mask).await?;
            Ok(MatchStep {
                status,
                forced: Vec::new(),
            })
        })
    }
}

fn counting(limit: u32) -> Counting {
    Counting {
        taken: 0,
        limit,
        gate: None,
        fault_at: None,
        strict: 0,
    }
}

/// One that answers once its gate is opened.
fn gated() -> (oneshot::Sender<()>, Counting) {
    let (open, gate) = oneshot::channel();
    let gate = Some(gate);
    (
        open,
        Counting {
            gate,
            ..counting(9)
        },
    )
}

fn constrain(matcher: Counting, deadline: Duration) -> (MaskThreads, Box<dyn Constraint>) {
    let threads = MaskThreads::start(1, deadline).expect("threads");
    let (constraint, _) = threads.constrain(Box::new(matcher), 2);
    (threads, constraint)
}

/// Advance, wait, and say what was allowed: `None` if the text is complete.
fn step(constraint: &mut dyn Constraint, committed: &[u32]) -> Result<Option<Vec<u32>>, String> {
    constraint.advance(committed);
    match blocking_poll(constraint) {
        Ok(MaskStep::Allow(mask)) => Ok(Some(mask.to_vec())),
        Ok(MaskStep::Finished) => Ok(None),
        Ok(MaskStep::Any) => Err("any token".to_owned()),
        Ok(MaskStep::Forced(tokens)) => Err(format!("forced {tokens:?}")),
        Err(error) => Err(error.message),
    }
}

/// The mask of the last advance.
fn allowed(constraint: &mut dyn Constraint) -> Vec<u32> {
    match blocking_poll(constraint) {
        Ok(MaskStep::Allow(mask)) => mask.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Counts how often it is called.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountingWaker {
    fn until(&self, calls: usize) {
        let begun = Instant::now();
        while self.0.load(Ordering::SeqCst) < calls {
            assert!(begun.elapsed() < PATIENCE, "it is not called");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn a_mask_that_becomes_ready_wakes_whoever_polled_last() {
    let (open, matcher) = gated();
    let (_threads, mut constraint) = constrain(matcher, PATIENCE);
    let (first, last) = (
        Arc::<CountingWaker>::default(),
        Arc::<CountingWaker>::default(),
    );
    constraint.advance(&[]);
    for waker in [&first, &last] {
        let waker = Waker::from(Arc::clone(waker));
        assert!(constraint.poll(&waker).is_pending());
    }
    open.send(()).expect("somebody waits");
    last.until(1);
    let outcome = constraint.poll(Waker::noop());
    assert!(matches!(outcome, Poll::Ready(Ok(MaskStep::Allow(_)))));
    assert_eq!(first.0.load(Ordering::SeqCst), 0);
}

#[test]
fn a_worker_that_ends_without_an_outcome_wakes_the_engine() {
    let (_closed, matcher) = gated();
    let (threads, mut constraint) = constrain(matcher, PATIENCE);
    let calls = Arc::<CountingWaker>::default();
    constraint.advance(&[]);
    let waker = Waker::from(Arc::clone(&calls));
    assert!(constraint.poll(&waker).is_pending());
    drop(threads);
    calls.until(1);
    assert!(matches!(constraint.poll(&waker), Poll::Ready(Err(_))));
}

#[test]
fn masks_follow_the_committed_tokens() {
    let (_threads, mut constraint) = constrain(counting(4), PATIENCE);
    assert_eq!(step(&mut *constraint, &[]), Ok(Some(vec![1, 1])));
    assert_eq!(step(&mut *constraint, &[9]), Ok(Some(vec![2, 1])));
    assert_eq!(step(&mut *constraint, &[9, 9]), Ok(Some(vec![8, 1])));
    assert_eq!(step(&mut *constraint, &[9]), Ok(None));
}

#[test]
fn only_the_last_advance_counts() {
    let (_threads, mut constraint) = constrain(counting(9), PATIENCE);
    constraint.advance(&[]);
    constraint.advance(&[1]);
    assert_eq!(step(&mut *constraint, &[1]), Ok(Some(vec![4, 1])));
}

#[test]
fn advancing_does_not_wait_for_the_plugin() {
    let (open, matcher) = gated();
    let (_threads, mut constraint) = constrain(matcher, PATIENCE);
    constraint.advance(&[]);
    assert!(constraint.poll(Waker::noop()).is_pending());
    open.send(()).expect("somebody waits");
    assert_eq!(allowed(&mut *constraint), [1, 1]);
}

#[test]
fn tokens_without_a_choice_come_at_once() {
    let matcher = Counting {
        strict: 3,
        ..counting(9)
    };
    let (_threads, mut constraint) = constrain(matcher, PATIENCE);
    let forced = step(&mut *constraint, &[]).expect_err("no mask yet");
    assert_eq!(forced, "forced [0, 1, 2]");
    // When they are committed the mask after them is there.
    constraint.advance(&[0, 1, 2]);
    assert!(constraint.poll(Waker::noop()).is_ready(), "no wait");
    assert_eq!(allowed(&mut *constraint), [8, 1]);
    assert_eq!(step(&mut *constraint, &[3]), Ok(Some(vec![16, 1])));
}

#[test]
fn a_fault_behind_forced_tokens_comes_after_them() {
    let matcher = Counting {
        strict: 3,
        fault_at: Some(2),
        ..counting(9)
    };
    let (_threads, mut constraint) = constrain(matcher, PATIENCE);
    let forced = step(&mut *constraint, &[]).expect_err("no mask yet");
    assert_eq!(forced, "forced [0, 1]");
    constraint.advance(&[0, 1]);
    let outcome = constraint.poll(Waker::noop());
    assert!(matches!(outcome, Poll::Ready(Err(_))));
}

#[test]
fn a_fault_names_the_plugin_and_stays() {
    let matcher = Counting {
        fault_at: Some(1),
        ..counting(9)
    };
    let (_threads, mut constraint) = constrain(matcher, PATIENCE);
    assert_eq!(step(&mut *constraint, &[]), Ok(Some(vec![1, 1])));
    for _ in 0..2 {
        let error = step(&mut *constraint, &[1]).expect_err("a fault");
        assert!(error.contains("plugin `counting` 1.0.0"), "{error}");
    }
}

#[test]
fn a_plugin_that_does_not_answer_fails_the_sequence_in_time() {
    let (_closed, matcher) = gated();
    let (_threads, mut constraint) = constrain(matcher, Duration::from_millis(30));
    let error = step(&mut *constraint, &[]).expect_err("too late");
    assert!(error.contains("within 30 ms"), "{error}");
}

#[test]
fn stopped_threads_fail_the_sequence_at_once() {
    let (_closed, matcher) = gated();
    let (threads, mut constraint) = constrain(matcher, PATIENCE);
    constraint.advance(&[]);
    drop(threads);
    assert!(blocking_poll(&mut *constraint).is_err());
}

#[tokio::test]
async fn threads_may_be_dropped_in_a_task() {
    let (threads, constraint) = constrain(counting(1), PATIENCE);
    drop(constraint);
    drop(threads);
}
