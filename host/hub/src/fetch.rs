//! Bring a model into the cache.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use sha2::{Digest as _, Sha256};

use crate::cache::{CachedRepository, disk};
use crate::client::{Hub, RemoteFile, is_relative};
use crate::error::HubError;
use crate::reference::ModelReference;
use crate::select::{Selection, WEIGHTS_INDEX, select, shards};

/// Hears how far a download is.
pub trait DownloadProgress {
    /// A file of `total` bytes begins, of which `present` are on disk from an earlier time.
    fn begin(&self, file: &str, total: u64, present: u64);
    /// Report bytes that were written to disk.
    fn advance(&self, bytes: u64);
    /// The file is complete.
    fn end(&self);
    /// Something the reader should know, as a sentence.
    fn note(&self, text: &str);
    /// Files are about to come, of which `bytes` bytes are not on disk yet.
    ///
    /// # Errors
    /// With the reason, when there is no room for them.
    fn reserve(&self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }
    /// True if the download is to end. What has come stays for the next one.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Attempts in a row without a single new byte.
const ATTEMPTS_MAX: u32 = 5;
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of an index of shards that is read for their names.
pub const INDEX_BYTES_MAX: u64 = 64 << 20;

impl Hub {
    /// Bring what `reference` needs into the cache. Returns the model's folder, or its GGUF file.
    /// Files in the cache are not fetched again.
    pub fn fetch(
        &self,
        reference: &ModelReference,
        progress: &dyn DownloadProgress,
    ) -> Result<PathBuf, HubError> {
        let cached = CachedRepository::new(&self.config.cache, reference);
        if self.config.offline {
            return self.cached_model(reference, &cached);
        }
        let listing = match self.list(reference) {
            Ok(listing) => listing,
            Err(error @ HubError::Network { .. }) => {
                let path = self.cached_model(reference, &cached).map_err(|_| error)?;
                progress.note("the hub was not reached; the cached model is used");
                return Ok(path);
            }
            Err(error) => return Err(error),
        };
        let download = Download {
            hub: self,
            reference,
            cached: &cached,
            commit: &listing.commit,
            progress,
        };
        let path = match select(reference, &listing.files)? {
            Selection::Gguf(files) => {
                download.files(&files)?;
                cached.snapshot(&listing.commit).join(&files[0])
            }
            Selection::Folder { files, sharded } => {
                download.files(&files)?;
                if sharded {
                    download.files(&download.shards(&listing.files)?)?;
                }
                cached.snapshot(&listing.commit)
            }
        };
        cached.remember(&reference.revision, &listing.commit)?;
        Ok(path)
    }

    /// The model as far as the cache knows, if that is all of it.
    fn cached_model(
        &self,
        reference: &ModelReference,
        cached: &CachedRepository,
    ) -> Result<PathBuf, HubError> {
        let missing = || HubError::Offline {
            what: reference.to_string(),
        };
        let commit = cached.commit(&reference.revision).ok_or_else(missing)?;
        let files = cached.files(&commit);
        let snapshot = cached.snapshot(&commit);
        match select(reference, &files).map_err(|_| missing())? {
            Selection::Gguf(files) => Ok(snapshot.join(&files[0])),
            Selection::Folder { sharded, .. } => {
                if sharded
                    && read_shards(&snapshot)?
                        .iter()
                        .any(|shard| !files.contains(shard))
                {
                    return Err(missing());
                }
                Ok(snapshot)
            }
        }
    }
}

fn read_shards(snapshot: &Path) -> Result<Vec<String>, HubError> {
    let path = snapshot.join(WEIGHTS_INDEX);
    let index = mortise_files::read(&path, INDEX_BYTES_MAX).map_err(disk(&path))?;
    shards(&index).map_err(|problem| HubError::Answer {
        what: WEIGHTS_INDEX.to_owned(),
        problem,
    })
}

/// One commit of one repository on its way to the disk.
struct Download<'a> {
    hub: &'a Hub,
    reference: &'a ModelReference,
    cached: &'a CachedRepository,
    commit: &'a str,
    progress: &'a dyn DownloadProgress,
}

impl Download<'_> {
    /// The shards that the index names, all of which the repository must have.
    fn shards(&self, listed: &[String]) -> Result<Vec<String>, HubError> {
        let shards = read_shards(&self.cached.snapshot(self.commit))?;
        match shards
            .iter()
            .find(|shard| !listed.contains(shard) || !is_relative(shard))
        {
            None => Ok(shards),
            Some(missing) => Err(HubError::NoModel {
                repository: self.reference.repository.clone(),
                problem: format!("{WEIGHTS_INDEX} names `{missing}`, which is not there"),
            }),
        }
    }

    /// Bring files, once there is room for all of them.
    fn files(&self, files: &[String]) -> Result<(), HubError> {
        let repository = &self.reference.repository;
        let mut located = Vec::with_capacity(files.len());
        let mut missing = 0_u64;
        for file in files {
            let what = format!("{repository}/{file}");
            let remote =
                self.persistent(&what, || self.hub.locate(repository, self.commit, file))?;
            missing = missing.saturating_add(self.missing(&remote));
            located.push((file, what, remote));
        }
        self.check_room(missing)?;
        for (file, what, remote) in &located {
            self.file(file, what, remote)?;
        }
        Ok(())
    }

    /// Bytes of a file that are not on disk.
    fn missing(&self, remote: &RemoteFile) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).map(|data| data.len()).ok();
        if size(self.cached.blob(&remote.etag)) == Some(remote.size) {
            return 0;
        }
        let present = size(self.cached.incomplete(&remote.etag)).unwrap_or(0);
        remote.size.saturating_sub(present)
    }

    fn check_room(&self, missing: u64) -> Result<(), HubError> {
        let no_room = |problem| HubError::NoRoom {
            what: self.reference.to_string(),
            problem,
        };
        let cache = &self.hub.config.cache;
        if let Some(free) = free_bytes(cache).filter(|free| *free < missing) {
            let cache = cache.display();
            return Err(no_room(format!(
                "{missing} bytes are to come, and the disk of `{cache}` has {free} free"
            )));
        }
        self.progress.reserve(missing).map_err(no_room)
    }

    /// Bring one file.
    fn file(&self, file: &str, what: &str, remote: &RemoteFile) -> Result<(), HubError> {
        let blob = self.cached.blob(&remote.etag);
        let is_there = || fs::metadata(&blob).is_ok_and(|data| data.len() == remote.size);
        if !is_there() {
            let mut told = false;
            let waits = || {
                if !std::mem::replace(&mut told, true) {
                    self.progress.note(&format!(
                        "another program is fetching {file}; waiting for it"
                    ));
                }
                self.go_on()
            };
            let _lock = self.cached.lock(&remote.etag, waits)?;
            if !is_there() {
                self.blob(what, file, remote)?;
            }
        }
        self.cached.link(self.commit, file, &remote.etag)?;
        Ok(())
    }

    /// An error once the download is to end.
    fn go_on(&self) -> Result<(), HubError> {
        match self.progress.cancelled() {
            true => Err(HubError::Cancelled),
            false => Ok(()),
        }
    }

    /// Fetch the contents, from where an earlier attempt stopped. The caller holds the lock.
    fn blob(&self, what: &str, file: &str, remote: &RemoteFile) -> Result<(), HubError> {
        let path = self.cached.incomplete(&remote.etag);
        let failed = disk(&path);
        let mut out = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(&failed)?;
        let mut digest = Sha256::new();
        // What is there is read once for the digest, and dropped if it is more than there should be.
        let mut present = io::copy(&mut out, &mut digest).map_err(&failed)?;
        if present > remote.size {
            out.set_len(0).map_err(&failed)?;
            (digest, present) = (Sha256::new(), 0);
        }
        self.progress.begin(file, remote.size, present);
        let mut attempts = 0;
        while present < remote.size {
            self.go_on()?;
            let before = present;
            match self.receive(what, remote, &mut out, &mut digest, &mut present) {
                Ok(()) => {}
                Err(Broken::Hub(error)) if !may_pass(&error) => return Err(error),
                Err(Broken::Disk(source)) => return Err(failed(source)),
                Err(Broken::Hub(_) | Broken::Connection) => {}
            }
            attempts = if present > before { 0 } else { attempts + 1 };
            if present < remote.size {
                if attempts >= ATTEMPTS_MAX {
                    return Err(HubError::BrokenOff {
                        what: what.to_owned(),
                        at: present,
                        total: remote.size,
                        attempts,
                    });
                }
                self.wait(attempts);
            }
        }
        out.sync_all().map_err(&failed)?;
        self.check(what, remote, present, &digest)
            .inspect_err(|_| {
                // What is wrong must not be gone on with next time.
                let _ = fs::remove_file(&path);
            })?;
        fs::rename(&path, self.cached.blob(&remote.etag)).map_err(&failed)?;
        self.progress.end();
        Ok(())
    }

    /// Append the content of one connection.
    fn receive(
        &self,
        what: &str,
        remote: &RemoteFile,
        out: &mut File,
        digest: &mut Sha256,
        present: &mut u64,
    ) -> Result<(), Broken> {
        let (reader, begins) = self.hub.read(what, remote, *present).map_err(Broken::Hub)?;
        if begins != *present {
            out.set_len(0).map_err(Broken::Disk)?;
            (*digest, *present) = (Sha256::new(), 0);
        }
        // One byte more than announced is enough to know that the announcement was wrong.
        let mut reader = reader.take(remote.size - *present + 1);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(Broken::Connection),
            };
            out.write_all(&buffer[..count]).map_err(Broken::Disk)?;
            digest.update(&buffer[..count]);
            *present += count as u64;
            self.progress.advance(count as u64);
            self.go_on().map_err(Broken::Hub)?;
        }
    }

    fn check(
        &self,
        what: &str,
        remote: &RemoteFile,
        present: u64,
        digest: &Sha256,
    ) -> Result<(), HubError> {
        let corrupt = |property, expected: String, found: String| HubError::Corrupt {
            what: what.to_owned(),
            property,
            expected,
            found,
        };
        if present != remote.size {
            let found = format!("{present} bytes or more");
            return Err(corrupt("size", format!("{} bytes", remote.size), found));
        }
        let found = format!("{:x}", digest.clone().finalize());
        match remote.sha256() {
            Some(expected) if !expected.eq_ignore_ascii_case(&found) => {
                Err(corrupt("SHA-256", expected.to_owned(), found))
            }
            _ => Ok(()),
        }
    }

    /// Ask again where asking again may help.
    fn persistent<T>(
        &self,
        what: &str,
        ask: impl Fn() -> Result<T, HubError>,
    ) -> Result<T, HubError> {
        let mut attempts = 1;
        loop {
            self.go_on()?;
            match ask() {
                Err(error) if attempts < ATTEMPTS_MAX && may_pass(&error) => {
                    self.progress
                        .note(&format!("asking again for {what}: {error}"));
                    self.wait(attempts);
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    fn wait(&self, attempts: u32) {
        let factor = 1 << attempts.saturating_sub(1).min(ATTEMPTS_MAX);
        thread::sleep(self.hub.config.retry_delay * factor);
    }
}

/// Bytes that may still be written where a path lies, or will lie; `None` if that is not known.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let place = path.ancestors().find(|place| place.exists())?;
    let disk = rustix::fs::statvfs(place).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Why a connection ended early.
enum Broken {
    Hub(HubError),
    Connection,
    Disk(io::Error),
}

/// Whether the same question may have another answer soon.
fn may_pass(error: &HubError) -> bool {
    match error {
        HubError::Network { .. } => true,
        HubError::Status { status, .. } => matches!(status, 408 | 429 | 500..600),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
