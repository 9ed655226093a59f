use std::sync::Arc;
use std::task::{Poll, Waker};

use mortise_engine::{Constraint, ConstraintError, MaskStep};
use mortise_plugin::ReasoningMarks;
use mortise_test_tokenizers::byte_level;
use mortise_tokenizer::Tokenizer;

use super::ForcedEnd;
use crate::fakes::load;

fn end(tokenizer: &Tokenizer, budget: u32, opened: bool) -> ForcedEnd {
    let marks = ReasoningMarks {
        open: "<think>".to_owned(),
        close: "</think>".to_owned(),
    };
    ForcedEnd {
        close: tokenizer.encode_special(&marks.close).unwrap(),
        marks: Arc::new(marks),
        budget,
        opened,
    }
}

/// Tokens that a model which wants to write `says` writes under a constraint.
fn written(constraint: &mut dyn Constraint, says: &[u32]) -> Vec<u32> {
    let mut all = Vec::new();
    let mut said = says.iter();
    let mut committed = Vec::new();
    loop {
        constraint.advance(&committed);
        let next = match constraint.poll(Waker::noop()) {
            Poll::Ready(Ok(MaskStep::Forced(tokens))) => Some(tokens.to_vec()),
            Poll::Ready(Ok(MaskStep::Any)) => said.next().map(|token| vec![*token]),
            Poll::Ready(Ok(MaskStep::Allow(mask))) => {
                let fits = |token: &&u32| mask[**token as usize / 32] >> (**token % 32) & 1 == 1;
                said.find(fits).map(|token| vec![*token])
            }
            other => panic!("{other:?}"),
        };
        let Some(next) = next else {
            return all;
        };
        all.extend(&next);
        committed = next;
    }
}

fn text(budget: u32, opened: bool, says: &str) -> String {
    let tokenizer = load(&byte_level());
    let says = tokenizer.encode_plain(says).unwrap();
    let end = end(&tokenizer, budget, opened);
    let mut constraint = end.around(None, tokenizer.table(), true);
    tokenizer.decode(&written(constraint.as_mut(), &says), true)
}

#[test]
fn reasoning_that_has_used_up_its_tokens_is_closed() {
    let tokenizer = load(&byte_level());
    let free = "<think>one two three four five six";
    let all = tokenizer.encode_plain(free).unwrap().len();
    let opening = tokenizer.encode_plain("<think>").unwrap().len();
    for budget in 0..6 {
        let found = text(budget, false, free);
        let closed = found.find("</think>").unwrap();
        let before = tokenizer.encode_plain(&found[..closed]).unwrap().len();
        assert_eq!(before, opening + budget as usize, "{found}");
        assert!(found.ends_with("six"), "{found}");
    }
    assert_eq!(text(all as u32, false, free), free);
    assert!(text(2, true, "one two three four five six").contains("</think>"));
}

#[test]
fn what_is_no_reasoning_has_no_budget() {
    for says in [
        "one two three four <think> five six",
        "<thinking is fun, and so on>",
        "",
    ] {
        assert_eq!(text(3, false, says), says);
    }
    let closed = "<think>one</think> two three four five six seven";
    assert_eq!(text(20, false, closed), closed);
    let closed = "one</think> two three four five six seven";
    assert_eq!(text(20, true, closed), closed);
}

#[test]
fn characters_are_not_cut_in_two() {
    let says = "<think>日本語日本語日本語";
    for budget in 0..12 {
        let found = text(budget, false, says);
        assert!(!found.contains('\u{FFFD}'), "{budget}: {found}");
    }
}

/// Allows all tokens but one, and counts what was committed.
struct But {
    mask: Arc<Vec<u32>>,
    committed: usize,
}

impl Constraint for But {
    fn advance(&mut self, committed: &[u32]) {
        self.committed += committed.len();
    }

    fn poll(&mut self, _: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        Poll::Ready(Ok(MaskStep::Allow(&self.mask)))
    }
}

#[test]
fn a_grammar_stays_in_force() {
    let tokenizer = load(&byte_level());
    let end = end(&tokenizer, 2, false);
    let says = tokenizer.encode_plain("<think>one two three").unwrap();
    let inner = |without: Option<u32>| {
        let mut mask = vec![u32::MAX; tokenizer.vocabulary_size().div_ceil(32)];
        if let Some(token) = without {
            mask[token as usize / 32] &= !(1 << (token % 32));
        }
        Box::new(But {
            mask: Arc::new(mask),
            committed: 0,
        })
    };
    let mut open = end.around(Some(inner(None)), tokenizer.table(), true);
    let closed = tokenizer.decode(&written(open.as_mut(), &says), true);
    assert!(closed.contains("</think>"), "{closed}");
    // The grammar has no room for the mark: the text goes on.
    let mut shut = end.around(Some(inner(Some(end.close[0]))), tokenizer.table(), true);
    let found = tokenizer.decode(&written(shut.as_mut(), &says), true);
    assert!(!found.contains("</think>"), "{found}");
}
