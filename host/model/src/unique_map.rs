//! JSON objects in which no key may stand twice.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// An object whose keys are unique; reading one with a duplicate key fails.
#[derive(Debug)]
pub(crate) struct UniqueMap<V>(pub(crate) HashMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = UniqueMap<V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = HashMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value()?;
            if entries.contains_key(&key) {
                return Err(duplicate(&key));
            }
            entries.insert(key, value);
        }
        Ok(UniqueMap(entries))
    }
}

/// Error of a duplicate key.
pub(crate) fn duplicate<E: Error>(key: &str) -> E {
    let shown: String = key.chars().take(200).collect();
    E::custom(format_args!("`{shown}` is there twice"))
}
