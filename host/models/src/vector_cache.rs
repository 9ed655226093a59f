//! Vectors of texts that are asked for again, such as the question of a search that is repeated. A vector follows from the tokens of
//! its text and the adapter alone; still, nobody finds what another tenant has asked for, not even by the time that an answer takes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::MAX_CACHED_VECTOR_BYTES;

/// Bytes that an entry takes beside its numbers.
const AROUND: usize = 128;

/// Vectors of one model.
#[derive(Debug, Default)]
pub struct VectorCache(Mutex<Kept>);

/// Entries in two generations: what is used comes to the younger one, and when that has half of the room, the older one is
/// given up.
#[derive(Debug, Default)]
struct Kept {
    young: Generation,
    old: Generation,
    young_bytes: usize,
}

/// Key of a cached vector: tenant, adapter and tokens, which it follows from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TextKey {
    /// Tenant that asked for it; no other finds it.
    pub tenant: Arc<str>,
    /// Number of the adapter; no two that were ever loaded have the same.
    pub adapter: Option<u64>,
    /// Tokens of the text.
    pub tokens: Vec<u32>,
}

/// Vectors by what they follow from.
type Generation = HashMap<TextKey, Arc<[f32]>>;

impl VectorCache {
    /// The vector of a text, if this tenant has asked for it.
    pub fn get(&self, key: &TextKey) -> Option<Arc<[f32]>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vector) = kept.young.get(key) {
            return Some(Arc::clone(vector));
        }
        let (key, vector) = kept.old.remove_entry(key)?;
        kept.put(key, Arc::clone(&vector));
        Some(vector)
    }

    /// Keep the vector of a text.
    pub fn put(&self, key: TextKey, vector: &[f32]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.put(key, vector.into());
    }
}

impl Kept {
    fn put(&mut self, key: TextKey, vector: Arc<[f32]>) {
        let bytes = 4 * (key.tokens.len() + vector.len()) + key.tenant.len() + AROUND;
        if bytes > MAX_CACHED_VECTOR_BYTES / 2 {
            return;
        }
        if self.young_bytes + bytes > MAX_CACHED_VECTOR_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, vector).is_none() {
            self.young_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_kept_for_its_tenant_and_what_is_used_stays() {
        let cache = VectorCache::default();
        let key = |tenant: &str, adapter: Option<u64>, tokens: &[u32]| TextKey {
            tenant: Arc::from(tenant),
            adapter,
            tokens: tokens.to_vec(),
        };
        let one = |tokens: &[u32]| key("a", None, tokens);
        cache.put(one(&[1, 2]), &[0.5]);
        cache.put(key("a", Some(7), &[1, 2]), &[0.25]);
        assert_eq!(cache.get(&one(&[1, 2])).as_deref(), Some(&[0.5][..]));
        let adapted = cache.get(&key("a", Some(7), &[1, 2]));
        assert_eq!(adapted.as_deref(), Some(&[0.25][..]));
        for unknown in [
            key("b", None, &[1, 2]),
            key("a", Some(8), &[1, 2]),
            one(&[1]),
        ] {
            assert_eq!(cache.get(&unknown), None, "{unknown:?}");
        }
        // Each takes about a hundredth of the room.
        let large = vec![1.0; MAX_CACHED_VECTOR_BYTES / 400];
        for number in 10..500 {
            cache.put(one(&[number]), &large);
            assert!(cache.get(&one(&[1, 2])).is_some(), "{number}");
        }
        assert_eq!(cache.get(&one(&[10])), None);
        assert!(cache.get(&one(&[499])).is_some());
        let kept = cache.0.lock().expect("no panic");
        assert!(kept.young.len() + kept.old.len() <= 101);
        drop(kept);
        cache.put(one(&[7]), &vec![1.0; MAX_CACHED_VECTOR_BYTES]);
        assert_eq!(cache.get(&one(&[7])), None);
    }
}
