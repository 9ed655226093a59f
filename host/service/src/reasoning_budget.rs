//! Bounds on the tokens of a block of reasoning: when they are used up, the text that closes the block is forced, as a
//! constraint of the engine. The output parser says which text that is; a grammar that holds the answer stays in force.

use std::sync::Arc;
use std::task::{Poll, Waker};

use mortise_engine::{Constraint, ConstraintError, MaskStep};
use mortise_plugin::ReasoningMarks;
use mortise_tokenizer::{Detokenizer, TokenTable, Tokenizer};

use crate::error::ServiceError;
use crate::refusal::invalid;
use crate::request::{ReasoningBudget, RequestFields};

/// End of reasoning that all choices of a request share.
#[derive(Debug, Clone)]
pub(crate) struct ForcedEnd {
    marks: Arc<ReasoningMarks>,
    /// Tokens of the text that closes a block; at least one.
    close: Vec<u32>,
    budget: u32,
    /// The prompt has opened the block.
    opened: bool,
}

/// The end of reasoning that a request asks for of the model `name`, whose parser tells these marks.
///
/// # Errors
/// When the request needs it, and the model's parser does not tell how reasoning ends.
pub(crate) fn forced_end(
    name: &str,
    tokenizer: &Tokenizer,
    fields: &RequestFields,
    marks: Option<Arc<ReasoningMarks>>,
    opened: bool,
) -> Result<Option<ForcedEnd>, ServiceError> {
    let Some(budget) = &fields.reasoning_budget else {
        return Ok(None);
    };
    let refused = |why: &str| match budget.required {
        true => Err(refused(budget, name, why)),
        false => Ok(None),
    };
    if fields.beams.is_some() {
        return refused("answers that are searched for with beams cannot be held to one");
    }
    let Some(marks) = marks else {
        return refused("its output parser does not tell how reasoning ends");
    };
    match tokenizer.encode_special(&marks.close) {
        Ok(close) if !close.is_empty() => Ok(Some(ForcedEnd {
            close,
            budget: budget.tokens,
            opened,
            marks,
        })),
        _ => refused("its tokenizer cannot write the text that ends reasoning"),
    }
}

/// The refusal of a bound that cannot be kept.
fn refused(budget: &ReasoningBudget, model: &str, why: &str) -> ServiceError {
    let message = format!("the model `{model}` keeps no budget of reasoning: {why}");
    invalid(budget.field, message)
}

impl ForcedEnd {
    /// The constraint of one sequence, around the one of its grammar, if there is one.
    pub(crate) fn around(
        &self,
        inner: Option<Box<dyn Constraint>>,
        table: &Arc<TokenTable>,
        at_start: bool,
    ) -> Box<dyn Constraint> {
        let state = match self.opened {
            true => State::Open {
                left: self.budget,
                tail: String::new(),
            },
            false => State::Waiting(String::new()),
        };
        Box::new(EndedReasoning {
            inner,
            detokenizer: Detokenizer::new(Arc::clone(table), true, at_start),
            state,
            end: self.clone(),
        })
    }
}

/// Place of a sequence.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Before the block: the text so far is a beginning of the opening mark, or empty; the text is kept.
    Waiting(String),
    /// Within the block: tokens that it may still have, and the end of its text.
    Open { left: u32, tail: String },
    /// Closing the block: tokens of the closing mark that were forced so far.
    Closing(usize),
    /// Behind the block, or there is none.
    Over,
}

/// The constraint: free up to the budget, then the closing mark, then free again, as far as the inner one allows.
struct EndedReasoning {
    inner: Option<Box<dyn Constraint>>,
    detokenizer: Detokenizer,
    state: State,
    end: ForcedEnd,
}

impl EndedReasoning {
    fn committed(&mut self, token: u32) {
        let mut text = String::new();
        self.detokenizer.push(token, &mut text);
        let marks = Arc::clone(&self.end.marks);
        match &mut self.state {
            State::Over => {}
            State::Closing(done) => {
                let next = *done + 1;
                let as_forced = self.end.close.get(*done) == Some(&token);
                self.state = match as_forced && next < self.end.close.len() {
                    true => State::Closing(next),
                    false => State::Over,
                };
            }
            State::Waiting(begun) => {
                begun.push_str(&text);
                let beginning = begun.trim_start();
                if marks.open.is_empty() {
                    self.state = State::Over;
                } else if let Some(rest) = beginning.strip_prefix(&marks.open) {
                    let tail = rest.to_owned();
                    self.open(self.end.budget, tail);
                } else if marks.open.starts_with(beginning) {
                    *begun = beginning.to_owned();
                } else {
                    self.state = State::Over;
                }
            }
            State::Open { left, tail } => {
                let left = left.saturating_sub(1);
                let mut tail = std::mem::take(tail);
                tail.push_str(&text);
                self.open(left, tail);
            }
        }
    }

    /// Stay in the block, unless its text ends it.
    fn open(&mut self, left: u32, mut tail: String) {
        let close = &self.end.marks.close;
        if tail.contains(close.as_str()) {
            self.state = State::Over;
            return;
        }
        let mut from = (tail.len() + 1).saturating_sub(close.len());
        while !tail.is_char_boundary(from) {
            from -= 1;
        }
        tail.drain(..from);
        self.state = State::Open { left, tail };
    }
}

impl State {
    /// The token of the closing mark that is to follow, as a list of one, where one is. A character of which the block
    /// `holds` a part is not cut for it.
    fn due<'a>(&self, close: &'a [u32], holds: bool) -> Option<&'a [u32]> {
        match self {
            Self::Open { left: 0, .. } if !holds => close.get(..1),
            Self::Closing(done) => close.get(*done..*done + 1),
            _ => None,
        }
    }
}

impl Constraint for EndedReasoning {
    fn advance(&mut self, committed: &[u32]) {
        // A forced token is the only one of its step.
        let holds = self.detokenizer.held() > 0;
        let due = self.state.due(&self.end.close, holds);
        if due == Some(committed) && matches!(self.state, State::Open { .. }) {
            self.state = State::Closing(0);
        }
        for token in committed {
            self.committed(*token);
        }
        if let Some(inner) = &mut self.inner {
            inner.advance(committed);
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        let holds = self.detokenizer.held() > 0;
        let due = self.state.due(&self.end.close, holds);
        let inner = match &mut self.inner {
            Some(inner) => inner.poll(waker),
            None => Poll::Ready(Ok(MaskStep::Any)),
        };
        let Some(due) = due else {
            return inner;
        };
        match inner {
            Poll::Ready(Ok(MaskStep::Any)) => Poll::Ready(Ok(MaskStep::Forced(due))),
            Poll::Ready(Ok(MaskStep::Allow(mask))) if due.iter().all(|&id| is_set(mask, id)) => {
                Poll::Ready(Ok(MaskStep::Forced(due)))
            }
            // Where the grammar has no room for the mark, the block goes on until it has.
            other => other,
        }
    }
}

fn is_set(mask: &[u32], token: u32) -> bool {
    let word = mask.get(token as usize / 32).copied().unwrap_or(0);
    word >> (token % 32) & 1 == 1
}

#[cfg(test)]
mod tests;
