//! OpenAI's files: uploaded, listed, read, deleted.

mod contract;
mod stored;
mod upload;

use std::sync::Arc;

use mortise_http::contract::Routes;
use mortise_http::{Api, Conventions, Dialect};
use mortise_store::{Change, RecordKind};

use crate::contents::OUTPUT;
use crate::openai_error::error_body;
use crate::state::ApiState;
use crate::stored::value_of;

const FILES: &str = "/v1/files";
const FILE: &str = "/v1/files/{id}";
const CONTENT: &str = "/v1/files/{id}/content";

/// Purposes of uploads. Batches read theirs; the others are kept for their owner.
const PURPOSES: [&str; 6] = [
    "batch",
    "assistants",
    "fine-tune",
    "vision",
    "user_data",
    "evals",
];

/// The dialect's routes.
pub fn api(state: Arc<ApiState>) -> Api {
    let routes = Routes::default()
        .on(contract::create(), upload::create)
        .on(contract::list(), stored::list)
        .on(contract::get(), stored::retrieve)
        .on(contract::delete(), stored::delete)
        .on(contract::content(), stored::content);
    let (router, operations) = routes.into_parts();
    Api {
        router: router.with_state(state),
        dialect: Dialect {
            prefix: FILES,
            shape: error_body,
            conventions: Conventions::NONE,
        },
        routes: &[FILES, FILE],
        contract: contract::contract(operations),
    }
}

/// Remove the files that were being uploaded when the server ended, or another that shares the store.
pub async fn sweep(state: Arc<ApiState>) {
    let open = match state.store.unfinished(RecordKind::File).await {
        Ok(open) => open,
        Err(error) => {
            tracing::error!(%error, "files that are not whole cannot be read");
            return;
        }
    };
    for record in open {
        // What a batch writes goes on with the batch, and what is held was begun since.
        let of_batch = value_of(&record)["purpose"] == OUTPUT;
        if of_batch || state.files.is_held(&record.key) {
            continue;
        }
        // It may be whole since the list was read.
        let now = state.store.get(record.key.clone()).await;
        if !matches!(now, Ok(Some(now)) if now.open) {
            continue;
        }
        let changes = vec![Change::Delete(record.key)];
        if let Err(error) = state.store.commit(changes).await {
            tracing::error!(%error, "a file that is not whole could not be removed");
        }
    }
}
