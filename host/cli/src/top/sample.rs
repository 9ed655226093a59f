//! The page of metrics at one moment.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::bail;

use crate::caller::ServerClient;

/// A series of the metrics page: one line.
#[derive(Debug, PartialEq)]
struct Series {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// All metrics of a server, and the time of the read.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    series: Vec<Series>,
}

impl Sample {
    pub(super) fn take(caller: &ServerClient) -> anyhow::Result<Self> {
        let sample = Self::read(&caller.text("/metrics")?);
        if !sample
            .series
            .iter()
            .any(|series| series.name == "mortise_build_info")
        {
            bail!(
                "`{}/metrics` has no numbers of a mortise; --url names the server",
                caller.url
            );
        }
        Ok(sample)
    }

    pub(super) fn read(page: &str) -> Self {
        Self {
            at: Instant::now(),
            series: page.lines().filter_map(series).collect(),
        }
    }

    /// The sum of the series of this name that have these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |series: &Series| {
            let label = |(key, value): &(&str, &str)| series.label(key) == Some(*value);
            series.name == name && labels.iter().all(label)
        };
        self.series
            .iter()
            .filter(|series| has(series))
            .map(|series| series.value)
            .sum()
    }

    /// Sum of the counters of this name that have these labels, as a whole number.
    pub(super) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.sum(name, labels).max(0.0) as u64
    }

    /// Values of a label that the series of this name have.
    pub(super) fn labels(&self, name: &str, key: &str) -> BTreeSet<&str> {
        let named = self.series.iter().filter(|series| series.name == name);
        named.filter_map(|series| series.label(key)).collect()
    }

    /// The value of one label of the first series of this name that has another one and is not zero.
    pub(super) fn label_of(&self, name: &str, known: (&str, &str), key: &str) -> Option<&str> {
        let mut named = self.series.iter().filter(|series| series.name == name);
        let found =
            named.find(|series| series.label(known.0) == Some(known.1) && series.value > 0.0);
        found.and_then(|series| series.label(key))
    }
}

impl Series {
    fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// A line in Prometheus' format; none for comments and for what is no number.
fn series(line: &str) -> Option<Series> {
    let (name, rest) = line.split_at_checked(line.find(['{', ' '])?)?;
    if name.starts_with('#') {
        return None;
    }
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    Some(Series {
        name: name.to_owned(),
        labels,
        value: value.trim().parse().ok()?,
    })
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(value) = rest.strip_prefix('}') {
            return Some((found, value));
        }
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        found.push((key.to_owned(), value));
        rest = after;
    }
}

/// A text up to its closing quote, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# HELP a Things
# TYPE a counter
a{model="x",kind="one"} 2
a{model="x",kind="two"} 3.5
a{model="y \"z\" \\ }",kind="one"} 7
b 1e3
state{model="x",state="loaded"} 1
state{model="x",state="failed"} 0
broken{model="x 1
"#;

    #[test]
    fn series_are_found_by_name_and_labels() {
        let sample = Sample::read(PAGE);
        assert_eq!(sample.sum("a", &[]), 12.5);
        assert_eq!(sample.sum("a", &[("model", "x")]), 5.5);
        assert_eq!(sample.sum("a", &[("model", "y \"z\" \\ }")]), 7.0);
        assert_eq!(sample.sum("a", &[("model", "none")]), 0.0);
        assert_eq!(sample.sum("b", &[]), 1000.0);
        assert_eq!(sample.labels("a", "model").len(), 2);
        assert_eq!(
            sample.label_of("state", ("model", "x"), "state"),
            Some("loaded")
        );
        assert!(sample.labels("broken", "model").is_empty());
    }
}
