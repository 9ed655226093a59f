//! Sets of JSON types.

use serde_json::Value;

/// A set of the types of JSON values. Numbers are integers or fractions, as `"type": "integer"` tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const INTEGER: Self = Self(4);
    pub(super) const FRACTION: Self = Self(8);
    pub(super) const NUMBER: Self = Self(4 | 8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn meets(self, other: Self) -> bool {
        !self.and(other).is_empty()
    }

    /// Value of the keyword `type`. `None` for a word that names no type.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(name) => Self::named(name),
            Value::Array(names) => names.iter().try_fold(Self::NONE, |types, name| {
                Some(types.or(Self::named(name.as_str()?)?))
            }),
            _ => None,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => return None,
        })
    }

    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) => match number.as_f64() {
                Some(number) if number.fract() != 0.0 => Self::FRACTION,
                _ => Self::INTEGER,
            },
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// The set as the keyword `type` has it. Fractions without integers have no name and are left out.
    pub(super) fn names(self) -> Vec<&'static str> {
        let named = [
            (Self::NULL, "null"),
            (Self::BOOLEAN, "boolean"),
            (Self::STRING, "string"),
            (Self::ARRAY, "array"),
            (Self::OBJECT, "object"),
        ];
        let mut names: Vec<_> = named
            .iter()
            .filter(|(types, _)| self.meets(*types))
            .map(|(_, name)| *name)
            .collect();
        match self.and(Self::NUMBER) {
            Self::NUMBER => names.push("number"),
            Self::INTEGER => names.push("integer"),
            _ => {}
        }
        names
    }

    /// Each type of the set by itself, numbers as one.
    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        [
            Self::NULL,
            Self::BOOLEAN,
            Self::NUMBER,
            Self::STRING,
            Self::ARRAY,
            Self::OBJECT,
        ]
        .into_iter()
        .map(move |types| types.and(self))
        .filter(|types| !types.is_empty())
    }
}
