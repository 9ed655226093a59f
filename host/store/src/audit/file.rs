//! An audit log in a file of lines, and its head in a file beside it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::chain::{AuditHead, Checker, seal};
use super::error::AuditError;
use crate::limits::MAX_AUDIT_LINE_BYTES;

/// The open file. One process has it at a time.
#[derive(Debug)]
pub struct AuditFile {
    file: File,
    path: PathBuf,
    head: AuditHead,
    /// Bytes of the log that are good; what a write that failed has left behind them is cut off.
    bytes: u64,
    torn: u64,
}

impl AuditFile {
    /// Open a log and check it, or begin one. Bytes behind the last line, which a crash left, are cut off. Blocks.
    ///
    /// # Errors
    /// When it cannot be read and written, another process has it, or its chain is broken.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let unusable = |source| AuditError::unusable(path, source);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(unusable)?;
        file.try_lock().map_err(|error| unusable(error.into()))?;
        let mut checker = Checker::new(read_head(path).map_err(unusable)?);
        let (bytes, torn) = lines(&file, &mut |line| {
            checker.line(line).map(drop).map_err(AuditError::from)
        })
        .map_err(|error| error.at(path))?;
        let head = checker
            .end()
            .map_err(|broken| AuditError::from(broken).at(path))?;
        if torn > 0 {
            file.set_len(bytes).map_err(unusable)?;
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            head,
            bytes,
            torn,
        })
    }

    /// Bytes that were cut off when it was opened: an entry that was never acknowledged.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Append an entry, which is JSON, and wait until the disk has it. Blocks.
    ///
    /// # Errors
    /// When it cannot be written. Then nothing of it is there.
    pub(super) fn append(&mut self, entry: &str) -> Result<AuditHead, AuditError> {
        let (mut line, head) = seal(&self.head, entry);
        line.push('\n');
        let mut write = || {
            self.file.write_all(line.as_bytes())?;
            self.file.sync_data()?;
            write_head(&self.path, &head)
        };
        if let Err(error) = write() {
            // Half a line would break the chain for those that come later.
            let _ = self.file.set_len(self.bytes);
            return Err(AuditError::unusable(&self.path, error));
        }
        self.bytes += line.len() as u64;
        self.head = head.clone();
        Ok(head)
    }
}

/// Read a log and check it; `each` gets every entry. Blocks.
///
/// # Errors
/// When it cannot be read, or its chain is broken or does not hold `known`.
pub fn read_file(
    path: &Path,
    known: Option<AuditHead>,
    each: &mut dyn FnMut(&str),
) -> Result<AuditHead, AuditError> {
    let unusable = |source| AuditError::unusable(path, source);
    let file = File::open(path).map_err(unusable)?;
    let noted = read_head(path).map_err(unusable)?;
    let mut checker = Checker::new(noted);
    let mut second = Checker::new(known);
    let read = lines(&file, &mut |line| {
        each(checker.line(line)?);
        second.line(line)?;
        Ok(())
    });
    read.map_err(|error| error.at(path))?;
    let ended = second.end().and_then(|_| checker.end());
    ended.map_err(|broken| AuditError::from(broken).at(path))
}

/// Read all lines. Returns the bytes of those that are whole, and of what stands behind them.
fn lines(
    file: &File,
    each: &mut dyn FnMut(&str) -> Result<(), AuditError>,
) -> Result<(u64, u64), AuditError> {
    let mut reader = BufReader::new(file);
    let mut whole = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut one = reader.by_ref().take(MAX_AUDIT_LINE_BYTES as u64);
        let read = one.read_until(b'\n', &mut line).map_err(AuditError::Read)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return Ok((whole, read as u64));
        }
        let text = std::str::from_utf8(&line).unwrap_or_default();
        each(text)?;
        whole += read as u64;
    }
}

fn head_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".head");
    PathBuf::from(name)
}

/// The head that was noted last; `None` if there is no note. One that cannot be read counts as a head that nothing meets.
fn read_head(path: &Path) -> io::Result<Option<AuditHead>> {
    match std::fs::read_to_string(head_path(path)) {
        Ok(text) => Ok(Some(text.trim().parse().map_err(io::Error::other)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Note the head, whole or not at all. A crash may leave the one before, which the log holds too.
fn write_head(path: &Path, head: &AuditHead) -> io::Result<()> {
    let noted = head_path(path);
    let mut beside = noted.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    writeln!(file, "{head}")?;
    file.sync_data()?;
    std::fs::rename(beside, noted)
}
