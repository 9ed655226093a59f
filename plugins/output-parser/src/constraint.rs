//! The grammar that an answer must follow, in llguidance's dialect of Lark.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::output_parser::{GrammarSource, Setup};
use mortise_plugin_sdk::tools::Tools;
use serde_json::{Value, json};

use crate::calls;
use crate::marks::{mark, text_until};
use crate::schema::json_rule;
use crate::style::Style;

/// The grammar under which `setup` and the wanted format hold; none if anything may be generated.
///
/// | | nothing wanted | format wanted |
/// |---|---|---|
/// | no tools, or `tool_choice` is `none` | free | the format |
/// | `auto` | free | calls or the format |
/// | `required` or named | calls | refused |
///
/// Calls of some formats cannot be written as a grammar: where one is needed, the request is refused.
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
        Some(wanted)
            if tools.is_empty() && !setup.opens_reasoning && !style.format.spec().framed =>
        {
            Ok(Some(wanted))
        }
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
        rules.extend(calls::rules(style, tools)?);
    }
    if let Some(wanted) = wanted {
        answer.push("content");
        // A model may have been shown the first mark already, or leave the last out.
        let around = |text| match mark(style, text) {
            mark if mark.is_empty() => mark,
            mark => format!("({mark})?"),
        };
        let (open, close) = style.format.spec().answer;
        rules.push(format!(
            "content: {} wanted {}",
            around(open),
            around(close)
        ));
        rules.push(format!("wanted: {}", content(wanted)?));
    }
    let answer = answer.join(" | ");
    let (open, close) = style.thought;
    let thinks = tools.forced() && style.reasons;
    let mut lines = vec![if opens_reasoning {
        "start: thought gap? answer".to_owned()
    } else if thinks {
        format!(
            "start: (open_think thought gap?)? answer\nopen_think: {}",
            mark(style, open)
        )
    } else {
        "start: answer".to_owned()
    }];
    lines.push(format!("answer: {answer}"));
    if opens_reasoning || thinks {
        lines.push("gap: /[ \\n]{1,4}/".to_owned());
        lines.push(text_until(style, "thought", close));
    }
    lines.extend(rules);
    Ok(lines.join("\n") + "\n")
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
