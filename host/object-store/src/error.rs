//! Errors of a store. None has a signed address, which is a credential.

use std::path::PathBuf;

/// Reason for which the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectStoreError {
    /// The settings cannot be used.
    #[error("the object store cannot be used: {0}")]
    Config(String),
    /// The store was not reached, or the connection broke.
    #[error("cannot reach the object store for `{what}`: {problem}")]
    Network {
        /// Object, or what was done.
        what: String,
        /// Problem.
        problem: String,
    },
    /// The store refused.
    #[error("the object store answered {status}{} for `{what}`", shown(code))]
    Status {
        /// Object, or what was done.
        what: String,
        /// HTTP status.
        status: u16,
        /// Code of the store, if it gave one.
        code: String,
    },
    /// There is no such object.
    #[error("the object store has no `{what}`")]
    NotFound {
        /// Object.
        what: String,
    },
    /// There is such an object, and none was to be replaced.
    #[error("the object store has a `{what}` already")]
    Exists {
        /// Object.
        what: String,
    },
    /// The answer makes no sense.
    #[error("the object store's answer for `{what}` is not usable: {problem}")]
    Answer {
        /// Object, or what was done.
        what: String,
        /// Problem.
        problem: String,
    },
    /// The contents are not those that were expected.
    #[error(
        "`{what}` has the SHA-256 digest {found} in the object store, and {expected} was expected; it was not taken"
    )]
    Corrupt {
        /// Object.
        what: String,
        /// Digest that was expected.
        expected: String,
        /// Digest that it has.
        found: String,
    },
    /// The transfer was ended on request.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// A file on this machine cannot be read or written.
    #[error("cannot use `{}`", path.display())]
    Disk {
        /// Path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

impl ObjectStoreError {
    /// True if the same request may end otherwise soon.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Network { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

fn shown(code: &str) -> String {
    match code {
        "" => String::new(),
        code => format!(" ({code})"),
    }
}

pub(crate) fn unusable(what: &str, problem: impl Into<String>) -> ObjectStoreError {
    ObjectStoreError::Answer {
        what: what.to_owned(),
        problem: problem.into(),
    }
}
