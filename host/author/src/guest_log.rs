//! Lines that a plugin prints and logs while a command tries it, on standard error. A line that comes again
//! and again, as it does when cases are run many times, is shown once and counted.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::steps::ShowSteps;

/// Target of the lines of plugins.
const TARGET: &str = "mortise::plugin";

/// Different lines that are shown.
const MAX_LINES: usize = 200;

/// A collector of the lines of all plugins of the program.
#[derive(Clone, Default)]
pub(crate) struct GuestLog(Arc<Mutex<Shown>>);

#[derive(Default)]
struct Shown {
    /// Lines, in the order in which they first came, and how often each did.
    lines: Vec<(String, u64)>,
    places: HashMap<String, usize>,
    /// Lines beyond [`MAX_LINES`].
    dropped: u64,
    /// Display that lines are printed beside.
    beside: Option<Arc<dyn ShowSteps>>,
}

impl Shown {
    fn print(&self, line: &str) {
        match &self.beside {
            Some(steps) => steps.print_line(line),
            None => eprintln!("{line}"),
        }
    }
}

/// Prints lines beside a display until it is dropped.
pub(crate) struct Beside<'a>(&'a GuestLog);

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.lock().beside = None;
    }
}

impl GuestLog {
    /// Show the lines from now on.
    pub(crate) fn start() -> Self {
        let log = Self::default();
        // Where somebody else collects them already, they are shown there.
        let _ = tracing::subscriber::set_global_default(log.clone());
        log
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Print lines beside a display for as long as the result is kept.
    pub(crate) fn beside(&self, steps: &Arc<dyn ShowSteps>) -> Beside<'_> {
        self.lock().beside = Some(Arc::clone(steps));
        Beside(self)
    }

    /// Say how often lines came that were shown once.
    pub(crate) fn finish(&self) {
        let shown = self.lock();
        for (line, count) in &shown.lines {
            if *count > 1 {
                eprintln!("{line} (said {count} times)");
            }
        }
        if shown.dropped > 0 {
            eprintln!("plugin: {} more lines are not shown", shown.dropped);
        }
    }

    fn take(&self, line: String) {
        let mut shown = self.lock();
        if let Some(place) = shown.places.get(&line).copied() {
            if let Some((_, count)) = shown.lines.get_mut(place) {
                *count += 1;
            }
            return;
        }
        if shown.lines.len() >= MAX_LINES {
            shown.dropped += 1;
            return;
        }
        shown.print(&line);
        let place = shown.lines.len();
        shown.places.insert(line.clone(), place);
        shown.lines.push((line, 1));
    }

    /// Lines that were kept with a breakdown, as far as they were not shown when they came.
    fn take_printed(&self, printed: &str) {
        // As the host escapes the ends of lines.
        for line in printed.split("\\n") {
            let known = {
                let shown = self.lock();
                let ends = |(shown, _): &(String, u64)| shown.ends_with(line);
                shown.lines.iter().any(ends)
            };
            if !known {
                self.take(format!("plugin: {line}"));
            }
        }
    }
}

/// Fields of a line.
#[derive(Default)]
struct Fields {
    message: String,
    details: String,
    /// True if it tells of a breakdown, which the command itself tells.
    breakdown: bool,
    printed: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "fault" => self.breakdown = true,
            "printed" => self.printed = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "details" if !value.is_empty() => {
                let _ = write!(self.details, " {value}");
            }
            _ => {}
        }
    }
}

impl Subscriber for GuestLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == TARGET && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        // Spans are not enabled.
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields {
            message, details, ..
        } = &fields;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        match fields.breakdown {
            true if fields.printed.is_empty() => {}
            true => self.take_printed(&fields.printed),
            false => self.take(format!("plugin {level}: {message}{details}")),
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
