//! Incremental detokenization: text is emitted in whole characters and is never revised.

use std::sync::Arc;

use crate::token_table::{TextStart, TokenTable};

/// Turns the tokens of one sequence into text.
///
/// The text is that of the tokenizer's own decoder, with one exception: where byte-fallback
/// tokens do not make whole characters, that decoder gives up all bytes around the broken ones,
/// good ones too, which it can only do since it knows the end. Here good characters stay.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    table: Arc<TokenTable>,
    keep_special: bool,
    first: bool,
    start: TextStart,
    /// Bytes that may become a character.
    held: Vec<u8>,
}

impl Detokenizer {
    /// A detokenizer at the start of a text, or in the middle of one, where the space before the
    /// first word counts.
    pub fn new(table: Arc<TokenTable>, keep_special: bool, at_start: bool) -> Self {
        let mut start = table.start();
        if !at_start {
            start.count = 0;
        }
        Self {
            table,
            keep_special,
            first: at_start,
            start,
            held: Vec::new(),
        }
    }

    /// Append what is certain after this token. Returns how many bytes the token contributes, now
    /// or later.
    pub fn push(&mut self, id: u32, text: &mut String) -> usize {
        let table = Arc::clone(&self.table);
        if !table.contains(id) || (table.is_special(id) && !self.keep_special) {
            return 0;
        }
        let piece = table.piece(id, std::mem::take(&mut self.first));
        if piece.raw {
            self.held.extend_from_slice(piece.bytes);
            self.release(text);
            return piece.bytes.len();
        }
        self.give_up(text);
        push_after_start(&String::from_utf8_lossy(piece.bytes), &mut self.start, text);
        piece.bytes.len()
    }

    /// The bytes of a token if it came next, whether or not it would be left out.
    pub fn next_bytes(&self, id: u32) -> &[u8] {
        let mut bytes = self.table.piece(id, self.first).bytes;
        let mut encoded = [0; 4];
        let skipped: &[u8] = self.start.character.encode_utf8(&mut encoded).as_bytes();
        for _ in 0..self.start.count {
            match bytes.strip_prefix(skipped) {
                Some(rest) => bytes = rest,
                None => break,
            }
        }
        bytes
    }

    /// Append what was held back: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        self.give_up(text);
    }

    /// Bytes that are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Append the whole characters that are held, and U+FFFD for bytes that cannot become one.
    fn release(&mut self, text: &mut String) {
        let mut bytes = self.held.as_slice();
        let kept = loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(good) => {
                    push_after_start(good, &mut self.start, text);
                    break 0;
                }
                Err(error) => error,
            };
            let (good, rest) = bytes.split_at(error.valid_up_to());
            push_after_start(&String::from_utf8_lossy(good), &mut self.start, text);
            let Some(broken) = error.error_len() else {
                break rest.len();
            };
            self.start.count = 0;
            push_replacements(broken, self.table.each_byte(), text);
            bytes = &rest[broken..];
        };
        let done = self.held.len() - kept;
        self.held.drain(..done);
    }

    fn give_up(&mut self, text: &mut String) {
        if !self.held.is_empty() {
            self.start.count = 0;
            push_replacements(self.held.len(), self.table.each_byte(), text);
            self.held.clear();
        }
    }
}

/// Append text; at the start of the whole text, without the characters that are left out there.
fn push_after_start(mut good: &str, start: &mut TextStart, text: &mut String) {
    while start.count > 0 && !good.is_empty() {
        match good.strip_prefix(start.character) {
            Some(rest) => {
                good = rest;
                start.count -= 1;
            }
            None => start.count = 0,
        }
    }
    text.push_str(good);
}

fn push_replacements(bytes: usize, each_byte: bool, text: &mut String) {
    for _ in 0..if each_byte { bytes } else { 1 } {
        text.push(char::REPLACEMENT_CHARACTER);
    }
}

#[cfg(test)]
mod tests;
