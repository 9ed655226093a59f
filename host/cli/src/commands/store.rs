//! `mortise store …`: the file or the database in which a server keeps its state.

use std::path::PathBuf;

use anyhow::Context as _;
use mortise_harness::{print_as, print_json};
use mortise_store::{PostgresConfig, check_database};
use serde_json::{Map, Value, json};

use crate::cli::{StoreCommand, StoreFile};
use crate::configured;

/// Do what the command line says.
pub(crate) fn run(command: StoreCommand) -> anyhow::Result<()> {
    match command {
        StoreCommand::Check { file } => {
            let (report, time) = match place(file)? {
                Place::File(path) => (mortise_store::check(&path)?, None),
                Place::Database(database) => {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()?;
                    let (report, time) = runtime.block_on(check_database(&database))?;
                    (report, Some(time))
                }
            };
            let records = report.records.iter();
            let records: Map<String, Value> = records
                .map(|(kind, count)| (kind.name().to_owned(), json!(count)))
                .collect();
            let mut shown = json!({
                "whole": true,
                "version": report.version,
                "bytes": report.bytes,
                "owners": report.owners,
                "records": records,
                "items": report.items,
            });
            if let Some(time) = time {
                shown["answered_in_us"] =
                    json!(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            }
            print_json(&shown)
        }
        StoreCommand::Backup { copy, file, json } => {
            let path = path(
                file,
                "pg_dump --schema=mortise copies it beside running servers, and psql brings it back",
            )?;
            mortise_store::backup(&path, &copy)?;
            let copied = json!({"store": path, "copy": copy});
            print_as(json, &copied, |_| format!("copied to {}\n", copy.display()))
        }
        StoreCommand::Vacuum { file, json } => {
            let path = path(
                file,
                "PostgreSQL gives free space back by itself, and all of it with VACUUM FULL",
            )?;
            let bytes = || std::fs::metadata(&path).map_or(0, |file| file.len());
            let before = bytes();
            mortise_store::vacuum(&path)?;
            let shrunk = json!({"store": path, "bytes_before": before, "bytes": bytes()});
            print_as(json, &shrunk, |shrunk| {
                format!("{before} bytes before, {} now\n", shrunk["bytes"])
            })
        }
    }
}

/// Place of the state.
enum Place {
    File(PathBuf),
    Database(Box<PostgresConfig>),
}

/// The place, by itself or by a configuration.
fn place(file: StoreFile) -> anyhow::Result<Place> {
    if let Some(path) = file.store {
        return Ok(Place::File(path));
    }
    let state = configured::load(&file.config)?.state;
    if let Some(database) = state.database {
        return Ok(Place::Database(Box::new(database)));
    }
    let path = state.store.path.map(Place::File);
    path.context(
        "the configuration has neither `store.path` nor `store.url`; its server keeps state in memory",
    )
}

/// The file; `instead` tells what to do with a database.
fn path(file: StoreFile, instead: &str) -> anyhow::Result<PathBuf> {
    match place(file)? {
        Place::File(path) => Ok(path),
        Place::Database(database) => {
            anyhow::bail!("state is in PostgreSQL ({}): {instead}", database.place())
        }
    }
}
