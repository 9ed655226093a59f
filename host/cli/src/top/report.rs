//! Two samples as what happened between them.

use serde::Serialize;
use serde_json::{Value, json};

use super::sample::Sample;

/// A server at work.
#[derive(Debug, Serialize)]
pub(super) struct ServerReport {
    pub(super) version: String,
    /// Requests that are being answered; the one that asks for this is none of them.
    pub(super) in_flight: u64,
    pub(super) streams: u64,
    pub(super) requests_per_second: f64,
    /// Requests refused with status 429 since the start.
    pub(super) refused: u64,
    pub(super) models: Vec<ModelSample>,
    pub(super) plugins: Vec<PluginSample>,
}

/// A model; rates are those of the time between the samples.
#[derive(Debug, Serialize)]
pub(super) struct ModelSample {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) running: u64,
    pub(super) waiting: u64,
    /// Tokens generated.
    pub(super) tokens_per_second: f64,
    /// Tokens of prompts, those found in the cache included.
    pub(super) prompt_tokens_per_second: f64,
    /// Mean time to the first token of the requests that got one meanwhile.
    pub(super) first_token_ms: Option<f64>,
    /// Parts of the KV cache that sequences use, and that are kept for later ones, 0 to 1.
    pub(super) kv_used: Option<f64>,
    pub(super) kv_kept: Option<f64>,
    pub(super) memory_bytes: u64,
}

/// A plugin.
#[derive(Debug, Serialize)]
pub(super) struct PluginSample {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) instances: u64,
    pub(super) calls_per_second: f64,
    /// Mean time of a call.
    pub(super) call_ms: Option<f64>,
    /// Calls that failed since the start.
    pub(super) faults: u64,
    pub(super) suspended: bool,
}

impl ServerReport {
    pub(super) fn between(before: &Sample, now: &Sample) -> Self {
        let span = Span { before, now };
        let models = now.labels("mortise_model_state", "model");
        let plugins = now.labels("mortise_plugin_instances", "plugin");
        let version = now.labels("mortise_build_info", "version");
        Self {
            version: version
                .first()
                .map_or(String::new(), |version| (*version).to_owned()),
            in_flight: now
                .count("mortise_requests_in_flight", &[])
                .saturating_sub(1),
            streams: now.count("mortise_active_streams", &[]),
            // Without the one of the sample before.
            requests_per_second: (span.rate("mortise_requests_total", &[])
                - span.rate("mortise_requests_total", &[("route", "/metrics")])),
            refused: now.count("mortise_rate_limit_dropped_total", &[]),
            models: models.into_iter().map(|name| span.model(name)).collect(),
            plugins: plugins.into_iter().map(|name| span.plugin(name)).collect(),
        }
    }

    pub(super) fn json(&self, url: &str) -> Value {
        let mut body = json!(self);
        body["url"] = Value::from(url);
        body
    }
}

struct Span<'a> {
    before: &'a Sample,
    now: &'a Sample,
}

impl Span<'_> {
    /// Growth of a sum. A server that was started again begins at zero.
    fn growth(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        (self.now.sum(name, labels) - self.before.sum(name, labels)).max(0.0)
    }

    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let seconds = (self.now.at - self.before.at).as_secs_f64();
        self.growth(name, labels) / seconds.max(0.001)
    }

    /// Mean of what a histogram has seen meanwhile, in milliseconds.
    fn mean(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let count = self.growth(&format!("{name}_count"), labels);
        let sum = self.growth(&format!("{name}_sum"), labels);
        (count > 0.0).then(|| sum / count * 1000.0)
    }

    fn model(&self, name: &str) -> ModelSample {
        let of = [("model", name)];
        let number = |series: &str| self.now.sum(series, &of);
        let count = |series: &str| self.now.count(series, &of);
        let blocks = number("mortise_kv_blocks");
        let part = |series: &str| (blocks > 0.0).then(|| number(series) / blocks);
        let state = self.now.label_of("mortise_model_state", of[0], "state");
        ModelSample {
            name: name.to_owned(),
            state: state.unwrap_or("unknown").to_owned(),
            running: count("mortise_batch_size_decode"),
            waiting: count("mortise_queue_depth"),
            tokens_per_second: self.rate("mortise_tokens_output_total", &of),
            prompt_tokens_per_second: self.rate("mortise_tokens_input_total", &of),
            first_token_ms: self.mean("mortise_time_to_first_token_seconds", &of),
            kv_used: part("mortise_kv_blocks_used"),
            kv_kept: part("mortise_kv_blocks_idle"),
            memory_bytes: count("mortise_model_memory_bytes"),
        }
    }

    fn plugin(&self, name: &str) -> PluginSample {
        let of = [("plugin", name)];
        let kinds = self.now.labels("mortise_plugin_instances", "kind");
        let has = |kind: &&str| {
            self.now
                .sum("mortise_plugin_instances", &[of[0], ("kind", *kind)])
                > 0.0
        };
        let kinds: Vec<&str> = kinds.into_iter().filter(has).collect();
        PluginSample {
            name: name.to_owned(),
            kind: kinds.join(" "),
            instances: self.now.count("mortise_plugin_instances", &of),
            calls_per_second: self.rate("mortise_plugin_calls_total", &of),
            call_ms: self.mean("mortise_plugin_call_duration_seconds", &of),
            faults: self.now.count("mortise_plugin_faults_total", &of),
            suspended: self.now.sum("mortise_plugin_suspended", &of) > 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_those_of_the_time_between() {
        let page = |tokens: u32| {
            format!(
                "mortise_model_state{{model=\"a\",state=\"loaded\"}} 1\nmortise_kv_blocks{{model=\"a\"}} 8\n\
                 mortise_kv_blocks_used{{model=\"a\"}} 2\nmortise_tokens_output_total{{model=\"a\"}} {tokens}\n\
                 mortise_time_to_first_token_seconds_sum{{model=\"a\"}} {}\n\
                 mortise_time_to_first_token_seconds_count{{model=\"a\"}} {tokens}\n",
                f64::from(tokens) / 4.0
            )
        };
        let before = Sample::read(&page(10));
        let mut now = Sample::read(&page(30));
        now.at = before.at + Duration::from_secs(2);
        let model = &ServerReport::between(&before, &now).models[0];
        assert_eq!((model.name.as_str(), model.state.as_str()), ("a", "loaded"));
        assert_eq!((model.tokens_per_second, model.kv_used), (10.0, Some(0.25)));
        assert_eq!(model.first_token_ms, Some(250.0));
        // Started again.
        let mut fresh = Sample::read(&page(1));
        fresh.at = before.at + Duration::from_secs(2);
        assert_eq!(
            ServerReport::between(&before, &fresh).models[0].tokens_per_second,
            0.0
        );
    }
}
