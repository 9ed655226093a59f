//! Figures and how they are shown.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Measurements, the machine they were made on, and their figures.
pub(super) struct BenchReport {
    /// Name of the measurement.
    pub(super) about: Vec<(&'static str, Value)>,
    pub(super) rows: Vec<Row>,
}

/// One kind of work.
pub(super) struct Row {
    pub(super) work: String,
    pub(super) figures: Vec<Figure>,
}

/// A number with its name and unit.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl Row {
    pub(super) fn new(work: impl Into<String>) -> Self {
        Self {
            work: work.into(),
            figures: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: f64, unit: &'static str) -> Self {
        self.figures.push(Figure { name, value, unit });
        self
    }

    /// Median, 95th and 99th percentile, in milliseconds.
    pub(super) fn with_latency(self, names: [&'static str; 3], seconds: &[f64]) -> Self {
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|rank| 1e3 * percentile(seconds, rank));
        self.with(names[0], p50, "ms")
            .with(names[1], p95, "ms")
            .with(names[2], p99, "ms")
    }
}

impl BenchReport {
    pub(super) fn json(&self) -> Value {
        let mut all: Map<String, Value> = self
            .about
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        all.insert("mortise".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        let rows = self.rows.iter().map(|row| {
            let mut object = Map::new();
            object.insert("work".to_owned(), json!(row.work));
            for figure in &row.figures {
                object.insert(figure.name.to_owned(), json!(figure.value));
            }
            Value::Object(object)
        });
        all.insert("results".to_owned(), rows.collect());
        Value::Object(all)
    }

    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        for (name, value) in &self.about {
            let shown = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(out, "{name:<10}  {shown}");
        }
        let width = self
            .rows
            .iter()
            .map(|row| row.work.chars().count())
            .max()
            .unwrap_or(0);
        for row in &self.rows {
            let _ = write!(out, "\n{:<width$}", row.work);
            for figure in &row.figures {
                let label = figure.name.replace('_', " ");
                let _ = write!(out, "  {label} {} {}", shown(figure.value), figure.unit);
                out.truncate(out.trim_end().len());
            }
        }
        out.push('\n');
        out
    }
}

/// Three significant digits or all before the point.
fn shown(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(super) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which the share `rank` of the values lies: nearest rank. 0 without values.
pub(super) fn percentile(values: &[f64], rank: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (rank * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 50.0);
        assert_eq!(percentile(&values, 0.99), 99.0);
        assert_eq!(percentile(&[7.0], 0.95), 7.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_report_is_a_table_and_an_object() {
        let report = BenchReport {
            about: vec![("model", json!("m"))],
            rows: vec![Row::new("decode, 1 stream").with("tokens_per_second", 1234.5, "t/s")],
        };
        assert!(
            report
                .table()
                .contains("decode, 1 stream  tokens per second 1234 t/s"),
            "{}",
            report.table()
        );
        assert_eq!(
            report.json()["results"][0]["tokens_per_second"],
            json!(1234.5)
        );
    }
}
