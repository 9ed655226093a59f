//! Several hosts at one database.

use std::sync::Arc;
use std::time::Duration;

use mortise_test_support::postgres::Postgres;
use tokio_postgres::config::SslMode;

use super::*;
use crate::record::SERVER;

fn config(url: &str) -> PostgresConfig {
    PostgresConfig::new(url, None, [64 << 20, 16 << 20, 1000]).expect("an address")
}

async fn host(url: &str) -> PostgresStore {
    PostgresStore::open(&config(url)).await.expect("opens")
}

fn record(kind: RecordKind, id: &str, open: bool, body: &str) -> Record {
    Record {
        key: Key::new(&Arc::from("tenant a"), kind, id),
        created: 1,
        expires: None,
        open,
        body: body.as_bytes().to_vec(),
    }
}

fn ids(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| &*record.key.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_hosts_that_start_at_once_make_the_tables_once() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let url = server.database("together");
    let opened = (0..6).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { host(&url).await })
    });
    let mut hosts = Vec::new();
    for opened in opened.collect::<Vec<_>>() {
        hosts.push(opened.await.expect("no panic"));
    }
    let put = Change::Put(record(RecordKind::Conversation, "c1", false, "{}"));
    hosts[0].commit(vec![put]).await.expect("written");
    let key = record(RecordKind::Conversation, "c1", false, "").key;
    for host in &hosts {
        assert!(host.get(key.clone()).await.expect("read").is_some());
    }
    let (report, _) = check_database(&config(&url)).await.expect("whole");
    assert_eq!(report.records, [(RecordKind::Conversation, 1)]);
    assert_eq!((report.version, report.owners), (schema::known(), 1));
    server.ask("together", "UPDATE mortise.usage SET bytes = bytes + 1");
    let wrong = check_database(&config(&url))
        .await
        .expect_err("a wrong sum");
    assert!(wrong.to_string().contains("sums of 1 owners"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_tables_of_others_and_later_ones_are_refused() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let url = server.database("foreign");
    let none = check_database(&config(&url)).await;
    assert!(matches!(none, Err(OpenError::NoTables(_))), "{none:?}");
    server.ask(
        "foreign",
        "CREATE SCHEMA mortise; CREATE TABLE mortise.t (x int)",
    );
    let refused = PostgresStore::open(&config(&url)).await;
    assert!(matches!(refused, Err(OpenError::ForeignSchema(_))));
    let url = server.database("newer");
    let running = host(&url).await;
    server.ask("newer", "UPDATE mortise.meta SET version = 77");
    let refused = PostgresStore::open(&config(&url)).await;
    let newer = |error: &OpenError| matches!(error, OpenError::TooNew { found: 77, .. });
    assert!(refused.as_ref().is_err_and(newer));
    // A server that runs makes no new connection to tables that it does not know.
    running.inner.pool.forget();
    let read = running.unfinished(RecordKind::Batch).await;
    assert!(matches!(&read, Err(StoreError::Unavailable(why)) if why.contains("version 77")));
    // What the server itself refuses is told at once.
    let url = url.replace("newer", "no_such_database");
    let refused = PostgresStore::open(&config(&url))
        .await
        .expect_err("refused");
    assert!(refused.to_string().contains("does not exist"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_open_work_belongs_to_one_host_until_that_is_gone() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let url = server.database("work");
    let (one, other) = (host(&url).await, host(&url).await);
    let open = |body: &str| record(RecordKind::Batch, "b1", true, body);
    let put = Change::Put(open("begun"));
    one.commit(vec![put]).await.expect("written");
    let mine = one.unfinished(RecordKind::Batch).await.expect("read");
    assert_eq!(ids(&mine), ["b1"]);
    assert_eq!(other.unfinished(RecordKind::Batch).await.expect("read"), []);
    let update = |body: &str| vec![Change::Update(open(body))];
    let refused = other.commit(update("stolen")).await;
    assert_eq!(refused, Err(StoreError::Conflict));
    one.commit(update("half")).await.expect("written");

    // A host that falls silent, and one that has been there for longer than that.
    let silent = format!(
        "UPDATE mortise.hosts SET seen = seen - interval '1 minute' WHERE id = {}",
        one.inner.author.host
    );
    server.ask("work", &silent);
    assert_eq!(other.unfinished(RecordKind::Batch).await.expect("read"), []);
    let steady = format!(
        "UPDATE mortise.hosts SET steady = steady - interval '1 minute' WHERE id = {}",
        other.inner.author.host
    );
    server.ask("work", &steady);
    let (first, second) = futures::future::join(
        other.unfinished(RecordKind::Batch),
        other.unfinished(RecordKind::Batch),
    )
    .await;
    assert_eq!(ids(&first.expect("read")), ["b1"]);
    assert_eq!(ids(&second.expect("read")), ["b1"]);
    // The former owner wakes up, and changes nothing any more.
    server.ask("work", "UPDATE mortise.hosts SET seen = clock_timestamp()");
    assert_eq!(one.commit(update("late")).await, Err(StoreError::Conflict));
    other.commit(update("whole")).await.expect("written");
    let found = one.get(open("").key).await.expect("read").expect("there");
    assert_eq!(found.body, b"whole");
    // A host that leaves in order is waited for by nobody.
    other.leave().await.expect("left");
    let taken = one.unfinished(RecordKind::Batch).await.expect("read");
    assert_eq!(ids(&taken), ["b1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_what_is_made_at_once_is_made_by_one() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let url = server.database("once");
    let hosts = [host(&url).await, host(&url).await];
    for owner in ["tenant a", SERVER] {
        for number in 0..20 {
            let create = |body: &str| {
                let mut record = record(RecordKind::Idempotency, &number.to_string(), false, body);
                record.key.owner = Arc::from(owner);
                vec![Change::Create(record)]
            };
            let made = futures::future::join(
                hosts[0].commit(create("one")),
                hosts[1].commit(create("other")),
            );
            let made: [Result<(), StoreError>; 2] = made.await.into();
            let conflict = Err(StoreError::Conflict);
            assert!(
                made.contains(&Ok(())) && made.contains(&conflict),
                "{made:?}"
            );
        }
    }
    // What a host has left open is made anew by another.
    let open = || {
        vec![Change::Create(record(
            RecordKind::Idempotency,
            "left",
            true,
            "",
        ))]
    };
    hosts[0].commit(open()).await.expect("written");
    assert_eq!(hosts[1].commit(open()).await, Err(StoreError::Conflict));
    assert_eq!(hosts[0].commit(open()).await, Err(StoreError::Conflict));
    hosts[0].leave().await.expect("left");
    hosts[1].commit(open()).await.expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_a_lost_database_is_an_error_and_comes_back_by_itself() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let url = server.database("lost");
    let store = host(&url).await;
    let owner = Arc::from("tenant a");
    let put = |id: &str| vec![Change::Put(record(RecordKind::Response, id, false, "{}"))];
    store.promise(&owner).await.expect("there is room");
    store.commit(put("r1")).await.expect("written");
    server.end();
    let lost = |error: &StoreError| matches!(error, StoreError::Unavailable(_));
    assert!(store.promise(&owner).await.is_err_and(|error| lost(&error)));
    assert!(
        store
            .commit(put("r2"))
            .await
            .is_err_and(|error| lost(&error))
    );
    server.begin();
    let mut attempts = 0;
    while store.promise(&owner).await.is_err() {
        attempts += 1;
        assert!(attempts < 600, "it does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    store.commit(put("r3")).await.expect("written");
    let page = Page {
        after: None,
        limit: 9,
        ascending: true,
    };
    let found = store.list(&owner, RecordKind::Response, page, None).await;
    assert_eq!(ids(&found.expect("read").entries), ["r1", "r3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_is_swept_and_all_of_it_has_a_bound() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    let url = server.database("bounds");
    let small = PostgresConfig::new(&url, None, [1 << 20, 16 << 20, 1000]).expect("an address");
    let store = PostgresStore::open(&small).await.expect("opens");
    let old = |id: &str| Record {
        expires: Some(1),
        ..record(RecordKind::Response, id, false, "x")
    };
    let changes = vec![Change::Put(old("r1")), Change::Put(old("r2"))];
    store.commit(changes).await.expect("written");
    let swept = store
        .inner
        .with(async |lent| commit::sweep(&mut lent.client).await);
    assert_eq!(swept.await, Ok(2));
    assert_eq!(
        server.ask("bounds", "SELECT count(*) FROM mortise.usage"),
        "0"
    );
    let put = |id: &str, bytes: usize| {
        vec![Change::Put(record(
            RecordKind::Response,
            id,
            false,
            &"x".repeat(bytes),
        ))]
    };
    store.commit(put("r3", 900 << 10)).await.expect("written");
    assert_eq!(
        store.commit(put("r4", 200 << 10)).await,
        Err(StoreError::Full)
    );
    let long = store.commit(put(&"i".repeat(600), 1)).await;
    assert!(matches!(long, Err(StoreError::TooLarge { .. })));
    store
        .promise(&Arc::from("tenant b"))
        .await
        .expect("there is room");
}

#[test]
fn feature_z8_addresses_are_checked_and_tell_no_secret() {
    let sizes = [1, 1, 1];
    let of = |url: &str| PostgresConfig::new(url, None, sizes);
    let config = of("postgres://me:hunter2@db.example/state").expect("an address");
    let shown = format!("{config:?} {}", config.place());
    assert!(
        shown.contains("state on db.example") && !shown.contains("hunter2"),
        "{shown}"
    );
    let mode = |url: &str| of(url).expect("an address").parts().0.get_ssl_mode();
    assert_eq!(mode("postgres://me@db.example/state"), SslMode::Require);
    assert_eq!(mode("postgres://me@127.0.0.1/state"), SslMode::Prefer);
    let plain = mode("postgres://me@db.example/state?sslmode=disable");
    assert_eq!(plain, SslMode::Disable);
    let checked = mode("postgres://me@127.0.0.1/state?sslmode=verify-full&application_name=a");
    assert_eq!(checked, SslMode::Require);
    for (url, problem) in [
        (
            "postgres://me@db.example/state?sslmode=verify-ca",
            "sslmode",
        ),
        ("mysql://me@db.example/state", "postgres://"),
        ("postgres://me@/state", "host"),
        ("postgres://db.example/state", "user"),
        ("postgres://me@db.example/state?sslmode=always", "sslmode"),
    ] {
        let refused = of(url).expect_err(url).to_string();
        assert!(refused.contains(problem), "{url}: {refused}");
    }
    assert!(PostgresConfig::new("postgres://me@db/s", Some("none"), sizes).is_err());
}
