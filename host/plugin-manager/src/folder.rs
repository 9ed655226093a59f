//! Reads the operator's plugin folder by file type: regular files with names in UTF-8 are plugins, anything
//! else that is named like one is reported and left alone. A FIFO would be waited for and a device read for
//! ever.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A file that could not be used, and why.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// Reason for which the file could not be used.
    pub reason: String,
}

impl Rejected {
    /// The path for people: what is not UTF-8 replaced, control characters escaped.
    pub(crate) fn file(&self) -> String {
        shown(&self.path)
    }
}

/// A path for logs and JSON, whatever its bytes are.
pub(crate) fn shown(path: &Path) -> String {
    let mut shown = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Entries of a folder that are named like plugins.
#[derive(Debug, Default)]
pub(crate) struct FolderPlugins {
    pub(crate) files: BTreeSet<PathBuf>,
    /// Entries that no plugin can be read from.
    pub(crate) odd: Vec<Rejected>,
}

/// List the plugins of a folder; none without a folder.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn list(dir: Option<&Path>) -> anyhow::Result<FolderPlugins> {
    let mut listing = FolderPlugins::default();
    let Some(dir) = dir else {
        return Ok(listing);
    };
    let unreadable = || format!("cannot read the plugin folder `{}`", dir.display());
    for entry in std::fs::read_dir(dir).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path.extension().is_none_or(|extension| extension != "wasm") {
            continue;
        }
        match check(&path) {
            Ok(()) => {
                listing.files.insert(path);
            }
            Err(reason) => listing.odd.push(Rejected { path, reason }),
        }
    }
    listing.odd.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(listing)
}

fn check(path: &Path) -> Result<(), String> {
    if path.file_name().is_none_or(|name| name.to_str().is_none()) {
        return Err("its name is not UTF-8; give it another".to_owned());
    }
    match std::fs::metadata(path) {
        Ok(metadata) => mortise_files::check_type(&metadata).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_folder_is_read_by_file_type() {
        let folder = tempfile::tempdir().expect("make a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("good.wasm"), b"x").expect("write");
        std::fs::write(at("other.txt"), b"x").expect("write");
        std::fs::write(at("wasm"), b"x").expect("write");
        std::os::unix::fs::symlink(at("good.wasm"), at("link.wasm")).expect("link");
        std::os::unix::fs::symlink(at("nothing"), at("broken.wasm")).expect("link");
        std::os::unix::fs::symlink("/dev/zero", at("device.wasm")).expect("link");
        std::fs::create_dir(at("folder.wasm")).expect("make a folder");
        let _socket = UnixListener::bind(at("socket.wasm")).expect("bind");
        let fifo = Command::new("mkfifo").arg(at("fifo.wasm")).status();
        assert!(fifo.expect("run mkfifo").success());
        let name = OsStr::from_bytes(b"not-\xff-utf8.wasm");
        std::fs::write(folder.path().join(name), b"x").expect("write");

        let listing = list(Some(folder.path())).expect("listed");
        let good: Vec<_> = listing.files.into_iter().collect();
        assert_eq!(good, [at("good.wasm"), at("link.wasm")]);
        let odd: Vec<(String, String)> = listing
            .odd
            .into_iter()
            .map(|file| {
                let name = file.path.file_name().expect("a name").to_string_lossy();
                (name.into_owned(), file.reason)
            })
            .collect();
        for (name, part) in [
            ("broken.wasm", "No such file"),
            ("device.wasm", "a device"),
            ("fifo.wasm", "a FIFO"),
            ("folder.wasm", "a folder"),
            ("socket.wasm", "a socket"),
            ("not-\u{fffd}-utf8.wasm", "not UTF-8"),
        ] {
            let found = odd.iter().find(|(found, _)| found == name);
            let (_, reason) = found.unwrap_or_else(|| panic!("{name} is not in {odd:?}"));
            assert!(reason.contains(part), "{name}: {reason}");
        }
        assert_eq!(odd.len(), 6);
    }

    #[test]
    fn only_regular_files_are_opened_and_reading_is_bounded() {
        let folder = tempfile::tempdir().expect("make a folder");
        let fifo = folder.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("run mkfifo").success());
        for path in [fifo.as_path(), Path::new("/dev/zero"), folder.path()] {
            let error = mortise_files::read_beginning(path, 10).expect_err("refused");
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, [7; 100]).expect("write");
        assert_eq!(
            mortise_files::read_beginning(&file, 10)
                .expect("read")
                .len(),
            11
        );
        assert_eq!(
            mortise_files::read_beginning(&file, 1000)
                .expect("read")
                .len(),
            100
        );
    }
}
