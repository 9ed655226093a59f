//! Who guesses what may follow.

use crate::config::Speculation;
use crate::draft::lookup;
use crate::draft_model::{DraftModel, Wanted};
use crate::forward::ForwardPass;
use crate::scheduler::SequenceId;

/// A way to guess. Whatever it guesses, the sampler decides.
pub(crate) enum Drafter {
    Off,
    PromptLookup,
    Model(Box<DraftModel>),
}

impl Drafter {
    /// `model` is the draft model, where that is the way; it computes at most `step_tokens` tokens
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

    /// For each of `wanted` a guess of at most as many tokens as it has room for.
    pub(crate) fn propose(&mut self, wanted: Vec<Wanted<'_>>) -> Vec<Vec<u32>> {
        match self {
            Self::Off => wanted.iter().map(|_| Vec::new()).collect(),
            Self::PromptLookup => {
                let guess = |wanted: &Wanted<'_>| lookup(wanted.tokens, wanted.room).to_vec();
                wanted.iter().map(guess).collect()
            }
            Self::Model(model) => model.propose(wanted),
        }
    }

    /// Forget the sequences that are gone.
    pub(crate) fn retain(&mut self, lives: impl Fn(SequenceId) -> bool) {
        if let Self::Model(model) = self {
            model.retain(lives);
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
