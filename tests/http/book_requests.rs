//! Pages of the reference about requests: parameters, bodies and answers of all routes, made from the OpenAPI documents.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::book::MADE;

/// The page of a document.
pub(crate) fn page(title: &str, document: &Value) -> String {
    let mut page = format!(
        "# {title}\n\n{MADE}\nThe same as for programs: [the contract](../api/contract.md). A part with `?` may be left out.\n\n\
         ## Routes of this page\n"
    );
    for (path, methods) in object(&document["paths"]) {
        for (method, operation) in object(methods) {
            route(&mut page, method, path, operation);
        }
    }
    page.push_str("\n## Shapes\n");
    for (name, schema) in object(&document["components"]["schemas"]) {
        let _ = write!(page, "\n### {name}\n\n");
        shape(&mut page, schema);
    }
    page
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// Text of a cell: on one line, without what would end the cell or begin an element.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn route(page: &mut String, method: &str, path: &str, operation: &Value) {
    let summary = operation["summary"].as_str().unwrap_or_default();
    let _ = write!(
        page,
        "\n### `{} {path}`\n\n{}\n",
        method.to_uppercase(),
        cell(summary)
    );
    let mut rows = String::new();
    for parameter in list(operation, "parameters") {
        let text = |key: &str| parameter[key].as_str().unwrap_or_default();
        let may = if parameter["required"] == true {
            ""
        } else {
            "?"
        };
        let about = [text("description"), &limits(&parameter["schema"])].join(" ");
        let (name, place) = (text("name"), text("in"));
        let kind = kind(&parameter["schema"]);
        let _ = writeln!(
            rows,
            "| `{name}`{may} | {place} | {kind} | {} |",
            cell(&about)
        );
    }
    if !rows.is_empty() {
        let _ = write!(
            page,
            "\n| parameter | in | is | about |\n|---|---|---|---|\n{rows}"
        );
    }
    let body = &operation["requestBody"];
    let may = if body["required"] == true {
        ""
    } else {
        ", which may be left out"
    };
    for (media, content) in object(&body["content"]) {
        let _ = write!(
            page,
            "\nBody, `{media}`{may}: {}.\n",
            kind(&content["schema"])
        );
    }
    let statuses =
        object(&operation["responses"]).filter(|(status, _)| status.starts_with(['1', '2', '3']));
    for (status, answer) in statuses {
        let kinds = object(&answer["content"]);
        let kinds =
            kinds.map(|(media, content)| format!("{} as `{media}`", kind(&content["schema"])));
        let kinds: Vec<String> = kinds.collect();
        let kinds = if kinds.is_empty() {
            "no body".to_owned()
        } else {
            kinds.join(", ")
        };
        let _ = write!(page, "\nAnswer {status}: {kinds}.\n");
    }
}

/// Fields of an object, or what another shape is.
fn shape(page: &mut String, schema: &Value) {
    if let Some(about) = schema["description"].as_str() {
        let _ = write!(page, "{}\n\n", cell(about));
    }
    let required: Vec<&str> = list(schema, "required").filter_map(Value::as_str).collect();
    let mut rows = String::new();
    for (name, field) in object(&schema["properties"]) {
        let may = if required.contains(&&name[..]) {
            ""
        } else {
            "?"
        };
        let about = field["description"].as_str().unwrap_or_default();
        let about = [about, &limits(field)].join(" ");
        let _ = writeln!(
            rows,
            "| `{name}`{may} | {} | {} |",
            kind(field),
            cell(&about)
        );
    }
    if rows.is_empty() {
        let _ = writeln!(page, "Is {}. {}", kind(schema), cell(&limits(schema)));
        return;
    }
    let _ = write!(page, "| field | is | about |\n|---|---|---|\n{rows}");
    if !matches!(
        schema["additionalProperties"],
        Value::Null | Value::Bool(false)
    ) {
        page.push_str("\nFurther fields may come.\n");
    }
}

/// A schema in words, with links to shapes.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    let code = |value: &Value| cell(&format!("`{value}`"));
    if let Some(value) = schema.get("const") {
        return code(value);
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(code).collect::<Vec<_>>().join(" or ");
    }
    for key in ["anyOf", "oneOf"] {
        let kinds: Vec<String> = list(schema, key).map(kind).collect();
        if !kinds.is_empty() {
            return kinds.join(" or ");
        }
    }
    let all: Vec<String> = list(schema, "allOf").map(kind).collect();
    if !all.is_empty() {
        return all.join(" with ");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return "anything".to_owned(),
    };
    let named = |name: &&str| match *name {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" => of_object(schema),
        other => other.to_owned(),
    };
    types.iter().map(named).collect::<Vec<_>>().join(" or ")
}

/// An object that has no name: its fields in brackets.
fn of_object(schema: &Value) -> String {
    let required: Vec<&str> = list(schema, "required").filter_map(Value::as_str).collect();
    let fields = object(&schema["properties"]).map(|(name, field)| {
        let may = if required.contains(&&name[..]) {
            ""
        } else {
            "?"
        };
        format!("`{name}`{may} {}", kind(field))
    });
    let fields: Vec<String> = fields.collect();
    match (
        fields.is_empty(),
        schema["additionalProperties"].is_object(),
    ) {
        (true, true) => format!("object of {}", kind(&schema["additionalProperties"])),
        (true, false) => "object".to_owned(),
        (false, _) => format!("object ({})", fields.join(", ")),
    }
}

/// Bounds of a value.
fn limits(schema: &Value) -> String {
    let bounds = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "length at least"),
        ("maxLength", "length at most"),
        ("minItems", "at least this many:"),
        ("maxItems", "at most this many:"),
        ("format", "format"),
        ("default", "default"),
    ];
    let told = bounds.iter().filter_map(|(key, words)| {
        let value = schema.get(*key)?;
        Some(format!("{words} {value}"))
    });
    told.collect::<Vec<_>>().join(", ")
}

#[test]
fn schemas_are_told_in_words() {
    let of = |text: &str| kind(&serde_json::from_str(text).expect("JSON"));
    for (schema, words) in [
        (
            r##"{"$ref": "#/components/schemas/OneShape"}"##,
            "[OneShape](#oneshape)",
        ),
        (
            r#"{"type": ["string", "null"], "enum": ["a|b", null]}"#,
            r#"`"a\|b"` or `null`"#,
        ),
        (
            r#"{"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}"#,
            "list of integer or string",
        ),
        (
            r#"{"type": "object", "additionalProperties": {"type": "number"}}"#,
            "object of number",
        ),
        (
            r#"{"type": "object", "required": ["a"], "properties": {"a": {"const": 1}, "b": {}}}"#,
            "object (`a` `1`, `b`? anything)",
        ),
    ] {
        assert_eq!(of(schema), words, "{schema}");
    }
    let bounds = serde_json::json!({"minimum": 0, "maxLength": 5, "default": "x"});
    assert_eq!(
        limits(&bounds),
        "at least 0, length at most 5, default \"x\""
    );
}
