//! Constraints on generated text: OpenAI's `response_format`, and the names that users of vLLM know
//! (`guided_*`, `structured_outputs`), those of llama-server (`grammar`, `json_schema`) and of SGLang (`regex`, `ebnf`). At most
//! one of them.

use mortise_http::Problem;
use mortise_service::{ContentConstraint, GrammarSource};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fields::{FieldPath, TextOrTexts, missing, words, wrong_type};

/// Characters of the name of a schema.
const MAX_SCHEMA_NAME: usize = 64;

/// All fields that constrain content.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Constraints {
    response_format: Option<ResponseFormat>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<TextOrTexts>,
    guided_grammar: Option<String>,
    structured_outputs: Option<StructuredOutputs>,
    grammar: Option<String>,
    ebnf: Option<String>,
    regex: Option<String>,
    json_schema: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: FormatKind,
    json_schema: Option<JsonSchema>,
    /// Of a structural tag.
    format: Option<Value>,
    /// Of a structural tag in its older form.
    structures: Option<Value>,
    /// Of a structural tag in its older form.
    triggers: Option<Value>,
}

words! {
    /// Type of a response format.
    FormatKind {
        Text = "text",
        JsonObject = "json_object",
        JsonSchema = "json_schema",
        StructuralTag = "structural_tag",
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
    choice: Option<TextOrTexts>,
    grammar: Option<String>,
    json_object: Option<bool>,
    structural_tag: Option<Value>,
}

/// One family of fields: a schema, a regular expression, texts to choose from, a grammar in Lark or GBNF.
#[derive(Default)]
struct Family {
    json: Option<(FieldPath, Value)>,
    regex: Option<(FieldPath, String)>,
    choice: Option<(FieldPath, TextOrTexts)>,
    grammar: Option<(FieldPath, String)>,
}

impl Constraints {
    /// The constraint, if there is one.
    pub(crate) fn translate(self) -> Result<Option<ContentConstraint>, Problem> {
        let mut found = Vec::new();
        if let Some(format) = self.response_format {
            found.extend(format.constraint()?);
        }
        let guided = Family {
            json: at("guided_json", self.guided_json),
            regex: at("guided_regex", self.guided_regex),
            choice: at("guided_choice", self.guided_choice),
            grammar: at("guided_grammar", self.guided_grammar),
        };
        guided.constraints(&mut found)?;
        let plain = Family {
            json: at("json_schema", self.json_schema),
            regex: at("regex", self.regex),
            grammar: at("grammar", self.grammar),
            ..Family::default()
        };
        plain.constraints(&mut found)?;
        let ebnf = Family {
            grammar: at("ebnf", self.ebnf),
            ..Family::default()
        };
        ebnf.constraints(&mut found)?;
        if let Some(outputs) = self.structured_outputs {
            outputs.constraints(&mut found)?;
        }
        if let [first, second, ..] = found.as_slice() {
            let (first, second) = (&first.field, &second.field);
            return Err(Problem::invalid(
                second,
                format!("`{first}` and `{second}` both constrain the answer; give one of them"),
            ));
        }
        Ok(found.pop())
    }
}

fn at<T>(field: &'static str, value: Option<T>) -> Option<(FieldPath, T)> {
    Some((FieldPath::from(field), value?))
}

impl StructuredOutputs {
    fn constraints(self, found: &mut Vec<ContentConstraint>) -> Result<(), Problem> {
        let path = FieldPath::from("structured_outputs");
        let nested = Family {
            json: self.json.map(|json| (path.key("json"), json)),
            regex: self.regex.map(|regex| (path.key("regex"), regex)),
            choice: self.choice.map(|choice| (path.key("choice"), choice)),
            grammar: self.grammar.map(|grammar| (path.key("grammar"), grammar)),
        };
        nested.constraints(found)?;
        if self.json_object.unwrap_or(false) {
            let path = path.key("json_object").to_string();
            found.push(ContentConstraint::new(path, GrammarSource::JsonObject));
        }
        if let Some(tag) = self.structural_tag {
            found.push(structural_tag(&path.key("structural_tag"), tag)?);
        }
        Ok(())
    }
}

/// A structural tag, as an object or as its JSON text.
fn structural_tag(path: &FieldPath, tag: Value) -> Result<ContentConstraint, Problem> {
    let tag = match tag {
        Value::String(text) => parsed(path, &text)?,
        other => other,
    };
    let Value::Object(tag) = tag else {
        return Err(wrong_type(path, "a structural tag, an object", &tag));
    };
    ContentConstraint::structural_tag(path.to_string(), tag).map_err(|error| {
        let inner = match error.path.as_str() {
            "" => path.to_string(),
            inner => format!("{path}.{inner}"),
        };
        Problem::invalid(&inner, format!("`{inner}` {}", error.problem))
    })
}

fn parsed(path: &FieldPath, text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let text = format!("`{path}` is not valid JSON: {error}");
        Problem::invalid(path.to_string(), text)
    })
}

impl ResponseFormat {
    fn constraint(self) -> Result<Option<ContentConstraint>, Problem> {
        let path = FieldPath::from("response_format");
        if self.kind == FormatKind::StructuralTag {
            let members = [
                ("format", self.format),
                ("structures", self.structures),
                ("triggers", self.triggers),
            ];
            let members = members
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)));
            let tag = Value::Object(members.collect::<Map<_, _>>());
            return structural_tag(&path, tag).map(Some);
        }
        let source = self.source()?;
        Ok(source.map(|source| ContentConstraint::new(path.to_string(), source)))
    }

    fn source(self) -> Result<Option<GrammarSource>, Problem> {
        match self.kind {
            FormatKind::Text | FormatKind::StructuralTag => Ok(None),
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
    fn constraints(self, found: &mut Vec<ContentConstraint>) -> Result<(), Problem> {
        if let Some((path, schema)) = self.json {
            // vLLM takes the schema as text as well.
            let schema = match schema {
                Value::String(text) => parsed(&path, &text)?,
                other => other,
            };
            let source = schema_source(&path, schema)?;
            found.push(ContentConstraint::new(path.to_string(), source));
        }
        if let Some((path, pattern)) = self.regex {
            let source = GrammarSource::Regex(pattern);
            found.push(ContentConstraint::new(path.to_string(), source));
        }
        if let Some((path, TextOrTexts(choices))) = self.choice {
            if choices.is_empty() {
                let problem = format!("`{path}` is empty; name at least one text to choose");
                return Err(Problem::invalid(path.to_string(), problem));
            }
            let source = GrammarSource::Regex(alternatives(&choices));
            found.push(ContentConstraint::new(path.to_string(), source));
        }
        if let Some((path, text)) = self.grammar {
            let constraint = ContentConstraint::grammar(path.to_string(), text);
            found.push(constraint.map_err(|problem| {
                Problem::invalid(
                    path.to_string(),
                    format!("`{path}` cannot be used: {problem}"),
                )
            })?);
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
