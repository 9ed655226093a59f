//! Failures of PostgreSQL as those of a store.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::error::{OpenError, StoreError};

/// Message of an error, with its causes.
pub(crate) fn told(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// True where the same again may succeed at once.
pub(crate) fn passes(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE)
    )
}

pub(crate) fn open_failure(place: &str, error: &Error) -> OpenError {
    OpenError::Database {
        place: place.to_owned(),
        problem: told(error),
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error.code() {
            Some(&SqlState::DISK_FULL) => Self::Full,
            // Others have written for the same owner for too long.
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Busy,
            _ => Self::Unavailable(told(&error)),
        }
    }
}
