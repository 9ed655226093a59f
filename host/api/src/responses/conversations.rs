//! Conversations and their items.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem};
use mortise_store::{Change, Key, Record, RecordKind, RecordPage};
use serde_json::{Map, Value, json};

use super::checks::check_hints;
use super::items;
use super::keep::{body, stored};
use super::{CONVERSATION, CONVERSATION_ITEM, CONVERSATION_ITEMS, CONVERSATIONS};
use crate::fields::FieldPath;
use crate::ids::{Ids, now};
use crate::limits::MAX_ADDED_ITEMS;
use crate::paging::{QueryParameters, list_body};
use crate::receive::{ReceivedRequest, receive};
use crate::state::ApiState;
use crate::stored::{
    absent, after_absent, caller, found, parsed, set_metadata, store_problem, value_of,
};

type Handled = Result<Response, Problem>;

/// Members of a body; others are refused by name.
fn check_members(object: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    check_hints(object)?;
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(64).collect();
            let known = known.join("`, `");
            let problem = format!("unknown field `{name}`; known are `{known}`");
            let mut problem = Problem::invalid(name, problem);
            problem.code = "unknown_parameter".to_owned();
            Err(problem)
        }
    }
}

/// Items to add, each with an id.
fn added(items: Option<Value>, ids: &mut Ids) -> Result<Vec<Value>, Problem> {
    let path = FieldPath::from("items");
    let list = items::list_of(&path, items)?;
    if list.len() > MAX_ADDED_ITEMS {
        let problem = format!(
            "`items` holds {} items; at most {MAX_ADDED_ITEMS} are added at once",
            list.len()
        );
        return Err(Problem::invalid("items", problem));
    }
    items::of_list(&path, list, ids)
}

async fn conversation(state: &ApiState, owner: &Arc<str>, id: &str) -> Result<Record, Problem> {
    let key = Key::new(owner, RecordKind::Conversation, id);
    found(state, key, "conversation", "conversation_id").await
}

/// `POST /v1/conversations`
pub(super) async fn create(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Handled {
    let ReceivedRequest {
        parts,
        mut object,
        reserved: _reserved,
        ..
    } = receive(&state, &context, CONVERSATIONS, request).await?;
    let caller = caller(&state, &context, CONVERSATIONS, "POST", &parts).await?;
    check_members(&object, &["items", "metadata"])?;
    let mut ids = Ids::of(&parts);
    let (id, created) = (ids.make("conv_"), now());
    let items = added(object.remove("items"), &mut ids)?;
    let metadata = object.remove("metadata").filter(|value| !value.is_null());
    let conversation = json!({
        "id": id,
        "object": "conversation",
        "created_at": created,
        "metadata": metadata.unwrap_or_else(|| json!({})),
    });
    let record = Record {
        key: Key::new(&caller.owner, RecordKind::Conversation, id),
        created,
        expires: None,
        open: false,
        body: body(&conversation),
    };
    let append = Change::Append {
        parent: record.key.clone(),
        items: stored(&items),
    };
    let changes = vec![Change::Put(record), append];
    state.store.commit(changes).await.map_err(store_problem)?;
    Ok(caller.answer(&conversation))
}

/// `GET /v1/conversations/{id}`
pub(super) async fn retrieve(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CONVERSATION, "GET", &parts).await?;
    let record = conversation(&state, &caller.owner, &id).await?;
    Ok(caller.answer(&value_of(&record)))
}

/// `POST /v1/conversations/{id}`
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
    } = receive(&state, &context, CONVERSATION, request).await?;
    let caller = caller(&state, &context, CONVERSATION, "POST", &parts).await?;
    check_members(&object, &["metadata"])?;
    let record = conversation(&state, &caller.owner, &id).await?;
    let conversation = set_metadata(&state, record, object.remove("metadata")).await?;
    Ok(caller.answer(&conversation))
}

/// `DELETE /v1/conversations/{id}`
pub(super) async fn delete(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CONVERSATION, "DELETE", &parts).await?;
    let record = conversation(&state, &caller.owner, &id).await?;
    let changes = vec![Change::Delete(record.key)];
    state.store.commit(changes).await.map_err(store_problem)?;
    let body = json!({"id": id, "object": "conversation.deleted", "deleted": true});
    Ok(caller.answer(&body))
}

/// `POST /v1/conversations/{id}/items`
pub(super) async fn add_items(
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
    } = receive(&state, &context, CONVERSATION_ITEMS, request).await?;
    let caller = caller(&state, &context, CONVERSATION_ITEMS, "POST", &parts).await?;
    check_members(&object, &["items"])?;
    let items = added(object.remove("items"), &mut Ids::of(&parts))?;
    if items.is_empty() {
        return Err(crate::fields::missing(&FieldPath::from("items")));
    }
    let record = conversation(&state, &caller.owner, &id).await?;
    let append = Change::Append {
        parent: record.key,
        items: stored(&items),
    };
    state
        .store
        .commit(vec![append])
        .await
        .map_err(store_problem)?;
    let listing = RecordPage {
        entries: items,
        more: false,
    };
    Ok(caller.answer(&list_body(listing)))
}

/// `GET /v1/conversations/{id}/items`
pub(super) async fn list_items(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CONVERSATION_ITEMS, "GET", &parts).await?;
    let query = QueryParameters::of(&parts.uri, &["after", "limit", "order", "include"])?;
    let page = query.page(false)?;
    let record = conversation(&state, &caller.owner, &id).await?;
    let listing = state.store.items(record.key, page.clone()).await;
    let listing = listing.map_err(|error| after_absent("item", error, page.after.as_deref()))?;
    Ok(caller.answer(&list_body(parsed(&listing))))
}

/// `GET /v1/conversations/{id}/items/{item}`
pub(super) async fn retrieve_item(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path((id, item)): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CONVERSATION_ITEM, "GET", &parts).await?;
    QueryParameters::of(&parts.uri, &["include"])?;
    let record = conversation(&state, &caller.owner, &id).await?;
    let found = state.store.item(record.key, item.clone()).await;
    let found = found.map_err(store_problem)?;
    let found = found.ok_or_else(|| absent("item", &item, "item_id"))?;
    let value: Value = serde_json::from_slice(&found.body).unwrap_or_default();
    Ok(caller.answer(&value))
}

/// `DELETE /v1/conversations/{id}/items/{item}`. Answers with the conversation.
pub(super) async fn delete_item(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path((id, item)): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CONVERSATION_ITEM, "DELETE", &parts).await?;
    let record = conversation(&state, &caller.owner, &id).await?;
    let there = state.store.item(record.key.clone(), item.clone()).await;
    if there.map_err(store_problem)?.is_none() {
        return Err(absent("item", &item, "item_id"));
    }
    let delete = Change::DeleteItem {
        parent: record.key.clone(),
        id: item,
    };
    state
        .store
        .commit(vec![delete])
        .await
        .map_err(store_problem)?;
    Ok(caller.answer(&value_of(&record)))
}
