//! The operation of the echo.

use mortise_http::contract::{CALLER, DialectContract, Operation};

use super::ECHO;
use crate::openai_error::{ERROR, SHAPE};

/// The contract of the operation.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Debug",
        about: "An echo for test suites of WebSockets.",
        shapes: &[SHAPE],
        problem: ERROR,
        asks: true,
        operations,
    }
}

pub(super) fn echo() -> Operation {
    let summary = "A WebSocket that sends each message back.";
    Operation::get(ECHO, "echoWebSocket", summary)
        .refuses(CALLER)
        .refuses(&[413])
        .upgrades()
}
