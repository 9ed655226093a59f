//! Days of the configuration: texts such as `"2027-01-31"`, or dates of TOML.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use toml::value::Datetime;

/// Read a day as text, which is checked with the other settings.
pub(crate) fn day<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_any(Day).map(Some)
}

struct Day;

impl<'de> Visitor<'de> for Day {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a day such as 2027-01-31")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    /// Dates come as maps, as the reader of TOML has it.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<String, A::Error> {
        let date = Datetime::deserialize(MapAccessDeserializer::new(map))?;
        Ok(date.to_string())
    }
}
