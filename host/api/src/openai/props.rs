//! `GET /props` and `GET /slots`: a model as llama-server tells of it, to those who watch servers.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{Generator, LifecycleError, LoadedModel, ServedModel, ServiceError};
use serde_json::{Map, Value, json};

use super::envelope::FINGERPRINT;
use super::{PROPS, SLOTS};
use crate::call::{call_of, record_admitted};
use crate::fields::{FieldPath, missing};
use crate::paging::QueryParameters;
use crate::problem::problem_of;
use crate::receive::default_model;
use crate::state::ApiState;

/// `GET /props`
pub(super) async fn props(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = QueryParameters::of(&uri, &["model"])?;
    let (found, added) = find(&state, &context, PROPS, &headers, &query).await?;
    let mut response = json_response(StatusCode::OK, &props_body(&found)?);
    append_headers(response.headers_mut(), &added);
    Ok(response)
}

/// `GET /slots`
pub(super) async fn slots(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = QueryParameters::of(&uri, &["model", "fail_on_no_slot"])?;
    let wants_idle = query.number("fail_on_no_slot")?.unwrap_or(0) > 0;
    let (found, added) = find(&state, &context, SLOTS, &headers, &query).await?;
    let loaded = loaded(&found)?;
    let load = loaded.model.load();
    // A model without slots takes whatever comes.
    let slots = load.max_running;
    if wants_idle && slots > 0 && load.running >= slots {
        let message = "all slots of the model are busy; retry later";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(status, "no_slot", message));
    }
    let mut response = json_response(StatusCode::OK, &slots_body(&found)?);
    append_headers(response.headers_mut(), &added);
    Ok(response)
}

/// The model that the query names, or the only one, or that which was loaded last, and the headers of the policies.
async fn find(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    headers: &HeaderMap,
    query: &QueryParameters,
) -> Result<(Arc<ServedModel>, Vec<(String, String)>), Problem> {
    let mut named = Map::new();
    if let Some(name) = query.get("model") {
        named.insert("model".to_owned(), Value::from(name));
    }
    default_model(state, &mut named);
    let latest = latest(state);
    let name = named.get("model").and_then(Value::as_str);
    let name = name.or(latest.as_deref());
    let call = call_of(context, route, "GET", headers);
    let admission = state.service.authorize(&call, name).await;
    let admission = admission.map_err(problem_of)?;
    let name = name.ok_or_else(|| missing(&FieldPath::from("model")))?;
    context.record.asked(name, false);
    let model = state.service.model_for(&call, name).await;
    let model = model.map_err(problem_of)?;
    record_admitted(context, &model.listing.name, &admission);
    Ok((model, admission.allowance().headers.clone()))
}

/// Name of the model that was loaded last, of those that lists show.
fn latest(state: &ApiState) -> Option<String> {
    let models = state.service.models();
    let loaded = models.iter().filter_map(|model| {
        let loaded = model.loaded.as_ref().filter(|_| !model.listing.hidden)?;
        Some((loaded.model.loaded_at, &model.listing.name))
    });
    let (_, name) = loaded.max_by_key(|(at, _)| *at)?;
    Some(name.clone())
}

fn loaded(model: &ServedModel) -> Result<&LoadedModel, Problem> {
    model.loaded.as_ref().ok_or_else(|| {
        let error = LifecycleError::NotLoaded(model.listing.name.clone());
        problem_of(ServiceError::Model(error))
    })
}

/// The sequences that a model may run at once.
pub(super) fn slots_body(model: &ServedModel) -> Result<Value, Problem> {
    let loaded = loaded(model)?;
    let load = loaded.model.load();
    let slot = |id: usize| {
        json!({
            "id": id,
            "n_ctx": loaded.model.context_length(),
            "speculative": load.speculation.draft_max() > 0,
            "is_processing": id < load.running,
        })
    };
    Ok(Value::from_iter((0..load.max_running).map(slot)))
}

/// Paths of files are the operator's own, and stay empty.
pub(super) fn props_body(model: &ServedModel) -> Result<Value, Problem> {
    let loaded = loaded(model)?;
    let tokenizer = match (&loaded.model.generator, loaded.model.text_embedder()) {
        (Some(Generator::Tokens(tokens)), _) => Some(&tokens.tokenizer),
        (Some(Generator::Rendered(rendered)), _) => Some(&rendered.tokenizer),
        (None, Some(embedder)) => Some(&embedder.tokenizer),
        _ => loaded.model.reranker.as_ref().map(|ranks| &ranks.tokenizer),
    };
    let template = tokenizer.and_then(|tokenizer| tokenizer.chat_template());
    let bos = tokenizer.and_then(|tokenizer| tokenizer.bos_token());
    let eos = tokenizer.and_then(|tokenizer| tokenizer.eos_token());
    Ok(json!({
        "default_generation_settings": {"n_ctx": loaded.model.context_length()},
        "total_slots": loaded.model.load().max_running,
        "model_alias": model.listing.name,
        "model_path": "",
        "modalities": {"vision": false, "audio": false},
        "chat_template": template.unwrap_or_default(),
        "bos_token": bos.unwrap_or_default(),
        "eos_token": eos.unwrap_or_default(),
        "build_info": FINGERPRINT,
    }))
}
