//! Token spans: the token that a piece of text came from, through every stage that holds text back.

use std::collections::VecDeque;

use mortise_models::TokenLogprob;

/// Raw text kept for a parser that has not emitted it yet, at most. Beyond it the oldest is
/// discarded, which loses log-probabilities and nothing else.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// A token and the range of the raw text that it contributed to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenSpan {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) logprob: Option<TokenLogprob>,
}

/// Spans of tokens whose text is held back by the detokenizer or by the stop matcher.
#[derive(Debug, Default)]
pub(crate) struct HeldSpans {
    /// Tokens with the count of bytes that must be decoded before their text is complete.
    undecoded: VecDeque<(usize, TokenSpan)>,
    decoded: VecDeque<TokenSpan>,
    contributed: usize,
    /// Length of the raw text so far.
    length: usize,
}

impl HeldSpans {
    /// Add a token that contributes `bytes`. After it the detokenizer had emitted `text` more bytes
    /// and held `held`.
    pub(crate) fn push(
        &mut self,
        id: u32,
        logprob: Option<TokenLogprob>,
        bytes: usize,
        text: usize,
        held: usize,
    ) {
        self.contributed += bytes;
        let span = TokenSpan {
            id,
            start: self.length,
            end: self.length,
            logprob,
        };
        self.undecoded.push_back((self.contributed, span));
        self.decode(text, self.contributed.saturating_sub(held));
    }

    /// The detokenizer emitted its last `text` bytes.
    pub(crate) fn finish(&mut self, text: usize) {
        self.decode(text, usize::MAX);
    }

    fn decode(&mut self, text: usize, done: usize) {
        self.length += text;
        while let Some((_, mut span)) = self.undecoded.pop_front_if(|(due, _)| *due <= done) {
            span.end = self.length;
            self.decoded.push_back(span);
        }
    }

    /// Remove the spans that end before `position` in the raw text.
    pub(crate) fn release(&mut self, position: usize) -> Vec<TokenSpan> {
        let mut spans = Vec::new();
        while let Some(span) = self.decoded.pop_front_if(|span| span.end <= position) {
            spans.push(span);
        }
        spans
    }

    /// Remove the spans that begin before `position`, where the raw text was truncated.
    pub(crate) fn release_truncated(&mut self, position: usize) -> Vec<TokenSpan> {
        let mut spans = self.release(position);
        while let Some(span) = self.decoded.pop_front_if(|span| span.start < position) {
            spans.push(span);
        }
        spans
    }
}

/// Spans of the text that a parser was fed, to be looked up by the text that it emits. A parser
/// emits parts of the raw text in order and drops markup; tokens of markup belong to no output.
#[derive(Debug, Default)]
pub(crate) struct ParserSpans {
    raw: String,
    /// Position of `raw` in the raw text.
    base: usize,
    spans: VecDeque<TokenSpan>,
}

impl ParserSpans {
    /// Append text that was fed to the parser.
    pub(crate) fn append(&mut self, text: &str, spans: Vec<TokenSpan>) {
        self.raw.push_str(text);
        self.spans.extend(spans);
        if self.raw.len() > MAX_PENDING_BYTES {
            let mut discarded = self.raw.len() - MAX_PENDING_BYTES / 2;
            while !self.raw.is_char_boundary(discarded) {
                discarded += 1;
            }
            self.discard(discarded);
        }
    }

    /// Remove the spans of `text`, which the parser emitted: the log-probabilities of its tokens.
    pub(crate) fn take(&mut self, text: &str) -> Vec<TokenLogprob> {
        let Some(at) = self.find(text) else {
            return Vec::new();
        };
        let end = self.base + at + text.len();
        self.discard(at);
        let mut taken = Vec::new();
        while let Some(span) = self.spans.pop_front_if(|span| span.start < end) {
            taken.extend(span.logprob);
        }
        self.discard(text.len());
        taken
    }

    /// Position of `text`: at the start of a token if possible, since markup may contain it too.
    fn find(&self, text: &str) -> Option<usize> {
        let at_token = self.spans.iter().find_map(|span| {
            let at = span.start.checked_sub(self.base)?;
            self.raw.get(at..)?.starts_with(text).then_some(at)
        });
        at_token.or_else(|| self.raw.find(text))
    }

    /// Drop `bytes` bytes and the spans that end in them.
    fn discard(&mut self, bytes: usize) {
        self.raw.drain(..bytes);
        self.base += bytes;
        while self
            .spans
            .pop_front_if(|span| span.end <= self.base)
            .is_some()
        {}
    }
}

#[cfg(test)]
mod tests;
