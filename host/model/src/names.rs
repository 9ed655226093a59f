//! Tensor names, as data: a family that only renames tensors needs no code.

/// Names of a decoder's tensors, without `.weight` and `.bias`. Those of a layer follow its prefix
/// and its number.
#[derive(Debug)]
pub(crate) struct TensorNames {
    pub(crate) embedding: &'static str,
    pub(crate) final_norm: &'static str,
    pub(crate) head: &'static str,
    /// Stands before the layer's number and a dot.
    pub(crate) layer_prefix: &'static str,
    /// Norm before attention; `None` where there is none.
    pub(crate) attention_norm: Option<&'static str>,
    /// Norm after attention.
    pub(crate) attention_output_norm: Option<&'static str>,
    pub(crate) feed_forward_norm: Option<&'static str>,
    pub(crate) feed_forward_output_norm: Option<&'static str>,
    /// Query, key and value.
    pub(crate) qkv: StackNames<3>,
    pub(crate) query_norm: &'static str,
    pub(crate) key_norm: &'static str,
    /// A whole name.
    pub(crate) sinks: &'static str,
    pub(crate) attention_output: &'static str,
    pub(crate) latent: LatentNames,
    /// Gate and up.
    pub(crate) gate_up: StackNames<2>,
    pub(crate) down: &'static str,
    pub(crate) experts: ExpertNames,
}

/// Matrices that are multiplied as one.
#[derive(Debug)]
pub(crate) enum StackNames<const PARTS: usize> {
    /// Apart on disk.
    Apart([&'static str; PARTS]),
    /// One on disk too.
    Stacked(&'static str),
}

/// Names of latent attention.
#[derive(Debug)]
pub(crate) struct LatentNames {
    /// Query projection of models whose queries are not compressed.
    pub(crate) query: &'static str,
    pub(crate) query_down: &'static str,
    pub(crate) query_norm: &'static str,
    pub(crate) query_up: &'static str,
    pub(crate) kv_down: &'static str,
    pub(crate) kv_norm: &'static str,
    pub(crate) kv_up: &'static str,
}

/// Names of experts.
#[derive(Debug)]
pub(crate) struct ExpertNames {
    pub(crate) router: &'static str,
    /// A whole name.
    pub(crate) correction: &'static str,
    pub(crate) layout: ExpertLayout,
    /// Gate and up.
    pub(crate) shared_gate_up: StackNames<2>,
    pub(crate) shared_down: &'static str,
    pub(crate) shared_gate: &'static str,
}

/// Storage of the experts of a layer.
#[derive(Debug)]
pub(crate) enum ExpertLayout {
    /// Matrices of each expert, by its number.
    Apart {
        /// Stands before the expert's number and a dot.
        prefix: &'static str,
        gate_up: [&'static str; 2],
        down: &'static str,
    },
    /// One tensor for all experts, inputs before outputs, gates and ups by turns; or, with
    /// `_blocks` and `_scales`, outputs before inputs in MXFP4. Biases end in `_bias`.
    Interleaved {
        gate_up: &'static str,
        down: &'static str,
    },
}

/// The names of Llama, which most families share.
pub(crate) const LLAMA_NAMES: TensorNames = TensorNames {
    embedding: "model.embed_tokens",
    final_norm: "model.norm",
    head: "lm_head",
    layer_prefix: "model.layers.",
    attention_norm: Some("input_layernorm"),
    attention_output_norm: None,
    feed_forward_norm: Some("post_attention_layernorm"),
    feed_forward_output_norm: None,
    qkv: StackNames::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    sinks: "self_attn.sinks",
    attention_output: "self_attn.o_proj",
    latent: LatentNames {
        query: "self_attn.q_proj",
        query_down: "self_attn.q_a_proj",
        query_norm: "self_attn.q_a_layernorm",
        query_up: "self_attn.q_b_proj",
        kv_down: "self_attn.kv_a_proj_with_mqa",
        kv_norm: "self_attn.kv_a_layernorm",
        kv_up: "self_attn.kv_b_proj",
    },
    gate_up: StackNames::Apart(["mlp.gate_proj", "mlp.up_proj"]),
    down: "mlp.down_proj",
    experts: ExpertNames {
        router: "mlp.gate",
        correction: "mlp.gate.e_score_correction_bias",
        layout: ExpertLayout::Apart {
            prefix: "mlp.experts.",
            gate_up: ["gate_proj", "up_proj"],
            down: "down_proj",
        },
        shared_gate_up: StackNames::Apart([
            "mlp.shared_experts.gate_proj",
            "mlp.shared_experts.up_proj",
        ]),
        shared_down: "mlp.shared_experts.down_proj",
        shared_gate: "mlp.shared_expert_gate",
    },
};

pub(crate) static LLAMA: TensorNames = LLAMA_NAMES;

/// Gemma 2 and 3: norms before and after.
pub(crate) static GEMMA2: TensorNames = TensorNames {
    attention_output_norm: Some("post_attention_layernorm"),
    feed_forward_norm: Some("pre_feedforward_layernorm"),
    feed_forward_output_norm: Some("post_feedforward_layernorm"),
    ..LLAMA_NAMES
};

/// OLMo 2 and 3: norms after only.
pub(crate) static OLMO2: TensorNames = TensorNames {
    attention_norm: None,
    attention_output_norm: Some("post_attention_layernorm"),
    feed_forward_norm: None,
    feed_forward_output_norm: Some("post_feedforward_layernorm"),
    ..LLAMA_NAMES
};

/// Phi-3 and Phi-4: stacked on disk.
pub(crate) static PHI3: TensorNames = TensorNames {
    qkv: StackNames::Stacked("self_attn.qkv_proj"),
    gate_up: StackNames::Stacked("mlp.gate_up_proj"),
    ..LLAMA_NAMES
};

/// Mixtral.
pub(crate) static MIXTRAL: TensorNames = TensorNames {
    experts: ExpertNames {
        router: "block_sparse_moe.gate",
        layout: ExpertLayout::Apart {
            prefix: "block_sparse_moe.experts.",
            gate_up: ["w1", "w3"],
            down: "w2",
        },
        ..LLAMA_NAMES.experts
    },
    ..LLAMA_NAMES
};

/// Qwen2-MoE: its shared expert is one.
pub(crate) static QWEN2_MOE: TensorNames = TensorNames {
    experts: ExpertNames {
        shared_gate_up: StackNames::Apart([
            "mlp.shared_expert.gate_proj",
            "mlp.shared_expert.up_proj",
        ]),
        shared_down: "mlp.shared_expert.down_proj",
        ..LLAMA_NAMES.experts
    },
    ..LLAMA_NAMES
};

/// gpt-oss.
pub(crate) static GPT_OSS: TensorNames = TensorNames {
    experts: ExpertNames {
        router: "mlp.router",
        layout: ExpertLayout::Interleaved {
            gate_up: "mlp.experts.gate_up_proj",
            down: "mlp.experts.down_proj",
        },
        ..LLAMA_NAMES.experts
    },
    ..LLAMA_NAMES
};
