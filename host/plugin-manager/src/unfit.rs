//! Why plugins cannot serve as they are configured.

use std::path::PathBuf;

/// Why the files and the configuration make no working set of plugins.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Unfit {
    pub(crate) message: String,
    /// Files that would mend it if they were taken back.
    pub(crate) blame: Vec<PathBuf>,
}
