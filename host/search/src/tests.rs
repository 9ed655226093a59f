//! One suite for all homes of the index: each answers what an index that is made of the same documents does, wherever those were
//! stored. Beside it, what only the database does.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_retrieval::{
    AttributeFilter, Attributes, Chunk, Document, Index, Weights, attributes_of,
};
use mortise_store::{
    Change, Item, Key, OpenError, PostgresConfig, PostgresStore, Record, RecordKind, SqliteStore,
    Store, StoreConfig,
};
use mortise_test_support::postgres::Postgres;
use serde_json::{Value, json};

use super::*;

mod random;

use random::Random;

const DIMENSIONS: usize = 24;

fn read(record: &Record) -> Option<(Document, IndexState)> {
    let body: Value = serde_json::from_slice(&record.body).ok()?;
    let (_, id) = record.key.id.split_once('/')?;
    let document = Document {
        id: id.to_owned(),
        name: body["name"].as_str()?.to_owned(),
        attributes: attributes(&body["attributes"]),
    };
    let state = match body["state"].as_str()? {
        "complete" => IndexState::Complete,
        "failed" => IndexState::Failed,
        _ => IndexState::UnderWay,
    };
    Some((document, state))
}

fn attributes(value: &Value) -> Attributes {
    attributes_of(value.as_object().expect("an object"), "attributes").expect("attributes")
}

/// A server: a store that others may share, and its index.
struct Server {
    store: Arc<dyn Store>,
    index: Box<dyn SearchIndex>,
}

/// Documents of spaces, as they are to be found.
type Known = BTreeMap<(String, String), Vec<(String, Value, Vec<Chunk>)>>;

impl Server {
    fn in_memory() -> Self {
        let config = StoreConfig {
            path: None,
            max_bytes: 64 << 20,
            owner_max_bytes: 64 << 20,
            owner_max_records: 1000,
            sync_answers: false,
        };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&config).expect("opens"));
        let index = Box::new(MemoryIndex::new(Arc::clone(&store), read));
        Self { store, index }
    }

    async fn at(url: &str, in_database: bool) -> Self {
        let config = config(url);
        let store = PostgresStore::open(&config).await.expect("opens");
        let passages = match in_database {
            true => Some(store.passages(&config).await.expect("passages")),
            false => None,
        };
        let store: Arc<dyn Store> = Arc::new(store);
        let of_index = Arc::clone(&store);
        let index: Box<dyn SearchIndex> = match passages {
            Some(passages) => Box::new(DatabaseIndex::new(of_index, passages, read)),
            None => Box::new(MemoryIndex::new(of_index, read)),
        };
        Self { store, index }
    }

    async fn commit(&self, space: &Key, mut changes: Vec<Change>) {
        if self.store.is_shared() {
            // Each has another body.
            static MARK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            let mark = MARK.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            changes.push(Change::Put(Record {
                key: revision_key(space),
                created: 1,
                expires: None,
                open: false,
                body: mark.to_string().into_bytes(),
            }));
        }
        self.store.commit(changes).await.expect("written");
    }

    /// Store a document; the index is not told.
    async fn put(
        &self,
        space: &Key,
        id: &str,
        state: &str,
        attributes: &Value,
        chunks: &[Chunk],
    ) -> Document {
        let record = record(space, id, state, attributes);
        let (document, _) = read(&record).expect("a document");
        let items = chunks.iter().enumerate().map(|(number, chunk)| Item {
            id: chunk_id(number),
            body: chunk.encode(),
        });
        let append = Change::Append {
            parent: record.key.clone(),
            items: items.collect(),
        };
        let changes = vec![
            Change::Delete(record.key.clone()),
            Change::Put(record),
            append,
        ];
        self.commit(space, changes).await;
        document
    }

    async fn tell(&self, space: &Key, change: DocumentChange) {
        self.index.changed(space, change).await.expect("taken up");
    }

    async fn found(&self, space: &Key, lookup: &Lookup) -> Vec<(String, u32, f32, f32)> {
        let found = self.index.search(space, lookup.clone()).await;
        let found = found.expect("found").into_iter();
        let found = found.map(|one| {
            assert_eq!(one.document.name, format!("{}.txt", one.document.id));
            (
                one.document.id,
                one.chunk.start / 10,
                one.score,
                one.similarity,
            )
        });
        found.collect()
    }
}

fn config(url: &str) -> PostgresConfig {
    PostgresConfig::new(url, None, [64 << 20, 64 << 20, 1000]).expect("an address")
}

fn record(space: &Key, id: &str, state: &str, attributes: &Value) -> Record {
    let body = json!({"name": format!("{id}.txt"), "attributes": attributes, "state": state});
    Record {
        key: crate::index::key_of(space, id),
        created: 1,
        expires: None,
        open: state == "under way",
        body: body.to_string().into_bytes(),
    }
}

fn space(owner: &str, id: &str) -> Key {
    Key::new(&Arc::from(owner), RecordKind::VectorStore, id)
}

/// Results that a search should have.
fn expected(known: &Known, space: &Key, lookup: &Lookup) -> Vec<(String, u32, f32, f32)> {
    let mut index = Index::new(lookup.vector.len());
    let of_space = known.get(&(space.owner.to_string(), space.id.clone()));
    for (id, of, chunks) in of_space.into_iter().flatten() {
        let document = Document {
            id: id.clone(),
            name: String::new(),
            attributes: attributes(of),
        };
        index.add(document, chunks.clone());
    }
    let hits = index.search(&lookup.query()).into_iter();
    hits.map(|hit| {
        (
            hit.document.id.clone(),
            hit.chunk,
            hit.score,
            hit.similarity,
        )
    })
    .collect()
}

/// Searches of all kinds. So many results are wanted that the whole order of an index in memory is exact.
fn lookups(random: &mut Random, filters: usize) -> Vec<Lookup> {
    let mut all = Vec::new();
    let kinds = [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.3, 0.9)];
    for (at, (meaning, words)) in kinds.into_iter().cycle().take(12 + filters).enumerate() {
        let filter = (at >= 4).then(|| random.filter(2));
        let filter =
            filter.map(|filter| AttributeFilter::of(&filter, "filters").expect("a filter"));
        let text = random.text(5);
        all.push(Lookup {
            text: text + " " + &"x".repeat(3000),
            vector: random.vector(DIMENSIONS),
            weights: Weights { meaning, words },
            most: 50,
            filter,
            least_similarity: (at % 3 == 1).then_some(0.125),
            diversity: (at % 5 == 2).then_some(0.6),
        });
    }
    all
}

async fn check(servers: &[&Server], known: &Known, spaces: &[Key], random: &mut Random) {
    let mut hits = 0;
    for lookup in lookups(random, 0) {
        for space in spaces {
            let expected = expected(known, space, &lookup);
            hits += expected.len();
            for server in servers {
                assert_eq!(server.found(space, &lookup).await, expected, "{lookup:?}");
            }
        }
    }
    assert!(hits > 100, "{hits} hits say little");
}

/// Scores of `bm25s`, similarities of numpy and their fusion, by `tests/retrieval/make_reference.py`.
async fn reference(server: &Server) {
    let text = include_str!("../../../tests/retrieval/reference.json");
    let reference: Value = serde_json::from_str(text).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let number = |value: &Value| value.as_f64().expect("a number");
    let vector = |value: &Value| -> Vec<f32> {
        let numbers = list(value).into_iter();
        numbers.map(|one| number(&one) as f32).collect()
    };
    let rows = list(&reference["rows"]);
    let chunks = rows.iter().zip(0u32..).map(|(row, at)| Chunk {
        start: 10 * at,
        end: 10 * at + 9,
        page: None,
        vector: vector(&row["vector"]),
        text: row["text"].as_str().expect("a text").to_owned(),
    });
    let (space, chunks) = (space("reference", "vs"), chunks.collect::<Vec<Chunk>>());
    server
        .put(&space, "all", "complete", &json!({}), &chunks)
        .await;
    for query in list(&reference["queries"]) {
        for (name, words) in [("meaning", 0.0), ("both", 1.0)] {
            let lookup = Lookup {
                text: query["text"].as_str().expect("a text").to_owned(),
                vector: vector(&query["vector"]),
                weights: Weights {
                    meaning: 1.0,
                    words,
                },
                most: 10,
                filter: None,
                least_similarity: None,
                diversity: None,
            };
            let (found, expected) = (server.found(&space, &lookup).await, list(&query[name]));
            assert_eq!(found.len(), expected.len());
            for ((_, chunk, score, _), one) in found.iter().zip(&expected) {
                let of = number(&one[1]);
                assert!((f64::from(*score) - of).abs() < 2e-4, "{score} {one}");
                // Of equal scores either may be first.
                let tied = expected
                    .iter()
                    .filter(|other| (number(&other[1]) - of).abs() < 2e-4);
                assert!(
                    one[0] == *chunk || tied.count() > 1,
                    "{name}: {chunk} {one}"
                );
            }
        }
    }
}

/// The suite for every home. Both servers are one where the store cannot be shared.
async fn suite(one: &Server, other: &Server) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut known = Known::new();
    // Two tenants, whose spaces have one name, and one whose name begins with another's.
    let spaces = [space("a", "vs"), space("b", "vs"), space("a", "vs~1")];
    for (at, of) in (0..66).zip(spaces.iter().cycle()) {
        let (id, attributes) = (format!("f{at}"), random.attributes());
        let mut chunks = random.chunks(DIMENSIONS);
        if at == 3 {
            // As a long number in a base of 64 is.
            chunks[0].text = format!("Word1 {}", "x".repeat(3000));
        }
        let document = one.put(of, &id, "complete", &attributes, &chunks).await;
        one.tell(of, DocumentChange::Added(document, chunks.clone()))
            .await;
        let key = (of.owner.to_string(), of.id.clone());
        known.entry(key).or_default().push((id, attributes, chunks));
    }
    for state in ["under way", "failed"] {
        let chunks = random.chunks(DIMENSIONS);
        one.put(&spaces[0], state, state, &json!({}), &chunks).await;
    }
    check(&[one, other], &known, &spaces, &mut random).await;

    let of_first = ("a".to_owned(), "vs".to_owned());
    let all = known.get_mut(&of_first).expect("documents");
    let (id, attributes, _) = &mut all[1];
    *attributes = json!({"x": 3, "y y": "a"});
    let changed = record(&spaces[0], id, "complete", attributes);
    let (document, _) = read(&changed).expect("a document");
    one.commit(&spaces[0], vec![Change::Update(changed)]).await;
    one.tell(&spaces[0], DocumentChange::Attributes(document))
        .await;
    // At once: whatever the other server knows is that of before.
    check(&[other, one], &known, &spaces[..1], &mut random).await;

    let all = known.get_mut(&of_first).expect("documents");
    let (id, ..) = all.remove(2);
    let gone = Change::Delete(crate::index::key_of(&spaces[0], &id));
    one.commit(&spaces[0], vec![gone]).await;
    one.tell(&spaces[0], DocumentChange::Removed(id)).await;
    check(&[other, one], &known, &spaces[..1], &mut random).await;

    let all = known.get_mut(&of_first).expect("documents");
    let (id, attributes, _) = all.remove(0);
    let chunks = random.chunks(DIMENSIONS);
    let again = one.put(&spaces[0], &id, "complete", &attributes, &chunks);
    let added = DocumentChange::Added(again.await, chunks.clone());
    one.tell(&spaces[0], added).await;
    all.push((id, attributes, chunks));
    check(&[other, one], &known, &spaces, &mut random).await;

    other_vectors(one, other, &mut random).await;
    reference(other).await;
}

/// Vectors of another model are made beside those that are searched, and have a space of their own.
async fn other_vectors(one: &Server, other: &Server, random: &mut Random) {
    let (old, new) = (space("c", "vs"), space("c", "vs~1"));
    let (mut known, mut all) = (Known::new(), Vec::new());
    for at in 0..12 {
        let (id, chunks) = (format!("f{at}"), random.chunks(DIMENSIONS));
        let document = one.put(&old, &id, "complete", &json!({}), &chunks).await;
        one.tell(&old, DocumentChange::Added(document, chunks.clone()))
            .await;
        all.push((id, json!({}), chunks));
    }
    known.insert(("c".to_owned(), "vs".to_owned()), all.clone());
    for (_, _, chunks) in &mut all {
        for chunk in chunks {
            chunk.vector = random.vector(2 * DIMENSIONS);
        }
    }
    for (id, attributes, chunks) in &all {
        one.put(&new, id, "complete", attributes, chunks).await;
        let lookup = &lookups(random, 0)[0];
        let found = other.found(&old, lookup).await;
        assert_eq!(found, expected(&known, &old, lookup));
    }
    one.index.prepare(&new).await.expect("made");
    known.insert(("c".to_owned(), "vs~1".to_owned()), all);
    let mut lookup = lookups(random, 0).remove(0);
    // Vectors of one model are not compared with those of another.
    assert_eq!(one.found(&new, &lookup).await, []);
    lookup.vector = random.vector(2 * DIMENSIONS);
    for server in [one, other] {
        let found = server.found(&new, &lookup).await;
        assert!(!found.is_empty());
        assert_eq!(found, expected(&known, &new, &lookup));
        assert_eq!(server.found(&old, &lookup).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_e30_an_index_in_memory_finds_what_is_in_a_store_in_memory() {
    let server = Server::in_memory();
    suite(&server, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_indexes_in_memory_find_what_is_in_a_shared_store() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("index_in_memory");
    suite(
        &Server::at(&url, false).await,
        &Server::at(&url, false).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_an_index_in_the_database_finds_the_same() {
    let Some(postgres) = Postgres::with_pgvector() else {
        return;
    };
    let url = postgres.database("index_in_database");
    suite(&Server::at(&url, true).await, &Server::at(&url, true).await).await;
    // What is removed leaves nothing behind.
    let left = "SELECT count(*) FROM (SELECT record FROM mortise.search_documents UNION
                SELECT record FROM mortise.search_passages UNION SELECT record FROM mortise.search_words) AS all_rows
                WHERE record NOT IN (SELECT seq FROM mortise.records)";
    assert_eq!(postgres.ask("index_in_database", left), "0");
    postgres.ask(
        "index_in_database",
        "DELETE FROM mortise.records WHERE kind = 'vector_store_file'",
    );
    let left = "SELECT (SELECT count(*) FROM mortise.search_documents) + (SELECT count(*) FROM mortise.search_passages)
                + (SELECT count(*) FROM mortise.search_words)";
    assert_eq!(postgres.ask("index_in_database", left), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_filters_admit_the_same_in_the_database() {
    let Some(postgres) = Postgres::with_pgvector() else {
        return;
    };
    let server = Server::at(&postgres.database("filters"), true).await;
    let (mut random, space) = (Random(0xD1B5_4A32_D192_ED03), space("a", "vs"));
    let (mut known, mut all) = (Known::new(), Vec::new());
    for at in 0..48 {
        let chunk = Chunk {
            start: 0,
            end: 1,
            page: None,
            vector: random.vector(DIMENSIONS),
            text: "word".to_owned(),
        };
        let (id, attributes) = (format!("f{at}"), random.attributes());
        let chunks = vec![chunk];
        server
            .put(&space, &id, "complete", &attributes, &chunks)
            .await;
        all.push((id, attributes, chunks));
    }
    known.insert(("a".to_owned(), "vs".to_owned()), all);
    let (mut some, mut none) = (0, 0);
    for lookup in lookups(&mut random, 300) {
        let lookup = Lookup {
            least_similarity: None,
            diversity: None,
            text: "word".to_owned(),
            ..lookup
        };
        let expected = expected(&known, &space, &lookup);
        some += usize::from(expected.len() < 48 && !expected.is_empty());
        none += usize::from(expected.is_empty());
        assert_eq!(server.found(&space, &lookup).await, expected, "{lookup:?}");
    }
    assert!(some > 50 && none > 10, "{some} {none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_what_servers_without_the_index_store_is_taken_up_by_those_with_it() {
    let Some(postgres) = Postgres::with_pgvector() else {
        return;
    };
    let url = postgres.database("taken_up");
    let (mut random, spaces) = (Random(0x2545_F491_4F6C_DD1D), [space("a", "vs")]);
    let (mut known, mut all) = (Known::new(), Vec::new());
    let without = Server::at(&url, false).await;
    for at in 0..30 {
        let (id, attributes) = (format!("f{at}"), random.attributes());
        let chunks = random.chunks(DIMENSIONS);
        without
            .put(&spaces[0], &id, "complete", &attributes, &chunks)
            .await;
        all.push((id, attributes, chunks));
    }
    known.insert(("a".to_owned(), "vs".to_owned()), all);
    let with = [Server::at(&url, true).await, Server::at(&url, true).await];
    // Both find that nothing is there, and make it at once.
    let made = tokio::join!(
        with[0].index.prepare(&spaces[0]),
        with[1].index.prepare(&spaces[0])
    );
    assert_eq!(made, (Ok(()), Ok(())));
    let all = [&with[0], &with[1], &without];
    check(&all, &known, &spaces, &mut random).await;
    // A change by one that has no index takes the document out of it, until one that has looks again.
    let of_space = known.values_mut().next().expect("documents");
    of_space[5].1 = json!({"x": 1});
    let changed = record(&spaces[0], &of_space[5].0, "complete", &of_space[5].1);
    let gone = Change::Delete(crate::index::key_of(&spaces[0], &of_space[4].0));
    without
        .commit(&spaces[0], vec![Change::Update(changed), gone])
        .await;
    of_space.remove(4);
    check(&all, &known, &spaces, &mut random).await;

    // As the page says, it can be given up, and made again.
    drop(with);
    postgres.ask(
        "taken_up",
        "DROP TABLE mortise.search_documents, mortise.search_passages, mortise.search_words;
         DROP FUNCTION mortise.forget_search CASCADE;",
    );
    let of_space = known.values_mut().next().expect("documents");
    of_space[6].1 = json!({"x": 2});
    let changed = record(&spaces[0], &of_space[6].0, "complete", &of_space[6].1);
    without
        .commit(&spaces[0], vec![Change::Update(changed)])
        .await;
    let anew = Server::at(&url, true).await;
    check(&[&without, &anew], &known, &spaces, &mut random).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z8_a_database_without_the_extension_is_refused_with_what_to_do() {
    let Some(postgres) = Postgres::with_pgvector() else {
        return;
    };
    postgres.ask("postgres", "CREATE ROLE plain LOGIN");
    let url = postgres.database("plain");
    postgres.ask("postgres", "ALTER DATABASE plain OWNER TO plain");
    let plain = config(&url.replace("user=mortise", "user=plain"));
    let store = PostgresStore::open(&plain).await.expect("opens");
    let refused = store.passages(&plain).await.expect_err("refused");
    assert!(
        matches!(refused, OpenError::NoVectors { .. }),
        "{refused:?}"
    );
    let told = refused.to_string();
    assert!(
        told.contains("CREATE EXTENSION vector") && told.contains("superuser"),
        "{told}"
    );
    // Elsewhere than where extensions usually are.
    postgres.ask(
        "plain",
        "CREATE SCHEMA \"Other\"; CREATE EXTENSION vector SCHEMA \"Other\"; GRANT USAGE ON SCHEMA \"Other\" TO plain",
    );
    let passages = store.passages(&plain).await.expect("passages");
    let store: Arc<dyn Store> = Arc::new(store);
    let index = DatabaseIndex::new(Arc::clone(&store), passages, read);
    let server = Server {
        store,
        index: Box::new(index),
    };
    let (mut random, space) = (Random(7), space("a", "vs"));
    let chunks = random.chunks(DIMENSIONS);
    server
        .put(&space, "f", "complete", &json!({}), &chunks)
        .await;
    let lookup = lookups(&mut random, 0).remove(0);
    assert_eq!(server.found(&space, &lookup).await.len(), chunks.len());

    let Some(without) = Postgres::shared() else {
        return;
    };
    let config = config(&without.database("no_extension"));
    let store = PostgresStore::open(&config).await.expect("opens");
    let refused = store.passages(&config).await.expect_err("refused");
    let told = refused.to_string();
    assert!(told.contains("install pgvector"), "{told}");
}
