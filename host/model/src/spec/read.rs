//! From `config.json` to a [`ModelSpec`].

use std::ops::RangeInclusive;

use mortise_kernels::gate_mul::Activation;
use mortise_kernels::rope::RopePairs;
use serde_json::Value;

use super::experts::read_experts;
use super::families::{Architecture, DefaultSizes, Family, Gate};
use super::layers::read_layers;
use super::{AttentionSpec, FeedForwardSpec, LatentSpec, ModelSpec, QueryGrowth};
use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::fp8;
use crate::limits::{
    CONTEXT_MAX, HEAD_DIM_MAX, HEADS_MAX, HIDDEN_MAX, INTERMEDIATE_MAX, LAYERS_MAX, RANK_MAX,
    VOCABULARY_MAX,
};
use crate::rope::{RopeScaling, RopeTarget, read_ropes};

/// The sizes of attention heads.
#[derive(Clone, Copy)]
struct HeadSizes {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl ModelSpec {
    /// Check the fields of a configuration file and take from them what the decoder asks about.
    pub(crate) fn from_config(config: &ObjectFields) -> Result<Self, ModelError> {
        let class = read_class(config)?;
        let family = find_family(class)?;
        refuse_unsupported(config, family)?;
        if family.seeing_class != Some(class) {
            return Self::from_text_config(config, family);
        }
        // A model that also sees: its text part has an object of its own.
        let text = config.object("text_config")?;
        let text = text.ok_or_else(|| config.wrong("text_config", "is missing"))?;
        refuse_unsupported(&text, family)?;
        Self::from_text_config(&text, family)
    }

    fn from_text_config(
        config: &ObjectFields,
        family: &'static Family,
    ) -> Result<Self, ModelError> {
        let hidden = config.required_count("hidden_size", 1..=HIDDEN_MAX)?;
        let layers = config.required_count("num_hidden_layers", 1..=LAYERS_MAX)?;
        let default = |size: fn(DefaultSizes) -> usize| family.sizes.map(size);
        let size = |field, bounds, default| read_size(config, field, bounds, default);
        let context = size(
            "max_position_embeddings",
            1..=CONTEXT_MAX,
            default(|sizes| sizes.context),
        )?;
        let latent = read_latent(config, family)?;
        let sizes = read_heads(config, family, hidden)?;
        let target = RopeTarget {
            family,
            head_dim: latent.map_or(sizes.head_dim, |latent| latent.rope_dim),
            head_dim_field: latent.map_or("head_dim", |_| "qk_rope_head_dim"),
            context,
        };
        let ropes = read_ropes(config, target)?;
        let attention =
            read_attention(config, family, sizes.head_dim, latent, &ropes.full.scaling)?;
        let experts = read_experts(config, family)?;
        let layer_specs = read_layers(config, family, layers, ropes.local.is_some())?;
        let multiplier = |field| read_multiplier(config, family, field);
        let embedding_scale = if family.scaled_embedding {
            (hidden as f32).sqrt()
        } else {
            multiplier("embedding_multiplier")?
        };
        let epsilon = config.number("rms_norm_eps", 1e-12..=0.1)?;
        Ok(Self {
            architecture: family.architecture,
            vocabulary: size(
                "vocab_size",
                1..=VOCABULARY_MAX,
                default(|sizes| sizes.vocabulary),
            )?,
            hidden,
            layers,
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
            context,
            norm_epsilon: epsilon.unwrap_or(family.norm_epsilon) as f32,
            tied_embeddings: config
                .flag("tie_word_embeddings")?
                .unwrap_or(family.tied_embeddings),
            embedding_scale,
            residual_scale: multiplier("residual_multiplier")?,
            logit_scale: 1.0 / multiplier("logits_scaling")?,
            logit_soft_cap: read_soft_cap(config, family, 1)?,
            attention,
            feed_forward: FeedForwardSpec {
                intermediate: config.required_count("intermediate_size", 1..=INTERMEDIATE_MAX)?,
                bias: config.flag("mlp_bias")?.unwrap_or(false),
                activation: read_activation(config, family)?,
                experts,
            },
            ropes: [Some(ropes.full), ropes.local]
                .into_iter()
                .flatten()
                .collect(),
            layer_specs,
        })
    }
}

/// The name of the model's class.
fn read_class(config: &ObjectFields) -> Result<&str, ModelError> {
    let found = match config.get("architectures") {
        None => return Err(config.wrong("architectures", "is missing")),
        Some(Value::Array(names)) => names.first().and_then(Value::as_str),
        Some(_) => None,
    };
    found.ok_or_else(|| config.wrong("architectures", "must be a list that begins with a name"))
}

fn find_family(class: &str) -> Result<&'static Family, ModelError> {
    let mut families = Architecture::all().map(Architecture::family);
    families
        .find(|family| family.is_called(class))
        .ok_or_else(|| {
            let supported: Vec<&str> = Architecture::all().map(Architecture::name).collect();
            ModelError::UnknownArchitecture {
                found: class.chars().take(80).collect(),
                supported: supported.join(", "),
            }
        })
}

/// A size that some families' files leave out.
fn read_size(
    config: &ObjectFields,
    field: &str,
    bounds: RangeInclusive<usize>,
    default: Option<usize>,
) -> Result<usize, ModelError> {
    match config.count(field, bounds)?.or(default) {
        Some(size) => Ok(size),
        None => Err(config.wrong(field, "is missing")),
    }
}

/// Features that change what the model computes and are not computed here.
fn refuse_unsupported(config: &ObjectFields, family: &Family) -> Result<(), ModelError> {
    if let Some(quantization) = config.object("quantization_config")? {
        let method = quantization.text("quant_method")?.unwrap_or("unknown");
        let blocks = family.architecture == Architecture::GptOss && method == "mxfp4";
        if !blocks && !fp8::is_described_by(&quantization)? {
            let problem = format!(
                "says that the weights are quantized by {}; such safetensors are not read: \
                 use the original model in bf16, or a GGUF file of it",
                brief(&method.into())
            );
            return Err(config.wrong("quantization_config", problem));
        }
    }
    if config.flag("use_bidirectional_attention")? == Some(true) {
        let problem = "is true; tokens that see those after them are not supported";
        return Err(config.wrong("use_bidirectional_attention", problem));
    }
    Ok(())
}

fn read_activation(config: &ObjectFields, family: &Family) -> Result<Activation, ModelError> {
    let (field, found) = match config.text("hidden_activation")? {
        Some(found) => ("hidden_activation", Some(found)),
        None => ("hidden_act", config.text("hidden_act")?),
    };
    let silu = ["silu", "swish"].as_slice();
    let (names, activation) = match family.gate {
        Gate::Silu => (silu, Activation::Silu),
        // The first Gemma was published with a wrong name of what it computes.
        Gate::GeluTanh if field == "hidden_act" => (
            ["gelu_pytorch_tanh", "gelu"].as_slice(),
            Activation::GeluTanh,
        ),
        Gate::GeluTanh => (["gelu_pytorch_tanh"].as_slice(), Activation::GeluTanh),
        Gate::Clamped => {
            let number = |field, default| {
                let number = config.number(field, 1e-3..=1e6)?;
                Ok::<_, ModelError>(number.unwrap_or(default) as f32)
            };
            let alpha = number("swiglu_alpha", 1.702)?;
            let limit = number("swiglu_limit", 7.0)?;
            (silu, Activation::ClampedSwish { alpha, limit })
        }
    };
    match found {
        Some(found) if !names.contains(&found) => {
            let shown = brief(&found.into());
            Err(config.wrong(field, format!("is {shown}; supported is \"{}\"", names[0])))
        }
        _ => Ok(activation),
    }
}

fn read_heads(
    config: &ObjectFields,
    family: &Family,
    hidden: usize,
) -> Result<HeadSizes, ModelError> {
    let default = family.sizes.map(|sizes| sizes.heads);
    let heads = read_size(config, "num_attention_heads", 1..=HEADS_MAX, default)?;
    let kv_heads = config.count("num_key_value_heads", 1..=HEADS_MAX)?;
    let default = family.sizes.map_or(heads, |sizes| sizes.kv_heads);
    let kv_heads = kv_heads.unwrap_or(default);
    if !heads.is_multiple_of(kv_heads) {
        let problem = format!("is {kv_heads}; it must divide the {heads} attention heads");
        return Err(config.wrong("num_key_value_heads", problem));
    }
    let divided = hidden.is_multiple_of(heads) && hidden / heads <= HEAD_DIM_MAX;
    let head_dim = match config
        .count("head_dim", 2..=HEAD_DIM_MAX)?
        .or(family.head_dim)
    {
        Some(head_dim) => head_dim,
        None if divided => hidden / heads,
        None => {
            let problem =
                format!("is {hidden}; without `head_dim` the {heads} heads must divide it");
            return Err(config.wrong("hidden_size", problem));
        }
    };
    Ok(HeadSizes {
        heads,
        kv_heads,
        head_dim,
    })
}

fn read_latent(config: &ObjectFields, family: &Family) -> Result<Option<LatentSpec>, ModelError> {
    if !family.latent {
        return Ok(None);
    }
    let dim = |field| config.required_count(field, 1..=HEAD_DIM_MAX);
    Ok(Some(LatentSpec {
        query_rank: config.count("q_lora_rank", 1..=RANK_MAX)?,
        kv_rank: config.required_count("kv_lora_rank", 1..=RANK_MAX)?,
        plain_dim: dim("qk_nope_head_dim")?,
        rope_dim: dim("qk_rope_head_dim")?,
        value_dim: dim("v_head_dim")?,
    }))
}

fn read_attention(
    config: &ObjectFields,
    family: &Family,
    head_dim: usize,
    latent: Option<LatentSpec>,
    scaling: &RopeScaling,
) -> Result<AttentionSpec, ModelError> {
    let bias = config.flag("attention_bias")?;
    let bias = bias.unwrap_or(family.attention_bias);
    let interleaved = latent.is_some() && config.flag("rope_interleave")?.unwrap_or(true);
    Ok(AttentionSpec {
        qkv_bias: match family.qkv_bias_only {
            true => config.flag("qkv_bias")?.unwrap_or(true),
            false => bias,
        },
        output_bias: bias && !family.qkv_bias_only,
        qk_norm: family.qk_norm,
        scale: read_scale(config, family, head_dim, latent, scaling)?,
        soft_cap: read_soft_cap(config, family, 0)?,
        sinks: family.sinks,
        rope_pairs: if interleaved {
            RopePairs::Neighbours
        } else {
            RopePairs::Halves
        },
        latent,
        query_growth: read_query_growth(config, family)?,
    })
}

/// Factor of the products of queries and keys.
fn read_scale(
    config: &ObjectFields,
    family: &Family,
    head_dim: usize,
    latent: Option<LatentSpec>,
    scaling: &RopeScaling,
) -> Result<f32, ModelError> {
    if family.multipliers {
        return read_multiplier(config, family, "attention_multiplier");
    }
    let (size, factor) = match (latent, scaling) {
        (Some(latent), RopeScaling::Yarn { score_factor, .. }) => {
            ((latent.plain_dim + latent.rope_dim) as f64, *score_factor)
        }
        (Some(latent), _) => ((latent.plain_dim + latent.rope_dim) as f64, 1.0),
        (None, _) if family.query_scalar => {
            let scalar = config.number("query_pre_attn_scalar", 1e-3..=1e6)?;
            (scalar.unwrap_or(256.0), 1.0)
        }
        (None, _) => (head_dim as f64, 1.0),
    };
    Ok((factor / size.sqrt()) as f32)
}

/// A multiplier of Granite; 1 elsewhere.
fn read_multiplier(
    config: &ObjectFields,
    family: &Family,
    field: &'static str,
) -> Result<f32, ModelError> {
    if !family.multipliers {
        return Ok(1.0);
    }
    let multiplier = config.number(field, 1e-6..=1e6)?;
    Ok(multiplier.unwrap_or(1.0) as f32)
}

/// The soft cap of scores (0) or of logits (1).
fn read_soft_cap(
    config: &ObjectFields,
    family: &Family,
    which: usize,
) -> Result<Option<f32>, ModelError> {
    let Some(defaults) = family.soft_caps else {
        return Ok(None);
    };
    let field = ["attn_logit_softcapping", "final_logit_softcapping"][which];
    let cap = match config.has(field) {
        true => config.number(field, 1e-3..=1e6)?,
        false => defaults[which],
    };
    Ok(cap.map(|cap| cap as f32))
}

fn read_query_growth(
    config: &ObjectFields,
    family: &Family,
) -> Result<Option<QueryGrowth>, ModelError> {
    if family.architecture != Architecture::Ministral3 {
        return Ok(None);
    }
    let Some(parameters) = config.object("rope_parameters")? else {
        return Ok(None);
    };
    let Some(beta) = parameters.number("llama_4_scaling_beta", 0.0..=1e3)? else {
        return Ok(None);
    };
    let original_context =
        parameters.required_count("original_max_position_embeddings", 1..=CONTEXT_MAX)?;
    Ok(Some(QueryGrowth {
        beta,
        original_context,
    }))
}
