use std::path::Path;
use std::sync::Arc;

use mortise_test_support::postgres::Postgres;

use super::*;

fn config(path: Option<&Path>) -> StoreConfig {
    StoreConfig {
        path: path.map(Path::to_owned),
        max_bytes: 64 << 20,
        owner_max_bytes: 1 << 20,
        owner_max_records: 100,
        sync_answers: false,
    }
}

fn owner(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn record(owner: &Arc<str>, id: &str, body: &str) -> Record {
    Record {
        key: Key::new(owner, RecordKind::Response, id),
        created: 1,
        expires: None,
        open: false,
        body: body.as_bytes().to_vec(),
    }
}

fn items(ids: &[&str]) -> Vec<Item> {
    let item = |id: &&str| Item {
        id: (*id).to_owned(),
        body: id.as_bytes().to_vec(),
    };
    ids.iter().map(item).collect()
}

fn page(after: Option<&str>, limit: usize, ascending: bool) -> Page {
    Page {
        after: after.map(str::to_owned),
        limit,
        ascending,
    }
}

fn ids(listing: RecordPage<Record>) -> (Vec<String>, bool) {
    let ids = listing.entries.into_iter().map(|record| record.key.id);
    (ids.collect(), listing.more)
}

/// All homes of a store do the same: memory, a file, and a database where PostgreSQL is installed.
async fn with_all<F: Future<Output = ()>>(name: &str, check: impl Fn(Arc<dyn Store>) -> F) {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    for path in [None, Some(path.as_path())] {
        let store = SqliteStore::open(&config(path)).expect("open a store");
        check(Arc::new(store)).await;
    }
    with_database(name, check).await;
}

/// Homes in which what is written stays.
async fn with_lasting<F: Future<Output = ()>>(name: &str, check: impl Fn(Arc<dyn Store>) -> F) {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let store = SqliteStore::open(&config(Some(&path))).expect("open a store");
    check(Arc::new(store)).await;
    with_database(name, check).await;
}

async fn with_database<F: Future<Output = ()>>(name: &str, check: impl Fn(Arc<dyn Store>) -> F) {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let store = PostgresStore::open(&database(&server.database(name))).await;
    check(Arc::new(store.expect("open a store"))).await;
}

fn database(url: &str) -> PostgresConfig {
    PostgresConfig::new(url, None, [64 << 20, 1 << 20, 100]).expect("an address")
}

#[tokio::test]
async fn owners_see_what_is_theirs_in_order() {
    with_all("in_order", |store| async move {
        let (one, other) = (owner("tenant a"), owner("tenant b"));
        for id in ["r1", "r2", "r3"] {
            let put = Change::Put(record(&one, id, id));
            store.commit(vec![put]).await.expect("written");
        }
        // Written again, it keeps its place.
        store
            .commit(vec![Change::Put(record(&one, "r1", "new"))])
            .await
            .expect("written");
        let list = |owner: &Arc<str>, page| store.list(owner, RecordKind::Response, page, None);
        let found = list(&one, page(None, 2, true)).await.expect("read");
        assert_eq!(ids(found), (vec!["r1".to_owned(), "r2".to_owned()], true));
        let found = list(&one, page(Some("r3"), 2, false)).await.expect("read");
        assert_eq!(ids(found), (vec!["r2".to_owned(), "r1".to_owned()], false));
        assert_eq!(
            list(&one, page(Some("r9"), 2, true)).await,
            Err(StoreError::NotFound)
        );
        assert_eq!(
            list(&other, page(None, 2, true))
                .await
                .expect("read")
                .entries,
            []
        );
        let put = Change::Put(record(&other, "of another", ""));
        store.commit(vec![put]).await.expect("written");
        let owners = store.owners(RecordKind::Response).await.expect("read");
        assert_eq!(owners, [Arc::clone(&one), Arc::clone(&other)]);
        let owners = store.owners(RecordKind::VectorStore).await.expect("read");
        assert!(owners.is_empty(), "{owners:?}");
        let key = |owner| Key::new(owner, RecordKind::Response, "r1");
        assert_eq!(store.get(key(&other)).await.expect("read"), None);
        let found = store.get(key(&one)).await.expect("read").expect("there");
        assert_eq!(found.body, b"new");
        let filter: RecordFilter = Box::new(|record| record.body.ends_with(b"3"));
        let found = store.list(
            &one,
            RecordKind::Response,
            page(None, 5, true),
            Some(filter),
        );
        assert_eq!(
            ids(found.await.expect("read")),
            (vec!["r3".to_owned()], false)
        );
    })
    .await;
}

#[tokio::test]
async fn a_commit_happens_whole_or_not_at_all() {
    with_all("whole", |store| async move {
        let one = owner("a");
        let missing = Key::new(&one, RecordKind::Conversation, "none");
        let changes = vec![
            Change::Put(record(&one, "r1", "x")),
            Change::Append {
                parent: missing,
                items: items(&["i1"]),
            },
        ];
        assert_eq!(store.commit(changes).await, Err(StoreError::NotFound));
        let key = Key::new(&one, RecordKind::Response, "r1");
        assert_eq!(store.get(key.clone()).await.expect("read"), None);
        let update = vec![Change::Update(record(&one, "r1", "x"))];
        assert_eq!(store.commit(update).await, Err(StoreError::NotFound));

        let append = |ids: &[&str]| Change::Append {
            parent: key.clone(),
            items: items(ids),
        };
        let changes = vec![Change::Put(record(&one, "r1", "x")), append(&["i1", "i2"])];
        store.commit(changes).await.expect("written");
        // Said twice, it is there once.
        store
            .commit(vec![append(&["i2", "i3"])])
            .await
            .expect("written");
        let found = store
            .items(key.clone(), page(None, 10, true))
            .await
            .expect("read");
        assert_eq!(found.entries, items(&["i1", "i2", "i3"]));
        let found = store
            .items(key.clone(), page(Some("i3"), 1, false))
            .await
            .expect("read");
        assert_eq!((found.entries, found.more), (items(&["i2"]), true));
        let delete = Change::DeleteItem {
            parent: key.clone(),
            id: "i2".to_owned(),
        };
        store.commit(vec![delete]).await.expect("written");
        assert_eq!(
            store
                .item(key.clone(), "i2".to_owned())
                .await
                .expect("read"),
            None
        );
        store
            .commit(vec![Change::Delete(key.clone())])
            .await
            .expect("written");
        assert_eq!(
            store.items(key, page(None, 1, true)).await,
            Err(StoreError::NotFound)
        );
    })
    .await;
}

#[tokio::test]
async fn quotas_hold_and_deleting_makes_room() {
    with_lasting("quotas", |store| async move {
        let one = owner("a");
        let large = "x".repeat(600 << 10);
        let put = |id: &str| vec![Change::Put(record(&one, id, &large))];
        store.commit(put("r1")).await.expect("written");
        let quota = |limit, unit| Err(StoreError::Quota { limit, unit });
        assert_eq!(store.commit(put("r2")).await, quota(1 << 20, "bytes"));
        store.promise(&one).await.expect("there is room");
        let delete = Change::Delete(Key::new(&one, RecordKind::Response, "r1"));
        store.commit(vec![delete]).await.expect("written");
        store.commit(put("r2")).await.expect("written");
        let many = (0..99).map(|id| Change::Put(record(&one, &format!("s{id}"), "")));
        store.commit(many.collect()).await.expect("written");
        assert_eq!(store.promise(&one).await, quota(100, "records"));
        let more = vec![Change::Put(record(&one, "t", ""))];
        assert_eq!(store.commit(more).await, quota(100, "records"));
        // Others are not concerned.
        store
            .commit(vec![Change::Put(record(&owner("b"), "t", ""))])
            .await
            .expect("written");
    })
    .await;
}

#[tokio::test]
async fn in_memory_the_oldest_make_room() {
    let store = SqliteStore::open(&config(None)).expect("open a store");
    let one = owner("a");
    let large = "x".repeat(600 << 10);
    for id in ["r1", "r2", "r3"] {
        store.promise(&one).await.expect("there is room");
        let put = Change::Put(record(&one, id, &large));
        store.commit(vec![put]).await.expect("written");
    }
    let listing = store
        .list(&one, RecordKind::Response, page(None, 9, true), None)
        .await;
    assert_eq!(ids(listing.expect("read")), (vec!["r3".to_owned()], false));
    // What is larger than all that an owner may have is refused, and leaves nothing.
    let huge = Change::Put(record(&one, "r4", &"x".repeat(2 << 20)));
    let refused = store.commit(vec![huge]).await;
    assert!(matches!(refused, Err(StoreError::Quota { .. })));
}

#[tokio::test]
async fn in_memory_who_has_most_makes_room() {
    let store = SqliteStore::open(&StoreConfig {
        max_bytes: 2 << 20,
        owner_max_bytes: 2 << 20,
        ..config(None)
    });
    let store = store.expect("open a store");
    let (one, other) = (owner("a"), owner("b"));
    let small = Change::Put(record(&other, "r0", "small"));
    store.commit(vec![small]).await.expect("written");
    let large = "x".repeat(600 << 10);
    for id in ["r1", "r2", "r3"] {
        let put = Change::Put(record(&one, id, &large));
        store.commit(vec![put]).await.expect("written");
    }
    for (owner, left) in [(one, "r3"), (other, "r0")] {
        let listing = store
            .list(&owner, RecordKind::Response, page(None, 9, true), None)
            .await;
        assert_eq!(ids(listing.expect("read")), (vec![left.to_owned()], false));
    }
}

#[tokio::test]
async fn a_full_store_refuses_and_goes_on_when_there_is_room() {
    let limits = StoreConfig {
        max_bytes: 1 << 20,
        owner_max_bytes: 1 << 30,
        ..config(None)
    };
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let store = SqliteStore::open(&StoreConfig {
        path: Some(path),
        ..limits
    });
    let store = Arc::new(store.expect("open a store"));
    let one = owner("a");
    let large = "x".repeat(700 << 10);
    let put = |id: &str, body: &str| vec![Change::Put(record(&one, id, body))];
    store.commit(put("r1", &large)).await.expect("written");
    assert_eq!(store.commit(put("r2", &large)).await, Err(StoreError::Full));
    let small: Vec<_> = (0..20).map(|id| format!("s{id}")).collect();
    for id in &small {
        store.commit(put(id, id)).await.expect("written");
    }
    let delete = Change::Delete(Key::new(&one, RecordKind::Response, "r1"));
    store.commit(vec![delete]).await.expect("written");
    store.commit(put("r2", &large)).await.expect("written");
}

#[tokio::test]
async fn what_has_expired_is_gone() {
    with_all("expired", |store| async move {
        let one = owner("a");
        let old = Record {
            expires: Some(1),
            open: true,
            ..record(&one, "r1", "x")
        };
        let key = old.key.clone();
        let new = Record {
            open: true,
            ..record(&one, "r2", "y")
        };
        let changes = vec![Change::Put(old), Change::Put(new.clone())];
        store.commit(changes).await.expect("written");
        assert_eq!(store.get(key.clone()).await.expect("read"), None);
        assert_eq!(
            store.items(key, page(None, 1, true)).await,
            Err(StoreError::NotFound)
        );
        let found = store
            .list(&one, RecordKind::Response, page(None, 9, true), None)
            .await;
        assert_eq!(ids(found.expect("read")), (vec!["r2".to_owned()], false));
        assert_eq!(
            store.unfinished(RecordKind::Response).await.expect("read"),
            [new]
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_at_once_are_all_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let limits = StoreConfig {
        owner_max_records: 10_000,
        ..config(Some(&path))
    };
    let one = owner("a");
    {
        let store = Arc::new(SqliteStore::open(&limits).expect("open a store"));
        let writes = (0..300).map(|id| {
            let (store, put) = (
                Arc::clone(&store),
                Change::Put(record(&one, &format!("r{id}"), "x")),
            );
            tokio::spawn(async move { store.commit(vec![put]).await })
        });
        for write in writes.collect::<Vec<_>>() {
            write.await.expect("no panic").expect("written");
        }
        // One process writes.
        assert!(matches!(
            SqliteStore::open(&limits),
            Err(OpenError::InUse(_))
        ));
        assert!(matches!(vacuum(&path), Err(OpenError::InUse(_))));
        let copy = folder.path().join("copy.db");
        backup(&path, &copy).expect("copied");
        assert!(
            backup(&path, &copy).is_err(),
            "a file that is there is left alone"
        );
        assert_eq!(
            check(&copy).expect("whole").records,
            [(RecordKind::Response, 300)]
        );
    }
    // The writer's thread ends after its handle.
    let store = loop {
        match SqliteStore::open(&limits) {
            Ok(store) => break store,
            Err(OpenError::InUse(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let found = store
        .list(&one, RecordKind::Response, page(None, 1000, true), None)
        .await;
    assert_eq!(found.expect("read").entries.len(), 300);
    drop(store);
    // Processes that other tests start have the lock, too, until they run their own program.
    while let Err(error) = vacuum(&path) {
        assert!(matches!(error, OpenError::InUse(_)), "{error}");
        tokio::task::yield_now().await;
    }
    let report = check(&path).expect("whole");
    assert_eq!((report.version, report.owners, report.items), (1, 1, 0));
}

#[test]
fn files_of_others_and_damaged_ones_are_refused() {
    let folder = tempfile::tempdir().expect("make a folder");
    let opened = |name: &str| SqliteStore::open(&config(Some(&folder.path().join(name))));
    std::fs::write(folder.path().join("text.db"), "no database ".repeat(1000)).expect("write");
    assert!(matches!(opened("text.db"), Err(OpenError::Foreign(_))));
    let foreign = rusqlite::Connection::open(folder.path().join("foreign.db")).expect("open");
    foreign.execute_batch("CREATE TABLE t (x)").expect("made");
    assert!(matches!(opened("foreign.db"), Err(OpenError::Foreign(_))));
    let newer = folder.path().join("newer.db");
    drop(opened("newer.db").expect("made"));
    rusqlite::Connection::open(&newer)
        .and_then(|newer| newer.execute_batch("PRAGMA user_version = 77"))
        .expect("changed");
    assert!(matches!(
        opened("newer.db"),
        Err(OpenError::TooNew { found: 77, .. })
    ));
    assert!(matches!(
        opened("none/state.db"),
        Err(OpenError::Unusable { .. })
    ));
    let damaged = folder.path().join("damaged.db");
    drop(opened("damaged.db").expect("made"));
    let connection = rusqlite::Connection::open(&damaged).expect("open");
    let rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
        INSERT INTO records (owner, kind, id, created, open, body)
        SELECT 'o', 'response', 'r' || i, 1, 0, randomblob(2000) FROM n;
        PRAGMA wal_checkpoint(TRUNCATE);";
    connection.execute_batch(rows).expect("filled");
    drop(connection);
    let mut bytes = std::fs::read(&damaged).expect("read");
    for page in (8..bytes.len() / 4096).step_by(3) {
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    }
    std::fs::write(&damaged, bytes).expect("write");
    assert!(matches!(
        opened("damaged.db"),
        Err(OpenError::Damaged { .. })
    ));
    assert!(matches!(check(&damaged), Err(OpenError::Damaged { .. })));
}

#[tokio::test]
async fn feature_e28_content_is_read_piece_by_piece() {
    with_all("pieces", |store| async move {
        let owner = owner("tenant a");
        let parent = record(&owner, "file", "{}").key;
        let item = |id: &str, bytes: usize| Item {
            id: id.to_owned(),
            body: vec![b'x'; bytes],
        };
        let most = limits::MAX_PIECE_BYTES;
        let items = vec![
            item("a", most / 2),
            item("b", most / 2),
            item("c", 1),
            item("d", 2 * most),
            item("e", 1),
        ];
        let (key, put) = (parent.clone(), Change::Put(record(&owner, "file", "{}")));
        let append = Change::Append { parent, items };
        store.commit(vec![put, append]).await.expect("written");
        let mut after = None;
        for (expected, more) in [("ab", true), ("c", true), ("d", true), ("e", false)] {
            let found = store.pieces(key.clone(), after).await.expect("read");
            let ids: String = found.entries.iter().map(|item| &*item.id).collect();
            assert_eq!((&*ids, found.more), (expected, more));
            after = found.entries.last().map(|item| item.id.clone());
        }
        let absent = Key {
            id: "other".to_owned(),
            ..key
        };
        assert_eq!(store.pieces(absent, None).await, Err(StoreError::NotFound));
    })
    .await;
}

#[tokio::test]
async fn feature_z8_what_was_changed_meanwhile_is_not_written_over() {
    with_all("conditions", |store| async move {
        let one = owner("a");
        let create = |body: &str| vec![Change::Create(record(&one, "r1", body))];
        store.commit(create("1")).await.expect("written");
        assert_eq!(store.commit(create("2")).await, Err(StoreError::Conflict));
        let replace = |before: &str, body: &str| {
            vec![Change::Replace {
                record: record(&one, "r1", body),
                before: before.as_bytes().to_vec(),
            }]
        };
        store.commit(replace("1", "2")).await.expect("written");
        let late = store.commit(replace("1", "3")).await;
        assert_eq!(late, Err(StoreError::Conflict));
        let key = Key::new(&one, RecordKind::Response, "r1");
        let found = store.get(key.clone()).await.expect("read").expect("there");
        assert_eq!(found.body, b"2");
        store
            .commit(vec![Change::Delete(key)])
            .await
            .expect("written");
        let gone = store.commit(replace("2", "3")).await;
        assert_eq!(gone, Err(StoreError::Conflict));
        store.commit(create("4")).await.expect("written");
    })
    .await;
}

#[tokio::test]
async fn items_of_commits_at_once_have_one_order() {
    with_all("at_once", |store| async move {
        let one = owner("a");
        let put = Change::Put(record(&one, "r1", ""));
        let key = record(&one, "r1", "").key;
        store.commit(vec![put]).await.expect("written");
        let append = |number: usize| {
            let names: Vec<String> = (0..3).map(|part| format!("{number}-{part}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let parent = key.clone();
            store.commit(vec![Change::Append {
                parent,
                items: items(&names),
            }])
        };
        for written in futures::future::join_all((0..20).map(append)).await {
            written.expect("written");
        }
        let found = store.items(key.clone(), page(None, 100, true)).await;
        let found: Vec<String> = found
            .expect("read")
            .entries
            .into_iter()
            .map(|item| item.id)
            .collect();
        assert_eq!(found.len(), 60);
        for together in found.chunks(3) {
            let number = together[0].split('-').next().expect("a number");
            let expected: Vec<String> = (0..3).map(|part| format!("{number}-{part}")).collect();
            assert_eq!(together, expected);
        }
    })
    .await;
}
