//! Files in the store. A file is a record, whose body is its object as clients see it, and its content is the items of the
//! record, which are written and read piece by piece. Until a file is whole its record is open, and nobody finds it.

use std::sync::Arc;

use bytes::Bytes;
use mortise_http::Problem;
use mortise_store::limits::MAX_PIECE_BYTES;
use mortise_store::{Change, Item, Key, Record, RecordKind, Store, StoreError};
use serde_json::{Value, json};

use crate::held::FileUse;
use crate::state::ApiState;
use crate::stored::{absent, store_problem};

/// Purpose of a file that a batch has written.
pub(crate) const OUTPUT: &str = "batch_output";

/// Facts of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileFacts {
    /// Name that its owner gave it.
    pub(crate) name: String,
    /// Purpose.
    pub(crate) purpose: String,
    /// Bytes of its content.
    pub(crate) bytes: u64,
    /// Seconds since 1970 at which it was made.
    pub(crate) created: i64,
    /// Seconds since 1970 from which it is gone.
    pub(crate) expires: Option<i64>,
}

impl FileFacts {
    /// The record of a file that is whole, or is still being written.
    pub(crate) fn record(&self, key: Key, open: bool) -> Record {
        let mut object = json!({
            "id": key.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
        });
        if let Some(expires) = self.expires {
            object["expires_at"] = json!(expires);
        }
        Record {
            key,
            created: self.created,
            expires: self.expires,
            open,
            body: object.to_string().into_bytes(),
        }
    }
}

/// Key of a file.
pub(crate) fn key_of(owner: &Arc<str>, id: &str) -> Key {
    Key::new(owner, RecordKind::File, id)
}

/// A file that is whole; a problem that names `param` without one.
pub(crate) async fn file(
    state: &ApiState,
    owner: &Arc<str>,
    id: &str,
    param: &str,
) -> Result<Record, Problem> {
    let record = state.store.get(key_of(owner, id)).await;
    let record = record.map_err(store_problem)?.filter(|record| !record.open);
    record.ok_or_else(|| absent("file", id, param))
}

/// Id of the piece at a place. Each has [`MAX_PIECE_BYTES`], but the last.
fn piece_id(place: u64) -> String {
    format!("{place:08}")
}

/// The piece of an uploaded file at a place; `None` behind the last.
pub(crate) async fn piece(
    store: &dyn Store,
    key: &Key,
    place: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let item = store.item(key.clone(), piece_id(place)).await?;
    Ok(item.map(|item| item.body))
}

/// A file that is being written. If it is dropped before it is whole, nothing of it stays.
pub(crate) struct Writing {
    store: Arc<dyn Store>,
    key: Key,
    pending: Vec<u8>,
    pieces: u64,
    bytes: u64,
    whole: bool,
    _held: FileUse,
}

impl Writing {
    /// Begin a file. Should the process end before the file is whole, it is removed at `until`, or when the next
    /// server starts.
    ///
    /// # Errors
    /// When nothing can be written; so for all that write.
    pub(crate) async fn begin(
        state: &ApiState,
        key: Key,
        created: i64,
        until: i64,
    ) -> Result<Self, StoreError> {
        let writing = Self {
            store: Arc::clone(&state.store),
            _held: state.files.hold(key.clone()),
            key: key.clone(),
            pending: Vec::new(),
            pieces: 0,
            bytes: 0,
            whole: false,
        };
        let record = Record {
            key,
            created,
            expires: Some(until),
            open: true,
            body: b"{}".to_vec(),
        };
        state.store.commit(vec![Change::Put(record)]).await?;
        Ok(writing)
    }

    /// Add to the content. What makes whole pieces is on the disk afterwards.
    pub(crate) async fn add(&mut self, mut data: Bytes) -> Result<(), StoreError> {
        self.bytes += data.len() as u64;
        while !data.is_empty() {
            let room = MAX_PIECE_BYTES.saturating_sub(self.pending.len());
            self.pending
                .extend_from_slice(&data.split_to(room.min(data.len())));
            if self.pending.len() >= MAX_PIECE_BYTES {
                let append = self.append();
                self.store.commit(vec![append]).await?;
            }
        }
        Ok(())
    }

    /// End the file, which is found from now on.
    pub(crate) async fn finish(mut self, facts: FileFacts) -> Result<Value, StoreError> {
        let facts = FileFacts {
            bytes: self.bytes,
            ..facts
        };
        let record = facts.record(self.key.clone(), false);
        let object = serde_json::from_slice(&record.body).unwrap_or_default();
        let mut changes = vec![Change::Update(record)];
        if !self.pending.is_empty() {
            changes.insert(0, self.append());
        }
        self.store.commit(changes).await?;
        self.whole = true;
        Ok(object)
    }

    /// Pending bytes, as the next piece.
    fn append(&mut self) -> Change {
        let item = Item {
            id: piece_id(self.pieces),
            body: std::mem::take(&mut self.pending),
        };
        self.pieces += 1;
        Change::Append {
            parent: self.key.clone(),
            items: vec![item],
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.whole {
            return;
        }
        let (store, key) = (Arc::clone(&self.store), self.key.clone());
        // Outside of a runtime the process ends, and the next start removes it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.commit(vec![Change::Delete(key)]).await {
                    tracing::error!(%error, "a file that was not whole could not be removed");
                }
            });
        }
    }
}
