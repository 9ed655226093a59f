//! Entries of the response cache: found by their keys, evicted by age and for room.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::CacheConfig;
use super::key::{Likeness, RequestDigest};
use super::recording::Recorded;
use crate::limits::MAX_ALIKE;

/// Bytes of an entry beside its answer.
const ENTRY_BYTES: usize = 256;

#[derive(Debug)]
struct Entry {
    answer: Arc<Recorded>,
    tenant: Arc<str>,
    bytes: usize,
    made: Instant,
    used: u64,
    likeness: Option<Likeness>,
}

/// All entries of the response cache.
#[derive(Debug, Default)]
pub(super) struct CachedAnswers {
    entries: HashMap<RequestDigest, Entry>,
    /// Keys in the order of their last use.
    order: BTreeMap<u64, RequestDigest>,
    /// Keys of entries whose requests differ in the question alone, by the key of the rest.
    alike: HashMap<RequestDigest, Vec<RequestDigest>>,
    tenants: HashMap<Arc<str>, usize>,
    bytes: usize,
    clock: u64,
    max_bytes: usize,
    tenant_max_bytes: usize,
    max_age: Duration,
}

impl CachedAnswers {
    pub(super) fn new(config: &CacheConfig) -> Self {
        Self {
            max_bytes: config.max_bytes,
            tenant_max_bytes: config.tenant_max_bytes.min(config.max_bytes),
            max_age: config.max_age,
            ..Self::default()
        }
    }

    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    pub(super) fn find(&mut self, key: &RequestDigest, now: Instant) -> Option<Arc<Recorded>> {
        let made = self.entries.get(key)?.made;
        if now.saturating_duration_since(made) > self.max_age {
            self.remove(key);
            return None;
        }
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        entry.used = self.clock;
        self.order.insert(self.clock, *key);
        Some(Arc::clone(&entry.answer))
    }

    /// The answer to the question that is nearest, if it is near enough.
    pub(super) fn find_like(
        &mut self,
        wanted: &Likeness,
        least: f32,
        now: Instant,
    ) -> Option<Arc<Recorded>> {
        let alike = self.alike.get(&wanted.around)?;
        let near = alike.iter().filter_map(|key| {
            let vector = &self.entries.get(key)?.likeness.as_ref()?.vector;
            Some((cosine(vector, &wanted.vector)?, *key))
        });
        let near = near.filter(|(cosine, _)| *cosine >= least);
        let (_, key) = near.max_by(|one, other| one.0.total_cmp(&other.0))?;
        self.find(&key, now)
    }

    pub(super) fn keep(
        &mut self,
        key: RequestDigest,
        tenant: &Arc<str>,
        answer: Recorded,
        likeness: Option<Likeness>,
        now: Instant,
    ) {
        self.remove(&key);
        self.forget_old(now);
        let vector = likeness
            .as_ref()
            .map_or(0, |likeness| 4 * likeness.vector.len());
        let bytes = answer.bytes() + vector + ENTRY_BYTES;
        if bytes > self.tenant_max_bytes {
            return;
        }
        // One tenant's answers make room for its own first.
        while self.tenants.get(tenant).copied().unwrap_or(0) + bytes > self.tenant_max_bytes {
            let oldest = self.order.values().find(|key| {
                let entry = self.entries.get(key);
                entry.is_some_and(|entry| entry.tenant == *tenant)
            });
            let Some(oldest) = oldest.copied() else {
                return;
            };
            self.remove(&oldest);
        }
        while self.bytes + bytes > self.max_bytes {
            let Some(oldest) = self.order.values().next().copied() else {
                return;
            };
            self.remove(&oldest);
        }
        self.clock += 1;
        let likeness = likeness.filter(|likeness| {
            let alike = self.alike.entry(likeness.around).or_default();
            let room = alike.len() < MAX_ALIKE;
            if room {
                alike.push(key);
            }
            room
        });
        self.order.insert(self.clock, key);
        self.bytes += bytes;
        *self.tenants.entry(Arc::clone(tenant)).or_default() += bytes;
        let entry = Entry {
            answer: Arc::new(answer),
            tenant: Arc::clone(tenant),
            bytes,
            made: now,
            used: self.clock,
            likeness,
        };
        self.entries.insert(key, entry);
    }

    pub(super) fn clear(&mut self) -> (usize, usize) {
        let size = self.size();
        self.entries.clear();
        self.order.clear();
        self.alike.clear();
        self.tenants.clear();
        self.bytes = 0;
        size
    }

    /// Evict entries that are too old, from the least recently used on.
    fn forget_old(&mut self, now: Instant) {
        while let Some((_, key)) = self.order.first_key_value() {
            let (key, entry) = (*key, self.entries.get(key));
            let old = |entry: &Entry| now.saturating_duration_since(entry.made) > self.max_age;
            if !entry.is_some_and(old) {
                return;
            }
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &RequestDigest) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.order.remove(&entry.used);
        self.bytes -= entry.bytes;
        if let Some(bytes) = self.tenants.get_mut(&entry.tenant) {
            *bytes -= entry.bytes;
            if *bytes == 0 {
                self.tenants.remove(&entry.tenant);
            }
        }
        if let Some(likeness) = entry.likeness
            && let Some(alike) = self.alike.get_mut(&likeness.around)
        {
            alike.retain(|other| other != key);
            if alike.is_empty() {
                self.alike.remove(&likeness.around);
            }
        }
    }
}

/// Cosine of two vectors of the length 1; `None` if they are not of one model.
fn cosine(one: &[f32], other: &[f32]) -> Option<f32> {
    let same = one.len() == other.len();
    same.then(|| one.iter().zip(other).map(|(a, b)| a * b).sum())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> RequestDigest {
        RequestDigest([number; 32])
    }

    fn kept(max_bytes: usize, tenant_max_bytes: usize) -> CachedAnswers {
        CachedAnswers::new(&CacheConfig {
            max_bytes,
            tenant_max_bytes,
            max_age: Duration::from_secs(60),
            ..CacheConfig::default()
        })
    }

    fn consistent(kept: &CachedAnswers) {
        assert_eq!(kept.entries.len(), kept.order.len());
        let bytes: usize = kept.entries.values().map(|entry| entry.bytes).sum();
        assert_eq!(kept.bytes, bytes);
        assert_eq!(kept.tenants.values().sum::<usize>(), bytes);
        assert!(kept.bytes <= kept.max_bytes);
        assert!(
            kept.tenants
                .values()
                .all(|bytes| *bytes <= kept.tenant_max_bytes)
        );
        let alike: usize = kept.alike.values().map(Vec::len).sum();
        let with = kept
            .entries
            .values()
            .filter(|entry| entry.likeness.is_some());
        assert_eq!(alike, with.count());
    }

    #[test]
    fn feature_k3_an_answer_is_forgotten_by_age() {
        let (mut kept, now) = (kept(10_000, 10_000), Instant::now());
        let tenant = Arc::from("a");
        kept.keep(key(1), &tenant, Recorded::default(), None, now);
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(kept.find(&key(1), later(60)).is_some());
        assert!(kept.find(&key(1), later(61)).is_none());
        assert_eq!(kept.size(), (0, 0));
        consistent(&kept);
    }

    #[test]
    fn feature_k3_a_tenant_makes_room_among_its_own() {
        let (mut kept, now) = (kept(10 * ENTRY_BYTES, 2 * ENTRY_BYTES), Instant::now());
        let (one, other): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
        kept.keep(key(0), &other, Recorded::default(), None, now);
        for number in 1..=3 {
            kept.keep(key(number), &one, Recorded::default(), None, now);
            // What was used last stays.
            kept.find(&key(1), now);
        }
        let there = |kept: &mut CachedAnswers, number| kept.find(&key(number), now).is_some();
        let found: Vec<bool> = (0..=3).map(|number| there(&mut kept, number)).collect();
        assert_eq!(found, [true, true, false, true]);
        consistent(&kept);
    }

    #[test]
    fn feature_k3_alike_is_what_reaches_the_threshold_with_the_same_around_it() {
        let (mut kept, now) = (kept(10_000, 10_000), Instant::now());
        let like = |around, vector: [f32; 2]| Likeness {
            around: key(around),
            vector: vector.to_vec(),
        };
        let tenant = Arc::from("a");
        kept.keep(
            key(1),
            &tenant,
            Recorded::default(),
            Some(like(9, [1.0, 0.0])),
            now,
        );
        let mut found = |wanted: &Likeness, least| kept.find_like(wanted, least, now).is_some();
        assert!(found(&like(9, [0.8, 0.6]), 0.8));
        assert!(!found(&like(9, [0.8, 0.6]), 0.81));
        assert!(!found(&like(8, [1.0, 0.0]), 0.5));
    }

    proptest! {
        #[test]
        fn bounds_hold_whatever_comes(
            steps in proptest::collection::vec((0..20u8, 0..3usize, any::<bool>(), 0..90u64), 0..60)
        ) {
            let tenants: [Arc<str>; 3] = ["a", "b", "c"].map(Arc::from);
            let (mut kept, began) = (kept(5 * ENTRY_BYTES, 3 * ENTRY_BYTES + 40), Instant::now());
            for (number, tenant, alike, seconds) in steps {
                let now = began + Duration::from_secs(seconds);
                let likeness = alike.then(|| Likeness { around: key(tenant as u8), vector: vec![1.0] });
                kept.find(&key(number), now);
                kept.keep(key(number), &tenants[tenant], Recorded::default(), likeness, now);
                consistent(&kept);
            }
        }
    }
}
