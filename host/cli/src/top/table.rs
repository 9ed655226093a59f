//! A report for people.

use std::fmt::Write as _;

use super::report::{ModelSample, PluginSample, ServerReport};

/// Rows of models, and of plugins; the busiest are shown.
const ROWS_MAX: usize = 20;
/// Characters of a name.
const NAME_MAX: usize = 32;
/// Characters of a name where a terminal is narrow.
const NARROW_NAME: usize = 12;
/// Characters of a model's row behind its name.
const MODEL_COLUMNS: usize = 76;
/// Lines of a report beside its rows: the head, titles, empty lines, what is left out, and the cursor's.
const FURTHER_LINES: usize = 9;

/// Space that a report may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    columns: usize,
    lines: usize,
}

impl Size {
    /// All that the report has.
    pub(super) const WHOLE: Self = Self {
        columns: usize::MAX,
        lines: usize::MAX,
    };

    /// The terminal that the output is, if it tells.
    pub(super) fn of_terminal() -> Self {
        match rustix::termios::tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Self {
                columns: usize::from(size.ws_col),
                lines: usize::from(size.ws_row),
            },
            _ => Self::WHOLE,
        }
    }

    /// Characters of a name.
    fn name(self) -> usize {
        let left = self.columns.saturating_sub(MODEL_COLUMNS);
        left.clamp(NARROW_NAME, NAME_MAX)
    }

    /// Rows of each table.
    fn rows(self) -> usize {
        let left = self.lines.saturating_sub(FURTHER_LINES);
        (left / 2).clamp(1, ROWS_MAX)
    }

    /// A text of which each line fits.
    fn fitted(self, text: &str) -> String {
        let lines = text.lines().take(self.lines.saturating_sub(1));
        let line = |line: &str| {
            line.chars()
                .take(self.columns)
                .chain(['\n'])
                .collect::<String>()
        };
        lines.map(line).collect()
    }
}

/// A report in columns.
pub(super) fn table(report: &ServerReport, url: &str, size: Size) -> String {
    let mut text = format!(
        "mortise {} at {url}\n{} in flight, {} streams, {:.1} requests/s, {} refused with 429\n\n",
        report.version,
        report.in_flight,
        report.streams,
        report.requests_per_second,
        report.refused
    );
    models(&report.models, size, &mut text);
    text.push('\n');
    plugins(&report.plugins, size, &mut text);
    size.fitted(&text)
}

fn models(models: &[ModelSample], size: Size, text: &mut String) {
    let name_width = size.name();
    // The last column goes first.
    let memory = size.columns >= name_width + MODEL_COLUMNS;
    let mut rows: Vec<&ModelSample> = models.iter().collect();
    rows.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    // Writing to a text does not fail, here and below.
    let _ = writeln!(
        text,
        "{:name_width$}  {:9} {:>5} {:>5} {:>9} {:>9} {:>9} {:>13}{}",
        "MODEL",
        "STATE",
        "RUN",
        "WAIT",
        "TOKENS/S",
        "PROMPT/S",
        "FIRST MS",
        "KV USED KEPT",
        if memory { "      MIB" } else { "" },
    );
    for model in rows.iter().take(size.rows()) {
        let mib = format!(" {:>8}", model.memory_bytes >> 20);
        let _ = writeln!(
            text,
            "{:name_width$}  {:9} {:>5} {:>5} {:>9.1} {:>9.1} {:>9} {:>8} {:>4}{}",
            name(&model.name, name_width),
            model.state,
            model.running,
            model.waiting,
            model.tokens_per_second,
            model.prompt_tokens_per_second,
            number(model.first_token_ms, 1.0),
            percent(model.kv_used),
            percent(model.kv_kept),
            if memory { &*mib } else { "" },
        );
    }
    more(rows.len(), size, "models", text);
}

fn plugins(plugins: &[PluginSample], size: Size, text: &mut String) {
    let name_width = size.name();
    let mut rows: Vec<&PluginSample> = plugins.iter().collect();
    rows.sort_by(|one, other| other.calls_per_second.total_cmp(&one.calls_per_second));
    let _ = writeln!(
        text,
        "{:name_width$}  {:15} {:>9} {:>9} {:>9} {:>8}",
        "PLUGIN", "KIND", "INSTANCES", "CALLS/S", "CALL µS", "FAULTS"
    );
    for plugin in rows.iter().take(size.rows()) {
        let _ = writeln!(
            text,
            "{:name_width$}  {:15} {:>9} {:>9.1} {:>9} {:>8}{}",
            name(&plugin.name, name_width),
            plugin.kind,
            plugin.instances,
            plugin.calls_per_second,
            number(plugin.call_ms, 1000.0),
            plugin.faults,
            if plugin.suspended { "  suspended" } else { "" },
        );
    }
    more(rows.len(), size, "plugins", text);
}

fn busy(model: &ModelSample) -> f64 {
    model.tokens_per_second + (model.running + model.waiting) as f64
}

/// A name within its column, without characters that command a terminal.
fn name(name: &str, width: usize) -> String {
    let plain = name.chars().map(|character| match character.is_control() {
        true => '\u{fffd}',
        false => character,
    });
    plain.take(width).collect()
}

fn number(value: Option<f64>, factor: f64) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.0}", value * factor))
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0))
}

fn more(rows: usize, size: Size, what: &str, text: &mut String) {
    let left_out = rows.saturating_sub(size.rows());
    if left_out > 0 {
        let _ = writeln!(text, "and {left_out} more {what}; --json has all");
    }
}
