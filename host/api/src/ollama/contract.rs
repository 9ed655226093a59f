//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, MODEL, Operation};

use super::{
    CHAT, DELETE, EMBED, EMBEDDINGS, GENERATE, PS, PULL, SHOW, TAGS, VERSION, chat, embed,
    generate, library, models,
};
use crate::contract::once;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Ollama",
        about: "Chats, prompts, embeddings and models as Ollama's clients know them.",
        shapes: &[SHAPES],
        problem: "OllamaError",
        asks: true,
        operations,
    }
}

fn posting(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    once(
        Operation::post(path, id, summary)
            .refuses(CALLER)
            .refuses(MODEL),
    )
}

fn listing(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::get(path, id, summary).refuses(CALLER)
}

pub(super) fn continue_text() -> Operation {
    posting(
        GENERATE,
        "ollamaGenerate",
        "Continues a text, or loads a model.",
    )
    .takes("OllamaGenerateRequest", generate::fields().schema())
    .answers(200, "OllamaGenerated")
    .writes_lines("OllamaGenerated | OllamaError")
}

pub(super) fn answer_chat() -> Operation {
    posting(
        CHAT,
        "ollamaChat",
        "Answers a conversation, or loads a model.",
    )
    .takes("OllamaChatRequest", chat::fields().schema())
    .answers(200, "OllamaChatted")
    .writes_lines("OllamaChatted | OllamaError")
}

pub(super) fn embed() -> Operation {
    posting(EMBED, "ollamaEmbed", "Turns texts into vectors.")
        .takes("OllamaEmbedRequest", embed::fields().schema())
        .answers(200, "OllamaEmbeddings")
}

pub(super) fn embeddings() -> Operation {
    posting(
        EMBEDDINGS,
        "ollamaEmbeddings",
        "Turns a text into a vector.",
    )
    .takes("OllamaEmbeddingsRequest", embed::older_fields().schema())
    .answers(200, "OllamaEmbedding")
}

pub(super) fn tags() -> Operation {
    listing(TAGS, "ollamaTags", "Lists the models.").answers(200, "OllamaTags")
}

pub(super) fn show() -> Operation {
    posting(SHOW, "ollamaShow", "What is known of a model.")
        .takes("OllamaShowRequest", models::fields().schema())
        .answers(200, "OllamaShown")
}

pub(super) fn ps() -> Operation {
    listing(PS, "ollamaPs", "Lists the models that are loaded.").answers(200, "OllamaProcesses")
}

pub(super) fn version() -> Operation {
    listing(VERSION, "ollamaVersion", "The version of the server.").answers(200, "OllamaVersion")
}

pub(super) fn pull() -> Operation {
    let summary = "Brings a model from the hub, where the server lets its callers.";
    posting(PULL, "ollamaPull", summary)
        .takes("OllamaPullRequest", library::pull_fields().schema())
        .answers(200, "OllamaPulled")
        .writes_lines("OllamaPulled | OllamaError")
}

pub(super) fn delete() -> Operation {
    let summary = "Removes a model that was brought, where the server lets its callers.";
    Operation::delete(DELETE, "ollamaDelete", summary)
        .refuses(CALLER)
        .refuses(MODEL)
        .takes("OllamaDeleteRequest", library::delete_fields().schema())
        .answers(200, "object")
}
