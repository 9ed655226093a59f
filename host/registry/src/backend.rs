//! What the service asks of anything that generates tokens.

use mortise_engine::{EngineLoad, SequenceRequest, SubmitError, TokenStream};

/// Generates tokens: the local engine, or a script in tests.
pub trait Backend: Send + Sync {
    /// Queue a sequence. Dropping the stream cancels it.
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError>;

    /// Tokens that a sequence may have, prompt and output together.
    fn context_length(&self) -> usize;

    /// What the backend is doing now.
    fn load(&self) -> EngineLoad;
}
