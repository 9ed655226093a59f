//! A tool that calculates: `calculate` takes an expression such as `2 * (3 + 4)` and gives its value.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then drop
//! `target/wasm32-wasip2/release/calculator.wasm` into the server's plugins folder. A request opts in
//! with `"server_tools": ["calculate"]`.

mod expression;

use serde_json::{Value, json};

wit_bindgen::generate!({
    path: "../../../wit/v0.2",
    world: "tool-plugin",
});

use exports::mortise::plugin::lifecycle::Guest as Lifecycle;
use exports::mortise::plugin::tool::{Context, Declaration, Failure, Guest as Tool};
use mortise::plugin::types::Fault;

struct Calculator;
export!(Calculator);

impl Lifecycle for Calculator {
    fn prepare() -> Result<(), Fault> {
        Ok(())
    }
}

impl Tool for Calculator {
    fn describe() -> Vec<Declaration> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "description": "Numbers, + - * / % ^, parentheses, sqrt abs round floor ceil ln exp sin cos tan, pi and e.",
                    "maxLength": 1000,
                },
            },
            "required": ["expression"],
            "additionalProperties": false,
        });
        vec![Declaration {
            name: "calculate".to_owned(),
            description: "Computes the value of an arithmetic expression.".to_owned(),
            parameters: parameters.to_string(),
        }]
    }

    fn call(_name: String, arguments: String, _context: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let arguments: Value = serde_json::from_str(&arguments)
            .map_err(|error| Failure::Internal(error.to_string()))?;
        let text = arguments["expression"].as_str().unwrap_or_default();
        match expression::value(text) {
            Ok(value) => Ok(value.to_string()),
            Err(problem) => Err(Failure::Refused(problem)),
        }
    }
}
