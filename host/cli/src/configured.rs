//! The configuration that a command works with: that of a server.

use std::path::PathBuf;

use mortise_config::{Config, Overrides, config_files};

use crate::advice::UsageError;

/// Files of the command line, or else those of the variables that `mortise serve` reads.
///
/// # Errors
/// When neither names one.
pub(crate) fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, UsageError> {
    let files = config_files(given.to_vec());
    match files.is_empty() {
        false => Ok(files),
        true => Err(UsageError(
            "no configuration is named: give its file, or set MORTISE_CONFIG".to_owned(),
        )),
    }
}

/// The configuration of these files, or of the variables.
pub(crate) fn load(given: &[PathBuf]) -> anyhow::Result<Config> {
    Ok(Config::load(&files(given)?, Overrides::default())?)
}
