//! Runtimes that end by themselves: their models fail, and may be loaded again.

use std::sync::Arc;
use std::time::Instant;

use super::ModelManager;
use crate::child_config::RestartPolicy;
use crate::lifecycle::state::ModelState;
use crate::model::Model;

impl ModelManager {
    /// Wait, on a task of its own, for the runtime of a loaded model to end by itself.
    pub(super) fn watch_end(&self, name: &str, model: &Model) {
        let (Some(mut end), Some(this)) = (model.end(), self.this.upgrade()) else {
            return;
        };
        let loads = self.lock().table.slot(name).map_or(0, |slot| slot.loads);
        let (name, weak) = (name.to_owned(), Arc::downgrade(&this));
        drop(this);
        let begun = Instant::now();
        tokio::spawn(async move {
            let detail = match end.wait_for(Option::is_some).await {
                Ok(ended) => ended.as_ref().map(|ended| ended.detail.clone()),
                // The runtime was dropped.
                Err(_) => None,
            };
            if let (Some(detail), Some(this)) = (detail, weak.upgrade()) {
                let steady = begun.elapsed() >= RestartPolicy::STEADY;
                this.runtime_ended(&name, loads, detail, steady).await;
            }
        });
    }

    /// The runtime of a model ended by itself. `loads` tells which load it came from: what happened to the
    /// model since is left alone.
    async fn runtime_ended(&self, name: &str, loads: u64, error: String, steady: bool) {
        let pause = {
            let mut inner = self.lock();
            if !inner.table.ended(name, loads, error.clone()) {
                return;
            }
            let Some(entry) = inner.entries.get_mut(name) else {
                return;
            };
            entry.loaded_at_ms = None;
            entry.load_time = None;
            if steady {
                entry.restarts = 0;
            }
            let policy = entry.config.child.as_ref().map(|child| child.restart);
            policy.and_then(|policy| policy.pause_after(entry.restarts))
        };
        tracing::error!(model = name, error, "the runtime of a model ended");
        self.tell(name);
        self.withdraw(name).await;
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
            self.restart(name, loads).await;
        }
    }

    /// Publish the models without this one, and release its runtime.
    async fn withdraw(&self, name: &str) {
        self.publish_known(name).await;
        let model = {
            let mut inner = self.lock();
            let failed = inner.table.slot(name).map(|slot| slot.state) == Some(ModelState::Failed);
            let entry = inner.entries.get_mut(name).filter(|_| failed);
            entry.and_then(|entry| entry.loaded.take())
        };
        let _ = tokio::task::spawn_blocking(move || drop(model)).await;
    }

    /// Load a crashed model again, as long as nobody else has done anything with it; a load that fails is
    /// tried again while there are attempts.
    async fn restart(&self, name: &str, mut loads: u64) {
        loop {
            let overrides = {
                let mut inner = self.lock();
                let slot = inner.table.slot(name);
                let untouched = slot
                    .is_some_and(|slot| slot.state == ModelState::Failed && slot.loads == loads);
                let Some(entry) = inner.entries.get_mut(name).filter(|_| untouched) else {
                    return;
                };
                entry.restarts += 1;
                // Settings of a load live until the model is unloaded, which a crash is not.
                entry.overrides.clone().unwrap_or_default()
            };
            tracing::info!(model = name, "the crashed model is loaded again");
            if self.load(name, overrides).await.is_ok() {
                return;
            }
            let pause = {
                let inner = self.lock();
                let Some(entry) = inner.entries.get(name) else {
                    return;
                };
                loads = inner.table.slot(name).map_or(0, |slot| slot.loads);
                let policy = entry.config.child.as_ref().map(|child| child.restart);
                policy.and_then(|policy| policy.pause_after(entry.restarts))
            };
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return,
            }
        }
    }
}
