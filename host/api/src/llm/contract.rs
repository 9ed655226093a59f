//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, MODEL as OF_MODEL, Operation};
use serde_json::json;

use super::{
    CACHE_CLEAR, CACHE_STATS, EMBED, HEALTH, INFERENCE, INGEST, LOAD, LOAD_LORA, LORA, LORAS,
    MODEL, MODELS, RAG, STATS, UNLOAD, UNLOAD_LORA, WORKERS, caches, embed, inference, loading,
    loras, rag,
};

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "LLM",
        about: "Text, embeddings, models and figures as ThemisDB's LLM API has them.",
        shapes: &[SHAPES],
        problem: "LlmError",
        asks: true,
        operations,
    }
}

fn asking(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::post(path, id, summary)
        .refuses(CALLER)
        .refuses(OF_MODEL)
}

fn reading(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::get(path, id, summary).refuses(CALLER)
}

/// For who knows the admin side's key.
fn operating(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::post(path, id, summary).refuses(&[401])
}

pub(super) fn infer() -> Operation {
    asking(INFERENCE, "llmInference", "Answers a prompt.")
        .takes("LlmInferenceRequest", inference::fields().schema())
        .answers(200, "LlmInference")
        .streams("LlmToken | LlmDone | LlmError")
}

pub(super) fn rag() -> Operation {
    asking(
        RAG,
        "llmRag",
        "Answers a question from the documents of a collection.",
    )
    .takes("LlmRagRequest", rag::fields().schema())
    .answers(200, "LlmRag")
    .streams("LlmToken | LlmRagDone | LlmError")
}

pub(super) fn embed() -> Operation {
    asking(EMBED, "llmEmbed", "Turns a text into a vector.")
        .takes("LlmEmbedRequest", embed::fields().schema())
        .answers(200, "LlmEmbedding")
}

pub(super) fn list_models() -> Operation {
    reading(MODELS, "llmListModels", "Lists the models.").answers(200, "LlmModels")
}

pub(super) fn get_model() -> Operation {
    reading(MODEL, "llmGetModel", "All that is known of a model.")
        .refuses(&[404])
        .answers(200, "LlmModelDetail")
}

pub(super) fn load_model() -> Operation {
    operating(LOAD, "llmLoadModel", "Loads a model, for operators.")
        .takes("LlmLoadRequest", loading::fields().schema())
        .answers(200, "LlmLoaded")
        .refuses(OF_MODEL)
}

pub(super) fn unload_model() -> Operation {
    operating(UNLOAD, "llmUnloadModel", "Unloads a model, for operators.")
        .takes("LlmUnloadRequest", loading::unload_fields().schema())
        .answers(200, "LlmUnloaded")
        .refuses(OF_MODEL)
}

pub(super) fn ingest_model() -> Operation {
    let text = || json!({"type": "string"});
    let fields = json!({
        "model_id": text(),
        "file": {"type": "string", "format": "binary"},
        "metadata": text(),
        "sha256": text(),
        "version": text(),
        "description": text(),
    });
    let form = json!({
        "type": "object",
        "properties": fields,
        "required": ["model_id", "file"],
        "additionalProperties": false,
    });
    operating(
        INGEST,
        "llmIngestModel",
        "Takes a model that comes as a form, for operators.",
    )
    .takes_form("LlmIngestRequest", form)
    .answers(201, "LlmIngested")
    .refuses(&[403, 408, 409, 413, 429, 507])
}

pub(super) fn list_loras() -> Operation {
    reading(
        LORAS,
        "llmListLoras",
        "Lists the adapters of loaded models.",
    )
    .query("model", json!({"type": "string"}), "Those of this model.")
    .query(
        "status",
        json!({"enum": ["available", "loading", "loaded", "unloading"]}),
        "Those in this state.",
    )
    .refuses(OF_MODEL)
    .answers(200, "LlmLoras")
}

pub(super) fn get_lora() -> Operation {
    reading(LORA, "llmGetLora", "All that is known of an adapter.")
        .query(
            "base_model",
            json!({"type": "string"}),
            "Its model, where several have one of this name.",
        )
        .refuses(OF_MODEL)
        .answers(200, "LlmLoraDetail")
}

pub(super) fn load_lora() -> Operation {
    operating(LOAD_LORA, "llmLoadLora", "Loads an adapter, for operators.")
        .takes("LlmLoadLoraRequest", loras::fields().schema())
        .answers(200, "LlmLoraLoaded")
        .refuses(OF_MODEL)
        .refuses(&[422])
}

pub(super) fn unload_lora() -> Operation {
    operating(
        UNLOAD_LORA,
        "llmUnloadLora",
        "Unloads an adapter, for operators.",
    )
    .takes("LlmUnloadLoraRequest", loras::unload_fields().schema())
    .answers(200, "LlmLoraUnloaded")
    .refuses(OF_MODEL)
}

pub(super) fn stats() -> Operation {
    reading(STATS, "llmStats", "Figures of the server.")
        .refuses(&[404])
        .answers(200, "LlmStats")
}

pub(super) fn workers() -> Operation {
    reading(WORKERS, "llmWorkers", "The engines that compute.")
        .refuses(&[404])
        .answers(200, "LlmWorkers")
}

pub(super) fn cache_stats() -> Operation {
    reading(CACHE_STATS, "llmCacheStats", "Figures of the caches.")
        .refuses(&[404])
        .answers(200, "LlmCaches")
}

pub(super) fn clear_cache() -> Operation {
    operating(
        CACHE_CLEAR,
        "llmClearCache",
        "Clears a cache, for operators.",
    )
    .takes("LlmClearRequest", caches::fields().schema())
    .answers(200, "LlmCleared")
}

pub(super) fn health() -> Operation {
    reading(HEALTH, "llmHealth", "Whether models answer.")
        .answers(200, "LlmHealth")
        .answers(503, "LlmHealth")
}
