//! The local engine as a token runtime.

use mortise_engine::{
    BeamRequest, EngineHandle, EngineLoad, SequenceRequest, SubmitError, TenantLoad, TokenStream,
};

use crate::token_runtime::TokenRuntime;

impl TokenRuntime for EngineHandle {
    fn submit(&self, request: SequenceRequest) -> Result<TokenStream, SubmitError> {
        EngineHandle::submit(self, request)
    }

    fn submit_beams(&self, request: BeamRequest) -> Result<Vec<TokenStream>, SubmitError> {
        EngineHandle::submit_beams(self, request)
    }

    fn context_length(&self) -> usize {
        EngineHandle::context_length(self)
    }

    fn load(&self) -> EngineLoad {
        EngineHandle::load(self)
    }

    fn tenants(&self) -> Vec<TenantLoad> {
        EngineHandle::tenants(self)
    }
}
