//! Takes JSON out of a JSON string, character by character: some models wrap arguments twice.

/// What came out of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unwrapped {
    /// Nothing yet.
    Nothing,
    /// A character of the text inside.
    Character(char),
    /// The closing quote.
    End,
    /// Not a JSON string.
    Wrong,
}

/// The inside of a string, behind its opening quote.
#[derive(Debug, Default)]
pub(crate) struct Unwrapper {
    state: State,
    /// The first half of a pair that writes one character.
    high_surrogate: Option<u32>,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Text,
    Escape,
    Hex {
        value: u32,
        left: u8,
    },
}

impl Unwrapper {
    /// Take the next character.
    pub(crate) fn feed(&mut self, c: char) -> Unwrapped {
        match self.state {
            State::Text => self.text(c),
            State::Escape => self.escape(c),
            State::Hex { value, left } => self.hex(value, left, c),
        }
    }

    fn text(&mut self, c: char) -> Unwrapped {
        if c == '\\' {
            self.state = State::Escape;
            return Unwrapped::Nothing;
        }
        if self.high_surrogate.is_some() || c < ' ' {
            return Unwrapped::Wrong;
        }
        match c {
            '"' => Unwrapped::End,
            _ => Unwrapped::Character(c),
        }
    }

    fn escape(&mut self, c: char) -> Unwrapped {
        if c == 'u' {
            self.state = State::Hex { value: 0, left: 4 };
            return Unwrapped::Nothing;
        }
        if self.high_surrogate.is_some() {
            return Unwrapped::Wrong;
        }
        self.state = State::Text;
        Unwrapped::Character(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            _ => return Unwrapped::Wrong,
        })
    }

    fn hex(&mut self, value: u32, left: u8, c: char) -> Unwrapped {
        let Some(digit) = c.to_digit(16) else {
            return Unwrapped::Wrong;
        };
        let value = value * 16 + digit;
        if left > 1 {
            self.state = State::Hex {
                value,
                left: left - 1,
            };
            return Unwrapped::Nothing;
        }
        self.state = State::Text;
        let code = match (self.high_surrogate.take(), value) {
            (None, 0xD800..0xDC00) => {
                self.high_surrogate = Some(value);
                return Unwrapped::Nothing;
            }
            (None, _) => value,
            (Some(high), 0xDC00..0xE000) => 0x10000 + ((high - 0xD800) << 10) + (value - 0xDC00),
            (Some(_), _) => return Unwrapped::Wrong,
        };
        char::from_u32(code).map_or(Unwrapped::Wrong, Unwrapped::Character)
    }
}

#[cfg(test)]
mod tests {
    use super::{Unwrapped, Unwrapper};

    fn unwrap(text: &str) -> Option<String> {
        let mut unwrapper = Unwrapper::default();
        let mut inside = String::new();
        for c in text.chars() {
            match unwrapper.feed(c) {
                Unwrapped::Nothing => {}
                Unwrapped::Character(c) => inside.push(c),
                Unwrapped::End => return Some(inside),
                Unwrapped::Wrong => return None,
            }
        }
        None
    }

    proptest::proptest! {
        #[test]
        fn what_serde_json_wraps_is_unwrapped(text in "\\PC{0,20}[\n\t\"\\\\😀]{0,4}") {
            let wrapped = serde_json::to_string(&text).unwrap();
            proptest::prop_assert_eq!(unwrap(&wrapped[1..]), Some(text));
        }
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(unwrap(r#"\u00e9\ud83d\ude00\/""#).as_deref(), Some("é😀/"));
        for text in [r#"\ud83d""#, r#"\ud83dx""#, r#"\udc00""#, r#"\q""#, r#"\u12"#, "\n\""] {
            assert_eq!(unwrap(text), None, "{text}");
        }
    }
}
