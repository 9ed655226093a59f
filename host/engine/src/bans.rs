//! Tokens that must not come next: ends of the answer before its least length, and last tokens of
//! forbidden words.

use std::collections::VecDeque;

use crate::request::SamplingParams;

/// Added to the logit of a token that must not come next. Finite, so that a constraint that allows
/// nothing else still has its token.
pub(crate) const BAN: f32 = -1.0e9;

/// State of the bans of one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Bans {
    /// Tokens that end the sequence, held back until `least` tokens were committed.
    ends: Vec<u32>,
    least: u32,
    committed: u32,
    /// Forbidden words as tokens; none is empty.
    words: Vec<Vec<u32>>,
    /// The last tokens, as many as the longest word has but one.
    recent: VecDeque<u32>,
    window: usize,
}

impl Bans {
    pub(crate) fn new(params: &SamplingParams) -> Self {
        let words = params.bad_words.iter().filter(|word| !word.is_empty());
        let words: Vec<Vec<u32>> = words.cloned().collect();
        let longest = words.iter().map(Vec::len).max().unwrap_or(1);
        Self {
            ends: params.held_back.clone(),
            least: params.min_tokens,
            committed: 0,
            words,
            recent: VecDeque::new(),
            window: longest - 1,
        }
    }

    /// Whether no token is ever banned.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty() && (self.least == 0 || self.ends.is_empty())
    }

    /// Tokens that must not come next; one may be named twice.
    pub(crate) fn banned(&self) -> impl Iterator<Item = u32> {
        let early = self.committed < self.least;
        let ends = self.ends.iter().copied().filter(move |_| early);
        let words = self.words.iter().filter_map(|word| {
            let (last, before) = word.split_last()?;
            let skipped = self.recent.len().checked_sub(before.len())?;
            let recent = self.recent.iter().skip(skipped);
            recent.eq(before).then_some(*last)
        });
        ends.chain(words)
    }

    /// Remember a committed token.
    pub(crate) fn observe(&mut self, token: u32) {
        self.committed = self.committed.saturating_add(1);
        if self.window == 0 {
            return;
        }
        if self.recent.len() == self.window {
            self.recent.pop_front();
        }
        self.recent.push_back(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banned(bans: &Bans) -> Vec<u32> {
        bans.banned().collect()
    }

    #[test]
    fn ends_are_banned_until_the_least_length() {
        let mut bans = Bans::new(&SamplingParams {
            min_tokens: 2,
            held_back: vec![7, 9],
            ..SamplingParams::default()
        });
        assert!(!bans.is_empty());
        for _ in 0..2 {
            assert_eq!(banned(&bans), [7, 9]);
            bans.observe(1);
        }
        assert!(banned(&bans).is_empty());
    }

    #[test]
    fn a_word_is_banned_where_all_but_its_last_token_stands() {
        let mut bans = Bans::new(&SamplingParams {
            bad_words: vec![vec![5], vec![1, 2, 3], vec![2, 4], Vec::new()],
            ..SamplingParams::default()
        });
        assert_eq!(banned(&bans), [5]);
        for (token, expected) in [
            (1, vec![5]),
            (2, vec![5, 3, 4]),
            (2, vec![5, 4]),
            (3, vec![5]),
        ] {
            bans.observe(token);
            assert_eq!(banned(&bans), expected, "behind {token}");
        }
        assert!(Bans::new(&SamplingParams::default()).is_empty());
    }
}
