//! Constraints on generated text: OpenAI's `response_format`, and the names that vLLM's users know
//! (`guided_*`, `structured_outputs`). At most one of them.

use mortise_http::Problem;
use mortise_service::{ContentConstraint, GrammarSource};
use serde::Deserialize;
use serde_json::Value;

use crate::fields::{FieldPath, Texts, missing, words, wrong_type};

/// Characters of the name of a schema.
const MAX_SCHEMA_NAME: usize = 64;

/// All fields that constrain content.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Constraints {
    response_format: Option<ResponseFormat>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Texts>,
    guided_grammar: Option<String>,
    structured_outputs: Option<StructuredOutputs>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: FormatKind,
    json_schema: Option<JsonSchema>,
}

words! {
    /// Type of a response format.
    FormatKind {
        Text = "text",
        JsonObject = "json_object",
        JsonSchema = "json_schema",
    }
}

/// Strict or not, the answer is held to the schema: the looser promise is kept too.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(
    dead_code,
    reason = "a description and `strict` are checked for their types"
)]
struct JsonSchema {
    name: String,
    description: Option<String>,
    strict: Option<bool>,
    schema: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct StructuredOutputs {
    json: Option<Value>,
    regex: Option<String>,
    choice: Option<Texts>,
    grammar: Option<String>,
    json_object: Option<bool>,
}

/// One family of fields: a schema, a regular expression, texts to choose from, a Lark grammar.
struct Family {
    json: (FieldPath, Option<Value>),
    regex: (FieldPath, Option<String>),
    choice: (FieldPath, Option<Texts>),
    grammar: (FieldPath, Option<String>),
}

impl Constraints {
    /// The constraint, if there is one.
    pub(crate) fn translate(self) -> Result<Option<ContentConstraint>, Problem> {
        let mut found = Vec::new();
        if let Some(format) = self.response_format
            && let Some(source) = format.source()?
        {
            found.push((FieldPath::from("response_format"), source));
        }
        let guided = Family {
            json: (FieldPath::from("guided_json"), self.guided_json),
            regex: (FieldPath::from("guided_regex"), self.guided_regex),
            choice: (FieldPath::from("guided_choice"), self.guided_choice),
            grammar: (FieldPath::from("guided_grammar"), self.guided_grammar),
        };
        guided.sources(&mut found)?;
        if let Some(outputs) = self.structured_outputs {
            let path = FieldPath::from("structured_outputs");
            let nested = Family {
                json: (path.key("json"), outputs.json),
                regex: (path.key("regex"), outputs.regex),
                choice: (path.key("choice"), outputs.choice),
                grammar: (path.key("grammar"), outputs.grammar),
            };
            nested.sources(&mut found)?;
            if outputs.json_object.unwrap_or(false) {
                found.push((path.key("json_object"), GrammarSource::JsonObject));
            }
        }
        if let [(first, _), (second, _), ..] = found.as_slice() {
            return Err(Problem::invalid(
                second.to_string(),
                format!("`{first}` and `{second}` both constrain the answer; give one of them"),
            ));
        }
        Ok(found.pop().map(|(field, source)| ContentConstraint {
            field: field.to_string(),
            source,
        }))
    }
}

impl ResponseFormat {
    fn source(self) -> Result<Option<GrammarSource>, Problem> {
        match self.kind {
            FormatKind::Text => Ok(None),
            FormatKind::JsonObject => Ok(Some(GrammarSource::JsonObject)),
            FormatKind::JsonSchema => {
                let path = FieldPath::from("response_format").key("json_schema");
                let wrapper = self.json_schema.ok_or_else(|| missing(&path))?;
                let name = path.key("name");
                check_name(&name, &wrapper.name)?;
                match wrapper.schema {
                    None => Ok(Some(GrammarSource::JsonObject)),
                    Some(schema) => schema_source(&path.key("schema"), schema).map(Some),
                }
            }
        }
    }
}

/// A label of the caller's own: words that can be printed.
fn check_name(path: &FieldPath, name: &str) -> Result<(), Problem> {
    let length = name.chars().count();
    if (1..=MAX_SCHEMA_NAME).contains(&length) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Problem::invalid(
        path.to_string(),
        format!(
            "`{path}` has {length} characters; 1 to {MAX_SCHEMA_NAME} are allowed, and no control \
             characters"
        ),
    ))
}

impl Family {
    fn sources(self, found: &mut Vec<(FieldPath, GrammarSource)>) -> Result<(), Problem> {
        if let (path, Some(schema)) = self.json {
            let source = match schema {
                // vLLM takes the schema as text as well.
                Value::String(text) => {
                    let parsed = serde_json::from_str(&text).map_err(|error| {
                        Problem::invalid(
                            path.to_string(),
                            format!("`{path}` is not valid JSON: {error}"),
                        )
                    })?;
                    schema_source(&path, parsed)?
                }
                other => schema_source(&path, other)?,
            };
            found.push((path, source));
        }
        if let (path, Some(pattern)) = self.regex {
            found.push((path, GrammarSource::Regex(pattern)));
        }
        if let (path, Some(Texts(choices))) = self.choice {
            if choices.is_empty() {
                let problem = format!("`{path}` is empty; name at least one text to choose");
                return Err(Problem::invalid(path.to_string(), problem));
            }
            found.push((path, GrammarSource::Regex(alternatives(&choices))));
        }
        if let (path, Some(text)) = self.grammar {
            found.push((path, GrammarSource::Lark(text)));
        }
        Ok(())
    }
}

fn schema_source(path: &FieldPath, schema: Value) -> Result<GrammarSource, Problem> {
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
