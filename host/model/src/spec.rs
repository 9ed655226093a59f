//! The shape of a model, as `config.json` tells it and as far as it makes sense.

use mortise_kernels::kv_page::KvShape;
use serde_json::Value;

use crate::error::ModelError;
use crate::fields::{Fields, brief};
use crate::folder::ModelFolder;
use crate::rope::{RopeScaling, read_rope};

/// Name of the file that tells the shape.
pub(crate) const CONFIG_FILE: &str = "config.json";

const HIDDEN_MAX: usize = 1 << 16;
const INTERMEDIATE_MAX: usize = 1 << 20;
const LAYERS_MAX: usize = 1 << 10;
const HEADS_MAX: usize = 1 << 10;
const HEAD_DIM_MAX: usize = 1 << 10;
const VOCABULARY_MAX: usize = 1 << 22;
/// Positions stay exact in f32 up to here.
const CONTEXT_MAX: usize = 1 << 24;

/// A family of decoders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM` without a sliding window.
    Mistral,
    /// `Qwen2ForCausalLM`.
    Qwen2,
    /// `Qwen3ForCausalLM`.
    Qwen3,
}

impl Architecture {
    const ALL: [(&'static str, Self); 4] = [
        ("LlamaForCausalLM", Self::Llama),
        ("MistralForCausalLM", Self::Mistral),
        ("Qwen2ForCausalLM", Self::Qwen2),
        ("Qwen3ForCausalLM", Self::Qwen3),
    ];

    /// The name in `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }
}

/// The shape of a decoder. The sizes are consistent with one another and within sane bounds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelSpec {
    /// Family.
    pub architecture: Architecture,
    /// Tokens that the model knows.
    pub vocabulary: usize,
    /// Values that represent a token.
    pub hidden: usize,
    /// Values between the two halves of a feed-forward layer.
    pub intermediate: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; they divide the query heads.
    pub kv_heads: usize,
    /// Values of a head; even.
    pub head_dim: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// Added to the mean square in norms.
    pub norm_epsilon: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Stretching of positions.
    pub rope_scaling: RopeScaling,
    /// Whether the embedding also maps to logits.
    pub tied_embeddings: bool,
    /// Whether query, key and value have a bias.
    pub qkv_bias: bool,
    /// Whether the attention's output has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward layers have biases.
    pub feed_forward_bias: bool,
    /// Whether each head's query and key are normalised.
    pub qk_norm: bool,
}

impl ModelSpec {
    /// Read and check `config.json`.
    pub fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let config =
            Fields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        Self::from_config(&config)
    }

    /// What one layer of the cache holds for a token.
    pub fn kv_shape(&self) -> KvShape {
        KvShape {
            kv_heads: self.kv_heads,
            key_dim: self.head_dim,
            value_dim: self.head_dim,
        }
    }

    fn from_config(config: &Fields) -> Result<Self, ModelError> {
        let architecture = read_architecture(config)?;
        refuse_unsupported(config, architecture)?;
        let heads = config.required_count("num_attention_heads", 1..=HEADS_MAX)?;
        let kv_heads = config
            .count("num_key_value_heads", 1..=HEADS_MAX)?
            .unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let problem = format!("is {kv_heads}; it must divide the {heads} attention heads");
            return Err(config.wrong("num_key_value_heads", problem));
        }
        let hidden = config.required_count("hidden_size", 1..=HIDDEN_MAX)?;
        let (rope_theta, rope_scaling) = read_rope(config)?;
        let attention_bias = config.flag("attention_bias")?.unwrap_or(false);
        let qwen2 = architecture == Architecture::Qwen2;
        Ok(Self {
            architecture,
            vocabulary: config.required_count("vocab_size", 1..=VOCABULARY_MAX)?,
            hidden,
            intermediate: config.required_count("intermediate_size", 1..=INTERMEDIATE_MAX)?,
            layers: config.required_count("num_hidden_layers", 1..=LAYERS_MAX)?,
            heads,
            kv_heads,
            head_dim: read_head_dim(config, hidden, heads)?,
            context: config.required_count("max_position_embeddings", 1..=CONTEXT_MAX)?,
            norm_epsilon: config.number("rms_norm_eps", 1e-12..=0.1)?.unwrap_or(1e-6) as f32,
            rope_theta,
            rope_scaling,
            tied_embeddings: config.flag("tie_word_embeddings")?.unwrap_or(false),
            qkv_bias: qwen2 || attention_bias,
            output_bias: !qwen2 && attention_bias,
            feed_forward_bias: config.flag("mlp_bias")?.unwrap_or(false),
            qk_norm: architecture == Architecture::Qwen3,
        })
    }
}

fn read_architecture(config: &Fields) -> Result<Architecture, ModelError> {
    let found = match config.get("architectures") {
        None => return Err(config.wrong("architectures", "is missing")),
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        Some(_) => None,
    };
    let Some(found) = found else {
        return Err(config.wrong("architectures", "must be a list that begins with a name"));
    };
    let known = Architecture::ALL.iter().find(|(name, _)| *name == found);
    known
        .map(|(_, architecture)| *architecture)
        .ok_or_else(|| ModelError::UnknownArchitecture {
            found: found.chars().take(80).collect(),
            supported: Architecture::ALL.map(|(name, _)| name).join(", "),
        })
}

/// Features that change what the model computes and are not computed here.
fn refuse_unsupported(config: &Fields, architecture: Architecture) -> Result<(), ModelError> {
    if let Some(activation) = config.text("hidden_act")?
        && !matches!(activation, "silu" | "swish")
    {
        let problem = format!("is {}; supported is \"silu\"", brief(&activation.into()));
        return Err(config.wrong("hidden_act", problem));
    }
    if config.get("quantization_config").is_some() {
        let problem = "is present; quantized weights are not supported, use the original model";
        return Err(config.wrong("quantization_config", problem));
    }
    let windowed = match config.flag("use_sliding_window")? {
        Some(used) => used,
        None => matches!(architecture, Architecture::Mistral),
    };
    if windowed && let Some(window) = config.get("sliding_window") {
        let problem = format!("is {}; sliding windows are not supported", brief(window));
        return Err(config.wrong("sliding_window", problem));
    }
    if let Some(Value::Array(types)) = config.get("layer_types")
        && let Some(other) = types
            .iter()
            .find(|kind| kind.as_str() != Some("full_attention"))
    {
        let problem = format!("has {}; supported is \"full_attention\"", brief(other));
        return Err(config.wrong("layer_types", problem));
    }
    Ok(())
}

fn read_head_dim(config: &Fields, hidden: usize, heads: usize) -> Result<usize, ModelError> {
    let head_dim = match config.count("head_dim", 2..=HEAD_DIM_MAX)? {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) && hidden / heads <= HEAD_DIM_MAX => hidden / heads,
        None => {
            let problem =
                format!("is {hidden}; without `head_dim` the {heads} heads must divide it");
            return Err(config.wrong("hidden_size", problem));
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(config.wrong("head_dim", format!("is {head_dim}; it must be even")));
    }
    Ok(head_dim)
}
