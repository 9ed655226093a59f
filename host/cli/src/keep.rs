//! Changes of the admin side that are kept for the next start.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_admin::{Action, KeepChange, KeptBindings, PersistRequest};
use mortise_config::{KeptChange, keep, kept_bindings};
use tokio::sync::Mutex;

/// Keeps changes of the admin side, one after another, for servers that are started with these files.
pub(crate) fn keeper(files: Vec<PathBuf>) -> KeepChange {
    let turn = Arc::new(Mutex::new(()));
    Arc::new(move |kept| {
        let (files, turn) = (files.clone(), Arc::clone(&turn));
        let change = match kept {
            PersistRequest::Alias(name, alias) => KeptChange::Alias(name, alias),
            PersistRequest::Enabled(model, enabled) => KeptChange::Enabled(model, enabled),
            PersistRequest::Binding(name, binding) => KeptChange::Binding(name, binding),
        };
        Box::pin(async move {
            let _turn = turn.lock().await;
            let written = tokio::task::spawn_blocking(move || keep(&files, &change)).await;
            written.map_err(|panic| panic.to_string())?
        })
    })
}

/// Reads the bindings that the admin side has kept for servers that are started with these files.
pub(crate) fn bindings(files: Vec<PathBuf>) -> Action<KeptBindings> {
    Arc::new(move || {
        let files = files.clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || kept_bindings(&files)).await;
            read.map_err(|panic| panic.to_string())?
        })
    })
}
