//! What the service asks of anything that generates tokens.

use mortise_engine::{BeamRequest, EngineLoad, SequenceRequest, SubmitError, TokenStream};

/// Generates tokens: the local engine, or a script in tests.
pub trait Backend: Send + Sync {
    /// Queue a sequence. Dropping the stream cancels it.
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError>;

    /// Queue a beam search: a stream for each result, the best one first. A backend that has no
    /// probabilities to compare refuses it.
    fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        let size = request.beams.size;
        Err(SubmitError::Invalid(format!(
            "this model cannot search with {size} beams"
        )))
    }

    /// Tokens that a sequence may have, prompt and output together.
    fn context_length(&self) -> usize;

    /// What the backend is doing now.
    fn load(&self) -> EngineLoad;
}
