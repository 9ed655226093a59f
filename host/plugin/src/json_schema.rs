//! JSON Schemas that plugins carry: of their settings, and of the arguments of tools.

use boon::{Compiler, Draft, SchemaIndex, Schemas, ValidationError};
use serde_json::Value;

/// A name for the schema within the validator; nothing is ever loaded from it.
const NAME: &str = "mortise:schema";

/// A compiled schema, of draft 2020-12 unless it says otherwise. It refers to nothing outside of
/// itself.
pub struct JsonSchema {
    schemas: Schemas,
    index: SchemaIndex,
}

/// A value that does not follow its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to the value; empty for the whole.
    pub pointer: String,
    /// What is wrong with it.
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
            .add_resource(NAME, schema)
            .map_err(|error| error.to_string())?;
        let mut schemas = Schemas::new();
        let index = compiler
            .compile(NAME, &mut schemas)
            .map_err(|error| format!("{error:#}"))?;
        Ok(Self { schemas, index })
    }

    /// The innermost values that do not follow the schema; none if all do.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        if let Err(error) = self.schemas.validate(value, self.index) {
            leaves(&error, &mut found);
        }
        found
    }
}

/// The innermost errors: the others only say that something within is wrong.
fn leaves(error: &ValidationError<'_, '_>, found: &mut Vec<Violation>) {
    if error.causes.is_empty() {
        found.push(Violation {
            pointer: error.instance_location.to_string(),
            message: error.kind.to_string(),
        });
    }
    for cause in &error.causes {
        leaves(cause, found);
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
        assert!(at("").is_some_and(|found| found.message.contains("other")));
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
