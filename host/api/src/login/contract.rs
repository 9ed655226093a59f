//! The dialect's operation.

use mortise_http::contract::{DialectContract, Operation};
use serde_json::json;

use super::LOGIN;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of the operation.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Login",
        about: "A user name and a password for a token, in ThemisDB's shape.",
        shapes: &[SHAPES],
        problem: "LoginProblem",
        asks: false,
        operations,
    }
}

pub(super) fn login() -> Operation {
    let text = || json!({"type": "string"});
    let schema = json!({
        "type": "object",
        "properties": {"username": text(), "password": text()},
        "required": ["username", "password"],
        "additionalProperties": false,
    });
    Operation::post(LOGIN, "logIn", "A token for a user name and a password.")
        .refuses(&[401, 404, 429])
        .takes("LoginRequest", schema)
        .answers(200, "LoginToken")
}
