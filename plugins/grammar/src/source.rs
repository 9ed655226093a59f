//! Sources of grammars, and the bounds on their size.

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

use crate::depth;
use crate::error::GrammarError;
use crate::lark::{Rules, schemas};
use crate::pointer::{push_key, shown};
use crate::rewrite::names::{have_spellings, spelled_once};
use crate::rewrite::{self, Rewrite, Ways, rewritten};

/// Bytes of a grammar or schema.
pub const MAX_SOURCE_BYTES: usize = 256 * 1024;
/// Nesting of a schema.
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// Values in a schema, of any kind.
pub const MAX_SCHEMA_VALUES: usize = 20_000;
/// Properties that one object of a schema may name. llguidance takes time that grows with their square:
/// twice as many take a second, and four times as many the stack.
pub const MAX_PROPERTIES: usize = 1_000;
/// Items, properties or characters that a schema may count to.
pub const MAX_COUNT: u64 = 100_000;
/// Keywords whose number makes the grammar larger.
const COUNTS: [&str; 6] = [
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
];
/// Between the parts of JSON: one space, or a line break with its indentation. All layouts of
/// common printers pass, and no model can lose itself in blanks.
const WHITESPACE: &str = r"\x20|\r?\n[\x20\t]{0,24}";

/// `types.grammar-source`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// Any JSON object.
    JsonObject,
    /// A JSON Schema document.
    JsonSchema(String),
    /// A regular expression over the whole output.
    Regex(String),
    /// A grammar in llguidance's dialect of Lark.
    Lark(String),
}

impl Source {
    /// Bytes of the text.
    pub fn len(&self) -> usize {
        match self {
            Self::JsonObject => 0,
            Self::JsonSchema(text) | Self::Regex(text) | Self::Lark(text) => text.len(),
        }
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::JsonObject | Self::JsonSchema(_) => "JSON schema",
            Self::Regex(_) => "regular expression",
            Self::Lark(_) => "Lark grammar",
        }
    }

    /// Refuse what is too large to look at.
    pub(crate) fn check_size(&self) -> Result<(), GrammarError> {
        if self.len() > MAX_SOURCE_BYTES {
            return Err(GrammarError::Invalid(format!(
                "the {} has {} bytes, at most {MAX_SOURCE_BYTES} are allowed",
                self.kind(),
                self.len()
            )));
        }
        Ok(())
    }
}

/// Read a schema and refuse what is too large to compile. The error names the path.
pub(crate) fn read_schema(text: &str) -> Result<Value, GrammarError> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| GrammarError::Invalid(format!("the JSON schema is not JSON: {error}")))?;
    if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
        return Err(GrammarError::Invalid(
            "the JSON schema must be an object".to_owned(),
        ));
    }
    check_schema(&schema)?;
    Ok(schema)
}

/// Refuse a schema that is too large or leads too deep.
pub(crate) fn check_schema(schema: &Value) -> Result<(), GrammarError> {
    check_limits(schema, &mut String::new(), 0, &mut 0)?;
    depth::check_schema(schema)
}

/// Refuse a Lark grammar whose rules lead too deep, or whose schemas do or are too large.
pub(crate) fn check_lark(text: &str) -> Result<(), GrammarError> {
    let rules = Rules::read(text);
    rules.schemas.iter().try_for_each(check_schema)?;
    depth::check_rules(&rules)
}

/// The schema as llguidance can follow it. The error names the path.
pub(crate) fn rewrite_schema(schema: &Value, how: Rewrite) -> Result<Value, GrammarError> {
    let mut rewritten = rewritten(schema, how).map_err(|refusal| {
        GrammarError::Invalid(format!(
            "the JSON schema cannot be used, at `{}`: {}",
            shown(&refusal.path),
            refusal.reason
        ))
    })?;
    keep_counts(&mut rewritten)?;
    // References may lead elsewhere now, and schemas be one within the other.
    depth::check_schema(&rewritten)?;
    Ok(rewritten)
}

/// Of a schema within a grammar nobody knows where its document begins.
const IN_LARK: Rewrite = Rewrite {
    remembers: false,
    ways: Ways::MANY,
};

/// A Lark grammar with the schemas in it as llguidance can follow them.
pub(crate) fn rewrite_lark(text: &str) -> Result<String, GrammarError> {
    let mut result = String::new();
    let mut copied = 0;
    for (span, schema) in schemas(text) {
        let plain = rewrite::is_plain(&schema) && !counts_far(&schema);
        if plain && !have_spellings(&schema) {
            continue;
        }
        let schema = match plain {
            true => schema,
            false => rewrite_schema(&schema, IN_LARK)?,
        };
        result.push_str(&text[copied..span.start]);
        result.push_str(&spelled_once(schema).to_string());
        copied = span.end;
    }
    result.push_str(&text[copied..]);
    Ok(result)
}

/// A bound that is too far away to be met is as good as the farthest one that grammars have. What must be counted to
/// cannot be.
fn keep_counts(schema: &mut Value) -> Result<(), GrammarError> {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                let far = COUNTS.contains(&key.as_str()) && is_far(value);
                if far && key.starts_with("max") {
                    *value = json!(MAX_COUNT);
                } else if far {
                    return Err(GrammarError::Invalid(format!(
                        "the JSON schema counts to more than {MAX_COUNT}, in `{key}`"
                    )));
                } else if !matches!(key.as_str(), "const" | "enum") {
                    keep_counts(value)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(keep_counts),
        _ => Ok(()),
    }
}

fn is_far(count: &Value) -> bool {
    count.as_f64().is_some_and(|count| count > MAX_COUNT as f64)
}

/// True if a schema counts farther than grammars do.
fn counts_far(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            COUNTS.contains(&key.as_str()) && is_far(value) || counts_far(value)
        }),
        Value::Array(items) => items.iter().any(counts_far),
        _ => false,
    }
}

fn check_limits(
    value: &Value,
    path: &mut String,
    depth: usize,
    values: &mut usize,
) -> Result<(), GrammarError> {
    *values += 1;
    let refuse = |path: &str, problem: String| {
        Err(GrammarError::Invalid(format!(
            "the JSON schema {problem}, at `{}`",
            shown(path)
        )))
    };
    if depth > MAX_SCHEMA_DEPTH {
        return refuse(path, format!("is nested deeper than {MAX_SCHEMA_DEPTH}"));
    }
    if *values > MAX_SCHEMA_VALUES {
        return refuse(path, format!("holds more than {MAX_SCHEMA_VALUES} values"));
    }
    let length = path.len();
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                check_limits(item, path, depth + 1, values)?;
                path.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                push_key(path, key);
                if key.starts_with("min") && COUNTS.contains(&key.as_str()) && is_far(item) {
                    return refuse(path, format!("counts to more than {MAX_COUNT}"));
                }
                let named = item.as_object().map_or(0, Map::len);
                if key == "properties" && named > MAX_PROPERTIES {
                    return refuse(path, format!("names more than {MAX_PROPERTIES} properties"));
                }
                check_limits(item, path, depth + 1, values)?;
                path.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The grammar of a rewritten schema, with our rules on whitespace and on the spelling of names.
pub(crate) fn schema_grammar(schema: Value) -> TopLevelGrammar {
    let mut fields = match schema {
        Value::Object(fields) => fields,
        Value::Bool(false) => Map::from_iter([("not".to_owned(), json!({}))]),
        _ => Map::new(),
    };
    fields.insert(
        "x-guidance".to_owned(),
        json!({"whitespace_pattern": WHITESPACE}),
    );
    TopLevelGrammar::from_json_schema(spelled_once(Value::Object(fields)))
}
