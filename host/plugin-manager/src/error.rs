//! Errors of a set of plugins.

use std::path::PathBuf;

/// The files and the configuration make no working set of plugins.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PluginSetError {
    pub(crate) message: String,
    /// Files whose earlier versions would make it work.
    pub(crate) blame: Vec<PathBuf>,
}
