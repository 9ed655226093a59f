//! Entries of metadata: keys with typed values. Values stay in the file; only where they are is kept.

use std::collections::HashMap;
use std::sync::Arc;

use crate::file_bytes::FileBytes;

use super::cursor::Cursor;
use super::{GgufError, Place};

/// Bytes of a key; the format's own limit.
const KEY_BYTES_MAX: u64 = (1 << 16) - 1;
/// Bytes of one text. The largest in use are chat templates of about 30 KB.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Elements of one array. The largest in use are merges of vocabularies, about 500,000.
const ELEMENTS_MAX: u64 = 1 << 23;
/// Default alignment of tensors.
const ALIGNMENT_DEFAULT: usize = 32;
/// Alignments that are read: the format asks for multiples of 8, and nothing gains beyond a huge page.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=1 << 21;
const ALIGNMENT_KEY: &str = "general.alignment";

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Text,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of a value; none for those that tell their length.
    fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::Array => None,
        }
    }
}

/// The entries of a file.
#[derive(Debug, Clone)]
pub struct Metadata {
    bytes: Arc<FileBytes>,
    /// In the order of the file.
    keys: Vec<String>,
    entries: HashMap<String, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    kind: Kind,
    /// Elements of an array; 1 else.
    count: usize,
    /// Bytes of the value: elements of an array, bytes of a text without its length.
    place: Place,
    is_array: bool,
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// An integer of any width, signed or not.
    Integer(i128),
    /// A number of either precision.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// A text.
    Text(&'a str),
    /// Values of one type.
    Array(Array<'a>),
}

/// Values of one type, read from the file as they are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Array<'a> {
    key: &'a str,
    kind: Kind,
    count: usize,
    bytes: &'a [u8],
}

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.count, self.bytes) == (other.kind, other.count, other.bytes)
    }
}

impl Metadata {
    pub(super) fn read(
        cursor: &mut Cursor<'_>,
        bytes: &Arc<FileBytes>,
        count: u64,
    ) -> Result<Self, GgufError> {
        let mut metadata = Self {
            bytes: Arc::clone(bytes),
            keys: Vec::new(),
            entries: HashMap::new(),
        };
        for number in 0..count {
            let key = cursor.text(KEY_BYTES_MAX, || format!("the key of entry {number}"))?;
            let wrong = |problem: String| entry_error(key, problem);
            if key.is_empty() {
                return Err(wrong("is an empty key".to_owned()));
            }
            let entry = Entry::read(cursor, key)?;
            if metadata.entries.insert(key.to_owned(), entry).is_some() {
                return Err(wrong("is there twice".to_owned()));
            }
            metadata.keys.push(key.to_owned());
        }
        Ok(metadata)
    }

    /// All keys, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// A value; `None` if the file does not have the key. An error if it is a text that is none.
    pub fn get(&self, key: &str) -> Result<Option<Value<'_>>, GgufError> {
        let Some((key, entry)) = self.entries.get_key_value(key) else {
            return Ok(None);
        };
        let bytes = &self.bytes[entry.place.clone()];
        if entry.is_array {
            return Ok(Some(Value::Array(Array {
                key,
                kind: entry.kind,
                count: entry.count,
                bytes,
            })));
        }
        scalar(key, entry.kind, bytes).map(Some)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.get(key)? {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(other.instead_of(key, "a text")),
        }
    }

    /// An integer from 0 up, of any width.
    pub fn count(&self, key: &str) -> Result<Option<u64>, GgufError> {
        match self.get(key)? {
            None => Ok(None),
            Some(Value::Integer(number)) => u64::try_from(number)
                .map(Some)
                .map_err(|_| entry_error(key, format!("is {number}; expected a count"))),
            Some(other) => Err(other.instead_of(key, "an integer")),
        }
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.get(key)? {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(flag)),
            Some(other) => Err(other.instead_of(key, "true or false")),
        }
    }

    /// An array.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, GgufError> {
        match self.get(key)? {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(other) => Err(other.instead_of(key, "an array")),
        }
    }

    /// Alignment of the tensors.
    pub(super) fn alignment(&self) -> Result<usize, GgufError> {
        let Some(entry) = self.entries.get(ALIGNMENT_KEY) else {
            return Ok(ALIGNMENT_DEFAULT);
        };
        if entry.is_array || entry.kind != Kind::U32 {
            let problem = "must be an unsigned integer of 32 bits".to_owned();
            return Err(entry_error(ALIGNMENT_KEY, problem));
        }
        let found = self.count(ALIGNMENT_KEY)?.unwrap_or_default();
        let fitting = ALIGNMENTS.contains(&found) && found.is_power_of_two();
        let aligned = usize::try_from(found).ok().filter(|_| fitting);
        aligned.ok_or_else(|| {
            let (least, most) = (ALIGNMENTS.start(), ALIGNMENTS.end());
            let problem = format!("is {found}; expected a power of two from {least} to {most}");
            entry_error(ALIGNMENT_KEY, problem)
        })
    }
}

pub(super) fn entry_error(key: &str, problem: String) -> GgufError {
    GgufError::Entry {
        key: key.chars().take(200).collect(),
        problem,
    }
}

impl Entry {
    fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, GgufError> {
        let what = || format!("the value of `{key}`");
        let kind = read_kind(cursor, key)?;
        if kind == Kind::Array {
            let kind = read_kind(cursor, key)?;
            return Self::read_array(cursor, key, kind);
        }
        let place = match kind.size() {
            Some(size) => {
                let start = cursor.position();
                cursor.take(size as u64, what)?;
                start..cursor.position()
            }
            None => cursor.sized(TEXT_BYTES_MAX, what)?,
        };
        Ok(Self {
            kind,
            count: 1,
            place,
            is_array: false,
        })
    }

    fn read_array(cursor: &mut Cursor<'_>, key: &str, kind: Kind) -> Result<Self, GgufError> {
        let what = || format!("the elements of `{key}`");
        let count = cursor.count("elements of an array", ELEMENTS_MAX)?;
        let start = cursor.position();
        match kind.size() {
            // The count is bounded, so that the product does not overflow.
            Some(size) => {
                cursor.take(count * size as u64, what)?;
            }
            None if kind == Kind::Array => {
                let problem = "is an array of arrays, which are not read".to_owned();
                return Err(entry_error(key, problem));
            }
            None => {
                // Each text has at least the eight bytes of its length.
                if count > cursor.left() / 8 {
                    return Err(GgufError::Truncated { what: what() });
                }
                for _ in 0..count {
                    cursor.sized(TEXT_BYTES_MAX, what)?;
                }
            }
        }
        Ok(Self {
            kind,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            place: start..cursor.position(),
            is_array: true,
        })
    }
}

fn read_kind(cursor: &mut Cursor<'_>, key: &str) -> Result<Kind, GgufError> {
    let number = cursor.u32(|| format!("the type of `{key}`"))?;
    Kind::from_number(number)
        .ok_or_else(|| entry_error(key, format!("has type {number}, which does not exist")))
}

/// A value that is no array, from exactly its bytes.
fn scalar<'a>(key: &str, kind: Kind, bytes: &'a [u8]) -> Result<Value<'a>, GgufError> {
    // The bytes as an integer of their width; at most eight are there but for texts.
    let mut wide = [0; 8];
    if kind != Kind::Text {
        wide[..bytes.len()].copy_from_slice(bytes);
    }
    let bits = u64::from_le_bytes(wide);
    Ok(match kind {
        Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => Value::Integer(bits.into()),
        Kind::I8 => Value::Integer((bits as i8).into()),
        Kind::I16 => Value::Integer((bits as i16).into()),
        Kind::I32 => Value::Integer((bits as i32).into()),
        Kind::I64 => Value::Integer((bits as i64).into()),
        Kind::F32 => Value::Float(f32::from_bits(bits as u32).into()),
        Kind::F64 => Value::Float(f64::from_bits(bits)),
        Kind::Bool => Value::Flag(bits != 0),
        Kind::Text | Kind::Array => {
            Value::Text(std::str::from_utf8(bytes).map_err(|_| GgufError::Text {
                what: format!("the value of `{key}`"),
            })?)
        }
    })
}

impl Value<'_> {
    fn instead_of(&self, key: &str, expected: &str) -> GgufError {
        let found = match self {
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(_) => "a text".to_owned(),
            Self::Array(array) => format!("an array of {}", array.len()),
        };
        entry_error(key, format!("is {found}; expected {expected}"))
    }
}

impl<'a> Array<'a> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements in order. One that is no text though it should be is an error.
    pub fn values(self) -> impl Iterator<Item = Result<Value<'a>, GgufError>> {
        let mut cursor = Cursor::at(self.bytes, 0);
        (0..self.count).map(move |number| {
            let what = || format!("element {number} of `{}`", self.key);
            let bytes = match self.kind.size() {
                Some(size) => cursor.take(size as u64, what)?,
                None => &self.bytes[cursor.sized(TEXT_BYTES_MAX, what)?],
            };
            scalar(self.key, self.kind, bytes)
        })
    }

    /// The elements as texts.
    pub fn texts(self) -> impl Iterator<Item = Result<&'a str, GgufError>> {
        self.values().map(move |value| match value? {
            Value::Text(text) => Ok(text),
            other => Err(other.instead_of(self.key, "texts")),
        })
    }

    /// The elements as integers.
    pub fn integers(self) -> impl Iterator<Item = Result<i128, GgufError>> {
        self.values().map(move |value| match value? {
            Value::Integer(number) => Ok(number),
            other => Err(other.instead_of(self.key, "integers")),
        })
    }

    /// The elements as numbers.
    pub fn floats(self) -> impl Iterator<Item = Result<f64, GgufError>> {
        self.values().map(move |value| match value? {
            Value::Float(number) => Ok(number),
            other => Err(other.instead_of(self.key, "numbers")),
        })
    }
}
