//! JSON Schemas that plugins carry: of their settings, and of the arguments of tools.
//!
//! Schema and value both come from outside. A schema refers to nothing outside of itself, its patterns run in
//! linear time, and both are measured before the validator recurses into them.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::schema_cost;

/// Size of one compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4 << 20;
/// Number of `$ref`, `$dynamicRef` and `$recursiveRef` in a schema.
const MAX_REFERENCES: usize = 256;
/// Number of `unevaluatedProperties` and `unevaluatedItems` in a schema: each that is nested in another
/// doubles the validator's work.
const MAX_UNEVALUATED: usize = 4;
/// Stack of the thread that validates a deep value, in bytes.
const MAX_STACK_BYTES: usize = 256 << 20;
/// Stack that one level of a schema takes while it is applied, in bytes: measured 100 to 200 of them.
const STACK_BYTES_A_LEVEL: usize = 1 << 10;
/// Stack that is left to validation on any thread, in bytes.
const CALLER_STACK_BYTES: usize = 512 << 10;

/// A compiled schema, of draft 2020-12 unless it says otherwise.
pub struct JsonSchema {
    source: Value,
    validator: Validator,
    /// Most levels of the schema that are applied to one level of a value.
    levels: usize,
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
    /// When it is no schema, refers to another one, or could cost too much; the text says what is wrong.
    pub fn compile(schema: Value) -> Result<Self, String> {
        let count = Count::of(&schema);
        for (number, limit, keywords) in [
            (count.references, MAX_REFERENCES, "references"),
            (
                count.unevaluated,
                MAX_UNEVALUATED,
                "`unevaluated…` keywords",
            ),
        ] {
            if number > limit {
                return Err(format!("it has {number} {keywords}, of at most {limit}"));
            }
        }
        if count.identifiers > usize::from(schema.get("$id").is_some()) {
            return Err("only the schema as a whole may have an `$id`".to_owned());
        }
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_draft(draft(&schema)?)
            .with_retriever(NoRetriever)
            .with_pattern_options(patterns)
            .build(&schema)
            .map_err(|error| refusal(&error))?;
        Ok(Self {
            source: schema,
            validator,
            levels: (count.references + 1) * count.depth,
        })
    }

    /// The innermost values that do not follow the schema; none if all do.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let levels = self.levels.saturating_mul(Count::of(value).depth);
        let stack = levels.saturating_mul(STACK_BYTES_A_LEVEL);
        if stack <= CALLER_STACK_BYTES {
            return self.validate(value);
        }
        if stack > MAX_STACK_BYTES {
            return whole("the value is nested too deeply for its schema");
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("json-schema".to_owned())
                .stack_size(stack)
                .spawn_scoped(scope, || self.validate(value));
            let found = thread.map(std::thread::ScopedJoinHandle::join);
            match found {
                Ok(Ok(found)) => found,
                Ok(Err(_)) => whole("the validator of JSON Schemas failed"),
                Err(_) => whole("there is no memory to validate a value that is nested so deeply"),
            }
        })
    }

    fn validate(&self, value: &Value) -> Vec<Violation> {
        if schema_cost::check(&self.source, value).is_err() {
            return whole("validating the value against its schema would take too long");
        }
        let mut found = Vec::new();
        for error in self.validator.iter_errors(value) {
            self.innermost(&error, value, &mut found);
        }
        found
    }

    /// Add the innermost errors: those of `anyOf` and `oneOf` only say that something within is wrong.
    /// `value` is the whole.
    fn innermost(&self, error: &ValidationError<'_>, value: &Value, found: &mut Vec<Violation>) {
        let place = error.instance_path().to_string();
        match error.kind() {
            // Each by its own place, rather than that of the object.
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let message = self.unknown_name(error);
                found.extend(unexpected.iter().map(|name| Violation {
                    pointer: format!("{place}/{}", escaped(name)),
                    message: message.clone(),
                }));
            }
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context } => {
                for error in context.iter().flatten() {
                    self.innermost(error, value, found);
                }
            }
            // `additionalProperties: false` where no property is known: one error for all of the object's.
            ValidationErrorKind::FalseSchema if owner(error, value).is_some() => {
                let names = owner(error, value).into_iter().flat_map(Map::keys);
                found.extend(names.map(|name| Violation {
                    pointer: format!("{place}/{}", escaped(name)),
                    message: self.unknown_name(error),
                }));
            }
            _ => found.push(Violation {
                pointer: place,
                message: message(error),
            }),
        }
    }

    /// Message about a name that an object may not have: it lists those that it may.
    fn unknown_name(&self, error: &ValidationError<'_>) -> String {
        let keyword = error.schema_path().as_str();
        let parent = keyword.strip_suffix("/additionalProperties");
        let parent = parent.and_then(|parent| self.source.pointer(parent));
        let properties = parent.and_then(|parent| parent["properties"].as_object());
        let names = properties.map(|properties| {
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

/// A violation of the value as a whole.
fn whole(message: &str) -> Vec<Violation> {
    vec![Violation {
        pointer: String::new(),
        message: message.to_owned(),
    }]
}

/// The object whose property has no place in it, if that is what the error says. The validator tells the object's
/// place then, with the property as the instance.
fn owner<'a>(error: &ValidationError<'_>, value: &'a Value) -> Option<&'a Map<String, Value>> {
    let keyword = error.schema_path().as_str();
    let owner = value.pointer(error.instance_path().as_str())?;
    let of_keyword =
        keyword.ends_with("/additionalProperties") && owner != error.instance().as_ref();
    of_keyword.then(|| owner.as_object()).flatten()
}

/// The draft that a schema names, else 2020-12.
fn draft(schema: &Value) -> Result<Draft, String> {
    match Draft::default().detect(schema) {
        Draft::Unknown => Err(format!(
            "a schema may not refer to the meta-schema {}",
            schema["$schema"]
        )),
        draft => Ok(draft),
    }
}

/// Text about a schema that is none. It names the place within the schema.
fn refusal(error: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::Referencing(jsonschema::ReferencingError::Unretrievable {
        uri,
        ..
    }) = error.kind()
    {
        return format!("a schema may not refer to `{uri}`");
    }
    match error.instance_path().as_str() {
        "" => error.to_string(),
        place => format!("{place}: {error}"),
    }
}

/// Message about a value, without the value itself: settings hold secrets, and arguments are long.
fn message(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => {
                    let kinds: Vec<String> = kinds.iter().map(|kind| kind.to_string()).collect();
                    kinds.join(" or ")
                }
            };
            format!("want {wanted}, but got {}", type_name(error.instance()))
        }
        _ => error.masked().to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A name as part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Size of a JSON value, in what validation with it costs.
#[derive(Default)]
struct Count {
    depth: usize,
    references: usize,
    unevaluated: usize,
    identifiers: usize,
}

impl Count {
    fn of(value: &Value) -> Self {
        let mut count = Self::default();
        let mut rest = vec![(value, 1)];
        while let Some((value, depth)) = rest.pop() {
            count.depth = count.depth.max(depth);
            match value {
                Value::Array(items) => rest.extend(items.iter().map(|item| (item, depth + 1))),
                Value::Object(fields) => {
                    for (name, field) in fields {
                        match name.as_str() {
                            "$ref" | "$dynamicRef" | "$recursiveRef" => count.references += 1,
                            "unevaluatedProperties" | "unevaluatedItems" => count.unevaluated += 1,
                            "$id" if field.is_string() => count.identifiers += 1,
                            _ => {}
                        }
                        rest.push((field, depth + 1));
                    }
                }
                _ => {}
            }
        }
        count
    }
}

struct NoRetriever;

impl jsonschema::Retrieve for NoRetriever {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("a schema may not refer to `{uri}`").into())
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
    fn all_unknown_names_are_told_where_none_is_known() {
        let schema = json!({"additionalProperties": false});
        let schema = JsonSchema::compile(schema).unwrap();
        let found = schema.violations(&json!({"x": 1, "y": {}}));
        let places: Vec<_> = found.iter().map(|found| &*found.pointer).collect();
        assert_eq!(places, ["/x", "/y"]);
        let schema = json!({"properties": {"additionalProperties": false}});
        let schema = JsonSchema::compile(schema).unwrap();
        let found = schema.violations(&json!({"additionalProperties": {"x": 1}}));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pointer, "/additionalProperties");
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

    #[test]
    fn choices_tell_the_innermost_places() {
        let choice =
            json!({"anyOf": [{"type": "string"}, {"properties": {"a": {"type": "integer"}}}]});
        let schema =
            JsonSchema::compile(json!({"properties": {"list": {"items": choice}}})).unwrap();
        let found = schema.violations(&json!({"list": ["x", {"a": "secret"}]}));
        let texts = found.iter().map(|found| (&*found.pointer, &*found.message));
        let expected = [
            ("/list/1", "want string, but got object"),
            ("/list/1/a", "want integer, but got string"),
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn values_are_not_repeated() {
        let schema = json!({"properties": {"a": {"maxLength": 3}, "b": {"enum": ["x", "y"]}, "c": {"pattern": "^z$"},
            "d": {"maximum": 5}, "e": {"not": {}}, "f": false, "g": {"const": 1}, "h": {"oneOf": [{}, {}]}}});
        let schema = JsonSchema::compile(schema).unwrap();
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let value = if name == "d" {
                json!(424_242)
            } else {
                json!("a 424242")
            };
            let found = schema.violations(&json!({name: value}));
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!(found[0].pointer, format!("/{name}"));
            assert!(!found[0].message.contains("424242"), "{name}: {found:?}");
        }
    }

    #[test]
    fn patterns_run_in_linear_time() {
        let schema = JsonSchema::compile(json!({"pattern": "^(a+)+$"})).unwrap();
        assert_eq!(
            schema.violations(&json!("a".repeat(100_000) + "b")).len(),
            1
        );
        for pattern in ["(?=a)b", "(a)\\1", "(((a{100}){100}){100}){100}", "["] {
            assert!(
                JsonSchema::compile(json!({"pattern": pattern})).is_err(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn schemas_that_cost_too_much_are_refused() {
        let many = |keyword: &str, number: usize| {
            let one = |index| (format!("k{index}"), json!({keyword: {"title": "x"}}));
            json!({"$defs": Map::from_iter((0..number).map(one))})
        };
        for (keyword, limit) in [
            ("$ref", MAX_REFERENCES),
            ("$dynamicRef", MAX_REFERENCES),
            ("unevaluatedProperties", MAX_UNEVALUATED),
            ("unevaluatedItems", MAX_UNEVALUATED),
        ] {
            let error = JsonSchema::compile(many(keyword, limit + 1)).err();
            let error = error.expect("a schema that is refused");
            assert!(error.contains(&format!("of at most {limit}")), "{error}");
        }
    }

    #[test]
    fn schemas_that_double_their_work_are_not_applied() {
        let definition = |at: usize| {
            let next = json!({"$ref": format!("#/$defs/{}", at + 1)});
            (at.to_string(), json!({"allOf": [next, next]}))
        };
        let mut definitions = Map::from_iter((0..60).map(definition));
        definitions.insert("60".to_owned(), json!({}));
        let schema = json!({"$ref": "#/$defs/0", "$defs": definitions});
        let schema = JsonSchema::compile(schema).unwrap();
        let found = schema.violations(&json!({}));
        assert!(found[0].message.contains("too long"), "{found:?}");
        let embedded = json!({"$id": "a", "properties": {"x": {"$id": "b"}}});
        let error = JsonSchema::compile(embedded).err().unwrap();
        assert!(error.contains("`$id`"), "{error}");
    }

    /// References, each to a schema that is nested in others, and the last back to the first.
    fn nested(references: usize, depth: usize) -> Value {
        let definition = |index: usize| {
            let next = json!({"$ref": format!("#/$defs/{}", index + 1)});
            let last = json!({"properties": {"a": {"$ref": "#"}}, "type": "object"});
            let inner = if index + 1 == references { last } else { next };
            let nested = (0..depth).fold(inner, |inner, _| json!({"allOf": [inner]}));
            (index.to_string(), nested)
        };
        let definitions = Map::from_iter((0..references).map(definition));
        json!({"$ref": "#/$defs/0", "$defs": definitions})
    }

    #[test]
    fn deep_values_do_not_overflow_the_stack() {
        let value = |depth| (0..depth).fold(json!({}), |inner, _| json!({"a": inner}));
        let schema = JsonSchema::compile(nested(16, 30)).unwrap();
        assert_eq!(schema.violations(&value(100)), []);
        let wrong = json!({"a": {"a": {"a": 5}}});
        assert_eq!(schema.violations(&wrong)[0].pointer, "/a/a/a");
        let schema = JsonSchema::compile(nested(200, 50)).unwrap();
        assert_eq!(schema.violations(&value(3)), []);
        let found = schema.violations(&value(100));
        assert!(found[0].message.contains("too deeply"), "{found:?}");
    }
}
