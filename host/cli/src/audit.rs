//! Entries of the audit log: requests to the admin side, and what the server does by itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use mortise_admin::limits::{MAX_AUDIT_BACKLOG, MAX_RECENT_AUDIT_ENTRIES};
use mortise_admin::{AuditEntry, AuditRecording, Auditor};
use mortise_config::AuditConfig;
use mortise_models::lifecycle::{ModelEvent, ModelManager};
use mortise_plugin_manager::{LivePlugins, Reload};
use mortise_store::{AuditFile, AuditHead, AuditHomes, AuditLog, Store};
use mortise_supervise::supervise;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};
use tokio::time::timeout;

/// Time that the disk or the database has to take an entry. Then it counts as lost, and who waits for it goes on.
const APPEND_LIMIT: Duration = Duration::from_secs(10);

/// The audit log of this server; without a place, nothing is recorded.
pub(crate) struct Audit {
    log: Option<AuditLog>,
    required: bool,
    reads: bool,
    /// The last entry was not kept.
    failing: AtomicBool,
    lost: AtomicU64,
    recent: Mutex<VecDeque<Arc<AuditEntry>>>,
    listeners: broadcast::Sender<Arc<AuditEntry>>,
}

impl Audit {
    /// Open the log, and check what stands in it.
    pub(crate) async fn open(
        config: AuditConfig,
        store: &Arc<dyn Store>,
    ) -> anyhow::Result<Arc<Self>> {
        let path = config.file.clone();
        let open = move || path.map(|path| AuditFile::open(&path)).transpose();
        let file = tokio::task::spawn_blocking(open).await??;
        let torn = file.as_ref().map_or(0, AuditFile::torn);
        let homes = AuditHomes {
            file,
            store: config.store.then(|| Arc::clone(store)),
        };
        let log = match config.is_kept() {
            true => Some(AuditLog::open(homes).await?),
            false => None,
        };
        let audit = Arc::new(Self {
            log,
            required: config.required,
            reads: config.reads,
            failing: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            recent: Mutex::default(),
            listeners: broadcast::channel(MAX_AUDIT_BACKLOG).0,
        });
        let mut start = json!({
            "action": "server.start",
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
        });
        if torn > 0 {
            // Half of an entry, which a crash left.
            start["bytes_cut_off"] = json!(torn);
        }
        let begun = audit.tell(start).await.map_err(anyhow::Error::msg);
        begun.context("the audit log cannot be written")?;
        Ok(audit)
    }

    /// The writer of the admin side's entries, if there is a log.
    pub(crate) fn auditor(self: &Arc<Self>) -> Option<Arc<dyn Auditor>> {
        let auditor = || Arc::clone(self) as Arc<dyn Auditor>;
        self.log.as_ref().map(|_| auditor())
    }

    /// Entries that were lost; `None` without a log.
    pub(crate) fn lost(&self) -> Option<u64> {
        self.log.as_ref().map(|_| self.lost.load(Ordering::Relaxed))
    }

    /// State of the last entry: lost or kept, and if nothing may happen while it is lost.
    pub(crate) fn condition(&self) -> (bool, bool) {
        (self.failing.load(Ordering::Relaxed), self.required)
    }

    /// Append an entry, and wait until it is kept.
    ///
    /// # Errors
    /// With the reason, when it is not kept and nothing may happen without it.
    pub(crate) async fn tell(&self, mut entry: Value) -> Result<(), String> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let now = OffsetDateTime::now_utc().format(&Rfc3339);
        entry["at"] = json!(now.unwrap_or_default());
        match appended(log, entry.to_string()).await {
            Ok(head) => {
                self.failing.store(false, Ordering::Relaxed);
                self.remember(&entry);
                // Heads that lie elsewhere show what was made anew.
                tracing::info!(target: "mortise::audit", %head, %entry, "audit");
                Ok(())
            }
            Err(error) => {
                self.failing.store(true, Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed);
                let error = error.as_str();
                tracing::error!(target: "mortise::audit", error, %entry, "an audit entry was lost");
                match self.required {
                    true => Err(error.to_owned()),
                    false => Ok(()),
                }
            }
        }
    }

    /// Keep an entry for those who look at the admin side.
    fn remember(&self, entry: &Value) {
        let Value::Object(entry) = entry else {
            return;
        };
        let entry = Arc::new(entry.clone());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= MAX_RECENT_AUDIT_ENTRIES {
            recent.pop_back();
        }
        recent.push_front(Arc::clone(&entry));
        drop(recent);
        // An error says that nobody listens.
        let _ = self.listeners.send(entry);
    }

    /// Record from now on which plugins are taken up, whoever asks for it.
    pub(crate) fn follow_plugins(self: &Arc<Self>, live: &LivePlugins) {
        if self.log.is_none() {
            return;
        }
        let this = Arc::clone(self);
        live.on_reload(Box::new(move |reason, reload| {
            let (this, entry) = (Arc::clone(&this), of_reload(reason, reload));
            tokio::spawn(async move { this.tell(entry).await });
        }));
    }

    /// Record from now on which models come and go, whoever asks for it.
    pub(crate) fn follow_models(self: &Arc<Self>, models: &Arc<ModelManager>) {
        if self.log.is_none() {
            return;
        }
        let (this, models) = (Arc::clone(self), Arc::clone(models));
        // Before the task runs, so that no event is missed.
        let mut first = Some(models.listen());
        supervise("audit-models", move || {
            let events = first.take().unwrap_or_else(|| models.listen());
            Arc::clone(&this).record_models(events)
        });
    }

    async fn record_models(self: Arc<Self>, mut events: Receiver<ModelEvent>) {
        loop {
            let entry = match events.recv().await {
                Ok(event) if event.progress.is_some() => continue,
                Ok(event) => of_model(&event),
                Err(RecvError::Lagged(missed)) => {
                    json!({"action": "model.states_missed", "count": missed})
                }
                Err(RecvError::Closed) => return,
            };
            let _ = self.tell(entry).await;
        }
    }
}

/// Append an entry, and wait for the disk for as long as [`APPEND_LIMIT`]. What it takes later stays in the log.
async fn appended(log: &AuditLog, entry: String) -> Result<AuditHead, String> {
    match timeout(APPEND_LIMIT, log.append(entry)).await {
        Ok(appended) => appended.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "it was not written within {} s; does the disk answer?",
            APPEND_LIMIT.as_secs()
        )),
    }
}

fn of_reload(reason: &str, reload: &Reload) -> Value {
    let mut entry = reload.to_json();
    entry["action"] = json!("plugins.reload");
    entry["reason"] = json!(reason);
    entry
}

fn of_model(event: &ModelEvent) -> Value {
    let mut entry = json!({
        "action": "model.state",
        "model": event.model,
        "state": event.state.name(),
    });
    if let Some(error) = &event.error {
        entry["error"] = json!(error);
    }
    entry
}

impl Auditor for Audit {
    fn records_reads(&self) -> bool {
        self.reads
    }

    fn record(&self, entry: AuditEntry) -> AuditRecording<'_> {
        Box::pin(self.tell(Value::Object(entry)))
    }

    fn recent(&self) -> Vec<Arc<AuditEntry>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().cloned().collect()
    }

    fn listen(&self) -> Receiver<Arc<AuditEntry>> {
        self.listeners.subscribe()
    }
}
