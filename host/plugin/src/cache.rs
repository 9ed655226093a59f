//! Compiled plugins on disk. A compiled plugin is native code that is run as it is. So the folder and every
//! file must belong to the server's user and be writable by nobody else, no symbolic link is followed, and
//! every file carries a digest. What is not so is neither read nor written.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::cache_trust as trust;

/// Compiled plugins that are kept: versions enough to roll back to, 4 MB each at most so far.
const MAX_CACHED: usize = 64;

/// The cache folder, once it has been found safe.
pub(crate) struct CompileCache {
    dir: PathBuf,
}

impl CompileCache {
    /// Use `dir`, making it if need be; `None` (and a line in the log) if it is not safe or cannot
    /// be made. A server without a cache works, it only starts more slowly.
    pub(crate) fn open(dir: &Path) -> Option<Self> {
        match trust::prepare_folder(dir) {
            Ok(dir) => Some(Self { dir }),
            Err(reason) => {
                tracing::warn!(dir = %dir.display(), reason,
                    "the folder of compiled plugins is not used, they are compiled at every start");
                None
            }
        }
    }

    /// The compiled form of the component with this digest, if it is there and whole.
    pub(crate) fn read(&self, engine: &Engine, digest: &str) -> Option<Vec<u8>> {
        let path = self.path(engine, digest);
        let compiled = self.read_trusted(&path)?;
        let wanted = self.read_trusted(&path.with_extension("sha256"))?;
        if hex_digest(&compiled).as_bytes() == wanted.trim_ascii() {
            return Some(compiled);
        }
        tracing::warn!(file = %path.display(), "a compiled plugin is damaged and is made again");
        None
    }

    /// The content of a file that nobody else can have written; `None` if there is none.
    fn read_trusted(&self, path: &Path) -> Option<Vec<u8>> {
        match trust::read(&self.dir, path) {
            Ok(content) => content,
            Err(reason) => {
                tracing::warn!(file = %path.display(), reason,
                    "a compiled plugin is not used and is made again");
                None
            }
        }
    }

    /// Keep a compiled component. Failing to is worth a line in the log and nothing more.
    pub(crate) fn write(&self, engine: &Engine, digest: &str, compiled: &[u8]) {
        if let Err(reason) = trust::check_folder(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), reason, "a compiled plugin is not kept");
            return;
        }
        let path = self.path(engine, digest);
        let checksum = hex_digest(compiled);
        let written = write_whole(&path.with_extension("sha256"), checksum.as_bytes())
            .and_then(|()| write_whole(&path, compiled));
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), %error, "a compiled plugin could not be kept");
        }
        self.prune();
    }

    /// Remove the oldest files beyond [`MAX_CACHED`], so that swaps do not fill the disk. A file
    /// that another server removes meanwhile is gone all the same.
    fn prune(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut cached: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "cwasm")
            })
            .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        cached.sort_unstable();
        let excess = cached.len().saturating_sub(MAX_CACHED);
        for (_, path) in &cached[..excess] {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(path.with_extension("sha256"));
        }
    }

    /// Forget a compiled component that the engine refused.
    pub(crate) fn remove(&self, engine: &Engine, digest: &str) {
        let path = self.path(engine, digest);
        // It may never have been there.
        let _ = fs::remove_file(path.with_extension("sha256"));
        let _ = fs::remove_file(path);
    }

    fn path(&self, engine: &Engine, digest: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        self.dir
            .join(format!("{digest}-{:016x}.cwasm", hasher.finish()))
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Two servers may write the same file: each has a temporary one of its own.
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = trust::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)
    })();
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
