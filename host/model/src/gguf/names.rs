//! What GGUF calls the tensors that safetensors files have by other names: data.

/// Names outside layers: in safetensors, in GGUF.
const WHOLE: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
];

/// What stands before a layer's number: in safetensors of decoders, of encoders, and in GGUF.
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

/// The name of the norm after attention, which most families put before the feed-forward layer.
const POST_ATTENTION: &str = "post_attention_layernorm";
/// Architectures where it stands behind attention, before what came in is added.
const NORM_BEHIND_ATTENTION: &[&str] = &["gemma2", "gemma3", "olmo2"];

/// The name that a tensor of safetensors files has in the GGUF files of an architecture; `None` if
/// they have no such tensor.
pub fn gguf_name(architecture: &str, tensor: &str) -> Option<String> {
    let (stem, ending) = match tensor.rsplit_once('.') {
        Some((stem, ending @ ("weight" | "bias"))) => (stem, ending),
        _ => return None,
    };
    if let Some((_, name)) = WHOLE.iter().find(|(known, _)| *known == stem) {
        return Some(format!("{name}.{ending}"));
    }
    let layer = stem
        .strip_prefix(LAYERS.0)
        .or_else(|| stem.strip_prefix(LAYERS.1))?;
    let (number, part) = layer.split_once('.')?;
    let number: u32 = number.parse().ok()?;
    let name = if part == POST_ATTENTION {
        if NORM_BEHIND_ATTENTION.contains(&architecture) {
            "post_attention_norm"
        } else {
            "ffn_norm"
        }
    } else {
        LAYER.iter().find(|(known, _)| *known == part)?.1
    };
    Some(format!("{}{number}.{name}.{ending}", LAYERS.2))
}
