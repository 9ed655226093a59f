//! Ends of values that can be put off, so that a value becomes another one than those before it. Where an array must not
//! repeat an item, and items are objects, no place may be reached at which nothing but a repetition follows.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::rewrite::equal;

/// Names of the parts of an ending within a schema.
const TEXT: &str = "text";
const ARRAY: &str = "array";
const INTEGER: &str = "integer";
const OPEN: &str = "open";
const MEMBER: &str = "member";
const BELOW: &str = "below";

/// Kind of a value that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Array,
    Integer,
    Object,
}

/// Ends of the values of a schema, each kind of which can always be continued instead.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ending {
    pub(crate) text: bool,
    pub(crate) array: bool,
    pub(crate) integer: bool,
    pub(crate) object: Option<Members>,
}

/// Part of an object whose end decides whether the object repeats another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Members {
    /// End of the object: further members may always come.
    Open,
    /// End of the member of this name, or of the object where the member is not there. Members behind it do not
    /// count.
    Through(String, Arc<Ending>),
}

impl Ending {
    /// Whether values of a kind can be put off.
    pub(super) fn puts_off(&self, kind: Kind) -> bool {
        match kind {
            Kind::Text => self.text,
            Kind::Array => self.array,
            Kind::Integer => self.integer,
            Kind::Object => self.object.is_some(),
        }
    }

    /// Ending of the member that decides about an object, if `member` is its name.
    pub(super) fn below(&self, member: &[u8]) -> Option<&Self> {
        match &self.object {
            Some(Members::Through(name, below)) if name.as_bytes() == member => Some(below),
            _ => None,
        }
    }

    /// Union of two endings. `None` if they say different things of objects.
    pub(crate) fn with(self, other: Self) -> Option<Self> {
        let object = match (self.object, other.object) {
            (Some(one), Some(other)) if one != other => return None,
            (one, other) => one.or(other),
        };
        Some(Self {
            text: self.text || other.text,
            array: self.array || other.array,
            integer: self.integer || other.integer,
            object,
        })
    }

    /// The part of a value by which it is told from others.
    pub(super) fn key(&self, value: Value) -> Value {
        let (Some(Members::Through(name, below)), Value::Object(members)) = (&self.object, &value)
        else {
            return value;
        };
        let Some(last) = members.keys().position(|member| member == name) else {
            return value;
        };
        let through = members.iter().take(last + 1);
        let through = through.map(|(member, value)| match member == name {
            true => (member.clone(), below.key(value.clone())),
            false => (member.clone(), value.clone()),
        });
        Value::Object(through.collect())
    }

    /// Ending as the value of a keyword.
    pub(crate) fn written(&self) -> Value {
        let mut fields = Map::new();
        for (name, has) in [
            (TEXT, self.text),
            (ARRAY, self.array),
            (INTEGER, self.integer),
        ] {
            if has {
                fields.insert(name.to_owned(), json!(true));
            }
        }
        match &self.object {
            Some(Members::Open) => drop(fields.insert(OPEN.to_owned(), json!(true))),
            Some(Members::Through(name, below)) => {
                fields.insert(MEMBER.to_owned(), json!(name));
                fields.insert(BELOW.to_owned(), below.written());
            }
            None => {}
        }
        Value::Object(fields)
    }

    /// The ending that a keyword has.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let fields = value.as_object()?;
        let has = |name: &str| fields.contains_key(name);
        let member = fields.get(MEMBER).and_then(Value::as_str);
        let below = fields.get(BELOW).and_then(Self::read);
        Some(Self {
            text: has(TEXT),
            array: has(ARRAY),
            integer: has(INTEGER),
            object: match (member, below) {
                (Some(name), Some(below)) => Some(Members::Through(name.to_owned(), below.into())),
                _ => has(OPEN).then_some(Members::Open),
            },
        })
    }
}

/// Whether a value that goes on in its last text or number may become another: what is written so far is equal, and that
/// text is how the other one's begins.
pub(super) fn may_become(ending: &Ending, value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::String(text), Value::String(other)) => other.starts_with(text.as_str()),
        (Value::Object(members), Value::Object(others)) => match &ending.object {
            Some(Members::Through(name, below)) => members.iter().all(|(member, value)| {
                others
                    .get(member)
                    .is_some_and(|other| match member == name {
                        true => may_become(below, value, other),
                        false => equal(value, other),
                    })
            }),
            _ => true,
        },
        _ => true,
    }
}
