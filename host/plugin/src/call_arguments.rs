//! Arguments of tool calls, as models write them: whether a client can use them, and what can be mended.

use serde_json::Value;

/// Nesting of arguments that are passed on, as the readers of the SDK have it.
const MAX_ARGUMENT_DEPTH: usize = 64;

/// Usability of the arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// The arguments are a JSON object that every client reads.
    Usable,
    /// The arguments can mean but one thing, and are this JSON object.
    Mended(String),
    /// The text is not arguments, and the call is text.
    Unusable,
}

impl Arguments {
    /// Judge the text of a call's arguments. Mended are control characters inside strings, commas before the end of a list
    /// or object, an object that is written as a string, and arguments that are left out or `null`. `NaN`, numbers beyond
    /// those of a double, halves of surrogates, nesting over 64 levels and texts that break off are not.
    pub fn of(text: &str) -> Self {
        match text.trim() {
            "" | "null" => return Self::Mended("{}".to_owned()),
            _ if is_object(text) => return Self::Usable,
            _ => {}
        }
        let mended = mended(text);
        if is_object(&mended) {
            return Self::Mended(mended);
        }
        match serde_json::from_str(&mended) {
            Ok(Value::String(inner)) if is_object(&inner) => Self::Mended(inner),
            _ => Self::Unusable,
        }
    }
}

/// The text in place of a call whose arguments nobody can use.
pub fn call_as_text(name: &str, arguments: &str) -> String {
    format!("(A call of the tool `{name}` whose arguments are no JSON object:)\n{arguments}")
}

/// Reader of the structure of JSON, whatever the values are: strings, and how deep brackets are nested.
#[derive(Debug, Default, Clone, Copy)]
pub struct Nesting {
    in_string: bool,
    escaped: bool,
    depth: usize,
    deepest: usize,
}

impl Nesting {
    /// Take the next character.
    pub fn feed(&mut self, c: char) {
        match (self.in_string, c) {
            (true, _) if self.escaped => self.escaped = false,
            (true, '\\') => self.escaped = true,
            (_, '"') => self.in_string = !self.in_string,
            (false, '{' | '[') => {
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
            }
            (false, '}' | ']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Whether all brackets are closed, and there were any.
    pub fn is_closed(&self) -> bool {
        !self.in_string && self.depth == 0 && self.deepest > 0
    }
}

/// Whether a text is a JSON object that is not nested too deep.
fn is_object(text: &str) -> bool {
    let mut nesting = Nesting::default();
    text.chars().for_each(|c| nesting.feed(c));
    // The parser refuses numbers that no double has, and halves of surrogates.
    nesting.deepest <= MAX_ARGUMENT_DEPTH
        && matches!(serde_json::from_str(text), Ok(Value::Object(_)))
}

/// A text with control characters inside strings escaped, and without commas before the end of a list or object.
fn mended(text: &str) -> String {
    let mut nesting = Nesting::default();
    let mut mended = String::with_capacity(text.len());
    // A comma behind a value, and the blanks behind it, until it is known what follows.
    let mut held = String::new();
    let mut last = ' ';
    for c in text.chars() {
        if nesting.in_string && c < ' ' && !nesting.escaped {
            mended.push_str(&format!("\\u{:04x}", u32::from(c)));
            continue;
        }
        let blank = matches!(c, ' ' | '\t' | '\n' | '\r') && !nesting.in_string;
        if blank && !held.is_empty() {
            held.push(c);
            continue;
        }
        if !blank && !held.is_empty() {
            let without_comma = usize::from(matches!(c, ']' | '}'));
            mended.push_str(&held[without_comma..]);
            held.clear();
        }
        nesting.feed(c);
        if c == ',' && !nesting.in_string && !matches!(last, ',' | '{' | '[' | ':') {
            held.push(c);
        } else {
            mended.push(c);
        }
        if !blank {
            last = c;
        }
    }
    mended.push_str(&held);
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nested lists below one object.
    fn nested(depth: usize) -> String {
        let lists = depth - 1;
        format!("{{\"a\":{}{}}}", "[".repeat(lists), "]".repeat(lists))
    }

    #[test]
    fn what_every_client_reads_is_passed_on_as_it_is() {
        for text in [
            "{}",
            " {\"a\": [1, 2.5e3, null, \"\\ud83d\\ude00\"]}\n",
            "{\"a\":\",}\",\"b\":\"[,]\"}",
            &nested(64),
        ] {
            assert_eq!(Arguments::of(text), Arguments::Usable, "{text}");
        }
    }

    #[test]
    fn what_can_mean_but_one_thing_is_mended() {
        for (text, object) in [
            ("", "{}"),
            (" \n", "{}"),
            ("null", "{}"),
            (
                "{\"a\":\"x\ny\t\u{1}\"}",
                "{\"a\":\"x\\u000ay\\u0009\\u0001\"}",
            ),
            ("{\"a\":[1,2,],}", "{\"a\":[1,2]}"),
            ("{\"a\":{\"b\":\"c\", } , }", "{\"a\":{\"b\":\"c\" }  }"),
            ("\"{\\\"a\\\": 1}\"", "{\"a\": 1}"),
        ] {
            let mended = Arguments::Mended(object.to_owned());
            assert_eq!(Arguments::of(text), mended, "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_call() {
        for text in [
            "{\"a\":NaN}",
            "{\"a\":Infinity}",
            "{\"a\":1e9999}",
            "{\"a\":-1e400}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\\udc00\\ud800\"}",
            "{\"a\":\"x",
            "{\"a\":1",
            "{\"a\":1}}",
            "{\"a\":1}{\"b\":2}",
            "{\"a\":1} and so on",
            "{,}",
            "{\"a\":[,]}",
            "{\"a\":1,,}",
            "{\"a\":,}",
            "{'a':1}",
            "{\u{1}\"a\":1}",
            "{\"a\\\n\":1}",
            "[]",
            "7",
            "\"text\"",
            "\"\\\"{}\\\"\"",
            &nested(65),
            &nested(5000),
        ] {
            assert_eq!(Arguments::of(text), Arguments::Unusable, "{text}");
        }
    }
}
