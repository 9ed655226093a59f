//! Models that nobody has used for a while: how long each stays, and its unload.

use std::time::Duration;

use super::{Inner, ModelManager};

impl ModelManager {
    /// Keep a model for so long after its last request, whatever is configured, until this is called again or the
    /// model is unloaded. A pinned model stays in any case.
    pub fn keep(&self, name: &str, time: Duration) {
        let after = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.lock().table.keep(name, after);
        if time < self.config.idle_check {
            self.kept.notify_one();
        }
    }

    /// Time for which a loaded model stays if no further request comes; `None` if nothing ends it.
    pub fn time_left(&self, name: &str) -> Option<Duration> {
        let inner = self.lock();
        let left = inner
            .table
            .time_left(name, self.now(), |name| self.idle_after(&inner, name));
        left.map(Duration::from_millis)
    }

    /// Unload models that nobody has used for a while. Does not return.
    pub async fn unload_idle(&self) {
        loop {
            let idle = {
                let inner = self.lock();
                let after = |name: &str| self.idle_after(&inner, name);
                inner.table.idle(self.now(), after)
            };
            for name in idle {
                tracing::info!(model = name, "nobody has used this model for a while");
                // It may be gone or loading by now, which is as good.
                let _ = self.unload_as(&name, false).await;
            }
            tokio::select! {
                () = tokio::time::sleep(self.pause()) => {}
                () = self.kept.notified() => {}
            }
        }
    }

    /// Time until the next look for idle models.
    fn pause(&self) -> Duration {
        let inner = self.lock();
        let after = |name: &str| self.idle_after(&inner, name);
        let next = inner.table.next_idle(self.now(), after);
        let next = next.map_or(Duration::MAX, Duration::from_millis);
        // A model that cannot be unloaded yet, as when the server stops, is not asked about without a pause.
        next.clamp(Duration::from_millis(1), self.config.idle_check)
    }

    /// Idle time after which a model is unloaded, as configured.
    fn idle_after(&self, inner: &Inner, name: &str) -> Option<u64> {
        let entry = inner.entries.get(name)?;
        let after = entry.config.lifecycle.idle_timeout;
        let after = after.unwrap_or(self.config.idle_timeout)?;
        Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Inner {
    /// True if nobody uses a model, and a request said that it stays for less than this.
    pub(super) fn is_kept_shorter(&self, name: &str, time: Duration) -> bool {
        self.table.slot(name).is_some_and(|slot| {
            let keep = slot.keep.map(Duration::from_millis);
            slot.users == 0 && keep.is_some_and(|keep| keep < time)
        })
    }
}
