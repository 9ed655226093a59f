//! The start of a response: its context, its prompt, and the answer to it.

use std::sync::Arc;

use http::request::Parts;
use mortise_http::{Context, Owner, Problem, Reservation, reserve_more, value_bytes};
use mortise_service::{ChatPrompt, Prompt, PromptEnd};
use mortise_store::{Item, Key, RecordKind};
use serde_json::{Value, json};

use super::assembly::ResponseAssembly;
use super::drive::Driver;
use super::items::input_bytes;
use super::keep::{ResponseKey, stored, stored_bytes};
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
    mut reserved: Reservation,
    asked: CheckedRequest,
) -> Result<StartedResponse, Problem> {
    let CheckedRequest {
        mut call,
        owner,
        ids,
        again,
    } = asked;
    let recent = parts.extensions.get::<RecentResponse>();
    let before = before(state, &owner, recent, &call, &mut reserved).await?;
    reserve_more(&mut reserved, input_bytes(&call.input))?;
    call.input = history::resolved(&before, std::mem::take(&mut call.input))?;
    if call.store || call.conversation.is_some() {
        // Who promises to keep something does not begin if it could not.
        state.store.promise(&owner).await.map_err(store_problem)?;
    }
    let continued = recent.map(|recent| {
        let items = before.iter().chain(&call.input);
        Continued::new(recent, call.previous.as_ref(), items)
    });
    let input = match call.store || call.conversation.is_some() {
        true => stored(&call.input),
        false => Vec::new(),
    };
    let kept = kept(&mut reserved, &call, &input, continued.as_ref())?;
    let wanted = call.file_search.take();
    let search = file_search::open(state, &owner, wanted, &mut call.fields).await?;
    let started = answer(state, context, parts, reserved, &call, &before).await?;
    drop((before, std::mem::take(&mut call.input)));
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
        input,
        conversation: joined,
        live: None,
        response: call.store,
    });
    let store = Arc::clone(&state.store);
    Ok(StartedResponse {
        driver: Driver::new(started.answering, assembly, store, keep, continued, kept),
        headers: started.headers,
    })
}

/// Items before those of the request: the connection's own, or those that were stored.
async fn before(
    state: &ApiState,
    owner: &Arc<str>,
    recent: Option<&RecentResponse>,
    call: &ResponseCall,
    reserved: &mut Reservation,
) -> Result<Vec<Value>, Problem> {
    let (previous, joined) = (call.previous.as_deref(), call.conversation.as_deref());
    match recent.and_then(|recent| recent.items(previous?)) {
        Some(items) => {
            reserve_more(reserved, input_bytes(&items))?;
            Ok(items)
        }
        None => history::before(state, owner, previous, joined, reserved).await,
    }
}

/// Memory of what stays of a request until its answer has ended.
fn kept(
    reserved: &mut Reservation,
    call: &ResponseCall,
    input: &[Item],
    continued: Option<&Continued>,
) -> Result<Reservation, Problem> {
    let echo = call.echo.values().map(value_bytes);
    let continued = continued.map_or(0, Continued::bytes);
    let bytes = stored_bytes(input) + continued + echo.sum::<usize>();
    reserve_more(reserved, bytes)?;
    Ok(reserved.split(bytes))
}

/// Start the answer. Where the context has no room and the caller allows it, older items are left out.
async fn answer(
    state: &ApiState,
    context: &Context,
    parts: &Parts,
    reserved: Reservation,
    call: &ResponseCall,
    before: &[Value],
) -> Result<Started, Problem> {
    let mut items: Vec<&Value> = before.iter().chain(&call.input).collect();
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
