//! OpenAI's batches: the lines of a file, each a request to a route, answered behind all other requests.

mod ask;
mod check;
mod contract;
mod create;
mod done;
mod endpoint;
mod job;
mod lines;
mod live;
mod record;
mod run;
mod stored;
mod validate;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use mortise_http::contract::Routes;
use mortise_http::{Api, Conventions, Dialect};
use mortise_service::{FairTurns, TurnBounds};
use mortise_store::{Key, RecordKind, StoreError};
use tokio::sync::Semaphore;

use self::live::LiveBatches;
use self::record::Batch;
use crate::cancellations;
use crate::idempotency;
use crate::limits::MAX_BATCH_CHECKS;
use crate::openai_error::error_body;
use crate::owner_turns::OwnerTurns;
use crate::state::ApiState;

const BATCHES: &str = "/v1/batches";
const BATCH: &str = "/v1/batches/{id}";
const CANCEL: &str = "/v1/batches/{id}/cancel";

/// State of the handlers, and of the work on batches.
pub struct Batches {
    api: Arc<ApiState>,
    /// Routes that lines are sent to.
    routes: Router,
    /// Lines that may be answered at once, by owner.
    slots: Arc<FairTurns>,
    /// The number of all slots.
    at_once: usize,
    /// Batches that are checked, of an owner and of all.
    checks: OwnerTurns,
    checks_of_all: Semaphore,
    live: LiveBatches,
}

impl Batches {
    /// Batches whose lines are sent to `routes`, which get a [`mortise_http::Context`] with each, `at_once` of them at
    /// once; `kept` says whether an owner leaves some of these to others.
    pub fn new(api: Arc<ApiState>, routes: Router, at_once: usize, kept: bool) -> Arc<Self> {
        let places = TurnBounds::places(at_once);
        let slots = FairTurns::new(TurnBounds {
            kept: if kept { places.kept } else { 0 },
            ..places
        });
        Arc::new(Self {
            api,
            routes,
            slots,
            at_once,
            checks: OwnerTurns::of_shares(1),
            checks_of_all: Semaphore::new(MAX_BATCH_CHECKS),
            live: LiveBatches::default(),
        })
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Batches")
    }
}

/// The dialect's routes.
pub fn api(batches: &Arc<Batches>) -> Api {
    let once = from_fn_with_state(Arc::clone(&batches.api), idempotency::layer);
    let routes = Routes::default()
        .on(contract::create(batches.api.unsupported), create::create)
        .on(contract::list(), stored::list)
        .on(contract::get(), stored::retrieve)
        .on(contract::cancel(), stored::cancel);
    let (router, operations) = routes.into_parts();
    Api {
        router: router.route_layer(once).with_state(Arc::clone(batches)),
        dialect: Dialect {
            prefix: BATCHES,
            shape: error_body,
            conventions: Conventions::NONE,
        },
        routes: &[BATCHES, BATCH],
        contract: contract::contract(operations),
    }
}

/// End the batches that other hosts were asked to cancel, and this one works on.
///
/// # Errors
/// When the requests cannot be read.
pub async fn cancel_asked(batches: &Arc<Batches>) -> Result<(), StoreError> {
    let cancel = |key: &Key| {
        let live = batches.live.find(key);
        live.map(|live| tokio::spawn(async move { live.cancel().await }))
            .is_some()
    };
    cancellations::fulfil(&batches.api, RecordKind::Batch, cancel).await
}

/// Take up the batches that had not ended when the server did, or another that shares the store.
pub async fn resume(batches: Arc<Batches>) {
    let open = match batches.api.store.unfinished(RecordKind::Batch).await {
        Ok(open) => open,
        Err(error) => {
            tracing::error!(%error, "batches that have not ended cannot be read");
            return;
        }
    };
    for record in open {
        let id = record.key.id.clone();
        if batches.live.find(&record.key).is_some() {
            continue;
        }
        // It may have come further, or to its end, since the list was read.
        let record = match batches.api.store.get(record.key).await {
            Ok(Some(record)) if record.open => record,
            _ => continue,
        };
        match Batch::of(&record) {
            Ok(batch) => {
                if run::take_up(&batches, batch) {
                    tracing::info!(id, "a batch goes on after a restart");
                }
            }
            Err(problem) => tracing::error!(id, error = problem.text(), "a batch cannot go on"),
        }
    }
}
