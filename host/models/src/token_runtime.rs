//! The first kind of runtime: tokens in, tokens out.

use std::sync::Arc;

use mortise_engine::{
    BeamRequest, EngineLoad, SequenceRequest, SubmitError, TenantLoad, TokenStream,
};
use mortise_model::ModelSpec;

/// The shape of the model that adapters are checked against, or why the runtime takes none.
pub type AdapterBase = Result<Arc<ModelSpec>, &'static str>;

/// Generates tokens from tokens: the local engine, or a script. The service renders, encodes and
/// constrains in front of it, and detokenizes and parses behind it.
pub trait TokenRuntime: Send + Sync {
    /// Queue a sequence. Dropping the stream cancels it.
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError>;

    /// Queue a beam search: a stream for each result, the best one first. A runtime that has no
    /// probabilities to compare refuses it.
    fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        let size = request.beams.size;
        Err(SubmitError::Invalid(format!(
            "this model cannot search with {size} beams"
        )))
    }

    /// Tokens that a sequence may have, prompt and output together.
    fn context_length(&self) -> usize;

    /// Counters and gauges of the runtime.
    fn load(&self) -> EngineLoad;

    /// Counters and gauges of each engine of the runtime.
    fn loads(&self) -> Vec<EngineLoad> {
        vec![self.load()]
    }

    /// Figures of the runtime's tenants. Blocks.
    fn tenants(&self) -> Vec<TenantLoad> {
        Vec::new()
    }

    /// Forget the cached prefixes that no sequence uses. Returns how many blocks held them.
    fn clear_prefixes(&self) -> usize {
        0
    }

    /// Shapes that adapters are checked against.
    fn adapter_base(&self) -> AdapterBase {
        Err("its answers come from a script")
    }

    /// Engines that the runtime consists of.
    fn replicas(&self) -> usize {
        1
    }
}
