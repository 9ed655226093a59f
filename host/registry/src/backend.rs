//! What the service asks of anything that generates tokens.

use mortise_engine::{SequenceRequest, SubmitError, TokenStream};

/// Generates tokens: the local engine, or a script in tests.
pub trait Backend: Send + Sync {
    /// Queue a sequence. Dropping the stream cancels it.
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError>;

    /// Tokens that a sequence may have, prompt and output together.
    fn context_length(&self) -> usize;

    /// What the backend is doing now.
    fn load(&self) -> Load;
}

/// A backend's gauges and counters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences queued.
    pub waiting: usize,
    /// KV cache blocks in use.
    pub kv_blocks_used: usize,
    /// KV cache blocks in all.
    pub kv_blocks_total: usize,
    /// Forward passes so far.
    pub steps: u64,
    /// Prompt tokens computed so far.
    pub prefill_tokens: u64,
    /// Tokens generated so far.
    pub decode_tokens: u64,
}
