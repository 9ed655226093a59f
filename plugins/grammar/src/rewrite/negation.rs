//! The opposite of a schema, as schemas that grammars can follow.

mod values;

use serde_json::{Map, Value, json};

use super::document::Document;
use super::strings;
use super::types::Types;

/// Schemas one within the other that are negated.
const MAX_DEPTH: usize = 16;
/// Alternatives of one opposite.
const MAX_ALTERNATIVES: usize = 64;
/// Options of a `oneOf` that is negated.
const MAX_OPTIONS: usize = 6;

/// A keyword that has no opposite here, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Undecided(pub(super) String);

fn undecided(keyword: &str) -> Undecided {
    Undecided(format!(
        "the opposite of its `{keyword}` cannot be written as a grammar"
    ))
}

/// Schemas of which one takes each value of these types that `schema` does not take, and none takes one that
/// it does. Where a part of that cannot be written it is left out, as long as there are others of its type.
pub(super) fn negate(
    document: &Document,
    schema: &Value,
    among: Types,
) -> Result<Vec<Value>, Undecided> {
    negate_below(document, schema, among, 0)?.finished(false)
}

fn negate_below<'a>(
    document: &'a Document,
    schema: &Value,
    among: Types,
    depth: usize,
) -> Result<Opposite<'a>, Undecided> {
    let mut opposite = Opposite {
        document,
        among,
        depth,
        alternatives: Vec::new(),
        lost: Vec::new(),
    };
    let fields = match schema {
        Value::Bool(true) => return Ok(opposite),
        Value::Bool(false) => {
            opposite.alternatives.push(of_types(among, Map::new()));
            return Ok(opposite);
        }
        Value::Object(fields) => fields,
        _ => return Err(Undecided("it is no schema".to_owned())),
    };
    if depth > MAX_DEPTH || document.is_spent() {
        return Err(Undecided(
            "the schema leads too deep to be negated".to_owned(),
        ));
    }
    for (key, argument) in fields {
        opposite.add_keyword(key, argument, fields);
    }
    Ok(opposite)
}

/// A schema of these types with these keywords.
fn of_types(types: Types, mut fields: Map<String, Value>) -> Value {
    if types != Types::ALL {
        let names = types.names();
        let names = match names.as_slice() {
            [name] => json!(name),
            names => json!(names),
        };
        fields.insert("type".to_owned(), names);
    }
    Value::Object(fields)
}

struct Opposite<'a> {
    document: &'a Document,
    among: Types,
    depth: usize,
    alternatives: Vec<Value>,
    /// Parts that cannot be written, with the types of their values.
    lost: Vec<(Types, Undecided)>,
}

impl Opposite<'_> {
    /// The alternatives. Of a part of a value, those of some types are enough: what is lost with the others is a part
    /// of what a type leaves.
    fn finished(self, part: bool) -> Result<Vec<Value>, Undecided> {
        let enough = part && !self.alternatives.is_empty();
        for (types, reason) in self.lost.into_iter().filter(|_| !enough) {
            let others = self.alternatives.iter();
            let mut others = others.map(|schema| self.document.types(schema));
            if !others.any(|other| other.meets(types)) {
                return Err(reason);
            }
        }
        match self.alternatives.len() > MAX_ALTERNATIVES {
            true => Err(Undecided(format!(
                "its opposite has more than {MAX_ALTERNATIVES} alternatives"
            ))),
            false => Ok(self.alternatives),
        }
    }

    /// An alternative with these keywords, for values of these types.
    fn add(&mut self, types: Types, fields: Value) {
        let types = types.and(self.among);
        if let (false, Value::Object(fields)) = (types.names().is_empty(), fields) {
            self.alternatives.push(of_types(types, fields));
        }
    }

    fn lose(&mut self, types: Types, keyword: &str) {
        if types.meets(self.among) {
            self.lost.push((types.and(self.among), undecided(keyword)));
        }
    }

    fn below(&self, schema: &Value, among: Types) -> Result<Vec<Value>, Undecided> {
        negate_below(self.document, schema, among, self.depth + 1)?.finished(false)
    }

    /// The opposite of the schema of a member or an item.
    fn within(&self, schema: &Value) -> Result<Vec<Value>, Undecided> {
        negate_below(self.document, schema, Types::ALL, self.depth + 1)?.finished(true)
    }

    fn add_keyword(&mut self, key: &str, argument: &Value, fields: &Map<String, Value>) {
        match key {
            "type" => self.add_other_types(Types::read(argument).unwrap_or(Types::ALL)),
            "const" => self.add_other_values(std::slice::from_ref(argument)),
            "enum" => self.add_other_values(argument.as_array().map_or(&[][..], Vec::as_slice)),
            "minLength" | "maxLength" => self.add_other_count(Types::STRING, key, argument),
            "minItems" | "maxItems" => self.add_other_count(Types::ARRAY, key, argument),
            "minProperties" | "maxProperties" => self.add_other_count(Types::OBJECT, key, argument),
            "minimum" => self.add(Types::NUMBER, json!({"exclusiveMaximum": argument})),
            "maximum" => self.add(Types::NUMBER, json!({"exclusiveMinimum": argument})),
            "exclusiveMinimum" if argument.is_number() => {
                self.add(Types::NUMBER, json!({"maximum": argument}));
            }
            "exclusiveMaximum" if argument.is_number() => {
                self.add(Types::NUMBER, json!({"minimum": argument}));
            }
            "pattern" => self.add_other_texts(argument.as_str().unwrap_or_default()),
            "format" => match strings::without_format(argument.as_str().unwrap_or_default()) {
                Some(pattern) => self.add(Types::STRING, json!({"pattern": pattern})),
                None => self.lose(Types::STRING, key),
            },
            "multipleOf" => self.add_between_multiples(argument),
            "exclusiveMinimum" | "exclusiveMaximum" => self.lose(Types::NUMBER, key),
            "required" => {
                for name in argument
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    self.add(Types::OBJECT, json!({"properties": {name: false}}));
                }
            }
            "properties" | "dependentRequired" | "dependentSchemas" | "dependencies" => {
                for (name, argument) in argument.as_object().into_iter().flatten() {
                    self.add_member(key, name, argument);
                }
            }
            "additionalProperties" | "propertyNames" => {
                self.add_other_members(key, argument, fields)
            }
            "patternProperties" => {
                for (pattern, schema) in argument.as_object().into_iter().flatten() {
                    self.add_matching(pattern, schema);
                }
            }
            "unevaluatedProperties" => self.lose(Types::OBJECT, key),
            "prefixItems" | "items" | "contains" => self.add_items(key, argument, fields),
            "uniqueItems" if argument.as_bool() == Some(false) => {}
            "additionalItems" | "minContains" | "maxContains" | "uniqueItems"
            | "unevaluatedItems" => {
                self.lose(Types::ARRAY, key);
            }
            "not" => self.alternatives.push(self.narrowed(argument.clone())),
            "$ref" | "allOf" | "anyOf" | "oneOf" | "if" => self.add_applied(key, argument, fields),
            "$dynamicRef" | "$recursiveRef" => self.lost.push((self.among, undecided(key))),
            _ => {}
        }
    }

    /// The schema for the types that are asked for alone.
    fn narrowed(&self, schema: Value) -> Value {
        match self.among == Types::ALL {
            true => schema,
            false => json!({"allOf": [schema, of_types(self.among, Map::new())]}),
        }
    }

    fn add_other_types(&mut self, types: Types) {
        let others = Types::ALL.without(types);
        self.add(others, json!({}));
        if others.and(Types::NUMBER) == Types::FRACTION {
            self.lose(Types::FRACTION, "type");
        }
    }

    fn add_other_count(&mut self, types: Types, key: &str, count: &Value) {
        let what = &key[3..];
        let Some(count) = count.as_u64() else {
            return self.lose(types, key);
        };
        if key.starts_with("max") {
            self.add(types, json!({format!("min{what}"): count + 1}));
        } else if count > 0 {
            self.add(types, json!({format!("max{what}"): count - 1}));
        }
    }

    /// Add the ways in which an object breaks one rule about its member of this name.
    fn add_member(&mut self, key: &str, name: &str, argument: &Value) {
        if let (true, Value::Array(needed)) = (key != "properties", argument) {
            for needed in needed.iter().filter_map(Value::as_str) {
                self.add(
                    Types::OBJECT,
                    json!({"required": [name], "properties": {needed: false}}),
                );
            }
            return;
        }
        let negated = match key {
            "properties" => self.within(argument),
            _ => self.below(argument, Types::OBJECT),
        };
        match negated {
            Ok(ways) if ways.is_empty() => {}
            Ok(ways) if key == "properties" => {
                self.add(
                    Types::OBJECT,
                    json!({"required": [name], "properties": {name: any_of(ways)}}),
                );
            }
            Ok(ways) => self.add(
                Types::OBJECT,
                json!({"required": [name], "allOf": [any_of(ways)]}),
            ),
            Err(_) => self.lose(Types::OBJECT, key),
        }
    }

    /// Add an object that breaks the rule about members with such names; one of these members alone.
    fn add_matching(&mut self, pattern: &str, schema: &Value) {
        match self.within(schema) {
            Ok(ways) if ways.is_empty() => {}
            Ok(ways) => self.add(
                Types::OBJECT,
                json!({"patternProperties": {pattern: any_of(ways)}, "additionalProperties": false, "minProperties": 1}),
            ),
            Err(_) => self.lose(Types::OBJECT, "patternProperties"),
        }
    }

    fn add_other_members(&mut self, key: &str, argument: &Value, fields: &Map<String, Value>) {
        let named = ["properties", "patternProperties"].iter().any(|key| {
            fields
                .get(*key)
                .and_then(Value::as_object)
                .is_some_and(|named| !named.is_empty())
        });
        match argument {
            Value::Bool(true) => {}
            Value::Object(fields) if fields.is_empty() => {}
            Value::Bool(false) if key == "propertyNames" || !named => {
                self.add(Types::OBJECT, json!({"minProperties": 1}));
            }
            names if key == "propertyNames" => match self.below(names, Types::STRING) {
                Ok(ways) => ways.iter().for_each(|way| self.add_named(way, 0)),
                Err(_) => self.lose(Types::OBJECT, key),
            },
            _ => self.lose(Types::OBJECT, key),
        }
    }

    /// Add an object that has a member with such a name: one of those that are listed, or such members alone.
    fn add_named(&mut self, names: &Value, depth: usize) {
        let reference = names.get("$ref").and_then(|to| self.document.target(to));
        let names = reference.unwrap_or(names);
        let fields = names.as_object().into_iter().flatten();
        let telling: Vec<(&str, &Value)> = fields
            .map(|(key, value)| (key.as_str(), value))
            .filter(|(key, value)| *key != "type" || !takes_strings(value))
            .collect();
        match telling.as_slice() {
            _ if depth > MAX_DEPTH => self.lose(Types::OBJECT, "propertyNames"),
            [] => self.add(Types::OBJECT, json!({"minProperties": 1})),
            [("const", Value::String(name))] => {
                self.add(Types::OBJECT, json!({"required": [name]}));
            }
            [("enum", Value::Array(names))] => {
                for name in names.iter().filter(|name| name.is_string()) {
                    self.add(Types::OBJECT, json!({"required": [name]}));
                }
            }
            [("anyOf", Value::Array(ways))] => {
                ways.iter().for_each(|way| self.add_named(way, depth + 1));
            }
            [("allOf", Value::Array(parts))] => {
                let silent = |part: &&Value| {
                    let mut fields = part.as_object().into_iter().flatten();
                    !fields.all(|(key, value)| key == "type" && takes_strings(value))
                };
                match parts.iter().filter(silent).collect::<Vec<_>>().as_slice() {
                    [part] => self.add_named(part, depth + 1),
                    _ => self.lose(Types::OBJECT, "propertyNames"),
                }
            }
            [("pattern", Value::String(pattern))] => self.add_matching(pattern, &json!(false)),
            [("minLength", least)] => {
                let pattern = format!(r"^[\s\S]{{{least},}}$");
                self.add_matching(&pattern, &json!(false));
            }
            [("maxLength", most)] => {
                let pattern = format!(r"^[\s\S]{{0,{most}}}$");
                self.add_matching(&pattern, &json!(false));
            }
            _ => self.lose(Types::OBJECT, "propertyNames"),
        }
    }

    fn add_items(&mut self, key: &str, argument: &Value, fields: &Map<String, Value>) {
        let list = match (key, argument) {
            ("prefixItems" | "items", Value::Array(list)) => list,
            ("contains", _)
                if fields.contains_key("minContains") || fields.contains_key("maxContains") =>
            {
                return self.lose(Types::ARRAY, key);
            }
            ("contains", schema) => {
                return match self.within(schema) {
                    Ok(ways) if ways.is_empty() => self.add(Types::ARRAY, json!({"maxItems": 0})),
                    Ok(ways) => self.add(Types::ARRAY, json!({"items": any_of(ways)})),
                    Err(_) => self.lose(Types::ARRAY, key),
                };
            }
            (_, Value::Bool(true)) => return,
            (_, Value::Bool(false)) => {
                let first = fields
                    .get("prefixItems")
                    .and_then(Value::as_array)
                    .map_or(0, Vec::len);
                return self.add(Types::ARRAY, json!({"minItems": first + 1}));
            }
            // The first item may be of another kind than all of them are.
            (_, schema) if !fields.contains_key("prefixItems") => {
                return match self.within(schema) {
                    Ok(ways) if ways.is_empty() => {}
                    Ok(ways) => {
                        self.add(
                            Types::ARRAY,
                            json!({"prefixItems": [any_of(ways)], "minItems": 1}),
                        );
                    }
                    Err(_) => self.lose(Types::ARRAY, key),
                };
            }
            _ => return self.lose(Types::ARRAY, key),
        };
        for (index, schema) in list.iter().enumerate() {
            match self.within(schema) {
                Ok(ways) if ways.is_empty() => {}
                Ok(ways) => {
                    let mut items = vec![json!(true); index];
                    items.push(any_of(ways));
                    self.add(
                        Types::ARRAY,
                        json!({"prefixItems": items, "minItems": index + 1}),
                    );
                }
                Err(_) => self.lose(Types::ARRAY, key),
            }
        }
    }

    fn add_applied(&mut self, key: &str, argument: &Value, fields: &Map<String, Value>) {
        let alternatives = match (key, argument) {
            ("$ref", reference) => match self.document.target(reference) {
                Some(target) => self.below(target, self.among),
                None => Err(undecided(key)),
            },
            ("allOf", Value::Array(schemas)) => {
                for schema in schemas {
                    match self.below(schema, self.among) {
                        Ok(ways) => self.alternatives.extend(ways),
                        Err(reason) => self.lost.push((self.among, reason)),
                    }
                }
                return;
            }
            ("anyOf", Value::Array(schemas)) => self.none_of(schemas),
            ("oneOf", Value::Array(schemas)) => self.not_one_of(schemas),
            _ => self.not_conditional(argument, fields),
        };
        match alternatives {
            Ok(alternatives) => self.alternatives.extend(alternatives),
            Err(reason) => self.lost.push((self.among, reason)),
        }
    }

    /// The values that none of the schemas takes.
    fn none_of(&self, schemas: &[Value]) -> Result<Vec<Value>, Undecided> {
        let mut all = Vec::new();
        let mut types = self.among;
        for schema in schemas {
            let ways = self.below(schema, types)?;
            if ways.is_empty() {
                return Ok(Vec::new());
            }
            let way = any_of(ways);
            types = types.and(self.document.types(&way));
            all.push(way);
        }
        Ok(match (types.is_empty(), all.len()) {
            (true, _) => Vec::new(),
            (false, 1) => all,
            (false, _) => vec![json!({"allOf": all})],
        })
    }

    /// The values that none of the schemas takes, and those that two of them take.
    fn not_one_of(&self, schemas: &[Value]) -> Result<Vec<Value>, Undecided> {
        let mut ways = self.none_of(schemas)?;
        for (index, a) in schemas.iter().enumerate() {
            for b in &schemas[index + 1..] {
                if self.document.are_disjoint(a, b) {
                    continue;
                }
                if schemas.len() > MAX_OPTIONS {
                    return Err(undecided("oneOf"));
                }
                ways.push(self.narrowed(json!({"allOf": [a, b]})));
            }
        }
        Ok(ways)
    }

    fn not_conditional(
        &self,
        condition: &Value,
        fields: &Map<String, Value>,
    ) -> Result<Vec<Value>, Undecided> {
        let mut ways = Vec::new();
        if let Some(then) = fields.get("then") {
            let broken = self.below(then, self.among)?;
            if !broken.is_empty() {
                ways.push(json!({"allOf": [condition, any_of(broken)]}));
            }
        }
        if let Some(otherwise) = fields.get("else") {
            let broken = self.below(otherwise, self.among)?;
            let unmet = self.below(condition, self.among)?;
            if !broken.is_empty() && !unmet.is_empty() {
                ways.push(json!({"allOf": [any_of(unmet), any_of(broken)]}));
            }
        }
        Ok(ways)
    }
}

/// Whether the value of `type` takes texts.
fn takes_strings(types: &Value) -> bool {
    Types::read(types).is_some_and(|types| types.meets(Types::STRING))
}

/// One schema that takes what any of these takes.
pub(super) fn any_of(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        0 => json!(false),
        1 => schemas.remove(0),
        _ => json!({"anyOf": schemas}),
    }
}
