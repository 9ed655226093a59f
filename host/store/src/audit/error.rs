//! Failures of an audit log.

use std::io;
use std::path::{Path, PathBuf};

use super::chain::BrokenChain;
use crate::error::{OpenError, StoreError};

/// A log that cannot be used, or an entry that was not written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be read or written.
    #[error("the audit log `{}` cannot be used: {source}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A read failed.
    #[error("the audit log cannot be read: {0}")]
    Read(io::Error),
    /// The chain is broken.
    #[error(transparent)]
    Broken(#[from] BrokenChain),
    /// The chain of a file is broken.
    #[error("the audit log `{}` is not as it was written: {broken}", path.display())]
    BrokenAt {
        /// The file.
        path: PathBuf,
        /// The break.
        broken: BrokenChain,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is no store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An entry is too long.
    #[error("an entry of {0} bytes is too long for the audit log")]
    TooLarge(usize),
}

impl AuditError {
    pub(super) fn unusable(path: &Path, source: io::Error) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            source,
        }
    }

    /// Add the path of the file in which the error happened.
    pub(super) fn at(self, path: &Path) -> Self {
        match self {
            Self::Broken(broken) => Self::BrokenAt {
                path: path.to_owned(),
                broken,
            },
            Self::Read(source) => Self::unusable(path, source),
            other => other,
        }
    }
}
