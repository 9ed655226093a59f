//! Models that score pairs of texts, against `transformers`, see `tests/embeddings/make_rankers.py`.

use std::path::{Path, PathBuf};

use mortise_model::{
    Embedder, EmbedderOptions, EncoderText, ModelFolder, Reranker, RerankerKind, WeightPrecision,
};
use serde_json::{Value, json};

const RANKERS: [&str; 3] = ["ranker-bert", "ranker-roberta", "ranker-modern"];
const CLASSIFIERS: [&str; 2] = ["ranker-qwen3", "ranker-llama"];

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn data(name: &str) -> PathBuf {
    tests().join("embeddings/data").join(name)
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn references(path: &Path) -> Vec<Value> {
    read(path).as_array().unwrap().clone()
}

fn tokens(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn close(what: &str, found: f32, expected: &Value) {
    let expected = expected.as_f64().unwrap() as f32;
    assert!(
        (found - expected).abs() < 2e-4 * expected.abs().max(1.0),
        "{what}: {found} is not {expected}"
    );
}

fn load(path: &Path) -> Reranker {
    let folder = ModelFolder::open(path).unwrap();
    assert_eq!(
        Reranker::describes(&folder).unwrap(),
        Some(RerankerKind::Encoder)
    );
    assert!(!Embedder::describes(&folder, EmbedderOptions::default()).unwrap());
    Reranker::load(&folder, WeightPrecision::AsStored).unwrap()
}

/// A folder with other members of `config.json`, and without files that are not the model's.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = data(name);
    std::fs::copy(
        from.join("model.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let mut config = read(&from.join("config.json"));
    change(&mut config);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

#[test]
fn scores_of_encoders_agree_with_transformers() {
    for name in RANKERS {
        let model = load(&data(name));
        assert_eq!(model.context(), 48);
        for entry in references(&data(name).join("reference.json")) {
            let tokens = tokens(&entry["tokens"]);
            let pair = EncoderText {
                tokens: &tokens,
                second: number(&entry["second"]),
            };
            let found = model.score(&[pair]).unwrap();
            close(name, found[0], &entry["logit"]);
        }
    }
}

#[test]
fn a_pair_has_the_same_bits_alone_and_in_a_batch() {
    for name in RANKERS {
        let model = load(&data(name));
        let entries = references(&data(name).join("reference.json"));
        let read = entries
            .iter()
            .map(|entry| (tokens(&entry["tokens"]), number(&entry["second"])));
        let read: Vec<(Vec<u32>, usize)> = read.collect();
        let pairs = read.iter().map(|(tokens, second)| EncoderText {
            tokens,
            second: *second,
        });
        let pairs: Vec<EncoderText<'_>> = pairs.collect();
        let together = model.score(&pairs).unwrap();
        for (pair, found) in pairs.iter().zip(together) {
            assert_eq!(model.score(&[*pair]).unwrap(), [found]);
        }
    }
}

#[test]
fn the_vectors_of_an_encoder_without_its_head_agree_with_transformers() {
    for (name, class) in [
        ("ranker-roberta", "XLMRobertaModel"),
        ("ranker-modern", "ModernBertModel"),
    ] {
        let folder = changed(name, |config| {
            config["architectures"] = json!([class]);
        });
        let folder = ModelFolder::open(folder.path()).unwrap();
        assert_eq!(Reranker::describes(&folder).unwrap(), None);
        let options = EmbedderOptions::default();
        assert!(Embedder::describes(&folder, options).unwrap());
        let model = Embedder::load(&folder, WeightPrecision::AsStored, options).unwrap();
        for entry in references(&data(&format!("{name}/reference.json"))) {
            let tokens = tokens(&entry["single"]);
            let found = model.embed(&[&tokens]).unwrap().remove(0);
            let expected = entry["vector"].as_array().unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                close(name, *found, expected);
            }
        }
    }
}

#[test]
fn scores_of_decoders_agree_with_transformers() {
    let entries = references(&data("yes-no.json"));
    let tied = |tied: bool| entries.iter().any(|entry| entry["tied"] == tied);
    assert!(tied(true) && tied(false));
    for entry in &entries {
        let name = entry["model"].as_str().unwrap();
        let folder = ModelFolder::open(tests().join("parity/data").join(name)).unwrap();
        assert_eq!(Reranker::describes(&folder).unwrap(), None);
        let [yes, no] = ["yes", "no"].map(|answer| number(&entry[answer]) as u32);
        let load = |answers| Reranker::load_decoder(&folder, WeightPrecision::AsStored, answers);
        let tokens = tokens(&entry["tokens"]);
        let second = tokens.len();
        let pair = EncoderText {
            tokens: &tokens,
            second,
        };
        let mut model = load((yes, no)).unwrap();
        close(name, model.score(&[pair]).unwrap()[0], &entry["logit"]);
        let turned = load((no, yes)).unwrap().score(&[pair, pair]).unwrap();
        close(name, -turned[1], &entry["logit"]);
        model.limit_context(6);
        assert_eq!(model.score(&[pair]).is_ok(), tokens.len() <= 6);
        let error = load((yes, 144)).unwrap_err().to_string();
        assert!(error.contains("`vocab_size`"), "{error}");
    }
}

/// A GGUF file that llama.cpp's converter makes of BERT lacks the first layer of its head.
#[test]
fn scores_of_gguf_files_agree_with_transformers() {
    for (file, folder, member) in [
        ("ranker-roberta.gguf", "ranker-roberta", "logit"),
        ("ranker-bert.gguf", "ranker-bert", "direct"),
    ] {
        let model = load(&data(file));
        assert_eq!(model.context(), 48);
        for entry in references(&data(folder).join("reference.json")) {
            let tokens = tokens(&entry["tokens"]);
            let pair = EncoderText {
                tokens: &tokens,
                second: number(&entry["second"]),
            };
            close(file, model.score(&[pair]).unwrap()[0], &entry[member]);
        }
    }
    let folder = ModelFolder::open(data("ranker-qwen3.gguf")).unwrap();
    let found = Reranker::describes(&folder).unwrap();
    assert_eq!(found, Some(RerankerKind::Classifier));
    let model = Reranker::load_classifier(&folder, WeightPrecision::AsStored).unwrap();
    let mut compared = 0;
    for entry in references(&data("yes-no.json")) {
        if entry["model"] == "qwen3-qk-norm" {
            let tokens = tokens(&entry["tokens"]);
            let pair = EncoderText {
                tokens: &tokens,
                second: tokens.len(),
            };
            close("qwen3", model.score(&[pair]).unwrap()[0], &entry["logit"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
}

#[test]
fn scores_of_decoders_with_a_head_agree_with_transformers() {
    for name in CLASSIFIERS {
        let folder = ModelFolder::open(data(name)).unwrap();
        let found = Reranker::describes(&folder).unwrap();
        assert_eq!(found, Some(RerankerKind::Classifier));
        assert!(!Embedder::describes(&folder, EmbedderOptions::default()).unwrap());
        let model = Reranker::load_classifier(&folder, WeightPrecision::AsStored).unwrap();
        for entry in references(&data(name).join("reference.json")) {
            let mut tokens = tokens(&entry["tokens"]);
            let score = |tokens: &[u32]| {
                let second = tokens.len();
                model.score(&[EncoderText { tokens, second }]).unwrap()[0]
            };
            close(name, score(&tokens), &entry["logit"]);
            // The row of padding is never the one that is scored.
            if tokens.len() < model.context() {
                tokens.push(1);
                close(name, score(&tokens), &entry["logit"]);
            }
        }
    }
}

#[test]
fn a_step_of_sentence_transformers_tells_of_a_decoder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("config.json"),
        r#"{"architectures": ["Qwen3ForCausalLM"]}"#,
    )
    .unwrap();
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_LogitScore",
         "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"},
    ]);
    std::fs::write(folder.path().join("modules.json"), modules.to_string()).unwrap();
    let folder = ModelFolder::open(folder.path()).unwrap();
    assert_eq!(
        Reranker::describes(&folder).unwrap(),
        Some(RerankerKind::Decoder)
    );
}

#[test]
fn heads_that_are_not_computed_are_refused() {
    let refused = |name, change: &dyn Fn(&mut Value)| {
        let folder = changed(name, change);
        let folder = ModelFolder::open(folder.path()).unwrap();
        let error = Reranker::load(&folder, WeightPrecision::AsStored).unwrap_err();
        error.to_string()
    };
    for name in RANKERS {
        let two = json!({"0": "no", "1": "yes"});
        let error = refused(name, &|config| config["id2label"] = two.clone());
        assert!(error.contains("has 2 labels"), "{error}");
        let error = refused(name, &|config| config["id2label"] = Value::Null);
        assert!(error.contains("has 2 labels"), "{error}");
    }
    for name in CLASSIFIERS {
        let folder = changed(name, |config| {
            config["id2label"] = json!({"0": "no", "1": "yes"});
        });
        let folder = ModelFolder::open(folder.path()).unwrap();
        let error = Reranker::load_classifier(&folder, WeightPrecision::AsStored).unwrap_err();
        assert!(error.to_string().contains("has 2 labels"), "{error}");
    }
    for (field, value) in [
        ("norm_bias", json!(true)),
        ("classifier_bias", json!(true)),
        ("hidden_activation", json!("relu")),
        ("classifier_pooling", json!("max")),
        ("layer_types", json!(["full_attention"])),
        ("layer_types", json!(vec!["linear_attention"; 5])),
        ("num_attention_heads", json!(5)),
        (
            "rope_type",
            json!({"full_attention": {"rope_type": "yarn"}}),
        ),
    ] {
        let error = refused("ranker-modern", &|config| {
            let name = if field == "rope_type" {
                "rope_parameters"
            } else {
                field
            };
            config[name] = value.clone();
        });
        assert!(error.contains(field), "{field}: {error}");
    }
    let error = refused("ranker-roberta", &|config| {
        config["pad_token_id"] = json!(49);
    });
    assert!(error.contains("`pad_token_id`"), "{error}");
    let pair = EncoderText {
        tokens: &[1; 49],
        second: 49,
    };
    for name in RANKERS {
        assert!(load(&data(name)).score(&[pair]).is_err(), "{name}");
    }
}
