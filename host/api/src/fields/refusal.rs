//! Reasons for which a type cannot be read.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::probe::Names;

/// Reason for which a value could not be read, as the type that reads it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldRefusal {
    /// The value is of another type than this.
    Type(String),
    /// The value is of the type, and not this.
    Value(String),
    /// One of these words was expected.
    Words(Names),
    /// A member of the object is absent.
    Missing(&'static str),
    /// In the words of the type.
    Other(String),
}

impl fmt::Display for FieldRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(expected) | Self::Value(expected) => {
                write!(formatter, "must be {expected}")
            }
            Self::Words(words) => write!(formatter, "must be one of `{}`", words.join("`, `")),
            Self::Missing(name) => write!(formatter, "lacks `{name}`"),
            Self::Other(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for FieldRefusal {}

impl Error for FieldRefusal {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Type(expected.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Value(expected.to_string())
    }

    fn unknown_variant(_: &str, expected: Names) -> Self {
        Self::Words(expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}
