//! State that outlives the process: the store, the audit log, the counters of policies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortise_config::AuditConfig;
use mortise_store::{SqliteStore, Store, StoreConfig};
use mortise_valkey::ValkeyConfig;

use crate::audit::Audit;
use crate::counters::KeptCounters;

/// The store, the audit log, and where they lie.
pub(crate) struct Kept {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) counters: Arc<KeptCounters>,
    /// Folders in which something is kept.
    pub(crate) folders: Vec<PathBuf>,
}

impl Kept {
    /// Open them.
    pub(crate) async fn open(
        store: StoreConfig,
        audit: AuditConfig,
        valkey: Option<ValkeyConfig>,
    ) -> anyhow::Result<Self> {
        let files = [store.path.as_deref(), audit.file.as_deref()];
        let folders = files.into_iter().flatten().map(folder_of).collect();
        let outlives = store.path.is_some();
        let store = tokio::task::spawn_blocking(move || SqliteStore::open(&store)).await??;
        let store: Arc<dyn Store> = Arc::new(store);
        let audit = Audit::open(audit, &store).await?;
        let counters = KeptCounters::open(outlives.then(|| Arc::clone(&store)), valkey).await?;
        Ok(Self {
            store,
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
