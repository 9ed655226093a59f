//! Reader of JSON as it is written, for the texts of its arrays.

use std::sync::Arc;

use super::endings::Kind;
use super::items::Items;
use super::plan::{Places, Plan, Rule};

/// State of the reader: open objects and arrays, and the text or number that is being written.
#[derive(Clone, Default)]
pub(super) struct Scanner {
    stack: Vec<Frame>,
    text: Option<Text>,
    number: Number,
}

/// A number that is being written.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Number {
    #[default]
    None,
    Sign,
    Digits,
}

/// An object or an array that is open.
#[derive(Clone)]
enum Frame {
    Object {
        places: Arc<Places>,
        /// Name of the member that is being written.
        name: Arc<[u8]>,
        /// Flag: a name comes next.
        at_name: bool,
        /// Names that the object has, if they must differ.
        seen: Option<Seen>,
    },
    Array {
        places: Arc<Places>,
        seen: Option<Seen>,
        /// Items of the array, if they must differ and may be other values than texts.
        items: Option<Items>,
    },
}

/// Texts that an array has, or names that an object has.
#[derive(Clone, Default)]
struct Seen {
    rule: Rule,
    texts: Arc<Vec<Arc<[u8]>>>,
}

/// A text that is being written.
#[derive(Clone, Default)]
struct Text {
    bytes: Vec<u8>,
    is_name: bool,
    escape: Escape,
    /// First half of a pair of surrogates.
    high: Option<u32>,
}

#[derive(Clone, Copy, Default)]
enum Escape {
    #[default]
    None,
    Begun,
    /// Hexadecimal digits that are left, and their value so far.
    Code(u8, u32),
}

impl Scanner {
    /// Read a byte. True if it makes an item that the array has already, or such a name.
    pub(super) fn feed(&mut self, plan: &Plan, byte: u8) -> bool {
        if self.text.is_none() && self.feed_number(byte) {
            return true;
        }
        for frame in &mut self.stack {
            if let Frame::Array {
                items: Some(items), ..
            } = frame
            {
                items.write(byte);
            }
        }
        if let Some(text) = &mut self.text {
            return match text.feed(byte) {
                true => self.end_text(),
                false => self.is_full(),
            };
        }
        match byte {
            b'"' => {
                let is_name =
                    matches!(self.stack.last(), Some(Frame::Object { at_name: true, .. }));
                self.text = Some(Text {
                    is_name,
                    ..Text::default()
                });
            }
            b'{' => {
                let places = self.places(plan);
                let seen = plan.names_differ(&places).then(Seen::default);
                self.stack.push(Frame::Object {
                    places: Arc::new(places),
                    name: Arc::from([]),
                    at_name: true,
                    seen,
                });
            }
            b'[' => {
                let places = self.places(plan);
                let rule = plan.distinct(&places);
                let ending = rule.as_ref().and_then(|rule| rule.ending.clone());
                self.stack.push(Frame::Array {
                    places: Arc::new(places),
                    seen: rule.filter(|_| ending.is_none()).map(Seen::of),
                    items: ending.map(Items::new),
                });
            }
            b'}' => {
                self.stack.pop();
                return self.end_value(Kind::Object);
            }
            b']' => {
                self.stack.pop();
                return self.end_value(Kind::Array);
            }
            b',' | b':' => match self.stack.last_mut() {
                Some(Frame::Object { at_name, .. }) => *at_name = byte == b',',
                Some(Frame::Array {
                    items: Some(items), ..
                }) => items.begin(),
                _ => {}
            },
            _ => {}
        }
        false
    }

    /// Places of the value that begins here.
    fn places(&self, plan: &Plan) -> Places {
        match self.stack.last() {
            None => plan.root(),
            Some(Frame::Object { places, name, .. }) => {
                plan.member(places, &String::from_utf8_lossy(name))
            }
            Some(Frame::Array { places, .. }) => plan.item(places),
        }
    }

    fn end_text(&mut self) -> bool {
        let Some(text) = self.text.take() else {
            return false;
        };
        match self.stack.last_mut() {
            Some(Frame::Object { name, seen, .. }) if text.is_name => {
                *name = text.bytes.into();
                seen.as_mut().is_some_and(|seen| seen.add(Arc::clone(name)))
            }
            Some(Frame::Array {
                seen: Some(seen), ..
            }) => seen.add(text.bytes.into()),
            _ => self.end_value(Kind::Text),
        }
    }

    /// Read a byte as a part of a number, or as the one behind it. True if the number makes a repetition, or can only
    /// become one: nothing follows the digit 0 at the beginning.
    fn feed_number(&mut self, byte: u8) -> bool {
        let before = self.number;
        self.number = match (before, byte) {
            (Number::None, b'-') => Number::Sign,
            (Number::None | Number::Sign, b'0'..=b'9') => Number::Digits,
            (Number::Digits, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => Number::Digits,
            _ => Number::None,
        };
        match (before, self.number) {
            (Number::Digits, Number::None) => self.end_value(Kind::Integer),
            (Number::None | Number::Sign, Number::Digits) if byte == b'0' => {
                self.frames_of_items().any(|(items, closers)| {
                    let closers = closers(Kind::Integer);
                    closers.is_some_and(|closers| items.repeats(Some(byte), closers))
                })
            }
            _ => false,
        }
    }

    /// A value that is no name has ended. True if that makes a repetition, or leaves nothing but one.
    fn end_value(&mut self, kind: Kind) -> bool {
        let repeated = self.frames_of_items().any(|(items, closers)| {
            let closers = closers(kind);
            closers.is_some_and(|closers| items.repeats(None, closers))
        });
        match self.stack.last_mut() {
            Some(Frame::Array {
                items: Some(items), ..
            }) => items.end() || repeated,
            _ => repeated,
        }
    }

    /// Arrays whose items differ, each with what closes an item of it where a value of a kind ends here: the number of
    /// objects, if the value decides about the item.
    fn frames_of_items(&self) -> impl Iterator<Item = (&Items, impl Fn(Kind) -> Option<usize>)> {
        self.stack.iter().enumerate().filter_map(|(at, frame)| {
            let Frame::Array {
                items: Some(items), ..
            } = frame
            else {
                return None;
            };
            let within = &self.stack[at + 1..];
            let closers = move |kind| {
                let mut ending = items.ending();
                for frame in within {
                    let Frame::Object { name, .. } = frame else {
                        return None;
                    };
                    ending = ending.below(name)?;
                }
                ending.puts_off(kind).then_some(within.len())
            };
            Some((items, closers))
        })
    }

    /// Whether no text is being written, and items differ of an array that is open.
    pub(super) fn is_at_items(&self) -> bool {
        self.text.is_none() && self.frames_of_items().next().is_some()
    }

    /// Whether the end of the text that is being written may make an item that is there already.
    fn may_end_an_item(&self) -> bool {
        self.frames_of_items().any(|(items, closers)| {
            closers(Kind::Text).is_some_and(|closers| items.may_be_repeated(closers))
        })
    }

    /// Texts of the innermost array, if its items differ.
    fn seen(&self) -> Option<&Seen> {
        match self.stack.last()? {
            Frame::Array { seen, .. } => seen.as_ref(),
            Frame::Object { .. } => None,
        }
    }

    /// Whether the item that is being written can only become one that is there already.
    fn is_full(&self) -> bool {
        let (Some(seen), Some(text)) = (self.seen(), &self.text) else {
            return false;
        };
        if let Some(listed) = &seen.rule.listed {
            let open = |value: &Arc<[u8]>| value.starts_with(&text.bytes) && !seen.has(value);
            return !listed.iter().any(open);
        }
        seen.rule.longest.is_some_and(|longest| {
            let letters = std::str::from_utf8(&text.bytes).map(|text| text.chars().count());
            letters == Ok(longest) && seen.has(&text.bytes)
        })
    }

    /// Whether items of the innermost array are listed, so that each of their tokens counts.
    pub(super) fn is_listed(&self) -> bool {
        self.seen().is_some_and(|seen| seen.rule.listed.is_some())
    }

    /// Whether the end of a text, here or soon, may make an item that is there already.
    pub(super) fn may_end_a_repetition(&self) -> bool {
        let named = |frame: &Frame| matches!(frame, Frame::Object { seen: Some(seen), .. } if !seen.texts.is_empty());
        if self.stack.iter().any(named) || self.may_end_an_item() {
            return true;
        }
        let Some(seen) = self.seen() else {
            return false;
        };
        let begun = self.text.as_ref().map_or(&[][..], |text| &text.bytes);
        seen.texts.iter().any(|text| text.starts_with(begun))
    }

    /// Rests of the texts of the greatest length that the item may become.
    pub(super) fn rests_of_longest(&self) -> Vec<&[u8]> {
        let (Some(seen), Some(text)) = (self.seen(), &self.text) else {
            return Vec::new();
        };
        let Some(longest) = seen.rule.longest else {
            return Vec::new();
        };
        let full = seen.texts.iter().filter(|text| {
            std::str::from_utf8(text).is_ok_and(|text| text.chars().count() == longest)
        });
        full.filter_map(|full| full.strip_prefix(&text.bytes[..]))
            .collect()
    }
}

impl Seen {
    fn of(rule: Rule) -> Self {
        Self {
            rule,
            texts: Arc::default(),
        }
    }

    fn has(&self, text: &[u8]) -> bool {
        self.texts.iter().any(|seen| **seen == *text)
    }

    /// Add a text. True if it is there already.
    fn add(&mut self, text: Arc<[u8]>) -> bool {
        let known = self.has(&text);
        if !known {
            Arc::make_mut(&mut self.texts).push(text);
        }
        known
    }
}

impl Text {
    /// Read a byte. True if it ends the text.
    fn feed(&mut self, byte: u8) -> bool {
        match self.escape {
            Escape::None if byte == b'"' => return true,
            Escape::None if byte == b'\\' => self.escape = Escape::Begun,
            Escape::None => self.bytes.push(byte),
            Escape::Begun if byte == b'u' => self.escape = Escape::Code(4, 0),
            Escape::Begun => {
                self.escape = Escape::None;
                self.bytes.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'f' => 12,
                    other => other,
                });
            }
            Escape::Code(left, code) => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let code = code << 4 | digit;
                self.escape = match left {
                    1 => Escape::None,
                    _ => Escape::Code(left - 1, code),
                };
                if left == 1 {
                    self.push_code(code);
                }
            }
        }
        false
    }

    fn push_code(&mut self, code: u32) {
        let code = match (self.high.take(), code) {
            (_, 0xd800..=0xdbff) => {
                self.high = Some(code);
                return;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (_, code) => code,
        };
        let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.bytes
            .extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
