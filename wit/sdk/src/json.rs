//! Validator of one JSON value, character by character, so that it can be passed on while it is written.

/// Nesting that is still read.
const MAX_DEPTH: usize = 64;

/// Effect of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The character belongs to the value, and the value goes on.
    More,
    /// The character belongs to the value and ends it.
    Last,
    /// The value, a number, ended before the character.
    Past,
    /// No JSON value has the character at this place.
    Wrong,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expect {
    #[default]
    Value,
    /// A value or `]`.
    FirstItem,
    /// A key or `}`.
    FirstKey,
    Key,
    Colon,
    /// `,` or the end of the container.
    Separator,
    /// Inside a string, which is a key or a value.
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Literal(&'static str),
    Number(Number),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// A value being read. It knows where the value ends, and stops at what no JSON has.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Open containers; `true` for objects.
    open: Vec<bool>,
    expect: Expect,
}

impl Scanner {
    /// Scanner before the first character.
    pub fn new() -> Self {
        Self::default()
    }

    /// Take the next character.
    pub fn feed(&mut self, c: char) -> Step {
        if let Expect::Number(state) = self.expect {
            return self.number(state, c);
        }
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match (self.expect, c) {
            (Expect::Text { key }, _) => self.text(key, c),
            (Expect::Escape { key }, _) => self.escape(key, c),
            (Expect::Hex { key, left }, _) => self.hex(key, left, c),
            (Expect::Literal(rest), _) => self.literal(rest, c),
            (_, _) if space => Step::More,
            (Expect::FirstItem, ']') | (Expect::FirstKey, '}') => self.close(),
            (Expect::Value | Expect::FirstItem, _) => self.value(c),
            (Expect::FirstKey | Expect::Key, '"') => self.go(Expect::Text { key: true }),
            (Expect::Colon, ':') => self.go(Expect::Value),
            (Expect::Separator, ',') => match self.open.last() {
                Some(true) => self.go(Expect::Key),
                Some(false) => self.go(Expect::Value),
                None => Step::Wrong,
            },
            (Expect::Separator, '}') if self.open.last() == Some(&true) => self.close(),
            (Expect::Separator, ']') if self.open.last() == Some(&false) => self.close(),
            _ => Step::Wrong,
        }
    }

    /// Whether the next character stands inside a string.
    pub(crate) fn in_text(&self) -> bool {
        matches!(self.expect, Expect::Text { .. })
    }

    /// Whether a comma or the end of a container may come next.
    pub(crate) fn at_separator(&self) -> bool {
        let ended = matches!(self.expect, Expect::Separator | Expect::Number(_));
        ended && !self.open.is_empty()
    }

    fn go(&mut self, expect: Expect) -> Step {
        self.expect = expect;
        Step::More
    }

    fn value(&mut self, c: char) -> Step {
        match c {
            '{' => self.container(true, Expect::FirstKey),
            '[' => self.container(false, Expect::FirstItem),
            '"' => self.go(Expect::Text { key: false }),
            't' => self.go(Expect::Literal("rue")),
            'f' => self.go(Expect::Literal("alse")),
            'n' => self.go(Expect::Literal("ull")),
            '-' => self.go(Expect::Number(Number::Minus)),
            '0' => self.go(Expect::Number(Number::Zero)),
            '1'..='9' => self.go(Expect::Number(Number::Integer)),
            _ => Step::Wrong,
        }
    }

    fn container(&mut self, object: bool, expect: Expect) -> Step {
        if self.open.len() == MAX_DEPTH {
            return Step::Wrong;
        }
        self.open.push(object);
        self.go(expect)
    }

    fn close(&mut self) -> Step {
        self.open.pop();
        self.end()
    }

    /// A value has ended with the present character.
    fn end(&mut self) -> Step {
        self.expect = Expect::Separator;
        if self.open.is_empty() {
            Step::Last
        } else {
            Step::More
        }
    }

    fn text(&mut self, key: bool, c: char) -> Step {
        match c {
            '"' if key => self.go(Expect::Colon),
            '"' => self.end(),
            '\\' => self.go(Expect::Escape { key }),
            '\0'..='\x1f' => Step::Wrong,
            _ => Step::More,
        }
    }

    fn escape(&mut self, key: bool, c: char) -> Step {
        match c {
            'u' => self.go(Expect::Hex { key, left: 4 }),
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => self.go(Expect::Text { key }),
            _ => Step::Wrong,
        }
    }

    fn hex(&mut self, key: bool, left: u8, c: char) -> Step {
        match (c.is_ascii_hexdigit(), left) {
            (false, _) => Step::Wrong,
            (true, 1) => self.go(Expect::Text { key }),
            (true, _) => self.go(Expect::Hex {
                key,
                left: left - 1,
            }),
        }
    }

    fn literal(&mut self, rest: &'static str, c: char) -> Step {
        match rest.strip_prefix(c) {
            None => Step::Wrong,
            Some("") => self.end(),
            Some(rest) => self.go(Expect::Literal(rest)),
        }
    }

    fn number(&mut self, state: Number, c: char) -> Step {
        use Number::{
            Exponent, ExponentDigits, ExponentSign, Fraction, Integer, Minus, Point, Zero,
        };
        let next = match (state, c) {
            (Minus, '0') => Zero,
            (Minus, '1'..='9') | (Integer, '0'..='9') => Integer,
            (Zero | Integer, '.') => Point,
            (Point | Fraction, '0'..='9') => Fraction,
            (Zero | Integer | Fraction, 'e' | 'E') => Exponent,
            (Exponent, '+' | '-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, '0'..='9') => ExponentDigits,
            (Minus | Point | Exponent | ExponentSign, _) => return Step::Wrong,
            (Zero | Integer | Fraction | ExponentDigits, _) => {
                return match self.end() {
                    Step::Last => Step::Past,
                    _ => self.feed(c),
                };
            }
        };
        self.go(Expect::Number(next))
    }
}

#[cfg(test)]
mod tests {
    use super::{Scanner, Step};

    /// Length of the value at the start of `text`, if it is whole and right.
    fn value(text: &str) -> Option<usize> {
        let mut scanner = Scanner::new();
        for (index, c) in text.char_indices() {
            match scanner.feed(c) {
                Step::More => {}
                Step::Last => return Some(index + c.len_utf8()),
                Step::Past => return Some(index),
                Step::Wrong => return None,
            }
        }
        None
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(value(&("[".repeat(64) + &"]".repeat(64))), Some(128));
        assert_eq!(value(&("[".repeat(65) + &"]".repeat(65))), None);
    }

    #[test]
    fn wrong_json_is_refused() {
        for text in [
            "{,}",
            "[1,]",
            "{\"a\":1,}",
            "{'a':1}",
            "[01]",
            "1. ",
            "-a",
            "[tru]",
            "\"\n\"",
            "\"\\x\"",
            "{\"a\" 1}",
            "[1}",
            "{\"a\":[1}}",
            "nul}",
            "1e+ ",
            "\"\\u12g4\"",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"[\[\]{}",:0-9a-e\\.+ -]{0,24}"#) {
            // In a list, since a number alone ends with whatever is not a digit.
            let text = format!("[{text}]");
            let mut values = serde_json::Deserializer::from_str(&text)
                .into_iter::<serde_json::Value>();
            let expected = match values.next() {
                Some(Ok(_)) => Some(values.byte_offset()),
                _ => None,
            };
            // A number too large for serde_json is still JSON.
            proptest::prop_assume!(!text.contains('e'));
            proptest::prop_assert_eq!(value(&text), expected);
        }
    }
}
