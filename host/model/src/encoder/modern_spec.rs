//! The shape of a ModernBERT, as its configuration tells it and as far as it makes sense.

use serde_json::Value;

use super::check_labels;
use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::limits::{
    CONTEXT_MAX, ENCODER_HIDDEN_MAX, ENCODER_INTERMEDIATE_MAX, ENCODER_LAYERS_MAX, VOCABULARY_MAX,
    WINDOW_MAX,
};
use crate::pooling::{Pooling, PoolingSpec};

/// Classes in `config.json`, and whether a head scores pairs of texts.
const CLASSES: [(&str, bool); 3] = [
    ("ModernBertModel", false),
    ("ModernBertForMaskedLM", false),
    ("ModernBertForSequenceClassification", true),
];

/// Attention of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reach {
    /// Base of the rotary frequencies.
    pub(crate) theta: f64,
    /// Tokens that it sees on either side; all without one.
    pub(crate) within: Option<usize>,
}

/// The shape of a ModernBERT.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModernSpec {
    /// Rows that a head scores, if it ranks: the first, or their mean.
    pub(crate) ranks: Option<Pooling>,
    pub(crate) vocabulary: usize,
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) heads: usize,
    pub(crate) context: usize,
    pub(crate) norm_epsilon: f32,
    /// One for each layer.
    pub(crate) layers: Vec<Reach>,
    /// Pooling; if the files name none, the mean, normalised.
    pub(crate) pooling: PoolingSpec,
}

impl ModernSpec {
    /// Whether the model of a folder ranks; `None` if it is of another kind.
    pub(crate) fn ranks(folder: &ModelFolder) -> Result<Option<bool>, ModelError> {
        let config = ObjectFields::read(folder, CONFIG_FILE)?;
        Ok(config.and_then(|config| class(&config)))
    }

    /// Read and check the configuration.
    pub(crate) fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let config =
            ObjectFields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        let ranks = class(&config) == Some(true);
        if ranks {
            check_labels(&config)?;
        }
        for field in ["norm_bias", "attention_bias", "mlp_bias", "classifier_bias"] {
            if config.flag(field)? == Some(true) {
                return Err(config.wrong(field, "is true; such biases are not read"));
            }
        }
        for field in ["hidden_activation", "classifier_activation"] {
            if let Some(found) = config.text(field)?
                && found != "gelu"
            {
                let problem = format!("is {}; supported is \"gelu\"", brief(&found.into()));
                return Err(config.wrong(field, problem));
            }
        }
        let hidden = config.required_count("hidden_size", 1..=ENCODER_HIDDEN_MAX)?;
        let heads = config.required_count("num_attention_heads", 1..=ENCODER_HIDDEN_MAX)?;
        if !hidden.is_multiple_of(2 * heads) {
            let problem = format!("is {heads}; heads of an even size must make up {hidden}");
            return Err(config.wrong("num_attention_heads", problem));
        }
        Ok(Self {
            ranks: ranks.then(|| scored(&config)).transpose()?,
            vocabulary: config.required_count("vocab_size", 1..=VOCABULARY_MAX)?,
            hidden,
            intermediate: config
                .required_count("intermediate_size", 1..=ENCODER_INTERMEDIATE_MAX)?,
            heads,
            context: config.required_count("max_position_embeddings", 1..=CONTEXT_MAX)?,
            norm_epsilon: config.number("norm_eps", 0.0..=0.1)?.unwrap_or(1e-5) as f32,
            layers: layers(&config)?,
            pooling: PoolingSpec::read(folder)?.unwrap_or(PoolingSpec {
                pooling: Pooling::Mean,
                normalised: true,
            }),
        })
    }
}

fn class(config: &ObjectFields) -> Option<bool> {
    let first = config.get("architectures")?.get(0)?.as_str()?;
    let known = CLASSES.into_iter().find(|(name, _)| *name == first);
    known.map(|(_, ranks)| ranks)
}

/// Rows that the head scores.
fn scored(config: &ObjectFields) -> Result<Pooling, ModelError> {
    const FIELD: &str = "classifier_pooling";
    match config.text(FIELD)? {
        None | Some("cls") => Ok(Pooling::First),
        Some("mean") => Ok(Pooling::Mean),
        Some(other) => {
            let problem = format!("is {}; supported are cls and mean", brief(&other.into()));
            Err(config.wrong(FIELD, problem))
        }
    }
}

/// The reach of each layer.
fn layers(config: &ObjectFields) -> Result<Vec<Reach>, ModelError> {
    const TYPES: &str = "layer_types";
    let count = config.required_count("num_hidden_layers", 1..=ENCODER_LAYERS_MAX)?;
    let window = config
        .count("local_attention", 0..=WINDOW_MAX)?
        .unwrap_or(128);
    let far = Reach {
        theta: theta(config, ("full_attention", "global_rope_theta"), 160_000.0)?,
        within: None,
    };
    let near = Reach {
        theta: theta(config, ("sliding_attention", "local_rope_theta"), 10_000.0)?,
        within: Some(window / 2),
    };
    let Some(types) = config.list(TYPES)? else {
        let every = config.count("global_attn_every_n_layers", 1..=ENCODER_LAYERS_MAX)?;
        let every = every.unwrap_or(3);
        let reach = |layer: usize| {
            if layer.is_multiple_of(every) {
                far
            } else {
                near
            }
        };
        return Ok((0..count).map(reach).collect());
    };
    if types.len() != count {
        let problem = format!("has {} entries for {count} layers", types.len());
        return Err(config.wrong(TYPES, problem));
    }
    let reach = |name: &Value| match name.as_str() {
        Some("full_attention") => Ok(far),
        Some("sliding_attention") => Ok(near),
        _ => {
            let problem = format!("has {}", brief(name));
            Err(config.wrong(TYPES, problem))
        }
    };
    types.iter().map(reach).collect()
}

/// Base of the rotary frequencies of a kind of layers, by its name today and by that of older files.
fn theta(
    config: &ObjectFields,
    (kind, older): (&str, &str),
    usual: f64,
) -> Result<f64, ModelError> {
    const BOUNDS: std::ops::RangeInclusive<f64> = 1.0..=1e12;
    let parameters = config.object("rope_parameters")?;
    let of_kind = parameters
        .map(|all| all.object(kind))
        .transpose()?
        .flatten();
    let Some(of_kind) = of_kind else {
        return Ok(config.number(older, BOUNDS)?.unwrap_or(usual));
    };
    if let Some(scaling) = of_kind.text("rope_type")?
        && scaling != "default"
    {
        let problem = format!("is {}; supported is \"default\"", brief(&scaling.into()));
        return Err(of_kind.wrong("rope_type", problem));
    }
    Ok(of_kind.number("rope_theta", BOUNDS)?.unwrap_or(usual))
}
