//! State that outlives the process: the store, the audit log, the counters of policies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortise_config::{AuditConfig, IndexHome, StateConfig};
use mortise_store::{Passages, PostgresStore, SqliteStore, Store, TracedStore};
use mortise_valkey::ValkeyConfig;

use crate::audit::Audit;
use crate::counters::KeptCounters;
use crate::start_times::timed;

/// The store, the audit log, and where they lie.
pub(crate) struct DurableState {
    pub(crate) store: Arc<dyn Store>,
    /// Index of documents in the database of the store, if it is to be there.
    pub(crate) passages: Option<Passages>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) counters: Arc<KeptCounters>,
    /// Folders in which something is kept.
    pub(crate) folders: Vec<PathBuf>,
}

impl DurableState {
    /// Open them.
    pub(crate) async fn open(
        state: &StateConfig,
        index: IndexHome,
        audit: AuditConfig,
        valkey: Option<ValkeyConfig>,
    ) -> anyhow::Result<Self> {
        let files = [state.store.path.as_deref(), audit.file.as_deref()];
        let folders = files.into_iter().flatten().map(folder_of).collect();
        let outlives = state.outlives();
        let mut passages = None;
        let store: Arc<dyn Store> = match &state.database {
            Some(database) => {
                let store = timed("store", PostgresStore::open(database)).await?;
                if index == IndexHome::Pgvector {
                    passages = Some(timed("index", store.passages(database)).await?);
                }
                Arc::new(TracedStore::new(store, "postgresql"))
            }
            None => {
                let store = state.store.clone();
                let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&store));
                Arc::new(TracedStore::new(timed("store", opened).await??, "sqlite"))
            }
        };
        let audit = timed("audit", Audit::open(audit, &store)).await?;
        let counters = KeptCounters::open(outlives.then(|| Arc::clone(&store)), valkey);
        let counters = timed("counters", counters).await?;
        Ok(Self {
            store,
            passages,
            audit,
            counters,
            folders,
        })
    }
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
