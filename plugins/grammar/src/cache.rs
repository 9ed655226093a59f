//! Compiled grammars, the least recently used of which give way.

use crate::source::Source;

/// Grammars kept.
const MAX_ENTRIES: usize = 32;
/// Bytes of their sources together. A compiled schema takes some hundred times as many, and every idle
/// instance has a cache of its own.
const MAX_BYTES: usize = 32 * 1024;

/// Values by grammar.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    /// The last is the most recently used.
    entries: Vec<(Source, V)>,
    bytes: usize,
}

impl<V> Cache<V> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn get(&mut self, source: &Source) -> Option<&V> {
        let index = self.entries.iter().position(|(key, _)| key == source)?;
        let entry = self.entries.remove(index);
        self.entries.push(entry);
        self.entries.last().map(|(_, value)| value)
    }

    /// Keep a value; it replaces that of the same source.
    pub(crate) fn insert(&mut self, source: Source, value: V) {
        if let Some(index) = self.entries.iter().position(|(key, _)| *key == source) {
            self.entries.remove(index);
            self.bytes -= source.len();
        }
        self.bytes += source.len();
        self.entries.push((source, value));
        // The newest stays, however large: the next request often has the same.
        while self.entries.len() > MAX_ENTRIES || (self.bytes > MAX_BYTES && self.entries.len() > 1)
        {
            let (source, _) = self.entries.remove(0);
            self.bytes -= source.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_give_way() {
        let source = |index: usize| Source::Regex(format!("{index}"));
        let mut cache = Cache::new();
        for index in 0..MAX_ENTRIES {
            cache.insert(source(index), index);
        }
        assert_eq!(cache.get(&source(0)), Some(&0));
        cache.insert(source(0), 0);
        cache.insert(source(MAX_ENTRIES), MAX_ENTRIES);
        assert_eq!(cache.get(&source(1)), None);
        assert_eq!(cache.get(&source(0)), Some(&0));
        cache.insert(Source::Regex("x".repeat(MAX_BYTES)), 99);
        assert_eq!(cache.get(&source(0)), None);
        assert_eq!(cache.entries.len(), 1);
        let large = Source::Regex("y".repeat(2 * MAX_BYTES));
        cache.insert(large.clone(), 100);
        assert_eq!(cache.get(&large), Some(&100));
        assert_eq!(cache.entries.len(), 1);
    }
}
