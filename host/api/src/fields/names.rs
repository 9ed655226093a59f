//! Fields that a type reads at a path: a deserializer in which nothing exists but the path. Hints about misspelled
//! fields and the schemas of the contract are made of it, so that neither can differ from what is read.

use std::cell::Cell;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeOwned, Deserializer, Error as _, IntoDeserializer, MapAccess, Unexpected,
    Visitor,
};

use super::path::{FieldPath, Segment};

type Names = &'static [&'static str];

/// Names of the fields that `T` reads in the object at `path`; none if it reads no such object.
pub(crate) fn names_at<T: DeserializeOwned>(path: &FieldPath) -> Names {
    match look::<T>(path, Offer::Nothing).kind {
        Kind::Fields(names) => names,
        _ => &[],
    }
}

/// A value that is offered where a type takes values of several kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Nothing,
    Boolean,
    Natural,
    Integer,
    Number,
    Text,
    List,
    Object,
}

/// Kind of value that a type asks for at a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: the path does not exist.
    #[default]
    None,
    Boolean,
    /// A number from 0 on, up to a limit.
    Natural(u64),
    Integer,
    Number,
    Text,
    /// One of these words.
    Words(Names),
    List,
    /// An object whose members have any names.
    Map,
    /// An object with these members.
    Fields(Names),
    /// Whatever comes. The flag says whether it took what was offered.
    Any(bool),
}

/// Result of a look at a path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    pub(super) kind: Kind,
    /// It may be null, or absent.
    pub(super) optional: bool,
}

/// Look at what `T` reads at a path, and whether it takes an offer there.
pub(super) fn look<T: DeserializeOwned>(path: &FieldPath, offer: Offer) -> Found {
    let mut found = Found::default();
    let walk = Walk {
        path: path.segments(),
        offer,
        found: &mut found,
    };
    MEMBERS.set(&[]);
    // The walk ends with an error, but where its offer is taken.
    if let Err(Probe::Words(words)) = T::deserialize(walk)
        && found.kind == Kind::Text
    {
        found.kind = Kind::Words(words);
    }
    if offer == Offer::Object && found.kind == Kind::Any(true) && !MEMBERS.get().is_empty() {
        found.kind = Kind::Fields(MEMBERS.get());
    }
    found
}

thread_local! {
    /// Members that the last object had which was read by [`Members`].
    static MEMBERS: Cell<Names> = const { Cell::new(&[]) };
}

/// An object of which a visitor has been given the members: [`de::value::MapAccessDeserializer`], which forgets
/// the names that the type of the object knows.
pub(super) struct Members<A>(pub(super) A);

impl<'de, A: MapAccess<'de>> Deserializer<'de> for Members<A> {
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

/// End of a walk.
#[derive(Debug)]
enum Probe {
    /// The offer is of a type that is not taken.
    Type,
    /// One of these words was expected.
    Words(Names),
    Other,
}

impl fmt::Display for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the end of the path")
    }
}

impl std::error::Error for Probe {}

impl de::Error for Probe {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }

    fn invalid_type(_: Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self::Type
    }

    fn unknown_variant(_: &str, expected: Names) -> Self {
        Self::Words(expected)
    }
}

/// Pretends to be a body in which nothing but the path exists, down to the value in question.
struct Walk<'a> {
    path: &'a [Segment],
    offer: Offer,
    found: &'a mut Found,
}

impl<'a> IntoDeserializer<'a, Probe> for Walk<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Walk<'de> {
    /// Go on along the path; at its end, note the kind.
    fn meet<V: Visitor<'de>>(self, kind: Kind, visitor: V) -> Result<V::Value, Probe> {
        let Some((first, rest)) = self.path.split_first() else {
            self.found.kind = kind;
            return Err(Probe::custom("the end of the path"));
        };
        let inner = Walk {
            path: rest,
            offer: self.offer,
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

    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        if !self.path.is_empty() {
            return Err(Probe::Type);
        }
        self.found.kind = Kind::Text;
        // A type of words reads a text, and then says which it knows.
        visitor.visit_str("\0")
    }

    fn natural<V: Visitor<'de>>(self, most: u64, visitor: V) -> Result<V::Value, Probe> {
        self.meet(Kind::Natural(most), visitor)
    }
}

/// Offer a value to a visitor.
fn offered<'de, V: Visitor<'de>>(offer: Offer, visitor: V) -> Result<V::Value, Probe> {
    match offer {
        Offer::Nothing => Err(Probe::Type),
        Offer::Boolean => visitor.visit_bool(true),
        Offer::Natural => visitor.visit_u64(1),
        Offer::Integer => visitor.visit_i64(-1),
        Offer::Number => visitor.visit_f64(0.5),
        Offer::Text => visitor.visit_str("a"),
        Offer::List => {
            let none: [&str; 0] = [];
            visitor.visit_seq(SeqDeserializer::new(none.into_iter()))
        }
        Offer::Object => {
            let none: [(&str, &str); 0] = [];
            visitor.visit_map(MapDeserializer::new(none.into_iter()))
        }
    }
}

impl<'de> Deserializer<'de> for Walk<'de> {
    type Error = Probe;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        if !self.path.is_empty() {
            return self.meet(Kind::None, visitor);
        }
        let taken = offered(self.offer, visitor);
        self.found.kind = Kind::Any(!matches!(taken, Err(Probe::Type)));
        taken
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.meet(Kind::Boolean, visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.natural(u64::from(u32::MAX), visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.natural(u64::MAX, visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.meet(Kind::Integer, visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.meet(Kind::Number, visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.text(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.meet(Kind::List, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        self.meet(Kind::Map, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, Probe> {
        self.meet(Kind::Fields(fields), visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Probe> {
        if self.path.is_empty() {
            self.found.optional = true;
        }
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
        i8 i16 i32 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
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
