//! Progress of long work: a bar on standard error where a person watches, nothing elsewhere.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use mortise_author::ShowSteps;

/// Time between two pictures of a spinner.
const TICK: Duration = Duration::from_millis(120);

const BYTES: &str = "{msg}  {bar:30}  {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta}";
const STEPS: &str = "{msg}  {bar:30}  {pos}/{len}  {eta}";
const UNKNOWN: &str = "{msg}  {spinner}  {elapsed}";

/// A bar, which is gone when it is dropped. `indicatif` draws nothing where standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of which nothing is known but that it goes on.
    pub(crate) fn spinner(text: &str) -> Self {
        let this = Self::of(ProgressBar::new_spinner(), UNKNOWN);
        this.bar.set_message(text.to_owned());
        this.bar.enable_steady_tick(TICK);
        this
    }

    /// Bar of a count of steps.
    pub(crate) fn steps(count: usize) -> Self {
        let this = Self::of(ProgressBar::new(count as u64), STEPS);
        this.bar.enable_steady_tick(TICK);
        this
    }

    fn of(bar: ProgressBar, template: &str) -> Self {
        set_style(&bar, template);
        Self { bar }
    }

    /// The step that begins.
    pub(crate) fn begin(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// A step is done.
    pub(crate) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Bytes of a transfer that are there, of how many.
    pub(crate) fn bytes(&self, text: &str, done: u64, total: u64) {
        if self.bar.length() != Some(total) || self.bar.message() != text {
            set_style(&self.bar, BYTES);
            self.bar.set_message(text.to_owned());
            self.bar.set_length(total);
            self.bar.set_position(done);
            // What was there already is no speed.
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
    }

    /// A part of the work whose length is not known.
    pub(crate) fn stage(&self, text: &str) {
        if self.bar.message() != text {
            set_style(&self.bar, UNKNOWN);
            self.bar.set_message(text.to_owned());
        }
    }
}

/// A bar for a command of another room.
pub(crate) fn show_steps(count: u64) -> Arc<dyn ShowSteps> {
    Arc::new(Progress::steps(
        usize::try_from(count).unwrap_or(usize::MAX),
    ))
}

impl ShowSteps for Progress {
    fn begin(&self, part: &str) {
        Self::begin(self, part);
    }

    fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
