//! Fault injection, by a variable of the environment only: no file of an operator turns it on by mistake.

use std::path::PathBuf;

/// The folder whose files name tasks that are to panic, for tests of what happens then: `MORTISE_FAULTS`.
pub fn fault_folder() -> Option<PathBuf> {
    std::env::var_os("MORTISE_FAULTS").map(PathBuf::from)
}
