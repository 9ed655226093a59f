//! Failures of work with a registry, a layout or a lock file.

use std::path::PathBuf;

use mortise_outbound::RequestError;

/// Failure of work with a registry, a layout or a lock file.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// There was no answer.
    #[error("cannot get {what} from `{origin}`: {cause}")]
    Network {
        /// Thing that was asked for.
        what: String,
        /// Server that was asked.
        origin: String,
        /// Cause.
        cause: RequestError,
    },
    /// The caller may not.
    #[error("`{registry}` refuses {what} ({status}): {advice}{detail}")]
    Denied {
        /// Thing that was asked for.
        what: String,
        /// Registry.
        registry: String,
        /// HTTP status.
        status: u16,
        /// Remedy.
        advice: &'static str,
        /// The registry's own words, if any.
        detail: String,
    },
    /// There is no such thing.
    #[error("there is no {what} in `{place}`")]
    NotFound {
        /// Thing that was asked for.
        what: String,
        /// Registry or folder.
        place: String,
    },
    /// The registry answers with a status that is none of the above.
    #[error("`{registry}` answers {what} with status {status}{detail}")]
    Status {
        /// Thing that was asked for.
        what: String,
        /// Registry.
        registry: String,
        /// HTTP status.
        status: u16,
        /// The registry's own words, if any.
        detail: String,
    },
    /// The answer is not what it should be. Nothing of it is used.
    #[error("{what} cannot be used: {problem}")]
    Unsound {
        /// Thing that was asked for.
        what: String,
        /// Defect.
        problem: String,
    },
    /// A redirect leads where nothing may be fetched from.
    #[error("{what} is redirected to `{target}`, {problem}")]
    Redirect {
        /// Thing that was asked for.
        what: String,
        /// Address.
        target: String,
        /// Defect.
        problem: &'static str,
    },
    /// Credentials cannot be had.
    #[error("the credentials for `{registry}` cannot be had: {problem}")]
    Credentials {
        /// Registry.
        registry: String,
        /// Defect.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("`{}`: {cause}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Cause.
        cause: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("`{}` {problem}", path.display())]
    Content {
        /// File.
        path: PathBuf,
        /// Defect.
        problem: String,
    },
}

impl RegistryError {
    pub(crate) fn unsound(what: &str, problem: impl Into<String>) -> Self {
        Self::Unsound {
            what: what.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File { path, cause }
    }
}
