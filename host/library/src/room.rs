//! Room on the disk: what the library may hold, and what the disk has free, with what was promised to transfers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_hub::free_bytes;

use crate::error::LibraryError;

/// Room of a library.
#[derive(Debug)]
pub(crate) struct LibraryRoom {
    folder: PathBuf,
    /// Bytes that it may hold; 0 is no bound.
    max_bytes: u64,
    /// Bytes of the disk that stay free.
    min_free_bytes: u64,
    /// Bytes that were promised and have not come.
    promised: Mutex<u64>,
}

/// Bytes that are kept free for one transfer.
#[derive(Debug)]
pub(crate) struct Promise {
    room: Arc<LibraryRoom>,
    left: u64,
}

impl LibraryRoom {
    pub(crate) fn new(folder: PathBuf, max_bytes: u64, min_free_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            folder,
            max_bytes,
            min_free_bytes,
            promised: Mutex::default(),
        })
    }

    /// Promise room for so many bytes. Blocks while the folder is walked.
    pub(crate) fn promise(self: &Arc<Self>, bytes: u64) -> Result<Promise, LibraryError> {
        let mut promised = self.promised();
        self.check(*promised, bytes)?;
        *promised = promised.saturating_add(bytes);
        drop(promised);
        Ok(Promise {
            room: Arc::clone(self),
            left: bytes,
        })
    }

    fn check(&self, promised: u64, bytes: u64) -> Result<(), LibraryError> {
        let wanted = promised.saturating_add(bytes);
        if self.max_bytes > 0 {
            let used = used_bytes(&self.folder);
            if used.saturating_add(wanted) > self.max_bytes {
                let most = self.max_bytes;
                return Err(LibraryError::NoRoom(format!(
                    "{bytes} bytes are to come, {used} are used and {promised} promised to others, of {most} \
                     (`library.max_mib`)"
                )));
            }
        }
        let least = self.min_free_bytes;
        match free_bytes(&self.folder) {
            Some(free) if free < wanted.saturating_add(least) => {
                Err(LibraryError::NoRoom(format!(
                    "{bytes} bytes are to come, {promised} are promised to others, the disk has {free} free, of which \
                     {least} stay so (`library.min_free_mib`)"
                )))
            }
            _ => Ok(()),
        }
    }

    fn promised(&self) -> MutexGuard<'_, u64> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promise {
    /// Have room for more bytes. Blocks while the folder is walked.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), LibraryError> {
        let mut promised = self.room.promised();
        self.room.check(*promised, bytes)?;
        *promised = promised.saturating_add(bytes);
        self.left = self.left.saturating_add(bytes);
        Ok(())
    }

    /// Bytes that may still come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Take bytes that have come from those that were promised.
    pub(crate) fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        let mut promised = self.room.promised();
        *promised = promised.saturating_sub(bytes);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.arrived(self.left);
    }
}

/// Bytes of all files below a folder; links are not followed.
fn used_bytes(folder: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => folders.push(entry.path()),
                Ok(data) if data.is_file() => bytes = bytes.saturating_add(data.len()),
                _ => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_count_until_they_are_kept_or_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let room = LibraryRoom::new(folder.path().to_owned(), 100, 0);
        let mut first = room.promise(60).expect("room");
        assert!(matches!(room.promise(41), Err(LibraryError::NoRoom(_))));
        fs::write(folder.path().join("x"), [0; 50]).expect("written");
        first.arrived(50);
        assert!(room.promise(41).is_err());
        let second = room.promise(40).expect("room");
        assert!(first.grow(1).is_err());
        drop(second);
        first.grow(40).expect("room");
        drop(first);
        drop(room.promise(50).expect("room"));
        let huge = LibraryRoom::new(folder.path().to_owned(), 0, 0);
        let problem = huge.promise(u64::MAX / 2).expect_err("no such disk");
        assert!(
            problem.to_string().contains("library.min_free_mib"),
            "{problem}"
        );
    }
}
