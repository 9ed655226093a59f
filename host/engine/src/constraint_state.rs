//! The constraint of one sequence, with the forced tokens that are not committed yet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::constraint::{Constraint, MaskStep};
use crate::decision::RowDecision;
use crate::event::SequenceError;
use crate::panics::panicked;

/// The state of constrained decoding in one sequence.
pub(crate) struct ConstraintState {
    /// `None` for an unconstrained sequence, and after the end.
    constraint: Option<Box<dyn Constraint>>,
    vocabulary: usize,
    /// Wakes the engine when a mask becomes ready.
    waker: Waker,
    /// Tokens that the constraint forces, the first `forced_done` of them committed.
    forced: Vec<u32>,
    forced_done: usize,
}

/// The tokens that may follow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Allowed<'a> {
    /// All tokens of the vocabulary.
    Any,
    /// The tokens whose bits are set.
    Masked(&'a Arc<Vec<u32>>),
    /// One forced token.
    Only(u32),
}

impl ConstraintState {
    pub(crate) fn new(
        constraint: Option<Box<dyn Constraint>>,
        vocabulary: usize,
        waker: Waker,
    ) -> Self {
        Self {
            constraint,
            vocabulary,
            waker,
            forced: Vec::new(),
            forced_done: 0,
        }
    }

    /// Whether the sequence is unconstrained.
    pub(crate) fn is_unconstrained(&self) -> bool {
        self.constraint.is_none()
    }

    /// The tokens that may follow, or the decision where none is to be sampled.
    pub(crate) fn allowed(&mut self) -> Result<Allowed<'_>, RowDecision> {
        if let Some(token) = self.forced.get(self.forced_done) {
            return Ok(Allowed::Only(*token));
        }
        let Some(constraint) = &mut self.constraint else {
            return Ok(Allowed::Any);
        };
        let fail = |message: String| Err(RowDecision::Fail(SequenceError::Constraint(message)));
        match constraint.poll(&self.waker) {
            Poll::Pending => Err(RowDecision::Pending),
            Poll::Ready(Err(error)) => fail(error.message),
            Poll::Ready(Ok(MaskStep::Finished)) => Err(RowDecision::Complete),
            Poll::Ready(Ok(MaskStep::Any)) => Ok(Allowed::Any),
            Poll::Ready(Ok(MaskStep::Allow(mask))) => Ok(Allowed::Masked(mask)),
            Poll::Ready(Ok(MaskStep::Forced(tokens))) => {
                let Some(first) = tokens.first() else {
                    return fail("it forces tokens and names none".to_owned());
                };
                let vocabulary = self.vocabulary;
                if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
                    return fail(format!(
                        "it forces token {token}, and the model's tokens are below {vocabulary}"
                    ));
                }
                let first = *first;
                self.forced = tokens.to_vec();
                self.forced_done = 0;
                Ok(Allowed::Only(first))
            }
        }
    }

    /// Start the computation of the first mask.
    pub(crate) fn begin(&mut self) -> Result<(), SequenceError> {
        self.advance(&[])
    }

    /// Record a committed token. The constraint advances over forced tokens in one call, once all of
    /// them are committed.
    pub(crate) fn committed(&mut self, token: u32) -> Result<(), SequenceError> {
        if self.forced.is_empty() {
            return self.advance(&[token]);
        }
        self.forced_done += 1;
        if self.forced_done < self.forced.len() {
            return Ok(());
        }
        let forced = std::mem::take(&mut self.forced);
        self.advance(&forced)
    }

    /// Drop the constraint. A panic of its destructor is discarded: the sequence has ended.
    pub(crate) fn end(&mut self) {
        let constraint = self.constraint.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(constraint)));
    }

    fn advance(&mut self, committed: &[u32]) -> Result<(), SequenceError> {
        let Some(constraint) = &mut self.constraint else {
            return Ok(());
        };
        catch_unwind(AssertUnwindSafe(|| constraint.advance(committed)))
            .map_err(|panic| panicked("the constraint", panic.as_ref()))
    }
}

impl Drop for ConstraintState {
    fn drop(&mut self) {
        self.end();
    }
}
