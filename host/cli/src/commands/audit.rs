//! `mortise audit …`: the log of who did what.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::Context as _;
use mortise_harness::{print, print_json};
use mortise_store::{
    AuditError, AuditHead, PostgresConfig, PostgresStore, Store as _, read_file, read_log,
    read_store,
};
use serde_json::{Value, json};

use crate::cli::{AuditCommand, AuditPlace};
use crate::configured;

/// Do what the command line says.
pub(crate) fn run(command: AuditCommand) -> anyhow::Result<()> {
    match command {
        AuditCommand::Verify { head, place } => {
            let mut reports = Vec::new();
            let places = places(place)?;
            anyhow::ensure!(
                head.is_none() || places.len() == 1,
                "each log has a head of its own; name one with `--file` or `--store`"
            );
            for (name, log) in places {
                let found = log.read(head.clone(), &mut |_| {})?;
                reports.push(json!({
                    "log": name,
                    "whole": true,
                    "entries": found.number,
                    "head": found.to_string(),
                }));
            }
            print_json(&Value::Array(reports))
        }
        AuditCommand::Show { last, place } => {
            let places = places(place)?;
            let (_, log) = places.into_iter().next().context("there is no audit log")?;
            let mut shown: VecDeque<String> = VecDeque::new();
            let read = log.read(None, &mut |entry| {
                if shown.len() >= last {
                    shown.pop_front();
                }
                shown.push_back(entry.to_owned());
            });
            // What stands before a break is shown too.
            for entry in shown {
                print(&format!("{entry}\n"))?;
            }
            read.map(drop).map_err(anyhow::Error::from)
        }
    }
}

/// A log that can be read.
enum Log {
    File(std::path::PathBuf),
    Store(std::path::PathBuf),
    Database(Box<PostgresConfig>),
}

impl Log {
    fn read(
        &self,
        known: Option<AuditHead>,
        each: &mut (dyn FnMut(&str) + Send),
    ) -> Result<AuditHead, AuditError> {
        match self {
            Self::Database(database) => read_database(database, known, each),
            Self::File(path) => read_file(path, known, each),
            Self::Store(path) => read_store(path, known, each),
        }
    }
}

/// Read the log of a database, beside running servers or without them.
fn read_database(
    database: &PostgresConfig,
    known: Option<AuditHead>,
    each: &mut (dyn FnMut(&str) + Send),
) -> Result<AuditHead, AuditError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(AuditError::Read)?;
    runtime.block_on(async {
        let store = PostgresStore::open(database).await?;
        let read = read_log(&store, known, each).await;
        store.leave().await?;
        read
    })
}

/// The logs that the command line names, by themselves or by a configuration.
fn places(place: AuditPlace) -> anyhow::Result<Vec<(String, Log)>> {
    let name = |path: &Path| path.display().to_string();
    let (file, store) = match (place.file, place.store) {
        (None, None) => {
            let config = configured::load(&place.config)?;
            if let Some(database) = config.state.database.filter(|_| config.audit.store) {
                let named = (database.place(), Log::Database(Box::new(database)));
                let file = config.audit.file.map(|path| (name(&path), Log::File(path)));
                return Ok(file.into_iter().chain([named]).collect());
            }
            let store = config.state.store.path.filter(|_| config.audit.store);
            (config.audit.file, store)
        }
        given => given,
    };
    let file = file.map(|path| (name(&path), Log::File(path)));
    let store = store.map(|path| (name(&path), Log::Store(path)));
    let logs: Vec<_> = file.into_iter().chain(store).collect();
    anyhow::ensure!(
        !logs.is_empty(),
        "the configuration has no audit log; see `audit.file` and `audit.store`"
    );
    Ok(logs)
}
