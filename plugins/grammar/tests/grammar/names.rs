//! Names of members, of which JSON has many spellings.

use mortise_grammar::source::Source;
use serde_json::{Map, Value, json};

use super::{engine, schema, takes};

/// The text of a name with one of its letters as an escape.
fn escaped(name: &str, at: usize) -> String {
    let letters = name.chars().enumerate();
    letters
        .map(|(index, letter)| match index == at {
            true => format!("\\u{:04x}", u32::from(letter)),
            false => letter.to_string(),
        })
        .collect()
}

/// A name that is written with an escape is the name that it spells: it comes neither beside the name itself nor in
/// its place, in a schema alone and within Lark.
#[test]
fn feature_p8_an_escape_makes_no_other_name() {
    let named = json!({"type": "object", "properties": {"ab": {"type": "integer"}}});
    let with = |more: Value| {
        let mut schema = named.clone();
        let fields = schema.as_object_mut().unwrap();
        fields.extend(more.as_object().cloned().unwrap());
        schema
    };
    let schemas = [
        named.clone(),
        with(json!({"additionalProperties": {"type": "string"}})),
        with(json!({"additionalProperties": {}, "required": ["ab", "c"]})),
        with(json!({"patternProperties": {"^a": {"type": "integer"}}})),
        json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}),
        json!({"type": "object", "required": ["ab"], "additionalProperties": {"type": "string"}}),
        json!({"allOf": [named.clone(), {"additionalProperties": {"type": ["string", "integer"]}}]}),
        json!({"anyOf": [named.clone(), {"type": "object", "patternProperties": {"^a": {"type": "null"}}}]}),
        json!({"$ref": "#/$defs/t", "$defs": {"t": named}}),
        json!({"type": "object", "not": {"required": ["ab"]}}),
        json!({"type": "object", "dependentRequired": {"c": ["ab"]}}),
        json!({"type": "object", "propertyNames": {"pattern": "^[^a]"}}),
    ];
    for value in schemas {
        let within = Source::Lark(format!("start: %json {value}"));
        for source in [schema(value.clone()), within] {
            let once = |name: &str| {
                let member = |member: &str| format!("\"{name}\": {member}");
                [member("\"x\""), member("1"), member("null")]
            };
            for name in [
                escaped("ab", 0),
                escaped("ab", 1),
                "\\u0061\\u0062".to_owned(),
            ] {
                for member in once(&name) {
                    for text in [
                        format!("{{{member}}}"),
                        format!("{{\"ab\": 1, {member}}}"),
                        format!("{{\"ab\": 1, \"c\": 1, {member}}}"),
                        format!("{{\"c\": 1, {member}}}"),
                    ] {
                        assert!(!takes(&source, &text), "{value} {text}");
                    }
                }
            }
            // Others are as free as they were, and what is taken is valid.
            let mut taken = 0;
            for text in [
                "{}",
                r#"{"c": "x"}"#,
                r#"{"ab": 1}"#,
                r#"{"ab": 1, "c": 1}"#,
                r#"{"ab": "x"}"#,
                r#"{"ab": "x", "c": "x"}"#,
                r#"{"ab": 1, "c": "x"}"#,
                r#"{"ab": 1, "c\n\"\\é": "x"}"#,
                r#"{"c": "x", "abc": "x"}"#,
                r#"{"a": 1, "b": "x"}"#,
            ] {
                let document: Value = serde_json::from_str(text).unwrap();
                if takes(&source, text) {
                    taken += 1;
                    assert!(jsonschema::is_valid(&value, &document), "{value} {text}");
                }
            }
            assert!(taken > 1, "{value}");
        }
    }
}

/// Members beside named ones are written as before, with line breaks and control characters in their texts.
#[test]
fn names_beside_named_ones_are_free() {
    let open = schema(json!({"properties": {"a": {"type": "integer"}}, "required": ["a"]}));
    for text in [
        r#"{"a": 1, "b": {"c": [1, {"d": null}]}}"#,
        r#"{"a": 1, "a b": "x", "é😀\n": "\u001b[0m", "": true}"#,
        r#"{"a": 1, "aa": 1}"#,
        r#"{"a": 1, "\u001b": 1}"#,
    ] {
        assert!(takes(&open, text), "{text}");
    }
    // A control character has several escapes, so that a name with one has many spellings.
    let control = schema(json!({"properties": {"\u{1b}\n": {"type": "integer"}}}));
    assert!(takes(&control, r#"{"\u001b\n": 1, "b": "x"}"#));
    for text in [
        r#"{"\u001B\n": "x"}"#,
        r#"{"\u001b\u000a": "x"}"#,
        r#"{"\u001b\n": "x"}"#,
    ] {
        assert!(!takes(&control, text), "{text}");
    }
}

/// A member that is written again is one member, so that it does not count twice.
#[test]
fn feature_p8_members_that_are_counted_have_different_names() {
    let counted = [
        json!({"type": "object", "minProperties": 2}),
        json!({"type": "object", "minProperties": 3, "required": ["a"], "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": false, "minProperties": 2}),
        json!({"properties": {"x": {"type": "object", "minProperties": 2}}, "required": ["x"]}),
    ];
    for value in counted {
        let (mut valid, mut all) = (0, 0);
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": 1, "ab": 1}"#,
            r#"{"a": 1, "ab": 1, "ab": 2}"#,
            r#"{"a": 1, "ab": 1, "abc": 2}"#,
            r#"{"a": 1, "ab": {"b": 1, "b": 2}}"#,
            r#"{"x": {"a": 1, "a": 1}}"#,
            r#"{"x": {"a": 1, "b": 1}}"#,
            r#"{"x": {"a": {"x": 1}, "b": {"x": 1}}}"#,
        ] {
            if takes(&schema(value.clone()), text) {
                all += 1;
                let document: Value = serde_json::from_str(text).unwrap();
                valid += usize::from(jsonschema::is_valid(&value, &document));
            }
        }
        assert!(all > 0 && all == valid, "{value}: {valid} of {all}");
    }
    // Where nothing remembers the names, and where there are too few, the schema is refused.
    let within = "start: %json {\"type\": \"object\", \"minProperties\": 2}";
    assert!(engine().compile(&Source::Lark(within.to_owned())).is_err());
    let few = json!({"patternProperties": {"^[ab]$": {}}, "additionalProperties": false, "minProperties": 2});
    let few = engine().compile(&schema(few)).unwrap_err().to_string();
    assert!(few.contains("`/minProperties`"), "{few}");
    let named: Map<String, Value> = Map::from_iter([("a".to_owned(), json!({}))]);
    let named = json!({"properties": named, "required": ["a"], "minProperties": 2});
    assert!(engine().compile(&schema(named)).is_ok());
}
