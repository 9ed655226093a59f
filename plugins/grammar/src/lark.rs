//! References between the rules of a Lark grammar: as much of llguidance's dialect as that takes.

use std::collections::HashMap;

use serde_json::Value;

/// The references of a grammar. Those of grammars within it count as its own.
#[derive(Debug, Default)]
pub(crate) struct Rules<'a> {
    /// For each rule or terminal the names in it, each with the groups around it.
    pub(crate) references: HashMap<&'a str, Vec<(&'a str, usize)>>,
    /// The JSON schemas in it.
    pub(crate) schemas: Vec<Value>,
}

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    /// A sign, alone.
    Sign(u8),
    /// `::`
    DoubleColon,
    Json(Value),
}

impl<'a> Rules<'a> {
    /// Read a grammar. Of one that is none, what is read does not matter: llguidance refuses it.
    pub(crate) fn read(text: &'a str) -> Self {
        let tokens: Vec<Token<'a>> = Scanner {
            text,
            at: 0,
            json: 0..0,
        }
        .collect();
        let mut rules = Self::default();
        let (mut rule, mut groups) = (None, 0usize);
        for (index, token) in tokens.iter().enumerate() {
            match token {
                Token::Name(name) if is_head(&tokens[index + 1..]) => {
                    groups = 0;
                    rule = Some(*name);
                    rules.references.entry(name).or_default();
                }
                Token::Name(name) => {
                    // What stands before the first rule is not followed by its names.
                    if let Some(references) = rule.and_then(|rule| rules.references.get_mut(rule)) {
                        references.push((name, groups));
                    }
                }
                Token::Sign(b'(' | b'[') => groups += 1,
                Token::Sign(b')' | b']') => groups = groups.saturating_sub(1),
                Token::Sign(_) | Token::DoubleColon | Token::Json(_) => {}
            }
        }
        rules.schemas = tokens
            .into_iter()
            .filter_map(|token| match token {
                Token::Json(value) => Some(value),
                _ => None,
            })
            .collect();
        rules
    }
}

/// The JSON schemas in a grammar, with where they stand.
pub(crate) fn schemas(text: &str) -> Vec<(std::ops::Range<usize>, Value)> {
    let mut scanner = Scanner {
        text,
        at: 0,
        json: 0..0,
    };
    let mut found = Vec::new();
    while let Some(token) = scanner.next() {
        if let Token::Json(value @ (Value::Object(_) | Value::Bool(_))) = token
            && text[..scanner.json.start].trim_end().ends_with("%json")
        {
            found.push((scanner.json.clone(), value));
        }
    }
    found
}

/// Whether this, after a name, makes it the name of a rule: a colon, and before it perhaps `::_`,
/// `{parameters}`, `.priority` and `[attributes]`.
fn is_head(mut rest: &[Token<'_>]) -> bool {
    if let [Token::DoubleColon, Token::Sign(b'_'), after @ ..] = rest {
        rest = after;
    }
    rest = behind_list(rest, b'{', b'}');
    if let [Token::Sign(b'.'), after @ ..] = rest {
        let number = after.iter().position(|token| !is_number(token));
        rest = &after[number.unwrap_or(after.len())..];
    }
    rest = behind_list(rest, b'[', b']');
    rest.first() == Some(&Token::Sign(b':'))
}

fn is_number(token: &Token<'_>) -> bool {
    matches!(token, Token::Sign(b'0' | b'+' | b'-'))
}

/// Rest behind a list in these brackets, if one is here. Groups of a rule look alike, and have no commas
/// between names.
fn behind_list<'r, 'a>(rest: &'r [Token<'a>], open: u8, close: u8) -> &'r [Token<'a>] {
    if rest.first() != Some(&Token::Sign(open)) {
        return rest;
    }
    let mut after_name = false;
    for (index, token) in rest.iter().enumerate().skip(1) {
        match token {
            Token::Sign(sign) if *sign == close => return &rest[index + 1..],
            Token::Name(_) if after_name => break,
            Token::Sign(b'=' | b',') | Token::Name(_) | Token::Json(_) => {}
            token if is_number(token) => {}
            _ => break,
        }
        after_name = matches!(token, Token::Name(_));
    }
    rest
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Range of the last JSON value in the text.
    json: std::ops::Range<usize>,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Go on to behind what `is` finds at the start, and return it.
    fn take(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Go on to behind the next `end` that no backslash precedes.
    fn skip_quoted(&mut self, end: char) {
        let mut escaped = false;
        for (index, c) in self.rest().char_indices().skip(1) {
            if c == end && !escaped {
                self.at += index + 1;
                return;
            }
            escaped = c == '\\' && !escaped;
        }
        self.at = self.text.len();
    }

    /// A JSON value, and what comes behind it.
    fn json(&mut self) -> Option<Value> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
        let value = values.next()?.ok()?;
        let start = self.at;
        self.at += values.byte_offset();
        self.json = start..self.at;
        Some(value)
    }

    /// A name begins here: that of a rule has small letters, that of a terminal capital ones.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let letter = rest.strip_prefix('_').unwrap_or(rest).chars().next()?;
        let start = self.at;
        match letter {
            'a'..='z' => {
                self.take(|c| matches!(c, '_' | '-' | 'a'..='z' | '0'..='9'));
            }
            'A'..='Z' => {
                self.take(|c| matches!(c, '_' | '-' | 'A'..='Z' | '0'..='9'));
            }
            _ => return None,
        }
        Some(&self.text[start..self.at])
    }
}

impl<'a> Iterator for Scanner<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            self.take(|c| c.is_ascii_whitespace());
            let rest = self.rest();
            let first = *rest.as_bytes().first()?;
            if let Some(name) = self.name() {
                return Some(Token::Name(name));
            }
            match first {
                b'#' => drop(self.take(|c| c != '\n')),
                b'/' if rest.starts_with("//") => drop(self.take(|c| c != '\n')),
                b'/' => {
                    self.skip_quoted('/');
                    self.take(|c| "imslux".contains(c));
                }
                b'"' => {
                    self.skip_quoted('"');
                    // A flag, as far as it looks like one.
                    self.at += usize::from(self.rest().starts_with('i'));
                }
                b'<' => match rest.find(|c: char| c == '>' || c.is_ascii_whitespace()) {
                    Some(end) => self.at += end + 1,
                    None => self.at = self.text.len(),
                },
                b'@' => {
                    self.at += 1;
                    self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                }
                b'%' => {
                    self.at += 1;
                    let keyword = self.take(|c| c.is_ascii_lowercase());
                    let with_json = ["json", "regex", "llguidance"].contains(&keyword);
                    if with_json && let Some(value) = self.json() {
                        return Some(Token::Json(value));
                    }
                }
                b'0'..=b'9' => {
                    self.take(|c| c.is_ascii_digit());
                    return Some(Token::Sign(b'0'));
                }
                b':' if rest.starts_with("::") => {
                    self.at += 2;
                    return Some(Token::DoubleColon);
                }
                sign => {
                    self.at += rest.chars().next().map_or(1, char::len_utf8);
                    return Some(Token::Sign(sign));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references<'a>(rules: &'a Rules<'_>, name: &str) -> Vec<(&'a str, usize)> {
        rules.references.get(name).cloned().unwrap_or_default()
    }

    #[test]
    fn references_are_found_wherever_they_stand() {
        let rules = Rules::read(
            "?start: a (B [c])* // x y\n | \"d\" \"\\\"e\"i /f\\/g/imx <h> @i -> x A: /j/ b\n\
             a[stop=B, capture]: %json {\"k\": {\"l\": 1}} b{2,3}\n\
             # m: n\nb::_: c::incr(_) %if is_ones([0:4])\n!_c.1: aB\n%import common.INT\n",
        );
        assert_eq!(
            references(&rules, "start"),
            [("a", 0), ("B", 1), ("c", 2), ("x", 0)]
        );
        assert_eq!(references(&rules, "A"), [("b", 0)]);
        let in_a: Vec<&str> = references(&rules, "a")
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(in_a, ["stop", "B", "capture", "b"]);
        assert_eq!(rules.schemas, [serde_json::json!({"k": {"l": 1}})]);
        assert!(references(&rules, "b").contains(&("c", 0)));
        assert_eq!(references(&rules, "_c")[..2], [("a", 0), ("B", 0)]);
        assert_eq!(rules.references.len(), 5, "{rules:?}");
    }

    #[test]
    fn any_text_can_be_read() {
        for text in [
            "", "\"", "/", "<", "%json", "%json {", "a:", "é: ü", "a[", "a.", "::", "a::",
        ] {
            let _ = Rules::read(text);
        }
    }
}
