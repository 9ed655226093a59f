//! The tools that a request declares, and what text from a model means for their arguments.

use serde_json::{Map, Value};

use crate::Fault;
use crate::output_parser::{Setup, ToolChoice};

/// Bytes of a tool's name at most.
pub const MAX_TOOL_NAME_BYTES: usize = 256;

/// A tool that may be called.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name of the tool: 1 to [`MAX_TOOL_NAME_BYTES`] bytes without control characters.
    pub name: String,
    /// JSON Schema of the tool's arguments, an object; null if the request gave none.
    pub parameters: Value,
}

/// Tools that a request allows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    tools: Vec<Tool>,
    forced: bool,
    parallel: bool,
}

impl Tools {
    /// The tools of a request that may be called: none under `tool_choice: "none"`, one if it is named.
    ///
    /// # Errors
    /// [`Fault::Invalid`] when the declarations are not what the OpenAI API has, two have the same name,
    /// or the named tool is not among them.
    pub fn allowed(setup: &Setup) -> Result<Self, Fault> {
        let mut tools = read(&setup.tools).map_err(Fault::Invalid)?;
        match &setup.tool_choice {
            ToolChoice::None => tools.clear(),
            ToolChoice::Auto => {}
            ToolChoice::Required if tools.is_empty() => {
                let fault = "`tool_choice` is `required`, but `tools` is empty";
                return Err(Fault::Invalid(fault.to_owned()));
            }
            ToolChoice::Required => {}
            ToolChoice::Named(name) => {
                tools.retain(|tool| tool.name == *name);
                if tools.is_empty() {
                    let fault = format!(
                        "`tool_choice` names the tool `{name}`, which `tools` does not declare"
                    );
                    return Err(Fault::Invalid(fault));
                }
            }
        }
        let choice = &setup.tool_choice;
        Ok(Self {
            tools,
            forced: matches!(choice, ToolChoice::Required | ToolChoice::Named(_)),
            parallel: setup.parallel,
        })
    }

    /// Whether no tool may be called.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether a call must be made.
    pub fn forced(&self) -> bool {
        self.forced
    }

    /// Whether one answer may hold several calls.
    pub fn parallel(&self) -> bool {
        self.parallel
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Iterate over the tools, in the order of their declarations.
    pub fn iter(&self) -> std::slice::Iter<'_, Tool> {
        self.tools.iter()
    }
}

impl<'a> IntoIterator for &'a Tools {
    type Item = &'a Tool;
    type IntoIter = std::slice::Iter<'a, Tool>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The declarations of a request; the error says which one is wrong.
fn read(text: &str) -> Result<Vec<Tool>, String> {
    let declarations: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| format!("`tools` must be a JSON array: {error}"))?;
    let mut tools: Vec<Tool> = Vec::with_capacity(declarations.len());
    for (index, declaration) in declarations.into_iter().enumerate() {
        let tool = Tool::read(declaration)
            .map_err(|problem| format!("`tools[{index}].function{problem}"))?;
        if tools.iter().any(|earlier| earlier.name == tool.name) {
            return Err(format!(
                "`tools[{index}].function.name` is `{}`, which an earlier tool has; names must differ",
                tool.name
            ));
        }
        tools.push(tool);
    }
    Ok(tools)
}

impl Tool {
    fn read(mut declaration: Value) -> Result<Self, String> {
        let Some(Value::Object(function)) = declaration.get_mut("function") else {
            return Err("` must be an object".to_owned());
        };
        let name = match function.get("name") {
            Some(Value::String(name))
                if (1..=MAX_TOOL_NAME_BYTES).contains(&name.len())
                    && !name.contains(char::is_control) =>
            {
                name.clone()
            }
            _ => {
                return Err(format!(
                    ".name` must be a string of 1 to {MAX_TOOL_NAME_BYTES} bytes without control characters"
                ));
            }
        };
        match function.remove("parameters").unwrap_or_default() {
            parameters @ (Value::Null | Value::Object(_)) => Ok(Self { name, parameters }),
            _ => Err(".parameters` must be a JSON Schema object".to_owned()),
        }
    }

    /// Value that a text stands for as the argument `key`. Formats that write values bare leave it to the
    /// schema: `5` is a number if the schema has one there, and text if it has a string or nothing. A text
    /// is never taken out of quotes: they are part of it.
    pub fn typed(&self, key: &str, text: &str) -> Value {
        typed_as(&self.types(key), text)
    }

    /// Types that the schema has for the argument `key`, in JSON Schema's words; none if it does not say.
    pub fn types(&self, key: &str) -> Vec<&str> {
        let property = child(&self.parameters, &self.parameters, key);
        property.map_or_else(Vec::new, |schema| types_in(&self.parameters, schema))
    }

    /// Whether the argument `key` is a list or an object, and never a text.
    pub(crate) fn is_structured(&self, key: &str) -> bool {
        is_structured(&self.types(key))
    }
}

/// Schemas that are looked at for the types of one value, through references and alternatives.
const MAX_SCHEMAS: usize = 128;

/// Whether values of these types are lists or objects, and never texts.
pub(crate) fn is_structured(types: &[&str]) -> bool {
    let structured = types.iter().any(|one| matches!(*one, "array" | "object"));
    structured && !types.contains(&"string")
}

/// Value that a text stands for where values of these types may stand.
pub(crate) fn typed_as(types: &[&str], text: &str) -> Value {
    let meant = match text.trim() {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        text => serde_json::from_str(text).ok(),
    };
    match meant {
        None | Some(Value::String(_)) => Value::from(text),
        Some(value) if types.contains(&type_of(&value)) => value,
        // Whole numbers are numbers too, and `-0` and `5.0` are whole.
        Some(Value::Number(number))
            if types.contains(&"number") || (types.contains(&"integer") && is_whole(&number)) =>
        {
            Value::Number(number)
        }
        Some(_) => Value::from(text),
    }
}

/// Whether a number that was written as a fraction is whole, and small enough to have kept all its digits.
fn is_whole(number: &serde_json::Number) -> bool {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = number.as_f64();
    value.is_some_and(|value| value.fract() == 0.0 && value.abs() < EXACT)
}

/// All types that a schema names, through its alternatives and its references within `root`.
pub(crate) fn types_in<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a str> {
    let mut types = Vec::new();
    let mut schemas = vec![schema];
    let mut seen = 0;
    while let Some(schema) = schemas.pop()
        && seen < MAX_SCHEMAS
    {
        seen += 1;
        match schema.get("type") {
            Some(Value::String(one)) => types.push(one.as_str()),
            Some(Value::Array(several)) => types.extend(several.iter().filter_map(Value::as_str)),
            _ => types.extend(implied_types(schema)),
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let alternatives = schema.get(key).and_then(Value::as_array);
            schemas.extend(alternatives.into_iter().flatten());
        }
        schemas.extend(referred(root, schema));
    }
    types
}

/// Types of a schema that does not name them.
fn implied_types(schema: &Value) -> Vec<&'static str> {
    let values = schema.get("enum").and_then(Value::as_array);
    let constant = schema.get("const").into_iter();
    let values = values.into_iter().flatten().chain(constant).map(type_of);
    let shapes = [("properties", "object"), ("items", "array")];
    let shapes = shapes
        .into_iter()
        .filter(|(key, _)| schema.get(*key).is_some());
    values.chain(shapes.map(|(_, shape)| shape)).collect()
}

/// Schema that a `$ref` within `root` stands for.
fn referred<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    let target = schema.get("$ref")?.as_str()?;
    root.pointer(target.strip_prefix('#')?)
}

/// Schema of a property, or of the items under the key `item`, in a schema within `root`.
pub(crate) fn child<'a>(root: &'a Value, schema: &'a Value, key: &str) -> Option<&'a Value> {
    let schema = referred(root, schema).unwrap_or(schema);
    let property = schema.get("properties").and_then(|all| all.get(key));
    property.or_else(|| schema.get("items").filter(|_| key == "item"))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Arguments being gathered, in the order in which the model wrote them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// Add an argument. `None` if one of that name is there already: no model means that.
    pub fn add(&mut self, key: String, value: Value) -> Option<()> {
        if self.0.contains_key(&key) {
            return None;
        }
        self.0.insert(key, value);
        Some(())
    }

    /// Arguments as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(parameters: Value) -> Tool {
        Tool {
            name: "f".to_owned(),
            parameters,
        }
    }

    #[test]
    fn the_schema_says_what_bare_text_is() {
        let tool = tool(json!({"type": "object", "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "list": {"type": "array"},
            "maybe": {"type": ["integer", "null"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "choice": {"enum": [1, 2]},
            "there": {"$ref": "#/$defs/place"},
        }, "$defs": {"place": {"properties": {"a": {"type": "integer"}}}}}));
        for (key, text, value) in [
            ("text", "5", json!("5")),
            ("text", " a\n", json!(" a\n")),
            ("text", "{\"a\": 1}", json!("{\"a\": 1}")),
            ("count", " 5 ", json!(5)),
            ("count", "5.5", json!("5.5")),
            ("count", "five", json!("five")),
            ("ratio", "5", json!(5)),
            ("ratio", "5.5", json!(5.5)),
            ("flag", "true", json!(true)),
            ("flag", "False", json!(false)),
            ("list", "[1, \"a\"]", json!([1, "a"])),
            ("list", "[1, ", json!("[1, ")),
            ("maybe", "None", json!(null)),
            ("maybe", "3", json!(3)),
            ("either", "3", json!(3)),
            ("either", "three", json!("three")),
            ("text", "\"a\"", json!("\"a\"")),
            ("either", "\"3\"", json!("\"3\"")),
            ("there", "{\"a\": 1}", json!({"a": 1})),
            ("choice", "2", json!(2)),
            ("unknown", "2", json!("2")),
        ] {
            assert_eq!(tool.typed(key, text), value, "{key}: {text}");
        }
    }

    #[test]
    fn arguments_keep_their_order_and_come_once() {
        let mut arguments = Arguments::default();
        assert_eq!(arguments.add("b".to_owned(), json!(1)), Some(()));
        assert_eq!(arguments.add("a".to_owned(), json!("x")), Some(()));
        assert_eq!(arguments.add("b".to_owned(), json!(2)), None);
        assert_eq!(arguments.to_json(), r#"{"b":1,"a":"x"}"#);
    }
}
