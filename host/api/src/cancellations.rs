//! Requests to cancel work that another host does, where several share a store: a record for each, which that host finds.

use std::sync::Arc;
use std::time::Duration;

use mortise_http::Problem;
use mortise_store::{Change, Key, Page, Record, RecordKind, SERVER, StoreError};
use tokio::time::{Instant, sleep};

use crate::ids::now;
use crate::limits::MAX_CANCELLATIONS;
use crate::state::ApiState;
use crate::stored::store_problem;

/// Separates the parts of a request's id.
const SEPARATOR: char = '\n';

/// Seconds for which a request is kept.
const LIFETIME: i64 = 3600;

/// Time that a caller waits for another host, and the pauses between looks.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Ask for the end of the work on a record.
pub(crate) async fn ask(state: &ApiState, key: &Key) -> Result<(), Problem> {
    let id = [key.kind.name(), &key.owner, &key.id].join(&SEPARATOR.to_string());
    let request = Record {
        key: Key::new(&Arc::from(SERVER), RecordKind::Cancellation, id),
        created: now(),
        expires: Some(now().saturating_add(LIFETIME)),
        open: false,
        body: Vec::new(),
    };
    let written = state.store.commit(vec![Change::Put(request)]).await;
    written.map_err(store_problem)
}

/// Ask for the end of the work on a record, and wait a while for it.
pub(crate) async fn ask_and_wait(state: &ApiState, key: &Key) -> Result<(), Problem> {
    ask(state, key).await?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && is_open(state, key).await? {
        sleep(PAUSE).await;
    }
    Ok(())
}

/// True while somebody works on a record, or is to.
pub(crate) async fn is_open(state: &ApiState, key: &Key) -> Result<bool, Problem> {
    let record = state.store.get(key.clone()).await.map_err(store_problem)?;
    Ok(record.is_some_and(|record| record.open))
}

/// Read the requests and cancel what this host does: `end` ends the work on a record, and is false if it is not done here.
///
/// # Errors
/// When the requests cannot be read.
pub(crate) async fn fulfil(
    state: &ApiState,
    kind: RecordKind,
    end: impl Fn(&Key) -> bool,
) -> Result<(), StoreError> {
    let page = Page {
        after: None,
        limit: MAX_CANCELLATIONS,
        ascending: true,
    };
    let owner = Arc::from(SERVER);
    let requests = state
        .store
        .list(&owner, RecordKind::Cancellation, page, None);
    for request in requests.await?.entries {
        if key_of(&request.key.id, kind).is_some_and(|key| end(&key)) {
            state
                .store
                .commit(vec![Change::Delete(request.key)])
                .await?;
        }
    }
    Ok(())
}

/// The record that a request is about, if it has this kind.
fn key_of(id: &str, kind: RecordKind) -> Option<Key> {
    let (name, rest) = id.split_once(SEPARATOR)?;
    let (owner, id) = rest.rsplit_once(SEPARATOR)?;
    (name == kind.name()).then(|| Key::new(&Arc::from(owner), kind, id))
}
