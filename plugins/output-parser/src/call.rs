//! Reads one tool call, `{"name": …, "arguments": {…}}`, as it arrives.

use std::mem;

use crate::json_scan::{Scanner, Step};
use crate::unwrap::{Unwrapped, Unwrapper};

/// Characters of a key or a name; longer ones are no calls.
const MAX_NAME_CHARS: usize = 256;

/// What is known about calls before one is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// Names that may be called.
    pub(crate) names: &'a [String],
    /// Any key besides those of a call shows that this is not one.
    pub(crate) known_keys_only: bool,
}

/// Something learnt about the call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is a call. Comes once and first.
    Begin {
        /// The id that the model gave.
        id: Option<String>,
        /// A name from the rules.
        name: String,
    },
    /// More of the arguments.
    Arguments(String),
    /// The arguments are complete.
    End,
}

/// What a character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It belongs to the object, which goes on.
    More,
    /// It ended the object, which is a call.
    Done,
    /// The object is not a call, or no longer JSON. The character was not taken.
    Refused,
}

/// What the value of a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Id,
    Other,
}

#[derive(Debug)]
enum State {
    Open,
    FirstKey,
    NextKey,
    /// A string up to its closing quote, as written.
    Text {
        raw: String,
        escaped: bool,
        then: Then,
    },
    Colon(Field),
    Value(Field),
    Skipped(Scanner),
    Arguments(Scanner),
    Wrapped {
        text: Unwrapper,
        inside: Inside,
    },
    AfterValue,
}

/// What a string that was read is.
#[derive(Debug, Clone, Copy)]
enum Then {
    Key,
    Name,
    Id,
}

/// How far arguments inside a string have come.
#[derive(Debug)]
enum Inside {
    Before,
    Object(Scanner),
    After,
}

/// A call being read.
#[derive(Debug)]
pub(crate) struct CallReader {
    state: State,
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name.
    early: String,
    started: bool,
    finished: bool,
    begun: bool,
}

impl CallReader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Open,
            name: None,
            id: None,
            early: String::new(),
            started: false,
            finished: false,
            begun: false,
        }
    }

    /// Whether [`Part::Begin`] was given out.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Take the next character; what was learnt goes to `parts`.
    pub(crate) fn feed(&mut self, c: char, rules: Rules<'_>, parts: &mut Vec<Part>) -> Progress {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match mem::replace(&mut self.state, State::AfterValue) {
            State::Text { raw, escaped, then } => self.text(raw, escaped, then, c, rules, parts),
            State::Skipped(scanner) => self.skipped(scanner, c, rules, parts),
            State::Arguments(scanner) => self.arguments(scanner, c, parts),
            State::Wrapped { text, inside } => self.wrapped(text, inside, c, parts),
            state if space => self.go(state),
            State::Value(field) => self.value(field, c, parts),
            State::Open if c == '{' => self.go(State::FirstKey),
            State::FirstKey | State::NextKey if c == '"' => self.start_text(Then::Key),
            State::FirstKey | State::AfterValue if c == '}' => self.close(parts),
            State::Colon(field) if c == ':' => self.go(State::Value(field)),
            State::AfterValue if c == ',' => self.go(State::NextKey),
            _ => Progress::Refused,
        }
    }

    fn go(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::More
    }

    fn start_text(&mut self, then: Then) -> Progress {
        self.go(State::Text {
            raw: String::new(),
            escaped: false,
            then,
        })
    }

    fn text(
        &mut self,
        mut raw: String,
        escaped: bool,
        then: Then,
        c: char,
        rules: Rules<'_>,
        parts: &mut Vec<Part>,
    ) -> Progress {
        if c == '"' && !escaped {
            return match serde_json::from_str(&format!("\"{raw}\"")) {
                Ok(text) => self.named(text, then, rules, parts),
                Err(_) => Progress::Refused,
            };
        }
        raw.push(c);
        if raw.len() > MAX_NAME_CHARS {
            return Progress::Refused;
        }
        self.go(State::Text {
            raw,
            escaped: c == '\\' && !escaped,
            then,
        })
    }

    /// A key, the name or the id is complete.
    fn named(
        &mut self,
        text: String,
        then: Then,
        rules: Rules<'_>,
        parts: &mut Vec<Part>,
    ) -> Progress {
        match then {
            Then::Key => {
                let field = match text.as_str() {
                    "name" => Field::Name,
                    "arguments" | "parameters" => Field::Arguments,
                    "id" => Field::Id,
                    "type" => Field::Other,
                    _ if rules.known_keys_only => return Progress::Refused,
                    _ => Field::Other,
                };
                let twice = match field {
                    Field::Name => self.name.is_some(),
                    Field::Arguments => self.started,
                    Field::Id | Field::Other => false,
                };
                if twice {
                    return Progress::Refused;
                }
                self.go(State::Colon(field))
            }
            Then::Name => {
                if !rules.names.contains(&text) {
                    return Progress::Refused;
                }
                self.name = Some(text);
                self.begin(parts);
                self.go(State::AfterValue)
            }
            Then::Id => {
                self.id = Some(text);
                self.go(State::AfterValue)
            }
        }
    }

    fn value(&mut self, field: Field, c: char, parts: &mut Vec<Part>) -> Progress {
        match (field, c) {
            (Field::Name, '"') => self.start_text(Then::Name),
            (Field::Id, '"') => self.start_text(Then::Id),
            (Field::Arguments, '{') => {
                self.started = true;
                self.begin(parts);
                self.arguments(Scanner::new(), c, parts)
            }
            (Field::Arguments, '"') => self.go(State::Wrapped {
                text: Unwrapper::default(),
                inside: Inside::Before,
            }),
            // Null stands for no arguments; other values are refused when they end.
            (Field::Arguments, 'n') | (Field::Id | Field::Other, _) => {
                let mut scanner = Scanner::new();
                match scanner.feed(c) {
                    Step::More => self.go(State::Skipped(scanner)),
                    _ => Progress::Refused,
                }
            }
            (Field::Name | Field::Arguments, _) => Progress::Refused,
        }
    }

    fn skipped(
        &mut self,
        mut scanner: Scanner,
        c: char,
        rules: Rules<'_>,
        parts: &mut Vec<Part>,
    ) -> Progress {
        match scanner.feed(c) {
            Step::More => self.go(State::Skipped(scanner)),
            Step::Last => self.go(State::AfterValue),
            Step::Past => {
                self.state = State::AfterValue;
                self.feed(c, rules, parts)
            }
            Step::Wrong => Progress::Refused,
        }
    }

    fn arguments(&mut self, mut scanner: Scanner, c: char, parts: &mut Vec<Part>) -> Progress {
        let step = scanner.feed(c);
        if matches!(step, Step::Wrong | Step::Past) {
            return Progress::Refused;
        }
        self.push_argument(c, parts);
        if step == Step::Last {
            self.finish(parts);
            return self.go(State::AfterValue);
        }
        self.go(State::Arguments(scanner))
    }

    fn wrapped(
        &mut self,
        mut text: Unwrapper,
        inside: Inside,
        c: char,
        parts: &mut Vec<Part>,
    ) -> Progress {
        let inside = match (text.feed(c), inside) {
            (Unwrapped::Nothing, inside) => inside,
            (Unwrapped::End, Inside::Before | Inside::After) => return self.go(State::AfterValue),
            (Unwrapped::Character(c), inside) => match self.inside(inside, c, parts) {
                Some(inside) => inside,
                None => return Progress::Refused,
            },
            (Unwrapped::End | Unwrapped::Wrong, _) => return Progress::Refused,
        };
        self.go(State::Wrapped { text, inside })
    }

    fn inside(&mut self, inside: Inside, c: char, parts: &mut Vec<Part>) -> Option<Inside> {
        let mut scanner = match inside {
            Inside::Before | Inside::After if c.is_ascii_whitespace() => return Some(inside),
            Inside::After => return None,
            Inside::Before if c != '{' => return None,
            Inside::Before => {
                self.started = true;
                self.begin(parts);
                Scanner::new()
            }
            Inside::Object(scanner) => scanner,
        };
        match scanner.feed(c) {
            Step::More => {
                self.push_argument(c, parts);
                Some(Inside::Object(scanner))
            }
            Step::Last => {
                self.push_argument(c, parts);
                self.finish(parts);
                Some(Inside::After)
            }
            Step::Past | Step::Wrong => None,
        }
    }

    /// Say that this is a call, once both its name and the start of its arguments are there.
    fn begin(&mut self, parts: &mut Vec<Part>) {
        if self.begun || !self.started {
            return;
        }
        let Some(name) = self.name.clone() else {
            return;
        };
        self.begun = true;
        parts.push(Part::Begin {
            id: self.id.take(),
            name,
        });
        if !self.early.is_empty() {
            parts.push(Part::Arguments(mem::take(&mut self.early)));
        }
        if self.finished {
            parts.push(Part::End);
        }
    }

    fn push_argument(&mut self, c: char, parts: &mut Vec<Part>) {
        if !self.begun {
            self.early.push(c);
        } else if let Some(Part::Arguments(text)) = parts.last_mut() {
            text.push(c);
        } else {
            parts.push(Part::Arguments(c.to_string()));
        }
    }

    fn finish(&mut self, parts: &mut Vec<Part>) {
        self.finished = true;
        if self.begun {
            parts.push(Part::End);
        }
    }

    /// The object has ended. A call without arguments has empty ones.
    fn close(&mut self, parts: &mut Vec<Part>) -> Progress {
        if self.name.is_none() {
            return Progress::Refused;
        }
        if !self.started {
            self.started = true;
            self.early.push_str("{}");
            self.finished = true;
        }
        self.begin(parts);
        Progress::Done
    }
}
