//! The configuration file as it is written. Unknown keys are refused and the nearest known one is
//! named. The `Default` of each table is the documented default.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mortise_api::Unsupported;
use mortise_http::nearest;
use mortise_models::Quantize;
use mortise_plugin::Kind;
use mortise_plugin_manager::{OnFailure, deserialize_kind};
use mortise_telemetry::{ContentLogConfig, LogFormat, LogLevel};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table};

use super::aliases::{RawAlias, RawNames};
use super::audit::RawAudit;
use super::auth::RawAuth;
use super::child::RawChild;
use super::day::day;
use super::discovery::RawDiscovery;
use super::engine::RawEngine;
use super::health::RawHealthTable;
use super::library::RawLibrary;
use super::lifecycle::RawLifecycle;
use super::limits::RawLimits;
use super::listener::{RawAdmin, RawServer};
use super::metrics::RawMetrics;
use super::model_settings::{RawDefaults, RawModelEngine};
use super::response_cache::RawResponseCache;
use super::retrieval::RetrievalConfig;
use super::spend::RawSpend;
use super::store::RawStore;
use super::traces::RawTraces;
use super::upstream::RawUpstream;
use super::valkey::RawValkey;
use super::{ConfigError, within};

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Raw {
    pub(crate) server: RawServer,
    pub(crate) admin: RawAdmin,
    pub(crate) limits: RawLimits,
    pub(crate) engine: RawEngine,
    pub(crate) log: RawLog,
    pub(crate) openai: RawOpenai,
    pub(crate) lifecycle: RawLifecycle,
    pub(crate) defaults: RawDefaults,
    pub(crate) models: Vec<RawModel>,
    pub(crate) discovery: RawDiscovery,
    pub(crate) library: RawLibrary,
    pub(crate) names: RawNames,
    pub(crate) aliases: Vec<RawAlias>,
    pub(crate) plugins: RawPlugins,
    pub(crate) auth: RawAuth,
    pub(crate) store: RawStore,
    pub(crate) valkey: RawValkey,
    pub(crate) spend: RawSpend,
    pub(crate) audit: RawAudit,
    pub(crate) health: RawHealthTable,
    pub(crate) retrieval: RetrievalConfig,
    pub(crate) response_cache: RawResponseCache,
    pub(crate) metrics: RawMetrics,
    pub(crate) traces: RawTraces,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLog {
    pub(crate) format: LogFormat,
    pub(crate) level: LogLevel,
    pub(crate) request_begins: bool,
    pub(crate) content: Contents,
    pub(crate) content_bytes: usize,
    pub(crate) content_models: Vec<String>,
    pub(crate) content_tenants: Vec<String>,
}

/// Treatment of what requests and answers say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Contents {
    /// Not written.
    #[default]
    Off,
    /// Written without what looks like a secret.
    Redacted,
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            format: LogFormat::default(),
            level: LogLevel::default(),
            request_begins: false,
            content: Contents::Off,
            content_bytes: 4096,
            content_models: vec!["*".to_owned()],
            content_tenants: vec!["*".to_owned()],
        }
    }
}

impl RawLog {
    /// Lines about requests: whether there is one when they begin, and the log of contents, if one is asked for.
    pub(crate) fn lines(&self) -> Result<(bool, Option<ContentLogConfig>), ConfigError> {
        /// Bytes of a prompt, and of an answer, that may be configured for the log of contents.
        const BYTES_MAX: usize = 1 << 16;
        let bytes = within("log.content_bytes", self.content_bytes, BYTES_MAX)?;
        let asked = self.content == Contents::Redacted;
        let content = asked.then(|| ContentLogConfig {
            bytes,
            models: self.content_models.clone(),
            tenants: self.content_tenants.clone(),
        });
        Ok((self.request_begins, content))
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOpenai {
    pub(crate) unsupported: Unsupported,
    pub(crate) any_model: bool,
    pub(crate) unversioned: bool,
}

impl Default for RawOpenai {
    fn default() -> Self {
        Self {
            unsupported: Unsupported::Refuse,
            any_model: true,
            unversioned: true,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawModel {
    pub(crate) name: Option<String>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) hf: Option<String>,
    pub(crate) sha256: Option<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) quantize: Option<Quantize>,
    pub(crate) draft_model: Option<String>,
    pub(crate) loras: Vec<RawLora>,
    pub(crate) pooling: Option<RawPooling>,
    pub(crate) normalize: Option<bool>,
    pub(crate) prompts: BTreeMap<String, String>,
    pub(crate) default_prompt: Option<String>,
    pub(crate) rerank: Option<RawRerank>,
    pub(crate) backend: RawBackend,
    pub(crate) upstream: Option<RawUpstream>,
    pub(crate) child: Option<RawChild>,
    pub(crate) script: Option<RawScript>,
    pub(crate) engine: RawModelEngine,
    pub(crate) defaults: RawDefaults,
    pub(crate) enabled: Option<bool>,
    pub(crate) load_on_demand: Option<bool>,
    pub(crate) pinned: bool,
    pub(crate) idle_timeout_seconds: Option<u64>,
    pub(crate) replicas: Option<usize>,
    pub(crate) replica_max: Option<usize>,
    pub(crate) hidden: bool,
    pub(crate) owned_by: Option<String>,
    #[serde(deserialize_with = "day")]
    pub(crate) deprecation_date: Option<String>,
}

/// A decoder that scores pairs of texts by its answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRerank {
    pub(crate) form: RawRerankForm,
    pub(crate) instruction: Option<String>,
}

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawRerankForm {
    /// The token `yes`, or the token `no`.
    YesNo,
}

/// An adapter of a model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLora {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    #[serde(default = "one")]
    pub(crate) scale: f32,
}

fn one() -> f32 {
    1.0
}

/// Pooling of a text's rows to its embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawPooling {
    /// The mean of all.
    Mean,
    /// The first.
    Cls,
    /// The last.
    Last,
}

/// Runtime of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawBackend {
    /// The model's weights.
    #[default]
    Engine,
    /// A script, for tests.
    Scripted,
}

/// Kind of runtime that generates a script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawScriptKind {
    /// Tokens in, tokens out.
    #[default]
    Tokens,
    /// Conversation in, events out.
    Conversation,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawScript {
    pub(crate) kind: RawScriptKind,
    pub(crate) lines: Vec<RawLine>,
    pub(crate) default: String,
    pub(crate) token_delay_ms: u64,
    pub(crate) repeat: u32,
    pub(crate) context_length: usize,
    pub(crate) max_sequences: usize,
}

impl Default for RawScript {
    fn default() -> Self {
        Self {
            kind: RawScriptKind::default(),
            lines: Vec::new(),
            default: "This answer was scripted.".to_owned(),
            token_delay_ms: 0,
            repeat: 1,
            context_length: 32_768,
            max_sequences: 256,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLine {
    pub(crate) when: String,
    pub(crate) say: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawPlugins {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) watch_ms: u64,
    pub(crate) memory_mib: Option<usize>,
    pub(crate) output_mib: Option<usize>,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) budget_ms: Option<u64>,
    pub(crate) instances: Option<usize>,
    pub(crate) strict: bool,
    pub(crate) upload: bool,
    pub(crate) require_signed: bool,
    pub(crate) trusted_keys: Vec<String>,
    pub(crate) registry_origins: Vec<String>,
    pub(crate) bindings: Vec<RawBinding>,
}

impl Default for RawPlugins {
    fn default() -> Self {
        Self {
            dir: None,
            cache_dir: None,
            watch_ms: 1000,
            memory_mib: None,
            output_mib: None,
            deadline_ms: None,
            budget_ms: None,
            instances: None,
            strict: false,
            upload: false,
            require_signed: false,
            trusted_keys: Vec::new(),
            registry_origins: Vec::new(),
            bindings: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBinding {
    #[serde(deserialize_with = "deserialize_kind")]
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) source: Option<String>,
    #[serde(default)]
    pub(crate) sha256: Option<String>,
    #[serde(default = "any")]
    pub(crate) models: Vec<String>,
    #[serde(default = "any")]
    pub(crate) architectures: Vec<String>,
    #[serde(default = "any")]
    pub(crate) tenants: Vec<String>,
    #[serde(default = "any")]
    pub(crate) routes: Vec<String>,
    #[serde(default)]
    pub(crate) order: i32,
    #[serde(default)]
    pub(crate) on_failure: OnFailure,
    #[serde(default)]
    pub(crate) memory_mib: Option<usize>,
    #[serde(default)]
    pub(crate) output_mib: Option<usize>,
    #[serde(default)]
    pub(crate) deadline_ms: Option<u64>,
    #[serde(default)]
    pub(crate) budget_ms: Option<u64>,
    #[serde(default)]
    pub(crate) instances: Option<usize>,
    #[serde(default)]
    pub(crate) http: Option<RawHttp>,
    #[serde(default)]
    pub(crate) secrets: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) headers: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) rewrite: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) mode: Option<RawGuardMode>,
    #[serde(default)]
    pub(crate) hold_tokens: Option<u32>,
    #[serde(default)]
    pub(crate) every_tokens: Option<u32>,
    #[serde(default)]
    pub(crate) breaker: RawBreaker,
    #[serde(default)]
    pub(crate) templates: BTreeMap<String, RawTemplate>,
    #[serde(default)]
    pub(crate) settings: toml::Table,
    /// Lines of the binding and of each key in it, from 1, by JSON pointer.
    #[serde(skip)]
    pub(crate) lines: BTreeMap<String, usize>,
}

/// A chat template that requests may choose: the path of a file, its text, or one of the model's own by its name there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTemplate {
    #[serde(default)]
    pub(crate) file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) own: Option<String>,
}

/// Time of a guardrail's verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawGuardMode {
    /// After the text went out.
    Observe,
    /// Before the text goes out.
    Hold,
}

/// HTTP grant of a plugin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawHttp {
    pub(crate) origins: Vec<String>,
    #[serde(default)]
    pub(crate) networks: Vec<String>,
    #[serde(default)]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) max_response_kib: Option<u64>,
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) at_once: Option<usize>,
    #[serde(default)]
    pub(crate) requests_per_call: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawBreaker {
    pub(crate) failures: u32,
    pub(crate) window_ms: u64,
    pub(crate) pause_ms: u64,
}

impl Default for RawBreaker {
    fn default() -> Self {
        Self {
            failures: 5,
            window_ms: 10_000,
            pause_ms: 1000,
        }
    }
}

fn any() -> Vec<String> {
    vec!["*".to_owned()]
}

/// Parse a file. An error names the line, the problem and the nearest known key.
pub(crate) fn parse(text: &str) -> Result<Raw, String> {
    let mut raw = read(text).map_err(|(message, place)| match place {
        Some((line, column)) => format!("line {line}, column {column}: {message}"),
        None => message,
    })?;
    for (index, binding) in raw.plugins.bindings.iter_mut().enumerate() {
        binding.lines = binding_lines(text, index);
    }
    Ok(raw)
}

/// Read a table that is merged of files, by way of its text: what serde derives for all these types, a megabyte of code for
/// each kind of deserializer, is compiled for texts only. An error names the key.
pub(crate) fn of_merged(table: &Table) -> Result<Raw, String> {
    let text = table.to_string();
    read(&text).map_err(
        |(message, place)| match place.and_then(|(line, _)| key_on(&text, line)) {
            Some(key) => format!("{message}, in `{key}`"),
            None => message,
        },
    )
}

/// Read a text. An error is a message, and the line and column it is about.
fn read(text: &str) -> Result<Raw, (String, Option<(usize, usize)>)> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let message = error.message().trim();
        let message = suggestion(message).unwrap_or_else(|| message.to_owned());
        (message, error.span().map(|span| position(text, span.start)))
    })
}

/// The innermost key on a line of a text that parses, as a JSON pointer.
fn key_on(text: &str, line: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut lines = BTreeMap::new();
    for (key, value) in table.get_ref() {
        note_lines(text, format!("/{}", key.get_ref()), value, &mut lines);
    }
    let here = lines.into_iter().filter(|(_, its)| *its == line);
    here.map(|(pointer, _)| pointer).max_by_key(String::len)
}

/// Lines of a binding and its keys in a text that parses.
fn binding_lines(text: &str, index: usize) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    if let Ok(table) = DeTable::parse(text) {
        let bindings = table.get_ref().get("plugins");
        let bindings = bindings.and_then(|plugins| plugins.get_ref().get("bindings"));
        let binding = bindings.and_then(|bindings| bindings.get_ref().get(index));
        if let Some(binding) = binding {
            note_lines(text, String::new(), binding, &mut lines);
        }
    }
    lines
}

/// Note the line of a value and of all that it holds.
fn note_lines(
    text: &str,
    pointer: String,
    value: &Spanned<DeValue<'_>>,
    lines: &mut BTreeMap<String, usize>,
) {
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                // As JSON pointers have it.
                let key = key.get_ref().replace('~', "~0").replace('/', "~1");
                note_lines(text, format!("{pointer}/{key}"), value, lines);
            }
        }
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                note_lines(text, format!("{pointer}/{index}"), value, lines);
            }
        }
        _ => {}
    }
    lines.insert(pointer, position(text, value.span().start).0);
}

/// serde's message about an unknown key, turned to name the nearest known one.
fn suggestion(message: &str) -> Option<String> {
    let rest = message
        .strip_prefix("unknown field ")
        .or_else(|| message.strip_prefix("unknown variant "))?;
    let mut names = rest.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    let known: Vec<&str> = names.collect();
    Some(match nearest(unknown, known.iter().copied()) {
        Some(candidate) => format!("unknown name `{unknown}`; did you mean `{candidate}`?"),
        None => format!("unknown name `{unknown}`; known are {}", known.join(", ")),
    })
}

/// Line and column, from 1, of a byte.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |last| last.chars().count())
        + 1;
    (line, column)
}
