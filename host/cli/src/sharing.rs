//! Life beside other hosts that share the store: work of those that are gone, requests to cancel, changed keys.

use std::sync::Arc;
use std::time::Duration;

use mortise_api::batches::{self, Batches};
use mortise_api::{ApiState, Collections, files, responses, resume_collections};
use mortise_identity::CallerDirectory;
use mortise_supervise::supervise;

/// Time between two looks for what others have changed and ask for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks to one for work of hosts that are gone.
const LOOKS_PER_TAKE_UP: u32 = 5;

/// Parts of the server that other hosts may change, or leave work for.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) state: Arc<ApiState>,
    pub(crate) batches: Arc<Batches>,
    pub(crate) collections: Arc<Collections>,
    pub(crate) identity: Arc<CallerDirectory>,
}

/// Look after others for as long as the server runs. Alone, there is nothing to do.
pub(crate) fn start_sharing_store(shared: SharedState) {
    supervise("shared-store", move || {
        let shared = shared.clone();
        async move {
            if !shared.state.store.is_shared() {
                std::future::pending::<()>().await;
            }
            shared.look_regularly().await;
        }
    });
}

impl SharedState {
    async fn look_regularly(&self) {
        let mut looks = 0u32;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            looks = looks.wrapping_add(1);
            self.look().await;
            if looks.is_multiple_of(LOOKS_PER_TAKE_UP) && !*self.state.http.draining.borrow() {
                responses::resume(Arc::clone(&self.state)).await;
                batches::resume(Arc::clone(&self.batches)).await;
                resume_collections(Arc::clone(&self.collections)).await;
                files::sweep(Arc::clone(&self.state)).await;
            }
        }
    }

    async fn look(&self) {
        let looked = async {
            self.identity.refresh().await?;
            responses::cancel_asked(&self.state).await?;
            batches::cancel_asked(&self.batches).await
        };
        if let Err(error) = looked.await {
            tracing::warn!(%error, "what other servers have changed could not be read");
        }
    }
}
