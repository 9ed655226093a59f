//! The index in the database that is the store: `pgvector` finds by meaning, words are looked up in tables, and servers keep
//! nothing of either.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mortise_retrieval::{
    AttributeFilter, Chunk, Document, LexicalTotals, attributes_json, best, dot, wanted,
};
use mortise_store::{
    Indexed, Item, Key, Occurrence, PassagePlace, PassageRow, PassageScope, Passages, Record,
    Store, StoreError, StoreFuture,
};
use tokio::sync::Mutex as Turn;

use crate::chunks::{chunk_id, chunks};
use crate::index::{
    DocumentChange, IndexHit, IndexState, Lookup, ReadRecord, SearchIndex, revision,
};
use crate::limits::{MAX_KNOWN_SPACES, WORDS_TOGETHER};
use crate::postings::{decode, stored, words};

/// A ranking of places.
type Ranked = Vec<(PassagePlace, f32)>;

/// The mark of a space with which its index was complete. Who completes it has others wait.
type Completed = Arc<Turn<Option<Option<Vec<u8>>>>>;

/// Indexes of all spaces, in the database.
pub struct DatabaseIndex {
    store: Arc<dyn Store>,
    passages: Passages,
    read: ReadRecord,
    known: Mutex<HashMap<Key, Completed>>,
}

impl DatabaseIndex {
    /// Indexes beside the records of a store, which is in the same database.
    pub fn new(store: Arc<dyn Store>, passages: Passages, read: ReadRecord) -> Self {
        Self {
            store,
            passages,
            read,
            known: Mutex::default(),
        }
    }

    fn completed(&self, space: &Key) -> Completed {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN_SPACES && !known.contains_key(space) {
            known.clear();
        }
        Arc::clone(known.entry(space.clone()).or_default())
    }

    /// Take up the documents of a space that are not in the index as they are now.
    async fn complete(&self, space: &Key) -> Result<(), StoreError> {
        let completed = self.completed(space);
        let now = revision(&*self.store, space).await?;
        let mut completed = completed.lock().await;
        if completed.as_ref() == Some(&now) {
            return Ok(());
        }
        let mut behind = i64::MIN;
        loop {
            let some = self.passages.missing(space, behind).await?;
            let Some((last, _)) = some.last() else {
                break;
            };
            behind = *last;
            for (number, record) in some {
                self.take_up(space, number, record).await?;
            }
        }
        *completed = Some(now);
        Ok(())
    }

    async fn take_up(&self, space: &Key, number: i64, record: Record) -> Result<(), StoreError> {
        let Some((document, state)) = (self.read)(&record) else {
            return Ok(());
        };
        if state == IndexState::UnderWay {
            return Ok(());
        }
        if state == IndexState::Complete && !self.passages.has(number).await? {
            let chunks = match chunks(&*self.store, &record.key).await {
                // It was removed meanwhile.
                Err(StoreError::NotFound) => return Ok(()),
                chunks => chunks?,
            };
            let made = tokio::task::spawn_blocking(move || found_by(chunks)).await;
            let (passages, words) =
                made.map_err(|_| StoreError::Unavailable("words could not be counted".into()))?;
            self.passages.write(number, passages, words, space).await?;
        }
        let attributes = attributes_json(&document.attributes);
        self.passages.admit(space, record, attributes).await
    }

    /// The ranking by meaning.
    async fn near(&self, scope: &PassageScope, lookup: &Lookup) -> Result<Ranked, StoreError> {
        let Some((_, ranked)) = lookup.query().near() else {
            return Ok(Ranked::new());
        };
        self.passages
            .nearest(scope.clone(), &lookup.vector, ranked)
            .await
    }

    /// The ranking by words.
    async fn alike(&self, scope: &PassageScope, lookup: &Lookup) -> Result<Ranked, StoreError> {
        let Some(most) = lookup.query().alike() else {
            return Ok(Ranked::new());
        };
        let documents = self.passages.indexed(scope.clone()).await?;
        let (mut scores, mut words) = (Scores::of(documents), Vec::new());
        for (word, times) in wanted(&lookup.text) {
            words.push((stored(&word), times));
        }
        for some in words.chunks(WORDS_TOGETHER) {
            let names = some.iter().map(|(word, _)| word.clone()).collect();
            let there = self.passages.occurrences(&scope.space, names).await?;
            let some = some.to_vec();
            let added = tokio::task::spawn_blocking(move || {
                scores.add(&some, &there);
                scores
            });
            scores = added.await.map_err(broken_off)?;
        }
        let best = tokio::task::spawn_blocking(move || scores.best(most));
        best.await.map_err(broken_off)
    }

    async fn found(&self, space: &Key, lookup: &Lookup) -> Result<Vec<IndexHit>, StoreError> {
        self.complete(space).await?;
        let scope = PassageScope {
            space: space.clone(),
            dimensions: lookup.vector.len(),
            filter: lookup.filter.as_ref().map(AttributeFilter::json_path),
        };
        let (near, alike) =
            tokio::try_join!(self.near(&scope, lookup), self.alike(&scope, lookup))?;
        let query = lookup.query();
        let rows = Rows::of([&near, &alike]);
        let mut merged = query.merge(&rows.ranked(&near), &rows.ranked(&alike));
        merged.truncate(query.compared());
        let places: Vec<PassagePlace> =
            merged.iter().filter_map(|(row, _)| rows.at(*row)).collect();
        let contents = self.passages.contents(places, chunk_id).await?;
        let contents: HashMap<u32, (Document, Chunk)> = contents
            .into_iter()
            .filter_map(|(place, record, item)| {
                let (document, chunk) = self.content(&record, &item)?;
                Some((rows.row(&place)?, (document, chunk)))
            })
            .collect();
        // A document may have been removed meanwhile.
        merged.retain(|(row, _)| contents.contains_key(row));
        let vector = |row: u32| contents.get(&row).map(|(_, chunk)| &*chunk.vector);
        let similarity = |row| vector(row).map_or(0.0, |vector| dot(&lookup.vector, vector));
        let between = |one, other| match (vector(one), vector(other)) {
            (Some(one), Some(other)) => dot(one, other),
            _ => 0.0,
        };
        let chosen = query.choose(merged, similarity, between);
        let found = chosen.into_iter().filter_map(|(row, score)| {
            let (document, chunk) = contents.get(&row)?.clone();
            Some(IndexHit {
                similarity: similarity(row),
                document,
                chunk,
                score,
            })
        });
        Ok(found.collect())
    }

    fn content(&self, record: &Record, item: &Item) -> Option<(Document, Chunk)> {
        let (document, _) = (self.read)(record)?;
        Some((document, Chunk::decode(&item.body)?))
    }
}

/// Vectors and words of the chunks of a document. Chunks whose vectors have other dimensions than the first are left out.
fn found_by(chunks: Vec<Chunk>) -> (Vec<PassageRow>, Vec<mortise_store::Word>) {
    let dimensions = chunks.first().map_or(0, |chunk| chunk.vector.len());
    let numbered = (0u32..).zip(chunks);
    let numbered = numbered.filter(|(_, chunk)| chunk.vector.len() == dimensions);
    let numbered: Vec<(u32, Chunk)> = numbered.collect();
    let (words, lengths) = words(&numbered);
    let passages = numbered.into_iter().zip(lengths);
    let passages = passages.map(|((number, chunk), words)| PassageRow {
        number,
        words,
        vector: chunk.vector,
    });
    (passages.collect(), words)
}

fn broken_off(_: tokio::task::JoinError) -> StoreError {
    StoreError::Unavailable("the search broke off".to_owned())
}

/// Scores by words of the chunks of all documents of a scope.
struct Scores {
    totals: LexicalTotals,
    /// Documents in the order of their records, with the scores of their chunks by their numbers.
    documents: Vec<(Indexed, Vec<f32>)>,
}

impl Scores {
    fn of(documents: Vec<Indexed>) -> Self {
        let items: u64 = documents.iter().map(|one| one.items).sum();
        let words = documents.iter().map(|one| one.words).sum();
        let scored = documents.into_iter().map(|one| (one, Vec::new()));
        Self {
            totals: LexicalTotals::new(usize::try_from(items).unwrap_or(usize::MAX), words),
            documents: scored.collect(),
        }
    }

    /// Add what words bring, as many times as each is wanted, in the order in which an index in memory does it: then scores are the
    /// same to the bit.
    fn add(&mut self, words: &[(String, f32)], there: &[Occurrence]) {
        for (word, times) in words {
            // Those of documents of other spaces are not counted.
            let of_word = there.iter().filter(|one| one.word == *word);
            let found: Vec<(usize, &Occurrence)> = of_word
                .filter_map(|one| {
                    let documents = &self.documents;
                    let place = documents.binary_search_by_key(&one.record, |(of, _)| of.record);
                    Some((place.ok()?, one))
                })
                .collect();
            let having: usize = found.iter().map(|(_, one)| one.items as usize).sum();
            let rarity = self.totals.rarity(having, *times);
            for (place, one) in found {
                let Some((document, scores)) = self.documents.get_mut(place) else {
                    continue;
                };
                if !document.admitted {
                    continue;
                }
                let postings = decode(&one.postings);
                let chunks = postings.last().map_or(0, |last| last.chunk as usize + 1);
                scores.resize(chunks.max(scores.len()), 0.0);
                for posting in postings {
                    if let Some(score) = scores.get_mut(posting.chunk as usize) {
                        *score += self.totals.score(rarity, posting.count, posting.length);
                    }
                }
            }
        }
    }

    /// The best places, of equals the first.
    fn best(self, most: usize) -> Ranked {
        let places = self.documents.into_iter().flat_map(|(document, scores)| {
            let numbered = (0u32..).zip(scores).filter(|(_, score)| *score > 0.0);
            let record = document.record;
            numbered.map(move |(item, score)| (PassagePlace { record, item }, score))
        });
        let places: Ranked = places.collect();
        let rows = (0u32..).zip(&places).map(|(row, (_, score))| (row, *score));
        let best = best(rows.collect(), most).into_iter();
        best.filter_map(|(row, _)| places.get(row as usize).copied())
            .collect()
    }
}

/// Numbers for places, in their order.
struct Rows(Vec<PassagePlace>);

impl Rows {
    fn of(rankings: [&[(PassagePlace, f32)]; 2]) -> Self {
        let all = rankings.into_iter().flatten();
        let mut places: Vec<PassagePlace> = all.map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        Self(places)
    }

    fn row(&self, place: &PassagePlace) -> Option<u32> {
        let found = self.0.binary_search(place).ok()?;
        u32::try_from(found).ok()
    }

    fn at(&self, row: u32) -> Option<PassagePlace> {
        self.0.get(row as usize).copied()
    }

    fn ranked(&self, ranking: &[(PassagePlace, f32)]) -> Vec<(u32, f32)> {
        let rows = ranking.iter();
        rows.filter_map(|(place, score)| Some((self.row(place)?, *score)))
            .collect()
    }
}

impl SearchIndex for DatabaseIndex {
    fn search<'a>(&'a self, space: &'a Key, lookup: Lookup) -> StoreFuture<'a, Vec<IndexHit>> {
        Box::pin(async move { self.found(space, &lookup).await })
    }

    fn changed<'a>(&'a self, space: &'a Key, change: DocumentChange) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match change {
                DocumentChange::Added(..) | DocumentChange::Attributes(_) => {
                    self.complete(space).await
                }
                // Its rows went with its record.
                DocumentChange::Removed(_) => Ok(()),
            }
        })
    }

    fn prepare<'a>(&'a self, space: &'a Key) -> StoreFuture<'a, ()> {
        Box::pin(self.complete(space))
    }

    fn outlives(&self) -> bool {
        true
    }

    fn forget(&self, space: &Key) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(space);
    }
}
