//! Meaning of the text of a region: the parsers that a template names, and the shape that it gives their results.

use std::cell::RefCell;
use std::rc::Rc;

use mortise_plugin_sdk::stream::{MAX_DEPTH, Parsing};
use mortise_plugin_sdk::tools::Tools;
use serde_json::{Map, Number, Value};

use super::pattern::Pattern;

/// Parsers of values within values.
const MAX_NESTED: usize = 8;
/// Stand-ins for texts that have been taken out, which no text may have.
const TAKEN: (char, char) = ('\u{1}', '\u{2}');

/// Parser of a region.
#[derive(Debug)]
pub(super) enum Content {
    Text {
        strip: bool,
    },
    Integer,
    Float,
    Bool,
    Json {
        unquoted_keys: bool,
        delimiters: Vec<(String, String)>,
        or_text: bool,
    },
    Tags {
        pattern: Pattern,
        value: Option<Box<Content>>,
        merge: bool,
    },
    Lines {
        between: String,
        behind_key: String,
        strip: bool,
        value: Option<Box<Content>>,
    },
}

impl Content {
    /// The parser of a name with its arguments.
    pub(super) fn read(name: Option<&Value>, arguments: Option<&Value>) -> Result<Self, String> {
        Self::nested(name, arguments, MAX_NESTED)
    }

    fn nested(
        name: Option<&Value>,
        arguments: Option<&Value>,
        left: usize,
    ) -> Result<Self, String> {
        let left = left
            .checked_sub(1)
            .ok_or("parsers of values are nested too deeply")?;
        let empty = Map::new();
        let arguments = match arguments {
            None => &empty,
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err("`content_args` must be an object".to_owned()),
        };
        let flag = |key: &str, default: bool| match arguments.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("`{key}` must be true or false")),
        };
        let text = |key: &str, default: &str| match arguments.get(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(_) => Err(format!("`{key}` must be a text")),
        };
        let value = || match arguments.get("value_parser") {
            None | Some(Value::Null) => Ok(None),
            Some(inner) => Self::nested(inner.get("name"), inner.get("args"), left)
                .map(|parser| Some(Box::new(parser))),
        };
        match name.map_or(Some("text"), Value::as_str) {
            Some("text") => Ok(Self::Text {
                strip: flag("strip", true)?,
            }),
            Some("int") => Ok(Self::Integer),
            Some("float") => Ok(Self::Float),
            Some("bool") => Ok(Self::Bool),
            Some("json") => Ok(Self::Json {
                unquoted_keys: flag("unquoted_keys", false)?,
                delimiters: delimiters(arguments.get("string_delims"))?,
                or_text: flag("allow_non_json", false)?,
            }),
            Some("xml-inline") => {
                let source = text("tag_pattern", "")?;
                let pattern = Pattern::new(&source)?;
                if !pattern.names().iter().any(|name| name == "key") {
                    return Err("`tag_pattern` has no group `key`".to_owned());
                }
                Ok(Self::Tags {
                    pattern,
                    value: value()?,
                    merge: flag("merge_duplicates", false)?,
                })
            }
            Some("kv-lines") => Ok(Self::Lines {
                between: text("line_sep", "\n")?,
                behind_key: text("kv_sep", ":")?,
                strip: flag("strip", true)?,
                value: value()?,
            }),
            _ => Err("its `content` is no parser that is known".to_owned()),
        }
    }

    /// True if blanks around the text say nothing.
    pub(super) fn strips(&self) -> bool {
        !matches!(self, Self::Text { strip: false })
    }

    /// Meaning of a text; `None` if it has none.
    pub(super) fn parse(&self, text: &str) -> Option<Value> {
        match self {
            Self::Text { strip: true } => Some(Value::from(text.trim())),
            Self::Text { strip: false } => Some(Value::from(text)),
            Self::Integer => text.trim().parse::<i64>().ok().map(Value::from),
            Self::Float => {
                let number = text.trim().parse::<f64>().ok()?;
                Number::from_f64(number).map(Value::Number)
            }
            Self::Bool => {
                let word = text.trim().to_lowercase();
                Some(Value::Bool(word == "true" || word == "1"))
            }
            Self::Json {
                unquoted_keys,
                delimiters,
                or_text,
            } => match json(text, *unquoted_keys, delimiters) {
                None if *or_text => Some(Value::from(text.trim())),
                value => value,
            },
            Self::Tags {
                pattern,
                value,
                merge,
            } => tags(text, pattern, value.as_deref(), *merge),
            Self::Lines {
                between,
                behind_key,
                strip,
                value,
            } => {
                let cut = |text: &'_ str| match strip {
                    true => text.trim().to_owned(),
                    false => text.to_owned(),
                };
                let mut fields = Map::new();
                for line in text.split(between.as_str()).map(cut) {
                    if let Some((key, held)) = line.split_once(behind_key.as_str()) {
                        fields.insert(cut(key), inner(value.as_deref(), &cut(held))?);
                    }
                }
                Some(Value::Object(fields))
            }
        }
    }
}

fn delimiters(value: Option<&Value>) -> Result<Vec<(String, String)>, String> {
    let wrong = || "`string_delims` must be pairs of texts".to_owned();
    let pairs = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(pairs)) => pairs,
        Some(_) => return Err(wrong()),
    };
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([Value::String(open), Value::String(close)])
            if !open.is_empty() && !close.is_empty() =>
        {
            Ok((open.clone(), close.clone()))
        }
        _ => Err(wrong()),
    };
    pairs.iter().map(pair).collect()
}

fn inner(parser: Option<&Content>, text: &str) -> Option<Value> {
    match parser {
        None => Some(Value::from(text)),
        Some(parser) => parser.parse(text),
    }
}

fn tags(text: &str, pattern: &Pattern, value: Option<&Content>, merge: bool) -> Option<Value> {
    let group = |name: &str| pattern.names().iter().position(|other| other == name);
    let (key, held) = (group("key")?, group("value"));
    let mut fields = Map::new();
    let mut from = 0;
    while let Some(found) = pattern.find(text, from) {
        // An empty match would be found again.
        let next = text
            .get(found.end..)?
            .chars()
            .next()
            .map_or(1, char::len_utf8);
        from = found.end + if found.end == found.start { next } else { 0 };
        let place = |index: usize| found.group(index).and_then(|(from, to)| text.get(from..to));
        let key = place(key)?.to_owned();
        let value = inner(value, held.and_then(place).unwrap_or_default())?;
        match fields.get_mut(&key) {
            Some(Value::Array(several)) if merge => several.push(value),
            Some(one) if merge => *one = Value::from(vec![one.take(), value]),
            _ => {
                fields.insert(key, value);
            }
        }
    }
    Some(Value::Object(fields))
}

/// Value of a JSON text in the dialect of a template: texts between marks of its own, keys without quotes.
fn json(text: &str, unquoted_keys: bool, delimiters: &[(String, String)]) -> Option<Value> {
    if !delimiters.is_empty() && text.contains([TAKEN.0, TAKEN.1]) {
        return None;
    }
    let mut plain = text.to_owned();
    let mut taken: Vec<String> = Vec::new();
    for (open, close) in delimiters {
        plain = take_out(&plain, (open, close), &mut taken);
    }
    if unquoted_keys {
        plain = quoted_keys(&plain);
    }
    if !taken.is_empty() {
        plain = put_back(&plain, &taken)?;
    }
    let value = serde_json::from_str(&plain).ok();
    let value = value.or_else(|| serde_json::from_str(&mended(plain)?).ok())?;
    (depth(&value) <= MAX_DEPTH).then_some(value)
}

/// A text without those between two marks, which are numbered.
fn take_out(text: &str, (open, close): (&str, &str), taken: &mut Vec<String>) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(open)
        && let Some((inside, after)) = behind.split_once(close)
    {
        left.push_str(before);
        left.push(TAKEN.0);
        left.push_str(&taken.len().to_string());
        left.push(TAKEN.1);
        taken.push(inside.to_owned());
        rest = after;
    }
    left.push_str(rest);
    left
}

fn put_back(text: &str, taken: &[String]) -> Option<String> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(TAKEN.0) {
        let (number, after) = behind.split_once(TAKEN.1)?;
        whole.push_str(before);
        whole
            .push_str(&Value::from(taken.get(number.parse::<usize>().ok()?)?.as_str()).to_string());
        rest = after;
    }
    whole.push_str(rest);
    Some(whole)
}

/// A text in which words between `{` or `,` and `:` have quotes. Blanks before a word stay before it.
fn quoted_keys(text: &str) -> String {
    let mut whole = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut in_text = false;
    while let Some(c) = rest.chars().next() {
        let (first, behind) = rest.split_at(c.len_utf8());
        whole.push_str(first);
        rest = behind;
        match c {
            '\\' if in_text => {
                let escaped = rest.chars().next().map_or(0, char::len_utf8);
                whole.push_str(&rest[..escaped]);
                rest = &rest[escaped..];
            }
            '"' => in_text = !in_text,
            '{' | ',' if !in_text => {
                let word = rest.trim_start();
                let blanks = rest.len() - word.len();
                let end = word.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                let end = end.filter(|end| *end > 0 && word[*end..].starts_with(':'));
                if let Some(end) = end {
                    whole.push_str(&rest[..blanks]);
                    whole.push_str(&Value::from(&word[..end]).to_string());
                    rest = &word[end..];
                }
            }
            _ => {}
        }
    }
    whole
}

/// A JSON text whose meaning is clear though it is not quite one, as the readers of calls mend it.
fn mended(text: String) -> Option<String> {
    let found = Rc::new(RefCell::new(None));
    let place = Rc::clone(&found);
    let mut parsing = Parsing::new(Tools::default(), false, async move |text| {
        text.space().await;
        let value = text.json_text().await;
        text.space().await;
        if text.peek().await.is_none() {
            *place.borrow_mut() = value;
        }
    });
    parsing.feed(&text);
    parsing.close();
    found.take()
}

fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The path of a text that is one placeholder, such as `{content.name}`.
fn placeholder(text: &str) -> Option<Vec<&str>> {
    let path: Vec<&str> = text
        .strip_prefix('{')?
        .strip_suffix('}')?
        .split('.')
        .collect();
    let is_word =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
    path.iter().all(is_word).then_some(path)
}

/// Refuse texts with a placeholder among other text: only whole texts are replaced.
pub(super) fn placeholders_are_whole(shape: &Value) -> Result<(), String> {
    match shape {
        Value::Object(fields) => fields.values().try_for_each(placeholders_are_whole),
        Value::Array(items) => items.iter().try_for_each(placeholders_are_whole),
        Value::String(text) if placeholder(text).is_none() => {
            let mut inner = text.match_indices('{').filter_map(|(at, _)| {
                let behind = &text[at..];
                behind.find('}').map(|end| &behind[..=end])
            });
            match inner.find(|part| placeholder(part).is_some()) {
                Some(part) => Err(format!("`transform` has `{part}` among other text")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A shape with its placeholders replaced; `None` if one of them stands for nothing.
pub(super) fn shaped(shape: &Value, scope: &Map<String, Value>) -> Option<Value> {
    Some(match shape {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| Some((key.clone(), shaped(value, scope)?)));
            Value::Object(fields.collect::<Option<_>>()?)
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| shaped(item, scope));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Value::String(text) => match placeholder(text) {
            None => shape.clone(),
            Some(path) => {
                let (first, rest) = path.split_first()?;
                let mut keys = rest.iter();
                let value = keys.try_fold(scope.get(*first)?, |value, key| {
                    value.as_object()?.get(*key)
                });
                value?.clone()
            }
        },
        other => other.clone(),
    })
}
