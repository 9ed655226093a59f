//! Fields that a type reads at a path. Hints about misspelled fields and the schemas of the contract are made of it, so
//! that neither can differ from what is read.

use std::cell::Cell;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};

use super::path::FieldPath;
use super::probe::{Names, Offer, ProbeResult, ValueKind};
use super::reader::walk;
use super::refusal::FieldRefusal;

/// Names of the fields that `T` reads in the object at `path`; none if it reads no such object.
pub(crate) fn names_at<T: DeserializeOwned>(path: &FieldPath) -> Names {
    match look::<T>(path, Offer::Nothing).kind {
        ValueKind::Fields(names) => names,
        _ => &[],
    }
}

/// Look at what `T` reads at a path, and whether it takes an offer there.
pub(super) fn look<T: DeserializeOwned>(path: &FieldPath, offer: Offer) -> ProbeResult {
    MEMBERS.set(&[]);
    let (mut found, end) = walk::<T>(path.segments(), offer);
    if let Some(FieldRefusal::Words(words)) = end
        && found.kind == ValueKind::Text
    {
        found.kind = ValueKind::Words(words);
    }
    if offer == Offer::Object && found.kind == ValueKind::Any(true) && !MEMBERS.get().is_empty() {
        found.kind = ValueKind::Fields(MEMBERS.get());
    }
    found
}

thread_local! {
    /// Members that the last object had which was read by [`ObjectMembers`].
    static MEMBERS: Cell<Names> = const { Cell::new(&[]) };
}

/// An object of which a visitor has been given the members: [`de::value::MapAccessDeserializer`], which forgets
/// the names that the type of the object knows.
pub(super) struct ObjectMembers<A>(pub(super) A);

impl<'de, A: MapAccess<'de>> Deserializer<'de> for ObjectMembers<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self.0)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        MEMBERS.set(fields);
        visitor.visit_map(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
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
