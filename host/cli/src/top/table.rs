//! A report for people.

use std::fmt::Write as _;

use super::report::{Model, Plugin, Report};

/// Rows of models, and of plugins; the busiest are shown.
const ROWS_MAX: usize = 20;
/// Characters of a name.
const NAME_MAX: usize = 32;

/// A report in columns.
pub(super) fn table(report: &Report, url: &str) -> String {
    let mut text = format!(
        "mortise {} at {url}\n{} in flight, {} streams, {:.1} requests/s, {} refused with 429\n\n",
        report.version,
        report.in_flight,
        report.streams,
        report.requests_per_second,
        report.refused
    );
    models(&report.models, &mut text);
    text.push('\n');
    plugins(&report.plugins, &mut text);
    text
}

fn models(models: &[Model], text: &mut String) {
    let mut rows: Vec<&Model> = models.iter().collect();
    rows.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    // Writing to a text does not fail, here and below.
    let _ = writeln!(
        text,
        "{:NAME_MAX$}  {:9} {:>5} {:>5} {:>9} {:>9} {:>9} {:>13} {:>8}",
        "MODEL", "STATE", "RUN", "WAIT", "TOKENS/S", "PROMPT/S", "FIRST MS", "KV USED KEPT", "MIB"
    );
    for model in rows.iter().take(ROWS_MAX) {
        let _ = writeln!(
            text,
            "{:NAME_MAX$}  {:9} {:>5} {:>5} {:>9.1} {:>9.1} {:>9} {:>8} {:>4} {:>8}",
            name(&model.name),
            model.state,
            model.running,
            model.waiting,
            model.tokens_per_second,
            model.prompt_tokens_per_second,
            number(model.first_token_ms, 1.0),
            percent(model.kv_used),
            percent(model.kv_kept),
            model.memory_bytes >> 20,
        );
    }
    more(rows.len(), "models", text);
}

fn plugins(plugins: &[Plugin], text: &mut String) {
    let mut rows: Vec<&Plugin> = plugins.iter().collect();
    rows.sort_by(|one, other| other.calls_per_second.total_cmp(&one.calls_per_second));
    let _ = writeln!(
        text,
        "{:NAME_MAX$}  {:15} {:>9} {:>9} {:>9} {:>8}",
        "PLUGIN", "KIND", "INSTANCES", "CALLS/S", "CALL µS", "FAULTS"
    );
    for plugin in rows.iter().take(ROWS_MAX) {
        let _ = writeln!(
            text,
            "{:NAME_MAX$}  {:15} {:>9} {:>9.1} {:>9} {:>8}{}",
            name(&plugin.name),
            plugin.kind,
            plugin.instances,
            plugin.calls_per_second,
            number(plugin.call_ms, 1000.0),
            plugin.faults,
            if plugin.suspended { "  suspended" } else { "" },
        );
    }
    more(rows.len(), "plugins", text);
}

fn busy(model: &Model) -> f64 {
    model.tokens_per_second + (model.running + model.waiting) as f64
}

/// A name within its column, without characters that command a terminal.
fn name(name: &str) -> String {
    let plain = name.chars().map(|character| match character.is_control() {
        true => '\u{fffd}',
        false => character,
    });
    plain.take(NAME_MAX).collect()
}

fn number(value: Option<f64>, factor: f64) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.0}", value * factor))
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0))
}

fn more(rows: usize, what: &str, text: &mut String) {
    if rows > ROWS_MAX {
        let _ = writeln!(text, "and {} more {what}; --json has all", rows - ROWS_MAX);
    }
}
