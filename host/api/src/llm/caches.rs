//! `GET /api/v1/llm/cache/stats` and `POST /api/v1/llm/cache/clear`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, json_response};
use mortise_service::{CacheFigures, ModelStatus};
use serde::Deserialize;
use serde_json::{Value, json};

use super::loading::object_of;
use super::models::MIB;
use super::shown::shown;
use super::{CACHE_STATS, Llm};
use crate::fields::{FieldReader, RouteFields, words};
use crate::unsupported::Unsupported;

/// Tokens of a block of the cache.
const BLOCK_TOKENS: u64 = 16;

words! {
    /// A cache, or all of them.
    Cache {
        Response = "response",
        Prefix = "prefix",
        All = "all",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ClearFields {
    cache_type: Cache,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<ClearFields>()
}

/// `GET /api/v1/llm/cache/stats`
pub(super) async fn stats(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    shown(&llm, &context, CACHE_STATS, request, body).await
}

/// Sums over the blocks of all caches.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Blocks {
    total: usize,
    used: usize,
    idle: usize,
    idle_bytes: u64,
    hit_tokens: u64,
}

fn blocks(statuses: &[ModelStatus]) -> Blocks {
    let mut sum = Blocks::default();
    for model in statuses.iter().filter_map(|status| status.loaded.as_ref()) {
        for load in model.loads() {
            sum.total += load.kv_blocks_total;
            sum.used += load.kv_blocks_used;
            sum.idle += load.kv_blocks_idle;
            sum.idle_bytes += load.kv_blocks_idle as u64 * load.kv_block_bytes as u64;
            sum.hit_tokens += load.prefix_hit_tokens;
        }
    }
    sum
}

fn body(llm: &Llm) -> Value {
    let figures = llm.api.http.observer.figures();
    let statuses = llm.operator.statuses();
    let blocks = blocks(&statuses);
    let unknown = figures.requests - figures.known;
    let saved = match figures.prefix_hits {
        0 => 0.0,
        hits => figures.prefix_tokens as f64 / hits as f64,
    };
    json!({
        "response_cache": responses(llm.api.service.response_cache()),
        "prefix_cache": {
            "hits": figures.prefix_hits,
            "misses": figures.prefix_misses,
            "hit_rate": rate(figures.prefix_hits, figures.prefix_misses),
            "total_entries": blocks.idle,
            "memory_used_mb": mebibytes(blocks.idle_bytes),
            "avg_tokens_saved": saved,
        },
        "model_metadata_cache": {
            "hits": figures.known,
            "misses": unknown,
            "hit_rate": rate(figures.known, unknown),
            "total_entries": statuses.len(),
        },
        // Adapters are held by their models, in no cache.
        "lora_metadata_cache": null,
        "kv_cache_buffer_pool": {
            "total_buffers": blocks.total,
            "active_buffers": blocks.used,
            "buffer_reuse_count": blocks.hit_tokens / BLOCK_TOKENS,
        },
    })
}

fn responses(figures: CacheFigures) -> Value {
    let lookups = figures.hits + figures.misses;
    let time = match lookups {
        0 => 0.0,
        all => figures.lookup.as_secs_f64() * 1e3 / all as f64,
    };
    json!({
        "hits": figures.hits,
        "misses": figures.misses,
        "hit_rate": rate(figures.hits, figures.misses),
        "total_entries": figures.entries,
        "memory_used_mb": mebibytes(figures.bytes as u64),
        "avg_lookup_time_ms": time,
    })
}

fn rate(hits: u64, misses: u64) -> f64 {
    match hits + misses {
        0 => 0.0,
        all => hits as f64 / all as f64,
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// `POST /api/v1/llm/cache/clear`
pub(super) async fn clear(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let object = object_of(&llm, &context, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: ClearFields = reader.read()?;
    reader.finish(|_| false)?;
    let (mut entries, mut bytes) = (0, 0);
    if matches!(fields.cache_type, Cache::Prefix | Cache::All) {
        let statuses = llm.operator.statuses();
        let cleared = tokio::task::spawn_blocking(move || clear_prefixes(&statuses)).await;
        (entries, bytes) = cleared.unwrap_or_default();
    }
    if matches!(fields.cache_type, Cache::Response | Cache::All) {
        let (answers, freed) = llm.api.service.clear_responses();
        entries += answers as u64;
        bytes += freed as u64;
    }
    tracing::info!(
        cache = fields.cache_type.word(),
        entries,
        "an operator cleared a cache"
    );
    let body = json!({
        "cleared": fields.cache_type.word(),
        "entries_removed": entries,
        "memory_freed_mb": mebibytes(bytes),
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Forget the cached prefixes of all models. Returns blocks and bytes that held them. Blocks.
fn clear_prefixes(statuses: &[ModelStatus]) -> (u64, u64) {
    let (mut entries, mut bytes) = (0, 0);
    for model in statuses.iter().filter_map(|status| status.loaded.as_ref()) {
        let cleared = model.clear_prefixes() as u64;
        entries += cleared;
        bytes += cleared * model.load().kv_block_bytes as u64;
    }
    (entries, bytes)
}
