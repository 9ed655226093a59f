//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{ADAPTER_SEPARATOR, Capability, ServedModel, adapted_name};
use serde_json::{Value, json};

use super::{MODEL, MODELS};
use crate::call::{call_of, record_admitted};
use crate::library_access::open_for;
use crate::problem::problem_of;
use crate::state::ApiState;

/// All models that the caller may use, each under each of its names.
pub(crate) async fn list(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let call = call_of(&context, MODELS, "GET", &headers);
    let admission = state
        .service
        .authorize(&call, None)
        .await
        .map_err(problem_of)?;
    let switched = state.service.permitted_aliases(&call).await;
    let mut models: Vec<Value> = state
        .service
        .permitted(&call)
        .await
        .iter()
        .flat_map(|model| {
            // Requests for a name that is an alias, too, go where that stands.
            let own = |alias: &&String| switched.iter().all(|(other, _)| other != *alias);
            let aliases = model.listing.aliases.iter().filter(own);
            std::iter::once(&model.listing.name)
                .chain(aliases)
                .map(|id| model_body(id, model))
        })
        .collect();
    models.extend(
        switched
            .iter()
            .map(|(alias, model)| alias_body(alias, model)),
    );
    let adapters = state.service.permitted_adapters(&call).await;
    models.extend(
        adapters
            .iter()
            .map(|(model, name)| adapter_body(model, name)),
    );
    let mut response = json_response(StatusCode::OK, &json!({"object": "list", "data": models}));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// One model, by any name that a request could use.
pub(crate) async fn retrieve(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let call = call_of(&context, MODEL, "GET", &headers);
    let Ok(Path(id)) = id else {
        state.service.identify(&call).await.map_err(problem_of)?;
        let message = "the name of the model in the address is not UTF-8";
        return Err(Problem::invalid("model", message));
    };
    context.record.asked(&id, false);
    let admission = state
        .service
        .authorize(&call, Some(&id))
        .await
        .map_err(problem_of)?;
    let model = state.service.model_for(&call, &id).await;
    let model = model.map_err(problem_of)?;
    record_admitted(&context, &model.listing.name, &admission);
    let listing = &model.listing;
    let alias = listing.aliases.iter().find(|alias| **alias == id);
    let adapters = model.adapter_names();
    let behind = id
        .rsplit_once(ADAPTER_SEPARATOR)
        .map(|(_, adapter)| adapter);
    let adapter = adapters.iter().find(|known| Some(known.as_str()) == behind);
    let body = match adapter.filter(|_| alias.is_none() && id != listing.name) {
        Some(adapter) => adapter_body(&model, adapter),
        None => match state.service.alias_named(&id) {
            Some(switched) => alias_body(&switched, &model),
            None => model_body(alias.unwrap_or(&listing.name), &model),
        },
    };
    let mut response = json_response(StatusCode::OK, &body);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// `DELETE /v1/models/{id}`: a model that was pulled or uploaded goes, where the server lets its callers.
pub(crate) async fn delete(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Ok(Path(id)) = id else {
        let message = "the name of the model in the address is not UTF-8";
        return Err(Problem::invalid("model", message));
    };
    context.record.asked(&id, false);
    let library = open_for(&state, &context, (MODEL, "DELETE"), &headers, &id).await?;
    library.remove(&id).await?;
    let body = json!({"id": id, "object": "model", "deleted": true});
    Ok(json_response(StatusCode::OK, &body))
}

/// An adapter of a model, as a model of its own.
fn adapter_body(served: &ServedModel, adapter: &str) -> Value {
    let mut body = model_body(&adapted_name(served, adapter), served);
    body["aliases"] = json!([]);
    body["parent"] = Value::from(served.listing.name.as_str());
    body
}

/// An alias that can be switched, as a model of its own, with the one that it stands for.
fn alias_body(alias: &str, served: &ServedModel) -> Value {
    let mut body = model_body(alias, served);
    body["root"] = Value::from(served.listing.name.as_str());
    body
}

/// A model under one of its names.
fn model_body(id: &str, served: &ServedModel) -> Value {
    let (listing, model) = (&served.listing, served.loaded.as_ref());
    let capabilities = model.map(|loaded| loaded.model.capabilities());
    let features = capabilities.as_deref().map(|all| listing.features(all));
    let names = |all: &[Capability]| all.iter().map(|one| one.name()).collect::<Vec<_>>();
    let mut body = json!({
        "id": id,
        "object": "model",
        "created": listing.created,
        "owned_by": listing.owned_by,
        "aliases": listing.aliases,
        "max_model_len": model.and_then(|loaded| loaded.model.context_length()),
        "loaded": model.is_some(),
        "capabilities": capabilities.as_deref().map(names),
        "features": features,
    });
    if let Some(date) = &listing.deprecation_date {
        body["deprecation_date"] = Value::from(date.as_str());
    }
    body
}
