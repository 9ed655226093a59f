//! The shape of an encoder, as its configuration tells it and as far as it makes sense.

use crate::error::ModelError;
use crate::fields::{Fields, brief};
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::limits::{
    ENCODER_CONTEXT_MAX, ENCODER_HIDDEN_MAX, ENCODER_INTERMEDIATE_MAX, ENCODER_LAYERS_MAX,
    ENCODER_SEGMENTS_MAX, VOCABULARY_MAX,
};
use crate::pooling::{Pooling, PoolingSpec};

const ARCHITECTURES: [&str; 2] = ["BertModel", "BertForMaskedLM"];

/// The shape of an encoder of the BERT family.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncoderSpec {
    /// Tokens that the model knows.
    pub vocabulary: usize,
    /// Values that represent a token, and a text.
    pub hidden: usize,
    /// Values between the two halves of a feed-forward layer.
    pub intermediate: usize,
    /// Layers.
    pub layers: usize,
    /// Heads; they divide `hidden`.
    pub heads: usize,
    /// Tokens that a text may have.
    pub context: usize,
    /// Kinds of segments that the model was trained with; all of a text is of the first.
    pub segments: usize,
    /// Keeps norms from dividing by zero.
    pub norm_epsilon: f32,
    /// Pooling; if the files name none, the mean, normalised.
    pub pooling: PoolingSpec,
}

impl EncoderSpec {
    /// Whether a folder holds such a model rather than one that generates.
    pub fn describes(folder: &ModelFolder) -> Result<bool, ModelError> {
        let config = Fields::read(folder, CONFIG_FILE)?;
        Ok(config.is_some_and(|config| architecture(&config).is_some()))
    }

    /// Read and check the configuration.
    pub fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let config =
            Fields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        if architecture(&config).is_none() {
            let known = ARCHITECTURES.join(", ");
            return Err(config.wrong("architectures", format!("must begin with one of {known}")));
        }
        for (field, supported) in [
            ("hidden_act", "gelu"),
            ("position_embedding_type", "absolute"),
        ] {
            if let Some(found) = config.text(field)?
                && found != supported
            {
                let problem = format!("is {}; supported is \"{supported}\"", brief(&found.into()));
                return Err(config.wrong(field, problem));
            }
        }
        let hidden = config.required_count("hidden_size", 1..=ENCODER_HIDDEN_MAX)?;
        let heads = config.required_count("num_attention_heads", 1..=ENCODER_HIDDEN_MAX)?;
        if !hidden.is_multiple_of(heads) {
            let problem = format!("is {heads}; it must divide `hidden_size`, which is {hidden}");
            return Err(config.wrong("num_attention_heads", problem));
        }
        Ok(Self {
            vocabulary: config.required_count("vocab_size", 1..=VOCABULARY_MAX)?,
            hidden,
            intermediate: config
                .required_count("intermediate_size", 1..=ENCODER_INTERMEDIATE_MAX)?,
            layers: config.required_count("num_hidden_layers", 1..=ENCODER_LAYERS_MAX)?,
            heads,
            context: config.required_count("max_position_embeddings", 1..=ENCODER_CONTEXT_MAX)?,
            segments: config
                .count("type_vocab_size", 1..=ENCODER_SEGMENTS_MAX)?
                .unwrap_or(2),
            norm_epsilon: config.number("layer_norm_eps", 0.0..=0.1)?.unwrap_or(1e-12) as f32,
            pooling: PoolingSpec::read(folder)?.unwrap_or(PoolingSpec {
                pooling: Pooling::Mean,
                normalised: true,
            }),
        })
    }
}

/// The architecture, if it is an encoder.
fn architecture(config: &Fields) -> Option<&str> {
    let first = config.get("architectures")?.get(0)?.as_str()?;
    ARCHITECTURES.into_iter().find(|known| *known == first)
}
