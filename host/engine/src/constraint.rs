//! Constrained decoding: the interface of a grammar that masks the vocabulary at each position.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::waker::thread_waker;

/// Restricts the tokens of one sequence. The engine calls `advance` as soon as tokens are committed and
/// polls for the mask after the next forward pass, so that an implementation can compute the mask
/// meanwhile on another thread. No method may block: they run on the engine's thread.
pub trait Constraint: Send {
    /// Take tokens that were committed, in order, and begin to compute the next mask. The first call
    /// has no tokens; each later call has one, or all tokens that were forced.
    fn advance(&mut self, committed: &[u32]);

    /// The outcome of the last `advance`. Polling again without an `advance` between gives the same
    /// outcome. An implementation that returns `Pending` wakes `waker` when the outcome is ready, and
    /// bounds the time until then.
    fn poll(&mut self, waker: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>>;
}

/// The tokens that a constraint allows next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskStep<'a> {
    /// Exactly these tokens follow, one after the other, at least one. The constraint's own state is
    /// behind them already; one `advance` names all of them once they are committed. A constraint whose
    /// mask would allow exactly one token says so here: forced tokens cost no step of their own.
    Forced(&'a [u32]),
    /// Any token may follow.
    Any,
    /// Bit `i % 32` of word `i / 32` is 1 if token `i` is allowed; `ceil(vocabulary / 32)` words. The
    /// sampler shares the mask with the constraint instead of copying it.
    Allow(&'a Arc<Vec<u32>>),
    /// The text is complete: the sequence ends here as by a stop token.
    Finished,
}

/// The failure of a constraint. It ends its sequence and no other.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ConstraintError {
    /// Message for the caller, naming the plugin where one failed.
    pub message: String,
}

/// Block the current thread until the constraint has an outcome. For callers that run one sequence on a
/// thread of its own; the engine never calls it.
pub fn blocking_poll(constraint: &mut dyn Constraint) -> Result<MaskStep<'_>, ConstraintError> {
    let waker = thread_waker(std::thread::current());
    while constraint.poll(&waker).is_pending() {
        std::thread::park();
    }
    match constraint.poll(&waker) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(ConstraintError {
            message: "the constraint withdrew the outcome of an advance".to_owned(),
        }),
    }
}
