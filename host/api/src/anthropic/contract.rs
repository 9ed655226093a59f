//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, MODEL, Operation};
use serde_json::json;

use super::{COUNT_TOKENS, MESSAGES, VERSION_HEADER, models, request};
use crate::contract::once;
use crate::unsupported::Unsupported;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations, and of those on routes of another dialect.
pub(super) fn contract(mut operations: Vec<Operation>) -> DialectContract {
    operations.extend([list_models(), get_model()]);
    DialectContract {
        tag: "Anthropic",
        about: "Messages, their tokens, and models for callers with the header `anthropic-version`.",
        shapes: &[SHAPES],
        problem: "AnthropicError",
        asks: true,
        operations,
    }
}

pub(super) fn create_message(mode: Unsupported) -> Operation {
    let operation = Operation::post(MESSAGES, "createMessage", "Answers a conversation.");
    // The type leaves to the code behind it that this one must be there.
    let mut body = request::fields(mode).schema();
    body["properties"]["max_tokens"] =
        json!({"type": "integer", "minimum": 1, "maximum": u32::MAX});
    if let Some(required) = body["required"].as_array_mut() {
        required.push("max_tokens".into());
    }
    once(operation.refuses(CALLER).refuses(MODEL))
        .takes("MessageRequest", body)
        .answers(200, "Message")
        .streams("MessageEvent")
}

pub(super) fn count_tokens(mode: Unsupported) -> Operation {
    let summary = "Counts the tokens of a conversation.";
    let operation = Operation::post(COUNT_TOKENS, "countMessageTokens", summary);
    once(operation.refuses(CALLER).refuses(MODEL))
        .takes("CountTokensRequest", request::count_fields(mode).schema())
        .answers(200, "TokenCount")
}

fn marked(operation: Operation) -> Operation {
    let about = "Marks callers of this dialect, whose models and errors have its shapes.";
    operation
        .header(VERSION_HEADER, json!({"type": "string"}), about)
        .refuses(CALLER)
}

fn list_models() -> Operation {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": models::MAX_PAGE});
    let id = || json!({"type": "string"});
    marked(Operation::get(
        models::MODELS,
        "listModels",
        "Lists the models.",
    ))
    .query(
        "limit",
        limit,
        "Most models, for callers of the Anthropic dialect.",
    )
    .query(
        "after_id",
        id(),
        "The model before the page, for the same callers.",
    )
    .query(
        "before_id",
        id(),
        "The model behind the page, for the same callers.",
    )
    .query(
        "lifecycle[]",
        json!({"type": "array", "items": {"enum": models::STAGES}}),
        "Stages of life of the models, for the same callers.",
    )
    .answers(200, "AnthropicModels")
}

fn get_model() -> Operation {
    marked(Operation::get(models::MODEL, "getModel", "A model."))
        .refuses(&[404])
        .answers(200, "AnthropicModel")
}
