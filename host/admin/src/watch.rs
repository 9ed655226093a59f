//! Requests and figures of the server, as rooms above this one know them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::limits::{MAX_LISTED_REQUESTS, MAX_LISTED_TENANTS};

/// Tells what the server is doing.
pub trait ServerWatch: Send + Sync {
    /// Figures of all requests.
    fn figures(&self) -> ServerFigures;

    /// The first `most` requests that are being answered, the oldest first, and how many there are.
    fn requests(&self, most: usize) -> (Vec<RequestRow>, usize);

    /// Requests of each tenant that wait and that run, most first, of the first `most` tenants.
    fn tenants(&self, most: usize) -> Vec<TenantRow>;

    /// Cancel a request. False if none has this id.
    fn cancel(&self, id: &str) -> bool;
}

/// Figures of all requests since the start, but for what is of late.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerFigures {
    /// Requests that have ended.
    pub ended: u64,
    /// Requests that have failed.
    pub failed: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Times to first token over the last minute: that of the median, and that of 95 in 100.
    pub first_token: Option<(Duration, Duration)>,
}

/// A request that is being answered.
#[derive(Debug, Clone)]
pub struct RequestRow {
    /// Server's id of the request.
    pub id: String,
    /// Public name of the model.
    pub model: String,
    /// Caller.
    pub subject: String,
    /// Account of the caller.
    pub tenant: Option<String>,
    /// False while the request waits for its first step.
    pub running: bool,
    /// Time since the arrival of the request.
    pub age: Duration,
    /// Queue time, once the request has left the queue.
    pub queued: Option<Duration>,
    /// Time to the first token, once there is one.
    pub first_token: Option<Duration>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated so far.
    pub completion_tokens: u32,
}

/// Requests of a tenant; of callers without one together where there is no name.
#[derive(Debug, Clone, Default)]
pub struct TenantRow {
    /// Name of the tenant.
    pub tenant: Option<String>,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that run.
    pub running: usize,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl RequestRow {
    fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "model": self.model,
            "subject": self.subject,
            "tenant": self.tenant,
            "state": if self.running { "running" } else { "waiting" },
            "age_ms": milliseconds(self.age),
            "queued_ms": self.queued.map(milliseconds),
            "first_token_ms": self.first_token.map(milliseconds),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        })
    }
}

/// The requests that are being answered, as the API shows them.
pub(crate) fn requests(watch: &dyn ServerWatch) -> Value {
    let (rows, total) = watch.requests(MAX_LISTED_REQUESTS);
    let rows: Vec<Value> = rows.iter().map(RequestRow::to_json).collect();
    json!({"object": "list", "data": rows, "total": total})
}

/// Figures of requests and tenants.
pub(crate) fn figures(watch: &dyn ServerWatch) -> Value {
    let figures = watch.figures();
    let tenants = watch.tenants(MAX_LISTED_TENANTS);
    let tenants = tenants
        .iter()
        .map(|row| json!({"tenant": row.tenant, "waiting": row.waiting, "running": row.running}));
    json!({
        "requests_ended": figures.ended,
        "requests_failed": figures.failed,
        "generated_tokens": figures.generated_tokens,
        "first_token_p50_ms": figures.first_token.map(|(p50, _)| milliseconds(p50)),
        "first_token_p95_ms": figures.first_token.map(|(_, p95)| milliseconds(p95)),
        "tenants": tenants.collect::<Vec<_>>(),
    })
}
