//! References of a schema, brought to one form: from the root to an entry of `$defs`. llguidance follows no
//! other, and what a schema is rewritten to must not move what something refers to.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::keywords::{DATA, NAMED};

/// Start of the names of entries that are added to `$defs`.
const PREFIX: &str = "mortise-";

/// A schema whose references all lead to entries of its `$defs`. Those to other documents stay.
pub(super) struct Gathered {
    /// The schema, with those definitions alone that something refers to.
    pub(super) schema: Value,
    /// Names in `$defs`, with the references that were made for them.
    pub(super) origins: Vec<(String, String)>,
}

/// The schema with all of its references brought to `#/$defs/NAME`.
pub(super) fn gathered(root: &Value) -> Gathered {
    let mut places = Places {
        base: id(root).unwrap_or_default().trim_end_matches('#'),
        ..Places::default()
    };
    places.find_names(root, false);
    let mut gathering = Gathering {
        root,
        old: is_old(root),
        places,
        names: HashMap::new(),
        gathered: Vec::new(),
        origins: Vec::new(),
    };
    let mut schema = gathering.schema(root);
    let mut definitions = Map::new();
    let mut at = 0;
    while let Some((name, target)) = gathering.gathered.get(at).cloned() {
        let target = gathering.schema(target);
        definitions.insert(name, target);
        at += 1;
    }
    if let (Value::Object(fields), false) = (&mut schema, definitions.is_empty()) {
        fields.insert("$defs".to_owned(), definitions.into());
    }
    Gathered {
        schema,
        origins: gathering.origins,
    }
}

/// Whether keywords beside `$ref` say nothing, as up to draft 7.
fn is_old(root: &Value) -> bool {
    let draft = root
        .get("$schema")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ["draft-03", "draft-04", "draft-06", "draft-07"]
        .iter()
        .any(|old| draft.contains(old))
}

fn id(schema: &Value) -> Option<&str> {
    let id = schema.get("$id").or_else(|| schema.get("id"));
    id.and_then(Value::as_str)
}

/// Targets of references in a document, by name.
#[derive(Default)]
struct Places<'a> {
    base: &'a str,
    by_name: HashMap<String, &'a Value>,
    /// Names that stand at several places. A reference to one is not followed.
    twice: Vec<String>,
}

impl<'a> Places<'a> {
    fn find_names(&mut self, value: &'a Value, is_map: bool) {
        match value {
            Value::Object(fields) => {
                if !is_map {
                    self.name(value);
                }
                for (key, value) in fields {
                    if is_map || !DATA.contains(&key.as_str()) {
                        let named = !is_map && NAMED.contains(&key.as_str());
                        self.find_names(value, named);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.find_names(item, false)),
            _ => {}
        }
    }

    fn name(&mut self, schema: &'a Value) {
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = schema.get(keyword).and_then(Value::as_str) {
                self.insert(format!("#{anchor}"), schema);
            }
        }
        if let Some(id) = id(schema) {
            self.insert(id.trim_end_matches('#').to_owned(), schema);
        }
    }

    fn insert(&mut self, name: String, schema: &'a Value) {
        if name.is_empty() {
            return;
        }
        let known = self.by_name.insert(name.clone(), schema);
        if known.is_some_and(|known| !std::ptr::eq(known, schema)) {
            self.twice.push(name);
        }
    }

    fn named(&self, name: &str) -> Option<&'a Value> {
        match self.twice.iter().any(|twice| twice == name) {
            true => None,
            false => self.by_name.get(name).copied(),
        }
    }

    /// Target of a reference, if the target is in this document.
    fn find(&self, root: &'a Value, reference: &str) -> Option<&'a Value> {
        let own = match reference.strip_prefix(self.base) {
            Some(rest) if !self.base.is_empty() && (rest.is_empty() || rest.starts_with('#')) => {
                rest
            }
            _ => reference,
        };
        if own.is_empty() || own == "#" || own == "#/" {
            return Some(root);
        }
        if let Some(pointer) = own.strip_prefix("#/") {
            return pointed(root, pointer);
        }
        self.named(own)
    }
}

fn pointed<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').try_fold(root, |value, part| {
        let part = decoded(part)?.replace("~1", "/").replace("~0", "~");
        match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => value.get(&part),
        }
    })
}

/// The text with its percent signs resolved.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = match (first, after) {
            (b'%', [high, low, ..]) => {
                u8::from_str_radix(std::str::from_utf8(&[*high, *low]).ok()?, 16).ok()
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

struct Gathering<'a> {
    root: &'a Value,
    old: bool,
    places: Places<'a>,
    /// Names in `$defs` by reference.
    names: HashMap<String, Option<String>>,
    /// Targets with their names in `$defs`, in the order of their discovery.
    gathered: Vec<(String, &'a Value)>,
    origins: Vec<(String, String)>,
}

impl<'a> Gathering<'a> {
    fn schema(&mut self, schema: &'a Value) -> Value {
        match schema {
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Array(items) => items.iter().map(|item| self.schema(item)).collect(),
            other => other.clone(),
        }
    }

    fn fields(&mut self, fields: &'a Map<String, Value>) -> Map<String, Value> {
        let mut result = Map::new();
        let alone = self.old && fields.get("$ref").is_some_and(Value::is_string);
        for (key, value) in fields {
            let keyword = key.as_str();
            let defines = matches!(keyword, "$defs" | "definitions");
            if defines || (alone && keyword != "$ref") {
                continue;
            }
            let value = match value {
                Value::String(reference)
                    if matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef") =>
                {
                    match self.reference(reference) {
                        Some(reference) => {
                            result.insert("$ref".to_owned(), reference.into());
                            continue;
                        }
                        None => value.clone(),
                    }
                }
                value if DATA.contains(&keyword) => value.clone(),
                Value::Object(named) if NAMED.contains(&keyword) => {
                    let named = named
                        .iter()
                        .map(|(name, part)| (name.clone(), self.schema(part)));
                    Value::Object(named.collect())
                }
                value => self.schema(value),
            };
            result.insert(key.clone(), value);
        }
        result
    }

    fn reference(&mut self, reference: &str) -> Option<String> {
        if let Some(known) = self.names.get(reference) {
            return known.as_ref().map(|name| format!("#/$defs/{name}"));
        }
        let target = self.places.find(self.root, reference);
        let name = target.map(|target| {
            let known = self
                .gathered
                .iter()
                .find(|(_, known)| std::ptr::eq(*known, target));
            known.map(|(name, _)| name.clone()).unwrap_or_else(|| {
                let name = self.new_name(reference);
                self.gathered.push((name.clone(), target));
                self.origins.push((name.clone(), reference.to_owned()));
                name
            })
        });
        self.names.insert(reference.to_owned(), name.clone());
        name.map(|name| format!("#/$defs/{name}"))
    }

    fn new_name(&self, reference: &str) -> String {
        let name = reference.strip_prefix("#/$defs/").unwrap_or_default();
        match name.is_empty() || name.contains(['/', '%', '~']) || name.starts_with(PREFIX) {
            true => format!("{PREFIX}{}", self.gathered.len()),
            false => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_of_all_forms_lead_to_definitions() {
        let schema = json!({
            "$id": "http://x/root",
            "properties": {
                "a": {"$ref": "#/$defs/t"}, "b": {"$ref": "#/definitions/a~1b%25"}, "c": {"$ref": "#name"},
                "d": {"$ref": "http://x/root#/definitions/a~1b%25"}, "e": {"$ref": "#"},
                "f": {"$ref": "http://y/other"}, "g": {"$ref": "item"}, "h": {"const": {"$ref": "#name"}},
                "$ref": {"type": "string"},
            },
            "definitions": {"a/b%": {"type": "string"}, "n": {"$anchor": "name"}, "i": {"$id": "item", "minimum": 1}},
            "$defs": {"t": {"$ref": "#/properties/g"}},
        });
        let gathered = gathered(&schema).schema;
        let properties = &gathered["properties"];
        let target = |name: &str| {
            let reference = properties[name]["$ref"].as_str().unwrap();
            &gathered["$defs"][reference.strip_prefix("#/$defs/").unwrap()]
        };
        assert_eq!(target("b"), &json!({"type": "string"}));
        assert_eq!(target("d"), target("b"));
        assert_eq!(target("c"), &json!({"$anchor": "name"}));
        assert_eq!(target("g"), &json!({"$id": "item", "minimum": 1}));
        assert_eq!(
            target("a")["$ref"]
                .as_str()
                .map(|text| text.starts_with("#/$defs/mortise-")),
            Some(true)
        );
        assert_eq!(target("e")["properties"]["a"], json!({"$ref": "#/$defs/t"}));
        assert_eq!(properties["f"], json!({"$ref": "http://y/other"}));
        assert_eq!(properties["h"], json!({"const": {"$ref": "#name"}}));
        assert_eq!(properties["$ref"], json!({"type": "string"}));
    }

    #[test]
    fn old_drafts_pass_over_what_stands_beside_a_reference() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"a": {"$ref": "#/definitions/t", "maxItems": 1}},
            "definitions": {"t": {"type": "array"}},
        });
        assert_eq!(
            gathered(&schema).schema["properties"]["a"],
            json!({"$ref": "#/$defs/mortise-0"})
        );
    }
}
