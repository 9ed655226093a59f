//! Offline.
use crate::cli::ModelInput;
pub(crate) fn print(t: &str) -> anyhow::Result<()> { print!("{t}"); Ok(()) }
pub(crate) fn template(_: &ModelInput) -> anyhow::Result<()> { Ok(()) }
pub(crate) fn parse(_: &ModelInput) -> anyhow::Result<()> { Ok(()) }
pub(crate) fn grammar(_: &ModelInput) -> anyhow::Result<()> { Ok(()) }
pub(crate) fn tokenize(_: &ModelInput) -> anyhow::Result<()> { Ok(()) }
pub(crate) fn inspect(_: &std::path::Path) -> anyhow::Result<()> { Ok(()) }
