//! What generated text must look like: OpenAI's `response_format` and the names that vLLM users
//! know (`guided_*`, `structured_outputs`). At most one of them.

use mortise_http::Problem as ApiError;
use mortise_service::{GrammarSource, RequestFields};
use serde_json::Value;

use super::fields::{Fields, wrong_type};

/// The request's constraint on content, if it has one, and the field that it stands in.
pub(crate) fn take_constraint(
    fields: &mut Fields,
    request: &mut RequestFields,
) -> Result<(), ApiError> {
    let mut found: Vec<(String, GrammarSource)> = Vec::new();
    if let Some(source) = take_response_format(fields)? {
        found.push(("response_format".to_owned(), source));
    }
    take_family(
        fields,
        [
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
        ],
        &mut found,
    )?;
    if let Some(mut nested) = fields.nested("structured_outputs")? {
        const NAMES: [&str; 4] = ["json", "regex", "choice", "grammar"];
        take_family(&mut nested, NAMES, &mut found)?;
        if nested.boolean("json_object")?.unwrap_or(false) {
            found.push((nested.path_of("json_object"), GrammarSource::JsonObject));
        }
        let ignored = nested.finish(&["json", "regex", "choice", "grammar", "json_object"])?;
        fields.also_ignored(ignored);
    }
    if let [(first, _), (second, _), ..] = found.as_slice() {
        return Err(ApiError::invalid(
            second.as_str(),
            format!("`{first}` and `{second}` both constrain the answer; give one of them"),
        ));
    }
    (request.grammar_field, request.grammar) = found.pop().unzip();
    Ok(())
}

fn take_response_format(fields: &mut Fields) -> Result<Option<GrammarSource>, ApiError> {
    let Some(mut format) = fields.nested("response_format")? else {
        return Ok(None);
    };
    let source = match format.choice("type", &["text", "json_object", "json_schema"])? {
        None => return Err(format.missing("type")),
        Some("text") => None,
        Some("json_object") => Some(GrammarSource::JsonObject),
        Some(_) => {
            let Some(mut wrapper) = format.nested("json_schema")? else {
                return Err(format.missing("json_schema"));
            };
            check_name(&mut wrapper)?;
            wrapper.string("description")?;
            // Strict or not, the answer is held to the schema: the looser promise is kept too.
            wrapper.boolean("strict")?;
            let source = match wrapper.take("schema") {
                None => GrammarSource::JsonObject,
                Some(schema) => schema_source(&wrapper.path_of("schema"), schema)?,
            };
            let ignored = wrapper.finish(&["name", "description", "strict", "schema"])?;
            format.also_ignored(ignored);
            Some(source)
        }
    };
    let ignored = format.finish(&["type", "json_schema"])?;
    fields.also_ignored(ignored);
    Ok(source)
}

fn check_name(wrapper: &mut Fields) -> Result<(), ApiError> {
    let name = wrapper.required_string("name")?;
    let path = wrapper.path_of("name");
    super::tools::check_name(&path, &name)
}

/// Schema, regular expression, list of choices, Lark grammar, under the given four names.
fn take_family(
    fields: &mut Fields,
    [json, regex, choice, grammar]: [&'static str; 4],
    found: &mut Vec<(String, GrammarSource)>,
) -> Result<(), ApiError> {
    if let Some(schema) = fields.take(json) {
        let path = fields.path_of(json);
        let source = match schema {
            // vLLM takes the schema as text as well.
            Value::String(text) => {
                let parsed = serde_json::from_str(&text).map_err(|error| {
                    ApiError::invalid(
                        path.as_str(),
                        format!("`{path}` is not valid JSON: {error}"),
                    )
                })?;
                schema_source(&path, parsed)?
            }
            other => schema_source(&path, other)?,
        };
        found.push((path, source));
    }
    if let Some(pattern) = fields.string(regex)? {
        found.push((fields.path_of(regex), GrammarSource::Regex(pattern)));
    }
    if let Some(choices) = fields.optional_strings(choice)? {
        let path = fields.path_of(choice);
        if choices.is_empty() {
            let problem = format!("`{path}` is empty; name at least one text to choose");
            return Err(ApiError::invalid(path, problem));
        }
        found.push((path, GrammarSource::Regex(alternatives(&choices))));
    }
    if let Some(text) = fields.string(grammar)? {
        found.push((fields.path_of(grammar), GrammarSource::Lark(text)));
    }
    Ok(())
}

fn schema_source(path: &str, schema: Value) -> Result<GrammarSource, ApiError> {
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(GrammarSource::JsonSchema(schema.to_string())),
        other => Err(wrong_type(
            path,
            "a JSON Schema, an object or a boolean",
            &other,
        )),
    }
}

/// A regular expression that matches exactly one of the texts.
fn alternatives(choices: &[String]) -> String {
    let escaped: Vec<String> = choices
        .iter()
        .map(|choice| {
            choice
                .chars()
                .fold(String::new(), |mut pattern, character| {
                    if character.is_ascii()
                        && !character.is_ascii_alphanumeric()
                        && character != ' '
                    {
                        match character {
                            '\n' => pattern.push_str("\\n"),
                            '\t' => pattern.push_str("\\t"),
                            '\r' => pattern.push_str("\\r"),
                            other if other.is_ascii_punctuation() && other != '_' => {
                                pattern.push('\\');
                                pattern.push(other);
                            }
                            other => pattern.push(other),
                        }
                    } else {
                        pattern.push(character);
                    }
                    pattern
                })
        })
        .collect();
    format!("({})", escaped.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_match_themselves_only() {
        let choices = ["yes", "no (really)", "a.b\n"].map(str::to_owned);
        assert_eq!(alternatives(&choices), "(yes|no \\(really\\)|a\\.b\\n)");
    }
}
