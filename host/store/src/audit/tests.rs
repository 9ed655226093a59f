//! Logs that somebody has been at.

use std::path::Path;
use std::sync::Arc;

use super::chain::BrokenChain;
use super::{AuditError, AuditFile, AuditHead, AuditHomes, AuditLog, read_file, read_store};
use crate::limits::MAX_AUDIT_ENTRY_BYTES;
use crate::{SqliteStore, StoreConfig};

fn entry(number: u32) -> String {
    format!("{{\"action\":\"test\",\"times\":{number}}}")
}

async fn in_file(path: &Path, entries: u32) -> AuditHead {
    let homes = AuditHomes {
        file: Some(AuditFile::open(path).expect("opens")),
        ..AuditHomes::default()
    };
    let log = AuditLog::open(homes).await.expect("opens");
    let mut head = AuditHead::default();
    for number in 0..entries {
        head = log.append(entry(number)).await.expect("written");
    }
    head
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("read");
    text.lines().map(str::to_owned).collect()
}

fn write(path: &Path, lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).expect("write");
}

fn broken(path: &Path) -> BrokenChain {
    match read_file(path, None, &mut |_| {}) {
        Err(AuditError::BrokenAt { broken, .. }) => broken,
        other => panic!("{other:?}"),
    }
}

/// A line of its own making, with the right hash.
fn forged(number: u64, previous: &str, entry: &str) -> String {
    let head = AuditHead {
        number: number - 1,
        hash: previous.to_owned(),
    };
    super::chain::seal(&head, entry).0
}

#[tokio::test]
async fn feature_z7_a_changed_cut_or_reordered_entry_is_found() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("audit.jsonl");
    let head = in_file(&path, 5).await;
    let good = lines(&path);
    let mut read = Vec::new();
    let whole = read_file(&path, None, &mut |one| read.push(one.to_owned()));
    assert_eq!(whole.expect("whole"), head);
    assert_eq!(read, (0..5).map(entry).collect::<Vec<_>>());

    let tampered = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = good.clone();
        change(&mut lines);
        write(&path, &lines);
        broken(&path)
    };
    let changed = |line, number| BrokenChain::Changed { line, number };
    let out_of_order = |line, number| BrokenChain::OutOfOrder {
        line,
        number,
        expected: line,
    };
    let say = |line: &mut String| *line = line.replace("\"times\":2", "\"times\":3");
    assert_eq!(tampered(&|lines| say(&mut lines[2])), changed(3, 3));
    assert_eq!(tampered(&|lines| drop(lines.remove(0))), out_of_order(1, 2));
    assert_eq!(tampered(&|lines| drop(lines.remove(2))), out_of_order(3, 4));
    assert_eq!(tampered(&|lines| lines.swap(1, 3)), out_of_order(2, 4));
    let twice = |lines: &mut Vec<String>| lines.insert(2, lines[1].clone());
    assert_eq!(tampered(&twice), out_of_order(3, 2));
    let cut = BrokenChain::Cut { last: 4, known: 5 };
    assert_eq!(tampered(&|lines| drop(lines.pop())), cut);
    let none = BrokenChain::Cut { last: 0, known: 5 };
    assert_eq!(tampered(&Vec::clear), none);
    assert_eq!(
        tampered(&|lines| lines[3] = "{}".to_owned()),
        BrokenChain::Malformed { line: 4 }
    );
    // With the right hash, but those behind it follow another.
    let previous = good[1].rsplit('"').nth(1).expect("a hash").to_owned();
    let forge = |lines: &mut Vec<String>| lines[2] = forged(3, &previous, "{}");
    assert_eq!(
        tampered(&forge),
        BrokenChain::Unlinked { line: 4, number: 4 }
    );
    // A chain that is sound in itself is not the one whose head was noted.
    let forge_end = |lines: &mut Vec<String>| {
        let previous = lines[3].rsplit('"').nth(1).expect("a hash").to_owned();
        lines[4] = forged(5, &previous, "{}");
    };
    assert_eq!(tampered(&forge_end), BrokenChain::Replaced { known: 5 });

    write(&path, &good);
    assert!(read_file(&path, Some(head), &mut |_| {}).is_ok());
}

#[tokio::test]
async fn feature_z7_a_log_made_anew_does_not_have_the_head_that_was_noted() {
    let folder = tempfile::tempdir().expect("make a folder");
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let noted = in_file(&old, 3).await;
    let homes = AuditHomes {
        file: Some(AuditFile::open(&new).expect("opens")),
        ..AuditHomes::default()
    };
    let log = AuditLog::open(homes).await.expect("opens");
    for _ in 0..3 {
        log.append("{}".to_owned()).await.expect("written");
    }
    assert!(read_file(&new, None, &mut |_| {}).is_ok());
    let error = read_file(&new, Some(noted), &mut |_| {}).expect_err("another log");
    assert!(error.to_string().contains("written anew"), "{error}");
}

#[tokio::test]
async fn feature_z7_a_log_goes_on_after_a_crash_and_not_when_it_is_broken() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("audit.jsonl");
    in_file(&path, 2).await;
    // A crash within a line, and one before the head was noted.
    let text = std::fs::read_to_string(&path).expect("read");
    let half = text.lines().next().expect("a line");
    std::fs::write(&path, format!("{text}{}", &half[..40])).expect("write");
    let opened = AuditFile::open(&path).expect("opens");
    assert_eq!(opened.torn(), 40);
    drop(opened);
    let noted = folder.path().join("audit.jsonl.head");
    let before = std::fs::read(&noted).expect("read");
    assert_eq!(in_file(&path, 2).await.number, 4);
    std::fs::write(&noted, before).expect("write");
    assert_eq!(in_file(&path, 1).await.number, 5);
    // Two servers do not write to one file.
    let first = AuditFile::open(&path).expect("opens");
    assert!(AuditFile::open(&path).is_err());
    drop(first);

    let mut changed = lines(&path);
    changed.remove(1);
    write(&path, &changed);
    let error = AuditFile::open(&path).expect_err("broken");
    assert!(matches!(error, AuditError::BrokenAt { .. }), "{error}");
}

#[tokio::test]
async fn feature_z7_a_log_in_the_store_is_chained_as_well() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let config = StoreConfig {
        path: Some(path.clone()),
        max_bytes: 1 << 24,
        owner_max_bytes: 1 << 22,
        owner_max_records: 100,
        sync_answers: false,
    };
    let mut head = AuditHead::default();
    for _ in 0..2 {
        // Opened again, it goes on.
        let homes = AuditHomes {
            file: None,
            store: Some(Arc::new(SqliteStore::open(&config).expect("opens"))),
        };
        let log = AuditLog::open(homes).await.expect("opens");
        for number in 0..3 {
            head = log.append(entry(number)).await.expect("written");
        }
    }
    let mut count = 0;
    let whole = read_store(&path, Some(head.clone()), &mut |_| count += 1);
    assert_eq!((whole.expect("whole"), count), (head, 6));
    for (statement, problem) in [
        (
            "UPDATE items SET body = CAST(replace(CAST(body AS TEXT), 'test', 'best') AS BLOB) WHERE id LIKE '%4'",
            "changed",
        ),
        ("DELETE FROM items WHERE id LIKE '%2'", "taken out"),
        ("DELETE FROM items WHERE id LIKE '%6'", "cut off"),
        (
            "UPDATE items SET seq = seq + 100 WHERE id LIKE '%2'",
            "put elsewhere",
        ),
    ] {
        let copy = folder.path().join("copy.db");
        let _ = std::fs::remove_file(&copy);
        crate::backup(&path, &copy).expect("copied");
        let connection = rusqlite::Connection::open(&copy).expect("opens");
        connection.execute_batch(statement).expect("tampered with");
        drop(connection);
        let error = read_store(&copy, None, &mut |_| {}).expect_err(statement);
        assert!(error.to_string().contains(problem), "{statement}: {error}");
    }
}

#[tokio::test]
async fn what_cannot_be_written_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("audit.jsonl");
    let homes = AuditHomes {
        file: Some(AuditFile::open(&path).expect("opens")),
        ..AuditHomes::default()
    };
    let log = AuditLog::open(homes).await.expect("opens");
    log.append(entry(1)).await.expect("written");
    // The head cannot be noted any more.
    std::fs::create_dir(folder.path().join("audit.jsonl.head.new")).expect("make a folder");
    assert!(log.append(entry(2)).await.is_err());
    assert_eq!(lines(&path).len(), 1);
    let long = format!("\"{}\"", "x".repeat(MAX_AUDIT_ENTRY_BYTES));
    assert!(matches!(
        log.append(long).await,
        Err(AuditError::TooLarge(_))
    ));
    std::fs::remove_dir(folder.path().join("audit.jsonl.head.new")).expect("remove it");
    assert_eq!(log.append(entry(3)).await.expect("written").number, 2);
    assert!(read_file(&path, None, &mut |_| {}).is_ok());
}
