//! Parser for the part of Oniguruma's syntax that pre-tokenizers use: alternatives, groups, character
//! classes, greedy and lazy repetition, and lookahead for one character.
//!
//! Everything else is left to Oniguruma itself. So is what character a class matches: a class is kept as
//! source text and Oniguruma is asked about single characters.

/// Largest number of copies that a bounded repetition is unrolled to.
const REPEAT_MAX: u32 = 64;
/// Deepest nesting of groups.
const DEPTH_MAX: u32 = 32;
/// Pairs of letters that full case folding joins to one character, such as `ﬁ` and `ß`.
const FOLDED_PAIRS: [&str; 5] = ["ff", "fi", "fl", "ss", "st"];

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternNode {
    /// One character of a class, given by its source.
    Class(String),
    /// The next character must be one of a class, or, if negated, must not be; the end of the text
    /// is no character.
    Ahead { class: String, negated: bool },
    /// The start of the text.
    Start,
    /// The end of the text.
    End,
    /// All, one after the other.
    Sequence(Vec<PatternNode>),
    /// The first that leads to a match.
    Alternatives(Vec<PatternNode>),
    /// Between `min` and `max` times; without `max`, any number of times.
    Repeat {
        node: Box<PatternNode>,
        min: u32,
        max: Option<u32>,
        lazy: bool,
    },
}

impl PatternNode {
    /// Whether the node can match the empty text.
    pub(super) fn is_nullable(&self) -> bool {
        match self {
            Self::Class(_) => false,
            Self::Ahead { .. } | Self::Start | Self::End => true,
            Self::Sequence(nodes) => nodes.iter().all(Self::is_nullable),
            Self::Alternatives(nodes) => nodes.iter().any(Self::is_nullable),
            Self::Repeat { node, min, .. } => *min == 0 || node.is_nullable(),
        }
    }
}

/// Parse a pattern; `None` if it uses anything that only Oniguruma understands.
pub(super) fn parse(source: &str) -> Option<PatternNode> {
    let mut parser = Parser {
        rest: source,
        depth: 0,
    };
    let node = parser.alternatives(false)?;
    parser.rest.is_empty().then_some(node)
}

struct Parser<'s> {
    rest: &'s str,
    depth: u32,
}

impl<'s> Parser<'s> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Take the first `length` bytes.
    fn take(&mut self, length: usize) -> Option<&'s str> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn alternatives(&mut self, folded: bool) -> Option<PatternNode> {
        let mut found = vec![self.sequence(folded)?];
        while self.eat("|") {
            found.push(self.sequence(folded)?);
        }
        match found.len() {
            1 => found.pop(),
            _ => Some(PatternNode::Alternatives(found)),
        }
    }

    /// `folded`: whether letters match in either case.
    fn sequence(&mut self, folded: bool) -> Option<PatternNode> {
        let mut nodes = Vec::new();
        let mut last_letter = None;
        while !matches!(self.peek(), None | Some('|' | ')')) {
            let letter = self.peek().filter(char::is_ascii_alphabetic);
            if let (true, Some(last), Some(next)) = (folded, last_letter, letter) {
                let pair: String = [last, next].iter().collect();
                if FOLDED_PAIRS.contains(&pair.to_ascii_lowercase().as_str()) {
                    return None;
                }
            }
            last_letter = letter;
            let atom = self.atom(folded)?;
            nodes.push(self.repeated(atom, folded)?);
        }
        match nodes.len() {
            1 => nodes.pop(),
            _ => Some(PatternNode::Sequence(nodes)),
        }
    }

    fn atom(&mut self, folded: bool) -> Option<PatternNode> {
        match self.peek()? {
            '(' => self.group(folded),
            '[' => {
                let class = self.bracketed()?;
                let plain = class
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"[]-'".contains(&byte));
                match folded {
                    false => Some(PatternNode::Class(class)),
                    true if plain => Some(PatternNode::Class(format!("(?i:{class})"))),
                    true => None,
                }
            }
            '\\' if self.eat(r"\A") => Some(PatternNode::Start),
            '\\' if self.eat(r"\z") => Some(PatternNode::End),
            '\\' => {
                let class = self.escape()?;
                (!folded).then_some(PatternNode::Class(class))
            }
            '.' => {
                self.bump();
                Some(PatternNode::Class(".".to_owned()))
            }
            '*' | '+' | '?' | '{' | '}' | ']' | '^' | '$' | ')' | '|' => None,
            literal => {
                self.bump();
                match folded {
                    false => Some(PatternNode::Class(escaped(literal))),
                    true if literal.is_ascii() => {
                        Some(PatternNode::Class(format!("(?i:{})", escaped(literal))))
                    }
                    true => None,
                }
            }
        }
    }

    fn group(&mut self, folded: bool) -> Option<PatternNode> {
        self.depth += 1;
        if folded || self.depth > DEPTH_MAX {
            return None;
        }
        let negated = match (self.eat("(?!"), self.rest.starts_with("(?=")) {
            (true, _) => Some(true),
            (false, true) => Some(!self.eat("(?=")),
            (false, false) => None,
        };
        let node = if let Some(negated) = negated {
            match self.alternatives(false)? {
                PatternNode::Class(class) => PatternNode::Ahead { class, negated },
                _ => return None,
            }
        } else if self.eat("(?:") {
            self.alternatives(false)?
        } else if self.eat("(?i:") {
            self.alternatives(true)?
        } else if self.rest.starts_with("(?") || self.rest.starts_with("(*") {
            return None;
        } else {
            self.bump();
            self.alternatives(false)?
        };
        self.depth -= 1;
        self.eat(")").then_some(node)
    }

    fn repeated(&mut self, node: PatternNode, folded: bool) -> Option<PatternNode> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counted(node, folded),
            _ => return Some(node),
        };
        self.bump();
        let lazy = self.eat("?");
        // A further one would be possessive, or repeat the repetition.
        if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
            return None;
        }
        // An endless loop over nothing ends by a rule of Oniguruma's own.
        if max.is_none() && node.is_nullable() {
            return None;
        }
        Some(PatternNode::Repeat {
            node: Box::new(node),
            min,
            max,
            lazy,
        })
    }

    /// `{3}`, `{1,}`, `{1,3}`.
    fn counted(&mut self, node: PatternNode, folded: bool) -> Option<PatternNode> {
        let end = self.rest.find('}')?;
        let inside = self.take(end + 1)?.get(1..end)?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= REPEAT_MAX);
        let (min, max) = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some((min, "")) => (number(min)?, None),
            Some((min, max)) => (number(min)?, Some(number(max)?)),
        };
        let falling = max.is_some_and(|max| max < min || max == 0);
        let followed = matches!(self.peek(), Some('*' | '+' | '?' | '{'));
        if folded || falling || followed || node.is_nullable() {
            return None;
        }
        Some(PatternNode::Repeat {
            node: Box::new(node),
            min,
            max,
            lazy: false,
        })
    }

    /// A class in brackets, as source, with classes inside it.
    fn bracketed(&mut self) -> Option<String> {
        let mut depth = 0;
        let mut length = 0;
        let mut escaped = false;
        let mut opened = false;
        for character in self.rest.chars() {
            length += character.len_utf8();
            // A `]` directly behind the opening bracket stands for itself or is an error.
            let first = std::mem::replace(&mut opened, false);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => {
                    depth += 1;
                    opened = true;
                }
                '^' if first => opened = true,
                ']' if first => return None,
                ']' => {
                    depth -= 1;
                    if depth == 0 {
                        return self.take(length).map(str::to_owned);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// A backslash and what it stands for, as source.
    fn escape(&mut self) -> Option<String> {
        let mut characters = self.rest.chars().skip(1);
        let kind = characters.next()?;
        let length = match kind {
            'p' | 'P' if characters.next() == Some('{') => self.rest.find('}')? + 1,
            'x' if characters.next() == Some('{') => self.rest.find('}')? + 1,
            'u' => 6,
            's' | 'S' | 'd' | 'D' | 'w' | 'W' | 'h' | 'H' | 'r' | 'n' | 't' | 'f' | 'v' => 2,
            other if other.is_ascii_punctuation() => 2,
            _ => return None,
        };
        self.take(length).map(str::to_owned)
    }
}

/// Source of a literal character.
fn escaped(character: char) -> String {
    match character.is_ascii_punctuation() {
        true => format!("\\{character}"),
        false => character.to_string(),
    }
}
