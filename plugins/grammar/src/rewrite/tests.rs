use serde_json::{Value, json};

use super::Refusal;

fn rewritten(schema: &Value) -> Result<Value, Refusal> {
    let how = super::Rewrite {
        remembers: true,
        ways: super::Ways::MANY,
    };
    super::rewritten(schema, how)
}

fn refusal(schema: Value) -> Refusal {
    rewritten(&schema).expect_err("a refusal")
}

#[test]
fn options_that_exclude_each_other_are_any_of_them() {
    let tagged = |tag: &str| json!({"type": "object", "properties": {"kind": {"const": tag}}, "required": ["kind"]});
    let schemas = [
        json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
        json!({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": tagged("a"), "b": tagged("b")}}),
        json!({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}),
        json!({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "number", "exclusiveMinimum": 3}]}),
        json!({"oneOf": [{"enum": [1, "x"]}, {"enum": [2, "y"]}]}),
    ];
    for schema in schemas {
        let options = schema["oneOf"].clone();
        let result = rewritten(&schema).expect("a schema");
        assert_eq!(result["allOf"], json!([{"anyOf": options}]), "{schema}");
        assert_eq!(result.get("oneOf"), None);
    }
}

#[test]
fn the_order_of_keywords_stays() {
    let schema = json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object", "properties": {}});
    let result = rewritten(&schema).expect("a schema");
    let keys: Vec<&String> = result.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["allOf", "type", "properties"]);
}

#[test]
fn a_value_of_an_enumeration_is_what_the_rest_leaves() {
    let schema = json!({"enum": ["a", "b", 3, null], "not": {"enum": ["b", null]}});
    assert_eq!(
        rewritten(&schema).expect("a schema"),
        json!({"enum": ["a", 3]})
    );
    let schema = json!({"const": "a", "not": {"minLength": 1}});
    assert_eq!(
        rewritten(&schema).expect("a schema"),
        json!({"allOf": [false]})
    );
}

#[test]
fn what_cannot_be_decided_is_refused_by_name() {
    let within =
        json!({"properties": {"a": {"items": [{"type": "array", "not": {"uniqueItems": true}}]}}});
    let Refusal { path, reason } = refusal(within);
    assert_eq!(path, "/properties/a/items/0/not");
    assert_eq!(
        reason,
        "the opposite of its `uniqueItems` cannot be written as a grammar"
    );
    let referred = json!({"$ref": "#/definitions/t", "definitions": {"t": {"properties": {"x": {"not": {"$ref": "other"}}}}}});
    assert_eq!(refusal(referred).path, "/definitions/t/properties/x/not");
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    for schema in [
        json!({"not": {"$ref": "#"}}),
        json!({"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "array"}]}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"propertyNames": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}}),
        json!({"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": false}),
    ] {
        drop(rewritten(&schema));
    }
}

#[test]
fn many_options_end() {
    let options: Vec<Value> = (0..400)
        .map(|index| json!({"required": [format!("p{index}")]}))
        .collect();
    drop(rewritten(&json!({"type": "object", "oneOf": options})));
    let wide: Vec<Value> = (0..30)
        .map(|index| json!({"properties": {format!("a{index}"): {"type": "string"}, format!("b{index}"): {"type": "string"}}}))
        .collect();
    // They overlap in more ways than are kept.
    let kept = rewritten(&json!({"oneOf": wide})).unwrap();
    assert!(kept.to_string().len() < 1 << 20);
}

#[test]
fn values_that_a_part_lists_are_looked_at_one_by_one() {
    let listed = |values: Value, other: Value| json!({"allOf": [{"enum": values}, other]});
    for (schema, left) in [
        (
            listed(json!(["a", 7]), json!({"not": {"type": "integer"}})),
            json!(["a"]),
        ),
        (
            listed(
                json!([2.5, 1, 9]),
                json!({"not": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}}),
            ),
            json!([9]),
        ),
        (
            listed(
                json!([{"b": 1}, {"a": "x"}]),
                json!({"not": {"required": ["a"]}}),
            ),
            json!([{"b": 1}]),
        ),
    ] {
        assert_eq!(
            rewritten(&schema).expect("a schema"),
            json!({"enum": left}),
            "{schema}"
        );
    }
}
