//! A document in the terms of OpenAPI 3.1, made of what dialects declare.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::notation::{Schemas, declared, expression};
use super::{Answer, DialectContract, Operation};
use crate::problem::Problem;

/// Status that a dialect writes for a status.
pub(crate) type OfStatus = Option<fn(&Problem) -> StatusCode>;

/// Words about a whole document.
#[derive(Debug, Clone, Copy)]
pub struct ApiInfo {
    /// Its title.
    pub title: &'static str,
    /// Description of the server.
    pub description: &'static str,
}

/// The parts of a document that grow with each operation.
#[derive(Default)]
struct Parts {
    paths: Map<String, Value>,
    schemas: Schemas,
    responses: Map<String, Value>,
}

/// The document of all contracts, each with the statuses that its dialect writes.
///
/// # Errors
/// When a shape is not in the notation, a name is declared in two ways, or a type is not declared.
pub fn document(
    about: ApiInfo,
    contracts: &[(DialectContract, OfStatus)],
) -> Result<Value, String> {
    let mut parts = Parts::default();
    for (contract, of_status) in contracts {
        for text in contract.shapes {
            for (name, schema) in declared(text)? {
                parts.add_schema(&name, schema)?;
            }
        }
        for operation in &contract.operations {
            parts.add(contract, *of_status, operation)?;
        }
    }
    let tags = contracts
        .iter()
        .map(|(contract, _)| json!({"name": contract.tag, "description": contract.about}));
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "description": about.description,
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags.collect::<Vec<_>>(),
        "paths": parts.paths,
        "components": {
            "schemas": parts.schemas,
            "responses": parts.responses,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    });
    check_references(&document, &document)?;
    Ok(document)
}

/// Every name stands for something.
fn check_references(document: &Value, part: &Value) -> Result<(), String> {
    match part {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let target = document.pointer(reference.trim_start_matches('#'));
                target.ok_or_else(|| format!("{reference} is not declared"))?;
            }
            let mut members = members.values();
            members.try_for_each(|member| check_references(document, member))
        }
        Value::Array(items) => {
            let mut items = items.iter();
            items.try_for_each(|item| check_references(document, item))
        }
        _ => Ok(()),
    }
}

impl Parts {
    fn add_schema(&mut self, name: &str, schema: Value) -> Result<(), String> {
        match self.schemas.get(name) {
            Some(known) if *known != schema => {
                Err(format!("the type `{name}` is declared in two ways"))
            }
            Some(_) => Ok(()),
            None => {
                self.schemas.insert(name.to_owned(), schema);
                Ok(())
            }
        }
    }

    fn add(
        &mut self,
        contract: &DialectContract,
        of_status: OfStatus,
        operation: &Operation,
    ) -> Result<(), String> {
        let mut responses = Map::new();
        for answer in &operation.answers {
            add_answer(&mut responses, answer)?;
        }
        let statuses = operation.refusals.iter().filter_map(|status| {
            let status = StatusCode::from_u16(*status).ok()?;
            Some(of_status.map_or(status, |of| of(&Problem::new(status, "", ""))))
        });
        let mut statuses: BTreeSet<String> =
            statuses.map(|status| status.as_u16().to_string()).collect();
        if contract.asks {
            statuses.insert("4XX".to_owned());
        }
        for status in statuses {
            let name = self.add_refusal(contract.problem, &status);
            let refusal = json!({"$ref": format!("#/components/responses/{name}")});
            responses.entry(status).or_insert(refusal);
        }
        let (path, names) = template(operation.path);
        let mut parameters: Vec<Value> = names.iter().map(|name| of_path(name)).collect();
        parameters.extend(operation.parameters.iter().cloned());
        let mut written = json!({
            "operationId": operation.id,
            "summary": operation.summary,
            "tags": [contract.tag],
        });
        if !parameters.is_empty() {
            written["parameters"] = Value::Array(parameters);
        }
        if let Some(taken) = &operation.taken {
            self.add_schema(taken.name, taken.schema.clone())?;
            let schema = json!({"$ref": format!("#/components/schemas/{}", taken.name)});
            written["requestBody"] = json!({
                "required": taken.required,
                "content": {taken.media: {"schema": schema}},
            });
        }
        written["responses"] = Value::Object(responses);
        if contract.asks {
            // Keys are asked for where the operator has some.
            written["security"] = json!([{}, {"bearer": []}, {"key": []}]);
        }
        let methods = self.paths.entry(path).or_insert_with(|| json!({}));
        let known = &mut methods[operation.method.name()];
        match known.is_null() {
            true => *known = written,
            // Another dialect answers its own callers on the same route.
            false => join(known, &written, &self.responses),
        }
        Ok(())
    }

    /// The name of a refusal in the document.
    fn add_refusal(&mut self, problem: &str, status: &str) -> String {
        let name = format!("{problem}{status}");
        let about = match status {
            "4XX" => "A policy of the operator refuses the request.",
            "529" => "Overloaded",
            status => {
                let status = status.parse().ok();
                let status = status.and_then(|status: u16| StatusCode::from_u16(status).ok());
                let reason = status.and_then(|status| status.canonical_reason());
                reason.unwrap_or("Refused")
            }
        };
        self.responses.entry(name.clone()).or_insert_with(|| {
            let schema = json!({"$ref": format!("#/components/schemas/{problem}")});
            json!({"description": about, "content": {"application/json": {"schema": schema}}})
        });
        name
    }
}

/// Add to an operation what another dialect answers on the same route.
fn join(known: &mut Value, other: &Value, refusals: &Map<String, Value>) {
    let resolved = |response: &Value| match response["$ref"].as_str() {
        Some(reference) => {
            let name = reference.rsplit('/').next().unwrap_or_default();
            refusals.get(name).cloned().unwrap_or_default()
        }
        None => response.clone(),
    };
    let names: Vec<Value> = of_list(&known["parameters"])
        .map(|own| own["name"].clone())
        .collect();
    let new = of_list(&other["parameters"]).filter(|own| !names.contains(&own["name"]));
    let parameters: Vec<Value> = of_list(&known["parameters"]).chain(new).cloned().collect();
    known["parameters"] = Value::Array(parameters);
    for (status, response) in other["responses"].as_object().into_iter().flatten() {
        let own = &mut known["responses"][status];
        if own.is_null() {
            *own = response.clone();
            continue;
        }
        *own = resolved(own);
        let second = resolved(response)["content"]["application/json"]["schema"].take();
        let first = own["content"]["application/json"]["schema"].take();
        own["content"]["application/json"]["schema"] = json!({"anyOf": [first, second]});
    }
}

fn of_list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// One status may have bodies of several media types.
fn add_answer(responses: &mut Map<String, Value>, answer: &Answer) -> Result<(), String> {
    let status = StatusCode::from_u16(answer.status).map_err(|error| error.to_string())?;
    let about = status.canonical_reason().unwrap_or_default();
    let key = answer.status.to_string();
    let written = responses
        .entry(key)
        .or_insert_with(|| json!({"description": about}));
    let content = match (answer.media, answer.shape) {
        ("", _) => return Ok(()),
        ("application/json", Some(shape)) => json!({"schema": expression(shape)?}),
        // OpenAPI 3.1 has no word for the items of a stream; 3.2 calls it `itemSchema`.
        (_, Some(shape)) => {
            json!({"schema": {"type": "string"}, "x-item-schema": expression(shape)?})
        }
        (_, None) => json!({"schema": {"type": "string"}}),
    };
    written["content"][answer.media] = content;
    Ok(())
}

/// A path as OpenAPI has it, and the names of its parameters.
fn template(path: &str) -> (String, Vec<String>) {
    let parts = path.split('/').map(|part| match name_of(part) {
        Some(name) => format!("{{{name}}}"),
        None => part.to_owned(),
    });
    let names = path.split('/').filter_map(name_of).map(str::to_owned);
    (parts.collect::<Vec<_>>().join("/"), names.collect())
}

/// The name of a parameter, which may stand for the rest of the path.
fn name_of(part: &str) -> Option<&str> {
    let name = part.strip_prefix('{')?.strip_suffix('}')?;
    Some(name.trim_start_matches('*'))
}

fn of_path(name: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "schema": {"type": "string", "minLength": 1},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(
        shapes: &'static [&'static str],
        operation: Operation,
    ) -> [(DialectContract, OfStatus); 1] {
        let contract = DialectContract {
            tag: "T",
            about: "",
            shapes,
            problem: "Error",
            asks: true,
            operations: vec![operation],
        };
        [(
            contract,
            Some(|problem| match problem.status.as_u16() {
                503 => StatusCode::BAD_GATEWAY,
                _ => problem.status,
            }),
        )]
    }

    const ABOUT: ApiInfo = ApiInfo {
        title: "t",
        description: "d",
    };

    #[test]
    fn an_operation_has_its_parameters_answers_and_refusals() {
        let operation = Operation::get("/a/{*id}", "getA", "Reads.")
            .query("limit", json!({"type": "integer"}), "Most entries.")
            .answers(200, "Row[]")
            .streams("Row");
        let shapes: &[&str] = &["type Error = {error: string}; type Row = {id: string};"];
        let document = document(ABOUT, &contract(shapes, operation)).expect("a document");
        let get = &document["paths"]["/a/{id}"]["get"];
        assert_eq!(get["parameters"][0]["in"], "path");
        assert_eq!(get["parameters"][1]["name"], "limit");
        let content = &get["responses"]["200"]["content"];
        assert_eq!(content["application/json"]["schema"]["type"], "array");
        assert!(content["text/event-stream"]["x-item-schema"].is_object());
        let refusal = &get["responses"]["400"]["$ref"];
        assert_eq!(refusal, "#/components/responses/Error400");
        // The dialect writes another status.
        assert!(get["responses"]["503"].is_null() && get["responses"]["502"].is_object());
    }

    #[test]
    fn what_is_not_declared_is_told() {
        let operation = Operation::get("/a", "getA", "").answers(200, "Row");
        let shapes: &[&str] = &["type Error = {error: string};"];
        let failed = document(ABOUT, &contract(shapes, operation));
        assert!(failed.is_err_and(|text| text.contains("schemas/Row is not declared")));
    }
}
