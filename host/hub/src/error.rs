//! Errors of downloads from the hub.

use std::path::PathBuf;

/// Why a model could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name is none.
    #[error(
        "`{text}` does not name a model on the hub: {problem}; expected org/name[:quant][@revision]"
    )]
    Reference {
        /// Text that was given.
        text: String,
        /// Problem.
        problem: String,
    },
    /// The hub's address is unusable.
    #[error("the hub's address `{endpoint}` must begin with https:// or http://")]
    Endpoint {
        /// Text that was given.
        endpoint: String,
    },
    /// The hub wants a token, or another one.
    #[error("the hub refuses access to `{what}` ({status}); {advice}")]
    Denied {
        /// Repository or file.
        what: String,
        /// HTTP status.
        status: u16,
        /// Advice.
        advice: &'static str,
    },
    /// There is no such thing.
    #[error(
        "the hub has no `{what}`; check the spelling, and set HF_TOKEN if the repository is private"
    )]
    NotFound {
        /// Repository, revision or file.
        what: String,
    },
    /// The hub answered something else.
    #[error("the hub answered {status} for `{what}`")]
    Status {
        /// Repository or file.
        what: String,
        /// HTTP status.
        status: u16,
    },
    /// The hub was not reached, or the connection broke and did not recover.
    #[error("cannot reach the hub for `{what}`")]
    Network {
        /// Repository or file.
        what: String,
        /// Cause.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The connection broke off again and again.
    #[error(
        "`{what}` broke off at byte {at} of {total}, {attempts} times; run the command again to go on"
    )]
    BrokenOff {
        /// The file.
        what: String,
        /// Bytes on disk.
        at: u64,
        /// Bytes in all.
        total: u64,
        /// Attempts without progress.
        attempts: u32,
    },
    /// The hub's answer makes no sense.
    #[error("the hub's answer for `{what}` is not usable: {problem}")]
    Answer {
        /// Repository or file.
        what: String,
        /// Problem.
        problem: String,
    },
    /// The contents are not those that were announced.
    #[error(
        "`{what}` does not have the announced {property}: expected {expected}, got {found}; it was removed, try again"
    )]
    Corrupt {
        /// The file.
        what: String,
        /// Size or digest.
        property: &'static str,
        /// Announced.
        expected: String,
        /// Received.
        found: String,
    },
    /// The repository holds nothing that could be served.
    #[error("`{repository}` has no usable model: {problem}")]
    NoModel {
        /// The repository.
        repository: String,
        /// Missing file, and the files that exist.
        problem: String,
    },
    /// The hub is not to be asked, and the cache has not got it all.
    #[error("`{what}` is not complete in the cache, and the hub is not asked while offline")]
    Offline {
        /// The model.
        what: String,
    },
    /// There is no room for it.
    #[error("there is no room for `{what}`: {problem}")]
    NoRoom {
        /// The model.
        what: String,
        /// Room that it needs, and room that there is.
        problem: String,
    },
    /// The download was ended on request.
    #[error("the download was cancelled; what has come stays for the next one")]
    Cancelled,
    /// The disk refused.
    #[error("cannot write `{}`", path.display())]
    Disk {
        /// Path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
