//! Plugins, their bindings and what they may take, as a configuration has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_plugin::{BreakerLimits, HeaderGrant, HttpGrant, Kind, Origin, Secret};
use mortise_service::GuardMode;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Value, json};

use crate::folder::shown;

/// Plugins and what they may take.
#[derive(Debug, Clone, Default)]
pub struct PluginConfig {
    /// The folder whose files serve without being named.
    pub dir: Option<PathBuf>,
    /// Folder of compiled code.
    pub cache_dir: Option<PathBuf>,
    /// Interval at which the files are polled; `None` is never.
    pub watch: Option<Duration>,
    /// Bounds that replace those of the plugin host.
    pub bounds: PluginBounds,
    /// Quarantine: a file that cannot be loaded is left out at the start, where the server can go without it.
    pub quarantine: bool,
    /// Flag: files of the folder may be uploaded and removed over the admin side.
    pub upload: bool,
    /// Flag: files without a good signature are refused.
    pub require_signed: bool,
    /// Public keys (ed25519) whose signatures are good.
    pub trusted_keys: Vec<[u8; 32]>,
    /// Origins at private addresses that registries may name as their token service or storage.
    pub registry_origins: Vec<Origin>,
    /// Bindings, in the order of the file.
    pub bindings: Vec<BindingConfig>,
    /// Fault injection; see [`HostConfig::fault`](mortise_plugin::HostConfig::fault).
    pub fault: Option<fn()>,
}

/// The names of the kinds, as configurations and golden cases write them.
const KINDS: &[&str] = &[
    "chat-template",
    "output-parser",
    "grammar",
    "policy",
    "tool",
    "guardrail",
    "retriever",
];

/// Read a kind by its name.
///
/// # Errors
/// When there is no kind of that name; the known ones are listed.
pub fn deserialize_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| D::Error::unknown_variant(&name, KINDS))
}

/// Bounds of a plugin; `None` leaves the bound of the wider place.
#[derive(Debug, Clone, Default)]
pub struct PluginBounds {
    /// Memory of an instance.
    pub memory_bytes: Option<usize>,
    /// Bytes of an answer.
    pub output_bytes: Option<usize>,
    /// Deadline of one call.
    pub deadline: Option<Duration>,
    /// Time for all calls of one session or matcher.
    pub budget: Option<Duration>,
    /// Instances that may live at once.
    pub instances: Option<usize>,
}

/// Binding of a plugin to models, tenants and routes, with its settings, grants and bounds.
#[derive(Debug, Clone)]
pub struct BindingConfig {
    /// Kind as which the plugin serves.
    pub kind: Kind,
    /// Key of the rate limits of a policy, so that they outlive any change of the configuration, and name by which a
    /// retriever is chosen.
    pub name: Option<String>,
    /// The plugin; without it the plugin of the folder, or the embedded one.
    pub file: Option<PathBuf>,
    /// Registry that the file comes from, `oci://` and a reference; it is put into the folder before it is read.
    pub source: Option<String>,
    /// The only content that the file may have: SHA-256 in hexadecimal.
    pub sha256: Option<String>,
    /// Patterns of names.
    pub models: Vec<String>,
    /// Patterns of architectures, which the model must match as well.
    pub architectures: Vec<String>,
    /// Patterns of tenants.
    pub tenants: Vec<String>,
    /// Patterns of routes.
    pub routes: Vec<String>,
    /// Policies and guardrails are asked in rising order.
    pub order: i32,
    /// Effect on a request when the plugin breaks down.
    pub on_failure: OnFailure,
    /// Bounds of the plugin's calls.
    pub bounds: PluginBounds,
    /// Circuit breaker: the failures that suspend the plugin.
    pub breaker: BreakerLimits,
    /// Hosts to which a policy, a tool, a guardrail or a retriever may send HTTP requests.
    pub http: HttpGrant,
    /// Patterns of ids of API keys that a policy may be told by.
    pub secrets: Vec<String>,
    /// Request headers that a policy sees.
    pub headers: HeaderGrant,
    /// Changes that a policy may make of requests, by name.
    pub rewrites: Vec<String>,
    /// Time of a guardrail's verdicts.
    pub watch: VerdictTiming,
    /// Chat templates that requests may choose, by name.
    pub templates: BTreeMap<String, TemplateSource>,
    /// Settings of the plugin, as JSON.
    pub settings: Value,
    /// Lines of the binding and of each key in it, by JSON pointer.
    pub lines: BTreeMap<String, usize>,
}

impl PluginConfig {
    /// The bounds of the last binding of this kind that names the file, or takes any.
    pub fn bounds_of(&self, kind: Kind, file: &Path) -> PluginBounds {
        let fitting = self.bindings.iter().rfind(|binding| {
            let named = binding.file.as_deref();
            binding.kind == kind && named.is_none_or(|named| named == file)
        });
        fitting.map(|b| b.bounds.clone()).unwrap_or_default()
    }
}

impl BindingConfig {
    /// The binding as the admin API shows it, without settings and grants.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "kind": self.kind.as_str(),
            "file": self.file.as_deref().map(shown),
            "models": self.models,
            "architectures": self.architectures,
            "tenants": self.tenants,
            "routes": self.routes,
            "order": self.order,
            "on_failure": self.on_failure.as_str(),
        })
    }

    /// A file that serves every model, with all else as it is by default.
    pub fn of_file(kind: Kind, file: PathBuf, settings: Value) -> Self {
        Self {
            kind,
            name: None,
            file: Some(file),
            source: None,
            sha256: None,
            models: vec!["*".to_owned()],
            architectures: vec!["*".to_owned()],
            tenants: vec!["*".to_owned()],
            routes: vec!["*".to_owned()],
            order: 0,
            on_failure: OnFailure::default(),
            bounds: PluginBounds::default(),
            breaker: BreakerLimits::default(),
            http: HttpGrant::default(),
            secrets: vec!["*".to_owned()],
            headers: HeaderGrant::default(),
            rewrites: Vec::new(),
            watch: VerdictTiming::default(),
            templates: BTreeMap::new(),
            settings,
            lines: BTreeMap::new(),
        }
    }

    /// Whether the binding is for certain tenants only.
    pub fn is_by_tenant(&self) -> bool {
        !self.tenants.iter().any(|pattern| pattern == "*")
    }

    /// The line of a key, by its JSON pointer; for a key that is missing, that of the table that
    /// should have it.
    pub fn line_of(&self, pointer: &str) -> Option<usize> {
        nearest_line(&self.lines, pointer)
    }

    /// Whether the binding is for models of certain architectures only.
    pub fn is_by_architecture(&self) -> bool {
        self.architectures != ["*"]
    }
}

/// Source of a chat template that requests may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateSource {
    /// Jinja.
    Text(String),
    /// Template of the model's own files, by its name there.
    Own(String),
}

/// Time of a guardrail's verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerdictTiming {
    /// Mode: verdicts before the text goes out, or after.
    pub mode: GuardMode,
    /// Tokens of an answer after which the guardrail is asked again.
    pub every: u32,
}

impl Default for VerdictTiming {
    /// Eight tokens are half a sentence: a refusal comes while there is still something to refuse.
    fn default() -> Self {
        Self {
            mode: GuardMode::Observe,
            every: 8,
        }
    }
}

/// Effect on a request when its plugin breaks down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The request ends with an error.
    #[default]
    Closed,
    /// The request goes on without the plugin.
    Open,
    /// The embedded plugin of the kind serves the request.
    Fallback,
}

impl OnFailure {
    /// The value as configurations write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Fallback => "fallback",
        }
    }
}

/// Settings of the default policy, and the secrets it may ask the host about.
#[derive(Clone, Default)]
pub struct AuthConfig {
    /// Settings of the default policy, a JSON object.
    pub settings: Value,
    /// The API keys, by id and in the order of the configuration.
    pub secrets: Vec<Secret>,
    /// Number of API keys.
    pub keys: usize,
}

impl std::fmt::Debug for AuthConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AuthConfig({} keys)", self.keys)
    }
}

/// ` (line 7)`, or nothing.
pub fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

/// The line of a JSON pointer, or of the nearest thing around it that has one.
pub fn nearest_line(lines: &BTreeMap<String, usize>, pointer: &str) -> Option<usize> {
    let mut known = pointer;
    loop {
        if let Some(line) = lines.get(known) {
            return Some(*line);
        }
        known = &known[..known.rfind('/')?];
    }
}
