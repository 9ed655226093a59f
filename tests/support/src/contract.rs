//! A document in OpenAPI's terms, and answers that it must declare.

use serde_json::{Map, Value};

use super::client::Response;
use super::schema::fault;

/// Whether a value is one that a schema without names describes.
pub fn takes(schema: &Value, value: &Value) -> bool {
    fault(&Value::Null, schema, value, "").is_none()
}

/// A document whose shapes of answers have no members but those that they name.
pub struct Contract {
    pub document: Value,
}

impl Contract {
    pub fn new(mut document: Value) -> Self {
        let schemas = document["components"]["schemas"].take();
        let mut schemas = schemas.as_object().cloned().expect("schemas");
        for (name, schema) in &mut schemas {
            if !name.ends_with("Request") {
                close(schema);
            }
        }
        document["components"]["schemas"] = Value::Object(schemas);
        Self { document }
    }

    /// Each path with its method and operation.
    pub fn operations(&self) -> Vec<(String, String, &Value)> {
        let paths = self.document["paths"].as_object().expect("paths").iter();
        let of_path = |(path, methods)| {
            let methods: &Map<String, Value> = Value::as_object(methods).expect("methods");
            let each = methods.iter();
            each.map(move |(method, operation)| (String::clone(path), method.clone(), operation))
        };
        paths.flat_map(of_path).collect()
    }

    pub fn operation(&self, id: &str) -> (String, String, &Value) {
        let mut operations = self.operations().into_iter();
        let found = operations.find(|(_, _, operation)| operation["operationId"] == id);
        found.unwrap_or_else(|| panic!("there is no operation {id}"))
    }

    /// A body is one that a schema describes.
    pub fn check(&self, schema: &Value, body: &Value, what: &str) {
        let fault = fault(&self.document, schema, body, "the body");
        assert!(fault.is_none(), "{what}: {fault:?} in {body}");
    }

    /// The declared answer of a status, behind its name.
    fn declared<'a>(&'a self, operation: &'a Value, status: u16) -> &'a Value {
        let answer = &operation["responses"][status.to_string()];
        let answer = match answer["$ref"].as_str() {
            Some(name) => self.document.pointer(&name[1..]).expect("an answer"),
            None => answer,
        };
        let id = &operation["operationId"];
        assert!(answer.is_object(), "{id} does not declare {status}");
        answer
    }

    /// An answer is one of those that its operation declares.
    pub fn holds(&self, operation: &Value, response: &Response) {
        let id = operation["operationId"].as_str().expect("an id");
        let media = response.header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default();
        let declared = self.declared(operation, response.status());
        let content = &declared["content"][media];
        let what = format!("{id}, {}, {media}", response.status());
        assert!(
            content.is_object(),
            "{what} is not declared: {}",
            response.text()
        );
        let item = &content["x-item-schema"];
        let lines: Vec<Value> = match media {
            "application/json" => {
                return self.check(&content["schema"], &response.json(), &what);
            }
            "text/event-stream" => {
                let text = response.text();
                let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
                let lines = lines
                    .filter(|line| *line != "[DONE]")
                    .map(serde_json::from_str);
                lines.collect::<Result<_, _>>().expect("JSON")
            }
            "application/x-ndjson" => {
                let text = response.text();
                let lines = text.lines().map(serde_json::from_str);
                lines.collect::<Result<_, _>>().expect("JSON")
            }
            _ => return,
        };
        assert!(!lines.is_empty(), "{what}");
        for line in lines {
            self.check(item, &line, &what);
        }
    }
}

/// Objects have no members but those that are named.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("properties") && !members.contains_key("additionalProperties") {
                members.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}
