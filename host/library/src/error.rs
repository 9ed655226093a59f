//! Errors of the library.

use std::path::{Path, PathBuf};

use mortise_hub::HubError;
use mortise_object_store::ObjectStoreError;

/// Reason for which a model could not be taken in or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// A value of the request cannot be used.
    #[error("`{field}`: {problem}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// Problem, and a right value.
        problem: String,
    },
    /// The name is that of another model, or of an alias.
    #[error("the name `{0}` is in use; remove what has it first, or take another")]
    NameInUse(String),
    /// The library has no such model.
    #[error(
        "the library has no model `{0}`; only models that were pulled or uploaded are removed this way"
    )]
    NotInLibrary(String),
    /// There is no such pull.
    #[error("there is no pull `{0}`; the last {kept} that have ended are kept", kept = crate::limits::MAX_ENDED_PULLS)]
    UnknownPull(String),
    /// There is no such upload.
    #[error("there is no upload `{0}`; it may be complete, or have expired")]
    UnknownUpload(String),
    /// The model is being pulled.
    #[error("`{0}` is being pulled; cancel the pull first")]
    BeingPulled(String),
    /// Another request writes to the upload.
    #[error("another request is writing to this upload; wait for its end")]
    UploadBusy,
    /// Too much is under way.
    #[error("{what} are under way, as many as there may be; try again later")]
    TooMany {
        /// Number and kind.
        what: String,
    },
    /// A chunk does not begin where the last one ended.
    #[error("the chunk must begin at byte {offset}, where the upload stands")]
    WrongOffset {
        /// Bytes that have come.
        offset: u64,
    },
    /// The body was longer or shorter than announced.
    #[error("{problem}; the upload stands at byte {offset}")]
    WrongLength {
        /// Length that was announced, and the one that came.
        problem: String,
        /// Bytes that have come.
        offset: u64,
    },
    /// A file is larger than the library takes.
    #[error("a file may have {most} bytes at most (`library.max_file_mib`)")]
    TooLarge {
        /// Bytes.
        most: u64,
    },
    /// There is no room.
    #[error("there is no room: {0}")]
    NoRoom(String),
    /// The content is not the one that was announced.
    #[error(
        "`{file}` has the SHA-256 digest {found}, and {expected} was announced; it was removed"
    )]
    Checksum {
        /// The file.
        file: String,
        /// Announced.
        expected: String,
        /// Received.
        found: String,
    },
    /// The files are no model.
    #[error("the files are no model: {0}")]
    NoModel(String),
    /// Another server uses the folder.
    #[error("the library `{}` is used by another server; give each a folder of its own", .0.display())]
    InUse(PathBuf),
    /// The hub refused.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The object store refused, or was not reached.
    #[error(transparent)]
    Store(ObjectStoreError),
    /// The disk refused.
    #[error("cannot write `{}`: {source}", path.display())]
    Disk {
        /// Path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

impl LibraryError {
    /// Code of the error on the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid_value",
            Self::NameInUse(_) => "name_in_use",
            Self::NotInLibrary(_) => "model_not_in_library",
            Self::UnknownPull(_) => "unknown_pull",
            Self::UnknownUpload(_) => "unknown_upload",
            Self::BeingPulled(_) => "pull_under_way",
            Self::UploadBusy => "upload_busy",
            Self::TooMany { .. } => "too_many_transfers",
            Self::WrongOffset { .. } => "wrong_offset",
            Self::WrongLength { .. } => "wrong_length",
            Self::TooLarge { .. } => "file_too_large",
            Self::NoRoom(_) => "no_room",
            Self::Checksum { .. } => "checksum_mismatch",
            Self::NoModel(_) => "no_model",
            Self::InUse(_) => "library_in_use",
            Self::Hub(_) => "pull_failed",
            Self::Store(_) => "object_store_failed",
            Self::Disk { .. } => "library_unwritable",
        }
    }
}

pub(crate) fn disk(path: &Path) -> impl Fn(std::io::Error) -> LibraryError + '_ {
    move |source| LibraryError::Disk {
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn invalid(field: &'static str, problem: impl Into<String>) -> LibraryError {
    LibraryError::Invalid {
        field,
        problem: problem.into(),
    }
}
