//! Marks of a format as a grammar has them: control tokens where the model has such, else their text.

use serde_json::Value;

use crate::style::Style;

/// Part of a mark.
enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

/// A mark, cut at the control tokens in it.
fn pieces<'a>(style: &Style, mark: &'a str) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let mut rest = mark;
    while !rest.is_empty() {
        let tokens = style.model.control_tokens.iter();
        let found = tokens
            .filter(|token| !token.text.is_empty())
            .filter_map(|token| Some((rest.find(&token.text)?, token)))
            .min_by_key(|(at, token)| (*at, usize::MAX - token.text.len()));
        let Some((at, token)) = found else {
            pieces.push(Piece::Text(rest));
            break;
        };
        let (before, behind) = rest.split_at(at);
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Token(token.id));
        rest = behind.get(token.text.len()..).unwrap_or_default();
    }
    pieces
}

fn written(pieces: &[Piece]) -> String {
    let each = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => quote(text),
        Piece::Token(id) => format!("<[{id}]>"),
    });
    each.collect::<Vec<String>>().join(" ")
}

/// A mark, to stand in a rule; empty for an empty one.
pub(crate) fn mark(style: &Style, text: &str) -> String {
    written(&pieces(style, text))
}

/// A rule for any text up to a mark, and the mark.
pub(crate) fn text_until(style: &Style, name: &str, close: &str) -> String {
    let pieces = pieces(style, close);
    match pieces.as_slice() {
        [Piece::Text(text)] => format!("{name}[suffix={}]: /(.|\\n)*/", quote(text)),
        // A lexeme goes on as long as it can, and only a token ends it.
        [Piece::Text(text), rest @ ..] => {
            format!("{name}: /(.|\\n)*{}/ {}", escape(text), written(rest))
        }
        all => format!("{name}: /(.|\\n)*/ {}", written(all)),
    }
}

/// A text as a regular expression that matches nothing else.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        // Not all punctuation: `\<` is the beginning of a word.
        if r"\/.+*?()|[]{}^$#&-~".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A literal of Lark, which is written like one of JSON.
pub(crate) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}
