//! The engine's view of a grammar: a mask over the vocabulary for each step.

/// Restricts the tokens of one sequence. The engine calls `advance` as soon as tokens are
/// committed and asks for the mask only after the next forward pass, so that an implementation
/// can compute it meanwhile on a thread of its own.
pub trait Constraint: Send {
    /// Take these tokens, which were committed in order, and begin computing what may follow. Called
    /// first with no tokens, then with one, or with all that were forced. Must not block.
    fn advance(&mut self, committed: &[u32]);

    /// The outcome of the last `advance`, or `None` while it is being computed. Must not block.
    fn poll(&mut self) -> Option<Result<MaskStep<'_>, ConstraintError>>;

    /// Block until `poll` has an outcome. An implementation bounds the time.
    fn wait(&mut self);
}

/// What a constraint says of the next token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskStep<'a> {
    /// Exactly these tokens may follow, one after the other, at least one. The constraint stands
    /// behind them already and hears of them in one `advance`, when all are committed.
    Forced(&'a [u32]),
    /// Bit `i % 32` of word `i / 32` is 1 if token `i` is allowed; `ceil(vocabulary / 32)` words.
    Allow(&'a [u32]),
    /// The text is complete: the sequence ends here as by a stop token.
    Finished,
}

/// Why a constraint failed. It ends its sequence and nothing else.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ConstraintError {
    /// For the caller, naming the plugin where one failed.
    pub message: String,
}
