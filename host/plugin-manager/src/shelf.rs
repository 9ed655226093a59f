//! A file of the plugin folder that comes, goes and comes back over the network, with the versions before it.
//!
//! Versions lie in a folder within the plugin folder, where no plugin is looked for. Nothing is written elsewhere: names
//! have no separators, and links are replaced, never followed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use mortise_plugin::MAX_COMPONENT_BYTES;
use sha2::{Digest as _, Sha256};

use crate::signature::signature_of;

/// Folder of versions, within the plugin folder.
const VERSIONS: &str = ".versions";
/// Name of a file that is being written.
const INCOMING: &str = "incoming";
/// Bytes of a signature.
pub(crate) const SIGNATURE_BYTES: usize = 64;
/// Longest name of a file that comes over the network.
pub(crate) const MAX_FILE_NAME_BYTES: usize = 64;
/// Versions of a file that are kept beside the one that serves.
pub(crate) const MAX_KEPT_VERSIONS: usize = 5;
/// Files of the folder at which no further one comes over the network.
pub(crate) const MAX_FOLDER_FILES: usize = 256;

/// Names with versions that are listed.
const MAX_LISTED: usize = 1024;

/// Check the name of a file that comes over the network.
///
/// # Errors
/// Description of the fault in the name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let stem = name.strip_suffix(".wasm").unwrap_or_default();
    let begins = stem
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= MAX_FILE_NAME_BYTES && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!(
        "the name of a plugin file has letters, digits, `.`, `_` and `-`, begins with a letter or a digit, ends with \
         `.wasm`, and has at most {MAX_FILE_NAME_BYTES} bytes"
    ))
}

/// A component with its signature, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedComponent {
    pub(crate) wasm: Vec<u8>,
    pub(crate) signature: Option<Vec<u8>>,
}

/// A version of a file that another one has replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    number: u64,
    /// SHA-256 in hexadecimal.
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    pub(crate) signed: bool,
    /// Time at which the version was replaced, in seconds since 1970.
    pub(crate) replaced_at: u64,
}

/// A change of a file, so that it can be taken back.
#[derive(Debug)]
pub(crate) struct FileSwap {
    before: Option<SignedComponent>,
    /// Version that the change has made.
    made: Option<Version>,
    /// Version that serves again.
    used: Option<Version>,
}

impl FileSwap {
    /// True if there was no file before the change.
    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none()
    }
}

/// File of the plugin folder with its versions. All methods block.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    dir: PathBuf,
    file: String,
}

impl Shelf {
    /// The file of a name that was checked.
    pub(crate) fn new(dir: PathBuf, file: &str) -> Self {
        Self {
            dir,
            file: file.to_owned(),
        }
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(&self.file)
    }

    fn versions_folder(&self) -> PathBuf {
        self.dir.join(VERSIONS).join(&self.file)
    }

    /// The present file; `None` without one.
    pub(crate) fn present(&self) -> io::Result<Option<SignedComponent>> {
        content(&self.path())
    }

    /// The versions, the last one first.
    pub(crate) fn versions(&self) -> io::Result<Vec<Version>> {
        let entries = match fs::read_dir(self.versions_folder()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut versions = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some((number, digest)) = name.to_str().and_then(parts) else {
                continue;
            };
            let data = entry.metadata()?;
            if !data.is_file() {
                continue;
            }
            let since = data.modified()?.duration_since(UNIX_EPOCH);
            versions.push(Version {
                number,
                digest: digest.to_owned(),
                bytes: data.len(),
                signed: signature_of(&entry.path()).is_file(),
                replaced_at: since.unwrap_or_default().as_secs(),
            });
        }
        versions.sort_by_key(|version| std::cmp::Reverse(version.number));
        Ok(versions)
    }

    /// Content of a version.
    pub(crate) fn content_of(&self, version: &Version) -> io::Result<SignedComponent> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the version is gone");
        let content = content(&self.place_of(version))?.ok_or_else(gone)?;
        match digest_of(&content.wasm) == version.digest {
            true => Ok(content),
            false => Err(io::Error::other("the version was changed by somebody else")),
        }
    }

    fn place_of(&self, version: &Version) -> PathBuf {
        let name = format!("{:08}-{}.wasm", version.number, version.digest);
        self.versions_folder().join(name)
    }

    /// Put a file in the place of the present one, or nothing, and keep the present one as a version. `used` is the
    /// version that the new file is.
    pub(crate) fn exchange(
        &self,
        new: Option<&SignedComponent>,
        used: Option<Version>,
    ) -> io::Result<FileSwap> {
        self.make_folders()?;
        let before = self.present()?;
        let made = match &before {
            Some(before) => Some(self.keep(before)?),
            None => None,
        };
        let exchange = FileSwap { before, made, used };
        let done = match new {
            Some(new) => self.write(&self.path(), new),
            None => self.clear(&self.path()),
        };
        match done.and_then(|()| File::open(&self.dir)?.sync_all()) {
            Ok(()) => Ok(exchange),
            Err(error) => {
                self.undo(&exchange)?;
                Err(error)
            }
        }
    }

    /// Take a change back.
    pub(crate) fn undo(&self, exchange: &FileSwap) -> io::Result<()> {
        match &exchange.before {
            Some(before) => self.write(&self.path(), before)?,
            None => self.clear(&self.path())?,
        }
        match &exchange.made {
            Some(made) => self.clear(&self.place_of(made)),
            None => Ok(()),
        }
    }

    /// A change stays: forget the version that serves again, and the oldest ones.
    pub(crate) fn settle(&self, exchange: &FileSwap) -> io::Result<()> {
        if let Some(used) = &exchange.used {
            self.clear(&self.place_of(used))?;
        }
        for old in self.versions()?.iter().skip(MAX_KEPT_VERSIONS) {
            self.clear(&self.place_of(old))?;
        }
        Ok(())
    }

    /// Keep a content as the newest version.
    fn keep(&self, content: &SignedComponent) -> io::Result<Version> {
        let last = self.versions()?.first().map_or(0, |last| last.number);
        let version = Version {
            number: last + 1,
            digest: digest_of(&content.wasm),
            bytes: content.wasm.len() as u64,
            signed: content.signature.is_some(),
            replaced_at: 0,
        };
        self.write(&self.place_of(&version), content)?;
        Ok(version)
    }

    fn make_folders(&self) -> io::Result<()> {
        for folder in [self.dir.join(VERSIONS), self.versions_folder()] {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            // A link would lead elsewhere.
            if !fs::symlink_metadata(&folder)?.is_dir() {
                let message = format!("`{}` is not a folder", folder.display());
                return Err(io::Error::other(message));
            }
        }
        Ok(())
    }

    /// Write a file and its signature, each in one step.
    fn write(&self, path: &Path, content: &SignedComponent) -> io::Result<()> {
        let signature = signature_of(path);
        match &content.signature {
            Some(bytes) => self.write_one(&signature, bytes)?,
            None => remove(&signature)?,
        }
        self.write_one(path, &content.wasm)
    }

    fn write_one(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let incoming = self.versions_folder().join(INCOMING);
        remove(&incoming)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&incoming)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&incoming, path)
    }

    fn clear(&self, path: &Path) -> io::Result<()> {
        remove(path)?;
        remove(&signature_of(path))
    }
}

/// Names of files of a folder that have versions. Blocks.
pub(crate) fn names_with_versions(dir: &Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(dir.join(VERSIONS)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let mut names = BTreeSet::new();
    for entry in entries.take(MAX_LISTED) {
        let name = entry?.file_name();
        names.extend(
            name.to_str()
                .filter(|name| check_name(name).is_ok())
                .map(str::to_owned),
        );
    }
    Ok(names)
}

/// Number and digest of a version, from its name.
fn parts(name: &str) -> Option<(u64, &str)> {
    let (number, digest) = name.strip_suffix(".wasm")?.split_once('-')?;
    let digits = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    number
        .parse()
        .ok()
        .map(|number| (number, digest))
        .filter(|_| digits)
}

/// A file with its signature; `None` without one.
fn content(path: &Path) -> io::Result<Option<SignedComponent>> {
    let wasm = match mortise_files::read_beginning(path, MAX_COMPONENT_BYTES) {
        Ok(wasm) => wasm,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if wasm.len() as u64 > MAX_COMPONENT_BYTES {
        let message = "the present file is larger than any plugin; take it away by hand";
        return Err(io::Error::other(message));
    }
    let signature = match mortise_files::read_beginning(&signature_of(path), SIGNATURE_BYTES as u64)
    {
        Ok(signature) => Some(signature),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(Some(SignedComponent { wasm, signature }))
}

/// Remove a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// SHA-256 in hexadecimal.
fn digest_of(bytes: &[u8]) -> String {
    let mut digest = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a text does not fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> SignedComponent {
        SignedComponent {
            wasm: text.as_bytes().to_vec(),
            signature: None,
        }
    }

    fn put(shelf: &Shelf, content: Option<&SignedComponent>, used: Option<Version>) {
        let exchange = shelf.exchange(content, used).expect("exchanged");
        shelf.settle(&exchange).expect("settled");
    }

    fn present(shelf: &Shelf) -> Option<String> {
        let content = shelf.present().expect("read")?;
        Some(String::from_utf8(content.wasm).expect("a text"))
    }

    fn digests(shelf: &Shelf) -> Vec<String> {
        let versions = shelf.versions().expect("listed");
        versions.into_iter().map(|version| version.digest).collect()
    }

    #[test]
    fn names_stay_within_the_folder() {
        for good in ["a.wasm", "my-plugin_2.1.wasm", "0.wasm"] {
            assert_eq!(check_name(good), Ok(()));
        }
        let long = format!("{}.wasm", "x".repeat(MAX_FILE_NAME_BYTES));
        for bad in [
            "",
            ".wasm",
            "a",
            "a.wasm.sig",
            "../a.wasm",
            "a/b.wasm",
            "a\\b.wasm",
            ".a.wasm",
            "..wasm",
            "-a.wasm",
            "a\0.wasm",
            "ä.wasm",
            "a b.wasm",
            "<img>.wasm",
            &long,
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn versions_are_kept_put_back_and_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::new(folder.path().to_owned(), "a.wasm");
        for number in 0..8 {
            put(&shelf, Some(&of(&format!("content {number}"))), None);
        }
        assert_eq!(present(&shelf).as_deref(), Some("content 7"));
        let kept: Vec<String> = (2..7)
            .rev()
            .map(|number| digest_of(format!("content {number}").as_bytes()))
            .collect();
        assert_eq!(digests(&shelf), kept);

        // What is put back is no version any more, and what it replaces is the newest one.
        let versions = shelf.versions().expect("listed");
        let wanted = versions[1].clone();
        let content = shelf.content_of(&wanted).expect("read");
        put(&shelf, Some(&content), Some(wanted));
        assert_eq!(present(&shelf).as_deref(), Some("content 5"));
        assert_eq!(digests(&shelf)[0], digest_of(b"content 7"));
        assert!(!digests(&shelf).contains(&digest_of(b"content 5")));

        put(&shelf, None, None);
        assert_eq!(present(&shelf), None);
        assert_eq!(digests(&shelf)[0], digest_of(b"content 5"));
    }

    #[test]
    fn a_change_is_taken_back_with_its_signature_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::new(folder.path().to_owned(), "a.wasm");
        let signed = SignedComponent {
            signature: Some(vec![7; SIGNATURE_BYTES]),
            ..of("first")
        };
        let first = shelf.exchange(Some(&signed), None).expect("exchanged");
        assert!(first.is_new());
        shelf.settle(&first).expect("settled");
        let second = shelf
            .exchange(Some(&of("second")), None)
            .expect("exchanged");
        assert!(!folder.path().join("a.wasm.sig").exists());
        assert!(shelf.versions().expect("listed")[0].signed);
        shelf.undo(&second).expect("undone");
        assert_eq!(shelf.present().expect("read"), Some(signed));
        assert_eq!(digests(&shelf), Vec::<String>::new());
        shelf.undo(&first).expect("undone");
        assert_eq!(shelf.present().expect("read"), None);
        assert!(!folder.path().join("a.wasm.sig").exists());
    }

    #[test]
    fn links_lead_nowhere() {
        let (folder, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
        let (folder, elsewhere) = (folder.expect("a folder"), elsewhere.expect("a folder"));
        let victim = elsewhere.path().join("victim");
        fs::write(&victim, "theirs").expect("written");
        let shelf = Shelf::new(folder.path().to_owned(), "a.wasm");
        std::os::unix::fs::symlink(&victim, shelf.path()).expect("a link");
        put(&shelf, Some(&of("ours")), None);
        assert_eq!(fs::read_to_string(&victim).expect("read"), "theirs");
        assert!(fs::symlink_metadata(shelf.path()).expect("data").is_file());

        let other = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(elsewhere.path(), other.path().join(VERSIONS)).expect("a link");
        let shelf = Shelf::new(other.path().to_owned(), "a.wasm");
        let refused = shelf
            .exchange(Some(&of("ours")), None)
            .expect_err("refused");
        assert!(refused.to_string().contains("not a folder"), "{refused}");
        assert_eq!(fs::read_dir(elsewhere.path()).expect("listed").count(), 1);
        assert!(!shelf.path().exists());
    }

    #[test]
    fn a_version_that_was_tampered_with_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::new(folder.path().to_owned(), "a.wasm");
        put(&shelf, Some(&of("first")), None);
        put(&shelf, Some(&of("second")), None);
        let version = shelf.versions().expect("listed").remove(0);
        fs::write(shelf.place_of(&version), "another").expect("written");
        assert!(shelf.content_of(&version).is_err());
    }
}
