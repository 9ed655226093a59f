//! Entries of the audit log about requests to the admin side: before a change, after it, and of who was refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method, StatusCode};
use mortise_http::{ClientCertificate, Problem, json_response, peer_of};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::Receiver;

use crate::Admin;
use crate::limits::{MAX_AUDITED_PATH_CHARS, MAX_REFUSALS_AUDITED, REFUSALS_WINDOW};

/// Fields of an entry.
pub type AuditEntry = Map<String, Value>;

/// An entry that is being written.
pub type AuditRecording<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Writes the audit log.
pub trait Auditor: Send + Sync {
    /// Requests that change nothing are recorded too.
    fn records_reads(&self) -> bool;

    /// Append an entry, and wait until it is kept.
    ///
    /// # Errors
    /// With the reason, when it is not kept and nothing may happen without it.
    fn record(&self, entry: AuditEntry) -> AuditRecording<'_>;

    /// The latest entries since the start of the server, the last one first.
    fn recent(&self) -> Vec<Arc<AuditEntry>>;

    /// Entries from now on.
    fn listen(&self) -> Receiver<Arc<AuditEntry>>;
}

/// Details of a change, which a handler puts into the extensions of its response.
#[derive(Debug, Clone)]
pub(crate) struct AuditDetail(pub(crate) Value);

/// Entries about requests.
pub(crate) struct Requests {
    auditor: Arc<dyn Auditor>,
    next: AtomicU64,
    refusals: Mutex<Refusals>,
}

impl Requests {
    pub(crate) fn new(auditor: Arc<dyn Auditor>) -> Self {
        Self {
            auditor,
            next: AtomicU64::new(1),
            refusals: Mutex::default(),
        }
    }

    /// The entry of somebody who was refused. Who tries many keys fills no disk: of many, the number is told.
    pub(crate) fn refusal(&self, request: &Request, problem: &Problem) -> Option<AuditEntry> {
        let refusals = self.refusals.lock();
        let left_out = refusals.unwrap_or_else(PoisonError::into_inner).count()?;
        let mut entry = entry_of(request, "refused");
        entry.insert("status".to_owned(), json!(problem.status.as_u16()));
        entry.insert("error".to_owned(), json!(problem.code));
        if left_out > 0 {
            entry.insert("refusals_left_out".to_owned(), json!(left_out));
        }
        Some(entry)
    }

    /// The entry with which a request begins, if it is one of those that are recorded.
    pub(crate) fn beginning(&self, request: &Request) -> Option<AuditEntry> {
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        if reads && !self.auditor.records_reads() {
            return None;
        }
        let mut entry = entry_of(request, "begun");
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        entry.insert("request".to_owned(), json!(number));
        Some(entry)
    }

    /// The latest entries, the last one first.
    pub(crate) fn recent(&self) -> Vec<Arc<AuditEntry>> {
        self.auditor.recent()
    }

    /// Entries from now on.
    pub(crate) fn listen(&self) -> Receiver<Arc<AuditEntry>> {
        self.auditor.listen()
    }

    /// Record an entry.
    ///
    /// # Errors
    /// When nothing may happen without it, and it is not kept.
    pub(crate) async fn record(&self, entry: AuditEntry) -> Result<(), Problem> {
        let recorded = self.auditor.record(entry).await;
        recorded.map_err(|reason| {
            let message = format!(
                "the audit log cannot be written ({reason}), and `audit.required` lets nothing happen without it"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", message)
                .with_header("retry-after", "5")
        })
    }
}

/// The latest entries of the log.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let Some(audit) = &admin.audit else {
        let message =
            "this server keeps no audit log; `audit.file` or `audit.store` gives it a place";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_audit_log", message));
    };
    let entries = audit.recent();
    let body =
        json!({"object": "list", "data": entries.iter().map(|entry| &**entry).collect::<Vec<_>>()});
    Ok(json_response(StatusCode::OK, &body))
}

/// The entry with which a request ends that began with `entry`.
pub(crate) fn ending(mut entry: AuditEntry, response: &Response) -> AuditEntry {
    entry.insert("outcome".to_owned(), json!("ended"));
    let status = response.status().as_u16();
    entry.insert("status".to_owned(), json!(status));
    if let Some(AuditDetail(detail)) = response.extensions().get() {
        entry.insert("detail".to_owned(), detail.clone());
    }
    if let Some(problem) = response.extensions().get::<Problem>() {
        entry.insert("error".to_owned(), json!(problem.code));
    }
    entry
}

fn entry_of(request: &Request, outcome: &str) -> AuditEntry {
    let path: String = request
        .uri()
        .path()
        .chars()
        .take(MAX_AUDITED_PATH_CHARS)
        .collect();
    let mut entry = AuditEntry::new();
    entry.insert("action".to_owned(), json!("admin.request"));
    entry.insert("outcome".to_owned(), json!(outcome));
    let method: String = request.method().as_str().chars().take(16).collect();
    entry.insert("method".to_owned(), json!(method));
    entry.insert("path".to_owned(), json!(path));
    entry.insert("peer".to_owned(), json!(peer_of(request).ip().to_string()));
    if let Some(ClientCertificate(digest)) = request.extensions().get() {
        entry.insert("certificate_sha256".to_owned(), json!(digest));
    }
    entry
}

/// Refusals of the present window: of many, some are recorded.
#[derive(Debug, Default)]
pub struct Refusals {
    since: Option<Instant>,
    recorded: u32,
    left_out: u64,
}

impl Refusals {
    /// Count one. `None` leaves it out; else the number of those that were left out before it.
    pub fn count(&mut self) -> Option<u64> {
        let now = Instant::now();
        let over = |since: Instant| now.duration_since(since) >= REFUSALS_WINDOW;
        if self.since.is_none_or(over) {
            self.since = Some(now);
            self.recorded = 0;
        }
        if self.recorded >= MAX_REFUSALS_AUDITED {
            self.left_out += 1;
            return None;
        }
        self.recorded += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}
