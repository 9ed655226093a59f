//! Configurations that are right in one way or another, and what is read from them.

use std::path::Path;

use mortise_model::Decoder;
use mortise_model::KvCache;
use mortise_model::KvType;
use mortise_model::LogitRows;
use mortise_model::ModelFolder;
use mortise_model::ModelInput;
use mortise_model::ModelSpec;
use mortise_model::RopeScaling;
use mortise_model::SequenceInput;
use mortise_model::WeightPrecision;
use serde_json::Value;
use serde_json::json;

use crate::{MODEL, original, with_config};

/// Spec of a model whose configuration is changed by `change`.
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

/// Configurations as the makers of each model published them, before `transformers` 5 wrote them anew.
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
        let mut model = Decoder::load(&folder, WeightPrecision::F32).unwrap();
        model.limit_context(limit);
        let mut cache = KvCache::new(model.spec(), 1, KvType::F32).unwrap();
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
fn a_cache_that_no_machine_holds_is_an_error() {
    let folder = ModelFolder::open(original(MODEL)).unwrap();
    let spec = ModelSpec::read(&folder).unwrap();
    for blocks in [usize::MAX, usize::MAX / (1 << 14), 1 << 45] {
        assert!(
            KvCache::new(&spec, blocks, KvType::F32).is_err(),
            "{blocks} blocks"
        );
    }
}
