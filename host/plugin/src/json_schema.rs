//! JSON Schemas that plugins carry: of their settings, and of the arguments of tools.

use boon::{Compiler, Draft, ErrorKind, SchemaIndex, Schemas, ValidationError};
use serde_json::Value;

/// A name for the schema within the validator; nothing is ever loaded from it.
const NAME: &str = "mortise:schema";

/// A compiled schema, of draft 2020-12 unless it says otherwise. It refers to nothing outside of
/// itself.
pub struct JsonSchema {
    source: Value,
    schemas: Schemas,
    index: SchemaIndex,
}

/// A value that does not follow its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to the value; empty for the whole.
    pub pointer: String,
    /// Message that says what is wrong with it.
    pub message: String,
}

impl JsonSchema {
    /// Compile a schema.
    ///
    /// # Errors
    /// When it is no schema, or refers to another one; the text says what is wrong.
    pub fn compile(schema: Value) -> Result<Self, String> {
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        // Without this, references to files would be followed.
        compiler.use_loader(Box::new(NoLoader));
        compiler
            .add_resource(NAME, schema.clone())
            .map_err(|error| error.to_string())?;
        let mut schemas = Schemas::new();
        let index = compiler
            .compile(NAME, &mut schemas)
            .map_err(|error| format!("{error:#}"))?;
        Ok(Self {
            source: schema,
            schemas,
            index,
        })
    }

    /// The innermost values that do not follow the schema; none if all do.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        if let Err(error) = self.schemas.validate(value, self.index) {
            self.leaves(&error, &mut found);
        }
        found
    }

    /// The innermost errors: the others only say that something within is wrong.
    fn leaves(&self, error: &ValidationError<'_, '_>, found: &mut Vec<Violation>) {
        let place = error.instance_location.to_string();
        match &error.kind {
            // Each by its own place, rather than that of the object.
            ErrorKind::AdditionalProperties { got } => {
                let known = self.properties(error.schema_url);
                found.extend(got.iter().map(|name| {
                    let token = name.replace('~', "~0").replace('/', "~1");
                    Violation {
                        pointer: format!("{place}/{token}"),
                        message: known.clone(),
                    }
                }));
            }
            kind if error.causes.is_empty() => found.push(Violation {
                pointer: place,
                message: kind.to_string(),
            }),
            _ => {}
        }
        for cause in &error.causes {
            self.leaves(cause, found);
        }
    }

    /// Message about a name that an object may not have: it lists those that it may.
    fn properties(&self, schema_url: &str) -> String {
        let pointer = schema_url
            .split_once('#')
            .map_or("", |(_, pointer)| pointer);
        let properties = self.source.pointer(pointer).map(|part| &part["properties"]);
        let names = properties.and_then(Value::as_object).map(|properties| {
            let names = properties.keys().map(|name| format!("`{name}`"));
            let mut names = names.collect::<Vec<_>>();
            // Whether a map keeps their order is settled by whoever else uses the library.
            names.sort();
            names.join(", ")
        });
        match names {
            Some(names) if !names.is_empty() => format!("the name is unknown; known: {names}"),
            _ => "the name is unknown".to_owned(),
        }
    }
}

struct NoLoader;

impl boon::UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("a schema may not refer to `{url}`").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_are_told_by_their_place() {
        let schema = json!({"type": "object", "additionalProperties": false,
            "properties": {"rules": {"type": "string"}, "list": {"items": {"minimum": 3}}}});
        let schema = JsonSchema::compile(schema).unwrap();
        assert_eq!(schema.violations(&json!({"rules": "a", "list": [3]})), []);
        let found = schema.violations(&json!({"rules": 5, "list": [4, 1], "other": 1}));
        let at = |pointer| found.iter().find(|violation| violation.pointer == pointer);
        assert!(at("/rules").is_some_and(|found| found.message.contains("string")));
        assert!(at("/list/1").is_some());
        let unknown = at("/other").map(|found| &*found.message);
        assert_eq!(unknown, Some("the name is unknown; known: `list`, `rules`"));
    }

    #[test]
    fn unknown_names_are_told_one_by_one_wherever_they_stand() {
        let plan = json!({"type": "object", "additionalProperties": false,
            "properties": {"max_tokens": {}}});
        let schema = json!({"type": "object", "additionalProperties": plan, "$defs": {
            "none": {"additionalProperties": false}}, "properties": {"a": {"$ref": "#/$defs/none"}}});
        let schema = JsonSchema::compile(schema).unwrap();
        let value = json!({"a": {"x": 1}, "b c": {"max_tokns": 1, "a/b~c": 2, "max_tokens": 3}});
        let found = schema.violations(&value);
        let told = |pointer: &str| {
            let mut all = found.iter().filter(|found| found.pointer == pointer);
            all.next().map(|found| &*found.message)
        };
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(told("/a/x"), Some("the name is unknown"));
        let known = Some("the name is unknown; known: `max_tokens`");
        assert_eq!(told("/b c/max_tokns"), known);
        assert_eq!(told("/b c/a~1b~0c"), known);
    }

    #[test]
    fn schemas_reach_nothing_outside() {
        for reference in ["file:///etc/passwd", "http://localhost/x"] {
            let error = JsonSchema::compile(json!({"$ref": reference})).err();
            let error = error.expect("nothing is loaded");
            assert!(error.contains("may not refer"), "{error}");
        }
        assert!(JsonSchema::compile(json!({"type": "nothing"})).is_err());
    }
}
