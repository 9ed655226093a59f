//! Which token a piece of text came from, through everything that holds text back.

use std::collections::VecDeque;

use crate::event::TokenLogprob;

/// Raw text that waits for a parser to say what it is, at most. Beyond it, the oldest is given up,
/// which costs log-probabilities and nothing else.
const MAX_UNCLAIMED_BYTES: usize = 64 << 10;

/// A token and the part of the raw text that it contributed to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrailToken {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) logprob: Option<TokenLogprob>,
}

/// Tokens whose text is held back by the detokenizer or by stop strings.
#[derive(Debug, Default)]
pub(crate) struct TokenTrail {
    /// Tokens with the count of bytes that must be out before their text is.
    undecoded: VecDeque<(usize, TrailToken)>,
    decoded: VecDeque<TrailToken>,
    contributed: usize,
    /// Length of the raw text so far.
    length: usize,
}

impl TokenTrail {
    /// A token came that contributes `bytes`; after it the detokenizer had let out `text` more
    /// bytes and held `held`.
    pub(crate) fn push(
        &mut self,
        id: u32,
        logprob: Option<TokenLogprob>,
        bytes: usize,
        text: usize,
        held: usize,
    ) {
        self.contributed += bytes;
        let token = TrailToken {
            id,
            start: self.length,
            end: self.length,
            logprob,
        };
        self.undecoded.push_back((self.contributed, token));
        self.decode(text, self.contributed.saturating_sub(held));
    }

    /// The detokenizer let out `text` bytes at the end.
    pub(crate) fn finish(&mut self, text: usize) {
        self.decode(text, usize::MAX);
    }

    fn decode(&mut self, text: usize, done: usize) {
        self.length += text;
        while let Some((_, mut token)) = self.undecoded.pop_front_if(|(due, _)| *due <= done) {
            token.end = self.length;
            self.decoded.push_back(token);
        }
    }

    /// Tokens whose text lies before `position` in the raw text.
    pub(crate) fn release(&mut self, position: usize) -> Vec<TrailToken> {
        let mut tokens = Vec::new();
        while let Some(token) = self.decoded.pop_front_if(|token| token.end <= position) {
            tokens.push(token);
        }
        tokens
    }

    /// Tokens of which some text lies before `position`, behind which all was dropped.
    pub(crate) fn release_cut(&mut self, position: usize) -> Vec<TrailToken> {
        let mut tokens = self.release(position);
        while let Some(token) = self.decoded.pop_front_if(|token| token.start < position) {
            tokens.push(token);
        }
        tokens
    }
}

/// Finds the tokens of what a parser gives out. A parser gives out parts of the raw text, in
/// order, and swallows markup; tokens of markup belong to nothing.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    raw: String,
    /// Position of `raw` in the raw text.
    base: usize,
    tokens: VecDeque<TrailToken>,
}

impl Claims {
    /// More raw text goes to the parser.
    pub(crate) fn offer(&mut self, text: &str, tokens: Vec<TrailToken>) {
        self.raw.push_str(text);
        self.tokens.extend(tokens);
        if self.raw.len() > MAX_UNCLAIMED_BYTES {
            let mut given_up = self.raw.len() - MAX_UNCLAIMED_BYTES / 2;
            while !self.raw.is_char_boundary(given_up) {
                given_up += 1;
            }
            self.forget(given_up);
        }
    }

    /// The parser gave out `text`: the log-probabilities of its tokens.
    pub(crate) fn claim(&mut self, text: &str) -> Vec<TokenLogprob> {
        let Some(at) = self.find(text) else {
            return Vec::new();
        };
        let end = self.base + at + text.len();
        self.forget(at);
        let mut claimed = Vec::new();
        while let Some(token) = self.tokens.pop_front_if(|token| token.start < end) {
            claimed.extend(token.logprob);
        }
        self.forget(text.len());
        claimed
    }

    /// Where `text` is: at the start of a token if it can be, since markup may contain it by chance.
    fn find(&self, text: &str) -> Option<usize> {
        let at_token = self.tokens.iter().find_map(|token| {
            let at = token.start.checked_sub(self.base)?;
            self.raw.get(at..)?.starts_with(text).then_some(at)
        });
        at_token.or_else(|| self.raw.find(text))
    }

    /// Drop so many bytes and the tokens that end in them.
    fn forget(&mut self, bytes: usize) {
        self.raw.drain(..bytes);
        self.base += bytes;
        while self
            .tokens
            .pop_front_if(|token| token.end <= self.base)
            .is_some()
        {}
    }
}

#[cfg(test)]
mod tests;
