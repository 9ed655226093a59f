//! The shape of an encoder, as its configuration tells it and as far as it makes sense.

use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::limits::{
    ENCODER_CONTEXT_MAX, ENCODER_HIDDEN_MAX, ENCODER_INTERMEDIATE_MAX, ENCODER_LAYERS_MAX,
    ENCODER_SEGMENTS_MAX, VOCABULARY_MAX,
};
use crate::pooling::{Pooling, PoolingSpec, pools_by_head};

/// Classes in `config.json`, with their families, and whether a head scores pairs of texts.
const CLASSES: [(&str, EncoderFamily, bool); 8] = [
    ("BertModel", EncoderFamily::Bert, false),
    ("BertForMaskedLM", EncoderFamily::Bert, false),
    ("BertForSequenceClassification", EncoderFamily::Bert, true),
    ("RobertaModel", EncoderFamily::Roberta, false),
    (
        "RobertaForSequenceClassification",
        EncoderFamily::Roberta,
        true,
    ),
    ("XLMRobertaModel", EncoderFamily::Roberta, false),
    ("XLMRobertaForMaskedLM", EncoderFamily::Roberta, false),
    (
        "XLMRobertaForSequenceClassification",
        EncoderFamily::Roberta,
        true,
    ),
];

/// Family of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderFamily {
    /// BERT: positions are counted from 0.
    Bert,
    /// RoBERTa, and XLM-RoBERTa: positions are counted from behind the id of the padding token.
    Roberta,
}

/// The shape of an encoder of the BERT family.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncoderSpec {
    /// Family.
    pub family: EncoderFamily,
    /// True if a head on top scores pairs of texts.
    pub ranks: bool,
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
    /// Position of the first token.
    pub first_position: usize,
    /// Kinds of segments that the model was trained with; a text is of the first, and one that is compared with
    /// it of the second.
    pub segments: usize,
    /// Keeps norms from dividing by zero.
    pub norm_epsilon: f32,
    /// Pooling; if the files name none, the mean, normalised.
    pub pooling: PoolingSpec,
}

impl EncoderSpec {
    /// True if a folder holds such a model without a head: it makes vectors.
    pub fn describes(folder: &ModelFolder) -> Result<bool, ModelError> {
        Ok(ranks(folder)? == Some(false))
    }

    /// True if a folder holds such a model with a head that scores pairs of texts.
    pub fn describes_ranker(folder: &ModelFolder) -> Result<bool, ModelError> {
        Ok(ranks(folder)? == Some(true))
    }

    /// Read and check the configuration.
    pub fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let config =
            ObjectFields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        let Some((family, ranks)) = class(&config) else {
            let known = CLASSES.map(|(name, ..)| name).join(", ");
            return Err(config.wrong("architectures", format!("must begin with one of {known}")));
        };
        let in_gguf = folder.gguf().is_some();
        // A GGUF file says it by another field, and its head's shape is checked when it is read.
        if ranks && !in_gguf {
            check_labels(&config)?;
        }
        let ranks = ranks || (in_gguf && pools_by_head(&config)?);
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
        let positions =
            config.required_count("max_position_embeddings", 1..=ENCODER_CONTEXT_MAX)?;
        let first_position = first_position(&config, family, positions)?;
        Ok(Self {
            family,
            ranks,
            vocabulary: config.required_count("vocab_size", 1..=VOCABULARY_MAX)?,
            hidden,
            intermediate: config
                .required_count("intermediate_size", 1..=ENCODER_INTERMEDIATE_MAX)?,
            layers: config.required_count("num_hidden_layers", 1..=ENCODER_LAYERS_MAX)?,
            heads,
            context: positions - first_position,
            first_position,
            segments: config
                .count("type_vocab_size", 1..=ENCODER_SEGMENTS_MAX)?
                .unwrap_or(2),
            norm_epsilon: config.number("layer_norm_eps", 0.0..=0.1)?.unwrap_or(1e-12) as f32,
            // A model that ranks pools nothing.
            pooling: match ranks {
                true => None,
                false => PoolingSpec::read(folder)?,
            }
            .unwrap_or(PoolingSpec {
                pooling: Pooling::Mean,
                normalised: true,
            }),
        })
    }
}

/// Whether the model of a folder ranks; `None` if it is no encoder.
fn ranks(folder: &ModelFolder) -> Result<Option<bool>, ModelError> {
    let Some(config) = ObjectFields::read(folder, CONFIG_FILE)? else {
        return Ok(None);
    };
    let Some((_, ranks)) = class(&config) else {
        return Ok(None);
    };
    let in_gguf = folder.gguf().is_some();
    Ok(Some(ranks || (in_gguf && pools_by_head(&config)?)))
}

/// The class, if it is that of an encoder: its family, and whether it ranks.
fn class(config: &ObjectFields) -> Option<(EncoderFamily, bool)> {
    let first = config.get("architectures")?.get(0)?.as_str()?;
    let known = CLASSES.into_iter().find(|(name, ..)| *name == first);
    known.map(|(_, family, ranks)| (family, ranks))
}

/// Refuse a head with more or fewer than one label.
pub(crate) fn check_labels(config: &ObjectFields) -> Result<(), ModelError> {
    const LABELS: &str = "id2label";
    let labels = config.get(LABELS).and_then(|labels| labels.as_object());
    match labels.map(|labels| labels.len()) {
        Some(1) => Ok(()),
        found => {
            // Two is what a configuration without the field means.
            let found = found.unwrap_or(2);
            let problem = format!("has {found} labels; a model that scores pairs of texts has one");
            Err(config.wrong(LABELS, problem))
        }
    }
}

/// Position of the first token, of which there must be one.
fn first_position(
    config: &ObjectFields,
    family: EncoderFamily,
    positions: usize,
) -> Result<usize, ModelError> {
    const PADDING: &str = "pad_token_id";
    let first = match family {
        EncoderFamily::Bert => 0,
        EncoderFamily::Roberta => 1 + config.count(PADDING, 0..=VOCABULARY_MAX)?.unwrap_or(1),
    };
    match first < positions {
        true => Ok(first),
        false => Err(config.wrong(
            PADDING,
            format!("leaves no position of {positions} to a text"),
        )),
    }
}
