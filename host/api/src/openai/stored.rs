//! Chat completions that are stored: kept when they have ended, listed, read, changed, deleted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use futures::future::BoxFuture;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem, Reservation, value_bytes};
use mortise_service::{Event, Usage};
use mortise_store::{Change, Item, Key, Record, RecordFilter, RecordKind, RecordPage, Store};
use serde_json::{Map, Value, json};

use super::reply::{ChatBody, ChatWhole};
use super::{CHAT, COMPLETION, COMPLETION_MESSAGES};
use crate::hints;
use crate::ids::now;
use crate::paging::{QueryParameters, list_body};
use crate::receive::{ReceivedRequest, receive};
use crate::state::ApiState;
use crate::stored::{after_absent, caller, found, parsed, set_metadata, store_problem, value_of};
use crate::stream::StreamWriter;

type Handled = Result<Response, Problem>;

/// Parts of a request that are kept beside its answer.
#[derive(Debug)]
pub(super) struct StoredRequest {
    /// Each as JSON, which takes less memory than its values while the answer is made.
    messages: Vec<String>,
    metadata: Value,
}

impl StoredRequest {
    /// Memory of it, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let messages = self.messages.iter();
        let messages: usize = messages.map(|text| text.len() + size_of::<String>()).sum();
        messages + value_bytes(&self.metadata)
    }
}

/// Record to be kept, if the caller wants one.
pub(super) fn asked(object: &Map<String, Value>) -> Option<StoredRequest> {
    if object.get("store").and_then(Value::as_bool) != Some(true) {
        return None;
    }
    let messages = object.get("messages").and_then(Value::as_array);
    let metadata = object.get("metadata").filter(|value| !value.is_null());
    Some(StoredRequest {
        messages: messages
            .into_iter()
            .flatten()
            .map(Value::to_string)
            .collect(),
        metadata: metadata.cloned().unwrap_or_else(|| json!({})),
    })
}

/// Key of a completion in the store.
pub(super) struct CompletionKey {
    asked: StoredRequest,
    /// Memory of the request, as long as it is here.
    _memory: Reservation,
    owner: Arc<str>,
    store: Arc<dyn Store>,
    expires: Option<i64>,
}

impl CompletionKey {
    /// A place for a completion.
    ///
    /// # Errors
    /// When nothing could be kept.
    pub(super) async fn promised(
        state: &ApiState,
        owner: Arc<str>,
        asked: StoredRequest,
        memory: Reservation,
    ) -> Result<Self, Problem> {
        state.store.promise(&owner).await.map_err(store_problem)?;
        Ok(Self {
            asked,
            _memory: memory,
            owner,
            store: Arc::clone(&state.store),
            expires: state.retention.answer_expires(now()),
        })
    }

    /// Write a completion.
    pub(super) async fn write(self, completion: &ChatBody) -> Result<(), Problem> {
        let id = completion.id.as_str();
        let mut body = json!(completion);
        body["metadata"] = self.asked.metadata;
        let record = Record {
            key: Key::new(&self.owner, RecordKind::ChatCompletion, id),
            created: i64::try_from(completion.created).unwrap_or(i64::MAX),
            expires: self.expires,
            open: false,
            body: body.to_string().into_bytes(),
        };
        let messages = self.asked.messages.into_iter().enumerate();
        let items = messages.map(|(at, message)| {
            let mut message: Value = serde_json::from_str(&message).unwrap_or_default();
            let id = format!("{id}-{at}");
            message["id"] = json!(id);
            let body = message.to_string().into_bytes();
            Item { id, body }
        });
        let append = Change::Append {
            parent: record.key.clone(),
            items: items.collect(),
        };
        let written = self.store.commit(vec![Change::Put(record), append]).await;
        written.map_err(store_problem)
    }
}

/// Writes the events of a completion, and gathers it to be kept.
pub(super) struct CompletionRecorder<W> {
    pub(super) writer: W,
    pub(super) whole: Option<ChatWhole>,
    pub(super) keep: Option<CompletionKey>,
    pub(super) completion: Option<ChatBody>,
}

impl<W: StreamWriter> StreamWriter for CompletionRecorder<W> {
    const HEADERS: &'static [(&'static str, &'static str)] = W::HEADERS;

    fn opening(&mut self, out: &mut Vec<u8>) {
        self.writer.opening(out);
    }

    fn progress(&mut self, usage: &dyn Fn() -> Usage) {
        self.writer.progress(usage);
    }

    fn event(&mut self, event: Event, out: &mut Vec<u8>) {
        match (&event, &mut self.whole) {
            (
                Event::Delta {
                    choice,
                    delta,
                    logprobs,
                    tokens,
                },
                Some(whole),
            ) => whole.delta(*choice, delta.clone(), logprobs.clone(), tokens),
            (Event::ServerToolCall { choice, call }, Some(whole)) => {
                whole.server_tool_call(*choice, call.clone());
            }
            (
                Event::Finished {
                    choice,
                    reason,
                    tokens,
                    ..
                },
                Some(whole),
            ) => whole.finished(*choice, *reason, tokens),
            (Event::Completed { usage }, whole) => {
                self.completion = whole.take().map(|whole| whole.body(*usage));
            }
            _ => {}
        }
        self.writer.event(event, out);
    }

    fn heartbeat(&mut self, out: &mut Vec<u8>) {
        self.writer.heartbeat(out);
    }

    fn problem(problem: &Problem, out: &mut Vec<u8>) {
        W::problem(problem, out);
    }

    fn keep(&mut self) -> Option<BoxFuture<'static, Result<(), Problem>>> {
        let (keep, completion) = (self.keep.take()?, self.completion.take()?);
        Some(Box::pin(async move { keep.write(&completion).await }))
    }
}

async fn completion(state: &ApiState, owner: &Arc<str>, id: &str) -> Result<Record, Problem> {
    let key = Key::new(owner, RecordKind::ChatCompletion, id);
    found(state, key, "stored chat completion", "completion_id").await
}

/// `GET /v1/chat/completions`
pub(super) async fn list(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CHAT, "GET", &parts).await?;
    let known = ["after", "limit", "order", "model", "metadata["];
    let query = QueryParameters::of(&parts.uri, &known)?;
    let page = query.page(true)?;
    let (model, members) = (
        query.get("model").map(str::to_owned),
        query.members("metadata"),
    );
    let filtered = model.is_some() || !members.is_empty();
    let filter: RecordFilter = Box::new(move |record| {
        let completion = value_of(record);
        let metadata = &completion["metadata"];
        model
            .as_ref()
            .is_none_or(|model| completion["model"] == model.as_str())
            && members
                .iter()
                .all(|(key, value)| metadata[key.as_str()] == value.as_str())
    });
    let after = page.after.clone();
    let filter = filtered.then_some(filter);
    let listing = state
        .store
        .list(&caller.owner, RecordKind::ChatCompletion, page, filter)
        .await
        .map_err(|error| after_absent("entry", error, after.as_deref()))?;
    let entries = listing.entries.iter().map(value_of).collect();
    let more = listing.more;
    Ok(caller.answer(&list_body(RecordPage { entries, more })))
}

/// `GET /v1/chat/completions/{id}`
pub(super) async fn retrieve(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, COMPLETION, "GET", &parts).await?;
    let record = completion(&state, &caller.owner, &id).await?;
    Ok(caller.answer(&value_of(&record)))
}

/// `POST /v1/chat/completions/{id}`
pub(super) async fn update(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let ReceivedRequest {
        parts,
        mut object,
        reserved: _reserved,
        ..
    } = receive(&state, &context, COMPLETION, request).await?;
    let caller = caller(&state, &context, COMPLETION, "POST", &parts).await?;
    hints::check(&object)?;
    if let Some(name) = object.keys().find(|name| *name != "metadata") {
        let name: String = name.chars().take(64).collect();
        let problem = format!("unknown field `{name}`; `metadata` can be changed");
        return Err(Problem::invalid(name, problem));
    }
    let record = completion(&state, &caller.owner, &id).await?;
    let completion = set_metadata(&state, record, object.remove("metadata")).await?;
    Ok(caller.answer(&completion))
}

/// `DELETE /v1/chat/completions/{id}`
pub(super) async fn delete(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, COMPLETION, "DELETE", &parts).await?;
    let record = completion(&state, &caller.owner, &id).await?;
    let changes = vec![Change::Delete(record.key)];
    state.store.commit(changes).await.map_err(store_problem)?;
    let body = json!({"object": "chat.completion.deleted", "id": id, "deleted": true});
    Ok(caller.answer(&body))
}

/// `GET /v1/chat/completions/{id}/messages`
pub(super) async fn messages(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, COMPLETION_MESSAGES, "GET", &parts).await?;
    let page = QueryParameters::of(&parts.uri, &["after", "limit", "order"])?.page(true)?;
    let record = completion(&state, &caller.owner, &id).await?;
    let listing = state.store.items(record.key, page.clone()).await;
    let listing = listing.map_err(|error| after_absent("entry", error, page.after.as_deref()))?;
    Ok(caller.answer(&list_body(parsed(&listing))))
}
