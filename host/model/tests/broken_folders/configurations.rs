//! `config.json`: what is absurd, missing or unknown in it.

use std::fs;

use serde_json::Value;
use serde_json::json;

use crate::{MODEL, check, copy, with_config};

#[test]
fn absurd_configurations_name_the_field() {
    let table: &[(&str, Value, &str)] = &[
        (
            "num_attention_heads",
            json!(0),
            "is 0; expected an integer from 1 to 1024",
        ),
        (
            "num_attention_heads",
            json!(7),
            "it must divide the 7 attention heads",
        ),
        (
            "num_attention_heads",
            Value::Null,
            "`num_attention_heads` in `config.json` is missing",
        ),
        ("num_key_value_heads", json!(0), "`num_key_value_heads`"),
        (
            "num_key_value_heads",
            json!(4),
            "it must divide the 6 attention heads",
        ),
        (
            "num_hidden_layers",
            json!(1_000_000_000),
            "is 1000000000; expected",
        ),
        ("num_hidden_layers", json!(-1), "`num_hidden_layers`"),
        ("num_hidden_layers", json!(2.5), "`num_hidden_layers`"),
        ("num_hidden_layers", json!("2"), "`num_hidden_layers`"),
        ("hidden_size", json!(u64::MAX), "`hidden_size`"),
        ("hidden_size", json!(0), "`hidden_size`"),
        (
            "hidden_size",
            json!(49),
            "without `head_dim` the 6 heads must divide it",
        ),
        (
            "intermediate_size",
            json!([72]),
            "is [72]; expected an integer",
        ),
        ("vocab_size", json!(0), "`vocab_size`"),
        (
            "max_position_embeddings",
            json!(1_000_000_000_000u64),
            "`max_position_embeddings`",
        ),
        ("head_dim", json!(7), "is 7; it must be even"),
        ("head_dim", json!(100_000), "`head_dim`"),
        ("rms_norm_eps", json!(-1.0), "`rms_norm_eps`"),
        ("rms_norm_eps", json!("NaN"), "`rms_norm_eps`"),
        (
            "rope_parameters",
            json!({"rope_theta": -3}),
            "`rope_parameters.rope_theta`",
        ),
        (
            "rope_parameters",
            json!({"rope_theta": 0}),
            "`rope_parameters.rope_theta`",
        ),
        (
            "rope_parameters",
            json!({"rope_type": "mrope"}),
            "supported are \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\" and \"longrope\"",
        ),
        (
            "rope_parameters",
            json!({"rope_type": "yarn"}),
            "`rope_parameters.original_max_position_embeddings` in `config.json` is missing",
        ),
        (
            "rope_parameters",
            json!({"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]}),
            "`rope_parameters.short_factor` in `config.json` must be a list of 4 numbers",
        ),
        (
            "rope_parameters",
            json!({"rope_type": "longrope", "short_factor": [1, 1, 1, 0]}),
            "`rope_parameters.short_factor` in `config.json` must be a list of 4 numbers",
        ),
        (
            "rope_parameters",
            json!({"rope_type": "llama3", "factor": 8}),
            "`rope_parameters.low_freq_factor`",
        ),
        (
            "rope_parameters",
            json!(5),
            "`rope_parameters` in `config.json` is 5; expected an object",
        ),
        (
            "rope_parameters",
            json!({"partial_rotary_factor": 0.5}),
            "partial rotation",
        ),
        (
            "rope_scaling",
            json!({"type": "dynamic"}),
            "`rope_scaling.factor` in `config.json` is missing",
        ),
        (
            "tie_word_embeddings",
            json!("yes"),
            "expected true or false",
        ),
        ("hidden_act", json!("gelu"), "`hidden_act`"),
        (
            "quantization_config",
            json!({"quant_method": "awq", "bits": 4}),
            "quantized by \"awq\"; such safetensors are not read: use the original model in bf16, or a GGUF file",
        ),
        (
            "quantization_config",
            json!({"quant_method": "gptq"}),
            "quantized by \"gptq\"",
        ),
        (
            "quantization_config",
            json!({"quant_method": "fp8", "fmt": "e5m2"}),
            "quantized by \"fp8\"",
        ),
        (
            "quantization_config",
            json!({"quant_method": "compressed-tensors", "format": "pack-quantized"}),
            "quantized by \"compressed-tensors\"",
        ),
        (
            "quantization_config",
            json!({
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {"group_0": {"weights": {"type": "int", "num_bits": 8}}},
            }),
            "quantized by \"compressed-tensors\"",
        ),
        (
            "quantization_config",
            json!({
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8}}},
                "sparsity_config": {"format": "sparse-24-bitmask"},
            }),
            "quantized by \"compressed-tensors\"",
        ),
        (
            "quantization_config",
            json!({"quant_method": "mxfp4"}),
            "quantized by \"mxfp4\"",
        ),
        ("quantization_config", json!({}), "quantized by \"unknown\""),
        (
            "use_bidirectional_attention",
            json!(true),
            "tokens that see those after them are not supported",
        ),
        ("architectures", Value::Null, "`architectures`"),
        ("architectures", json!([]), "`architectures`"),
        (
            "architectures",
            json!("LlamaForCausalLM"),
            "`architectures`",
        ),
        (
            "layer_types",
            json!(["sliding_attention"]),
            "`layer_types` in `config.json` has 1 entries for 2 layers",
        ),
        (
            "layer_types",
            json!(["linear_attention", "full_attention"]),
            "has \"linear_attention\"; supported are \"full_attention\" and \"sliding_attention\"",
        ),
        (
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "`sliding_window` in `config.json` is missing",
        ),
        ("layer_types", json!("full_attention"), "expected a list"),
    ];
    for (field, value, expected) in table {
        let folder = with_config(MODEL, |config| config[field] = value.clone());
        check(folder.path(), &[expected]);
    }
}

#[test]
fn absurd_fields_of_single_families_are_named() {
    let table: &[(&str, &str, Value, &str)] = &[
        (
            "mistral-window",
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "contradicts `sliding_window`, which MistralForCausalLM applies to all layers or to none",
        ),
        (
            "mistral-window",
            "sliding_window",
            json!(0),
            "`sliding_window` in `config.json` is 0",
        ),
        (
            "gemma2-soft-caps",
            "hidden_activation",
            json!("relu"),
            "supported is \"gelu_pytorch_tanh\"",
        ),
        (
            "gemma3-with-vision",
            "text_config",
            Value::Null,
            "`text_config` in `config.json` is missing",
        ),
        (
            "gemma3-with-vision",
            "quantization_config",
            json!({"quant_method": "compressed-tensors"}),
            "quantized by \"compressed-tensors\"",
        ),
        (
            "gemma2-soft-caps",
            "attn_logit_softcapping",
            json!(0),
            "`attn_logit_softcapping`",
        ),
        (
            "granite-multipliers",
            "logits_scaling",
            json!(0),
            "`logits_scaling`",
        ),
        (
            "smollm3-no-rope",
            "no_rope_layers",
            json!([1]),
            "must hold 0 or 1 for each of the 2 layers",
        ),
        (
            "smollm3-no-rope",
            "no_rope_layers",
            json!([1, 2]),
            "must hold 0 or 1",
        ),
        (
            "mixtral-experts",
            "num_local_experts",
            json!(0),
            "`num_local_experts`",
        ),
        (
            "mixtral-experts",
            "num_local_experts",
            Value::Null,
            "`num_experts` in `config.json` is missing",
        ),
        (
            "mixtral-experts",
            "num_experts_per_tok",
            json!(5),
            "at most 4 of `num_local_experts` can be chosen",
        ),
        (
            "deepseek-v3",
            "n_group",
            json!(3),
            "it must divide the 8 experts",
        ),
        ("deepseek-v3", "topk_group", json!(5), "`topk_group`"),
        (
            "deepseek-v3",
            "num_experts_per_tok",
            json!(5),
            "at most 4 of `n_routed_experts`",
        ),
        (
            "deepseek-v3",
            "scoring_func",
            json!("softmax"),
            "`scoring_func`",
        ),
        (
            "deepseek-v3",
            "topk_method",
            json!("greedy"),
            "`topk_method`",
        ),
        (
            "deepseek-v3",
            "qk_rope_head_dim",
            json!(7),
            "`qk_rope_head_dim` in `config.json` is 7; it must be even",
        ),
        (
            "deepseek-v3",
            "kv_lora_rank",
            Value::Null,
            "`kv_lora_rank` in `config.json` is missing",
        ),
        (
            "deepseek-v2-groups",
            "topk_method",
            json!("noaux_tc"),
            "`topk_method`",
        ),
        (
            "deepseek-v2-groups",
            "norm_topk_prob",
            json!(true),
            "`norm_topk_prob`",
        ),
        (
            "deepseek-v2-groups",
            "moe_layer_freq",
            json!(2),
            "`moe_layer_freq`",
        ),
        ("gpt-oss-sinks", "swiglu_limit", json!(-1), "`swiglu_limit`"),
        (
            "gpt-oss-mxfp4",
            "intermediate_size",
            json!(63),
            "`model.layers.0.mlp.experts.gate_up_proj_bias`",
        ),
        (
            "phi3-longrope-long",
            "rope_parameters",
            json!({"partial_rotary_factor": 0.4}),
            "of 8 dimensions an even number must turn",
        ),
    ];
    let windowed = with_config("llama-rope-scaled", |config| {
        config["use_sliding_window"] = json!(true);
        config["sliding_window"] = json!(64);
    });
    let expected = "is true, which is not supported for LlamaForCausalLM";
    check(windowed.path(), &["`use_sliding_window`", expected]);
    for (model, field, value, expected) in table {
        let folder = with_config(model, |config| config[field] = value.clone());
        check(folder.path(), &[expected]);
    }
}

#[test]
fn files_that_are_no_json_say_where() {
    for (file, text, expected) in [
        ("config.json", "", "EOF"),
        ("config.json", "[1]", "expected a map"),
        ("config.json", "{\"rms_norm_eps\": NaN}", "line 1 column 18"),
        (
            "config.json",
            "{\"rms_norm_eps\": 1e999}",
            "number out of range",
        ),
    ] {
        let folder = copy(MODEL);
        fs::write(folder.path().join(file), text).unwrap();
        check(folder.path(), &[file, "is not valid JSON", expected]);
    }
    let folder = copy(MODEL);
    fs::write(folder.path().join("config.json"), "[".repeat(1_000_000)).unwrap();
    check(folder.path(), &["config.json"]);
    fs::write(folder.path().join("config.json"), " ".repeat(5 << 20)).unwrap();
    check(
        folder.path(),
        &["has 5242880 bytes; at most 4194304 are read"],
    );
}

#[test]
fn an_unknown_architecture_is_named_with_the_known_ones() {
    let folder = with_config(MODEL, |config| {
        config["architectures"] = json!(["MambaForCausalLM"])
    });
    check(
        folder.path(),
        &[
            "`MambaForCausalLM`",
            "LlamaForCausalLM",
            "MistralForCausalLM",
            "Qwen2ForCausalLM",
            "Qwen3ForCausalLM",
        ],
    );
}
