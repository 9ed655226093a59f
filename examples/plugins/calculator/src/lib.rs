//! A tool that calculates: `calculate` takes an expression such as `2 * (3 + 4)` and gives its value.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then drop
//! `target/wasm32-wasip2/release/calculator.wasm` into the server's plugins folder. A request opts in
//! with `"server_tools": ["calculate"]`.

mod expression;

use mortise_plugin_sdk::serde_json::{Value, json};
use mortise_plugin_sdk::tool::{Context, Declaration, Failure, Tool};
use mortise_plugin_sdk::{Fault, NoSettings};

mortise_plugin_sdk::export!(tool: Calculator);

struct Calculator;

impl Tool for Calculator {
    type Settings = NoSettings;

    fn prepare(_: NoSettings) -> Result<Self, Fault> {
        Ok(Self)
    }

    fn describe(&self) -> Vec<Declaration> {
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
        let description = "Computes the value of an arithmetic expression.";
        vec![Declaration::new("calculate", description, &parameters)]
    }

    fn call(&self, _: &str, arguments: Value, _: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let text = arguments["expression"].as_str().unwrap_or_default();
        match expression::value(text) {
            Ok(value) => Ok(value.to_string()),
            Err(problem) => Err(Failure::Refused(problem)),
        }
    }
}
