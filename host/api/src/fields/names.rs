//! Names of the fields that a type reads, for hints about misspelled ones.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};

use super::path::{FieldPath, Segment};

type Names = &'static [&'static str];
/// Deserialization under which nothing is read, and which therefore always fails.
type Probe = serde::de::value::Error;

/// Names of the fields that `T` reads in the object at `path`; none if it reads no such object.
pub(crate) fn names_at<T: DeserializeOwned>(path: &FieldPath) -> Names {
    let mut found: Names = &[];
    let walk = Walk {
        path: path.segments(),
        found: Some(&mut found),
    };
    // The walk ends with an error by design.
    let _ = T::deserialize(walk);
    found
}

/// Pretends to be a body in which nothing but the path exists, down to the object in question.
struct Walk<'a> {
    path: &'a [Segment],
    found: Option<&'a mut Names>,
}

impl<'a> IntoDeserializer<'a, Probe> for Walk<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Walk<'de> {
    type Error = Probe;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        let Some((first, rest)) = self.path.split_first() else {
            return Err(Probe::custom("the end of the path"));
        };
        let inner = Walk {
            path: rest,
            found: self.found,
        };
        match first {
            Segment::Key(key) => {
                let entries = std::iter::once((key.as_str(), inner));
                visitor.visit_map(MapDeserializer::new(entries))
            }
            Segment::Index(_) => visitor.visit_seq(SeqDeserializer::new(std::iter::once(inner))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, Probe> {
        if self.path.is_empty()
            && let Some(found) = self.found.take()
        {
            *found = fields;
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Probe> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only the names are looked at")]
    struct Outer {
        first: Option<u32>,
        list: Option<Vec<Inner>>,
    }

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only the names are looked at")]
    struct Inner {
        #[serde(rename = "type")]
        kind: String,
        deeper: Option<Box<Outer>>,
    }

    #[test]
    fn names_are_found_at_every_depth() {
        let root = FieldPath::default();
        assert_eq!(names_at::<Outer>(&root), ["first", "list"]);
        let inner = root.key("list").index(3);
        assert_eq!(names_at::<Outer>(&inner), ["type", "deeper"]);
        assert_eq!(names_at::<Outer>(&inner.key("deeper")), ["first", "list"]);
        assert!(names_at::<Outer>(&root.key("first")).is_empty());
        assert!(names_at::<Outer>(&root.key("other")).is_empty());
    }
}
