//! Deserializer of the types of requests. It reads a JSON value, and notes the members that a type does not read
//! and the path at which reading failed; or it walks a path in which nothing exists but the path, to find what a
//! type would read there. One type does both, since everything that is generic over a deserializer is compiled
//! for each type of request once more (`serde_ignored` around `serde_path_to_error` around `serde_json` were a
//! third of this crate's code).

use std::cell::{Cell, RefCell};

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde_json::{Map, Number, Value};

use super::path::{FieldPath, PathSegment};
use super::probe::{Names, Offer, ProbeResult, ValueKind};
use super::refusal::FieldRefusal;

/// Read a value as `T`. Also returns the paths of members that `T` does not read; or, where it cannot be read,
/// the path at which that shows and the reason.
pub(crate) fn read<T: DeserializeOwned>(
    value: &Value,
) -> Result<(T, Vec<FieldPath>), (FieldPath, FieldRefusal)> {
    let notes = Notes::new(Offer::Nothing);
    let reader = Reader {
        from: From::Value(value),
        notes: &notes,
    };
    match T::deserialize(reader) {
        Ok(read) => Ok((read, notes.unread.into_inner())),
        Err(refusal) => Err((notes.failed.into_inner().unwrap_or_default(), refusal)),
    }
}

/// Walk a path of `T` and offer it a value at the end. Returns what was found, and the reason for which the walk
/// ended: it ends with one, but where its offer is taken.
pub(super) fn walk<T: DeserializeOwned>(
    path: &[PathSegment],
    offer: Offer,
) -> (ProbeResult, Option<FieldRefusal>) {
    let notes = Notes::new(offer);
    let reader = Reader {
        from: From::Path(path),
        notes: &notes,
    };
    let end = T::deserialize(reader).err();
    (notes.found.get(), end)
}

/// Source of what is read.
#[derive(Clone, Copy)]
enum From<'de> {
    Value(&'de Value),
    /// A value in which nothing exists but this path.
    Path(&'de [PathSegment]),
}

/// Notes of a read or a walk.
struct Notes<'de> {
    /// Place of the value that is read now.
    place: RefCell<Vec<Step<'de>>>,
    /// Members that no type read.
    unread: RefCell<Vec<FieldPath>>,
    /// Path of the innermost value that could not be read.
    failed: RefCell<Option<FieldPath>>,
    offer: Offer,
    found: Cell<ProbeResult>,
}

#[derive(Clone, Copy)]
enum Step<'de> {
    Key(&'de str),
    Index(usize),
}

impl<'de> Notes<'de> {
    fn new(offer: Offer) -> Self {
        Self {
            place: RefCell::default(),
            unread: RefCell::default(),
            failed: RefCell::default(),
            offer,
            found: Cell::default(),
        }
    }

    fn path(&self) -> FieldPath {
        let place = self.place.borrow();
        let segments = place.iter().map(|step| match step {
            Step::Key(key) => PathSegment::Key((*key).to_owned()),
            Step::Index(index) => PathSegment::Index(*index),
        });
        segments.collect()
    }

    fn enter(&self, step: Step<'de>) {
        self.place.borrow_mut().push(step);
    }

    /// Leave the value that was read last.
    fn leave(&self, failed: bool) {
        if failed && self.failed.borrow().is_none() {
            *self.failed.borrow_mut() = Some(self.path());
        }
        self.place.borrow_mut().pop();
    }

    fn find(&self, kind: ValueKind) {
        let found = self.found.get();
        self.found.set(ProbeResult { kind, ..found });
    }
}

/// The deserializer.
#[derive(Clone, Copy)]
struct Reader<'r, 'de> {
    from: From<'de>,
    notes: &'r Notes<'de>,
}

impl<'r, 'de> Reader<'r, 'de> {
    fn number<V: Visitor<'de>>(
        self,
        kind: ValueKind,
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::Number(number)) => give_number(number, visitor),
            _ => Err(self.other(kind, &visitor)),
        }
    }

    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::String(text)) => visitor.visit_str(text),
            From::Path([]) => {
                self.notes.find(ValueKind::Text);
                // A type of words reads a text, and then says which it knows.
                visitor.visit_str("\0")
            }
            _ => Err(self.other(ValueKind::None, &visitor)),
        }
    }

    fn list<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::Array(items)) => self.items(items, visitor),
            From::Path([PathSegment::Index(_), rest @ ..]) => {
                visitor.visit_seq(&mut self.item_at(rest))
            }
            _ => Err(self.other(ValueKind::List, &visitor)),
        }
    }

    fn object<V: Visitor<'de>>(
        self,
        kind: ValueKind,
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::Object(object)) => visitor.visit_map(self.members(object)),
            From::Path([PathSegment::Key(key), rest @ ..]) => {
                visitor.visit_map(self.member_at(key, rest))
            }
            _ => Err(self.other(kind, &visitor)),
        }
    }

    /// The refusal of a value of another type, or the end of a walk.
    fn other<'v, V: Visitor<'v>>(self, kind: ValueKind, visitor: &V) -> FieldRefusal {
        match self.from {
            From::Value(value) => FieldRefusal::invalid_type(unexpected(value), visitor),
            From::Path(path) => {
                if path.is_empty() {
                    self.notes.find(kind);
                }
                FieldRefusal::Other("the end of the path".to_owned())
            }
        }
    }

    fn items<V: Visitor<'de>>(
        self,
        items: &'de [Value],
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        let mut items = Items {
            notes: self.notes,
            rest: Rest::Values(items.iter()),
            next: 0,
        };
        let read = visitor.visit_seq(&mut items)?;
        match items.left() {
            0 => Ok(read),
            left => Err(FieldRefusal::Other(format!("has {left} items too many"))),
        }
    }

    fn item_at(self, rest: &'de [PathSegment]) -> Items<'r, 'de> {
        Items {
            notes: self.notes,
            rest: Rest::Path(Some(rest)),
            next: 0,
        }
    }

    fn members(self, object: &'de Map<String, Value>) -> Entries<'r, 'de> {
        Entries {
            notes: self.notes,
            rest: Left::Values(object.iter()),
            value: None,
        }
    }

    fn member_at(self, key: &'de str, rest: &'de [PathSegment]) -> Entries<'r, 'de> {
        Entries {
            notes: self.notes,
            rest: Left::Path(Some((key, rest))),
            value: None,
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = FieldRefusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::Null) => visitor.visit_unit(),
            From::Value(Value::Bool(flag)) => visitor.visit_bool(*flag),
            From::Value(Value::Number(number)) => give_number(number, visitor),
            From::Value(Value::String(text)) => visitor.visit_str(text),
            From::Value(Value::Array(items)) => self.items(items, visitor),
            From::Value(Value::Object(object)) => visitor.visit_map(self.members(object)),
            From::Path([]) => {
                let taken = self.offered(visitor);
                let refused = matches!(taken, Err(FieldRefusal::Type(_)));
                self.notes.find(ValueKind::Any(!refused));
                taken
            }
            From::Path([PathSegment::Key(key), rest @ ..]) => {
                visitor.visit_map(self.member_at(key, rest))
            }
            From::Path([PathSegment::Index(_), rest @ ..]) => {
                visitor.visit_seq(&mut self.item_at(rest))
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::Bool(flag)) => visitor.visit_bool(*flag),
            _ => Err(self.other(ValueKind::Boolean, &visitor)),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.number(ValueKind::Natural(u64::from(u32::MAX)), visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.number(ValueKind::Natural(u64::MAX), visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.number(ValueKind::Integer, visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.number(ValueKind::Number, visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.text(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.list(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        self.list(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        self.object(ValueKind::Map, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        self.object(ValueKind::Fields(fields), visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        match self.from {
            From::Value(Value::Null) => return visitor.visit_none(),
            From::Path([]) => self.notes.found.set(ProbeResult {
                optional: true,
                ..self.notes.found.get()
            }),
            From::Value(_) | From::Path(_) => {}
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, FieldRefusal> {
        if let From::Value(_) = self.from {
            let path = self.notes.path();
            self.notes.unread.borrow_mut().push(path);
        }
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct tuple_struct enum identifier
    }
}

impl<'de> Reader<'_, 'de> {
    /// Offer a value to a visitor at the end of a walk.
    fn offered<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldRefusal> {
        match self.notes.offer {
            Offer::Nothing => Err(FieldRefusal::Type(String::new())),
            Offer::Boolean => visitor.visit_bool(true),
            Offer::Natural => visitor.visit_u64(1),
            Offer::Integer => visitor.visit_i64(-1),
            Offer::Number => visitor.visit_f64(0.5),
            Offer::Text => visitor.visit_str("a"),
            Offer::List => visitor.visit_seq(&mut Items {
                notes: self.notes,
                rest: Rest::Path(None),
                next: 0,
            }),
            Offer::Object => visitor.visit_map(Entries {
                notes: self.notes,
                rest: Left::Path(None),
                value: None,
            }),
        }
    }
}

fn give_number<'de, V: Visitor<'de>>(
    number: &Number,
    visitor: V,
) -> Result<V::Value, FieldRefusal> {
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(natural), ..) => visitor.visit_u64(natural),
        (None, Some(integer), _) => visitor.visit_i64(integer),
        (None, None, float) => visitor.visit_f64(float.unwrap_or(f64::NAN)),
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(flag) => Unexpected::Bool(*flag),
        Value::Number(_) => Unexpected::Other("number"),
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

/// Items that are left of an array.
struct Items<'r, 'de> {
    notes: &'r Notes<'de>,
    rest: Rest<'de>,
    /// Index of the next one.
    next: usize,
}

enum Rest<'de> {
    Values(std::slice::Iter<'de, Value>),
    /// The item that a walk goes through, if it does.
    Path(Option<&'de [PathSegment]>),
}

impl Items<'_, '_> {
    fn left(&self) -> usize {
        match &self.rest {
            Rest::Values(values) => values.len(),
            Rest::Path(path) => usize::from(path.is_some()),
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = FieldRefusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, FieldRefusal> {
        let from = match &mut self.rest {
            Rest::Values(values) => values.next().map(From::Value),
            Rest::Path(path) => path.take().map(From::Path),
        };
        let Some(from) = from else { return Ok(None) };
        self.notes.enter(Step::Index(self.next));
        self.next += 1;
        let notes = self.notes;
        let read = seed.deserialize(Reader { from, notes });
        notes.leave(read.is_err());
        read.map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left())
    }
}

/// Members that are left of an object.
struct Entries<'r, 'de> {
    notes: &'r Notes<'de>,
    rest: Left<'de>,
    /// The value of the member whose name was read last.
    value: Option<(&'de str, From<'de>)>,
}

enum Left<'de> {
    Values(serde_json::map::Iter<'de>),
    /// The member that a walk goes through, if it does.
    Path(Option<(&'de str, &'de [PathSegment])>),
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = FieldRefusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, FieldRefusal> {
        self.value = match &mut self.rest {
            Left::Values(members) => members
                .next()
                .map(|(key, value)| (key.as_str(), From::Value(value))),
            Left::Path(member) => member.take().map(|(key, rest)| (key, From::Path(rest))),
        };
        let Some((key, _)) = self.value else {
            return Ok(None);
        };
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, FieldRefusal> {
        let Some((key, from)) = self.value.take() else {
            return Err(FieldRefusal::Other("has a value without a name".to_owned()));
        };
        self.notes.enter(Step::Key(key));
        let notes = self.notes;
        let read = seed.deserialize(Reader { from, notes });
        notes.leave(read.is_err());
        read
    }
}
