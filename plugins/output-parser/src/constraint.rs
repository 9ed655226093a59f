//! The grammar that an answer must follow, in llguidance's dialect of Lark.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::output_parser::{GrammarSource, Setup};
use mortise_plugin_sdk::tools::{Tool, Tools};
use serde_json::{Map, Value, json};

use crate::style::{Format, Style};

/// Calls in one answer.
const MAX_CALLS: usize = 16;

/// The grammar under which `setup` and the wanted format hold; none if anything may be generated.
///
/// | | nothing wanted | format wanted |
/// |---|---|---|
/// | no tools, or `tool_choice` is `none` | free | the format |
/// | `auto` | free | calls or the format |
/// | `required` or named | calls | refused |
///
/// A block of reasoning that the prompt opened comes first and is free. Where calls are forced, a
/// model that reasons may open such a block itself.
///
/// # Errors
/// [`Fault::Invalid`] for what cannot hold, and for tools and schemas that make no sense.
pub fn constraint(
    style: &Style,
    setup: &Setup,
    wanted: Option<GrammarSource>,
) -> Result<Option<GrammarSource>, Fault> {
    let tools = Tools::allowed(setup)?;
    if !tools.forced() && wanted.is_none() {
        return Ok(None);
    }
    if tools.forced() && wanted.is_some() {
        return Err(Fault::Invalid(
            "`response_format` cannot be combined with a `tool_choice` that forces a call; \
             leave one of them out"
                .to_owned(),
        ));
    }
    match wanted {
        Some(wanted) if tools.is_empty() && !setup.opens_reasoning => Ok(Some(wanted)),
        wanted => {
            let lark = lark(style, &tools, setup.opens_reasoning, wanted)?;
            Ok(Some(GrammarSource::Lark(lark)))
        }
    }
}

fn lark(
    style: &Style,
    tools: &Tools,
    opens_reasoning: bool,
    wanted: Option<GrammarSource>,
) -> Result<String, Fault> {
    let mut answer = Vec::new();
    let mut rules = Vec::new();
    if !tools.is_empty() {
        answer.push("calls");
        rules.extend(call_rules(style, tools));
    }
    if let Some(wanted) = wanted {
        answer.push("content");
        rules.push(format!("content: {}", content(wanted)?));
    }
    let answer = answer.join(" | ");
    let mut lines = Vec::new();
    if opens_reasoning {
        lines.push("start: thought gap? answer".to_owned());
    } else if tools.forced() && style.reasons {
        lines.push("start: (open_think thought gap?)? answer".to_owned());
        lines.push(format!("open_think: {}", mark(style, "<think>")));
    } else {
        lines.push("start: answer".to_owned());
    }
    lines.push(format!("answer: {answer}"));
    if lines[0].contains("thought") {
        lines.push("gap: /[ \\n]{1,4}/".to_owned());
        lines.push(match style.control_token("</think>") {
            Some(token) => format!("thought: /(.|\\n)*/ <[{}]>", token.id),
            None => "thought[suffix=\"</think>\"]: /(.|\\n)*/".to_owned(),
        });
    }
    lines.extend(rules);
    Ok(lines.join("\n") + "\n")
}

/// A mark of the format: the control token if the model has it, else its text.
fn mark(style: &Style, text: &str) -> String {
    match style.control_token(text) {
        Some(token) => format!("<[{}]>", token.id),
        None => quote(text),
    }
}

fn call_rules(style: &Style, tools: &Tools) -> Vec<String> {
    let separator = match style.format {
        Format::Hermes => "\n",
        Format::Llama3Json => "; ",
    };
    let mut rules = vec![if tools.parallel() {
        format!(
            "calls: call ({} call){{0,{}}}",
            quote(separator),
            MAX_CALLS - 1
        )
    } else {
        "calls: call".to_owned()
    }];
    rules.push(match style.format.closing() {
        Some(closing) => format!(
            "call: {} \"\\n\" object \"\\n\" {}",
            mark(style, style.format.opening()),
            mark(style, closing)
        ),
        None => "call: object".to_owned(),
    });
    let objects: Vec<String> = (0..tools.iter().len())
        .map(|index| format!("object_{index}"))
        .collect();
    rules.push(format!("object: {}", objects.join(" | ")));
    for (index, tool) in tools.iter().enumerate() {
        rules.push(object_rule(style.format, index, tool));
    }
    rules
}

fn object_rule(format: Format, index: usize, tool: &Tool) -> String {
    let head = format!(
        "{{\"name\": {}, \"{}\": ",
        Value::from(tool.name.as_str()),
        format.arguments_key()
    );
    format!(
        "object_{index}: {} {} \"}}\"",
        quote(&head),
        json_rule(declared_only(arguments_schema(tool)))
    )
}

/// The schema of a tool's arguments: always an object's; one without properties if none was declared.
fn arguments_schema(tool: &Tool) -> Value {
    match &tool.parameters {
        Value::Object(schema) if schema.contains_key("type") => tool.parameters.clone(),
        Value::Object(schema) => {
            let mut typed = Map::from_iter([("type".to_owned(), json!("object"))]);
            typed.extend(schema.clone());
            Value::Object(typed)
        }
        _ => json!({"type": "object", "properties": {}, "additionalProperties": false}),
    }
}

/// Arguments hold what was declared: where a schema names properties and does not say whether there
/// may be others, there may not, or a model could invent names for ever. Schemas that are put
/// together from parts are left as they are, since each part would shut the others out.
fn declared_only(mut schema: Value) -> Value {
    const PARTS: [&str; 7] = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    ];
    let Value::Object(fields) = &mut schema else {
        return schema;
    };
    if let Some(items) = fields.get_mut("items") {
        *items = declared_only(items.take());
    }
    let Some(Value::Object(properties)) = fields.get_mut("properties") else {
        return schema;
    };
    for property in properties.values_mut() {
        *property = declared_only(property.take());
    }
    if !PARTS.iter().any(|part| fields.contains_key(*part)) {
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    schema
}

fn content(wanted: GrammarSource) -> Result<String, Fault> {
    Ok(match wanted {
        GrammarSource::JsonObject => json_rule(json!({"type": "object"})),
        GrammarSource::JsonSchema(text) => {
            let schema = serde_json::from_str(&text).map_err(|error| {
                Fault::Invalid(format!("the JSON schema of `response_format`: {error}"))
            })?;
            match schema {
                Value::Bool(true) => json_rule(json!({})),
                Value::Object(_) => json_rule(schema),
                _ => {
                    return Err(Fault::Invalid(
                        "the JSON schema of `response_format` must be an object".to_owned(),
                    ));
                }
            }
        }
        GrammarSource::Regex(regex) if regex.is_empty() => "\"\"".to_owned(),
        GrammarSource::Regex(regex) => format!("/{}/", escape_slashes(&regex)),
        GrammarSource::Lark(text) => format!("%lark {{\n{text}\n}}"),
    })
}

/// Whitespace as in the grammar plugin: one space, or a line break with its indentation.
fn json_rule(mut schema: Value) -> String {
    if let Value::Object(fields) = &mut schema {
        fields.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_pattern": r"\x20|\r?\n[\x20\t]{0,24}"}),
        );
    }
    format!("%json {schema}")
}

/// A literal of Lark, which is written like one of JSON.
fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn escape_slashes(regex: &str) -> String {
    let mut escaped = String::with_capacity(regex.len());
    let mut backslash = false;
    for c in regex.chars() {
        if c == '/' && !backslash {
            escaped.push('\\');
        }
        backslash = c == '\\' && !backslash;
        escaped.push(c);
    }
    escaped
}
