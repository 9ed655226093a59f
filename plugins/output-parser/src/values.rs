//! Rules for arguments that are written in a notation of the format's own, lists and objects included, after the schema
//! of each value.
//!
//! Keywords that the rules do not follow are refused, but for those of texts: their length and pattern are not
//! enforced, as in formats with tags.

use std::collections::HashMap;

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::formats::{Literals, Nested};
use mortise_plugin_sdk::tools::{Tool, Tools};
use serde_json::{Map, Value, json};

use crate::calls::Rules;
use crate::marks::{quote, text_until};
use crate::schema::json_rule;

/// Schemas within schemas.
const MAX_DEPTH: usize = 32;
/// Rules of all values.
const MAX_RULES: usize = 4_000;
/// Items of a list that a schema may count to.
const MAX_ITEMS: u64 = 1_000;
/// Keywords that no rule is made of.
const REFUSED: [&str; 14] = [
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "prefixItems",
    "contains",
    "unevaluatedProperties",
    "$dynamicRef",
];

/// Notation of values.
#[derive(Clone, Copy)]
enum Notation<'a> {
    /// Bare keys, and texts between quotes.
    Literals(&'a Literals),
    /// Tags, of which the closing one ends a value.
    Nested(&'a Nested),
}

/// Rules of the values of one tool.
struct Values<'r, 'a> {
    rules: &'r mut Rules<'a>,
    notation: Notation<'r>,
    tool: &'r Tool,
    /// Number of the tool, for names of rules.
    number: usize,
    made: usize,
    /// Rules of what references point to, with the tag that ends them.
    referenced: HashMap<(String, String), String>,
}

impl<'a> Rules<'a> {
    /// `<open>NAME{key:value,…}<close>`
    pub(crate) fn literals(&mut self, literals: &Literals, tools: &Tools) -> Result<(), Fault> {
        let calls = self.several("call", Some(""), tools.parallel());
        self.lines.push(format!("calls: {calls}"));
        self.lines
            .push(text_until(self.style, "text", literals.quote));
        for (index, tool) in tools.iter().enumerate() {
            let name = quote(&self.name(tool, false)?);
            let object = self.arguments(Notation::Literals(literals), index, tool)?;
            let (open, close) = (self.mark(literals.open), self.mark(literals.close));
            self.lines
                .push(format!("call_{index}: {open} {name} {object} {close}"));
        }
        Ok(())
    }

    /// `<section><invoke name="NAME"><key>value</key>…</invoke></section>`, with a mark before each tag.
    pub(crate) fn nested(&mut self, nested: &Nested, tools: &Tools) -> Result<(), Fault> {
        let Nested { tag, section, .. } = nested;
        let calls = self.several("call", Some("\n"), tools.parallel());
        let (open, close) = (
            self.mark(&format!("{tag}<{section}>\n")),
            self.mark(&format!("\n{tag}</{section}>")),
        );
        self.lines.push(format!("calls: {open} {calls} {close}"));
        for (index, tool) in tools.iter().enumerate() {
            let name = quote(&self.name(tool, false)?);
            let members = self.arguments(Notation::Nested(nested), index, tool)?;
            let (open, close) = (
                self.mark(&format!("{tag}<invoke name=\"")),
                self.mark(&format!("{tag}</invoke>")),
            );
            self.lines.push(format!(
                "call_{index}: {open} {name} \"\\\">\" {members} {close}"
            ));
        }
        Ok(())
    }

    fn arguments(
        &mut self,
        notation: Notation<'_>,
        number: usize,
        tool: &Tool,
    ) -> Result<String, Fault> {
        let none = Map::new();
        let schema = tool.parameters.as_object().unwrap_or(&none);
        let mut values = Values {
            rules: self,
            notation,
            tool,
            number,
            made: 0,
            referenced: HashMap::new(),
        };
        values.check(schema)?;
        if let Some(part) = ["anyOf", "allOf", "$ref"]
            .iter()
            .find(|part| schema.contains_key(**part))
        {
            return Err(values.refused(part));
        }
        values.object(schema, "", 0)
    }
}

impl Values<'_, '_> {
    fn refused(&self, keyword: &str) -> Fault {
        Fault::Invalid(format!(
            "the parameters of the tool `{}` have `{keyword}`, to which the format `{}`, in which this model writes \
             calls, cannot be held; leave it out, or set `tool_choice` to `auto`",
            self.tool.name,
            self.rules.style.format.name()
        ))
    }

    fn check(&self, schema: &Map<String, Value>) -> Result<(), Fault> {
        let mut keywords = REFUSED.iter();
        if let Some(keyword) = keywords.find(|keyword| schema.contains_key(**keyword)) {
            return Err(self.refused(keyword));
        }
        match schema.get("uniqueItems") {
            Some(Value::Bool(true)) => Err(self.refused("uniqueItems")),
            _ => Ok(()),
        }
    }

    fn rule(&mut self, body: &str) -> Result<String, Fault> {
        let name = self.reserved()?;
        self.rules.lines.push(format!("{name}: {body}"));
        Ok(name)
    }

    fn reserved(&mut self) -> Result<String, Fault> {
        self.made += 1;
        match self.made > MAX_RULES {
            true => Err(Fault::TooComplex(format!(
                "the parameters of the tool `{}` take more than {MAX_RULES} rules",
                self.tool.name
            ))),
            false => Ok(format!("v_{}_{}", self.number, self.made)),
        }
    }

    /// A value, with the mark `end` behind it where the notation ends values by marks.
    fn value(&mut self, schema: &Value, end: &str, depth: usize) -> Result<String, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::TooComplex(format!(
                "the parameters of the tool `{}` are nested deeper than {MAX_DEPTH}",
                self.tool.name
            )));
        }
        let none = Map::new();
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(false) => return Err(self.refused("false")),
            _ => &none,
        };
        self.check(fields)?;
        if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
            return self.reference(target, end, depth);
        }
        if let Some(only) = fields.get("allOf").and_then(Value::as_array) {
            return match only.as_slice() {
                [only] if !fields.contains_key("properties") => self.value(only, end, depth + 1),
                _ => Err(self.refused("allOf")),
            };
        }
        if let Some(options) = fields.get("anyOf").and_then(Value::as_array) {
            return self.any_of(options, end, depth);
        }
        let listed = match (fields.get("const"), fields.get("enum")) {
            (Some(constant), _) => Some(vec![constant.clone()]),
            (None, Some(Value::Array(all))) => Some(all.clone()),
            _ => None,
        };
        if let Some(listed) = listed {
            let each: Result<Vec<String>, Fault> = listed
                .iter()
                .map(|value| self.constant(value, end))
                .collect();
            return Ok(format!("({})", each?.join(" | ")));
        }
        self.typed(fields, end, depth)
    }

    fn any_of(&mut self, options: &[Value], end: &str, depth: usize) -> Result<String, Fault> {
        let is_text = |option: &Value| option.get("type").and_then(Value::as_str) == Some("string");
        if let (Notation::Nested(_), Some(text)) =
            (self.notation, options.iter().find(|option| is_text(option)))
        {
            // A text may be anything, and is read as what the schema allows.
            return self.value(text, end, depth + 1);
        }
        let each: Result<Vec<String>, Fault> = options
            .iter()
            .map(|option| self.value(option, end, depth + 1))
            .collect();
        Ok(format!("({})", each?.join(" | ")))
    }

    fn reference(&mut self, target: &str, end: &str, depth: usize) -> Result<String, Fault> {
        let key = (target.to_owned(), end.to_owned());
        if let Some(rule) = self.referenced.get(&key) {
            return Ok(rule.clone());
        }
        let pointer = target.strip_prefix('#').unwrap_or("?");
        let Some(schema) = self.tool.parameters.pointer(pointer).cloned() else {
            return Err(self.refused("$ref"));
        };
        let rule = self.reserved()?;
        self.referenced.insert(key, rule.clone());
        let body = self.value(&schema, end, depth + 1)?;
        if body == rule {
            return Err(self.refused("$ref"));
        }
        self.rules.lines.push(format!("{rule}: {body}"));
        Ok(rule)
    }

    fn typed(
        &mut self,
        fields: &Map<String, Value>,
        end: &str,
        depth: usize,
    ) -> Result<String, Fault> {
        let types: Vec<&str> = match fields.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ if fields.contains_key("properties") => vec!["object"],
            _ if fields.contains_key("items") => vec!["array"],
            _ => return self.any(end),
        };
        if matches!(self.notation, Notation::Nested(_)) && types.contains(&"string") {
            return self.text(end);
        }
        let mut each = Vec::with_capacity(types.len());
        for one in types {
            each.push(match one {
                "string" => self.text(end)?,
                "object" => {
                    let object = self.object(fields, end, depth)?;
                    self.ended(object, end)
                }
                "array" => {
                    let list = self.list(fields, depth)?;
                    self.ended(list, end)
                }
                other => {
                    let mut leaf = fields.clone();
                    leaf.insert("type".to_owned(), json!(other));
                    let leaf = self.rule(&json_rule(Value::Object(leaf)))?;
                    self.ended(leaf, end)
                }
            });
        }
        match each.len() {
            1 => Ok(each.remove(0)),
            _ => Ok(format!("({})", each.join(" | "))),
        }
    }

    /// An expression with the mark that ends a value.
    fn ended(&self, value: String, end: &str) -> String {
        format!("{value} {}", self.rules.mark(end))
            .trim()
            .to_owned()
    }

    fn text(&mut self, end: &str) -> Result<String, Fault> {
        match self.notation {
            Notation::Literals(literals) => Ok(format!("{} text", self.rules.mark(literals.quote))),
            Notation::Nested(_) => {
                let name = self.reserved()?;
                let line = text_until(self.rules.style, &name, end);
                self.rules.lines.push(line);
                Ok(name)
            }
        }
    }

    /// A value of which the schema says nothing.
    fn any(&mut self, end: &str) -> Result<String, Fault> {
        match self.notation {
            Notation::Nested(_) => self.text(end),
            Notation::Literals(_) => {
                let text = self.text(end)?;
                let leaf = json_rule(json!({"type": ["number", "boolean", "null"]}));
                let leaf = self.rule(&leaf)?;
                Ok(format!("({text} | {leaf})"))
            }
        }
    }

    /// One value, as the format writes it.
    fn constant(&self, value: &Value, end: &str) -> Result<String, Fault> {
        let written = match (value, self.notation) {
            (Value::Array(_) | Value::Object(_), _) => return Err(self.refused("enum")),
            (Value::String(text), Notation::Literals(literals)) => {
                let quotes = self.rules.mark(literals.quote);
                let text = match text.as_str() {
                    "" => String::new(),
                    text => quote(text),
                };
                format!("{quotes} {text} {quotes}")
            }
            (Value::String(text), Notation::Nested(_)) if text.is_empty() => String::new(),
            (Value::String(text), Notation::Nested(_)) => quote(text),
            (other, _) => quote(&other.to_string()),
        };
        Ok(self.ended(written, end))
    }

    fn list(&mut self, fields: &Map<String, Value>, depth: usize) -> Result<String, Fault> {
        let any = Value::Bool(true);
        let items = fields.get("items").unwrap_or(&any);
        let count = |key: &str| fields.get(key).and_then(Value::as_u64);
        let (min, max) = (count("minItems").unwrap_or(0), count("maxItems"));
        if min > MAX_ITEMS {
            return Err(self.refused("minItems"));
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.refused("maxItems"));
        }
        let max = max.map(|max| max.min(MAX_ITEMS));
        let times = |less: u64| {
            let max = max.map(|max| max.saturating_sub(less).to_string());
            let min = min.saturating_sub(less);
            format!("{{{min},{}}}", max.unwrap_or_default())
        };
        match self.notation {
            Notation::Nested(nested) => {
                let item = self.element(nested, nested.item, items, depth)?;
                Ok(match max {
                    Some(0) => String::new(),
                    _ => format!("({item}){}", times(0)),
                })
            }
            Notation::Literals(_) => {
                let item = self.value(items, "", depth + 1)?;
                let item = self.rule(&item)?;
                Ok(match (min, max) {
                    (_, Some(0)) => "\"[]\"".to_owned(),
                    (0, _) => format!("\"[\" ({item} (\",\" {item}){})? \"]\"", times(1)),
                    _ => format!("\"[\" {item} (\",\" {item}){} \"]\"", times(1)),
                })
            }
        }
    }

    /// A value between tags.
    fn element(
        &mut self,
        nested: &Nested,
        key: &str,
        schema: &Value,
        depth: usize,
    ) -> Result<String, Fault> {
        let open = self.rules.mark(&format!("{}<{key}>", nested.tag));
        let end = format!("{}</{key}>", nested.tag);
        let value = self.value(schema, &end, depth + 1)?;
        self.rule(&format!("{open} {value}"))
    }

    /// The declared members of an object: in the order of the schema between tags, in that of their names where they are
    /// literals, since templates write them so.
    fn object(
        &mut self,
        fields: &Map<String, Value>,
        _end: &str,
        depth: usize,
    ) -> Result<String, Fault> {
        let required: Vec<&str> = (fields.get("required").and_then(Value::as_array))
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let properties = fields.get("properties").and_then(Value::as_object);
        let mut all: Vec<(&String, &Value)> = properties.into_iter().flatten().collect();
        if let Some(missing) = required
            .iter()
            .find(|key| !all.iter().any(|(own, _)| own == *key))
        {
            return Err(self.refused(&format!("required: {missing}")));
        }
        let mut members = Vec::with_capacity(all.len());
        if matches!(self.notation, Notation::Literals(_)) {
            all.sort_by_key(|(key, _)| *key);
        }
        for (key, schema) in all {
            let bare = self.rules.key(key)?;
            let member = match self.notation {
                Notation::Nested(nested) => self.element(nested, key, schema, depth)?,
                Notation::Literals(_) => {
                    let value = self.value(schema, "", depth + 1)?;
                    self.rule(&format!("{bare} \":\" {value}"))?
                }
            };
            members.push((member, required.contains(&key.as_str())));
        }
        match self.notation {
            Notation::Nested(_) => Ok(members
                .iter()
                .map(|(member, required)| match required {
                    true => member.clone(),
                    false => format!("{member}?"),
                })
                .collect::<Vec<String>>()
                .join(" ")),
            Notation::Literals(_) => self.separated(&members),
        }
    }

    /// Members between braces, with commas between those that are there.
    fn separated(&mut self, members: &[(String, bool)]) -> Result<String, Fault> {
        // Of the members from each one on: as the first that are there, and behind others.
        let (mut first, mut rest) = (String::new(), String::new());
        for (member, required) in members.iter().rev() {
            let (next_first, next_rest) = match required {
                true => (format!("{member} {rest}"), format!("\",\" {member} {rest}")),
                false => {
                    let without = match first.is_empty() {
                        true => "\"\"",
                        false => &first,
                    };
                    (
                        format!("{member} {rest} | {without}"),
                        format!("(\",\" {member})? {rest}"),
                    )
                }
            };
            first = self.rule(next_first.trim())?;
            rest = self.rule(next_rest.trim())?;
        }
        Ok(format!("\"{{\" {first} \"}}\""))
    }
}
