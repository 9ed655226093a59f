//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, MODEL, Operation, STORE};
use serde_json::{Value, json};

use super::{
    CHAT, COMPLETION, COMPLETION_MESSAGES, COMPLETIONS, DETOKENIZE, EMBEDDINGS, MODEL_HEALTH,
    MODEL_PROPS, MODEL_SLOTS, MODELS, PARSE, PROPS, RENDER, SLOTS, SUMS, TOKENIZE, TOKENIZE_V1,
    chat, completions, embeddings, parse, tokens,
};
use crate::contract::{members, metadata, once, paged};
use crate::openai_error::{ERROR, SHAPE};
use crate::unsupported::Unsupported;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "OpenAI",
        about: "Chat, completions, embeddings, models, stored completions, and tokens beside them.",
        shapes: &[SHAPE, SHAPES],
        problem: ERROR,
        asks: true,
        operations,
    }
}

/// A call that generates something.
fn generating(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    let operation = Operation::post(path, id, summary).refuses(CALLER);
    once(operation.refuses(MODEL))
}

/// The body of a chat request.
fn of_chat(mode: Unsupported) -> Value {
    chat::fields(mode).without(&["model"]).schema()
}

pub(super) fn create_chat(mode: Unsupported) -> Operation {
    generating(CHAT, "createChatCompletion", "Answers a conversation.")
        .takes("ChatCompletionRequest", of_chat(mode))
        .answers(200, "ChatCompletion")
        .streams("ChatCompletionChunk")
}

pub(super) fn list_chats() -> Operation {
    let summary = "Lists stored completions; with a handshake, chat completions over a WebSocket.";
    let operation = Operation::get(CHAT, "listChatCompletions", summary);
    let about = "Only completions of this model.";
    paged(operation)
        .query("model", json!({"type": "string"}), about)
        .refuses(CALLER)
        .refuses(STORE)
        .answers(200, "StoredChatCompletions")
        .upgrades()
}

fn stored(operation: Operation) -> Operation {
    operation.refuses(CALLER).refuses(STORE)
}

pub(super) fn get_chat() -> Operation {
    let summary = "A stored completion.";
    stored(Operation::get(COMPLETION, "getChatCompletion", summary))
        .answers(200, "StoredChatCompletion")
}

pub(super) fn update_chat() -> Operation {
    let summary = "Changes the metadata of a stored completion.";
    let body = members(json!({"metadata": metadata()}), &[]);
    let operation = Operation::post(COMPLETION, "updateChatCompletion", summary);
    stored(once(operation))
        .takes("UpdateChatCompletionRequest", body)
        .answers(200, "StoredChatCompletion")
}

pub(super) fn delete_chat() -> Operation {
    let summary = "Removes a stored completion.";
    stored(Operation::delete(
        COMPLETION,
        "deleteChatCompletion",
        summary,
    ))
    .answers(200, "DeletedChatCompletion")
}

pub(super) fn list_messages() -> Operation {
    let summary = "Lists the messages that a stored completion answers.";
    let id = "listChatCompletionMessages";
    stored(paged(Operation::get(COMPLETION_MESSAGES, id, summary))).answers(200, "StoredMessages")
}

pub(super) fn create_completion(mode: Unsupported) -> Operation {
    let body = completions::fields(mode).without(&["model"]);
    generating(COMPLETIONS, "createCompletion", "Continues texts.")
        .takes("CompletionRequest", body.schema())
        .answers(200, "Completion")
        .streams("CompletionChunk")
}

pub(super) fn create_embedding(mode: Unsupported) -> Operation {
    let body = embeddings::fields(mode).without(&["model"]);
    generating(EMBEDDINGS, "createEmbedding", "Turns texts into vectors.")
        .takes("EmbeddingRequest", body.schema())
        .answers(200, "Embeddings")
}

pub(super) fn tokenize(mode: Unsupported) -> Operation {
    let options = tokens::options(mode).schema();
    let mut conversation = of_chat(mode);
    for (name, option) in options["properties"].as_object().into_iter().flatten() {
        conversation["properties"][name] = option.clone();
    }
    let text = tokens::text_fields(mode).without(&["model"]).schema();
    let body = json!({"anyOf": [text, conversation]});
    generating(
        TOKENIZE,
        "tokenize",
        "Turns a text or a conversation into tokens.",
    )
    .takes("TokenizeRequest", body)
    .answers(200, "Tokens")
}

pub(super) fn tokenize_v1(mode: Unsupported) -> Operation {
    tokenize(mode).at(TOKENIZE_V1, "tokenizeVersioned")
}

pub(super) fn detokenize(mode: Unsupported) -> Operation {
    let body = tokens::id_fields(mode).without(&["model"]);
    generating(DETOKENIZE, "detokenize", "Turns tokens into a text.")
        .takes("DetokenizeRequest", body.schema())
        .answers(200, "Text")
}

pub(super) fn render(mode: Unsupported) -> Operation {
    generating(
        RENDER,
        "renderChat",
        "The prompt of a chat request, which is not answered.",
    )
    .takes("ChatCompletionRequest", of_chat(mode))
    .answers(200, "RenderedPrompt")
}

pub(super) fn parse_text(mode: Unsupported) -> Operation {
    let body = parse::fields(mode).without(&["model"]);
    generating(
        PARSE,
        "parseText",
        "Generated text as the model's output parser reads it.",
    )
    .takes("ParseRequest", body.schema())
    .answers(200, "ParsedText")
}

pub(super) fn list_models() -> Operation {
    Operation::get(MODELS, "listModels", "Lists the models.")
        .refuses(CALLER)
        .answers(200, "Models")
}

pub(super) fn get_model() -> Operation {
    let path = "/v1/models/{*id}";
    Operation::get(path, "getModel", "A model, by any of its names.")
        .refuses(CALLER)
        .refuses(&[404])
        .answers(200, "Model")
}

pub(super) fn delete_model() -> Operation {
    let path = "/v1/models/{*id}";
    let summary = "Removes a model that was pulled or uploaded, where the server lets its callers.";
    Operation::delete(path, "deleteModel", summary)
        .refuses(CALLER)
        .refuses(MODEL)
        .answers(200, "DeletedModel")
}

fn of_model(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::get(path, id, summary)
        .refuses(CALLER)
        .refuses(MODEL)
}

pub(super) fn model_health() -> Operation {
    let summary = "Tells that a model serves, which is loaded if it is not.";
    of_model(MODEL_HEALTH, "getModelHealth", summary).answers(200, "ModelHealth")
}

pub(super) fn model_props() -> Operation {
    let summary = "The same as `/props` of a model, which is loaded if it is not.";
    of_model(MODEL_PROPS, "getModelProps", summary).answers(200, "Props")
}

pub(super) fn model_slots() -> Operation {
    let summary = "The same as `/slots` of a model, which is loaded if it is not.";
    of_model(MODEL_SLOTS, "getModelSlots", summary).answers(200, "Slot[]")
}

/// A read of what one model is like, for those who watch servers.
fn watching(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    let about = "The model; the only one where it is left out.";
    Operation::get(path, id, summary)
        .query("model", json!({"type": "string"}), about)
        .refuses(CALLER)
        .refuses(MODEL)
}

pub(super) fn props() -> Operation {
    let summary = "A model as llama-server tells of it.";
    watching(PROPS, "getProps", summary).answers(200, "Props")
}

pub(super) fn slots() -> Operation {
    let about = "503 where no slot is free.";
    watching(
        SLOTS,
        "getSlots",
        "The sequences that a model may run at once.",
    )
    .query(
        "fail_on_no_slot",
        json!({"type": "integer", "minimum": 0}),
        about,
    )
    .answers(200, "Slot[]")
}

pub(super) fn sums() -> Operation {
    Operation::get(SUMS, "getSums", "The caller's own sums since the start.")
        .refuses(CALLER)
        .answers(200, "CallersSums")
}
