//! GBNF as it is read. A rule ends where the head of the next one begins, so alternatives may stand on lines of their own.

use std::collections::HashMap;

use super::chars::{Ranges, complement, joined};
use super::limits::{MAX_DEPTH, MAX_ELEMENTS, MAX_REPETITION, MAX_RULES};

/// Signs of repetition behind one element.
const MAX_SIGNS: usize = 4;

/// Part of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RuleNode {
    Literal(String),
    /// One character; at least one range.
    Class(Ranges),
    /// The rule of this number.
    Rule(usize),
    /// A control token, as Lark writes it.
    Token(String),
    Seq(Vec<RuleNode>),
    Alt(Vec<RuleNode>),
    Repeat {
        node: Box<RuleNode>,
        min: u32,
        /// At least `min`.
        max: Option<u32>,
    },
}

/// A grammar whose references lead to rules.
#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) bodies: Vec<RuleNode>,
    pub(super) root: usize,
}

pub(super) fn begins_with_rule(text: &str) -> bool {
    let mut reader = Reader::new(text);
    reader.space();
    reader.is_head()
}

impl Grammar {
    /// # Errors
    /// With the reason and the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader::new(text);
        let mut bodies: Vec<Option<RuleNode>> = Vec::new();
        loop {
            reader.space();
            if reader.rest.is_empty() {
                break;
            }
            if !reader.is_head() {
                return Err(reader.wrong("a rule, `name ::= …`, is expected"));
            }
            let name = reader.name().to_owned();
            reader.space();
            reader.take("::=");
            let rule = reader.rule(&name)?;
            let body = reader.alternatives(0)?;
            bodies.resize(reader.rules.len(), None);
            if bodies[rule].replace(body).is_some() {
                return Err(reader.wrong(&format!("the rule `{name}` is given twice")));
            }
        }
        let Some(&root) = reader.rules.get("root") else {
            return Err("the grammar has no rule `root`".to_owned());
        };
        let missing = |rule: usize| {
            let mut names = reader.rules.iter();
            let name = names.find(|(_, index)| **index == rule);
            let name = name.map_or("", |(name, _)| name.as_str());
            format!("the grammar has no rule `{name}`")
        };
        let bodies: Result<Vec<RuleNode>, String> = bodies
            .into_iter()
            .enumerate()
            .map(|(rule, body)| body.ok_or_else(|| missing(rule)))
            .collect();
        Ok(Self {
            bodies: bodies?,
            root,
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    rules: HashMap<String, usize>,
    elements: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            rest: text,
            rules: HashMap::new(),
            elements: 0,
        }
    }

    fn wrong(&self, message: &str) -> String {
        let read = &self.text[..self.text.len() - self.rest.len()];
        let line = read.matches('\n').count() + 1;
        format!("line {line} of the GBNF grammar: {message}")
    }

    /// Pass over blanks, line breaks and comments.
    fn space(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> &'a str {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name
    }

    /// Tells whether a rule begins here.
    fn is_head(&self) -> bool {
        let mut ahead = Self::new(self.rest);
        if ahead.name().is_empty() {
            return false;
        }
        ahead.rest = ahead.rest.trim_start();
        ahead.rest.starts_with("::=")
    }

    fn rule(&mut self, name: &str) -> Result<usize, String> {
        let next = self.rules.len();
        if let Some(&rule) = self.rules.get(name) {
            return Ok(rule);
        }
        if next == MAX_RULES {
            return Err(format!("the grammar has more than {MAX_RULES} rules"));
        }
        self.rules.insert(name.to_owned(), next);
        Ok(next)
    }

    fn alternatives(&mut self, depth: usize) -> Result<RuleNode, String> {
        let mut all = vec![self.sequence(depth)?];
        while self.take("|") {
            all.push(self.sequence(depth)?);
        }
        Ok(match <[RuleNode; 1]>::try_from(all) {
            Ok([only]) => only,
            Err(all) => RuleNode::Alt(all),
        })
    }

    fn sequence(&mut self, depth: usize) -> Result<RuleNode, String> {
        let mut parts = Vec::new();
        loop {
            self.space();
            match self.peek() {
                None | Some('|') => break,
                Some(')') if depth > 0 => break,
                Some(_) if self.is_head() => break,
                Some(_) => {
                    let mut part = self.element(depth)?;
                    let mut signs = 0;
                    while let Some((min, max)) = self.repetition()? {
                        signs += 1;
                        if signs > MAX_SIGNS {
                            return Err(self.wrong("too many repetitions behind each other"));
                        }
                        part = RuleNode::Repeat {
                            node: Box::new(part),
                            min,
                            max,
                        };
                    }
                    parts.push(part);
                }
            }
        }
        Ok(match <[RuleNode; 1]>::try_from(parts) {
            Ok([only]) => only,
            Err(parts) => RuleNode::Seq(parts),
        })
    }

    fn element(&mut self, depth: usize) -> Result<RuleNode, String> {
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            let message = format!("the grammar has more than {MAX_ELEMENTS} elements");
            return Err(message);
        }
        match self.peek() {
            Some('"') => self.literal(),
            Some('[') => self.class(),
            Some('.') => {
                self.next();
                Ok(RuleNode::Class(complement(&Vec::new())))
            }
            Some('(') => self.group(depth),
            Some('<') => self.token(),
            Some('!') => Err(self.wrong("`!` before a token is not supported")),
            _ => match self.name() {
                "" => {
                    let found = self.peek().unwrap_or(' ');
                    Err(self.wrong(&format!("`{found}` is not expected")))
                }
                name => Ok(RuleNode::Rule(self.rule(name)?)),
            },
        }
    }

    fn group(&mut self, depth: usize) -> Result<RuleNode, String> {
        self.next();
        if self.rest.starts_with('?') {
            return Err(self.wrong("look-ahead is not supported"));
        }
        if depth == MAX_DEPTH {
            return Err(self.wrong(&format!("groups are nested deeper than {MAX_DEPTH}")));
        }
        let inner = self.alternatives(depth + 1)?;
        match self.take(")") {
            true => Ok(inner),
            false => Err(self.wrong("`)` is missing")),
        }
    }

    /// `<[12]>` or `<name>`.
    fn token(&mut self) -> Result<RuleNode, String> {
        let end = self.rest.find('>').filter(|end| {
            let inner = &self.rest[1..*end];
            !inner.is_empty() && !inner.contains(char::is_whitespace)
        });
        let Some(end) = end else {
            return Err(self.wrong("`<` begins a token, and `>` does not end it"));
        };
        let (token, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        Ok(RuleNode::Token(token.to_owned()))
    }

    fn literal(&mut self) -> Result<RuleNode, String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.wrong("a text has no end")),
                Some('"') => {
                    self.next();
                    return Ok(RuleNode::Literal(text));
                }
                Some(_) => text.push(self.character()?),
            }
        }
    }

    fn class(&mut self) -> Result<RuleNode, String> {
        self.next();
        let negated = self.take("^");
        let mut ranges = Ranges::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.wrong("a class has no end")),
                Some(']') => {
                    self.next();
                    break;
                }
                Some(_) => {
                    let from = u32::from(self.character()?);
                    let ranged = self.rest.starts_with('-') && !self.rest.starts_with("-]");
                    let to = match ranged {
                        true => {
                            self.next();
                            u32::from(self.character()?)
                        }
                        false => from,
                    };
                    if to < from {
                        return Err(self.wrong("a range ends before it begins"));
                    }
                    self.elements += 1;
                    ranges.push((from, to));
                }
            }
        }
        let ranges = joined(ranges);
        let ranges = match negated {
            true => complement(&ranges),
            false => ranges,
        };
        match ranges.is_empty() || self.elements > MAX_ELEMENTS {
            true => Err(self.wrong("a class is empty or too large")),
            false => Ok(RuleNode::Class(ranges)),
        }
    }

    /// A character, perhaps escaped.
    fn character(&mut self) -> Result<char, String> {
        let c = self.next().unwrap_or_default();
        if c != '\\' {
            return Ok(c);
        }
        let escape = self.next();
        let digits = match escape {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) if c.is_ascii_punctuation() => return Ok(c),
            _ => return Err(self.wrong("`\\` stands before something that is no escape")),
        };
        let number = self.rest.get(..digits);
        let number = number.filter(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
        let code = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.rest = &self.rest[digits..];
                Ok(c)
            }
            None => Err(self.wrong("an escape is no character")),
        }
    }

    /// Repetition behind an element, if there is one.
    fn repetition(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let times = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counts().map(Some),
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(times))
    }

    /// `{2}`, `{2,}`, `{,3}` or `{2,3}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), String> {
        self.next();
        let inner = self.rest.split_once('}');
        let Some((inner, rest)) = inner else {
            return Err(self.wrong("`}` is missing"));
        };
        self.rest = rest;
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let counts = match inner.split_once(',') {
            None => number(inner).map(|times| (times, Some(times))),
            Some((min, max)) => {
                let min = match min.trim() {
                    "" => Some(0),
                    min => number(min),
                };
                let max = match max.trim() {
                    "" => Some(None),
                    max => number(max).map(Some),
                };
                min.zip(max)
            }
        };
        match counts {
            Some((min, max)) if max.unwrap_or(min) >= min => {
                match max.unwrap_or(min) <= MAX_REPETITION {
                    true => Ok((min, max)),
                    false => Err(self.wrong(&format!(
                        "a part is repeated more than {MAX_REPETITION} times"
                    ))),
                }
            }
            _ => Err(self.wrong("a number of repetitions is expected, such as {2,3}")),
        }
    }
}
