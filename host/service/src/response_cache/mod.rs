//! Response cache: answers that were made before, for requests that are the same. Off unless a rule of the
//! configuration asks for it.

mod kept;
mod key;
mod recording;
mod rules;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::kept::CachedAnswers;
pub(crate) use self::key::{CacheAttributes, CacheScope, Likeness, RequestDigest, likeness};
pub(crate) use self::recording::{AnswerRecording, Recorded};
pub use self::rules::{CacheRule, Semantic};
pub(crate) use self::rules::{OF_CALLERS, OF_POLICIES, Wish};

/// Bounds and rules of the response cache.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CacheConfig {
    /// Bytes of all answers.
    pub max_bytes: usize,
    /// Bytes of the answers of one tenant.
    pub tenant_max_bytes: usize,
    /// Bytes of one answer; longer ones are not kept.
    pub max_entry_bytes: usize,
    /// Age after which an answer is forgotten.
    pub max_age: Duration,
    /// Rules; the first one that a request meets counts. Without one nothing is kept.
    pub rules: Vec<CacheRule>,
}

/// Figures of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CacheFigures {
    /// Requests that were answered from the cache.
    pub hits: u64,
    /// Requests that the cache had no answer for.
    pub misses: u64,
    /// Answers in the cache.
    pub entries: usize,
    /// Bytes that the answers take.
    pub bytes: usize,
    /// Time of all look-ups.
    pub lookup: Duration,
}

/// Outcome of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// The cache had an answer.
    Hit,
    /// The cache had no answer.
    Miss,
}

impl CacheUse {
    /// Name of the outcome, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
        }
    }
}

/// Response cache with its counters.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache {
    config: CacheConfig,
    kept: Mutex<CachedAnswers>,
    hits: AtomicU64,
    misses: AtomicU64,
    nanoseconds: AtomicU64,
}

impl ResponseCache {
    pub(crate) fn new(config: CacheConfig) -> Self {
        Self {
            kept: Mutex::new(CachedAnswers::new(&config)),
            config,
            ..Self::default()
        }
    }

    /// The first rule that a request meets.
    pub(crate) fn rule(&self, identity: &CacheAttributes<'_>) -> Option<&CacheRule> {
        self.config.rules.iter().find(|rule| rule.meets(identity))
    }

    /// The answer to the very same request.
    pub(crate) fn find(&self, key: &RequestDigest) -> Option<Arc<Recorded>> {
        let began = Instant::now();
        let found = self.kept().find(key, began);
        self.looked_up(began);
        found
    }

    /// The answer to the request that is most like this one, if it is like enough.
    pub(crate) fn find_like(&self, likeness: &Likeness, least: f32) -> Option<Arc<Recorded>> {
        let began = Instant::now();
        let found = self.kept().find_like(likeness, least, began);
        self.looked_up(began);
        found
    }

    fn looked_up(&self, began: Instant) {
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(took, Relaxed);
    }

    /// Count what came of a look-up.
    pub(crate) fn count(&self, came: CacheUse) {
        match came {
            CacheUse::Hit => self.hits.fetch_add(1, Relaxed),
            CacheUse::Miss => self.misses.fetch_add(1, Relaxed),
        };
    }

    /// Keep an answer.
    pub(crate) fn keep(
        &self,
        key: RequestDigest,
        tenant: &Arc<str>,
        answer: Recorded,
        likeness: Option<Likeness>,
    ) {
        self.kept()
            .keep(key, tenant, answer, likeness, Instant::now());
    }

    /// Bytes of the longest answer that is kept.
    pub(crate) fn max_entry_bytes(&self) -> usize {
        self.config.max_entry_bytes
    }

    pub(crate) fn figures(&self) -> CacheFigures {
        let (entries, bytes) = self.kept().size();
        CacheFigures {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            entries,
            bytes,
            lookup: Duration::from_nanos(self.nanoseconds.load(Relaxed)),
        }
    }

    /// Forget all answers. Returns their number and their bytes.
    pub(crate) fn clear(&self) -> (usize, usize) {
        self.kept().clear()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, CachedAnswers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
