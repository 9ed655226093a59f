//! The start of a response: its context, its prompt, and the answer to it.

use std::sync::Arc;

use http::request::Parts;
use mortise_http::{Context, Owner, Problem, Reservation};
use mortise_service::{ChatPrompt, Prompt, PromptEnd};
use mortise_store::{Key, RecordKind};
use serde_json::{Value, json};

use super::assembly::ResponseAssembly;
use super::drive::Driver;
use super::keep::ResponseKey;
use super::messages::conversation;
use super::recent::{Continued, RecentResponse};
use super::request::ResponseCall;
use super::{RESPONSES, file_search, history};
use crate::ids::Ids;
use crate::start::{Started, start};
use crate::state::ApiState;
use crate::stored::store_problem;

/// A response whose answer has begun.
pub(super) struct StartedResponse {
    pub(super) driver: Driver,
    /// Headers of the policies.
    pub(super) headers: Vec<(String, String)>,
}

/// A request that can be answered.
pub(super) struct CheckedRequest {
    pub(super) call: ResponseCall,
    pub(super) owner: Arc<str>,
    pub(super) ids: Ids,
    /// The response that is made again after a restart.
    pub(super) again: Option<serde_json::Map<String, Value>>,
}

/// Start to answer a request.
pub(super) async fn begin(
    state: &Arc<ApiState>,
    context: &Context,
    parts: &Parts,
    reserved: Reservation,
    asked: CheckedRequest,
) -> Result<StartedResponse, Problem> {
    let CheckedRequest {
        mut call,
        owner,
        ids,
        again,
    } = asked;
    let (previous, joined) = (call.previous.as_deref(), call.conversation.as_deref());
    let recent = parts.extensions.get::<RecentResponse>();
    let known = recent.and_then(|recent| recent.items(previous?));
    let before = match known {
        Some(items) => items,
        None => history::before(state, &owner, previous, joined).await?,
    };
    call.input = history::resolved(&before, std::mem::take(&mut call.input))?;
    if call.store || call.conversation.is_some() {
        // Who promises to keep something does not begin if it could not.
        state.store.promise(&owner).await.map_err(store_problem)?;
    }
    let continued = recent.map(|recent| Continued {
        recent: recent.clone(),
        previous: call.previous.clone(),
        items: [before.as_slice(), &call.input].concat(),
    });
    let wanted = call.file_search.take();
    let search = file_search::open(state, &owner, wanted, &mut call.fields).await?;
    let started = answer(state, context, parts, reserved, &call, before).await?;
    let mut assembly = match again {
        Some(response) => ResponseAssembly::again(response, call.shape),
        None => ResponseAssembly::new(call.echo, call.shape, ids, call.background),
    };
    assembly.set("model", json!(started.model));
    assembly.search = search;
    assembly.set(
        "conversation",
        match &call.conversation {
            Some(id) => json!({"id": id}),
            None => Value::Null,
        },
    );
    let key = Key::new(&owner, RecordKind::Response, assembly.id());
    let joined = call
        .conversation
        .map(|id| Key::new(&owner, RecordKind::Conversation, id));
    let keep = (call.store || joined.is_some()).then(|| ResponseKey {
        key,
        created: assembly.created(),
        expires: state.retention.answer_expires(assembly.created()),
        input: call.input,
        conversation: joined,
        live: None,
        response: call.store,
    });
    let store = Arc::clone(&state.store);
    Ok(StartedResponse {
        driver: Driver::new(started.answering, assembly, store, keep, continued),
        headers: started.headers,
    })
}

/// Start the answer. Where the context has no room and the caller allows it, older items are left out.
async fn answer(
    state: &ApiState,
    context: &Context,
    parts: &Parts,
    reserved: Reservation,
    call: &ResponseCall,
    before: Vec<Value>,
) -> Result<Started, Problem> {
    let mut items = before;
    items.extend(call.input.iter().cloned());
    let mut own = call.input.len();
    let mut reserved = Some(reserved);
    loop {
        let conversation = conversation(call.instructions.as_deref(), &items, own)?;
        let mut fields = call.fields.clone();
        fields.prompt = Prompt::Chat(ChatPrompt {
            conversation,
            arguments: call.arguments.clone(),
            template: call.template.clone(),
            end: PromptEnd::AssistantTurn,
        });
        let memory = reserved.take().unwrap_or_else(|| nothing(state, context));
        let started = start(state, context, RESPONSES, parts, memory, vec![fields]).await;
        match started {
            Err(problem) if call.truncates && problem.code == "context_length_exceeded" => {
                if !history::shorten(&mut items) {
                    return Err(problem);
                }
                own = own.min(items.len());
            }
            started => return started,
        }
    }
}

/// No memory of a body.
pub(super) fn nothing(state: &ApiState, context: &Context) -> Reservation {
    state.http.bodies.open(Owner::new(context.peer.ip(), None))
}
