//! What the tensors are called on disk: data, so that a family that only names them differently
//! needs no code.

/// Names of a decoder's tensors. Those of a layer follow its prefix.
#[derive(Debug)]
pub(crate) struct TensorNames {
    pub(crate) embedding: &'static str,
    pub(crate) final_norm: &'static str,
    pub(crate) head: &'static str,
    /// Stands before the layer's number and a dot.
    pub(crate) layer_prefix: &'static str,
    pub(crate) attention_norm: &'static str,
    /// Query, key and value.
    pub(crate) qkv: [&'static str; 3],
    pub(crate) query_norm: &'static str,
    pub(crate) key_norm: &'static str,
    pub(crate) attention_output: &'static str,
    pub(crate) feed_forward_norm: &'static str,
    /// Gate and up.
    pub(crate) gate_up: [&'static str; 2],
    pub(crate) down: &'static str,
}

/// The names that Llama, Mistral, Qwen2 and Qwen3 share.
pub(crate) static LLAMA_NAMES: TensorNames = TensorNames {
    embedding: "model.embed_tokens",
    final_norm: "model.norm",
    head: "lm_head",
    layer_prefix: "model.layers.",
    attention_norm: "input_layernorm",
    qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    attention_output: "self_attn.o_proj",
    feed_forward_norm: "post_attention_layernorm",
    gate_up: ["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
};
