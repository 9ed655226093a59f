//! Prepared memories that instances begin with, and the bound on all of them together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::instance::Exports;
use crate::stats::PluginCounters;

/// A prepared memory, before it is instantiated.
pub(crate) struct Snapshot<E: Exports> {
    pub(crate) pre: E::Pre,
    /// State of the generator behind `wasi:random` after preparation.
    pub(crate) random: u64,
    /// Held as long as the memory.
    pub(crate) bytes: ImageBytes,
}

/// Bytes that all prepared memories of a host may have together.
pub(crate) struct ImageBudget {
    most: usize,
    used: AtomicUsize,
    /// Held while one is made: it is in memory several times for that long.
    pub(crate) making: Mutex<()>,
}

impl ImageBudget {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            used: AtomicUsize::new(0),
            making: Mutex::new(()),
        }
    }

    /// A part of the budget; `None` if it has not so much left.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<ImageBytes> {
        let fits = |used: usize| Some(used.checked_add(bytes)?).filter(|used| *used <= self.most);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.ok().map(|_| ImageBytes {
            bytes,
            budget: Arc::clone(self),
            shown: OnceLock::new(),
        })
    }
}

/// A part of the budget, given back when it is dropped.
pub(crate) struct ImageBytes {
    pub(crate) bytes: usize,
    budget: Arc<ImageBudget>,
    /// Counters that have it, once instances begin with the memory.
    shown: OnceLock<Arc<PluginCounters>>,
}

impl ImageBytes {
    /// Show it in the counters of a plugin.
    pub(crate) fn show(&self, counters: &Arc<PluginCounters>) {
        if self.shown.set(Arc::clone(counters)).is_ok() {
            let bytes = self.bytes as u64;
            counters.image_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for ImageBytes {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(counters) = self.shown.get() {
            let bytes = self.bytes as u64;
            counters.image_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn prepared_memories_have_a_budget_together() {
        let budget = Arc::new(ImageBudget::new(100));
        let counters = Arc::new(PluginCounters::new(Kind::Grammar, false));
        let kept = || counters.image_bytes.load(Ordering::Relaxed);
        let one = budget.take(60);
        assert!(one.is_some() && budget.take(41).is_none());
        let other = budget.take(40).expect("as much as is left");
        other.show(&counters);
        other.show(&counters);
        assert_eq!(kept(), 40);
        drop(one);
        assert_eq!(kept(), 40);
        assert!(budget.take(60).is_some());
        assert!(budget.take(usize::MAX).is_none());
        drop(other);
        assert_eq!(kept(), 0);
        assert!(budget.take(100).is_some());
    }
}
