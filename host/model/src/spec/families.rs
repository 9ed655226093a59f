//! The families that are supported, as data: what their configuration files leave unsaid.

use crate::names::{self, TensorNames};
use crate::spec::QkNorm;

/// End of the name of a class with a head for labels.
const LABELLED: &str = "ForSequenceClassification";

/// A family of decoders, by the name of its class in `transformers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "`Architecture::name` gives the name of the class"
)]
pub enum Architecture {
    Llama,
    Mistral,
    Ministral,
    Ministral3,
    Qwen2,
    Qwen3,
    Gemma,
    Gemma2,
    Gemma3,
    Phi3,
    Granite,
    Olmo2,
    Olmo3,
    SmolLm3,
    Mixtral,
    Qwen2Moe,
    Qwen3Moe,
    GptOss,
    DeepseekV2,
    DeepseekV3,
}

impl Architecture {
    /// All that are supported.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        FAMILIES.iter().map(|family| family.architecture)
    }

    /// The name in `config.json`: `LlamaForCausalLM` and so on.
    pub fn name(self) -> &'static str {
        self.family().class
    }

    /// True if a class is that of a family's models with a head for labels: `LlamaForSequenceClassification` and so on.
    pub(crate) fn scores(class: &str) -> bool {
        class.ends_with(LABELLED) && Self::all().any(|known| known.family().is_called(class))
    }

    pub(crate) fn family(self) -> &'static Family {
        let found = FAMILIES.iter().find(|family| family.architecture == self);
        found.unwrap_or(&FAMILIES[0])
    }
}

impl Family {
    /// Whether this is the class of its models, with a head for tokens or for labels, without one, or of those that also see.
    pub(crate) fn is_called(&self, class: &str) -> bool {
        let other = class.strip_suffix("Model").or(class.strip_suffix(LABELLED));
        self.class == class
            || self.seeing_class == Some(class)
            || other.is_some_and(|name| self.class.strip_suffix("ForCausalLM") == Some(name))
    }
}

/// Properties of a family that its configuration files do not state.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) architecture: Architecture,
    /// Name of the class in `transformers`.
    pub(crate) class: &'static str,
    /// The class of models that also see, of which the text part is one of this family.
    pub(crate) seeing_class: Option<&'static str>,
    pub(crate) names: &'static TensorNames,

    // What a field means where it is absent.
    pub(crate) sizes: Option<DefaultSizes>,
    pub(crate) norm_epsilon: f64,
    pub(crate) rope_theta: f64,
    /// Rotary base of layers with a window, in families where it differs.
    pub(crate) local_rope_theta: Option<f64>,
    /// `None` is hidden size by heads.
    pub(crate) head_dim: Option<usize>,
    pub(crate) tied_embeddings: bool,
    pub(crate) attention_bias: bool,

    // What no field says.
    /// Queries, keys and values have a bias whatever `attention_bias` says, and the output has none.
    pub(crate) qkv_bias_only: bool,
    pub(crate) qk_norm: QkNorm,
    /// Offset of norm weights.
    pub(crate) norm_offset: f32,
    /// The embedding is multiplied by the square root of its width.
    pub(crate) scaled_embedding: bool,
    pub(crate) gate: Gate,
    /// `query_pre_attn_scalar` replaces the size of a head in the scale of scores.
    pub(crate) query_scalar: bool,
    /// Soft caps of scores and of logits where their fields are absent; `None` has no such fields.
    pub(crate) soft_caps: Option<[Option<f64>; 2]>,
    pub(crate) sinks: bool,
    pub(crate) windows: WindowRule,
    /// `layer_types` is believed; elsewhere it must agree with the rule.
    pub(crate) reads_layer_types: bool,
    /// Part of a head may turn.
    pub(crate) partial_rotary: bool,
    /// Some layers have no positions.
    pub(crate) layers_without_rope: bool,
    /// `embedding_multiplier` and its kin.
    pub(crate) multipliers: bool,
    pub(crate) latent: bool,
    pub(crate) router: Option<RouterRule>,
}

/// Sizes that a family's files may leave out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefaultSizes {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) vocabulary: usize,
    pub(crate) context: usize,
}

/// Activation of the gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Silu,
    GeluTanh,
    /// Bounded by `swiglu_limit`.
    Clamped,
}

/// Layers with a sliding window, where `layer_types` is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// None.
    Never,
    /// All, if `sliding_window` is set.
    Set,
    /// All, if `use_sliding_window` is true.
    Switched,
    /// Layers from `max_window_layers` on, if `use_sliding_window` is true.
    SwitchedFrom,
    /// Layers without positions, if `use_sliding_window` is true.
    SwitchedWithoutRope,
    /// All but each of this number; `sliding_window_pattern` may say another.
    AllBut(usize),
}

/// Router of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouterRule {
    /// The best by softmax, normalised; every layer has them.
    Mixtral,
    /// The best by softmax, normalised if `norm_topk_prob`; some layers have none.
    Qwen,
    /// As Mixtral, with biases.
    GptOss,
    /// Softmax, groups by their best.
    DeepseekV2,
    /// Sigmoid with corrections, groups by their best two.
    DeepseekV3,
}

const LLAMA: Family = Family {
    architecture: Architecture::Llama,
    class: "LlamaForCausalLM",
    seeing_class: None,
    names: &names::LLAMA,
    sizes: None,
    norm_epsilon: 1e-6,
    rope_theta: 10_000.0,
    local_rope_theta: None,
    head_dim: None,
    tied_embeddings: false,
    attention_bias: false,
    qkv_bias_only: false,
    qk_norm: QkNorm::None,
    norm_offset: 0.0,
    scaled_embedding: false,
    gate: Gate::Silu,
    query_scalar: false,
    soft_caps: None,
    sinks: false,
    windows: WindowRule::Never,
    reads_layer_types: false,
    partial_rotary: false,
    layers_without_rope: false,
    multipliers: false,
    latent: false,
    router: None,
};

const GEMMA: Family = Family {
    architecture: Architecture::Gemma,
    class: "GemmaForCausalLM",
    head_dim: Some(256),
    tied_embeddings: true,
    norm_offset: 1.0,
    scaled_embedding: true,
    gate: Gate::GeluTanh,
    ..LLAMA
};

const GEMMA2: Family = Family {
    architecture: Architecture::Gemma2,
    class: "Gemma2ForCausalLM",
    names: &names::GEMMA2,
    query_scalar: true,
    soft_caps: Some([Some(50.0), Some(30.0)]),
    windows: WindowRule::AllBut(2),
    reads_layer_types: true,
    ..GEMMA
};

const OLMO2: Family = Family {
    architecture: Architecture::Olmo2,
    class: "Olmo2ForCausalLM",
    names: &names::OLMO2,
    norm_epsilon: 1e-5,
    qk_norm: QkNorm::AllHeads,
    ..LLAMA
};

const DEEPSEEK_V2: Family = Family {
    architecture: Architecture::DeepseekV2,
    class: "DeepseekV2ForCausalLM",
    latent: true,
    router: Some(RouterRule::DeepseekV2),
    ..LLAMA
};

/// All families.
pub(crate) static FAMILIES: [Family; 20] = [
    LLAMA,
    Family {
        architecture: Architecture::Mistral,
        class: "MistralForCausalLM",
        windows: WindowRule::Set,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Ministral,
        class: "MinistralForCausalLM",
        windows: WindowRule::Set,
        reads_layer_types: true,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Ministral3,
        class: "Ministral3ForCausalLM",
        norm_epsilon: 1e-5,
        head_dim: Some(128),
        windows: WindowRule::Set,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Qwen2,
        class: "Qwen2ForCausalLM",
        qkv_bias_only: true,
        windows: WindowRule::SwitchedFrom,
        reads_layer_types: true,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Qwen3,
        class: "Qwen3ForCausalLM",
        head_dim: Some(128),
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::SwitchedFrom,
        reads_layer_types: true,
        ..LLAMA
    },
    GEMMA,
    GEMMA2,
    Family {
        architecture: Architecture::Gemma3,
        class: "Gemma3ForCausalLM",
        seeing_class: Some("Gemma3ForConditionalGeneration"),
        sizes: Some(DefaultSizes {
            heads: 8,
            kv_heads: 4,
            vocabulary: 262_208,
            context: 131_072,
        }),
        rope_theta: 1_000_000.0,
        local_rope_theta: Some(10_000.0),
        qk_norm: QkNorm::PerHead,
        soft_caps: Some([None, None]),
        windows: WindowRule::AllBut(6),
        ..GEMMA2
    },
    Family {
        architecture: Architecture::Phi3,
        class: "Phi3ForCausalLM",
        names: &names::PHI3,
        norm_epsilon: 1e-5,
        windows: WindowRule::Set,
        partial_rotary: true,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Granite,
        class: "GraniteForCausalLM",
        multipliers: true,
        ..LLAMA
    },
    OLMO2,
    Family {
        architecture: Architecture::Olmo3,
        class: "Olmo3ForCausalLM",
        rope_theta: 500_000.0,
        local_rope_theta: Some(500_000.0),
        windows: WindowRule::AllBut(4),
        reads_layer_types: true,
        ..OLMO2
    },
    Family {
        architecture: Architecture::SmolLm3,
        class: "SmolLM3ForCausalLM",
        rope_theta: 2_000_000.0,
        tied_embeddings: true,
        windows: WindowRule::SwitchedWithoutRope,
        reads_layer_types: true,
        layers_without_rope: true,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Mixtral,
        class: "MixtralForCausalLM",
        names: &names::MIXTRAL,
        norm_epsilon: 1e-5,
        rope_theta: 1_000_000.0,
        windows: WindowRule::Set,
        router: Some(RouterRule::Mixtral),
        ..LLAMA
    },
    Family {
        architecture: Architecture::Qwen2Moe,
        class: "Qwen2MoeForCausalLM",
        names: &names::QWEN2_MOE,
        qkv_bias_only: true,
        reads_layer_types: true,
        router: Some(RouterRule::Qwen),
        ..LLAMA
    },
    Family {
        architecture: Architecture::Qwen3Moe,
        class: "Qwen3MoeForCausalLM",
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::Switched,
        router: Some(RouterRule::Qwen),
        ..LLAMA
    },
    Family {
        architecture: Architecture::GptOss,
        class: "GptOssForCausalLM",
        names: &names::GPT_OSS,
        norm_epsilon: 1e-5,
        rope_theta: 150_000.0,
        head_dim: Some(64),
        attention_bias: true,
        gate: Gate::Clamped,
        sinks: true,
        windows: WindowRule::AllBut(2),
        reads_layer_types: true,
        router: Some(RouterRule::GptOss),
        ..LLAMA
    },
    DEEPSEEK_V2,
    Family {
        architecture: Architecture::DeepseekV3,
        class: "DeepseekV3ForCausalLM",
        router: Some(RouterRule::DeepseekV3),
        ..DEEPSEEK_V2
    },
];
