//! History of a request: the responses that it continues, or the items of its conversation.

use std::sync::Arc;

use http::StatusCode;
use mortise_http::{Problem, Reservation, parsed_bytes, reserve_more};
use mortise_store::{Key, Page, RecordKind, StoreError};
use serde_json::Value;

use super::items::id_of;
use crate::fields::FieldPath;
use crate::limits::{MAX_CHAIN, MAX_ITEMS};
use crate::state::ApiState;
use crate::stored::{absent, store_problem};

/// Items of a page when all are read.
const PAGE: usize = 500;

/// Memory of an item that was stored: of its values, and of the message that is made of them.
fn translated_bytes(body: &[u8]) -> usize {
    parsed_bytes(body).saturating_add(body.len())
}

/// Items before those of the request, within memory for them.
pub(super) async fn before(
    state: &ApiState,
    owner: &Arc<str>,
    previous: Option<&str>,
    conversation: Option<&str>,
    memory: &mut Reservation,
) -> Result<Vec<Value>, Problem> {
    match (previous, conversation) {
        (Some(id), _) => chain(state, owner, id, memory).await,
        (None, Some(id)) => {
            let key = Key::new(owner, RecordKind::Conversation, id);
            let items = all_items(state, key, "conversation", memory).await?;
            items.ok_or_else(|| absent("conversation", id, "conversation"))
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Inputs and outputs of a response and of all that it continues.
async fn chain(
    state: &ApiState,
    owner: &Arc<str>,
    last: &str,
    memory: &mut Reservation,
) -> Result<Vec<Value>, Problem> {
    let mut turns: Vec<Vec<Value>> = Vec::new();
    let mut count = 0;
    let mut next = Some(last.to_owned());
    while let Some(id) = next {
        let key = Key::new(owner, RecordKind::Response, id.as_str());
        let record = state.store.get(key.clone()).await.map_err(store_problem)?;
        let record = record.ok_or_else(|| previous_absent(&id))?;
        reserve_more(memory, translated_bytes(&record.body))?;
        let mut response: Value = serde_json::from_slice(&record.body).unwrap_or_default();
        if !matches!(
            response["status"].as_str(),
            Some("completed" | "incomplete")
        ) {
            let status = response["status"].as_str().unwrap_or_default();
            return Err(Problem::invalid(
                "previous_response_id",
                format!("the response `{id}` cannot be continued: it is {status}"),
            ));
        }
        let mut turn = all_items(state, key, "previous_response_id", memory)
            .await?
            .unwrap_or_default();
        if let Value::Array(output) = response["output"].take() {
            turn.extend(output);
        }
        count += turn.len();
        turns.push(turn);
        if turns.len() > MAX_CHAIN || count > MAX_ITEMS {
            return Err(Problem::invalid(
                "previous_response_id",
                format!(
                    "what goes before has more than {MAX_CHAIN} responses or {MAX_ITEMS} items"
                ),
            ));
        }
        next = response["previous_response_id"].as_str().map(str::to_owned);
    }
    Ok(turns.into_iter().rev().flatten().collect())
}

fn previous_absent(id: &str) -> Problem {
    let id: String = id.chars().take(128).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        "previous_response_not_found",
        format!("there is no response with the id `{id}`; it was not stored, or it was removed"),
    )
    .at("previous_response_id")
}

/// All items of a record; `None` if there is no such record.
async fn all_items(
    state: &ApiState,
    key: Key,
    param: &str,
    memory: &mut Reservation,
) -> Result<Option<Vec<Value>>, Problem> {
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let page = Page {
            after,
            limit: PAGE,
            ascending: true,
        };
        let listing = match state.store.items(key.clone(), page).await {
            Ok(listing) => listing,
            Err(StoreError::NotFound) if items.is_empty() => return Ok(None),
            Err(error) => return Err(store_problem(error)),
        };
        after = listing.entries.last().map(|item| item.id.clone());
        for item in &listing.entries {
            reserve_more(memory, translated_bytes(&item.body))?;
            items.push(serde_json::from_slice(&item.body).unwrap_or_default());
        }
        if items.len() > MAX_ITEMS {
            let problem = format!("what goes before has more than {MAX_ITEMS} items");
            return Err(Problem::invalid(param, problem));
        }
        if !listing.more {
            return Ok(Some(items));
        }
    }
}

/// The request's items without references, each of which must be to an item that goes before.
pub(super) fn resolved(before: &[Value], own: Vec<Value>) -> Result<Vec<Value>, Problem> {
    let list = FieldPath::from("input");
    let mut kept = Vec::with_capacity(own.len());
    for (at, item) in own.into_iter().enumerate() {
        if item["type"] != "item_reference" {
            kept.push(item);
            continue;
        }
        let known = before
            .iter()
            .chain(&kept)
            .any(|earlier| id_of(earlier) == id_of(&item));
        if !known {
            let path = list.index(at).key("id");
            let problem = format!(
                "`{path}` names no item that goes before; give `previous_response_id`, or the item \
                 itself"
            );
            return Err(Problem::invalid(path.to_string(), problem));
        }
    }
    Ok(kept)
}

/// Leave out the older half of the items, up to a message of the user's. `false` if nothing can be left out.
pub(super) fn shorten(items: &mut Vec<&Value>) -> bool {
    let is_user = |item: &Value| item["type"] == "message" && item["role"] == "user";
    let from = (items.len() / 2).max(1);
    let Some(first) = (from..items.len()).find(|at| is_user(items[*at])) else {
        return false;
    };
    items.drain(..first);
    true
}
