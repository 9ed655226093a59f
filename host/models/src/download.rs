//! Downloads with something to look at: bars where a person watches, log lines elsewhere.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use mortise_hub::{DownloadProgress, Hub, HubConfig, ModelReference};

use crate::lifecycle::LoadProgress;

// What is fetched can be loaded.
const _: () = assert!(mortise_hub::INDEX_BYTES_MAX == mortise_model::INDEX_BYTES_MAX);

/// Bring a model into the cache, and tell `progress` of it as well; where it is.
pub fn download(
    config: &HubConfig,
    reference: &ModelReference,
    progress: &LoadProgress,
) -> anyhow::Result<PathBuf> {
    let hub = Hub::new(config.clone())?;
    let path = if std::io::stderr().is_terminal() {
        hub.fetch(reference, &Both(&Bars::default(), progress))
    } else {
        hub.fetch(reference, &Both(&Lines, progress))
    };
    path.with_context(|| format!("the model `{reference}` cannot be had from the hub"))
}

/// Two listeners: the terminal or the log, and those who watch the load.
struct Both<'a, T>(&'a T, &'a LoadProgress);

impl<T: DownloadProgress> DownloadProgress for Both<'_, T> {
    fn begin(&self, file: &str, total: u64, present: u64) {
        self.0.begin(file, total, present);
        self.1.file(file, total, present);
    }

    fn advance(&self, bytes: u64) {
        self.0.advance(bytes);
        self.1.advance(bytes);
    }

    fn end(&self) {
        self.0.end();
    }

    fn note(&self, text: &str) {
        self.0.note(text);
    }
}

/// A bar for each file.
#[derive(Default)]
struct Bars {
    bar: Mutex<Option<ProgressBar>>,
}

const BAR: &str = "{msg}  {bar:30}  {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta}";

impl Bars {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl DownloadProgress for Bars {
    fn begin(&self, file: &str, total: u64, present: u64) {
        let bar = ProgressBar::new(total).with_message(file.to_owned());
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        bar.set_position(present);
        // What was there already must not count as speed.
        bar.reset_eta();
        self.with(|shown| *shown = Some(bar));
    }

    fn advance(&self, bytes: u64) {
        self.with(|bar| {
            if let Some(bar) = bar {
                bar.inc(bytes);
            }
        });
    }

    fn end(&self) {
        self.with(|bar| {
            if let Some(bar) = bar.take() {
                bar.finish();
            }
        });
    }

    fn note(&self, text: &str) {
        eprintln!("mortise: {text}");
    }
}

/// A line for each file.
struct Lines;

impl DownloadProgress for Lines {
    fn begin(&self, file: &str, total: u64, present: u64) {
        tracing::info!(file, bytes = total, present, "downloading");
    }

    fn advance(&self, _: u64) {}

    fn end(&self) {}

    fn note(&self, text: &str) {
        tracing::warn!("{text}");
    }
}
