//! Batches that are stored: listed, read, cancelled.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::request::Parts;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem};
use mortise_store::{Key, RecordKind, RecordPage};

use super::record::Batch;
use super::{BATCH, BATCHES, Batches, CANCEL, run};
use crate::cancellations;
use crate::paging::{QueryParameters, list_body};
use crate::stored::{AccountCaller, after_absent, caller, found};

type Handled = Result<Response, Problem>;

/// `GET /v1/batches`
pub(super) async fn list(
    State(batches): State<Arc<Batches>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let state = &batches.api;
    let caller = caller(state, &context, BATCHES, "GET", &parts).await?;
    let page = QueryParameters::of(&parts.uri, &["after", "limit"])?.page(false)?;
    let after = page.after.clone();
    let listing = state
        .store
        .list(&caller.owner, RecordKind::Batch, page, None)
        .await
        .map_err(|error| after_absent("batch", error, after.as_deref()))?;
    let mut entries = Vec::new();
    for record in &listing.entries {
        entries.push(Batch::of(record)?.object);
    }
    let more = listing.more;
    Ok(caller.answer(&list_body(RecordPage { entries, more })))
}

/// `GET /v1/batches/{id}`
pub(super) async fn retrieve(
    State(batches): State<Arc<Batches>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&batches.api, &context, BATCH, "GET", &parts).await?;
    let batch = batch(&batches, &caller, &context, &parts, &id).await?;
    Ok(caller.answer(&batch.object))
}

/// `POST /v1/batches/{id}/cancel`
pub(super) async fn cancel(
    State(batches): State<Arc<Batches>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&batches.api, &context, CANCEL, "POST", &parts).await?;
    let before = batch(&batches, &caller, &context, &parts, &id).await?;
    if before.status() == "cancelled" {
        return Ok(caller.answer(&before.object));
    }
    if before.has_ended() {
        let problem = format!(
            "a batch with the status `{}` cannot be cancelled",
            before.status()
        );
        let problem = Problem::new(StatusCode::CONFLICT, "batch_ended", problem);
        return Err(problem
            .at("batch_id")
            .with_header("x-should-retry", "false"));
    }
    let key = before.key.clone();
    if batches.api.store.is_shared() && batches.live.find(&key).is_none() {
        cancellations::ask_and_wait(&batches.api, &key).await?;
    } else {
        // Work that could not go on, as when the disk was full, is taken up to be ended.
        run::take_up(&batches, before);
        if let Some(live) = batches.live.find(&key) {
            live.cancel().await;
        }
    }
    let after = batch(&batches, &caller, &context, &parts, &id).await?;
    Ok(caller.answer(&after.object))
}

/// A batch of the caller, whom policies can know again from now on.
async fn batch(
    batches: &Batches,
    caller: &AccountCaller,
    context: &Context,
    parts: &Parts,
    id: &str,
) -> Result<Batch, Problem> {
    let key = Key::new(&caller.owner, RecordKind::Batch, id);
    if let Some(live) = batches.live.find(&key) {
        live.renew(caller.subject(), &parts.headers, context.peer.ip());
    }
    Batch::of(&found(&batches.api, key, "batch", "batch_id").await?)
}
