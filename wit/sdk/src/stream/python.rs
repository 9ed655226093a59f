//! Readers of calls that are written as Python: `[weather(city="Bonn", days=3)]`.

use std::pin::Pin;

use serde_json::Value;

use super::{MAX_DEPTH, MAX_NAME_BYTES, Text};

/// Reading at some depth: literals nest, and futures that hold themselves must be boxed.
type Nested<'a> = Pin<Box<dyn Future<Output = Option<()>> + 'a>>;

impl Text {
    /// Read a list of calls in brackets, `[f(a=1), g()]`. `None` if the first thing that is no call of
    /// a declared tool comes before the end.
    pub async fn python_calls(&mut self) -> Option<()> {
        self.symbol('[').await?;
        loop {
            self.python_call().await?;
            if self.symbol(',').await.is_none() {
                self.symbol(']').await?;
                self.drop_held();
                return Some(());
            }
            if self.symbol(']').await.is_some() {
                self.drop_held();
                return Some(());
            }
        }
    }

    /// Read one call with named arguments, `f(a=1, b='x')`. `None` if it is no call of a declared tool,
    /// or has arguments without names, which no schema can be asked about.
    pub async fn python_call(&mut self) -> Option<()> {
        self.python_call_as(|name| name).await
    }

    /// Read one call as [`Self::python_call`] does, where `tool` cuts the tool's name out of what is called.
    pub(crate) async fn python_call_as(&mut self, tool: fn(&str) -> &str) -> Option<()> {
        let name = tool(&self.identifier().await?).to_owned();
        self.tools().get(&name)?;
        self.symbol('(').await?;
        let mut arguments = String::from("{");
        let mut keys: Vec<String> = Vec::new();
        while self.symbol(')').await.is_none() {
            if !keys.is_empty() {
                self.symbol(',').await?;
                // A comma may stand before the end.
                if self.symbol(')').await.is_some() {
                    break;
                }
                arguments.push_str(", ");
            }
            let key = self.identifier().await?;
            if keys.contains(&key) {
                return None;
            }
            self.symbol('=').await?;
            arguments.push_str(&Value::from(key.as_str()).to_string());
            arguments.push_str(": ");
            keys.push(key);
            self.python_literal(&mut arguments, MAX_DEPTH).await?;
        }
        arguments.push('}');
        self.call(&name, None, &arguments)
    }

    /// Read one literal; its value as JSON text. `None` for what is none.
    pub async fn python_value(&mut self) -> Option<String> {
        let mut json = String::new();
        self.python_literal(&mut json, MAX_DEPTH).await?;
        Some(json)
    }

    /// A name, with dots in it or not.
    pub(crate) async fn identifier(&mut self) -> Option<String> {
        self.space().await;
        let mut name = String::new();
        while let Some(c) = self.peek().await {
            let fits = c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
            if !fits || (name.is_empty() && c.is_numeric()) {
                break;
            }
            name.push(c);
            self.next().await;
            if name.len() > MAX_NAME_BYTES {
                return None;
            }
        }
        (!name.is_empty()).then_some(name)
    }

    /// Read a literal, and append it to `json` as JSON. `None` for what is none: names, calls,
    /// operators, sets, f-strings.
    fn python_literal<'a>(&'a mut self, json: &'a mut String, depth: usize) -> Nested<'a> {
        Box::pin(async move {
            let inner = depth.checked_sub(1)?;
            self.space().await;
            match self.peek().await? {
                '\'' | '"' => self.python_string(json).await,
                '[' => self.python_list(']', json, inner).await,
                '(' => self.python_list(')', json, inner).await,
                '{' => self.python_dict(json, inner).await,
                '0'..='9' | '-' | '+' | '.' => self.python_number(json).await,
                _ => {
                    json.push_str(match self.identifier().await?.as_str() {
                        "True" | "true" => "true",
                        "False" | "false" => "false",
                        "None" | "null" => "null",
                        _ => return None,
                    });
                    Some(())
                }
            }
        })
    }

    async fn python_list(&mut self, close: char, json: &mut String, depth: usize) -> Option<()> {
        self.next().await;
        json.push('[');
        let mut first = true;
        while self.symbol(close).await.is_none() {
            if !first {
                self.symbol(',').await?;
                if self.symbol(close).await.is_some() {
                    break;
                }
                json.push_str(", ");
            }
            first = false;
            self.python_literal(json, depth).await?;
        }
        json.push(']');
        Some(())
    }

    async fn python_dict(&mut self, json: &mut String, depth: usize) -> Option<()> {
        self.next().await;
        json.push('{');
        let mut first = true;
        while self.symbol('}').await.is_none() {
            if !first {
                self.symbol(',').await?;
                if self.symbol('}').await.is_some() {
                    break;
                }
                json.push_str(", ");
            }
            first = false;
            self.space().await;
            self.python_string(json).await?;
            self.symbol(':').await?;
            json.push_str(": ");
            self.python_literal(json, depth).await?;
        }
        json.push('}');
        Some(())
    }

    async fn python_number(&mut self, json: &mut String) -> Option<()> {
        let mut text = String::new();
        while let Some(c) = self.peek().await {
            // A sign stands at the beginning or in an exponent.
            let sign = matches!(c, '+' | '-') && (text.is_empty() || text.ends_with(['e', 'E']));
            if !(sign || c.is_ascii_digit() || matches!(c, '.' | '_' | 'e' | 'E')) {
                break;
            }
            self.next().await;
            if c != '_' {
                text.push(c);
            }
            if text.len() > MAX_NAME_BYTES {
                return None;
            }
        }
        json.push_str(&json_number(&text)?);
        Some(())
    }

    async fn python_string(&mut self, json: &mut String) -> Option<()> {
        let quote = self.next().await.filter(|c| matches!(c, '\'' | '"'))?;
        let mut closing = quote.to_string();
        if self.is_at(&closing.repeat(2)).await {
            closing = closing.repeat(3);
            self.mark(&closing[1..]).await?;
        }
        let mut text = String::new();
        while self.mark(&closing).await.is_none() {
            let c = self.next().await?;
            match c {
                '\\' => text.extend(self.python_escape().await?),
                '\n' if closing.len() == 1 => return None,
                c => text.push(c),
            }
        }
        json.push_str(&Value::from(text).to_string());
        Some(())
    }

    /// Characters that an escape, behind its backslash, stands for.
    async fn python_escape(&mut self) -> Option<Escaped> {
        let c = self.next().await?;
        let one = |c| Some(Escaped([Some(c), None]));
        match c {
            'n' => one('\n'),
            't' => one('\t'),
            'r' => one('\r'),
            'a' => one('\x07'),
            'b' => one('\x08'),
            'f' => one('\x0c'),
            'v' => one('\x0b'),
            '0' => one('\0'),
            '\\' | '\'' | '"' => one(c),
            '\n' => Some(Escaped([None, None])),
            'x' => one(char::from_u32(self.hexadecimal(2).await?)?),
            'u' => one(self.utf16_escape().await?),
            'U' => one(char::from_u32(self.hexadecimal(8).await?)?),
            // Python keeps the backslash of what is no escape.
            c => Some(Escaped([Some('\\'), Some(c)])),
        }
    }

    /// Four digits; or eight, with the escape between them, as JSON writes a character beyond the first plane.
    async fn utf16_escape(&mut self) -> Option<char> {
        let first = self.hexadecimal(4).await?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        self.mark("\\u").await?;
        let second = self.hexadecimal(4).await?.checked_sub(0xDC00)?;
        let fits = second < 0x400;
        fits.then(|| char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + second))
            .flatten()
    }

    async fn hexadecimal(&mut self, digits: usize) -> Option<u32> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.next().await?.to_digit(16)?;
            code = code * 16 + digit;
            if code > 0x0010_FFFF {
                return None;
            }
        }
        Some(code)
    }
}

/// The characters that an escape stands for.
struct Escaped([Option<char>; 2]);

impl IntoIterator for Escaped {
    type Item = char;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<char>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

/// A Python number as JSON has it: no `+5`, `.5`, `5.` or `007`.
fn json_number(text: &str) -> Option<String> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => ("-", text),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_float = mantissa.contains('.');
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = match (is_float, fraction) {
        (false, _) => String::new(),
        (true, "") => ".0".to_owned(),
        (true, fraction) => format!(".{fraction}"),
    };
    let number = format!("{sign}{whole}{fraction}{exponent}");
    // Not through a float: integers keep all their digits.
    let mut scanner = crate::json::Scanner::new();
    let fits = number
        .chars()
        .all(|c| scanner.feed(c) == crate::json::Step::More);
    (fits && scanner.feed(' ') == crate::json::Step::Past).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::json_number;

    #[test]
    fn numbers_become_json() {
        for (python, json) in [
            ("5", "5"),
            ("-5", "-5"),
            ("+5", "5"),
            (".5", "0.5"),
            ("5.", "5.0"),
            ("-1.5e-3", "-1.5e-3"),
            ("12345678901234567890123", "12345678901234567890123"),
        ] {
            assert_eq!(json_number(python).as_deref(), Some(json), "{python}");
        }
        for wrong in ["", "-", ".", "007", "1.2.3", "e5", "1e", "--1"] {
            assert_eq!(json_number(wrong), None, "{wrong}");
        }
    }
}
