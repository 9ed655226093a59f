//! Queues of loaded models, by tenant.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::json_response;
use mortise_models::{Model, TenantLoad};
use serde_json::{Value, json};

use crate::Admin;
use crate::limits::MAX_LISTED_QUEUES;

/// Queues of all loaded models.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    let statuses = admin.models.statuses();
    let models: Vec<Arc<Model>> = statuses
        .into_iter()
        .filter_map(|status| status.loaded)
        .collect();
    // An engine answers after its step.
    let rows = tokio::task::spawn_blocking(move || models.iter().map(|model| row(model)).collect());
    let rows: Vec<Value> = rows.await.unwrap_or_default();
    json_response(StatusCode::OK, &json!({"object": "list", "data": rows}))
}

fn row(model: &Model) -> Value {
    let load = model.load();
    let mut tenants = model.tenants();
    tenants.sort_by_key(|tenant| {
        let present = tenant.running + tenant.waiting + tenant.preempted;
        (
            Reverse(present),
            Reverse(tenant.computed_tokens),
            Arc::clone(&tenant.tenant),
        )
    });
    let listed = tenants.iter().take(MAX_LISTED_QUEUES).map(queue);
    json!({
        "model": model.name,
        "running": load.running,
        "max_running": load.max_running,
        "waiting": load.waiting,
        "waiting_tokens": load.waiting_tokens,
        "preempted": load.preempted,
        "tenants": listed.collect::<Vec<_>>(),
        "tenants_total": tenants.len(),
    })
}

fn queue(load: &TenantLoad) -> Value {
    let waited = load.waited.as_secs_f64() * 1000.0;
    // No wait is measured more exactly than that.
    let mean =
        (load.dequeued > 0).then(|| (waited / load.dequeued as f64 * 1000.0).round() / 1000.0);
    json!({
        "account": (!load.tenant.is_empty()).then_some(&*load.tenant),
        "weight": load.weight,
        "entitled": load.entitled,
        "running": load.running,
        "waiting": load.waiting,
        "waiting_tokens": load.waiting_tokens,
        "preempted": load.preempted,
        "kv_blocks": load.kv_blocks,
        "computed_tokens": load.computed_tokens,
        "dequeued": load.dequeued,
        "waited_ms_mean": mean,
    })
}
