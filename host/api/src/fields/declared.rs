//! The fields of a request as a JSON Schema, found by asking the types that read them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::names::look;
use super::path::{FieldPath, PathSegment};
use super::probe::{Offer, ProbeResult, ValueKind};
use crate::unsupported::Unsupported;

/// Objects in objects, from which on a schema says nothing more: a type may hold itself.
const DEEPEST: usize = 6;

/// Tells whether a field need not be understood.
type Tolerated = fn(&[PathSegment]) -> bool;

/// Groups of fields of one route.
#[derive(Debug, Clone)]
pub(crate) struct RouteFields {
    mode: Unsupported,
    tolerated: Tolerated,
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl RouteFields {
    /// No fields yet. Fields that no type reads are refused, or left out, as `mode` has it.
    pub(crate) fn new(mode: Unsupported) -> Self {
        Self {
            mode,
            tolerated: |_| false,
            properties: Map::new(),
            required: Vec::new(),
        }
    }

    /// Set which nested fields need not be understood. Must be called before groups of fields are added.
    pub(crate) fn tolerating(mut self, tolerated: Tolerated) -> Self {
        self.tolerated = tolerated;
        self
    }

    /// Add the fields that a type reads.
    pub(crate) fn with<T: DeserializeOwned>(mut self) -> Self {
        let schema = Schema {
            look: look::<T>,
            mode: self.mode,
            tolerated: self.tolerated,
        };
        let root = FieldPath::default();
        let ValueKind::Fields(names) = look::<T>(&root, Offer::Nothing).kind else {
            return self;
        };
        for name in names {
            let path = root.key(name);
            let (field, optional) = schema.field(&path, 0);
            if !optional {
                self.required.push((*name).to_owned());
            }
            self.properties.insert((*name).to_owned(), field);
        }
        self
    }

    /// Add fields that cannot be honoured, each with the reason.
    pub(crate) fn refusing(mut self, refused: &[(&str, &str)]) -> Self {
        for (name, why) in refused {
            let schema = match self.mode {
                Unsupported::Refuse => {
                    json!({"type": "null", "description": format!("Not supported: {why}.")})
                }
                Unsupported::Ignore => json!({"description": format!("Left out: {why}.")}),
            };
            self.properties.insert((*name).to_owned(), schema);
        }
        self
    }

    /// Make fields optional that their types require: another part of the server gives them.
    pub(crate) fn without(mut self, names: &[&str]) -> Self {
        self.required.retain(|name| !names.contains(&name.as_str()));
        for name in names {
            if let Some(field) = self.properties.get_mut(*name) {
                *field = or_null(field.take());
            }
        }
        self
    }

    /// Replace the schema of a field, for rules that the code behind the field's type checks.
    pub(crate) fn narrowed(mut self, name: &str, schema: Value) -> Self {
        self.properties.insert(name.to_owned(), schema);
        self
    }

    /// The schema of the body.
    pub(crate) fn schema(self) -> Value {
        let mut schema = json!({"type": "object", "properties": self.properties});
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        if self.mode == Unsupported::Refuse {
            schema["additionalProperties"] = Value::Bool(false);
        }
        schema
    }
}

/// Makes the schemas of one type.
struct Schema {
    look: fn(&FieldPath, Offer) -> ProbeResult,
    mode: Unsupported,
    tolerated: Tolerated,
}

impl Schema {
    /// The schema of the value at a path, and whether the value may be absent.
    fn field(&self, path: &FieldPath, depth: usize) -> (Value, bool) {
        let found = (self.look)(path, Offer::Nothing);
        let schema = match found.kind {
            ValueKind::Any(_) => self.any(path, depth),
            kind => self.of_kind(kind, path, depth),
        };
        match found.optional {
            true => (or_null(schema), true),
            false => (schema, false),
        }
    }

    fn of_kind(&self, kind: ValueKind, path: &FieldPath, depth: usize) -> Value {
        match kind {
            ValueKind::None | ValueKind::Any(_) => json!({}),
            ValueKind::Boolean => json!({"type": "boolean"}),
            ValueKind::Natural(u64::MAX) => json!({"type": "integer", "minimum": 0}),
            ValueKind::Natural(most) => json!({"type": "integer", "minimum": 0, "maximum": most}),
            ValueKind::Integer => {
                json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX})
            }
            ValueKind::Number => json!({"type": "number"}),
            ValueKind::Text => json!({"type": "string"}),
            ValueKind::Words(words) => json!({"type": "string", "enum": words}),
            ValueKind::List => {
                let (items, _) = self.field(&path.index(0), depth);
                json!({"type": "array", "items": items})
            }
            ValueKind::Map => {
                let (values, _) = self.field(&path.key("*"), depth);
                json!({"type": "object", "additionalProperties": values})
            }
            ValueKind::Fields(_) if depth >= DEEPEST => json!({"type": "object"}),
            ValueKind::Fields(names) => self.object(names, path, depth),
        }
    }

    fn object(&self, names: &[&str], path: &FieldPath, depth: usize) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for name in names {
            let (field, optional) = self.field(&path.key(name), depth + 1);
            if !optional {
                required.push(*name);
            }
            properties.insert((*name).to_owned(), field);
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let tolerant = (self.tolerated)(path.key("*").segments());
        if self.mode == Unsupported::Refuse && !tolerant {
            schema["additionalProperties"] = Value::Bool(false);
        }
        schema
    }

    /// The schema where values of several kinds are taken.
    fn any(&self, path: &FieldPath, depth: usize) -> Value {
        let takes = |offer| match (self.look)(path, offer).kind {
            ValueKind::Any(taken) => taken,
            kind => matches!(kind, ValueKind::Fields(_)),
        };
        let all = [
            Offer::Boolean,
            Offer::Natural,
            Offer::Integer,
            Offer::Number,
            Offer::Text,
            Offer::List,
            Offer::Object,
        ];
        if all.into_iter().all(takes)
            && (self.look)(path, Offer::Object).kind == ValueKind::Any(true)
        {
            return json!({});
        }
        let mut kinds = Vec::new();
        for offer in all.into_iter().filter(|offer| takes(*offer)) {
            let kind = match offer {
                Offer::Nothing => continue,
                Offer::Boolean => ValueKind::Boolean,
                Offer::Natural => ValueKind::Natural(u64::MAX),
                Offer::Integer => ValueKind::Integer,
                Offer::Number => ValueKind::Number,
                Offer::Text => ValueKind::Text,
                Offer::List => ValueKind::List,
                Offer::Object => match (self.look)(path, Offer::Object).kind {
                    ValueKind::Fields(names) => ValueKind::Fields(names),
                    _ => ValueKind::Map,
                },
            };
            kinds.push(self.of_kind(kind, path, depth));
        }
        json!({"anyOf": kinds})
    }
}

/// Null counts as absent.
fn or_null(mut schema: Value) -> Value {
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(kind) => *kind = json!([kind.take(), "null"]),
        None => {
            if let Some(Value::Array(kinds)) = schema.get_mut("anyOf") {
                kinds.push(json!({"type": "null"}));
            }
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::fields::{TextOrTexts, WordOr, words};

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only the types are looked at")]
    struct Group {
        model: String,
        stop: Option<TextOrTexts>,
        choice: Option<WordOr<Named>>,
        effort: Option<Effort>,
        any: Option<Value>,
        top_k: u32,
        rest: Option<Map<String, Value>>,
    }

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only the types are looked at")]
    struct Named {
        name: String,
        inner: Option<Box<Named>>,
    }

    words! {
        /// Words.
        Effort { Low = "low", High = "high" }
    }

    #[test]
    fn a_type_tells_what_it_reads() {
        let schema = RouteFields::new(Unsupported::Refuse)
            .with::<Group>()
            .refusing(&[("audio", "no sound here")])
            .schema();
        assert_eq!(schema["required"], json!(["model", "top_k"]));
        assert_eq!(schema["additionalProperties"], false);
        let fields = &schema["properties"];
        assert_eq!(fields["model"], json!({"type": "string"}));
        assert_eq!(
            fields["stop"]["anyOf"],
            json!([
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "null"},
            ])
        );
        assert_eq!(fields["choice"]["anyOf"][1]["required"], json!(["name"]));
        assert_eq!(fields["effort"]["enum"], json!(["low", "high", null]));
        assert_eq!(fields["any"], json!({}));
        assert_eq!(fields["top_k"]["maximum"], u32::MAX);
        assert_eq!(fields["rest"]["additionalProperties"], json!({}));
        assert_eq!(fields["audio"]["type"], "null");
    }

    #[test]
    fn fields_that_are_left_out_are_allowed() {
        let schema = RouteFields::new(Unsupported::Ignore)
            .with::<Group>()
            .schema();
        assert!(schema["additionalProperties"].is_null());
    }
}
