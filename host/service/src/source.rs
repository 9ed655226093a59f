//! Source of the events of a choice: a runtime, or an answer that was made before.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_models::OutputStream;

use crate::event::Event;
use crate::response_cache::Recorded;
use crate::tally::{RoundKind, TokenTally};
use crate::tool_loop::ToolLoop;

/// Source of events.
pub(crate) enum ChoiceSource {
    /// One choice while it is generated.
    Live(Box<ToolLoop>),
    /// All choices of a prompt, made before.
    Replayed(VecDeque<Event>),
}

impl ChoiceSource {
    /// Events of a runtime that is elsewhere, before the first is read.
    pub(crate) fn elsewhere(&mut self) -> Option<&mut OutputStream> {
        match self {
            Self::Live(choice) => choice.elsewhere(),
            Self::Replayed(_) => None,
        }
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match self {
            Self::Live(choice) => choice.next().await,
            Self::Replayed(events) => events.pop_front(),
        }
    }
}

/// An answer that was made before, with choices that are numbered from `first`, and what it took: its prompt was
/// found whole.
pub(crate) fn replayed(answer: &Recorded, first: u32) -> (Vec<ChoiceSource>, Vec<Arc<TokenTally>>) {
    let usage = answer.usage;
    let tally = |_| {
        let tally = TokenTally::default();
        tally.add_prompt(RoundKind::First, usage.prompt_tokens);
        tally.add_cached(RoundKind::First, usage.prompt_tokens);
        Arc::new(tally)
    };
    let tallies: Vec<Arc<TokenTally>> = (0..answer.choices()).map(tally).collect();
    if let Some(tally) = tallies.first() {
        tally.add_completion(usage.completion_tokens);
        tally.add_reasoning(usage.reasoning_tokens);
    }
    let events = answer.events(first).collect();
    (vec![ChoiceSource::Replayed(events)], tallies)
}
