//! A document on its way into a collection: read, divided, embedded and stored, batch by batch. A server that is killed
//! goes on behind the last batch that it has stored.

use std::sync::Arc;

use mortise_http::Problem;
use mortise_retrieval::limits::{MAX_COLLECTION_CHUNKS, MAX_DOCUMENT_BYTES, MAX_DOCUMENT_CHUNKS};
use mortise_retrieval::{
    Chunk, ChunkSpan, Chunking, DocumentError, DocumentPages, Format, is_pdf, text_of,
    text_of_pages,
};
use mortise_search::{DocumentChange, chunk_id, chunks};
use mortise_service::{ChunkSizes, PluginError, Principal, ReadError, ServedModel, ServiceError};
use mortise_store::{Change, Item, StoreError};
use serde_json::json;
use tokio::time::sleep;

use super::embedding::{TokenCounter, embed, embedder_of};
use super::limits::{INGEST_BATCH, SAMPLE_BYTES, SMALL_DOCUMENT_BYTES};
use super::retriever::{ATTEMPTS, PAUSE, Retrieval, RetrieverCaller};
use super::stored::StoredDocument;
use super::turns::Pauses;
use super::{Collections, indexed};
use crate::contents::{key_of, piece};
use crate::problem::problem_of;
use crate::state::ApiState;
use crate::stored::value_of;

/// End of an ingest that did not complete.
pub(super) enum IngestEnd {
    /// The document cannot be taken; the code and the message for its owner.
    Failed(&'static str, String),
    /// The ingest goes on after the next start, or its record is gone.
    Halted,
    /// The ingest goes on when the store accepts writes again.
    Waiting(StoreError),
}

impl From<StoreError> for IngestEnd {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Quota { .. } | StoreError::TooLarge { .. } => {
                Self::Failed("store_quota_exceeded", error.to_string())
            }
            StoreError::Full | StoreError::Busy | StoreError::Unavailable(_) => {
                Self::Waiting(error)
            }
            StoreError::Conflict | StoreError::NotFound => Self::Halted,
        }
    }
}

impl From<Problem> for IngestEnd {
    fn from(problem: Problem) -> Self {
        Self::Failed("server_error", problem.text().to_owned())
    }
}

impl From<DocumentError> for IngestEnd {
    fn from(error: DocumentError) -> Self {
        let code = match error {
            DocumentError::Format(_) => "unsupported_file",
            _ => "invalid_file",
        };
        Self::Failed(code, error.to_string())
    }
}

impl From<ReadError> for IngestEnd {
    fn from(error: ReadError) -> Self {
        let code = match error {
            ReadError::Overloaded(_) | ReadError::Unusable(_) => "server_error",
            _ => "invalid_file",
        };
        Self::Failed(code, error.to_string())
    }
}

/// Begin the work on a document.
pub(super) fn begin(collections: &Arc<Collections>, member: StoredDocument, principal: Principal) {
    let collections = Arc::clone(collections);
    let held = collections.under_way.hold(member.key.clone());
    tokio::spawn(async move {
        let _held = held;
        let (mut member, mut pauses) = (member, Pauses::default());
        let id = member.key.id.clone();
        let mut end = in_turn(&collections, &mut member, &principal).await;
        while let Err(IngestEnd::Waiting(error)) = &end
            && pauses.rest(&collections, error, &id).await
        {
            end = in_turn(&collections, &mut member, &principal).await;
        }
        match end {
            Ok(()) => tracing::info!(id, "a document was ingested"),
            Err(IngestEnd::Halted | IngestEnd::Waiting(_)) => tracing::info!(
                id,
                "a document goes on after the next start, or was taken out"
            ),
            Err(IngestEnd::Failed(code, message)) => {
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

/// Ingest a document, when its turn has come.
async fn in_turn(
    collections: &Collections,
    member: &mut StoredDocument,
    principal: &Principal,
) -> Result<(), IngestEnd> {
    let small = is_small(&collections.api, member).await?;
    let turn = collections.turn(&member.key.owner, small);
    let _turn = turn.await.map_err(|_| IngestEnd::Halted)?;
    steps(collections, member, principal).await
}

/// True if the ingest of a document takes little memory and time.
async fn is_small(state: &ApiState, member: &StoredDocument) -> Result<bool, IngestEnd> {
    let file = state.store.get(key_of(&member.key.owner, &member.file()));
    let bytes = file.await?.map(|file| value_of(&file)["bytes"].as_u64());
    let small = bytes
        .flatten()
        .is_some_and(|bytes| bytes <= SMALL_DOCUMENT_BYTES);
    // A page may be much larger than the file that describes it.
    Ok(small && !is_pdf(member.name(), &[]))
}

async fn steps(
    collections: &Collections,
    member: &mut StoredDocument,
    principal: &Principal,
) -> Result<(), IngestEnd> {
    let state = &collections.api;
    let file = key_of(&member.key.owner, &member.file());
    let _held = state.files.hold(file);
    let bytes = content(state, member).await?;
    let (model, _) = embedder_of(state, Some(member.model()), "model")?;
    let (text, pages, spans) = divided(state, member, principal, bytes, &model).await?;
    let chunks = chunks(&*state.store, &member.key).await?;
    let mut chunks = go_on(state, member, &spans, chunks).await?;
    check_room(collections, member, spans.len()).await?;
    loop {
        if *state.http.draining.borrow() {
            return Err(IngestEnd::Halted);
        }
        let first = chunks.len();
        let next = spans.iter().skip(first).take(INGEST_BATCH);
        let texts: Vec<String> = next
            .clone()
            .map(|span| text.get(span.clone()).unwrap_or_default().to_owned())
            .collect();
        if !texts.is_empty() {
            let (model, prompted) = (member.model(), member.prompted());
            let made = embed(&state.service, model, principal, prompted, texts.clone()).await;
            let vectors =
                made.map_err(|error| IngestEnd::Failed("embedding_failed", error.to_string()))?;
            for ((span, text), vector) in next.zip(texts).zip(vectors) {
                chunks.push(chunk(span, &pages, text, vector));
            }
        }
        store(state, member, &chunks, first, spans.len()).await?;
        if chunks.len() >= spans.len() {
            let key = member.space();
            let added = DocumentChange::Added(member.document(), chunks);
            indexed(state, &key, added).await;
            return Ok(());
        }
    }
}

/// The bytes of the document's file.
async fn content(state: &ApiState, member: &StoredDocument) -> Result<Vec<u8>, IngestEnd> {
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

/// Stored chunks, if their places are the first of `spans`. Otherwise another retriever has divided the document, and
/// its stored chunks are removed.
async fn go_on(
    state: &ApiState,
    member: &mut StoredDocument,
    spans: &[ChunkSpan],
    chunks: Vec<Chunk>,
) -> Result<Vec<Chunk>, IngestEnd> {
    let place = |chunk: &Chunk| chunk.start as usize..chunk.end as usize;
    let same = chunks.len() <= spans.len()
        && chunks
            .iter()
            .zip(spans)
            .all(|(chunk, span)| place(chunk) == *span);
    if same {
        return Ok(chunks);
    }
    still_there(state, member).await?;
    member.object["progress"] = json!({"chunks_done": 0, "chunks_total": null});
    let changes = vec![
        Change::Delete(member.key.clone()),
        Change::Put(member.record()),
    ];
    state.store.commit(changes).await?;
    Ok(Vec::new())
}

/// The text of a document, and the places of its pages and of its chunks.
async fn divided(
    state: &ApiState,
    member: &StoredDocument,
    principal: &Principal,
    bytes: Vec<u8>,
    model: &Arc<ServedModel>,
) -> Result<(String, DocumentPages, Vec<ChunkSpan>), IngestEnd> {
    let (name, chunking) = (member.name().to_owned(), member.chunking());
    let asker = RetrieverCaller::of(&member.key.id, principal);
    let space = member.space();
    let retrieval = Retrieval::kept(state, member.retriever(), &space.id, asker)?;
    let (text, pages, format) = text(state, name, bytes).await?;
    let embeds = Arc::clone(model);
    let (text, sizes) = apart(move || {
        let sizes = sizes(&text, &embeds, chunking)?;
        Ok((text, sizes))
    })
    .await?;
    let mut own = None;
    if let Some(retrieval) = retrieval.filter(Retrieval::chunks) {
        let of = (member.name(), format);
        let spans = retrieval.divide(of, &text, sizes).await;
        own = spans.map_err(retriever_failed)?;
    }
    let embeds = Arc::clone(model);
    apart(move || {
        let spans = match own {
            Some(spans) => fitting(&text, spans, &embeds, chunking)?,
            None => divide(&text, &embeds, chunking)?,
        };
        checked(spans).map(|spans| (text, pages, spans))
    })
    .await
}

/// The text of a file, and where its pages begin.
async fn text(
    state: &ApiState,
    name: String,
    bytes: Vec<u8>,
) -> Result<(String, DocumentPages, Format), IngestEnd> {
    if !is_pdf(&name, &bytes) {
        let read = move || Ok(text_of(&name, bytes)?);
        let (text, format) = apart(read).await?;
        return Ok((text, DocumentPages::default(), format));
    }
    let Some(reader) = state.reader.get() else {
        return Err(DocumentError::Format("PDF").into());
    };
    let mut attempt = 0;
    let pages = loop {
        match reader.read(&bytes).await {
            Err(ReadError::Overloaded(_)) if attempt < ATTEMPTS => {
                attempt += 1;
                sleep(PAUSE).await;
            }
            read => break read?,
        }
    };
    let read = move || Ok(text_of_pages(&pages)?);
    let (text, pages) = apart(read).await?;
    Ok((text, pages, Format::Pdf))
}

/// The end of a document that a retriever could not divide.
fn retriever_failed(error: PluginError) -> IngestEnd {
    let code = match error.fault.is_refusal() {
        true => "invalid_file",
        false => "retriever_failed",
    };
    let problem = problem_of(ServiceError::Plugin(error));
    IngestEnd::Failed(code, problem.text().to_owned())
}

/// Work that blocks.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IngestEnd> + Send + 'static,
) -> Result<T, IngestEnd> {
    let failed = |_| {
        IngestEnd::Failed(
            "server_error",
            "the document could not be divided".to_owned(),
        )
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// Function that counts the tokens of a text for a model.
fn counting(model: &ServedModel) -> Result<impl Fn(&str) -> usize, IngestEnd> {
    let counter = TokenCounter::of(model).ok_or(IngestEnd::Halted)?;
    Ok(move |piece: &str| counter.count(piece))
}

/// Size of chunks as a retriever is told it.
fn sizes(text: &str, model: &ServedModel, chunking: Chunking) -> Result<ChunkSizes, IngestEnd> {
    let sample = text.get(..text.floor_char_boundary(SAMPLE_BYTES));
    let sample = sample.unwrap_or_default();
    let tokens = counting(model)?(sample).max(1);
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(ChunkSizes {
        max_tokens: number(chunking.tokens),
        overlap_tokens: number(chunking.overlap),
        about_bytes: number((sample.len() * chunking.tokens / tokens).max(1)),
        max_chunks: number(MAX_DOCUMENT_CHUNKS),
    })
}

/// The places of the chunks of a text.
fn divide(
    text: &str,
    model: &ServedModel,
    chunking: Chunking,
) -> Result<Vec<ChunkSpan>, IngestEnd> {
    Ok(mortise_retrieval::chunks(text, chunking, counting(model)?))
}

/// Chunks of a retriever without the white space around them. Chunks with more tokens than the model takes are
/// divided.
fn fitting(
    text: &str,
    spans: Vec<ChunkSpan>,
    model: &ServedModel,
    chunking: Chunking,
) -> Result<Vec<ChunkSpan>, IngestEnd> {
    let count = counting(model)?;
    let whole = Chunking {
        overlap: 0,
        ..chunking
    };
    let mut fitting = Vec::with_capacity(spans.len());
    for span in spans {
        let piece = text.get(span.clone()).unwrap_or_default();
        let parts = match count(piece) > chunking.tokens {
            true => mortise_retrieval::chunks(piece, whole, &count),
            false => mortise_retrieval::without_blanks(piece)
                .into_iter()
                .collect(),
        };
        let parts = parts.into_iter();
        fitting.extend(parts.map(|part| span.start + part.start..span.start + part.end));
    }
    Ok(fitting)
}

/// Refuse a document without chunks, and one of too many.
fn checked(spans: Vec<ChunkSpan>) -> Result<Vec<ChunkSpan>, IngestEnd> {
    match spans.len() {
        0 => Err(DocumentError::Empty.into()),
        chunks if chunks > MAX_DOCUMENT_CHUNKS => {
            let message = format!(
                "it has {chunks} chunks; a document may have {MAX_DOCUMENT_CHUNKS}: ask for larger ones"
            );
            Err(IngestEnd::Failed("invalid_file", message))
        }
        _ => Ok(spans),
    }
}

/// Refuse a document for whose chunks the collection has no room.
async fn check_room(
    collections: &Collections,
    member: &StoredDocument,
    more: usize,
) -> Result<(), IngestEnd> {
    let key = member.space();
    let shared = collections.api.store.is_shared();
    if collections.sizes.takes(&key, more as u64, shared) {
        return Ok(());
    }
    let (mut there, mut after) = (0u64, None);
    loop {
        let some = super::members(&collections.api, &key, after, super::limits::PAGE, true).await?;
        // Of a document that is under way, all that it will have.
        let all = |one: &StoredDocument| {
            let progress = &one.object["progress"];
            let total = progress["chunks_total"].as_u64();
            total.or_else(|| progress["chunks_done"].as_u64())
        };
        there += some
            .entries
            .iter()
            .filter(|one| one.key != member.key)
            .filter_map(all)
            .sum::<u64>();
        after = some.entries.last().map(StoredDocument::file);
        if !some.more {
            break;
        }
    }
    let chunks = there.saturating_add(more as u64);
    match chunks > MAX_COLLECTION_CHUNKS as u64 {
        false => {
            collections.sizes.know(key, chunks);
            Ok(())
        }
        true => {
            let message = format!(
                "the vector store would have {chunks} chunks; it may have {MAX_COLLECTION_CHUNKS}"
            );
            Err(IngestEnd::Failed("store_quota_exceeded", message))
        }
    }
}

fn chunk(span: &ChunkSpan, pages: &DocumentPages, text: String, vector: Vec<f32>) -> Chunk {
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Chunk {
        start: place(span.start),
        end: place(span.end),
        page: pages.at(span.start),
        vector,
        text,
    }
}

/// Store the chunks from `first` on, and, with the last of all, that the document is complete.
async fn store(
    state: &ApiState,
    member: &mut StoredDocument,
    chunks: &[Chunk],
    first: usize,
    all: usize,
) -> Result<(), IngestEnd> {
    let new = chunks.iter().enumerate().skip(first);
    let items: Vec<Item> = new
        .map(|(number, chunk)| Item {
            id: chunk_id(number),
            body: chunk.encode(),
        })
        .collect();
    still_there(state, member).await?;
    member.object["progress"] = json!({"chunks_done": chunks.len(), "chunks_total": all});
    let mut changes = Vec::new();
    if !items.is_empty() {
        let parent = member.key.clone();
        changes.push(Change::Append { parent, items });
    }
    let complete = chunks.len() >= all;
    if complete {
        let bytes = chunks
            .iter()
            .map(|chunk| chunk.text.len() + 4 * chunk.vector.len());
        member.object["usage_bytes"] = json!(bytes.sum::<usize>());
        member.object["status"] = json!("completed");
    }
    changes.push(Change::Update(member.record()));
    if complete {
        changes = super::revised(state, &member.space(), changes);
    }
    Ok(state.store.commit(changes).await?)
}

/// Stop where the document was taken out, or attached anew, meanwhile.
async fn still_there(state: &ApiState, member: &StoredDocument) -> Result<(), IngestEnd> {
    let record = state.store.get(member.key.clone()).await?;
    let there = record.as_ref().and_then(StoredDocument::of);
    match there.is_some_and(|there| there.is(member)) {
        true => Ok(()),
        false => Err(IngestEnd::Halted),
    }
}
