//! Calls of a plugin in a running server, from its metrics, and its lines in the server's log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use mortise_harness::print;
use ureq::Agent;

use crate::args::PluginDevArgs;

/// Bytes of metrics that are read.
const MAX_METRICS_BYTES: u64 = 8 << 20;

/// Bytes of a log that are read at once.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// Time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(2);

/// Calls of a plugin's functions so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Done {
    calls: f64,
    seconds: f64,
    faults: f64,
}

/// Calls and lines of one plugin, shown as they come.
pub(crate) struct Calls {
    plugin: String,
    metrics: Option<String>,
    agent: Agent,
    shown: BTreeMap<String, Done>,
    reached: bool,
    log: Option<(PathBuf, Option<u64>)>,
}

impl Calls {
    pub(crate) fn of(plugin: &str, args: &PluginDevArgs) -> Self {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE));
        let server = args.server.as_ref();
        Self {
            plugin: plugin.to_owned(),
            metrics: server.map(|url| format!("{}/metrics", url.trim_end_matches('/'))),
            agent: config.build().new_agent(),
            shown: BTreeMap::new(),
            reached: true,
            log: args.log.clone().map(|path| (path, None)),
        }
    }

    /// Show what is new.
    pub(crate) fn show(&mut self) -> anyhow::Result<()> {
        for line in self.new_lines() {
            print(&format!("log     {line}\n"))?;
        }
        let Some(url) = &self.metrics else {
            return Ok(());
        };
        let text = self.agent.get(url).call().and_then(|mut answer| {
            let body = answer.body_mut().with_config().limit(MAX_METRICS_BYTES);
            body.read_to_string()
        });
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                if std::mem::replace(&mut self.reached, false) {
                    print(&format!("the server does not answer: `{url}`: {error}\n"))?;
                }
                return Ok(());
            }
        };
        self.reached = true;
        for (function, done) in read(&text, &self.plugin) {
            let before = self
                .shown
                .insert(function.clone(), done)
                .unwrap_or_default();
            // A server that was started again counts from nothing.
            let before = if before.calls > done.calls {
                Done::default()
            } else {
                before
            };
            let calls = done.calls - before.calls;
            if calls > 0.0 {
                let mean = (done.seconds - before.seconds) / calls * 1e3;
                let faults = done.faults - before.faults;
                print(&format!(
                    "calls   {function}: {calls} more, {mean:.3} ms each, {faults} faults\n"
                ))?;
            }
        }
        Ok(())
    }

    /// Lines about the plugin that the log has got since the last look; at first, none.
    fn new_lines(&mut self) -> Vec<String> {
        let Some((path, place)) = &mut self.log else {
            return Vec::new();
        };
        let Ok(mut file) = File::open(&*path) else {
            return Vec::new();
        };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        // A shorter file is another one.
        let from = place.unwrap_or(length).min(length);
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(from))
            .and_then(|_| file.take(MAX_LOG_BYTES).read_to_end(&mut bytes));
        if read.is_err() {
            return Vec::new();
        }
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if bytes.len() as u64 == MAX_LOG_BYTES => bytes.len(),
            None => 0,
        };
        *place = Some(from + whole as u64);
        let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
        let named = [
            format!("plugin=\"{}\"", self.plugin),
            format!("\"plugin\":\"{}\"", self.plugin),
        ];
        let about = |line: &&str| named.iter().any(|name| line.contains(name));
        text.lines().filter(about).map(str::to_owned).collect()
    }
}

/// Calls of the functions of a plugin, from metrics in the text format of Prometheus.
fn read(text: &str, plugin: &str) -> BTreeMap<String, Done> {
    let mut functions: BTreeMap<String, Done> = BTreeMap::new();
    let label = |labels: &str, name: &str| {
        let (_, rest) = labels.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    for line in text.lines() {
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once("} ") else {
            continue;
        };
        let value = value
            .split(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok());
        let (Some(value), Some(function)) = (value, label(labels, "function")) else {
            continue;
        };
        if label(labels, "plugin").as_deref() != Some(plugin) {
            continue;
        }
        let done = functions.entry(function).or_default();
        match name {
            "mortise_plugin_calls_total" => done.calls += value,
            "mortise_plugin_call_duration_seconds_sum" => done.seconds += value,
            "mortise_plugin_faults_total" => done.faults += value,
            _ => {}
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_plugin_are_read() {
        let text = "# TYPE x counter\n\
            mortise_plugin_calls_total{plugin=\"a\",kind=\"policy\",function=\"policy.authorize\"} 4\n\
            mortise_plugin_call_duration_seconds_sum{plugin=\"a\",kind=\"policy\",function=\"policy.authorize\"} 0.5\n\
            mortise_plugin_faults_total{plugin=\"a\",kind=\"policy\",function=\"policy.authorize\",fault=\"trap\"} 1\n\
            mortise_plugin_faults_total{plugin=\"a\",kind=\"policy\",function=\"policy.authorize\",fault=\"time\"} 1\n\
            mortise_plugin_calls_total{plugin=\"b\",kind=\"policy\",function=\"policy.authorize\"} 9\n\
            mortise_up 1\nnonsense{ 3\n";
        let functions = read(text, "a");
        let expected = Done {
            calls: 4.0,
            seconds: 0.5,
            faults: 2.0,
        };
        assert_eq!(
            functions,
            BTreeMap::from([("policy.authorize".to_owned(), expected)])
        );
    }
}
