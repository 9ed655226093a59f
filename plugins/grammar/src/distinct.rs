//! Arrays whose items must differ, and objects whose members are counted. No grammar remembers what was written, so it is
//! remembered beside it: texts that an array has already, and names that an object has, are taken out of the masks.

mod endings;
mod items;
mod plan;
mod scanner;
mod texts;

use std::sync::Arc;

use toktrie::{SimpleVob, TokTrie};

pub(crate) use endings::{Ending, Members};
pub(crate) use plan::Plan;
use scanner::Scanner;
pub(crate) use texts::{DISTINCT, NAMES, are_free, listed};

/// Tokens that may end a text.
pub(crate) struct Quoted {
    /// Tokens with a quote.
    any: Vec<u32>,
    /// Tokens with three quotes or more: they may hold a whole text, and the end of another.
    several: Vec<u32>,
    /// Tokens with the ends of two values: they may hold a whole item, and the end of another.
    ends: Vec<u32>,
}

impl Quoted {
    /// Sort out the tokens of a vocabulary that may end a text.
    pub(crate) fn of(trie: &TokTrie) -> Self {
        let quotes = |token: &u32| trie.token(*token).iter().filter(|b| **b == b'"').count();
        let any: Vec<u32> = (0..trie.vocab_size() as u32)
            .filter(|token| !trie.is_special_token(*token) && quotes(token) > 0)
            .collect();
        let several = any.iter().copied().filter(|token| quotes(token) > 2);
        let ends = |token: &u32| {
            let bytes = trie.token(*token).iter();
            bytes.filter(|b| matches!(b, b'"' | b'}' | b']')).count() > 1
        };
        let all = 0..trie.vocab_size() as u32;
        let ends = all.filter(|token| !trie.is_special_token(*token) && ends(token));
        Self {
            several: several.collect(),
            ends: ends.collect(),
            any,
        }
    }
}

/// State of the arrays of different items in a text that is being written.
#[derive(Clone)]
pub(crate) struct Distinct {
    plan: Arc<Plan>,
    quoted: Arc<Quoted>,
    scanner: Scanner,
    tokens: Vec<u32>,
}

impl Distinct {
    pub(crate) fn new(plan: Arc<Plan>, quoted: Arc<Quoted>) -> Self {
        Self {
            scanner: Scanner::default(),
            tokens: Vec::new(),
            plan,
            quoted,
        }
    }

    /// Whether a token would repeat an item.
    pub(crate) fn repeats(&self, bytes: &[u8]) -> bool {
        let mut copy = self.scanner.clone();
        bytes.iter().any(|byte| copy.feed(&self.plan, *byte))
    }

    /// Take a token.
    pub(crate) fn take(&mut self, token: u32, bytes: &[u8]) {
        self.tokens.push(token);
        for byte in bytes {
            self.scanner.feed(&self.plan, *byte);
        }
    }

    /// Take the last tokens back.
    pub(crate) fn rollback(&mut self, count: usize, trie: &TokTrie) {
        let kept = self.tokens.len().saturating_sub(count);
        let tokens: Vec<u32> = self.tokens.drain(..).take(kept).collect();
        self.scanner = Scanner::default();
        for token in tokens {
            self.take(token, trie.token(token));
        }
    }

    /// Take the tokens that would repeat an item out of a mask.
    pub(crate) fn narrow(&self, allowed: &mut SimpleVob, trie: &TokTrie) {
        let has_ends = self.plan.has_ends();
        if self.scanner.is_listed() || has_ends && self.scanner.is_at_items() {
            let repeated = allowed
                .iter()
                .filter(|token| !trie.is_special_token(*token) && self.repeats(trie.token(*token)));
            for token in repeated.collect::<Vec<u32>>() {
                allowed.disallow_token(token);
            }
            return;
        }
        let candidates = match (self.scanner.may_end_a_repetition(), has_ends) {
            (true, _) => &self.quoted.any,
            (false, true) => &self.quoted.ends,
            (false, false) => &self.quoted.several,
        };
        for token in candidates {
            if allowed.is_allowed(*token) && self.repeats(trie.token(*token)) {
                allowed.disallow_token(*token);
            }
        }
        // A text of the greatest length can only be ended: its last letter is where it repeats.
        for rest in self.scanner.rests_of_longest() {
            for token in 0..trie.vocab_size() as u32 {
                let first = trie.token(token).first();
                let begins =
                    first.is_some_and(|first| rest.first() == Some(first) || *first == b'\\');
                if begins && allowed.is_allowed(token) && self.repeats(trie.token(token)) {
                    allowed.disallow_token(token);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
