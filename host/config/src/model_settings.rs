//! Settings of the engine of one model (`[models.engine]`), and values for requests that say nothing (`[defaults]` and
//! `[models.defaults]`).

use mortise_models::conversation::TemplateArguments;
use mortise_models::lifecycle::KvTypeName;
use mortise_models::{DeviceChoice, ModelEngine, RequestDefaults};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ConfigError, invalid, positive, within};

/// The table of a model's engine as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawModelEngine {
    device: Option<DeviceChoice>,
    max_context: Option<usize>,
    kv_type: Option<KvTypeName>,
    kv_cache_mib: Option<usize>,
    max_batch: Option<usize>,
    prefix_cache: Option<bool>,
}

impl RawModelEngine {
    /// The checked table; `key` makes the path of a key of its name.
    pub(super) fn check(&self, key: &dyn Fn(&str) -> String) -> Result<ModelEngine, ConfigError> {
        let kv_cache = self.kv_cache_mib;
        let kv_cache = kv_cache.map(|mib| within(&key("kv_cache_mib"), mib, 1 << 24));
        let context = self.max_context;
        let batch = self.max_batch;
        Ok(ModelEngine {
            device: self.device,
            max_context: context
                .map(|tokens| positive(&key("max_context"), tokens))
                .transpose()?,
            kv_type: self.kv_type.map(KvTypeName::into),
            kv_cache_bytes: kv_cache.transpose()?.map(|mib| mib << 20),
            max_sequences: batch
                .map(|count| within(&key("max_batch"), count, 1 << 12))
                .transpose()?,
            prefix_cache: self.prefix_cache,
        })
    }
}

/// A table of defaults as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDefaults {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    max_tokens: Option<u32>,
    template_arguments: Map<String, Value>,
}

impl RawDefaults {
    /// True if it has values that an engine draws tokens by.
    pub(super) fn samples(&self) -> bool {
        let arguments = Map::new();
        let rest = Self {
            template_arguments: arguments,
            ..self.clone()
        };
        rest != Self::default()
    }

    /// The checked table; `key` makes the path of a key of its name. Bounds are those of requests.
    pub(super) fn check(
        self,
        key: &dyn Fn(&str) -> String,
    ) -> Result<RequestDefaults, ConfigError> {
        let bounded = |name: &str, value: Option<f64>, above: f64, least: f64, most: f64| {
            let fits = |value: &f64| *value > above && (least..=most).contains(value);
            match value.filter(|value| !fits(value)) {
                None => Ok(value),
                Some(value) => {
                    let message = format!("it must be from {least} to {most}; it is {value}");
                    Err(invalid(&key(name), message))
                }
            }
        };
        const BELOW: f64 = f64::NEG_INFINITY;
        let max_tokens = self.max_tokens;
        let arguments = TemplateArguments::new(self.template_arguments).map_err(|error| {
            let name = format!("template_arguments.{}", error.name);
            invalid(&key(&name), error.problem)
        })?;
        if max_tokens == Some(0) {
            let problem = "it must be at least 1; it is 0";
            return Err(invalid(&key("max_tokens"), problem));
        }
        Ok(RequestDefaults {
            temperature: bounded("temperature", self.temperature, BELOW, 0.0, 2.0)?,
            top_p: bounded("top_p", self.top_p, 0.0, 0.0, 1.0)?,
            top_k: self.top_k,
            min_p: bounded("min_p", self.min_p, BELOW, 0.0, 1.0)?,
            repetition_penalty: bounded(
                "repetition_penalty",
                self.repetition_penalty,
                0.0,
                0.0,
                4.0,
            )?,
            max_tokens,
            template_arguments: arguments,
        })
    }
}
