//! A sequence's constraint, and the tokens that it leaves no choice about.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::constraint::{Constraint, MaskStep};
use crate::event::SequenceError;
use crate::sequence::{Decision, panicked};

/// Says what may follow in one sequence. Without a constraint, anything may.
pub(crate) struct Guide {
    constraint: Option<Box<dyn Constraint>>,
    vocabulary: usize,
    /// Tokens that the constraint said must follow, the first `forced_done` of them committed.
    forced: Vec<u32>,
    forced_done: usize,
}

/// What may follow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Allowed<'a> {
    Any,
    /// The tokens whose bits are set.
    Masked(&'a [u32]),
    Only(u32),
}

impl Guide {
    pub(crate) fn new(constraint: Option<Box<dyn Constraint>>, vocabulary: usize) -> Self {
        Self {
            constraint,
            vocabulary,
            forced: Vec::new(),
            forced_done: 0,
        }
    }

    /// Whether anything may follow, always.
    pub(crate) fn is_free(&self) -> bool {
        self.constraint.is_none()
    }

    /// What may follow, or the decision if there is nothing to choose.
    pub(crate) fn allowed(&mut self) -> Result<Allowed<'_>, Decision> {
        if let Some(token) = self.forced.get(self.forced_done) {
            return Ok(Allowed::Only(*token));
        }
        let Some(constraint) = &mut self.constraint else {
            return Ok(Allowed::Any);
        };
        let fail = |message: String| Err(Decision::Fail(SequenceError::Constraint(message)));
        match constraint.poll() {
            None => Err(Decision::NotYet),
            Some(Err(error)) => fail(error.message),
            Some(Ok(MaskStep::Finished)) => Err(Decision::Complete),
            Some(Ok(MaskStep::Allow(mask))) => match only_token(mask, self.vocabulary) {
                Some(token) => Ok(Allowed::Only(token)),
                None => Ok(Allowed::Masked(mask)),
            },
            Some(Ok(MaskStep::Forced(tokens))) => {
                let Some(first) = tokens.first() else {
                    return fail("it forces tokens and names none".to_owned());
                };
                let vocabulary = self.vocabulary;
                if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
                    return fail(format!(
                        "it forces token {token}, and the model's tokens are below {vocabulary}"
                    ));
                }
                let first = *first;
                self.forced = tokens.to_vec();
                self.forced_done = 0;
                Ok(Allowed::Only(first))
            }
        }
    }

    /// Begin: the constraint computes what may come first.
    pub(crate) fn begin(&mut self) -> Result<(), SequenceError> {
        self.advance(&[])
    }

    /// A token was committed. The constraint hears of tokens that it forced when all of them are.
    pub(crate) fn committed(&mut self, token: u32) -> Result<(), SequenceError> {
        if self.forced.is_empty() {
            return self.advance(&[token]);
        }
        self.forced_done += 1;
        if self.forced_done < self.forced.len() {
            return Ok(());
        }
        let forced = std::mem::take(&mut self.forced);
        self.advance(&forced)
    }

    /// Block until the constraint has an outcome.
    pub(crate) fn wait(&mut self) -> Result<(), SequenceError> {
        self.fenced(|constraint| constraint.wait())
    }

    /// Drop the constraint: somebody else's destructor, and nobody is left to be told of its
    /// failure.
    pub(crate) fn end(&mut self) {
        let constraint = self.constraint.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(constraint)));
    }

    fn advance(&mut self, committed: &[u32]) -> Result<(), SequenceError> {
        self.fenced(|constraint| constraint.advance(committed))
    }

    fn fenced(&mut self, call: impl FnOnce(&mut dyn Constraint)) -> Result<(), SequenceError> {
        let Some(constraint) = &mut self.constraint else {
            return Ok(());
        };
        catch_unwind(AssertUnwindSafe(|| call(constraint.as_mut())))
            .map_err(|panic| panicked("the constraint", panic.as_ref()))
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        self.end();
    }
}

/// The token that a mask allows, if it allows exactly one of the vocabulary.
fn only_token(mask: &[u32], vocabulary: usize) -> Option<u32> {
    let mut only = None;
    for (index, word) in mask.iter().take(vocabulary.div_ceil(32)).enumerate() {
        let known = vocabulary - index * 32;
        let word = if known < 32 {
            word & ((1 << known) - 1)
        } else {
            *word
        };
        match (word.count_ones(), only) {
            (0, _) => {}
            (1, None) => only = Some(index as u32 * 32 + word.trailing_zeros()),
            _ => return None,
        }
    }
    only
}

#[cfg(test)]
mod tests {
    use super::only_token;

    #[test]
    fn a_mask_with_one_token_of_the_vocabulary_leaves_no_choice() {
        assert_eq!(only_token(&[0, 1 << 7], 64), Some(39));
        assert_eq!(only_token(&[1, 1 << 7], 64), None);
        assert_eq!(only_token(&[3, 0], 64), None);
        assert_eq!(only_token(&[0, 0], 64), None);
        // Bits beyond the vocabulary mean nothing.
        assert_eq!(only_token(&[1 << 31, 1 << 7], 39), Some(31));
        assert_eq!(only_token(&[0, 1 << 7], 39), None);
        assert_eq!(only_token(&[1 << 5, u32::MAX], 32), Some(5));
    }
}
