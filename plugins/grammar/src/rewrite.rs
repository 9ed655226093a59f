//! Schemas as llguidance can follow them. It knows neither `not` nor conditions, and of `oneOf` only options
//! that it sees to exclude each other; here they are rewritten to `anyOf`, as far as that can be decided.

mod admits;
pub(crate) mod circles;
mod counts;
mod document;
mod facts;
mod keywords;
mod members;
pub(crate) mod names;
mod negation;
mod options;
pub(crate) mod patterns;
mod references;
mod strings;
mod types;
mod unique;

use serde_json::{Map, Value, json};

use crate::pointer::push_key;
pub(crate) use admits::equal;
use document::Document;
use keywords::{DATA, NAMED, REWRITTEN, SCHEMAS, require};
use negation::{Undecided, any_of, negate};
pub(crate) use options::Ways;

/// Values that a rewritten schema may have; llguidance has bounds of its own behind this.
const MAX_VALUES: usize = 60_000;

/// A part of a schema that cannot be rewritten.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// JSON pointer to the part.
    pub(crate) path: String,
    /// Reason for which the part cannot be rewritten.
    pub(crate) reason: String,
}

/// Options of rewriting a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rewrite {
    /// Flag of the grammar of a whole document, beside which the matcher remembers texts.
    pub(crate) remembers: bool,
    /// Extent to which options that overlap are kept.
    pub(crate) ways: Ways,
}

/// The schema without keywords that llguidance does not know, as far as others can say the same.
pub(crate) fn rewritten(schema: &Value, how: Rewrite) -> Result<Value, Refusal> {
    let gathered = references::gathered(schema);
    let definitions = gathered.schema.get("$defs").and_then(Value::as_object);
    let mut rewriting = Rewriting {
        document: Document::new(definitions.cloned().unwrap_or_default()),
        values: 0,
        how,
    };
    let mut path = String::new();
    rewriting
        .schema(gathered.schema, &mut path)
        .map_err(|mut refusal| {
            for (name, reference) in &gathered.origins {
                let mut entry = "/$defs".to_owned();
                push_key(&mut entry, name);
                let rest = refusal.path.strip_prefix(&entry);
                if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                    refusal.path = format!("{}{rest}", reference.trim_start_matches('#'));
                    break;
                }
            }
            refusal
        })
}

/// Whether rewriting would change nothing: none of the keywords that it is about occurs.
pub(crate) fn is_plain(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| !REWRITTEN.contains(&key.as_str()) && is_plain(value)),
        Value::Array(items) => items.iter().all(is_plain),
        _ => true,
    }
}

struct Rewriting {
    document: Document,
    values: usize,
    how: Rewrite,
}

impl Rewriting {
    fn schema(&mut self, schema: Value, path: &mut String) -> Result<Value, Refusal> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Refusal {
                path: path.clone(),
                reason: format!(
                    "written without `not` and `oneOf` it has more than {MAX_VALUES} parts"
                ),
            });
        }
        let Value::Object(mut fields) = schema else {
            return Ok(schema);
        };
        if let Err((keyword, reason)) = self.keywords(&mut fields) {
            let mut path = path.clone();
            push_key(&mut path, keyword);
            return Err(Refusal {
                path,
                reason: reason.0,
            });
        }
        let length = path.len();
        for (key, value) in &mut fields {
            push_key(path, key);
            match value {
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    let inside = path.len();
                    for (name, part) in named {
                        push_key(path, name);
                        *part = self.schema(part.take(), path)?;
                        path.truncate(inside);
                    }
                }
                Value::Object(_) if SCHEMAS.contains(&key.as_str()) && key != "x-guidance" => {
                    *value = self.schema(value.take(), path)?;
                }
                Value::Array(parts) if SCHEMAS.contains(&key.as_str()) => {
                    let inside = path.len();
                    for (index, part) in parts.iter_mut().enumerate() {
                        path.push_str(&format!("/{index}"));
                        *part = self.schema(part.take(), path)?;
                        path.truncate(inside);
                    }
                }
                value if DATA.contains(&key.as_str()) => self.values += size(value),
                _ => {}
            }
            path.truncate(length);
        }
        Ok(Value::Object(fields))
    }

    /// Replace the keywords of this schema, and leave those within it.
    fn keywords(&self, fields: &mut Map<String, Value>) -> Result<(), (&'static str, Undecided)> {
        members::simplify(fields);
        options::listed_by_parts(&self.document, fields);
        counts::distributed(fields);
        members::property_names(&self.document, fields)
            .map_err(|error| ("propertyNames", error))?;
        members::dependencies(fields);
        self.negation(fields).map_err(|error| ("not", error))?;
        self.condition(fields).map_err(|error| ("if", error))?;
        options::one_of(&self.document, fields, self.how.ways).map_err(|error| ("oneOf", error))?;
        counts::unique(&self.document, fields);
        if self.how.remembers {
            counts::distinct(&self.document, fields);
        }
        counts::members(fields);
        counts::named_apart(fields, self.how.remembers)
            .map_err(|error| ("minProperties", error))?;
        Ok(())
    }

    fn negation(&self, fields: &mut Map<String, Value>) -> Result<(), Undecided> {
        let Some(not) = fields.shift_remove("not") else {
            return Ok(());
        };
        if options::keep_values(fields, |value| {
            self.document.admits(&not, value).map(|takes| !takes)
        }) {
            return Ok(());
        }
        let rest = Value::Object(std::mem::take(fields));
        let ways = match self.document.are_disjoint(&rest, &not) {
            true => None,
            false => Some(negate(&self.document, &not, self.document.types(&rest))?),
        };
        if let Value::Object(rest) = rest {
            *fields = rest;
        }
        if let Some(ways) = ways {
            require(fields, any_of(ways));
        }
        Ok(())
    }

    fn condition(&self, fields: &mut Map<String, Value>) -> Result<(), Undecided> {
        let condition = fields.shift_remove("if");
        let then = fields.shift_remove("then");
        let otherwise = fields.shift_remove("else");
        let Some(condition) = condition else {
            return Ok(());
        };
        if then.is_none() && otherwise.is_none() {
            return Ok(());
        }
        let types = self.document.types(&Value::Object(fields.clone()));
        let met = json!({"allOf": [condition, then.unwrap_or(json!(true))]});
        let mut ways = vec![met];
        let unmet = negate(&self.document, &condition, types)?;
        if !unmet.is_empty() {
            ways.push(json!({"allOf": [any_of(unmet), otherwise.unwrap_or(json!(true))]}));
        }
        require(fields, any_of(ways));
        Ok(())
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
