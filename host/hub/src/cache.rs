//! The folders of one repository in the shared cache.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::client::{is_commit, is_relative};
use crate::error::HubError;
use crate::reference::ModelReference;

/// Pause between two looks at a lock that another program holds.
const LOCK_RETRY: Duration = Duration::from_millis(100);

/// Bytes of a file that tells which commit a revision stands for.
const MAX_REF_BYTES: u64 = 4096;

/// A repository's place in the cache.
#[derive(Debug, Clone)]
pub struct CachedRepository {
    folder: PathBuf,
    locks: PathBuf,
}

impl CachedRepository {
    /// Cache entry of `reference`, which need not exist.
    pub fn new(cache: &Path, reference: &ModelReference) -> Self {
        let name = reference.folder();
        Self {
            folder: cache.join(&name),
            locks: cache.join(".locks").join(name),
        }
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    pub(crate) fn incomplete(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// The folder of one commit.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The commit that a revision stood for when the hub was asked last.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let path = self.folder.join("refs").join(revision);
        let text = mortise_files::read_text(&path, MAX_REF_BYTES).ok();
        let known = text.map(|text| text.trim().to_owned());
        match known {
            Some(commit) if is_commit(&commit) => Some(commit),
            _ if is_commit(revision) && self.snapshot(revision).is_dir() => {
                Some(revision.to_owned())
            }
            _ => None,
        }
    }

    /// Remember what a revision stands for.
    pub(crate) fn remember(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        if let Some(parent) = path.parent() {
            make_folder(parent)?;
        }
        fs::write(&path, commit).map_err(disk(&path))
    }

    /// The files of a snapshot whose contents are there, by their names in the repository.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        fn walk(folder: &Path, prefix: &str, depth: u32, found: &mut Vec<String>) {
            const DEPTH_MAX: u32 = 8;
            let Ok(entries) = fs::read_dir(folder) else {
                return;
            };
            for entry in entries.flatten() {
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                // Follows links: a link whose blob is gone is no file.
                match fs::metadata(entry.path()) {
                    Ok(data) if data.is_file() => found.push(name),
                    Ok(data) if data.is_dir() && depth < DEPTH_MAX => {
                        walk(&entry.path(), &format!("{name}/"), depth + 1, found);
                    }
                    _ => {}
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.snapshot(commit), "", 0, &mut found);
        found.sort_unstable();
        found
    }

    /// Show a blob under its name in a commit.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<PathBuf, HubError> {
        debug_assert!(is_relative(file));
        let path = self.snapshot(commit).join(file);
        if let Some(parent) = path.parent() {
            make_folder(parent)?;
        }
        // snapshots/COMMIT/FILE: two folders up, and one more for each folder in the name.
        let up = "../".repeat(2 + file.matches('/').count());
        let target = format!("{up}blobs/{etag}");
        if fs::read_link(&path).is_ok_and(|known| known == Path::new(&target)) {
            return Ok(path);
        }
        let beside = path.with_file_name(format!(".{etag}.{}.link", std::process::id()));
        let _ = fs::remove_file(&beside);
        symlink(&target, &beside).map_err(disk(&beside))?;
        // A rename replaces what is there in one step, so that readers never miss the file.
        fs::rename(&beside, &path).map_err(disk(&path))?;
        Ok(path)
    }

    /// Be the only one, among all programs that keep to the cache's locks, to write a blob. `waiting` is
    /// called again and again while another one does, and ends the wait with an error.
    pub(crate) fn lock(
        &self,
        etag: &str,
        mut waiting: impl FnMut() -> Result<(), HubError>,
    ) -> Result<File, HubError> {
        make_folder(&self.locks)?;
        make_folder(&self.folder.join("blobs"))?;
        let path = self.locks.join(format!("{etag}.lock"));
        let file = File::create(&path).map_err(disk(&path))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => waiting()?,
                Err(TryLockError::Error(source)) => return Err(disk(&path)(source)),
            }
            thread::sleep(LOCK_RETRY);
        }
    }
}

#[cfg(unix)]
fn symlink(target: &str, path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

fn make_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(disk(path))
}

pub(crate) fn disk(path: &Path) -> impl Fn(std::io::Error) -> HubError + '_ {
    move |source| HubError::Disk {
        path: path.to_owned(),
        source,
    }
}
