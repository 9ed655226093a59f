//! The local engine as a backend.

use mortise_engine::{EngineHandle, SequenceRequest, SubmitError, TokenStream};

use crate::backend::{Backend, Load};

impl Backend for EngineHandle {
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        EngineHandle::submit(self, request)
    }

    fn context_length(&self) -> usize {
        EngineHandle::context_length(self)
    }

    fn load(&self) -> Load {
        let load = EngineHandle::load(self);
        Load {
            running: load.running,
            waiting: load.waiting,
            kv_blocks_used: load.kv_blocks_used,
            kv_blocks_total: load.kv_blocks_total,
            steps: load.steps,
            prefill_tokens: load.prefill_tokens,
            decode_tokens: load.decode_tokens,
        }
    }
}
