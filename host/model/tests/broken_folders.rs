//! Wrong model folders: each gives one clear error, whatever is wrong with it.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mortise_model::{
    GenerationDefaults, KvCache, KvPrecision, LogitRows, Model, ModelFolder, ModelInput, ModelSpec,
    RopeScaling, SequenceInput, WeightPrecision,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tempfile::TempDir;

const MODEL: &str = "qwen2-bias";
const SHARDED: &str = "qwen3-qk-norm";

fn original(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/parity/data")
        .join(name)
}

/// A copy of a model that a test may spoil.
fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(original(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

fn load(path: &Path) -> Result<Model, String> {
    let explain = |error: &dyn Error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    };
    let folder = ModelFolder::open(path).map_err(|error| explain(&error))?;
    Model::load(&folder, WeightPrecision::AsStored).map_err(|error| explain(&error))
}

fn check(path: &Path, expected: &[&str]) {
    // Not `expect_err`, which would print all weights.
    let Err(error) = load(path) else {
        panic!("the model loads; it should say {expected:?}");
    };
    for part in expected {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

fn with_config(name: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let folder = copy(name);
    let path = folder.path().join("config.json");
    let mut config = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
    folder
}

#[test]
fn missing_files_are_named() {
    check(
        Path::new("/nowhere/at/all"),
        &["cannot open model folder `/nowhere/at/all`", "No such file"],
    );
    check(
        &original(MODEL).join("config.json"),
        &["cannot open model folder", "not a directory"],
    );
    for (model, file) in [
        (MODEL, "config.json"),
        (MODEL, "model.safetensors"),
        (SHARDED, "model-00002-of-00003.safetensors"),
    ] {
        let folder = copy(model);
        fs::remove_file(folder.path().join(file)).unwrap();
        check(folder.path(), &["has no file", file]);
        fs::create_dir(folder.path().join(file)).unwrap();
        check(folder.path(), &["cannot read", file, "not a regular file"]);
    }
    let folder = copy(SHARDED);
    fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    check(folder.path(), &["has no file `model.safetensors`"]);
}

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
            json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            "quantized by \"fp8\"",
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
        ("eos_token_id", json!("</s>"), "`eos_token_id`"),
        ("eos_token_id", json!([1, -2]), "`eos_token_id`"),
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
        (
            "generation_config.json",
            "{\"top_p\": }",
            "line 1 column 11",
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

#[test]
fn tensors_that_contradict_the_configuration_are_named() {
    let vocabulary = with_config(MODEL, |config| config["vocab_size"] = json!(100));
    check(
        vocabulary.path(),
        &["`model.embed_tokens.weight`", "[144, 48]", "[100, 48]"],
    );
    let wide = with_config(MODEL, |config| config["intermediate_size"] = json!(73));
    check(
        wide.path(),
        &[
            "`model.layers.0.mlp.gate_proj.weight`",
            "[72, 48]",
            "[73, 48]",
        ],
    );
    let deep = with_config(MODEL, |config| {
        config["num_hidden_layers"] = json!(1000);
        config["layer_types"] = Value::Null;
    });
    check(
        deep.path(),
        &["tensor `model.layers.2.input_layernorm.weight` is missing"],
    );
    let untied = with_config(MODEL, |config| config["tie_word_embeddings"] = json!(false));
    check(untied.path(), &["tensor `lm_head.weight` is missing"]);
    let normed = with_config(MODEL, |config| {
        config["architectures"] = json!(["Qwen3ForCausalLM"])
    });
    check(
        normed.path(),
        &["tensor `model.layers.0.self_attn.q_norm.weight` is missing"],
    );
}

#[test]
fn damaged_weights_say_what_is_wrong() {
    let weights = fs::read(original(MODEL).join("model.safetensors")).unwrap();
    let spoiled = |bytes: &[u8], expected: &[&str]| {
        let folder = copy(MODEL);
        fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        check(
            folder.path(),
            &[&["weights file `model.safetensors` is damaged"], expected].concat(),
        );
    };
    spoiled(&[], &["0 bytes"]);
    spoiled(&weights[..5], &["5 bytes"]);
    spoiled(&weights[..100], &["header should have"]);
    spoiled(
        &weights[..weights.len() - 1],
        &["ends at byte", "and the file has"],
    );
    spoiled(&[&weights[..], b"x"].concat(), &[]);
    spoiled(
        &[&u64::MAX.to_le_bytes(), &weights[8..]].concat(),
        &["header should have"],
    );
    let header = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    spoiled(&header("{"), &["not a JSON object"]);
    spoiled(
        &header(
            r#"{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#,
        ),
        &["tensor `a` ends at byte 18446744073709551615"],
    );
    spoiled(
        &header(r#"{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,0]}}"#),
        &[],
    );
    // A file without tensors is sound, it only lacks everything.
    let folder = copy(MODEL);
    fs::write(folder.path().join("model.safetensors"), header("{}")).unwrap();
    check(
        folder.path(),
        &["tensor `model.embed_tokens.weight` is missing"],
    );
}

#[test]
fn integers_are_no_weights() {
    let folder = copy(MODEL);
    let path = folder.path().join("model.safetensors");
    let mut weights = fs::read(&path).unwrap();
    let at = weights
        .windows(5)
        .position(|window| window == b"\"F32\"")
        .unwrap();
    weights[at + 1..at + 4].copy_from_slice(b"I32");
    fs::write(&path, weights).unwrap();
    check(folder.path(), &["has type I32, which is not supported"]);
}

#[test]
fn an_index_may_not_leave_the_folder() {
    for file in [
        "../model.safetensors",
        "/etc/passwd",
        "a\\b.safetensors",
        "weights.bin",
    ] {
        let folder = copy(SHARDED);
        let index = json!({"weight_map": {"model.norm.weight": file}});
        fs::write(
            folder.path().join("model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
        check(
            folder.path(),
            &["`weight_map`", "expected a .safetensors file"],
        );
    }
}

#[test]
fn duplicated_keys_are_no_error() {
    let folder = copy(MODEL);
    let path = folder.path().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(path, config.replacen('{', "{\"hidden_size\": 1,", 1)).unwrap();
    load(folder.path()).unwrap();
}

/// What a model's configuration says, changed or as it is.
fn spec(name: &str, change: impl FnOnce(&mut Value)) -> ModelSpec {
    let folder = with_config(name, change);
    ModelSpec::read(&ModelFolder::open(folder.path()).unwrap()).unwrap()
}

fn remove(config: &mut Value, fields: &[&str]) {
    for field in fields {
        assert!(
            config
                .as_object_mut()
                .unwrap()
                .shift_remove(*field)
                .is_some()
        );
    }
}

/// As the makers of each model published it, before `transformers` 5 wrote it anew.
#[test]
fn older_configurations_are_read() {
    let old = spec("llama-rope-scaled", |config| {
        let mut scaling = config["rope_parameters"].take();
        config["rope_theta"] = scaling["rope_theta"].take();
        config["rope_scaling"] = scaling;
    });
    assert_eq!(old, spec("llama-rope-scaled", |_| {}));

    let old = spec("gemma3-two-ropes", |config| {
        remove(
            config,
            &["rope_parameters", "layer_types", "tie_word_embeddings"],
        );
        config["rope_theta"] = json!(5000.0);
        config["rope_local_base_freq"] = json!(100.0);
        config["rope_scaling"] = json!({"factor": 8.0, "rope_type": "linear"});
        config["sliding_window_pattern"] = json!(2);
    });
    assert_eq!(old, spec("gemma3-two-ropes", |_| {}));

    let published = spec("gemma3-with-vision", |config| {
        config["text_config"] = json!({
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024
        });
    });
    let sizes = (published.heads, published.kv_heads, published.head_dim);
    assert_eq!(sizes, (8, 4, 256));
    assert_eq!(
        (published.vocabulary, published.context),
        (262_208, 131_072)
    );
    let windowed = |layer: usize| published.layer_specs[layer].window;
    assert_eq!((windowed(4), windowed(5)), (Some(1024), None));
    assert_eq!(
        published.ropes[0].scaling,
        RopeScaling::Linear { factor: 8.0 }
    );
    assert_eq!(
        (published.ropes[0].theta, published.ropes[1].theta),
        (1e6, 1e4)
    );

    let old = spec("gemma2-soft-caps", |config| {
        remove(
            config,
            &["layer_types", "rope_parameters", "tie_word_embeddings"],
        );
        config["rope_theta"] = json!(10000.0);
    });
    assert_eq!(old, spec("gemma2-soft-caps", |_| {}));

    for name in ["su", "yarn", "longrope"] {
        let old = spec("phi3-longrope-long", |config| {
            remove(config, &["rope_parameters"]);
            config["rope_theta"] = json!(10000.0);
            config["partial_rotary_factor"] = json!(0.75);
            config["rope_scaling"] = json!({
                "type": name, "long_factor": [1.0, 2.5, 7.0], "short_factor": [1.0, 1.1, 1.3]
            });
        });
        assert_eq!(old, spec("phi3-longrope-long", |_| {}));
    }

    let old = spec("qwen2-window-yarn", |config| {
        remove(config, &["layer_types"])
    });
    assert_eq!(old, spec("qwen2-window-yarn", |_| {}));

    let old = spec("smollm3-no-rope", |config| {
        remove(
            config,
            &[
                "layer_types",
                "no_rope_layers",
                "rope_parameters",
                "tie_word_embeddings",
            ],
        );
        config["rope_theta"] = json!(2000000.0);
    });
    assert_eq!(old, spec("smollm3-no-rope", |_| {}));

    let old = spec("qwen3-moe-mixed", |config| {
        config["num_experts"] = config["num_local_experts"].take();
    });
    assert_eq!(old, spec("qwen3-moe-mixed", |_| {}));

    let old = spec("gpt-oss-sinks", |config| {
        remove(config, &["layer_types", "attention_bias", "swiglu_alpha"]);
        let mut scaling = config["rope_parameters"].take();
        config["rope_theta"] = scaling["rope_theta"].take();
        config["rope_scaling"] = scaling;
    });
    assert_eq!(old, spec("gpt-oss-sinks", |_| {}));

    let old = spec("deepseek-v3", |config| {
        config["topk_method"] = json!("noaux_tc");
        config["scoring_func"] = json!("sigmoid");
        config["moe_layer_freq"] = json!(1);
        let mut scaling = config["rope_parameters"].take();
        config["rope_theta"] = scaling["rope_theta"].take();
        scaling["type"] = scaling["rope_type"].take();
        config["rope_scaling"] = scaling;
    });
    assert_eq!(old, spec("deepseek-v3", |_| {}));
}

/// LongRoPE has factors for texts within the original context and others for longer ones: the limit
/// on what is served decides.
#[test]
fn the_limit_on_context_chooses_the_factors_of_longrope() {
    const LONG: &str = "phi3-longrope-long";
    let logits = |folder: &Path, limit: usize| {
        let folder = ModelFolder::open(folder).unwrap();
        let mut model = Model::load(&folder, WeightPrecision::F32).unwrap();
        model.limit_context(limit);
        let mut cache = KvCache::new(model.spec(), 1, KvPrecision::F32).unwrap();
        let mut input = ModelInput::new();
        input.push(SequenceInput {
            tokens: &[5, 6, 7, 8],
            first_position: 0,
            block_table: &[0],
            logits: LogitRows::Last,
        });
        model.forward(&input, &mut cache).unwrap()
    };
    let short_only = with_config(LONG, |config| {
        config["rope_parameters"]["long_factor"] =
            config["rope_parameters"]["short_factor"].clone();
    });
    let (limited, whole) = (logits(&original(LONG), 4), logits(&original(LONG), 256));
    assert_eq!(limited, logits(short_only.path(), 256));
    assert_ne!(limited, whole);
}

#[test]
fn generation_defaults_come_from_both_files() {
    let read = |folder: &TempDir| {
        GenerationDefaults::read(&ModelFolder::open(folder.path()).unwrap()).unwrap()
    };
    let folder = copy(MODEL);
    let defaults = read(&folder);
    assert_eq!(defaults.eos_tokens, [2, 3]);
    assert_eq!(
        (defaults.temperature, defaults.top_p, defaults.top_k),
        (Some(0.7), Some(0.9), Some(20))
    );
    assert_eq!((defaults.min_p, defaults.repetition_penalty), (None, None));
    let path = folder.path().join("generation_config.json");
    fs::write(
        &path,
        json!({"do_sample": false, "temperature": 0.7, "eos_token_id": 9}).to_string(),
    )
    .unwrap();
    let defaults = read(&folder);
    assert_eq!(
        (defaults.temperature, defaults.eos_tokens),
        (Some(0.0), vec![9])
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&folder).eos_tokens, [2, 3]);
    assert_eq!(read(&folder).temperature, None);
    fs::write(&path, json!({"top_p": 1.5}).to_string()).unwrap();
    check(
        folder.path(),
        &["`top_p` in `generation_config.json` is 1.5"],
    );
}

#[test]
fn a_cache_that_no_machine_holds_is_an_error() {
    let folder = ModelFolder::open(original(MODEL)).unwrap();
    let spec = ModelSpec::read(&folder).unwrap();
    for blocks in [usize::MAX, usize::MAX / (1 << 14), 1 << 45] {
        assert!(
            KvCache::new(&spec, blocks, KvPrecision::F32).is_err(),
            "{blocks} blocks"
        );
    }
}

const MUTATED: [&str; 3] = ["config.json", "generation_config.json", "model.safetensors"];
/// Models that between them have every kind of field.
const MUTATED_MODELS: [&str; 6] = [
    MODEL,
    "gemma3-two-ropes",
    "phi3-longrope-long",
    "qwen3-moe-mixed",
    "gpt-oss-mxfp4",
    "deepseek-v3",
];

/// A model in memory of which one file differs in a few bytes.
fn mutant(
    model: usize,
    number: usize,
    mutations: &[(Index, u8)],
    cut: Option<Index>,
) -> ModelFolder {
    static ORIGINALS: OnceLock<[[&[u8]; 3]; 6]> = OnceLock::new();
    let read = |model, name| &*fs::read(original(model).join(name)).unwrap().leak();
    let all = || MUTATED_MODELS.map(|model| MUTATED.map(|name| read(model, name)));
    let mut files = ORIGINALS.get_or_init(all)[model];
    let mut bytes = files[number].to_vec();
    // Of the weights only the header is worth changing.
    let reach = bytes.len().min(2500);
    for (place, byte) in mutations {
        bytes[place.index(reach)] = *byte;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    files[number] = bytes.leak();
    ModelFolder::embedded(&[0, 1, 2].map(|file| (MUTATED[file], files[file])))
}

/// Whatever loads can be computed with.
fn check_computes(model: &Model) {
    let mut cache = KvCache::new(model.spec(), 1, KvPrecision::F32).unwrap();
    let mut input = ModelInput::new();
    input.push(SequenceInput {
        tokens: &[0],
        first_position: 0,
        block_table: &[0],
        logits: LogitRows::Last,
    });
    let logits = model.forward(&input, &mut cache).unwrap();
    assert_eq!(logits.rows().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]
    #[test]
    fn mutants_load_or_fail_and_never_panic(
        model in 0usize..6,
        file in 0usize..3,
        mutations in prop::collection::vec((any::<Index>(), prop_oneof![any::<u8>(), b' '..b'~']), 0..4),
        cut in prop::option::weighted(0.1, any::<Index>()),
    ) {
        let folder = mutant(model, file, &mutations, cut);
        match Model::load(&folder, WeightPrecision::AsStored) {
            Ok(model) => check_computes(&model),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
