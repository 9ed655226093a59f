//! Time of filtered hybrid searches whose index is in PostgreSQL, and of pgvector asked directly:
//!
//! ```sh
//! cargo run --release -p mortise-search --example pgvector_speed URL [DOCUMENTS [QUERIES [hnsw]]]
//! ```
//!
//! in a database with the extension that is empty otherwise, of 100,000 chunks of 384 dimensions in 1,000 documents unless told
//! otherwise, half of which the filter leaves out, at 50 queries. Vectors lie around 1,000 centres, and words are as rare as
//! those of a language. Asked directly are a table of the same vectors, by an exact scan, and a hybrid search by that
//! and PostgreSQL's full-text search, fused by reciprocal ranks; with `hnsw`, the table has such an index for one more measurement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_retrieval::{AttributeFilter, Chunk, Document, Weights, attributes_of};
use mortise_search::{DatabaseIndex, IndexState, Lookup, SearchIndex, chunk_id};
use mortise_store::{
    Change, Item, Key, PostgresConfig, PostgresStore, Record, RecordKind, Store, TracedStore,
};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

const DIMENSIONS: usize = 384;
const ROWS: usize = 100_000;
const CENTRES: usize = 1000;
const WORDS: usize = 80;
/// Rows of each ranking that are fused.
const FUSED: usize = 1000;

/// Searches that fill caches, and do not count.
const UNCOUNTED: usize = 3;

/// The tables that are asked directly, made of what is stored.
const DIRECT: &str = "
    DROP TABLE IF EXISTS direct, direct_words;
    CREATE TABLE direct (id bigint PRIMARY KEY, half int NOT NULL, embedding vector(384) NOT NULL);
    CREATE TABLE direct_words (id bigint PRIMARY KEY, half int NOT NULL, words tsvector NOT NULL);
    INSERT INTO direct SELECT 1000000 * record + number, (attributes ->> 'half')::float::int, embedding
    FROM mortise.search_passages JOIN mortise.search_documents USING (record) ORDER BY record, number;
    INSERT INTO direct_words SELECT 1000000 * record + items.id::int, (attributes ->> 'half')::float::int,
        to_tsvector('simple', convert_from(substring(body FROM 13 + 4 * 384), 'UTF8'))
    FROM mortise.items JOIN mortise.search_documents USING (record) ORDER BY record, items.id;
    CREATE INDEX ON direct_words USING gin (words);
    VACUUM ANALYZE direct; VACUUM ANALYZE direct_words; VACUUM ANALYZE mortise.search_passages;
    VACUUM ANALYZE mortise.search_words; VACUUM ANALYZE mortise.search_documents;
    VACUUM ANALYZE mortise.items; VACUUM ANALYZE mortise.records;
    CHECKPOINT;
";

/// Numbers from 0 to 1 that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A vector of length 1 around another, or anywhere.
    fn vector(&mut self, around: Option<&[f32]>) -> Vec<f32> {
        let spread = if around.is_some() { 0.08 } else { 1.0 };
        let mut vector: Vec<f32> = (0..DIMENSIONS)
            .map(|at| spread * (self.next() - 0.5) + around.map_or(0.0, |around| around[at]))
            .collect();
        let squares = vector.iter().map(|number| number * number);
        let length = squares.sum::<f32>().sqrt();
        vector.iter_mut().for_each(|number| *number /= length);
        vector
    }

    /// A vector around one of the centres.
    fn near(&mut self, centres: &[Vec<f32>]) -> Vec<f32> {
        let at = (self.next() * CENTRES as f32) as usize;
        self.vector(Some(&centres[at.min(CENTRES - 1)]))
    }

    /// Words, of which the n-th is about as frequent as 1/n.
    fn text(&mut self, words: usize) -> String {
        let words = (0..words).map(|_| format!("w{}", (50_000f32.powf(self.next())) as u32));
        words.collect::<Vec<_>>().join(" ")
    }
}

fn read(record: &Record) -> Option<(Document, IndexState)> {
    let attributes: Value = serde_json::from_slice(&record.body).ok()?;
    let (_, id) = record.key.id.split_once('/')?;
    let document = Document {
        id: id.to_owned(),
        name: id.to_owned(),
        attributes: attributes_of(attributes.as_object()?, "attributes").ok()?,
    };
    Some((document, IndexState::Complete))
}

/// Store the documents and make their index, if they are not there.
async fn fill(
    store: &dyn Store,
    index: &DatabaseIndex,
    space: &Key,
    (documents, centres): (usize, &[Vec<f32>]),
    random: &mut Random,
) {
    for number in 0..documents {
        let id = format!("{}/file-{number}", space.id);
        let key = Key::new(&space.owner, RecordKind::VectorStoreFile, id);
        let items: Vec<Item> = (0..ROWS / documents)
            .map(|at| {
                let chunk = Chunk {
                    start: 0,
                    end: 0,
                    page: None,
                    vector: random.near(centres),
                    text: random.text(WORDS),
                };
                Item {
                    id: chunk_id(at),
                    body: chunk.encode(),
                }
            })
            .collect();
        let record = Record {
            key: key.clone(),
            created: 1,
            expires: None,
            open: false,
            body: json!({"half": number % 2}).to_string().into_bytes(),
        };
        let append = Change::Append { parent: key, items };
        let written = store.commit(vec![Change::Put(record), append]).await;
        written.expect("written");
    }
    let began = Instant::now();
    index.prepare(space).await.expect("made");
    println!("the index took {:.1} s", began.elapsed().as_secs_f32());
}

/// A statement for rows nearest to a vector, and one that is hybrid.
fn statements(text: &str, vector: &[f32]) -> [String; 2] {
    let vector: Vec<String> = vector.iter().map(f32::to_string).collect();
    let vector = vector.join(",");
    let near = format!(
        "SELECT id FROM direct WHERE half = 1 ORDER BY embedding <#> '[{vector}]' LIMIT {FUSED}"
    );
    let words = text.replace(' ', " | ");
    let both = format!(
        "WITH near AS (SELECT id, row_number() OVER (ORDER BY distance) AS rank FROM (
             SELECT id, embedding <#> '[{vector}]' AS distance FROM direct WHERE half = 1
             ORDER BY distance LIMIT {FUSED}) AS sorted),
         alike AS (SELECT id, row_number() OVER (ORDER BY score DESC) AS rank FROM (
             SELECT id, ts_rank(words, query) AS score FROM direct_words, to_tsquery('simple', '{words}') AS query
             WHERE half = 1 AND words @@ query ORDER BY score DESC LIMIT {FUSED}) AS sorted)
         SELECT id, coalesce(1.0 / (60 + near.rank), 0) + coalesce(1.0 / (60 + alike.rank), 0) AS score
         FROM near FULL JOIN alike USING (id) ORDER BY score DESC LIMIT 10"
    );
    [near, both]
}

async fn asked(client: &Client, sql: &str, rows: usize) -> Duration {
    let began = Instant::now();
    let found = client.query(sql, &[]).await.expect("an answer").len();
    assert_eq!(found, rows);
    began.elapsed()
}

fn tell(name: &str, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1000.0;
    println!(
        "{name:44} least {:7.2} ms   p50 {:7.2} ms   p95 {:7.2} ms",
        at(0),
        at(50),
        at(95)
    );
    at(50)
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("the URL of a database");
    let mut number = |usual: usize| {
        let given = arguments.next();
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let (documents, queries) = (number(1000), number(50));
    let hnsw = arguments.next().is_some();
    let config = PostgresConfig::new(&url, None, [1 << 40, 1 << 40, 1 << 30]).expect("a URL");
    let store = PostgresStore::open(&config).await.expect("opens");
    let passages = store.passages(&config).await.expect("passages");
    let store: Arc<dyn Store> = Arc::new(TracedStore::new(store, "postgresql"));
    let index = DatabaseIndex::new(Arc::clone(&store), passages, read);
    let (client, connection) = tokio_postgres::connect(&url, NoTls)
        .await
        .expect("connects");
    tokio::spawn(connection);
    let mut random = Random(88_172_645_463_325_252);
    let centres: Vec<Vec<f32>> = (0..CENTRES).map(|_| random.vector(None)).collect();
    let space = Key::new(&Arc::from("tenant"), RecordKind::VectorStore, "vs");
    fill(&*store, &index, &space, (documents, &centres), &mut random).await;
    for statement in DIRECT.split(';').filter(|sql| !sql.trim().is_empty()) {
        client.batch_execute(statement).await.expect("made");
    }
    client.batch_execute("SET jit = off").await.expect("set");
    let asked = measure(&client, &index, &space, (queries, &centres), &mut random).await;
    if hnsw {
        measure_hnsw(&client, &asked).await;
    }
}

/// Searches by turns, in the index and directly. Returns the statements that asked for the nearest rows.
async fn measure(
    client: &Client,
    index: &DatabaseIndex,
    space: &Key,
    (queries, centres): (usize, &[Vec<f32>]),
    random: &mut Random,
) -> Vec<String> {
    let filter = json!({"type": "eq", "key": "half", "value": 1});
    let filter = AttributeFilter::of(&filter, "filters").expect("a filter");
    let mut times = [const { Vec::new() }; 4];
    let mut statements_asked = Vec::new();
    for at in 0..queries + UNCOUNTED {
        let (text, vector) = (random.text(6), random.near(centres));
        let [near, both] = statements(&text, &vector);
        let mut one = Vec::new();
        for words in [1.0, 0.0] {
            let lookup = Lookup {
                text: text.clone(),
                vector: vector.clone(),
                weights: Weights {
                    meaning: 1.0,
                    words,
                },
                most: 10,
                filter: Some(filter.clone()),
                least_similarity: None,
                diversity: None,
            };
            let began = Instant::now();
            let found = index.search(space, lookup).await.expect("found").len();
            assert_eq!(found, 10);
            one.push(began.elapsed());
        }
        one.push(asked(client, &both, 10).await);
        one.push(asked(client, &near, FUSED).await);
        statements_asked.push(near);
        if at >= UNCOUNTED {
            times
                .iter_mut()
                .zip(one)
                .for_each(|(all, one)| all.push(one));
        }
    }
    let [both, meaning, direct_both, direct_near] = &mut times;
    let ours = tell("meaning and words, filtered", both);
    let ours_near = tell("meaning alone, filtered", meaning);
    let theirs = tell("pgvector and full text, asked directly", direct_both);
    let theirs_near = tell("pgvector alone, asked directly", direct_near);
    println!(
        "p50: {:.2} of the hybrid statement, {:.2} of the scan; meaning alone {:.2} of the scan",
        ours / theirs,
        ours / theirs_near,
        ours_near / theirs_near
    );
    statements_asked
}

/// Time of the searches for the nearest rows by an HNSW index, which is approximate.
async fn measure_hnsw(client: &Client, statements: &[String]) {
    let began = Instant::now();
    let make = "SET maintenance_work_mem = '1GB'; CREATE INDEX ON direct USING hnsw (embedding vector_ip_ops)";
    client.batch_execute(make).await.expect("made");
    println!("an HNSW index took {:.1} s", began.elapsed().as_secs_f32());
    let settings = "SET hnsw.ef_search = 1000; SET hnsw.iterative_scan = relaxed_order; SET enable_seqscan = off";
    client.batch_execute(settings).await.expect("set");
    let mut times = Vec::new();
    for sql in statements {
        times.push(asked(client, sql, FUSED).await);
    }
    tell(
        "pgvector with HNSW, asked directly",
        &mut times[UNCOUNTED..],
    );
}
