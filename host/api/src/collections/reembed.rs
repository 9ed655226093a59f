//! New vectors for all documents of a collection, by another model or by one that was changed. They are made beside those in
//! use, under a number of their own, and taken into use at once when all are there. A server that is killed goes on behind
//! what it has stored.

use std::sync::Arc;
use std::time::Duration;

use mortise_http::Problem;
use mortise_retrieval::Chunk;
use mortise_search::chunk_id;
use mortise_service::ServedModel;
use mortise_store::{Change, Item, Key, StoreError};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::embedding::{TokenCounter, embed, embedder_of, room_for_documents};
use super::ingest::IngestEnd;
use super::limits::{ATTEMPTS, INGEST_BATCH, PAGE};
use super::stored::{Collection, Next, StoredDocument, change, load, members, space};
use super::turns::Pauses;
use super::{Collections, member_key};
use crate::ids::now;
use crate::state::ApiState;
use crate::stored::store_problem;

/// Pause before documents that are being ingested are looked at again.
const PAUSE: Duration = Duration::from_millis(500);

/// Time for searches that began with the vectors before.
const GRACE: Duration = Duration::from_secs(5);

/// Documents and chunks that have new vectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Done {
    files: usize,
    chunks: usize,
}

/// Begin the work on a collection, or take it up again.
pub(super) fn begin(collections: &Arc<Collections>, key: Key) {
    if collections.under_way.is_held(&key) {
        return;
    }
    let collections = Arc::clone(collections);
    let held = collections.under_way.hold(key.clone());
    tokio::spawn(async move {
        let _held = held;
        let mut pauses = Pauses::default();
        while let Err(error) = work(&collections, &key).await {
            if !pauses.rest(&collections, &error, &key.id).await {
                return;
            }
        }
    });
}

async fn work(collections: &Collections, key: &Key) -> Result<(), StoreError> {
    let state = &collections.api;
    // Nobody searches in what an earlier process took out of use.
    let mut switched = false;
    loop {
        let Some(of) = load(state, key).await? else {
            return Ok(());
        };
        if let Some(next) = &of.next {
            match copy_all(collections, &of, next).await {
                Ok(()) => {
                    state.index.prepare(&space(key, next.generation)).await?;
                    switched = switch(state, key, next).await?;
                }
                Err(IngestEnd::Waiting(error)) => return Err(error),
                Err(IngestEnd::Halted) => {
                    let now = load(state, key).await?;
                    if now.is_some_and(|now| now.next.as_ref() == Some(next)) {
                        return Ok(());
                    }
                }
                Err(IngestEnd::Failed(code, text)) => {
                    let id = &key.id;
                    tracing::info!(
                        id,
                        code,
                        text,
                        "a vector store keeps the vectors that it has"
                    );
                    let error = json!({"code": code, "message": text});
                    give_up(state, key, next, "failed", Some(error)).await?;
                }
            }
            continue;
        }
        let Some(generation) = of.gone.first().copied() else {
            return Ok(());
        };
        if std::mem::take(&mut switched) {
            sleep(GRACE).await;
        }
        let old = space(key, generation);
        super::clear(state, &old).await?;
        state.index.forget(&old);
        change(state, key, |of| {
            of.gone.retain(|gone| *gone != generation);
            Some(())
        })
        .await?;
    }
}

/// Take the new vectors into use. False if they are no longer wanted.
async fn switch(state: &ApiState, key: &Key, next: &Next) -> Result<bool, StoreError> {
    let switched = change(state, key, |of| {
        (of.next.as_ref() == Some(next)).then(|| {
            of.gone.push(of.generation);
            of.generation = next.generation;
            of.model.clone_from(&next.model);
            of.prompted = true;
            of.next = None;
            of.object["embedding_model"] = json!(next.model);
            end(of, "completed", None);
        })
    });
    let switched = switched.await?.is_some();
    if switched {
        tracing::info!(
            id = key.id,
            model = next.model,
            "a vector store has new vectors"
        );
    }
    Ok(switched)
}

/// Keep the vectors that are there, and remove the new ones.
async fn give_up(
    state: &ApiState,
    key: &Key,
    next: &Next,
    status: &str,
    error: Option<Value>,
) -> Result<Option<()>, StoreError> {
    change(state, key, |of| {
        (of.next.as_ref() == Some(next)).then(|| {
            of.gone.push(next.generation);
            of.next = None;
            end(of, status, error.clone());
        })
    })
    .await
}

fn end(of: &mut Collection, status: &str, error: Option<Value>) {
    let shown = &mut of.object["reembedding"];
    shown["status"] = json!(status);
    shown["last_error"] = json!(error);
    shown["ended_at"] = json!(now());
}

/// Copy all documents, with new vectors. None changes meanwhile but those that are being ingested.
async fn copy_all(
    collections: &Collections,
    of: &Collection,
    next: &Next,
) -> Result<(), IngestEnd> {
    let state = &collections.api;
    let (model, _) = embedder_of(state, Some(&next.model), "embedding_model")?;
    let from = of.space();
    loop {
        let (mut waiting, mut copied, mut after) = (false, false, None);
        let mut done = Done::default();
        loop {
            let some = members(state, &from, after, PAGE, true).await?;
            after = some.entries.last().map(StoredDocument::file);
            for member in some.entries {
                match member.status() {
                    "in_progress" => waiting = true,
                    _ => {
                        copied |= copy(collections, (of, next), &model, &member, &mut done).await?
                    }
                }
            }
            if !some.more {
                break;
            }
        }
        // The pass behind the last that copied anything finds that there is nothing more.
        if !waiting && !copied {
            return Ok(());
        }
        if waiting {
            sleep(PAUSE).await;
            still(state, &of.key, next).await?;
        }
    }
}

fn chunks_of(member: &StoredDocument) -> usize {
    let chunks = member.object["progress"]["chunks_done"].as_u64();
    chunks.and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

/// Copy a document. False if it is there already.
async fn copy(
    collections: &Collections,
    (of, next): (&Collection, &Next),
    model: &Arc<ServedModel>,
    member: &StoredDocument,
    done: &mut Done,
) -> Result<bool, IngestEnd> {
    let state = &collections.api;
    let key = member_key(&space(&of.key, next.generation), &member.file());
    let there = state.store.get(key).await?;
    let there = there.as_ref().and_then(StoredDocument::of);
    let there = there.filter(|there| there.is_copy_of(member));
    if let Some(there) = there.as_ref().filter(|one| one.status() != "in_progress") {
        done.files += 1;
        done.chunks += chunks_of(there);
        return Ok(false);
    }
    let mut target = match there {
        Some(there) => there,
        None => {
            let target = member.copy(&of.key, next);
            guarded(state, &of.key, next, Change::Put(target.record())).await?;
            target
        }
    };
    if member.status() == "completed" {
        let turn = collections.turn(&of.key.owner, false);
        let _turn = turn.await.map_err(|_| IngestEnd::Halted)?;
        chunks(state, (of, next), model, (member, &target), done).await?;
    }
    target.finish_copy(member);
    guarded(state, &of.key, next, Change::Update(target.record())).await?;
    done.files += 1;
    note(state, &of.key, next, *done).await?;
    Ok(true)
}

/// Store the chunks of a document with new vectors, behind those that are there.
async fn chunks(
    state: &ApiState,
    (of, next): (&Collection, &Next),
    model: &Arc<ServedModel>,
    (member, target): (&StoredDocument, &StoredDocument),
    done: &mut Done,
) -> Result<(), IngestEnd> {
    let all = mortise_search::chunks(&*state.store, &member.key).await?;
    let there = mortise_search::chunks(&*state.store, &target.key).await?;
    let mut there = there.len();
    let principal = target.principal();
    done.chunks += there.min(all.len());
    while there < all.len() {
        if *state.http.draining.borrow() {
            return Err(IngestEnd::Halted);
        }
        let batch = &all[there..all.len().min(there + INGEST_BATCH)];
        let texts: Vec<String> = batch.iter().map(|chunk| chunk.text.clone()).collect();
        fit(model, texts.clone()).await?;
        let made = embed(&state.service, &next.model, &principal, true, texts).await;
        let vectors =
            made.map_err(|error| IngestEnd::Failed("embedding_failed", error.to_string()))?;
        let items = batch
            .iter()
            .zip(vectors)
            .enumerate()
            .map(|(at, (chunk, vector))| {
                let chunk = Chunk {
                    vector,
                    ..chunk.clone()
                };
                Item {
                    id: chunk_id(there + at),
                    body: chunk.encode(),
                }
            });
        let append = Change::Append {
            parent: target.key.clone(),
            items: items.collect(),
        };
        guarded(state, &of.key, next, append).await?;
        there += batch.len();
        done.chunks += batch.len();
        note(state, &of.key, next, *done).await?;
    }
    Ok(())
}

/// Refuse chunks of which the model would not read the end.
async fn fit(model: &Arc<ServedModel>, texts: Vec<String>) -> Result<(), IngestEnd> {
    let model = Arc::clone(model);
    let longest = tokio::task::spawn_blocking(move || {
        let counter = TokenCounter::of(&model)?;
        let tokens = texts.iter().map(|text| counter.count(text));
        Some((tokens.max().unwrap_or(0), room_for_documents(&model)))
    });
    match longest.await {
        Ok(Some((tokens, room))) if tokens > room => {
            let message = format!(
                "a chunk has {tokens} tokens and the model takes {room}; attach the files anew, in smaller chunks"
            );
            Err(IngestEnd::Failed("chunk_too_long", message))
        }
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(_) => Err(IngestEnd::Halted),
    }
}

/// Make a change while the collection waits for its new vectors.
async fn guarded(
    state: &ApiState,
    key: &Key,
    next: &Next,
    wanted: Change,
) -> Result<(), IngestEnd> {
    for _ in 0..ATTEMPTS {
        let of = still(state, key, next).await?;
        let changes = vec![of.unchanged(), wanted.clone()];
        match state.store.commit(changes).await {
            Err(StoreError::Conflict) => {}
            result => return Ok(result?),
        }
    }
    // Another server has taken the work up.
    Err(IngestEnd::Halted)
}

/// The collection, if it still waits for these vectors.
async fn still(state: &ApiState, key: &Key, next: &Next) -> Result<Collection, IngestEnd> {
    let of = load(state, key).await?;
    of.filter(|of| of.next.as_ref() == Some(next))
        .ok_or(IngestEnd::Halted)
}

/// Store how far the work has come.
async fn note(state: &ApiState, key: &Key, next: &Next, done: Done) -> Result<(), IngestEnd> {
    let noted = change(state, key, |of| {
        (of.next.as_ref() == Some(next)).then(|| {
            let shown = &mut of.object["reembedding"];
            shown["files_done"] = json!(done.files);
            shown["chunks_done"] = json!(done.chunks);
        })
    });
    noted.await?.ok_or(IngestEnd::Halted)
}

impl Collections {
    /// Begin to make new vectors for a collection, as its record says.
    pub(crate) fn reembed(self: &Arc<Self>, key: Key) {
        begin(self, key);
    }

    /// Keep the vectors that a collection has, if others are being made.
    pub(crate) async fn keep_vectors(self: &Arc<Self>, of: &Collection) -> Result<(), Problem> {
        if let Some(next) = &of.next {
            let kept = give_up(&self.api, &of.key, next, "cancelled", None).await;
            kept.map_err(store_problem)?;
            begin(self, of.key.clone());
        }
        Ok(())
    }
}
