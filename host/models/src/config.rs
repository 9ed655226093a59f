//! Models and the engine, as a configuration has them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mortise_engine::EngineConfig;
use mortise_hub::ModelReference;
use mortise_model::{EmbedderOptions, WeightPrecision};
use serde::Deserialize;

use crate::adapters::AdapterConfig;
use crate::child_config::ChildConfig;
use crate::device_choice::DeviceChoice;
use crate::model_settings::{ModelEngine, RequestDefaults};
use crate::script::Script;
use crate::upstream_config::UpstreamConfig;

/// The name of the embedded model.
pub const DEMO_MODEL: &str = "mortise-demo";

/// A model to serve.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The public name.
    pub name: String,
    /// Source of this definition.
    pub origin: DefinitionOrigin,
    /// Further names that mean this model.
    pub aliases: Vec<String>,
    /// The embedded demo model if there is none.
    pub path: Option<PathBuf>,
    /// Instead of a path: brought from the hub when the model is opened.
    pub hf: Option<ModelReference>,
    /// SHA-256 digest that its files must have, in lower case.
    pub sha256: Option<String>,
    /// Speaks instead of the weights.
    pub script: Option<Script>,
    /// Other servers answer for the model.
    pub upstream: Option<UpstreamConfig>,
    /// A process that this server starts answers for the model.
    pub child: Option<ChildConfig>,
    /// Settings of its engine that differ from those of all others.
    pub engine: ModelEngine,
    /// Values for requests that say nothing.
    pub defaults: RequestDefaults,
    /// Format that weights are quantised to while they are loaded, if their files have full precision.
    pub quantize: Option<Quantize>,
    /// Draft model for speculative decoding.
    pub draft: Option<Box<ModelConfig>>,
    /// Adapters that are loaded with it.
    pub loras: Vec<AdapterConfig>,
    /// Overrides of pooling and normalisation. A decoder with a pooling makes embeddings.
    pub embedding: EmbedderOptions,
    /// Instructions for texts of an embedding model, beside those of its files.
    pub prompts: BTreeMap<String, String>,
    /// Name of the instruction where nothing is said about a text.
    pub default_prompt: Option<String>,
    /// A decoder that is asked whether a text is relevant.
    pub rank: Option<RankConfig>,
    /// When it is loaded and unloaded, and how it is listed.
    pub lifecycle: ModelLifecycle,
}

/// A decoder that scores pairs of texts by its answer, yes or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankConfig {
    /// Task that it is given.
    pub instruction: String,
}

/// Source of a model's definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefinitionOrigin {
    /// The configuration names it.
    #[default]
    Configured,
    /// A scan has found its files; it goes when they go.
    Discovered,
}

impl DefinitionOrigin {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Discovered => "discovered",
        }
    }
}

/// When a model is loaded and unloaded, and how it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelLifecycle {
    /// Loaded when the server starts. A model that is not can be loaded later.
    pub enabled: bool,
    /// Requests load it; `None`: as the server's settings say.
    pub load_on_demand: Option<bool>,
    /// Neither evicted nor unloaded for being idle.
    pub pinned: bool,
    /// Time without a request after which it is unloaded, if any; `None`: as the server's settings say.
    pub idle_timeout: Option<Option<Duration>>,
    /// Engines of the same weights.
    pub replicas: usize,
    /// Most engines that a load may ask for.
    pub replica_max: usize,
    /// Left out of lists.
    pub hidden: bool,
    /// Owner, for lists.
    pub owned_by: Option<String>,
    /// Day on which it is to be removed, as `YYYY-MM-DD`.
    pub deprecation_date: Option<String>,
}

impl Default for ModelLifecycle {
    fn default() -> Self {
        Self {
            enabled: true,
            load_on_demand: None,
            pinned: false,
            idle_timeout: None,
            replicas: 1,
            replica_max: 1,
            hidden: false,
            owned_by: None,
            deprecation_date: None,
        }
    }
}

impl ModelConfig {
    /// The files of a folder, or else of the embedded demo model, under its name.
    pub fn of_path(path: Option<PathBuf>) -> Self {
        Self {
            name: DEMO_MODEL.to_owned(),
            origin: DefinitionOrigin::Configured,
            aliases: Vec::new(),
            path,
            hf: None,
            sha256: None,
            script: None,
            upstream: None,
            child: None,
            engine: ModelEngine::default(),
            defaults: RequestDefaults::default(),
            quantize: None,
            draft: None,
            loras: Vec::new(),
            embedding: EmbedderOptions::default(),
            prompts: BTreeMap::new(),
            default_prompt: None,
            rank: None,
            lifecycle: ModelLifecycle::default(),
        }
    }

    /// Whether a loaded runtime of this model is as well one of `other`: only names, and when it is loaded and
    /// listed, may differ.
    pub fn has_runtime_of(&self, other: &Self) -> bool {
        let lifecycle = ModelLifecycle {
            replicas: self.lifecycle.replicas,
            ..other.lifecycle.clone()
        };
        let renamed = Self {
            aliases: self.aliases.clone(),
            origin: self.origin,
            lifecycle: self.lifecycle.clone(),
            ..other.clone()
        };
        renamed == *self && lifecycle == other.lifecycle
    }

    /// Precision of the weights in memory.
    pub fn precision(&self) -> WeightPrecision {
        match self.quantize {
            None => WeightPrecision::AsStored,
            Some(Quantize::Q8_0) => WeightPrecision::Q8_0,
            Some(Quantize::Q4K) => WeightPrecision::Q4K,
        }
    }
}

/// Block formats that weights are brought to when they are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Quantize {
    /// 8 bits.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 4 bits.
    #[serde(rename = "q4_k")]
    Q4K,
}

impl Quantize {
    /// Name in configuration files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q4K => "q4_k",
        }
    }
}

/// Settings of the local engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Device of the models.
    pub device: DeviceChoice,
    /// Values for requests that say nothing, where their model has none.
    pub defaults: RequestDefaults,
    /// For each model that the engine serves.
    pub engine: EngineConfig,
    /// Cached prefixes serve all tenants.
    pub share_prefixes: bool,
    /// Weights in the fair queue; 1 for who is not listed.
    pub tenant_weights: BTreeMap<String, u32>,
}
