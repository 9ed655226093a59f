//! Progress of a load, for those who watch it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::output_log::OutputLog;

/// Part of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadStage {
    /// Waiting for other loads, or for memory.
    Waiting,
    /// Downloading files from the hub.
    Downloading,
    /// Reading the tokenizer and the weights, and starting the runtime.
    Reading,
    /// Waiting for a started process to serve.
    Starting,
    /// Binding plugins to the model.
    Binding,
}

/// Progress of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoadStatus {
    /// Part of the load that is under way.
    pub stage: LoadStage,
    /// File that is being downloaded.
    pub file: Option<String>,
    /// Bytes of that file that are on disk.
    pub bytes_done: u64,
    /// Bytes of that file in all.
    pub bytes_total: u64,
}

impl LoadStatus {
    /// The beginning of a stage.
    pub(crate) fn of(stage: LoadStage) -> Self {
        Self {
            stage,
            file: None,
            bytes_done: 0,
            bytes_total: 0,
        }
    }
}

type Listener = Box<dyn Fn(&LoadStatus) + Send + Sync>;

/// Takes the progress of one load from the thread that loads, and tells whoever listens.
pub struct LoadProgress {
    now: Mutex<LoadStatus>,
    /// Changes so far, those that nobody is told of among them.
    changes: AtomicU64,
    listener: Listener,
    output: Arc<OutputLog>,
}

impl std::fmt::Debug for LoadProgress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LoadProgress")
    }
}

impl Default for LoadProgress {
    /// Progress without a listener.
    fn default() -> Self {
        Self::new(Box::new(|_| {}), Arc::default())
    }
}

/// Steps of a download that are told: so many per file at most.
const STEPS: u64 = 100;

impl LoadProgress {
    pub(crate) fn new(listener: Listener, output: Arc<OutputLog>) -> Self {
        Self {
            now: Mutex::new(LoadStatus::of(LoadStage::Waiting)),
            changes: AtomicU64::new(0),
            listener,
            output,
        }
    }

    /// Log of the output of the model's processes.
    pub fn output(&self) -> &Arc<OutputLog> {
        &self.output
    }

    /// Changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut LoadStatus) -> bool) {
        self.changes.fetch_add(1, Relaxed);
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut now) {
            let told = now.clone();
            drop(now);
            (self.listener)(&told);
        }
    }

    /// Report the beginning of a stage.
    pub fn stage(&self, stage: LoadStage) {
        self.change(|now| {
            *now = LoadStatus::of(stage);
            true
        });
    }

    /// Report the beginning of a file of `total` bytes, of which `present` are on disk.
    pub fn file(&self, file: &str, total: u64, present: u64) {
        self.change(|now| {
            *now = LoadStatus {
                stage: LoadStage::Downloading,
                file: Some(file.to_owned()),
                bytes_done: present,
                bytes_total: total,
            };
            true
        });
    }

    /// Report more bytes of the file.
    pub fn advance(&self, bytes: u64) {
        self.change(|now| {
            let step = (now.bytes_total / STEPS).max(1);
            let before = now.bytes_done / step;
            now.bytes_done = now.bytes_done.saturating_add(bytes);
            now.bytes_done / step != before
        });
    }
}
