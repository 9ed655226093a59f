//! Compiled plugins on disk. A compiled plugin is native code that is run as it is, so the folder
//! must be writable by the server's user only, and every file carries a digest.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::Engine;

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
        match prepare_dir(dir) {
            Ok(()) => Some(Self {
                dir: dir.to_owned(),
            }),
            Err(reason) => {
                tracing::warn!(dir = %dir.display(), reason, "plugins are compiled at every start");
                None
            }
        }
    }

    /// The compiled form of the component with this digest, if it is there and whole.
    pub(crate) fn read(&self, engine: &Engine, digest: &str) -> Option<Vec<u8>> {
        let path = self.path(engine, digest);
        let compiled = fs::read(&path).ok()?;
        let wanted = fs::read_to_string(path.with_extension("sha256")).ok()?;
        if hex_digest(&compiled) == wanted.trim() {
            return Some(compiled);
        }
        tracing::warn!(file = %path.display(), "a compiled plugin is damaged and is made again");
        None
    }

    /// Keep a compiled component. Failing to is worth a line in the log and nothing more.
    pub(crate) fn write(&self, engine: &Engine, digest: &str, compiled: &[u8]) {
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
            .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
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
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(unix)]
fn prepare_dir(dir: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| format!("cannot make the folder: {error}"))?;
    let metadata = fs::metadata(dir).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    let mode = metadata.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(format!(
            "others may write to it (mode {:o}); chmod it to 700",
            mode & 0o777
        ));
    }
    Ok(())
}

#[cfg(not(unix))]
fn prepare_dir(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|error| format!("cannot make the folder: {error}"))
}
