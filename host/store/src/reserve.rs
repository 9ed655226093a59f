//! Room on the disk that is kept back beside a store, so that callers can delete when the disk is full: a delete writes as well.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::limits::RESERVE_BYTES;

/// File that takes the room.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    held: bool,
}

impl Reserve {
    /// The reserve of the store at this path, taken if there is room.
    pub(crate) fn beside(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push("-reserve");
        let mut reserve = Self {
            path: path.into(),
            held: false,
        };
        reserve.hold();
        reserve
    }

    /// Take the room, where it was given up.
    pub(crate) fn hold(&mut self) {
        if self.held {
            return;
        }
        match self.write() {
            Ok(()) => self.held = true,
            Err(error) => {
                tracing::debug!(%error, "there is no room to keep back for deletes");
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    /// Give the room up. False if there was none.
    pub(crate) fn release(&mut self) -> bool {
        std::mem::replace(&mut self.held, false) && fs::remove_file(&self.path).is_ok()
    }

    fn write(&self) -> io::Result<()> {
        // A start writes nothing anew.
        if fs::symlink_metadata(&self.path)
            .is_ok_and(|file| file.is_file() && file.len() == RESERVE_BYTES as u64)
        {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&self.path)?;
        let piece = [0; 64 << 10];
        for _ in 0..RESERVE_BYTES / piece.len() {
            file.write_all(&piece)?;
        }
        // Until then, some file systems have promised the room and not given it.
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_given_up_and_held_again() {
        let folder = tempfile::tempdir().expect("make a folder");
        let mut reserve = Reserve::beside(&folder.path().join("state.db"));
        let path = folder.path().join("state.db-reserve");
        let bytes = || fs::metadata(&path).map(|file| file.len()).ok();
        assert_eq!(bytes(), Some(RESERVE_BYTES as u64));
        assert!(reserve.release() && !reserve.release());
        assert_eq!(bytes(), None);
        reserve.hold();
        assert_eq!(bytes(), Some(RESERVE_BYTES as u64));
        let mut nowhere = Reserve::beside(&folder.path().join("no folder/state.db"));
        assert!(!nowhere.release());
    }
}
