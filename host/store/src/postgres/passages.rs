//! Passages, by which items are found: their vectors, in columns of the extension `pgvector`, and their words. All of it is made of what
//! the records and their items say, and can be made again.
//!
//! Rows belong to a record and go with it. A record is admitted to searches with the JSON of its attributes; a change of its body
//! takes that back, whoever makes it, until it is admitted as it is then.

use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use super::commit::number_of;
use super::config::PostgresConfig;
use super::query::{self, Parameter, RecordAddress, THERE};
use super::{Inner, PostgresStore, bounded, failure, passage_tables};
use crate::error::{OpenError, StoreError};
use crate::limits::{
    DATABASE_INDEX_TIME, DATABASE_OPERATION_TIME, INDEXED_TOGETHER, MAX_PIECE_BYTES,
};
use crate::record::{Item, Key, Record, RecordKind};
use crate::store::StoreFuture;
use crate::traced::operation;

/// Name of the kind of database in traces.
const SYSTEM: &str = "postgresql";

/// Records without an index that are read at once.
const PAGE: i64 = 100;

/// Passages in a database, by vector and by word.
#[derive(Clone)]
pub struct Passages {
    inner: Arc<Inner>,
    /// Name of the schema of the extension, quoted.
    extension: Arc<str>,
}

impl std::fmt::Debug for Passages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Passages")
    }
}

/// A passage: an item by its number in its record, with the vector and the number of words that it is found by.
#[derive(Debug, Clone, PartialEq)]
pub struct PassageRow {
    /// Number of the item.
    pub number: u32,
    /// Number of words of the item.
    pub words: u32,
    /// Vector of the item.
    pub vector: Vec<f32>,
}

/// A word of a record's items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub word: String,
    /// Number of items that have the word.
    pub items: u32,
    /// Postings: the items that have the word, as the writer encodes them.
    pub postings: Vec<u8>,
}

/// Place of a passage: the number of its record, and its own there. Records have the order in which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PassagePlace {
    /// Number of the record.
    pub record: i64,
    /// Number of the item.
    pub item: u32,
}

/// The records in which is searched: those with ids that begin with that of the key and `/`, with vectors of so many dimensions,
/// and attributes that a predicate admits.
#[derive(Debug, Clone)]
pub struct PassageScope {
    /// The key.
    pub space: Key,
    /// Dimensions.
    pub dimensions: usize,
    /// Predicate of SQL/JSON path.
    pub filter: Option<String>,
}

/// A record of a scope, but for its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// Number of the record.
    pub record: i64,
    /// Number of items of the record.
    pub items: u64,
    /// Number of words of all items.
    pub words: u64,
    /// The filter of the scope admits the record.
    pub admitted: bool,
}

/// A word in a record of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// The word.
    pub word: String,
    /// Number of the record.
    pub record: i64,
    /// Number of items of the record that have the word.
    pub items: u32,
    /// Postings: the items of the record that have the word, as the writer encodes them.
    pub postings: Vec<u8>,
}

/// Parameters of a scope, the first five of a statement.
struct Scoped {
    number: i64,
    owner: String,
    name: String,
    dimensions: i32,
    filter: Option<String>,
}

impl Scoped {
    fn of(scope: PassageScope) -> Self {
        Self {
            number: number_of(&scope.space),
            owner: scope.space.owner.to_string(),
            name: scope.space.id,
            dimensions: i32::try_from(scope.dimensions).unwrap_or(i32::MAX),
            filter: scope.filter,
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 5] {
        [
            (&self.number, Type::INT8),
            (&self.owner, Type::TEXT),
            (&self.name, Type::TEXT),
            (&self.dimensions, Type::INT4),
            (&self.filter, Type::TEXT),
        ]
    }
}

/// Records of a scope, whatever their attributes. The number alone would tell two spaces apart but for an accident.
const IN_SCOPE: &str = "space = $1 AND owner = $2 AND name = $3 AND dimensions = $4";

/// True of records that the filter admits.
const ADMITTED: &str = "($5 IS NULL OR coalesce(attributes @@ $5::jsonpath, false))";

impl PostgresStore {
    /// The passages of this database. Their tables are made if they are not there.
    ///
    /// # Errors
    /// When the extension is not there and cannot be made, or the tables cannot.
    pub async fn passages(&self, config: &PostgresConfig) -> Result<Passages, OpenError> {
        let place = &config.place();
        let failed = |error| failure::open_failure(place, &error);
        let mut client = self.inner.pool.connect().await.map_err(failed)?;
        let extension = passage_tables::make(&mut client, place).await?;
        Ok(Passages {
            inner: Arc::clone(&self.inner),
            extension: extension.into(),
        })
    }
}

impl Passages {
    /// Records of a space that are not being worked on and not admitted to searches, as they are now, the first behind a record of
    /// this number.
    pub fn missing(&self, space: &Key, behind: i64) -> StoreFuture<'static, Vec<(i64, Record)>> {
        let (inner, space) = (self.inner.clone(), space.clone());
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            inner
                .with(async |lent| missing(&lent.client, &space, behind).await)
                .await
        });
        operation(("missing", SYSTEM), work)
    }

    /// Write what the items of a record are found by, unless that was done before.
    pub fn write(
        &self,
        record: i64,
        passages: Vec<PassageRow>,
        words: Vec<Word>,
        space: &Key,
    ) -> StoreFuture<'static, ()> {
        let (inner, extension) = (self.inner.clone(), self.extension.clone());
        let space = number_of(space);
        let work = bounded(DATABASE_INDEX_TIME, async move {
            let wanted = Wanted {
                record,
                space,
                passages,
                words,
            };
            inner
                .with(async |lent| wanted.write(&mut lent.client, &extension).await)
                .await
        });
        operation(("write", SYSTEM), work)
    }

    /// True if the passages and words of a record's items were written.
    pub fn has(&self, record: i64) -> StoreFuture<'static, bool> {
        let inner = self.inner.clone();
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            let there = "SELECT EXISTS (SELECT FROM mortise.search_passages WHERE record = $1)";
            inner
                .with(async |lent| {
                    let asked: [Parameter<'_>; 1] = [(&record, Type::INT8)];
                    Ok(lent.client.query_typed_one(there, &asked).await?.get(0))
                })
                .await
        });
        operation(("has", SYSTEM), work)
    }

    /// Admit a record to searches of its space, with its attributes as a JSON object, if its body is still this.
    pub fn admit(
        &self,
        space: &Key,
        record: Record,
        attributes: String,
    ) -> StoreFuture<'static, ()> {
        let (inner, space) = (self.inner.clone(), space.clone());
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            inner
                .with(async |lent| admit(&lent.client, &space, &record, &attributes).await)
                .await
        });
        operation(("admit", SYSTEM), work)
    }

    /// The passages nearest to a vector by the product of both, with that product, best first.
    pub fn nearest(
        &self,
        scope: PassageScope,
        vector: &[f32],
        most: usize,
    ) -> StoreFuture<'static, Vec<(PassagePlace, f32)>> {
        let inner = self.inner.clone();
        let (vector, most) = (text_of(vector), query::whole(most));
        // Without an index on the vectors, the scan is exact, whatever the filter leaves.
        let sql = format!(
            "SELECT record, number, (embedding OPERATOR({0}.<#>) $6::{0}.vector)::float8 AS distance
             FROM mortise.search_passages WHERE space = $1 AND record IN (
                 SELECT record FROM mortise.search_documents WHERE {IN_SCOPE} AND {ADMITTED})
             ORDER BY distance, record, number LIMIT $7",
            self.extension
        );
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            let scoped = Scoped::of(scope);
            let mut asked = scoped.parameters().to_vec();
            asked.extend([(&vector as _, Type::TEXT), (&most as _, Type::INT8)]);
            inner
                .with(async |lent| {
                    let rows = lent.client.query_typed(&sql, &asked).await?;
                    let rows = rows.iter().map(|row| {
                        let place = PassagePlace {
                            record: row.get(0),
                            item: count(row.get(1)),
                        };
                        (place, -row.get::<_, f64>(2) as f32)
                    });
                    Ok(rows.collect())
                })
                .await
        });
        operation(("nearest", SYSTEM), work)
    }

    /// The records of a scope in their order, with those that its filter does not admit.
    pub fn indexed(&self, scope: PassageScope) -> StoreFuture<'static, Vec<Indexed>> {
        let inner = self.inner.clone();
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            let scoped = Scoped::of(scope);
            inner
                .with(async |lent| indexed(&lent.client, &scoped).await)
                .await
        });
        operation(("indexed", SYSTEM), work)
    }

    /// Occurrences of words in the records of a space, in no order. A space whose key has the same hash adds its own.
    pub fn occurrences(
        &self,
        space: &Key,
        words: Vec<String>,
    ) -> StoreFuture<'static, Vec<Occurrence>> {
        let (inner, space) = (self.inner.clone(), number_of(space));
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            inner
                .with(async |lent| occurrences(&lent.client, space, &words).await)
                .await
        });
        operation(("occurrences", SYSTEM), work)
    }

    /// Records and items at places, in their order, without those that are gone; `id` tells the id of the item of a number.
    pub fn contents(
        &self,
        places: Vec<PassagePlace>,
        id: fn(usize) -> String,
    ) -> StoreFuture<'static, Vec<(PassagePlace, Record, Item)>> {
        let inner = self.inner.clone();
        let work = bounded(DATABASE_OPERATION_TIME, async move {
            inner
                .with(async |lent| contents(&lent.client, &places, id).await)
                .await
        });
        operation(("contents", SYSTEM), work)
    }
}

/// A vector as the extension reads it, with all of its bits.
fn text_of(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

async fn missing(
    client: &Client,
    space: &Key,
    behind: i64,
) -> Result<Vec<(i64, Record)>, StoreError> {
    // `0` is the character behind `/`.
    let sql = format!(
        "SELECT id, created, expires, open, body, seq FROM mortise.records
         WHERE owner = $1 AND kind = $2 AND id >= $3 AND id < $4 AND seq > $5 AND NOT open AND {THERE}
         AND NOT EXISTS (SELECT FROM mortise.search_documents AS there WHERE there.record = records.seq)
         ORDER BY seq LIMIT $6"
    );
    let (owner, kind) = (&*space.owner, RecordKind::VectorStoreFile);
    let (name, first, end) = (
        kind.name(),
        format!("{}/", space.id),
        format!("{}0", space.id),
    );
    let asked: [Parameter<'_>; 6] = [
        (&owner, Type::TEXT),
        (&name, Type::TEXT),
        (&first, Type::TEXT),
        (&end, Type::TEXT),
        (&behind, Type::INT8),
        (&PAGE, Type::INT8),
    ];
    let rows = client.query_typed(&sql, &asked).await?;
    let records = rows.iter();
    let records = records.map(|row| (row.get(5), query::record(row, &space.owner, kind)));
    Ok(records.collect())
}

async fn admit(
    client: &Client,
    space: &Key,
    record: &Record,
    attributes: &str,
) -> Result<(), StoreError> {
    // The lock keeps changes of the body behind the new row, which they then take away.
    let sql = format!(
        "WITH there AS (
             SELECT seq FROM mortise.records
             WHERE owner = $1 AND kind = $2 AND id = $3 AND body = $4 AND NOT open AND {THERE} FOR SHARE)
         INSERT INTO mortise.search_documents (record, space, owner, name, dimensions, items, words, attributes)
         SELECT seq, $5, $1, $6, coalesce(sums.dimensions, 0), sums.items, coalesce(sums.words, 0), $7::jsonb
         FROM there, LATERAL (
             SELECT max(dimensions) AS dimensions, count(*) AS items, sum(words) AS words
             FROM mortise.search_passages WHERE record = there.seq) AS sums
         ON CONFLICT (record) DO NOTHING"
    );
    let address = RecordAddress::of(&record.key);
    let [owner, kind, id] = address.parameters();
    let number = number_of(space);
    let all: [Parameter<'_>; 7] = [
        owner,
        kind,
        id,
        (&record.body, Type::BYTEA),
        (&number, Type::INT8),
        (&space.id, Type::TEXT),
        (&attributes, Type::TEXT),
    ];
    client.execute_typed(&sql, &all).await?;
    Ok(())
}

async fn indexed(client: &Client, scoped: &Scoped) -> Result<Vec<Indexed>, StoreError> {
    let sql = format!(
        "SELECT record, items, words, {ADMITTED} FROM mortise.search_documents WHERE {IN_SCOPE} ORDER BY record"
    );
    let rows = client.query_typed(&sql, &scoped.parameters()).await?;
    let sum = |number: i64| u64::try_from(number).unwrap_or(0);
    let found = rows.iter().map(|row| Indexed {
        record: row.get(0),
        items: sum(row.get(1)),
        words: sum(row.get(2)),
        admitted: row.get(3),
    });
    Ok(found.collect())
}

async fn occurrences(
    client: &Client,
    space: i64,
    words: &Vec<String>,
) -> Result<Vec<Occurrence>, StoreError> {
    let sql = "SELECT word, record, items, postings FROM mortise.search_words
               WHERE space = $1 AND word = ANY($2)";
    let asked: [Parameter<'_>; 2] = [(&space, Type::INT8), (words, Type::TEXT_ARRAY)];
    let rows = client.query_typed(sql, &asked).await?;
    let found = rows.iter().map(|row| Occurrence {
        word: row.get(0),
        record: row.get(1),
        items: count(row.get(2)),
        postings: row.get(3),
    });
    Ok(found.collect())
}

async fn contents(
    client: &Client,
    places: &[PassagePlace],
    id: fn(usize) -> String,
) -> Result<Vec<(PassagePlace, Record, Item)>, StoreError> {
    let sql = format!(
        "SELECT records.id, created, expires, open, records.body, records.owner, items.id, items.body, wanted.place
         FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS wanted (record, id, place)
         JOIN mortise.records ON records.seq = wanted.record AND {THERE}
         JOIN mortise.items ON items.record = wanted.record AND items.id = wanted.id
         ORDER BY wanted.place"
    );
    let records: Vec<i64> = places.iter().map(|place| place.record).collect();
    let ids: Vec<String> = places.iter().map(|place| id(place.item as usize)).collect();
    let asked: [Parameter<'_>; 2] = [(&records, Type::INT8_ARRAY), (&ids, Type::TEXT_ARRAY)];
    let rows = client.query_typed(&sql, &asked).await?;
    let found = rows.iter().filter_map(|row| {
        let place = usize::try_from(row.get::<_, i64>(8)).ok()?;
        let owner = Arc::from(row.get::<_, String>(5));
        let item = Item {
            id: row.get(6),
            body: row.get(7),
        };
        let record = query::record(row, &owner, RecordKind::VectorStoreFile);
        Some((*places.get(place.checked_sub(1)?)?, record, item))
    });
    Ok(found.collect())
}

/// Passages and words of a record's items, to be written to the search tables.
struct Wanted {
    record: i64,
    space: i64,
    passages: Vec<PassageRow>,
    words: Vec<Word>,
}

impl Wanted {
    /// Write all passages and words in one transaction.
    async fn write(&self, client: &mut Client, extension: &str) -> Result<(), StoreError> {
        let transaction = client.transaction().await?;
        let time = DATABASE_INDEX_TIME.as_millis();
        let settings =
            format!("SET LOCAL statement_timeout = {time}; SET LOCAL lock_timeout = {time}");
        transaction.batch_execute(&settings).await?;
        // Hosts that do it at once do it one after the other, and the record stays until it is done.
        let lock = "SELECT pg_advisory_xact_lock(x'7365'::int, ($1 % 2147483647)::int)";
        let asked: [Parameter<'_>; 1] = [(&self.record, Type::INT8)];
        transaction.query_typed(lock, &asked).await?;
        let sql = "SELECT EXISTS (SELECT FROM mortise.search_passages WHERE record = seq)
                   FROM mortise.records WHERE seq = $1 FOR KEY SHARE";
        let there = transaction.query_typed_opt(sql, &asked).await?;
        let Some(false) = there.map(|row| row.get::<_, bool>(0)) else {
            return Ok(());
        };
        self.passages(&transaction, extension).await?;
        self.words(&transaction).await?;
        Ok(transaction.commit().await?)
    }

    async fn passages(
        &self,
        transaction: &Transaction<'_>,
        extension: &str,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO mortise.search_passages (record, number, space, words, dimensions, embedding)
             SELECT $1, number, $2, words, dimensions, vector::{extension}.vector
             FROM unnest($3::int[], $4::int[], $5::int[], $6::text[]) AS given (number, words, dimensions, vector)"
        );
        for some in self.passages.chunks(INDEXED_TOGETHER) {
            let (mut numbers, mut words) = (Vec::new(), Vec::new());
            let (mut dimensions, mut vectors) = (Vec::new(), Vec::new());
            for passage in some {
                numbers.push(int(passage.number));
                words.push(int(passage.words));
                dimensions.push(i32::try_from(passage.vector.len()).unwrap_or(i32::MAX));
                vectors.push(text_of(&passage.vector));
            }
            let all: [Parameter<'_>; 6] = [
                (&self.record, Type::INT8),
                (&self.space, Type::INT8),
                (&numbers, Type::INT4_ARRAY),
                (&words, Type::INT4_ARRAY),
                (&dimensions, Type::INT4_ARRAY),
                (&vectors, Type::TEXT_ARRAY),
            ];
            transaction.execute_typed(&sql, &all).await?;
        }
        Ok(())
    }

    async fn words(&self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let sql = "INSERT INTO mortise.search_words (record, space, word, items, postings)
                   SELECT $1, $2, word, items, postings
                   FROM unnest($3::text[], $4::int[], $5::bytea[]) AS given (word, items, postings)";
        let mut rest = &*self.words;
        while !rest.is_empty() {
            let (mut words, mut items, mut postings) = (Vec::new(), Vec::new(), Vec::new());
            let mut bytes = 0;
            for word in rest {
                bytes += word.word.len() + word.postings.len();
                if !words.is_empty() && bytes > MAX_PIECE_BYTES {
                    break;
                }
                words.push(&*word.word);
                items.push(int(word.items));
                postings.push(&*word.postings);
            }
            rest = rest.get(words.len()..).unwrap_or_default();
            let all: [Parameter<'_>; 5] = [
                (&self.record, Type::INT8),
                (&self.space, Type::INT8),
                (&words, Type::TEXT_ARRAY),
                (&items, Type::INT4_ARRAY),
                (&postings, Type::BYTEA_ARRAY),
            ];
            transaction.execute_typed(sql, &all).await?;
        }
        Ok(())
    }
}
