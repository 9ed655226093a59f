//! A document on its way into a collection: read, divided, embedded and stored, batch by batch. A server that is killed
//! goes on behind the last batch that it has stored.

use std::sync::Arc;

use mortise_http::Problem;
use mortise_retrieval::limits::{MAX_COLLECTION_CHUNKS, MAX_DOCUMENT_BYTES, MAX_DOCUMENT_CHUNKS};
use mortise_retrieval::{Chunk, Chunking, DocumentError, Span, text_of};
use mortise_service::{Principal, ServedModel};
use mortise_store::{Change, Item, StoreError};
use serde_json::json;

use super::embedding::{embed, embedder_of};
use super::limits::INGEST_BATCH;
use super::stored::Member;
use super::{Collections, read};
use crate::contents::{key_of, piece};
use crate::state::ApiState;

/// End of an ingest that did not come to its own.
pub(super) enum End {
    /// The document cannot be taken; the code and the message for its owner.
    Failed(&'static str, String),
    /// It goes on after the next start, or its record is gone.
    Halted,
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Quota { .. } | StoreError::TooLarge { .. } => {
                Self::Failed("store_quota_exceeded", error.to_string())
            }
            _ => Self::Halted,
        }
    }
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        Self::Failed("server_error", problem.text().to_owned())
    }
}

impl From<DocumentError> for End {
    fn from(error: DocumentError) -> Self {
        let code = match error {
            DocumentError::Format(_) => "unsupported_file",
            _ => "invalid_file",
        };
        Self::Failed(code, error.to_string())
    }
}

/// Begin the work on a document.
pub(super) fn begin(collections: &Arc<Collections>, member: Member, principal: Principal) {
    let collections = Arc::clone(collections);
    let held = collections.under_way.hold(member.key.clone());
    tokio::spawn(async move {
        let _held = held;
        let turn = collections.turns.of(&member.key.owner);
        let Ok(_turn) = turn.acquire().await else {
            return;
        };
        let Ok(_slot) = collections.slots.acquire().await else {
            return;
        };
        let mut member = member;
        let id = member.key.id.clone();
        match steps(&collections, &mut member, &principal).await {
            Ok(()) => tracing::info!(id, "a document was ingested"),
            Err(End::Halted) => tracing::info!(
                id,
                "a document goes on after the next start, or was taken out"
            ),
            Err(End::Failed(code, message)) => {
                tracing::info!(id, code, message, "a document was not ingested");
                member.object["status"] = json!("failed");
                member.object["last_error"] = json!({"code": code, "message": message});
                let change = Change::Update(member.record());
                if let Err(error) = collections.api.store.commit(vec![change]).await {
                    tracing::warn!(id, %error, "that a document failed could not be stored");
                }
            }
        }
    });
}

async fn steps(
    collections: &Collections,
    member: &mut Member,
    principal: &Principal,
) -> Result<(), End> {
    let state = &collections.api;
    let file = key_of(&member.key.owner, &member.file());
    let _held = state.files.hold(file);
    let bytes = content(state, member).await?;
    let model = embedder_of(state, Some(member.model()), "model")?;
    let (name, chunking) = (member.name().to_owned(), member.chunking());
    let divided = tokio::task::spawn_blocking(move || divide(&name, bytes, &model, chunking)).await;
    let (text, spans) = divided.map_err(|_| {
        End::Failed(
            "server_error",
            "the document could not be divided".to_owned(),
        )
    })??;
    let mut chunks = read::chunks(state, &member.key).await?;
    check_room(collections, member, spans.len()).await?;
    while chunks.len() < spans.len() {
        if *state.http.draining.borrow() {
            return Err(End::Halted);
        }
        let next = spans.iter().skip(chunks.len()).take(INGEST_BATCH);
        let texts: Vec<String> = next
            .clone()
            .map(|span| text.get(span.clone()).unwrap_or_default().to_owned())
            .collect();
        let (model, prompted) = (member.model(), member.prompted());
        let made = embed(&state.service, model, principal, prompted, texts.clone()).await;
        let vectors = made.map_err(|error| End::Failed("embedding_failed", error.to_string()))?;
        let first = chunks.len();
        for ((span, text), vector) in next.zip(texts).zip(vectors) {
            chunks.push(chunk(span, text, vector));
        }
        store(state, member, &chunks, first, spans.len()).await?;
    }
    let bytes: usize = chunks
        .iter()
        .map(|chunk| chunk.text.len() + 4 * chunk.vector.len())
        .sum();
    still_there(state, member).await?;
    member.object["status"] = json!("completed");
    member.object["usage_bytes"] = json!(bytes);
    member.object["progress"] = json!({"chunks_done": chunks.len(), "chunks_total": chunks.len()});
    let key = member.space();
    let changes = vec![Change::Update(member.record())];
    let changes = super::revised(state, &key, changes);
    state.store.commit(changes).await?;
    state.indexes.add(&key, member.document(), chunks).await;
    Ok(())
}

/// The bytes of the document's file.
async fn content(state: &ApiState, member: &Member) -> Result<Vec<u8>, End> {
    let key = key_of(&member.key.owner, &member.file());
    let (mut bytes, mut place) = (Vec::new(), 0);
    while let Some(mut more) = piece(&*state.store, &key, place).await? {
        bytes.append(&mut more);
        if bytes.len() > MAX_DOCUMENT_BYTES {
            let bytes = bytes.len();
            return Err(DocumentError::TooLong { bytes }.into());
        }
        place += 1;
    }
    Ok(bytes)
}

/// The text of a document, and the places of its chunks. Blocks.
fn divide(
    name: &str,
    bytes: Vec<u8>,
    model: &ServedModel,
    chunking: Chunking,
) -> Result<(String, Vec<Span>), End> {
    let (text, _) = text_of(name, bytes)?;
    let embedder = model
        .loaded
        .as_ref()
        .and_then(|loaded| loaded.model.embedder.as_ref());
    let Some(embedder) = embedder else {
        return Err(End::Halted);
    };
    let tokens = |piece: &str| {
        let encoded = embedder.tokenizer.encode_plain(piece);
        // What has no tokens counts by its bytes, of which none is more than a token.
        encoded.map_or(piece.len(), |ids| ids.len())
    };
    let spans = mortise_retrieval::chunks(&text, chunking, tokens);
    match spans.len() {
        0 => Err(DocumentError::Empty.into()),
        chunks if chunks > MAX_DOCUMENT_CHUNKS => {
            let message = format!(
                "it has {chunks} chunks; a document may have {MAX_DOCUMENT_CHUNKS}: ask for larger ones"
            );
            Err(End::Failed("invalid_file", message))
        }
        _ => Ok((text, spans)),
    }
}

/// Refuse a document for whose chunks the collection has no room.
async fn check_room(collections: &Collections, member: &Member, more: usize) -> Result<(), End> {
    let key = member.space();
    let (mut there, mut after) = (0u64, None);
    loop {
        let some = super::members(&collections.api, &key, after, super::limits::PAGE, true).await?;
        let done = |one: &Member| one.object["progress"]["chunks_done"].as_u64();
        there += some
            .entries
            .iter()
            .filter(|one| one.key != member.key)
            .filter_map(done)
            .sum::<u64>();
        after = some.entries.last().map(Member::file);
        if !some.more {
            break;
        }
    }
    let chunks = there.saturating_add(more as u64);
    match chunks > MAX_COLLECTION_CHUNKS as u64 {
        false => Ok(()),
        true => {
            let message = format!(
                "the vector store would have {chunks} chunks; it may have {MAX_COLLECTION_CHUNKS}"
            );
            Err(End::Failed("store_quota_exceeded", message))
        }
    }
}

fn chunk(span: &Span, text: String, vector: Vec<f32>) -> Chunk {
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Chunk {
        start: place(span.start),
        end: place(span.end),
        vector,
        text,
    }
}

/// Store chunks from `first` on, and how far the document has come.
async fn store(
    state: &ApiState,
    member: &mut Member,
    chunks: &[Chunk],
    first: usize,
    all: usize,
) -> Result<(), End> {
    let new = chunks.iter().enumerate().skip(first);
    let items = new.map(|(number, chunk)| Item {
        id: chunk_id(number),
        body: chunk.encode(),
    });
    member.object["progress"] = json!({"chunks_done": chunks.len(), "chunks_total": all});
    still_there(state, member).await?;
    let append = Change::Append {
        parent: member.key.clone(),
        items: items.collect(),
    };
    let changes = vec![append, Change::Update(member.record())];
    Ok(state.store.commit(changes).await?)
}

/// Stop where the document was taken out, or attached anew, meanwhile.
async fn still_there(state: &ApiState, member: &Member) -> Result<(), End> {
    let record = state.store.get(member.key.clone()).await?;
    let there = record.as_ref().and_then(Member::of);
    match there.is_some_and(|there| there.is(member)) {
        true => Ok(()),
        false => Err(End::Halted),
    }
}

/// Id of the chunk of a number.
pub(super) fn chunk_id(number: usize) -> String {
    format!("{number:06}")
}
