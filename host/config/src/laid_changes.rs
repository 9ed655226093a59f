//! Changes of the admin side that are kept, once they are laid over the files of the configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Changes that were laid over the files, and those that were not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LaidChanges {
    /// The file that has them.
    pub(super) file: PathBuf,
    /// Names of the aliases that stand in it.
    pub(super) aliases: BTreeSet<String>,
    /// Warnings about changes that were left out, with the reasons.
    pub(super) left_out: Vec<String>,
}
