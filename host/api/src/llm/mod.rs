//! The dialect of ThemisDB's LLM API: text from a prompt, embeddings, models, and figures of the server.

mod answer;
mod caches;
mod contract;
mod embed;
mod error;
mod health;
mod inference;
mod loading;
mod loras;
mod models;
mod operator;
mod rag;
mod shown;
mod sources;
mod stats;
mod workers;

use std::fmt;
use std::sync::Arc;

use mortise_http::contract::Routes;
use mortise_http::{Api, Conventions, Dialect};

use crate::state::ApiState;

pub use self::operator::{ModelFileFacts, ModelForm, ModelShape, Operator};

const PREFIX: &str = "/api/v1/llm";
const INFERENCE: &str = "/api/v1/llm/inference";
const RAG: &str = "/api/v1/llm/rag";
const EMBED: &str = "/api/v1/llm/embed";
const MODELS: &str = "/api/v1/llm/models";
const MODEL: &str = "/api/v1/llm/models/{id}";
const LOAD: &str = "/api/v1/llm/models/load";
const UNLOAD: &str = "/api/v1/llm/models/unload";
const INGEST: &str = "/api/v1/llm/models/ingest";
const LORAS: &str = "/api/v1/llm/loras";
const LORA: &str = "/api/v1/llm/loras/{id}";
const LOAD_LORA: &str = "/api/v1/llm/loras/load";
const UNLOAD_LORA: &str = "/api/v1/llm/loras/unload";
const STATS: &str = "/api/v1/llm/stats";
const CACHE_STATS: &str = "/api/v1/llm/cache/stats";
const CACHE_CLEAR: &str = "/api/v1/llm/cache/clear";
const WORKERS: &str = "/api/v1/llm/workers";
const HEALTH: &str = "/api/v1/llm/health";

/// State of the handlers.
pub struct Llm {
    api: Arc<ApiState>,
    operator: Arc<dyn Operator>,
}

impl Llm {
    /// Handlers that answer with `api`, and do for operators what `operator` lets them.
    pub fn new(api: Arc<ApiState>, operator: Arc<dyn Operator>) -> Arc<Self> {
        Arc::new(Self { api, operator })
    }
}

impl fmt::Debug for Llm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Llm")
    }
}

/// Paths and shape of problems.
pub const DIALECT: Dialect = Dialect {
    prefix: PREFIX,
    shape: error::error_body,
    conventions: Conventions::NONE,
};

/// The dialect's routes.
pub fn api(llm: Arc<Llm>) -> Api {
    let routes = Routes::default()
        .on(contract::infer(), inference::inference)
        .on(contract::rag(), rag::rag)
        .on(contract::embed(), embed::embed)
        .on(contract::list_models(), models::list)
        .on(contract::load_model(), loading::load)
        .on(contract::unload_model(), loading::unload)
        .on(contract::ingest_model(), loading::ingest)
        .on(contract::get_model(), models::retrieve)
        .on(contract::list_loras(), loras::list)
        .on(contract::load_lora(), loras::load)
        .on(contract::unload_lora(), loras::unload)
        .on(contract::get_lora(), loras::retrieve)
        .on(contract::stats(), stats::stats)
        .on(contract::workers(), workers::workers)
        .on(contract::cache_stats(), caches::stats)
        .on(contract::clear_cache(), caches::clear)
        .on(contract::health(), health::health);
    let (router, operations) = routes.into_parts();
    Api {
        router: router.with_state(llm),
        dialect: DIALECT,
        // Those that end in a parameter stand behind the others that begin alike.
        routes: &[
            INFERENCE,
            RAG,
            EMBED,
            MODELS,
            LOAD,
            UNLOAD,
            INGEST,
            LORAS,
            LOAD_LORA,
            UNLOAD_LORA,
            STATS,
            CACHE_STATS,
            CACHE_CLEAR,
            WORKERS,
            HEALTH,
            MODEL,
            LORA,
        ],
        contract: contract::contract(operations),
    }
}
