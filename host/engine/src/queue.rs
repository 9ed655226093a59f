//! Bounds on the queue of sequences that were never admitted, in all and for each tenant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::pace::Pace;
use crate::queue_time::QueueTimer;
use crate::submit_error::SubmitError;
use crate::tenant_load::TenantLoad;

/// Bounds of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueBounds {
    /// Sequences, or whatever else takes places.
    pub sequences: usize,
    /// Tokens of their prompts.
    pub tokens: usize,
    /// Whether places are reserved for other tenants.
    pub reserved: bool,
    /// Most sequences of one tenant; 0 is no bound.
    pub per_tenant: usize,
    /// Longest expected wait of whoever may enter.
    pub expected_wait: Option<Duration>,
}

impl QueueBounds {
    /// Bounds of so many places, whatever their tokens.
    pub fn places(count: usize, reserved: bool) -> Self {
        Self {
            sequences: count,
            tokens: usize::MAX,
            reserved,
            per_tenant: 0,
            expected_wait: None,
        }
    }
}

/// Places in the queue. Submitting threads lock the map of tenants; the engine's thread only decrements
/// counters, and never waits for the lock.
#[derive(Debug)]
pub struct Queue {
    bounds: QueueBounds,
    pace: Arc<Pace>,
    all: Arc<Waiting>,
    tenants: Mutex<BTreeMap<Arc<str>, Arc<Waiting>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    sequences: AtomicUsize,
    tokens: AtomicUsize,
    /// Sequences that have left, and how long they waited.
    left: AtomicU64,
    waited_micros: AtomicU64,
}

/// A place in the queue, until it is dropped.
#[derive(Debug)]
pub struct QueuePlace {
    pace: Arc<Pace>,
    all: Arc<Waiting>,
    tenant: Arc<Waiting>,
    tokens: usize,
    timer: QueueTimer,
}

impl QueuePlace {
    /// Clock that runs until the place is freed.
    pub(crate) fn timer(&self) -> &QueueTimer {
        &self.timer
    }
}

/// Size of the tenant map above which tenants with nothing queued are evicted.
const TENANTS_MAX: usize = 1024;

impl Queue {
    /// An empty queue.
    pub fn new(bounds: QueueBounds) -> Self {
        Self {
            bounds,
            pace: Arc::new(Pace::new()),
            all: Arc::default(),
            tenants: Mutex::default(),
        }
    }

    /// Queued sequences, and the tokens of their prompts.
    pub fn waiting(&self) -> (usize, usize) {
        self.all.get()
    }

    /// Queues of the tenants that are known.
    pub(crate) fn tenants(&self) -> Vec<TenantLoad> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |(tenant, queue): (&Arc<str>, &Arc<Waiting>)| {
            let (waiting, waiting_tokens) = queue.get();
            TenantLoad {
                tenant: Arc::clone(tenant),
                waiting,
                waiting_tokens,
                dequeued: queue.left.load(Ordering::Relaxed),
                waited: Duration::from_micros(queue.waited_micros.load(Ordering::Relaxed)),
                ..TenantLoad::default()
            }
        };
        tenants.iter().map(load).collect()
    }

    /// Take a place for a prompt of `tokens` tokens within the bounds. A prompt that is longer than the
    /// bound on tokens may wait alone.
    ///
    /// With reservation, a tenant may take a place while it has fewer than are free, and tokens likewise:
    /// one tenant that floods the queue leaves half of it to the others, two leave a third (the dynamic
    /// thresholds of Choudhury and Hahne, 1998, for shared buffers).
    ///
    /// # Errors
    /// When the queue is full, or the tenant has its share of it.
    pub fn enter(&self, tenant: &Arc<str>, tokens: usize) -> Result<QueuePlace, SubmitError> {
        let QueueBounds {
            sequences: limit,
            tokens: token_limit,
            reserved,
            per_tenant,
            expected_wait,
        } = self.bounds;
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= TENANTS_MAX {
            tenants.retain(|_, waiting| Arc::strong_count(waiting) > 1);
        }
        let own = Arc::clone(tenants.entry(Arc::clone(tenant)).or_default());
        let (all_sequences, all_tokens) = self.all.get();
        let (own_sequences, own_tokens) = own.get();
        if all_sequences >= limit {
            return Err(SubmitError::QueueFull { limit });
        }
        if all_sequences > 0 && all_tokens.saturating_add(tokens) > token_limit {
            return Err(SubmitError::QueuedTokens { limit: token_limit });
        }
        let free = token_limit.saturating_sub(all_tokens);
        let crowds = own_sequences >= limit - all_sequences
            || (own_sequences > 0 && own_tokens.saturating_add(tokens) > free);
        let full = per_tenant > 0 && own_sequences >= per_tenant;
        if full || (reserved && crowds) {
            let waiting = own_sequences;
            return Err(SubmitError::TenantQueue { waiting });
        }
        if let Some(limit) = expected_wait {
            let others = tenants.values().filter(|waiting| waiting.get().0 > 0);
            // Tenants take turns, so that a long queue of another's is not before this one.
            let in_turns = (own_sequences + 1)
                .saturating_mul(others.count() + usize::from(own_sequences == 0));
            let ahead = all_sequences.min(in_turns - 1);
            let wait = self.pace.wait(ahead, Instant::now());
            if let Some(wait) = wait.filter(|wait| *wait > limit) {
                return Err(SubmitError::ExpectedWait { wait });
            }
        }
        for waiting in [&self.all, &own] {
            waiting.sequences.fetch_add(1, Ordering::Relaxed);
            waiting.tokens.fetch_add(tokens, Ordering::Relaxed);
        }
        Ok(QueuePlace {
            pace: Arc::clone(&self.pace),
            all: Arc::clone(&self.all),
            tenant: own,
            tokens,
            timer: QueueTimer::start(),
        })
    }
}

impl Waiting {
    fn get(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (read(&self.sequences), read(&self.tokens))
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.timer.stop();
        let waited = self.timer.get().unwrap_or_default().as_micros();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
        for waiting in [&self.all, &self.tenant] {
            waiting.sequences.fetch_sub(1, Ordering::Relaxed);
            waiting.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
            waiting.left.fetch_add(1, Ordering::Relaxed);
            waiting.waited_micros.fetch_add(waited, Ordering::Relaxed);
        }
        self.pace.freed(self.all.get().0 > 0, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(sequences: usize, tokens: usize, reserved: bool) -> Queue {
        Queue::new(QueueBounds {
            sequences,
            tokens,
            reserved,
            per_tenant: 0,
            expected_wait: None,
        })
    }

    /// Places that a tenant gets until it is refused.
    fn fill(queue: &Queue, tenant: &str, tokens: usize) -> (Vec<QueuePlace>, SubmitError) {
        let mut places = Vec::new();
        loop {
            match queue.enter(&Arc::from(tenant), tokens) {
                Ok(place) => places.push(place),
                Err(error) => return (places, error),
            }
        }
    }

    #[test]
    fn one_flooding_tenant_leaves_half_two_leave_a_third() {
        let queue = queue(12, 1000, true);
        let (first, error) = fill(&queue, "a", 1);
        assert_eq!(first.len(), 6);
        assert_eq!(error, SubmitError::TenantQueue { waiting: 6 });
        let (second, _) = fill(&queue, "b", 1);
        assert_eq!(second.len(), 3);
        assert!(queue.enter(&Arc::from("c"), 1).is_ok());
        drop(first);
        assert_eq!(fill(&queue, "b", 1).0.len(), 3, "up to half of the queue");
        drop(second);
        assert_eq!(queue.waiting(), (0, 0));
    }

    #[test]
    fn feature_q6_a_tenant_has_no_more_places_than_its_bound() {
        let mut bounded = queue(12, 1000, false);
        bounded.bounds.per_tenant = 3;
        let (first, error) = fill(&bounded, "a", 1);
        assert_eq!(
            (first.len(), error),
            (3, SubmitError::TenantQueue { waiting: 3 })
        );
        assert_eq!(fill(&bounded, "b", 1).0.len(), 3);
        drop(first);
        assert!(bounded.enter(&Arc::from("a"), 1).is_ok());
    }

    #[test]
    fn tokens_are_shared_like_places() {
        let queue = queue(100, 1000, true);
        let (first, error) = fill(&queue, "a", 100);
        assert_eq!(
            (first.len(), error),
            (5, SubmitError::TenantQueue { waiting: 5 })
        );
        assert!(queue.enter(&Arc::from("b"), 500).is_ok());
        let refused = queue.enter(&Arc::from("b"), 501).unwrap_err();
        assert_eq!(refused, SubmitError::QueuedTokens { limit: 1000 });
    }

    #[test]
    fn the_queue_time_is_known_once_the_place_is_free() {
        let queue = queue(1, 10, false);
        let place = queue.enter(&Arc::from("a"), 1).unwrap();
        let timer = place.timer().clone();
        assert_eq!(timer.get(), None);
        drop(place);
        let waited = timer.get().expect("it has left the queue");
        timer.stop();
        assert_eq!(timer.get(), Some(waited), "the first stop counts");
    }

    #[test]
    fn without_reservation_one_tenant_may_take_all_places() {
        let queue = queue(4, 10, false);
        let (places, error) = fill(&queue, "a", 1);
        assert_eq!(
            (places.len(), error),
            (4, SubmitError::QueueFull { limit: 4 })
        );
        drop(places);
        let alone = queue.enter(&Arc::from("a"), 50).expect("it may wait alone");
        assert_eq!(queue.waiting(), (1, 50));
        let refused = queue.enter(&Arc::from("b"), 1).unwrap_err();
        assert_eq!(refused, SubmitError::QueuedTokens { limit: 10 });
        drop(alone);
    }

    #[test]
    fn tenants_with_nothing_queued_are_evicted() {
        let queue = queue(4, 10, true);
        for number in 0..5 * TENANTS_MAX {
            let tenant = Arc::from(number.to_string());
            drop(queue.enter(&tenant, 1).unwrap());
        }
        assert!(queue.tenants.lock().unwrap().len() <= TENANTS_MAX + 1);
    }
}
