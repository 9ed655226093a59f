//! Tensor names of GGUF for those of safetensors files, as data.

/// Names outside layers: in safetensors, in GGUF.
const WHOLE: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("score", "cls.output"),
    ("classifier.dense", "cls"),
    ("classifier.out_proj", "cls.output"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
];

/// Prefix of a layer's number: in safetensors files of decoders, of encoders, and in GGUF.
const LAYERS: (&str, &str, &str) = ("model.layers.", "encoder.layer.", "blk.");

/// Names within a layer that mean the same in every family.
const LAYER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("self_attn.q_a_proj", "attn_q_a"),
    ("self_attn.q_a_layernorm", "attn_q_a_norm"),
    ("self_attn.q_b_proj", "attn_q_b"),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
    ("self_attn.kv_b_proj", "attn_kv_b"),
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.router", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// Names within a layer that end in neither `weight` nor `bias`: in safetensors, in GGUF.
const WHOLE_LAYER: &[(&str, &str)] = &[
    ("self_attn.sinks", "attn_sinks.weight"),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
];

/// Matrices of which a layer has many, which GGUF has in one tensor: what stands before the number
/// and behind it, and the name in GGUF.
const NUMBERED: &[(&str, &str, &str)] = &[
    ("mlp.experts.", "gate_proj", "ffn_gate_exps"),
    ("mlp.experts.", "up_proj", "ffn_up_exps"),
    ("mlp.experts.", "down_proj", "ffn_down_exps"),
    ("block_sparse_moe.experts.", "w1", "ffn_gate_exps"),
    ("block_sparse_moe.experts.", "w3", "ffn_up_exps"),
    ("block_sparse_moe.experts.", "w2", "ffn_down_exps"),
    (KEY_UPS.0, KEY_UPS.1, "attn_k_b"),
    (VALUE_UPS.0, VALUE_UPS.1, "attn_v_b"),
];

/// Prefix and suffix of a head's number in names of latent attention. Only GGUF files store heads
/// apart. Only GGUF files have them apart.
pub(crate) const KEY_UPS: (&str, &str) = ("self_attn.k_b_proj.", "key");
pub(crate) const VALUE_UPS: (&str, &str) = ("self_attn.v_b_proj.", "value");

/// A part of a tensor that holds one matrix, or one bias, after the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TensorPart {
    /// The tensor.
    pub(crate) whole: String,
    pub(crate) number: usize,
    /// The tensor that older files have for this part alone.
    pub(crate) alone: String,
}

/// The name of the norm after attention, which most families put before the feed-forward layer.
const POST_ATTENTION: &str = "post_attention_layernorm";
/// Architectures whose files call it so: where it stands behind attention, before what came in is
/// added, and gpt-oss.
const NAMED_POST_ATTENTION: &[&str] = &["gemma2", "gemma3", "olmo2", "gpt-oss"];

/// The name that a tensor of safetensors files has in the GGUF files of an architecture; `None` if
/// they have no such tensor.
pub fn gguf_name(architecture: &str, tensor: &str) -> Option<String> {
    if let Some((number, part)) = of_layer(tensor)
        && let Some((_, name)) = WHOLE_LAYER.iter().find(|(known, _)| *known == part)
    {
        return Some(format!("{}{number}.{name}", LAYERS.2));
    }
    let (stem, ending) = stem(tensor)?;
    if let Some((_, name)) = WHOLE.iter().find(|(known, _)| *known == stem) {
        return Some(format!("{name}.{ending}"));
    }
    let (number, part) = of_layer(stem)?;
    let name = if part == POST_ATTENTION {
        if NAMED_POST_ATTENTION.contains(&architecture) {
            "post_attention_norm"
        } else {
            "ffn_norm"
        }
    } else {
        LAYER.iter().find(|(known, _)| *known == part)?.1
    };
    Some(format!("{}{number}.{name}.{ending}", LAYERS.2))
}

/// The part of a GGUF tensor that is a tensor of its own in safetensors files.
pub(crate) fn gguf_part(tensor: &str) -> Option<TensorPart> {
    let (stem, ending) = stem(tensor)?;
    let (layer, part) = of_layer(stem)?;
    NUMBERED.iter().find_map(|(before, behind, name)| {
        let (number, kind) = part.strip_prefix(before)?.split_once('.')?;
        let number = number.parse().ok().filter(|_| kind == *behind)?;
        let prefix = format!("{}{layer}.", LAYERS.2);
        let single = name.strip_suffix("_exps").unwrap_or(name);
        Some(TensorPart {
            whole: format!("{prefix}{name}.{ending}"),
            number,
            alone: format!("{prefix}{single}.{number}.{ending}"),
        })
    })
}

/// A name without its ending, and the ending.
fn stem(tensor: &str) -> Option<(&str, &str)> {
    tensor
        .rsplit_once('.')
        .filter(|(_, ending)| matches!(*ending, "weight" | "bias"))
}

/// The number of the layer that a tensor belongs to, and its name there.
fn of_layer(tensor: &str) -> Option<(u32, &str)> {
    let layer = tensor
        .strip_prefix(LAYERS.0)
        .or_else(|| tensor.strip_prefix(LAYERS.1))?;
    let (number, part) = layer.split_once('.')?;
    Some((number.parse().ok()?, part))
}
