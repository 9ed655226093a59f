//! Depth of a grammar's references. llguidance follows references by recursion, and a plugin's stack is
//! small: a grammar that leads too deep is refused here, by name, before it costs an instance.

use std::collections::HashMap;

use serde_json::Value;

use crate::error::GrammarError;
use crate::lark::Rules;
use crate::pointer::shown;

/// Schemas, or rules and groups, one within the other, references followed. The worst that was found
/// overflows the stack at 350.
pub(crate) const MAX_DEPTH: usize = 192;
/// Schemas that are looked at, each as often as a reference leads to it; llguidance has this bound too.
const MAX_STEPS: usize = 50_000;
/// Keywords whose value is no schema.
const DATA: [&str; 7] = [
    "const",
    "enum",
    "default",
    "examples",
    "required",
    "$defs",
    "definitions",
];
/// Keywords whose value holds schemas by name, and is none itself.
const NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Depths below what was looked at already. `None` while it is being looked at: what leads back to
/// itself goes no deeper.
type Known<'a> = HashMap<&'a str, Option<usize>>;

/// Refuse a schema whose references lead too deep. Those of llguidance are `#` and paths from the root.
pub(crate) fn check_schema(root: &Value) -> Result<(), GrammarError> {
    let mut schemas = Schemas {
        root,
        known: Known::new(),
        steps: 0,
    };
    schemas.below(root, 1).map(drop)
}

struct Schemas<'a> {
    root: &'a Value,
    known: Known<'a>,
    steps: usize,
}

impl<'a> Schemas<'a> {
    /// Levels of schemas below a schema that is at this depth.
    fn below(&mut self, schema: &'a Value, depth: usize) -> Result<usize, GrammarError> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(GrammarError::TooComplex(format!(
                "the JSON schema has more than {MAX_STEPS} parts, with those that its references repeat"
            )));
        }
        let mut deepest = 0;
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let below = match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => self.referred(reference, depth)?,
                        (key, _) if DATA.contains(&key) => 0,
                        (key, Value::Object(named)) if NAMED.contains(&key) => {
                            let mut below = 0;
                            for part in named.values() {
                                below = below.max(self.part(part, depth)?);
                            }
                            below
                        }
                        _ => self.part(value, depth)?,
                    };
                    deepest = deepest.max(below);
                }
            }
            Value::Array(parts) => {
                for part in parts {
                    deepest = deepest.max(self.part(part, depth)?);
                }
            }
            _ => {}
        }
        Ok(deepest)
    }

    /// Levels of schemas within a value of a schema at this depth; only objects are schemas.
    fn part(&mut self, part: &'a Value, depth: usize) -> Result<usize, GrammarError> {
        match part {
            Value::Object(_) => {
                check_depth(depth + 1, || "the JSON schema".to_owned())?;
                Ok(1 + self.below(part, depth + 1)?)
            }
            Value::Array(_) => self.below(part, depth),
            _ => Ok(0),
        }
    }

    fn referred(&mut self, reference: &'a str, depth: usize) -> Result<usize, GrammarError> {
        let below = match self.known.get(reference) {
            Some(below) => below.map_or(0, |below| below + 1),
            None => {
                let Some(target) = find(self.root, reference) else {
                    // llguidance says what is wrong with it.
                    return Ok(0);
                };
                self.known.insert(reference, None);
                check_depth(depth + 1, || schema_at(reference))?;
                let below = self.below(target, depth + 1)?;
                self.known.insert(reference, Some(below));
                below + 1
            }
        };
        check_depth(depth + below, || schema_at(reference))?;
        Ok(below)
    }
}

fn schema_at(reference: &str) -> String {
    let path = shown(reference.trim_start_matches('#'));
    format!("the JSON schema, by its reference to `{path}`,")
}

/// Schema that llguidance finds by this reference.
fn find<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let path = reference.strip_prefix('#')?;
    if path.is_empty() || path == "/" {
        return Some(root);
    }
    let mut names = path.strip_prefix('/')?.split('/');
    names.try_fold(root, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => value.get(name),
    })
}

/// Refuse a Lark grammar whose rules lead too deep.
pub(crate) fn check_rules(rules: &Rules<'_>) -> Result<(), GrammarError> {
    let mut known = Known::new();
    for name in rules.references.keys() {
        rule_below(rules, name, 1, &mut known)?;
    }
    Ok(())
}

fn rule_below<'a>(
    rules: &Rules<'a>,
    name: &'a str,
    depth: usize,
    known: &mut Known<'a>,
) -> Result<usize, GrammarError> {
    let too_deep = || format!("the Lark grammar, at `{name}`,");
    check_depth(depth, too_deep)?;
    if let Some(below) = known.get(name) {
        let below = below.unwrap_or(0);
        check_depth(depth + below, too_deep)?;
        return Ok(below);
    }
    let Some(references) = rules.references.get(name) else {
        return Ok(0);
    };
    known.insert(name, None);
    let mut deepest = 0;
    for (reference, groups) in references {
        let step = 1 + groups;
        deepest = deepest.max(step + rule_below(rules, reference, depth + step, known)?);
    }
    known.insert(name, Some(deepest));
    Ok(deepest)
}

fn check_depth(depth: usize, what: impl FnOnce() -> String) -> Result<(), GrammarError> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    let what = what();
    Err(GrammarError::TooComplex(format!(
        "{what} leads deeper than {MAX_DEPTH} levels; let fewer parts refer to one another"
    )))
}
