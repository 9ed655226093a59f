//! The audit log of a server, wherever it is kept.

use std::io;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::chain::AuditHead;
use super::error::AuditError;
use super::file::AuditFile;
use super::home::StoreHome;
use crate::limits::MAX_AUDIT_ENTRY_BYTES;
use crate::store::Store;

/// Places where entries are kept.
#[derive(Default)]
pub struct AuditHomes {
    /// A file.
    pub file: Option<AuditFile>,
    /// A store.
    pub store: Option<Arc<dyn Store>>,
}

struct Homes {
    file: Option<Arc<std::sync::Mutex<AuditFile>>>,
    store: Option<StoreHome>,
}

/// The audit log. Clones share it.
#[derive(Clone)]
pub struct AuditLog {
    homes: Arc<Mutex<Homes>>,
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AuditLog")
    }
}

impl AuditLog {
    /// A log in all of `homes`.
    ///
    /// # Errors
    /// When the store's cannot be read.
    pub async fn open(homes: AuditHomes) -> Result<Self, AuditError> {
        let store = match homes.store {
            Some(store) => Some(StoreHome::open(store).await?),
            None => None,
        };
        let file = homes.file.map(|file| Arc::new(std::sync::Mutex::new(file)));
        Ok(Self {
            homes: Arc::new(Mutex::new(Homes { file, store })),
        })
    }

    /// The log of a server that has ended: its file, if one is given, and that of the store, if it keeps one. `None`
    /// where there is neither.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn take_up(
        store: &Arc<dyn Store>,
        file: Option<AuditFile>,
    ) -> Result<Option<Self>, AuditError> {
        let kept = StoreHome::is_in(store).await?;
        if file.is_none() && !kept {
            return Ok(None);
        }
        let store = kept.then(|| Arc::clone(store));
        Ok(Some(Self::open(AuditHomes { file, store }).await?))
    }

    /// Append an entry, which is JSON, wherever the log is kept, and wait until the disk has it. Returns the head of
    /// the file, or else of the store. It goes on if the caller does not wait.
    ///
    /// # Errors
    /// When one of the places could not take it. Others may have it.
    pub async fn append(&self, entry: String) -> Result<AuditHead, AuditError> {
        if entry.len() > MAX_AUDIT_ENTRY_BYTES {
            return Err(AuditError::TooLarge(entry.len()));
        }
        let homes = Arc::clone(&self.homes);
        let appended = tokio::spawn(async move { homes.lock().await.append(entry).await });
        appended
            .await
            .unwrap_or_else(|panic| Err(AuditError::Read(io::Error::other(panic))))
    }
}

impl Homes {
    async fn append(&mut self, entry: String) -> Result<AuditHead, AuditError> {
        let to_store = match &mut self.store {
            Some(store) => Some(store.append(&entry).await),
            None => None,
        };
        let to_file = match &self.file {
            Some(file) => Some(append_to_file(Arc::clone(file), entry).await),
            None => None,
        };
        match (to_file, to_store) {
            (Some(Err(error)), _) | (_, Some(Err(error))) => Err(error),
            (Some(Ok(head)), _) | (None, Some(Ok(head))) => Ok(head),
            (None, None) => Ok(AuditHead::default()),
        }
    }
}

async fn append_to_file(
    file: Arc<std::sync::Mutex<AuditFile>>,
    entry: String,
) -> Result<AuditHead, AuditError> {
    let append = move || {
        let mut file = file
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        file.append(&entry)
    };
    let appended = tokio::task::spawn_blocking(append).await;
    appended.unwrap_or_else(|panic| Err(AuditError::Read(io::Error::other(panic))))
}
