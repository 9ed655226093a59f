//! Binding of a plugin: its settings and grants in one entry of the configuration.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use serde_json::{Map, Value};

use crate::cpu_share::FaultHistory;
use crate::log_rate::LogRate;
use crate::quotas_rest::QuotasRest;
use crate::state::Grants;
use crate::{
    Component, HeaderGrant, HttpGrant, Kind, Ledger, Limits, LoadError, ModelDescription, Outbound,
    PluginHost, RateCounters, Secret, Vocabulary,
};

/// A plugin's surroundings: the model it serves, its settings, and what it may use.
#[derive(Clone)]
pub struct Binding {
    /// The model, for chat templates and output parsers.
    pub model: Option<Arc<ModelDescription>>,
    /// The model's tokens, for grammars.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// A JSON object.
    pub settings: String,
    /// Secrets, for policies. Plugins can ask whether a text equals one.
    pub secrets: Vec<Secret>,
    /// Request headers that a policy sees.
    pub headers: HeaderGrant,
    /// Names of the changes that a policy may make of a request ([`Rewrite::NAMES`](crate::Rewrite::NAMES)).
    pub rewrites: Vec<String>,
    /// Ledger of a policy's counters; hand the old one to a binding that replaces another.
    pub ledger: Arc<dyn RateCounters>,
    /// Origins to which a policy or a tool may send HTTP requests; none by default.
    pub http: Outbound,
    /// Time at which the clock of a policy or a tool is frozen, in milliseconds since 1970; without it, it is
    /// the system's.
    pub now_ms: Option<u64>,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Binding {
    fn default() -> Self {
        Self {
            model: None,
            vocabulary: None,
            settings: "{}".to_owned(),
            secrets: Vec::new(),
            headers: HeaderGrant::default(),
            rewrites: Vec::new(),
            ledger: Arc::new(Ledger::new()),
            http: Outbound::new(HttpGrant::default()),
            now_ms: None,
            limits: Limits::default(),
        }
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Binding")
            .field("settings", &self.settings)
            .field("secrets", &self.secrets)
            .field("headers", &self.headers)
            .field("rewrites", &self.rewrites)
            .field("http", &self.http)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Binding {
    /// Check that the binding suits the kind.
    pub(crate) fn into_grants(
        self,
        host: &PluginHost,
        component: &Arc<Component>,
        kind: Kind,
    ) -> Result<Grants, LoadError> {
        let origin = component.label();
        if !component.kinds().contains(&kind) {
            let kinds: Vec<&str> = component.kinds().iter().map(|kind| kind.as_str()).collect();
            return Err(LoadError::WrongKind {
                origin,
                wanted: kind,
                found: kinds.join(", "),
            });
        }
        if kind == Kind::Grammar && self.vocabulary.is_none() {
            return Err(LoadError::Missing {
                origin,
                kind,
                missing: "a vocabulary",
            });
        }
        let object = serde_json::from_str::<Map<String, Value>>(&self.settings);
        let object = object.map_err(|error| LoadError::Settings {
            origin: origin.clone(),
            message: error.to_string(),
        })?;
        let (settings, inner_settings) = match component.is_composed() {
            true => divided(object).map_err(|message| LoadError::Settings { origin, message })?,
            false => (self.settings, String::new()),
        };
        Ok(Grants {
            counters: host
                .registry()
                .counters(component.name(), component.version(), kind),
            component: Arc::clone(component),
            kind,
            fault_history: FaultHistory::default(),
            lost_instances: FaultHistory::default(),
            log_rate: LogRate::new(),
            told_of_headers: AtomicBool::new(false),
            quotas_rest: QuotasRest::default(),
            looked_for_tools: AtomicBool::new(false),
            prompts_looked_at: AtomicU32::new(0),
            told_of_handles: AtomicBool::new(false),
            secrets: self.secrets,
            headers: self.headers,
            rewrites: self.rewrites,
            settings,
            inner_settings,
            model: self.model,
            vocabulary: self.vocabulary,
            ledger: self.ledger,
            http: self.http,
            now_ms: self.now_ms,
            limits: self.limits,
            profile: host.profile().filter(|_| !component.is_embedded()).cloned(),
        })
    }
}

/// Key of the inner plugin's settings in those of a component that is composed of two.
const INNER: &str = "inner";

/// Settings of the outer plugin, and those of the inner.
fn divided(mut settings: Map<String, Value>) -> Result<(String, String), String> {
    let inner = match settings.shift_remove(INNER) {
        None => Map::new(),
        Some(Value::Object(inner)) => inner,
        Some(other) => return Err(format!("`{INNER}` must be an object, but is {other}")),
    };
    Ok((
        Value::Object(settings).to_string(),
        Value::Object(inner).to_string(),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn divide(settings: Value) -> Result<(String, String), String> {
        let Value::Object(settings) = settings else {
            panic!("an object");
        };
        divided(settings)
    }

    #[test]
    fn each_part_has_its_own_settings() {
        let both = json!({"b": 1, "inner": {"z": 2, "inner": {}}, "a": 3});
        let expected = (
            r#"{"b":1,"a":3}"#.to_owned(),
            r#"{"z":2,"inner":{}}"#.to_owned(),
        );
        assert_eq!(divide(both), Ok(expected));
        assert_eq!(divide(json!({})), Ok(("{}".to_owned(), "{}".to_owned())));
        let error = divide(json!({"inner": "hermes"})).unwrap_err();
        assert_eq!(error, "`inner` must be an object, but is \"hermes\"");
    }
}
