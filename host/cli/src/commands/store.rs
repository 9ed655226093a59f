//! `mortise store …`: the file in which a server keeps its state.

use std::path::PathBuf;

use anyhow::Context as _;
use mortise_config::{Config, Overrides};
use mortise_harness::{print, print_json};
use serde_json::{Map, Value, json};

use crate::cli::{StoreCommand, StoreFile};

/// Do what the command line says.
pub(crate) fn run(command: StoreCommand) -> anyhow::Result<()> {
    match command {
        StoreCommand::Check { file } => {
            let report = mortise_store::check(&path(file)?)?;
            let records = report.records.iter();
            let records: Map<String, Value> = records
                .map(|(kind, count)| (kind.name().to_owned(), json!(count)))
                .collect();
            print_json(&json!({
                "whole": true,
                "version": report.version,
                "bytes": report.bytes,
                "owners": report.owners,
                "records": records,
                "items": report.items,
            }))
        }
        StoreCommand::Backup { copy, file } => {
            mortise_store::backup(&path(file)?, &copy)?;
            print(&format!("copied to {}\n", copy.display()))
        }
        StoreCommand::Vacuum { file } => {
            let path = path(file)?;
            let bytes = || std::fs::metadata(&path).map_or(0, |file| file.len());
            let before = bytes();
            mortise_store::vacuum(&path)?;
            print(&format!("{before} bytes before, {} now\n", bytes()))
        }
    }
}

/// The file, by itself or by a configuration.
fn path(file: StoreFile) -> anyhow::Result<PathBuf> {
    if let Some(path) = file.store {
        return Ok(path);
    }
    let config = Config::load(&file.config, Overrides::default())?;
    let path = config.state.store.path;
    path.context("the configuration has no `store.path`; its server keeps state in memory")
}
