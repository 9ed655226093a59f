//! Texts and lists of token ids, as `prompt` and `input` hold them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use crate::fields::TokenId;

/// A text, or token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

/// A string, an array of strings, an array of token ids, or an array of those.
#[derive(Debug)]
pub(crate) struct Inputs(pub(crate) Vec<Input>);

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InputsVisitor;

        impl<'de> Visitor<'de> for InputsVisitor {
            type Value = Inputs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array")
            }

            fn visit_str<E>(self, text: &str) -> Result<Inputs, E> {
                Ok(Inputs(vec![Input::Text(text.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inputs, A::Error> {
                let mut inputs = match items.next_element()? {
                    None => return Ok(Inputs(Vec::new())),
                    Some(Item::Id(first)) => {
                        let mut ids = vec![first];
                        while let Some(TokenId(id)) = items.next_element()? {
                            ids.push(id);
                        }
                        return Ok(Inputs(vec![Input::Tokens(ids)]));
                    }
                    Some(Item::Input(first)) => vec![first],
                };
                while let Some(Whole(input)) = items.next_element()? {
                    inputs.push(input);
                }
                Ok(Inputs(inputs))
            }
        }

        deserializer.deserialize_any(InputsVisitor)
    }
}

/// First item of an array of inputs, or first id of one input.
enum Item {
    Input(Input),
    Id(u32),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

/// An input among others.
struct Whole(Input);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(ItemVisitor)? {
            Item::Input(input) => Ok(Self(input)),
            Item::Id(id) => Err(serde::de::Error::invalid_type(
                serde::de::Unexpected::Unsigned(u64::from(id)),
                &ItemVisitor,
            )),
        }
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an array of token ids")
    }

    fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Item, E> {
        let unexpected = serde::de::Unexpected::Unsigned(id);
        u32::try_from(id)
            .map(Item::Id)
            .map_err(|_| E::invalid_type(unexpected, &"a token id"))
    }

    fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<Item, E> {
        let unexpected = serde::de::Unexpected::Signed(id);
        Err(E::invalid_type(unexpected, &"a token id"))
    }

    fn visit_f64<E: serde::de::Error>(self, id: f64) -> Result<Item, E> {
        let unexpected = serde::de::Unexpected::Float(id);
        Err(E::invalid_type(unexpected, &"a token id"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Input(Input::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut ids = Vec::new();
        while let Some(TokenId(id)) = items.next_element()? {
            ids.push(id);
        }
        Ok(Item::Input(Input::Tokens(ids)))
    }
}
