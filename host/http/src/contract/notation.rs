//! Shapes of JSON values, written as TypeScript writes types, as JSON Schema. The part of the notation that
//! is read: `type NAME = …;`, objects with optional members and index signatures, arrays, unions,
//! intersections of objects, literals, names, and `integer` beside TypeScript's own types. A comment
//! `/** … */` before a type or a member describes it.

use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::{Map, Value, json};

/// Schemas by their names.
pub(crate) type Schemas = Map<String, Value>;

/// Place of the schemas in a document.
const REFERENCE: &str = "#/components/schemas/";

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Number(i64),
    Mark(char),
    /// Text of a comment that describes what follows.
    About(String),
}

/// The types that a text declares.
///
/// # Errors
/// When the text is not in the notation.
pub(crate) fn declared(text: &str) -> Result<Schemas, String> {
    let mut parser = Parser::new(text)?;
    while parser.tokens.peek().is_some() {
        let about = parser.about();
        parser.expect_word("type")?;
        let name = parser.word()?;
        parser.expect('=')?;
        let mut schema = parser.union()?;
        parser.expect(';')?;
        describe(&mut schema, about);
        parser.known.insert(name, schema);
    }
    Ok(parser.known)
}

/// The type that an expression stands for.
///
/// # Errors
/// When the text is not in the notation.
pub(crate) fn expression(text: &str) -> Result<Value, String> {
    let mut parser = Parser::new(text)?;
    let schema = parser.union()?;
    match parser.tokens.next() {
        None => Ok(schema),
        Some(token) => Err(format!("{token:?} follows the type in {text:?}")),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '/' => {
                let end = rest.find("*/").ok_or("a comment has no end")?;
                let inner = rest.get(..end).unwrap_or_default();
                let inner = inner.trim_start_matches(['/', '*']);
                let words: Vec<&str> = inner
                    .split_whitespace()
                    .filter(|word| *word != "*")
                    .collect();
                (Token::About(words.join(" ")), end + 2)
            }
            '"' => {
                let inner = rest.get(1..).unwrap_or_default();
                let end = inner.find('"').ok_or("a text has no end")?;
                let inner = inner.get(..end).unwrap_or_default();
                (Token::Text(inner.to_owned()), end + 2)
            }
            '-' | '0'..='9' => {
                let length = length_of(rest, |c| c == '-' || c.is_ascii_digit());
                let number = rest.get(..length).unwrap_or_default().parse();
                let number = number.map_err(|_| format!("a number is wrong: {rest:.20}"))?;
                (Token::Number(number), length)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let length = length_of(rest, |c| c == '_' || c.is_ascii_alphanumeric());
                let word = rest.get(..length).unwrap_or_default();
                (Token::Word(word.to_owned()), length)
            }
            mark => (Token::Mark(mark), mark.len_utf8()),
        };
        tokens.push(token);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

fn length_of(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
    /// Types that were declared so far.
    known: Schemas,
}

impl Parser {
    fn new(text: &str) -> Result<Self, String> {
        Ok(Self {
            tokens: tokens(text)?.into_iter().peekable(),
            known: Schemas::new(),
        })
    }

    fn about(&mut self) -> Option<String> {
        match self
            .tokens
            .next_if(|token| matches!(token, Token::About(_)))
        {
            Some(Token::About(text)) => Some(text),
            _ => None,
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Word(word) | Token::Text(word)) => Ok(word),
            other => Err(format!("a name was expected, and there is {other:?}")),
        }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), String> {
        match self.word()? {
            found if found == word => Ok(()),
            found => Err(format!("`{word}` was expected, and there is `{found}`")),
        }
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        match self.tokens.next() {
            Some(Token::Mark(found)) if found == mark => Ok(()),
            other => Err(format!("`{mark}` was expected, and there is {other:?}")),
        }
    }

    fn skips(&mut self, mark: char) -> bool {
        self.tokens.next_if_eq(&Token::Mark(mark)).is_some()
    }

    fn union(&mut self) -> Result<Value, String> {
        self.skips('|');
        let mut members = vec![self.intersection()?];
        while self.skips('|') {
            members.push(self.intersection()?);
        }
        Ok(any_of(members))
    }

    fn intersection(&mut self) -> Result<Value, String> {
        let mut schema = self.array()?;
        while self.skips('&') {
            let other = self.array()?;
            schema = both(self.resolved(schema)?, self.resolved(other)?);
        }
        Ok(schema)
    }

    /// The object that a name stands for.
    fn resolved(&self, schema: Value) -> Result<Value, String> {
        let Some(name) = schema["$ref"].as_str() else {
            return Ok(schema);
        };
        let known = name.strip_prefix(REFERENCE);
        let known = known.and_then(|name| self.known.get(name)).cloned();
        known.ok_or_else(|| format!("{name} must be declared before it is joined with another"))
    }

    fn array(&mut self) -> Result<Value, String> {
        let mut schema = self.single()?;
        while self.skips('[') {
            self.expect(']')?;
            schema = json!({"type": "array", "items": schema});
        }
        Ok(schema)
    }

    fn single(&mut self) -> Result<Value, String> {
        Ok(match self.tokens.next() {
            Some(Token::Text(text)) => json!({"const": text}),
            Some(Token::Number(number)) => json!({"const": number}),
            Some(Token::Mark('{')) => self.object()?,
            Some(Token::Mark('(')) => {
                let schema = self.union()?;
                self.expect(')')?;
                schema
            }
            Some(Token::Word(word)) => match word.as_str() {
                "any" => json!({}),
                "true" => json!({"const": true}),
                "false" => json!({"const": false}),
                "string" | "number" | "integer" | "boolean" | "null" | "object" => {
                    json!({"type": word})
                }
                name => json!({"$ref": format!("{REFERENCE}{name}")}),
            },
            other => return Err(format!("a type was expected, and there is {other:?}")),
        })
    }

    /// Members up to the closing brace.
    fn object(&mut self) -> Result<Value, String> {
        let (mut properties, mut required, mut others) = (Map::new(), Vec::new(), None);
        while !self.skips('}') {
            let about = self.about();
            if self.skips('[') {
                self.word()?;
                self.expect(':')?;
                self.expect_word("string")?;
                self.expect(']')?;
                self.expect(':')?;
                others = Some(self.union()?);
            } else {
                let name = self.word()?;
                let optional = self.skips('?');
                self.expect(':')?;
                let mut schema = self.union()?;
                describe(&mut schema, about);
                if !optional {
                    required.push(Value::from(name.as_str()));
                }
                properties.insert(name, schema);
            }
            if !self.skips(';') && !self.skips(',') {
                self.expect('}')?;
                break;
            }
        }
        let mut schema = json!({"type": "object"});
        if !properties.is_empty() {
            schema["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            schema["required"] = Value::Array(required);
        }
        if let Some(others) = others {
            schema["additionalProperties"] = others;
        }
        Ok(schema)
    }
}

fn describe(schema: &mut Value, about: Option<String>) {
    if let Some(about) = about {
        schema["description"] = Value::from(about);
    }
}

/// A union: words and types that JSON Schema can list are listed.
fn any_of(mut members: Vec<Value>) -> Value {
    if members.len() == 1 {
        return members.pop().unwrap_or_default();
    }
    let listed = |key: &str| {
        let values = members.iter().map(|member| {
            let only = member.as_object().filter(|object| object.len() == 1);
            only.and_then(|object| object.get(key)).cloned()
        });
        values.collect::<Option<Vec<Value>>>()
    };
    match (listed("const"), listed("type")) {
        (Some(words), _) => json!({"enum": words}),
        (_, Some(types)) => json!({"type": types}),
        _ => json!({"anyOf": members}),
    }
}

/// An object with the members of two.
fn both(mut one: Value, other: Value) -> Value {
    let members = |schema: &Value| schema["properties"].as_object().cloned();
    let mut properties = members(&one).unwrap_or_default();
    properties.extend(members(&other).unwrap_or_default());
    let required = |schema: &Value| schema["required"].as_array().cloned();
    let mut names = required(&one).unwrap_or_default();
    names.extend(required(&other).unwrap_or_default());
    one["type"] = Value::from("object");
    one["properties"] = Value::Object(properties);
    if !names.is_empty() {
        one["required"] = Value::Array(names);
    }
    if let Some(others) = other.get("additionalProperties") {
        one["additionalProperties"] = others.clone();
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_become_schemas() {
        let schemas = declared(
            "/** A row. */ type Row = { id: string; /** Its size. */ size?: integer | null; };\n\
             type Rows = { object: \"list\"; data: Row[]; kind: \"a\" | \"b\"; [key: string]: any };\n\
             type More = Row & { of: Rows | string };",
        );
        let schemas = schemas.expect("in the notation");
        assert_eq!(
            schemas["Row"],
            json!({
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "size": {"type": ["integer", "null"], "description": "Its size."},
                },
                "required": ["id"],
                "description": "A row.",
            })
        );
        let rows = &schemas["Rows"];
        assert_eq!(rows["properties"]["kind"], json!({"enum": ["a", "b"]}));
        let of_rows = json!({"type": "array", "items": {"$ref": "#/components/schemas/Row"}});
        assert_eq!(rows["properties"]["data"], of_rows);
        assert_eq!(rows["additionalProperties"], json!({}));
        assert_eq!(schemas["More"]["required"], json!(["id", "of"]));
    }

    #[test]
    fn what_is_no_type_is_told() {
        for text in [
            "type A = {",
            "type A = ;",
            "A = string;",
            "type A = B & C;",
            "/* ",
        ] {
            assert!(declared(text).is_err(), "{text}");
        }
        assert!(expression("string string").is_err());
    }
}
