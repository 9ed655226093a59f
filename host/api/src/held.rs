//! Files that are in use: being uploaded, read by a batch, or written by one. They are not removed meanwhile. Work of this
//! host is known in memory, and batches of all hosts that share the store by their records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mortise_store::{Key, Page, Record, RecordFilter, RecordKind, Store, StoreError};
use serde_json::Value;

/// Files in use, each with the number of its users.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldFiles(Arc<Mutex<HashMap<Key, usize>>>);

/// Guard of the use of a file. Dropping the guard ends the use.
#[derive(Debug)]
pub(crate) struct FileUse {
    all: HeldFiles,
    key: Key,
}

impl HeldFiles {
    /// Begin to use a file.
    pub(crate) fn hold(&self, key: Key) -> FileUse {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(key.clone()).or_default() += 1;
        FileUse {
            all: self.clone(),
            key,
        }
    }

    /// True if the file is in use on this host.
    pub(crate) fn is_held(&self, key: &Key) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.contains_key(key)
    }
}

/// True if a batch that has not ended reads the file, whichever host works on it.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn is_read(store: &dyn Store, file: &Key) -> Result<bool, StoreError> {
    let id = file.id.clone();
    let reads: RecordFilter =
        Box::new(move |record| record.open && input_of(record).as_ref() == Some(&id));
    let page = Page {
        after: None,
        limit: 1,
        ascending: false,
    };
    let batches = store.list(&file.owner, RecordKind::Batch, page, Some(reads));
    Ok(!batches.await?.entries.is_empty())
}

/// Id of the file that a batch reads. The object that clients see is the first part of a batch's record.
fn input_of(record: &Record) -> Option<String> {
    let stored: Value = serde_json::from_slice(&record.body).ok()?;
    let id = stored.get(0)?.get("input_file_id")?.as_str()?;
    Some(id.to_owned())
}

impl Drop for FileUse {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(users) = all.get_mut(&self.key) {
            *users -= 1;
            if *users == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_store::RecordKind;

    use super::*;

    #[test]
    fn a_file_is_held_until_its_last_user_has_gone() {
        let (files, owner) = (HeldFiles::default(), Arc::from("tenant a"));
        let key = |id: &str| Key::new(&owner, RecordKind::File, id);
        let (one, other) = (files.hold(key("a")), files.hold(key("a")));
        drop(one);
        assert!(files.is_held(&key("a")) && !files.is_held(&key("b")));
        drop(other);
        assert!(!files.is_held(&key("a")));
    }
}
