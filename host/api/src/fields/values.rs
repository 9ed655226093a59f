//! Types of field values that JSON writes in more than one way.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor, value};

use super::names::ObjectMembers;

/// A string or an array of strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextOrTexts(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for TextOrTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;

        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = TextOrTexts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of strings")
            }

            fn visit_str<E>(self, text: &str) -> Result<TextOrTexts, E> {
                Ok(TextOrTexts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<TextOrTexts, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(items)).map(TextOrTexts)
            }
        }

        deserializer.deserialize_any(TextsVisitor)
    }
}

/// Members of an object whose values are numbers, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NumberMembers(pub(crate) Vec<(String, f64)>);

impl<'de> Deserialize<'de> for NumberMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumbersVisitor;

        impl<'de> Visitor<'de> for NumbersVisitor {
            type Value = NumberMembers;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NumberMembers, A::Error> {
                let mut numbers = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    numbers.push(entry);
                }
                Ok(NumberMembers(numbers))
            }
        }

        deserializer.deserialize_map(NumbersVisitor)
    }
}

/// A token id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenId(pub(crate) u32);

impl<'de> Deserialize<'de> for TokenId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenIdVisitor;

        impl Visitor<'_> for TokenIdVisitor {
            type Value = TokenId;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a token id")
            }

            fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<TokenId, E> {
                let unexpected = serde::de::Unexpected::Unsigned(id);
                u32::try_from(id)
                    .map(TokenId)
                    .map_err(|_| E::invalid_type(unexpected, &self))
            }
        }

        deserializer.deserialize_u64(TokenIdVisitor)
    }
}

/// A word, or an object of type `T`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WordOr<T> {
    Word(String),
    Object(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for WordOrVisitor<T> {
            type Value = WordOr<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an object")
            }

            fn visit_str<E>(self, word: &str) -> Result<WordOr<T>, E> {
                Ok(WordOr::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WordOr<T>, A::Error> {
                T::deserialize(ObjectMembers(map)).map(WordOr::Object)
            }
        }

        deserializer.deserialize_any(WordOrVisitor(std::marker::PhantomData))
    }
}

/// A string, or an array of items of type `T`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TextOr<T> {
    Text(String),
    Items(Vec<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
            type Value = TextOr<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array")
            }

            fn visit_str<E>(self, text: &str) -> Result<TextOr<T>, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<TextOr<T>, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(items)).map(TextOr::Items)
            }
        }

        deserializer.deserialize_any(TextOrVisitor(std::marker::PhantomData))
    }
}

/// Defines an enumeration that JSON writes as one of a few words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),+ }

        impl $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word.
            #[allow(dead_code, reason = "some enumerations are only matched on")]
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                match text.as_str() {
                    $($word => Ok(Self::$variant),)+
                    other => Err(serde::de::Error::unknown_variant(other, Self::WORDS)),
                }
            }
        }
    };
}

pub(crate) use words;
