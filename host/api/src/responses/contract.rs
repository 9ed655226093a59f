//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{BODY, CALLER, DialectContract, MODEL, Operation, STORE};
use serde_json::{Value, json};

use super::{
    CANCEL, COMPACT, CONVERSATION, CONVERSATION_ITEM, CONVERSATION_ITEMS, CONVERSATIONS,
    INPUT_ITEMS, INPUT_TOKENS, RENDER, RESPONSE, RESPONSES, compact as compaction, request,
};
use crate::contract::{members, metadata, once, paged};
use crate::limits::MAX_ADDED_ITEMS;
use crate::openai_error::{ERROR, SHAPE};
use crate::unsupported::Unsupported;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Responses",
        about: "OpenAI's responses and conversations.",
        shapes: &[SHAPE, SHAPES],
        problem: ERROR,
        asks: true,
        operations,
    }
}

fn stored(operation: Operation) -> Operation {
    operation.refuses(CALLER).refuses(STORE)
}

fn items(most: usize) -> Value {
    json!({"type": "array", "items": {"type": "object"}, "maxItems": most})
}

fn include() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

pub(super) fn create(mode: Unsupported) -> Operation {
    let operation = Operation::post(RESPONSES, "createResponse", "Answers a conversation.");
    once(operation.refuses(CALLER).refuses(MODEL).refuses(STORE))
        .takes("ResponseRequest", request::contract_fields(mode).schema())
        .answers(200, "Response")
        .streams("ResponseEvent")
}

pub(super) fn input_tokens(mode: Unsupported) -> Operation {
    let summary = "Counts the tokens of a request, which is not answered.";
    let operation = Operation::post(INPUT_TOKENS, "countResponseTokens", summary);
    once(operation.refuses(CALLER).refuses(MODEL).refuses(STORE))
        .takes("ResponseRequest", request::contract_fields(mode).schema())
        .answers(200, "ResponseTokens")
}

pub(super) fn render(mode: Unsupported) -> Operation {
    let summary = "The prompt of a request, which is not answered.";
    let operation = Operation::post(RENDER, "renderResponse", summary);
    once(operation.refuses(CALLER).refuses(MODEL).refuses(STORE))
        .takes("ResponseRequest", request::contract_fields(mode).schema())
        .answers(200, "ResponsePrompt")
}

pub(super) fn compact(mode: Unsupported) -> Operation {
    let summary = "Shortens a conversation to its messages and a summary.";
    let operation = Operation::post(COMPACT, "compactResponse", summary);
    once(operation.refuses(CALLER).refuses(MODEL).refuses(STORE))
        .takes("CompactRequest", compaction::contract_fields(mode).schema())
        .answers(200, "CompactedResponse")
}

pub(super) fn connect() -> Operation {
    let summary = "Responses over a WebSocket.";
    Operation::get(RESPONSES, "connectResponses", summary)
        .refuses(CALLER)
        .refuses(BODY)
        .upgrades()
}

pub(super) fn retrieve() -> Operation {
    let summary = "A stored response, or its events once more.";
    let after = json!({"type": "integer", "minimum": 0});
    let boolean = || json!({"type": "boolean"});
    stored(Operation::get(RESPONSE, "getResponse", summary))
        .query("stream", boolean(), "Its events.")
        .query(
            "starting_after",
            after,
            "Number of the event before the first one.",
        )
        .query(
            "include",
            include(),
            "What the response has is there in any case.",
        )
        .query("include_obfuscation", boolean(), "Taken, and of no effect.")
        .answers(200, "Response")
        .streams("ResponseEvent")
}

pub(super) fn delete() -> Operation {
    stored(Operation::delete(
        RESPONSE,
        "deleteResponse",
        "Removes a response.",
    ))
    .answers(200, "DeletedResponse")
}

pub(super) fn cancel() -> Operation {
    let summary = "Ends a response that is made in the background.";
    stored(once(Operation::post(CANCEL, "cancelResponse", summary))).answers(200, "Response")
}

pub(super) fn input_items() -> Operation {
    let summary = "Lists the items of a response's request.";
    stored(paged(Operation::get(
        INPUT_ITEMS,
        "listInputItems",
        summary,
    )))
    .query(
        "include",
        include(),
        "What the items have is there in any case.",
    )
    .answers(200, "Items")
}

pub(super) fn create_conversation() -> Operation {
    let mut list = items(MAX_ADDED_ITEMS);
    list["type"] = json!(["array", "null"]);
    let body = members(json!({"items": list, "metadata": metadata()}), &[]);
    let operation = Operation::post(
        CONVERSATIONS,
        "createConversation",
        "Begins a conversation.",
    );
    stored(once(operation))
        .takes("ConversationRequest", body)
        .answers(200, "Conversation")
}

pub(super) fn get_conversation() -> Operation {
    stored(Operation::get(
        CONVERSATION,
        "getConversation",
        "A conversation.",
    ))
    .answers(200, "Conversation")
}

pub(super) fn update_conversation() -> Operation {
    let summary = "Changes the metadata of a conversation.";
    let body = members(json!({"metadata": metadata()}), &[]);
    stored(once(Operation::post(
        CONVERSATION,
        "updateConversation",
        summary,
    )))
    .takes("UpdateConversationRequest", body)
    .answers(200, "Conversation")
}

pub(super) fn delete_conversation() -> Operation {
    let summary = "Removes a conversation.";
    stored(Operation::delete(
        CONVERSATION,
        "deleteConversation",
        summary,
    ))
    .answers(200, "DeletedConversation")
}

pub(super) fn list_items() -> Operation {
    let summary = "Lists the items of a conversation.";
    stored(paged(Operation::get(
        CONVERSATION_ITEMS,
        "listConversationItems",
        summary,
    )))
    .query(
        "include",
        include(),
        "What the items have is there in any case.",
    )
    .answers(200, "Items")
}

pub(super) fn add_items() -> Operation {
    let summary = "Adds items to a conversation.";
    let body = members(json!({"items": items(MAX_ADDED_ITEMS)}), &["items"]);
    stored(once(Operation::post(
        CONVERSATION_ITEMS,
        "addConversationItems",
        summary,
    )))
    .takes("AddItemsRequest", body)
    .answers(200, "Items")
}

pub(super) fn get_item() -> Operation {
    let summary = "An item of a conversation.";
    stored(Operation::get(
        CONVERSATION_ITEM,
        "getConversationItem",
        summary,
    ))
    .query(
        "include",
        include(),
        "What the item has is there in any case.",
    )
    .answers(200, "Item")
}

pub(super) fn delete_item() -> Operation {
    let summary = "Removes an item of a conversation, which is answered.";
    stored(Operation::delete(
        CONVERSATION_ITEM,
        "deleteConversationItem",
        summary,
    ))
    .answers(200, "Conversation")
}
