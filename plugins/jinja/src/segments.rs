//! Splits rendered text into control tokens, which the template wrote, and plain text.

use crate::marks::{self, ControlToken, Trie};

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// One control token.
    Special(String),
    /// Text in which control tokens are not recognised.
    Plain(String),
}

impl Segment {
    /// The text of the piece.
    pub fn text(&self) -> &str {
        match self {
            Self::Special(text) | Self::Plain(text) => text,
        }
    }
}

/// Finds control tokens in rendered text.
#[derive(Debug)]
pub(crate) struct Splitter {
    tokens: Trie,
}

impl Splitter {
    pub(crate) fn new(tokens: &[ControlToken]) -> Self {
        let guarded = tokens.iter().filter(|token| marks::is_guarded(token));
        Self {
            tokens: Trie::new(guarded.map(|token| token.text.as_bytes())),
        }
    }

    /// Split text that still holds its breaks; they are taken out of the pieces. Also returned is
    /// what follows the last control token, marks of reasoning aside, breaks included.
    pub(crate) fn split<'a>(&self, rendered: &'a str) -> (Vec<Segment>, &'a str) {
        let mut segments = Vec::new();
        let mut turn_from = 0;
        let mut plain_from = 0;
        let mut at = 0;
        while at < rendered.len() {
            let rest = &rendered[at..];
            if let Some(length) = self.tokens.longest_prefix_of(rest.as_bytes()) {
                push_plain(&mut segments, &rendered[plain_from..at]);
                segments.push(Segment::Special(rest[..length].to_owned()));
                at += length;
                plain_from = at;
                if !matches!(&rest[..length], "<think>" | "</think>") {
                    turn_from = at;
                }
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        push_plain(&mut segments, &rendered[plain_from..]);
        (segments, &rendered[turn_from..])
    }
}

fn push_plain(segments: &mut Vec<Segment>, text: &str) {
    let text = marks::restore(text);
    if !text.is_empty() {
        segments.push(Segment::Plain(text));
    }
}
