//! Ledger of money: one JSON line for each reservation and for its end, appended to a file.
//!
//! Lines pass through a bounded queue to a task that writes on a thread that may block, so that no request waits for the
//! disk, unless the ledger is required: then a request goes on when its reservation is in the file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::limits::{MAX_LEDGER_QUEUE_BYTES, MAX_LEDGER_TAIL_BYTES};

/// Failure to open a ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file cannot be read or written.
    #[error("the ledger {} cannot be opened", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another process has the file.
    #[error("the ledger {} belongs to another process", .0.display())]
    Taken(PathBuf),
}

/// Kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerEntry {
    /// An amount was reserved for a request.
    Reserved,
    /// The request was charged, and what was left was released.
    Settled,
    /// The request cost nothing, and all was released.
    Released,
    /// The request failed. What it is charged for is what was generated until then.
    Failed,
}

impl LedgerEntry {
    fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Settled => "settled",
            Self::Released => "released",
            Self::Failed => "failed",
        }
    }
}

/// The ledger of a server.
pub struct MoneyLedger {
    path: PathBuf,
    required: bool,
    /// Beginning of the names of this process's reservations.
    start: u64,
    next: AtomicU64,
    queue: Mutex<Queue>,
    file: Mutex<LedgerFile>,
}

#[derive(Default)]
struct Queue {
    lines: Vec<Line>,
    bytes: usize,
    /// A task writes, and takes what comes meanwhile.
    writing: bool,
    lost: u64,
}

struct Line {
    text: String,
    reservation: String,
    opens: bool,
    /// Told whether it was written.
    written: Option<oneshot::Sender<bool>>,
}

struct LedgerFile {
    /// `None` after a failure, until it can be opened again.
    file: Option<File>,
    /// Reservations without an end, with their lines.
    open: BTreeMap<String, String>,
    failing: bool,
}

impl MoneyLedger {
    /// Open a ledger, and go on where it ends. A last line that a kill tore is removed, and reservations that never ended are
    /// said to be abandoned. Blocks.
    ///
    /// # Errors
    /// When the file cannot be had, or another process has it.
    pub fn open(path: &Path, required: bool) -> Result<Arc<Self>, LedgerError> {
        let failed = |source| LedgerError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = opened(path).map_err(failed)?;
        if file.try_lock().is_err() {
            return Err(LedgerError::Taken(path.to_owned()));
        }
        let abandoned = go_on(&mut file).map_err(failed)?;
        if abandoned > 0 {
            tracing::warn!(
                abandoned,
                "requests had not ended when the server did; the ledger says so, and their budgets keep what was reserved"
            );
        }
        Ok(Arc::new(Self {
            path: path.to_owned(),
            required,
            start: now_ms(),
            next: AtomicU64::new(0),
            queue: Mutex::default(),
            file: Mutex::new(LedgerFile {
                file: Some(file),
                open: BTreeMap::new(),
                failing: false,
            }),
        }))
    }

    /// Requests are refused whose reservations cannot be written.
    pub(crate) fn is_required(&self) -> bool {
        self.required
    }

    /// Name of a new reservation.
    pub(crate) fn name(&self) -> String {
        format!("{:x}-{}", self.start, self.next.fetch_add(1, Relaxed))
    }

    /// Append an entry about a reservation. The answer comes when it was written, or could not be.
    pub(crate) fn append(
        self: &Arc<Self>,
        entry: LedgerEntry,
        reservation: &str,
        fields: Value,
        runtime: &Handle,
    ) -> oneshot::Receiver<bool> {
        let (sender, written) = oneshot::channel();
        let text = line(entry.name(), reservation, fields);
        let mut queue = self.queue();
        if queue.bytes + text.len() > MAX_LEDGER_QUEUE_BYTES {
            queue.lost += 1;
            // The receiver learns of it, since the sender is dropped.
            return written;
        }
        queue.bytes += text.len();
        queue.lines.push(Line {
            text,
            reservation: reservation.to_owned(),
            opens: entry == LedgerEntry::Reserved,
            written: Some(sender),
        });
        if !queue.writing {
            queue.writing = true;
            let this = Arc::clone(self);
            drop(runtime.spawn_blocking(move || this.write_queued()));
        }
        written
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Lines and numbers are valid whatever a panic interrupted.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write what is queued until nothing is.
    fn write_queued(&self) {
        let turn = WritingTurn(self);
        loop {
            let (mut lines, lost) = {
                let mut queue = self.queue();
                if queue.lines.is_empty() {
                    queue.writing = false;
                    std::mem::forget(turn);
                    return;
                }
                queue.bytes = 0;
                (
                    std::mem::take(&mut queue.lines),
                    std::mem::take(&mut queue.lost),
                )
            };
            let good = self.write(&lines, lost);
            for written in lines.iter_mut().filter_map(|line| line.written.take()) {
                let _ = written.send(good);
            }
        }
    }

    /// Write lines, all or none. Returns whether they are in the file.
    fn write(&self, lines: &[Line], lost: u64) -> bool {
        let mut ledger = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let result = ledger.append(&self.path, lines);
        match &result {
            Ok(()) if ledger.failing => tracing::info!("the ledger is written again"),
            Err(error) if !ledger.failing => {
                tracing::error!(%error, path = %self.path.display(), "the ledger cannot be written");
            }
            Ok(()) | Err(_) => {}
        }
        let lost = lost
            + if result.is_ok() {
                0
            } else {
                lines.len() as u64
            };
        if lost > 0 {
            tracing::error!(lost, "entries of the ledger are lost");
        }
        ledger.failing = result.is_err();
        result.is_ok()
    }
}

/// Gives the turn to write back if a panic ends it.
struct WritingTurn<'a>(&'a MoneyLedger);

impl Drop for WritingTurn<'_> {
    fn drop(&mut self) {
        self.0.queue().writing = false;
    }
}

impl LedgerFile {
    fn append(&mut self, path: &Path, lines: &[Line]) -> io::Result<()> {
        let carried = self.reopen(path)?;
        let Some(file) = &mut self.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let before = file.metadata()?.len();
        let own = lines.iter().map(|line| line.text.as_str());
        let text: String = carried.iter().map(String::as_str).chain(own).collect();
        if let Err(error) = file.write_all(text.as_bytes()) {
            // Half a line would hide the next one.
            let _ = file.set_len(before);
            self.file = None;
            return Err(error);
        }
        for line in lines {
            match line.opens {
                true => drop(
                    self.open
                        .insert(line.reservation.clone(), line.text.clone()),
                ),
                false => drop(self.open.remove(&line.reservation)),
            }
        }
        Ok(())
    }

    /// Open the file anew if it was moved away, as rotation does. Returns the lines that a new file begins with:
    /// reservations whose ends it will have.
    fn reopen(&mut self, path: &Path) -> io::Result<Vec<String>> {
        let named = std::fs::metadata(path).ok();
        let own = self.file.as_ref().and_then(|file| file.metadata().ok());
        let same = |one: &std::fs::Metadata, other: &std::fs::Metadata| {
            (one.dev(), one.ino()) == (other.dev(), other.ino())
        };
        match (&named, &own) {
            (Some(named), Some(own)) if same(named, own) => return Ok(Vec::new()),
            _ => {}
        }
        let file = opened(path)?;
        file.try_lock()?;
        let fresh = file.metadata()?.len() == 0;
        self.file = Some(file);
        Ok(match fresh {
            true => self.open.values().map(|line| carried(line)).collect(),
            false => Vec::new(),
        })
    }
}

fn opened(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Remove a torn line from the end of a file, and append that reservations without an end are abandoned. Returns how many.
fn go_on(file: &mut File) -> io::Result<usize> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(MAX_LEDGER_TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    io::Read::by_ref(file)
        .take(MAX_LEDGER_TAIL_BYTES)
        .read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(0, |at| at + 1);
    if whole < tail.len() {
        file.set_len(from + whole as u64)?;
        tracing::warn!("the last line of the ledger was torn, and is removed");
    }
    tail.truncate(whole);
    let mut open: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for line in tail.split(|byte| *byte == b'\n') {
        let Ok(Value::Object(entry)) = serde_json::from_slice(line) else {
            continue;
        };
        let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
        match (text("event").as_deref(), text("reservation")) {
            (Some("reserved"), Some(reservation)) => drop(open.insert(reservation, entry)),
            (Some(_), Some(reservation)) => drop(open.remove(&reservation)),
            _ => {}
        }
    }
    let abandoned = open.len();
    let lines = open.into_iter().map(|(reservation, mut entry)| {
        for name in ["time_ms", "event", "reservation", "carried"] {
            entry.remove(name);
        }
        line("abandoned", &reservation, Value::Object(entry))
    });
    file.write_all(lines.collect::<String>().as_bytes())?;
    Ok(abandoned)
}

/// A line with its line break.
fn line(event: &str, reservation: &str, fields: Value) -> String {
    let mut entry = json!({"time_ms": now_ms(), "event": event, "reservation": reservation});
    if let (Value::Object(entry), Value::Object(fields)) = (&mut entry, fields) {
        entry.extend(fields);
    }
    format!("{entry}\n")
}

/// The line of a reservation that began in an earlier file.
fn carried(line: &str) -> String {
    match serde_json::from_str(line) {
        Ok(Value::Object(mut entry)) => {
            entry.insert("carried".to_owned(), true.into());
            format!("{}\n", Value::Object(entry))
        }
        _ => String::new(),
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(path: &Path) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(path).expect("the ledger");
        let lines = text.lines().map(|line| {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            let text = |name: &str| entry[name].as_str().expect("a text").to_owned();
            (text("event"), text("reservation"))
        });
        lines.collect()
    }

    async fn add(ledger: &Arc<MoneyLedger>, entry: LedgerEntry, name: &str) -> bool {
        let written = ledger.append(
            entry,
            name,
            json!({"reserved_micros": 5}),
            &Handle::current(),
        );
        written.await.unwrap_or(false)
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = list.iter();
        owned
            .map(|(one, other)| ((*one).to_owned(), (*other).to_owned()))
            .collect()
    }

    #[tokio::test]
    async fn feature_b15_the_ledger_goes_on_behind_a_torn_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("money.jsonl");
        let ledger = MoneyLedger::open(&path, false).expect("a ledger");
        assert!(matches!(
            MoneyLedger::open(&path, false),
            Err(LedgerError::Taken(_))
        ));
        for (entry, name) in [
            (LedgerEntry::Reserved, "a"),
            (LedgerEntry::Reserved, "b"),
            (LedgerEntry::Settled, "a"),
        ] {
            assert!(add(&ledger, entry, name).await);
        }
        // The task that wrote may not have ended yet.
        while Arc::strong_count(&ledger) > 1 {
            tokio::task::yield_now().await;
        }
        drop(ledger);
        let torn = OpenOptions::new().append(true).open(&path);
        let torn = torn.and_then(|mut file| file.write_all(b"{\"event\": \"settled\", \"rese"));
        torn.expect("half a line");
        let ledger = MoneyLedger::open(&path, false).expect("a ledger");
        assert!(add(&ledger, LedgerEntry::Released, "c").await);
        let expected = [
            ("reserved", "a"),
            ("reserved", "b"),
            ("settled", "a"),
            ("abandoned", "b"),
            ("released", "c"),
        ];
        assert_eq!(events(&path), pairs(&expected));
    }

    #[tokio::test]
    async fn a_ledger_that_is_moved_away_goes_on_in_a_new_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("m.jsonl"), folder.path().join("m.1"));
        let ledger = MoneyLedger::open(&path, false).expect("a ledger");
        assert!(add(&ledger, LedgerEntry::Reserved, "a").await);
        assert!(add(&ledger, LedgerEntry::Reserved, "b").await);
        assert!(add(&ledger, LedgerEntry::Settled, "b").await);
        std::fs::rename(&path, &old).expect("rotation");
        assert!(add(&ledger, LedgerEntry::Settled, "a").await);
        assert_eq!(events(&old).len(), 3);
        assert_eq!(events(&path), pairs(&[("reserved", "a"), ("settled", "a")]));
        let text = std::fs::read_to_string(&path).expect("the ledger");
        assert!(
            text.lines()
                .next()
                .is_some_and(|line| line.contains("\"carried\":true"))
        );
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sub").join("m.jsonl");
        assert!(MoneyLedger::open(&path, true).is_err());
        std::fs::create_dir(folder.path().join("sub")).expect("a folder");
        let ledger = MoneyLedger::open(&path, true).expect("a ledger");
        std::fs::remove_dir_all(folder.path().join("sub")).expect("remove it");
        assert!(!add(&ledger, LedgerEntry::Reserved, "a").await);
        std::fs::create_dir(folder.path().join("sub")).expect("a folder");
        assert!(
            add(&ledger, LedgerEntry::Reserved, "b").await,
            "it comes back"
        );
    }
}
