//! The source of draft tokens.

use crate::config::Speculation;
use crate::draft_model::{DraftModel, DraftRequest};
use crate::forward::ForwardPass;
use crate::prompt_lookup::lookup;
use crate::scheduler::SequenceId;

/// A source of draft tokens. The sampler decides which are accepted.
pub(crate) enum Speculator {
    Off,
    PromptLookup,
    Model(Box<DraftModel>),
}

impl Speculator {
    /// `model` is the draft model, if `speculation` asks for one; it computes at most `step_tokens` tokens
    /// at once.
    pub(crate) fn new(
        speculation: Speculation,
        model: Option<Box<dyn ForwardPass>>,
        step_tokens: usize,
    ) -> Self {
        match (speculation, model) {
            (Speculation::PromptLookup { .. }, _) => Self::PromptLookup,
            (Speculation::DraftModel { .. }, Some(model)) => {
                Self::Model(Box::new(DraftModel::new(model, step_tokens)))
            }
            (Speculation::Off | Speculation::DraftModel { .. }, _) => Self::Off,
        }
    }

    /// A draft for each request, of at most as many tokens as it has room for.
    pub(crate) fn propose(&mut self, requests: Vec<DraftRequest<'_>>) -> Vec<Vec<u32>> {
        match self {
            Self::Off => requests.iter().map(|_| Vec::new()).collect(),
            Self::PromptLookup => {
                let draft =
                    |request: &DraftRequest<'_>| lookup(request.tokens, request.room).to_vec();
                requests.iter().map(draft).collect()
            }
            Self::Model(model) => model.propose(requests),
        }
    }

    /// Drop sequences that have ended.
    pub(crate) fn retain(&mut self, lives: impl Fn(SequenceId) -> bool) {
        if let Self::Model(model) = self {
            model.retain(lives);
        }
    }

    /// Forget all sequences and what is cached of them.
    pub(crate) fn begin_anew(&mut self) {
        if let Self::Model(model) = self {
            model.begin_anew();
        }
    }

    /// Forward passes of a draft model so far.
    pub(crate) fn steps(&self) -> u64 {
        match self {
            Self::Off | Self::PromptLookup => 0,
            Self::Model(model) => model.steps(),
        }
    }
}
