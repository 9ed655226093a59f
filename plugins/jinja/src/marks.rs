//! Breaks the look-alikes of control tokens in text that came from the caller.
//!
//! A break is U+FDD0, put after the first character of a look-alike. It is a noncharacter: it is
//! neither whitespace nor a letter, so the string methods of templates leave it where it is.
//! Characters of the reserved range that the caller sent are themselves written as an escape, so
//! that taking the breaks out restores the text exactly.

use std::borrow::Cow;

use serde_json::Value;

/// Noncharacter that is put into a look-alike to break it.
pub(crate) const BREAK: char = '\u{FDD0}';
/// Precedes the stand-in of a reserved character that was in the text.
const ESCAPE: char = '\u{FDD1}';
/// Marks the end of a message that is to be continued.
pub(crate) const TAG: char = '\u{FDD2}';
/// The reserved characters are U+FDD0 to U+FDDF, their stand-ins U+FDE0 to U+FDEF.
const STAND_IN_OFFSET: u32 = 0x10;

/// A control token of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlToken {
    /// Text of the token, such as `<|im_end|>`.
    pub text: String,
    /// Marked `special` in the tokenizer file.
    pub special: bool,
}

/// Bytes of token texts, as a tree.
#[derive(Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<(u8, usize)>,
    ends: bool,
}

impl Trie {
    pub(crate) fn new<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut trie = Self {
            nodes: vec![Node::default()],
        };
        for text in texts {
            let mut at = 0;
            for &byte in text {
                at = match trie.child(at, byte) {
                    Some(next) => next,
                    None => trie.grow(at, byte),
                };
            }
            if at != 0 {
                trie.nodes[at].ends = true;
            }
        }
        trie
    }

    fn child(&self, at: usize, byte: u8) -> Option<usize> {
        let children = &self.nodes.get(at)?.children;
        let index = children.binary_search_by_key(&byte, |child| child.0).ok()?;
        Some(children[index].1)
    }

    fn grow(&mut self, at: usize, byte: u8) -> usize {
        let next = self.nodes.len();
        self.nodes.push(Node::default());
        let children = &mut self.nodes[at].children;
        let index = children.partition_point(|child| child.0 < byte);
        children.insert(index, (byte, next));
        next
    }

    /// Length of the longest text that `bytes` begins with.
    pub(crate) fn longest_prefix_of(&self, bytes: &[u8]) -> Option<usize> {
        let (mut at, mut found) = (0, None);
        for (index, &byte) in bytes.iter().enumerate() {
            let Some(next) = self.child(at, byte) else {
                break;
            };
            at = next;
            if self.nodes[at].ends {
                found = Some(index + 1);
            }
        }
        found
    }

    /// Whether one of the texts begins with `bytes`.
    fn continues(&self, bytes: &[u8]) -> bool {
        let mut at = 0;
        for &byte in bytes {
            match self.child(at, byte) {
                Some(next) => at = next,
                None => return false,
            }
        }
        at != 0
    }
}

/// Tokens that count as look-alikes.
#[derive(Debug)]
struct LookAlikes {
    forward: Trie,
    /// The texts spelt backwards, to recognise their ends.
    backward: Trie,
    longest: usize,
}

impl LookAlikes {
    /// Case is ignored, since templates may change that of the caller's text.
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let texts: Vec<Vec<u8>> = texts
            .map(|text| text.to_ascii_lowercase().into_bytes())
            .collect();
        let reversed: Vec<Vec<u8>> = texts
            .iter()
            .map(|text| text.iter().rev().copied().collect())
            .collect();
        Self {
            forward: Trie::new(texts.iter().map(Vec::as_slice)),
            backward: Trie::new(reversed.iter().map(Vec::as_slice)),
            longest: texts.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Byte positions that need a break, in rising order.
    fn breaks(&self, text: &str) -> Vec<usize> {
        let lower = text.to_ascii_lowercase();
        let bytes = lower.as_bytes();
        let start = text.len() - text.trim_start().len();
        let end = text.trim_end().len();
        let mut positions = Vec::new();
        if start < end && self.starts_with_an_end(&bytes[start..end]) {
            positions.push(start);
        }
        for (index, character) in text.char_indices() {
            let rest = &bytes[index..];
            let whole = self.forward.longest_prefix_of(rest).is_some();
            let cut_off = index < end
                && end - index < self.longest
                && self.forward.continues(&bytes[index..end]);
            if whole || cut_off {
                positions.push(index + character.len_utf8());
            }
        }
        positions
    }

    /// Whether the text begins with the end of a token whose start could stand before it.
    fn starts_with_an_end(&self, bytes: &[u8]) -> bool {
        let longest = self.longest.min(bytes.len());
        (1..=longest).any(|length| {
            let reversed: Vec<u8> = bytes[..length].iter().rev().copied().collect();
            self.backward.continues(&reversed)
        })
    }
}

/// Tokens that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All control tokens, and the marks of reasoning.
    All,
    /// Control tokens marked `special`. For text of the assistant, which templates split at tokens such as
    /// `</think>`.
    SpecialOnly,
}

/// The control tokens of one model.
#[derive(Debug)]
pub(crate) struct Marks {
    all: LookAlikes,
    special: LookAlikes,
}

impl Marks {
    pub(crate) fn new(tokens: &[ControlToken]) -> Self {
        let guarded = || tokens.iter().filter(|token| is_guarded(token));
        Self {
            all: LookAlikes::new(
                guarded()
                    .map(|token| token.text.as_str())
                    .chain(["<think>", "</think>"]),
            ),
            special: LookAlikes::new(
                guarded()
                    .filter(|token| token.special)
                    .map(|token| token.text.as_str()),
            ),
        }
    }

    /// Break what looks like a control token.
    pub(crate) fn protect<'a>(&self, text: &'a str, scope: Scope) -> Cow<'a, str> {
        let look_alikes = match scope {
            Scope::All => &self.all,
            Scope::SpecialOnly => &self.special,
        };
        let positions = look_alikes.breaks(text);
        if positions.is_empty() && !text.chars().any(is_reserved) {
            return Cow::Borrowed(text);
        }
        let mut protected = String::with_capacity(text.len() + 3 * positions.len());
        let mut positions = positions.into_iter().peekable();
        for (index, character) in text.char_indices() {
            if positions.next_if_eq(&index).is_some() {
                protected.push(BREAK);
            }
            if is_reserved(character) {
                protected.push(ESCAPE);
                protected.extend(char::from_u32(u32::from(character) + STAND_IN_OFFSET));
            } else {
                protected.push(character);
            }
        }
        if positions.next().is_some() {
            protected.push(BREAK);
        }
        Cow::Owned(protected)
    }

    /// [`Marks::protect`] for every string of a JSON value, keys included.
    pub(crate) fn protect_json(&self, value: Value, scope: Scope) -> Value {
        match value {
            Value::String(text) => match self.protect(&text, scope) {
                Cow::Borrowed(_) => Value::String(text),
                Cow::Owned(protected) => Value::String(protected),
            },
            Value::Array(items) => Value::Array(
                items
                    .into_iter()
                    .map(|item| self.protect_json(item, scope))
                    .collect(),
            ),
            Value::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|(key, value)| {
                        let key = self.protect(&key, scope).into_owned();
                        (key, self.protect_json(value, scope))
                    })
                    .collect(),
            ),
            scalar => scalar,
        }
    }
}

/// Whether a token is worth guarding against and worth marking in a prompt. Runs of spaces, which
/// some tokenizers list as added tokens, are not: they mean the same either way.
pub(crate) fn is_guarded(token: &ControlToken) -> bool {
    let visible = token.text.chars().any(|c| !c.is_whitespace());
    visible && (token.special || token.text.chars().nth(1).is_some())
}

fn is_reserved(character: char) -> bool {
    ('\u{FDD0}'..='\u{FDDF}').contains(&character)
}

/// Take the breaks out of rendered text and restore what was escaped.
pub(crate) fn restore(text: &str) -> String {
    let mut restored = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            BREAK | TAG => {}
            ESCAPE => {
                let original = characters
                    .next_if(|next| ('\u{FDE0}'..='\u{FDEF}').contains(next))
                    .and_then(|next| char::from_u32(u32::from(next) - STAND_IN_OFFSET));
                restored.push(original.unwrap_or(ESCAPE));
            }
            other => restored.push(other),
        }
    }
    restored
}

#[cfg(test)]
mod tests;
