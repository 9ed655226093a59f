//! A response template: the fields of a message, the marks around them, and what their text means.

use serde_json::{Map, Value};

use super::content::{Content, placeholders_are_whole};
use super::pattern::Pattern;

/// Fields of a template.
const MAX_FIELDS: usize = 32;

/// Part of the answer that a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Content,
    Reasoning,
    Calls,
    /// Field that no part of an answer corresponds to.
    Other,
}

/// Beginning or end of a field.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) pattern: Pattern,
    /// The texts, if it is not an expression.
    pub(super) texts: Vec<String>,
    /// The expression without its escapes, or the texts: what is looked through for control tokens.
    written: String,
}

/// A field of a template.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) role: Role,
    pub(super) open: Option<Mark>,
    pub(super) close: Option<Mark>,
    pub(super) content: Content,
    /// Text between what several regions hold.
    pub(super) join: Option<String>,
    pub(super) transform: Option<Value>,
    pub(super) transform_each: bool,
}

/// A template that can be followed.
#[derive(Debug)]
pub struct Template {
    pub(super) fields: Vec<Field>,
    /// The field of text that stands between no marks.
    pub(super) implicit: Option<usize>,
    /// Beginning of a message.
    pub(super) anchor: Mark,
}

impl Template {
    /// Read a template.
    ///
    /// # Errors
    /// The first thing in it that makes no sense, or that is not supported.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(top) = &value else {
            return Err("it is no object".to_owned());
        };
        let known = [
            "version",
            "defaults",
            "fields",
            "start_anchor",
            "start_anchor_pattern",
        ];
        known_keys(top, &known)?;
        match top.get("version") {
            None => {}
            Some(version) if *version == 1 => {}
            Some(version) => return Err(format!("its version is {version}, and 1 is supported")),
        }
        let Some(Value::Object(fields)) = top.get("fields") else {
            return Err("`fields` must be an object".to_owned());
        };
        if fields.is_empty() || fields.len() > MAX_FIELDS {
            return Err(format!("`fields` must have 1 to {MAX_FIELDS} members"));
        }
        let fields = fields.iter().map(|(name, field)| {
            Field::read(name, field).map_err(|problem| format!("the field `{name}`: {problem}"))
        });
        let fields: Vec<Field> = fields.collect::<Result<_, _>>()?;
        let mut implicit = (0..fields.len()).filter(|index| fields[*index].open.is_none());
        let (first, second) = (implicit.next(), implicit.next());
        if second.is_some() {
            return Err("more than one field has no `open`".to_owned());
        }
        let anchor = mark(top, "start_anchor", "start_anchor_pattern")?;
        let anchor = anchor.ok_or("`start_anchor` is missing")?;
        Ok(Self {
            fields,
            implicit: first,
            anchor,
        })
    }

    /// The field of reasoning, if it has marks.
    pub(super) fn reasoning(&self) -> Option<usize> {
        let is = |field: &Field| field.role == Role::Reasoning && field.open.is_some();
        self.fields.iter().position(is)
    }

    /// Marks around a part of the answer, where they are texts; else empty ones.
    pub(super) fn texts(&self, role: Role) -> (String, String) {
        let text = |mark: &Option<Mark>| {
            let first = mark.as_ref().and_then(|mark| mark.texts.first());
            first.cloned().unwrap_or_default()
        };
        let mut fields = self.fields.iter();
        let field = fields.find(|field| field.role == role && field.open.is_some());
        field.map_or_else(Default::default, |field| {
            (text(&field.open), text(&field.close))
        })
    }

    /// True if a mark is written with this token.
    pub(super) fn mentions(&self, token: &str) -> bool {
        let marks = self
            .fields
            .iter()
            .flat_map(|field| [&field.open, &field.close]);
        let mut marks = marks.flatten().chain([&self.anchor]);
        marks.any(|mark| mark.written.contains(token))
    }
}

impl Field {
    fn read(name: &str, value: &Value) -> Result<Self, String> {
        let Value::Object(field) = value else {
            return Err("it is no object".to_owned());
        };
        let known = [
            "open",
            "open_pattern",
            "close",
            "close_pattern",
            "content",
            "content_args",
            "repeats",
            "join",
            "optional",
            "transform",
            "transform_each",
        ];
        known_keys(field, &known)?;
        let (open, close) = (
            mark(field, "open", "open_pattern")?,
            mark(field, "close", "close_pattern")?,
        );
        let transform = field.get("transform").filter(|value| !value.is_null());
        let names = [&open, &close].into_iter().flatten();
        let names = names.flat_map(|mark| mark.pattern.names()).count();
        if transform.is_none() && names > 0 {
            return Err("it names groups, and has no `transform`".to_owned());
        }
        transform.map_or(Ok(()), placeholders_are_whole)?;
        let transform_each = flag(field, "transform_each")?;
        if transform_each && transform.is_none() {
            return Err("it has `transform_each` and no `transform`".to_owned());
        }
        let join = match field.get("join") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if flag(field, "repeats")? => Some(text.clone()),
            Some(_) => return Err("`join` must be a string, and needs `repeats`".to_owned()),
        };
        Ok(Self {
            role: match name {
                "content" => Role::Content,
                "thinking" | "reasoning" | "reasoning_content" => Role::Reasoning,
                "tool_calls" => Role::Calls,
                _ => Role::Other,
            },
            open,
            close,
            content: Content::read(field.get("content"), field.get("content_args"))?,
            join,
            transform: transform.cloned(),
            transform_each,
        })
    }

    /// True if what a region holds is text that is passed on as it comes.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.role, Role::Content | Role::Reasoning)
    }
}

fn known_keys(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let mut keys = object.keys();
    match keys.find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("the key `{key}` is not known")),
        None => Ok(()),
    }
}

fn flag(object: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match object.get(key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("`{key}` must be true or false")),
    }
}

/// A mark by its texts or its expression; `None` where the template has neither.
fn mark(object: &Map<String, Value>, texts: &str, pattern: &str) -> Result<Option<Mark>, String> {
    match (object.get(texts), object.get(pattern)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(format!("it has both `{texts}` and `{pattern}`")),
        (None, Some(Value::String(source))) => Ok(Some(Mark {
            pattern: Pattern::new(source)?,
            texts: Vec::new(),
            written: source.replace('\\', ""),
        })),
        (None, Some(_)) => Err(format!("`{pattern}` must be a string")),
        (Some(value), None) => {
            let all = match value {
                Value::Array(all) => all.as_slice(),
                one => std::slice::from_ref(one),
            };
            let all: Option<Vec<String>> = all
                .iter()
                .map(|text| text.as_str().map(str::to_owned))
                .collect();
            let all = all.filter(|all| !all.is_empty() && all.iter().all(|text| !text.is_empty()));
            let texts = all.ok_or_else(|| format!("`{texts}` must be a text, or several"))?;
            Ok(Some(Mark {
                pattern: Pattern::any_of(&texts)?,
                written: texts.join("\n"),
                texts,
            }))
        }
    }
}
