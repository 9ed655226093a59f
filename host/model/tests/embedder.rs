//! Decoders whose rows are pooled, against `transformers`, see `tests/embeddings/make_reference.py`.

mod references;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortise_model::{
    Adapter, EmbedText, Embedder, EmbedderOptions, InputError, ModelFolder, Pooling, PoolingSpec,
    RowsError, WeightPrecision,
};
use references::References;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

const DECODERS: [&str; 5] = [
    "qwen3-qk-norm",
    "mistral-window",
    "gemma3-two-ropes",
    "phi3-longrope-short",
    "deepseek-v2-lite",
];
const POOLINGS: [(&str, Pooling, &str); 3] = [
    ("mean", Pooling::Mean, "pooling_mode_mean_tokens"),
    ("first", Pooling::First, "pooling_mode_cls_token"),
    ("last", Pooling::Last, "pooling_mode_lasttoken"),
];
const MODULES: &str = r#"[
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
]"#;

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn decoder(name: &str) -> PathBuf {
    tests().join("parity/data").join(name)
}

fn load(path: &Path, options: EmbedderOptions) -> Result<Embedder, mortise_model::ModelError> {
    let folder = ModelFolder::open(path).unwrap();
    Embedder::load(&folder, WeightPrecision::AsStored, options)
}

/// The decoder's own files in a new folder.
fn copied(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(decoder(name)).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap();
        if file != "reference.safetensors" {
            std::fs::copy(&path, folder.path().join(file)).unwrap();
        }
    }
    folder
}

/// A folder as sentence-transformers lays it out.
fn sentence_transformer(name: &str, modules: &str, pooling: &str) -> tempfile::TempDir {
    let folder = copied(name);
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    std::fs::write(folder.path().join("1_Pooling/config.json"), pooling).unwrap();
    std::fs::write(folder.path().join("modules.json"), modules).unwrap();
    folder
}

/// Tokens of a text and its vector, not normalised.
fn references(name: &str, pooling: &str) -> Vec<(Vec<u32>, Vec<f32>)> {
    references_of("decoders.safetensors", name, pooling)
}

fn references_of(file: &str, name: &str, pooling: &str) -> Vec<(Vec<u32>, Vec<f32>)> {
    let file = References::read(&tests().join("embeddings/data").join(file));
    let of = |index| {
        let tokens = file.tokens(&format!("{name}.tokens.{index}"));
        (tokens, file.floats(&format!("{name}.{pooling}.{index}")))
    };
    (0..3).map(of).collect()
}

fn adapter(embedder: &Embedder, path: &str) -> Arc<Adapter> {
    let folder = ModelFolder::open(tests().join(path)).unwrap();
    let base = embedder.adapter_base().unwrap();
    Arc::new(Adapter::load(&folder, &base, 1.0).unwrap())
}

fn unit(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter().map(|value| value / length).collect()
}

fn check(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected
        .iter()
        .fold(0f32, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let error = (found - expected).abs();
        assert!(error < 1e-4 * largest, "{what}: {found} is not {expected}");
    }
}

fn check_all(what: &str, embedder: &Embedder, name: &str, pooling: &str, normalised: bool) {
    for (tokens, expected) in references(name, pooling) {
        let expected = if normalised {
            unit(&expected)
        } else {
            expected
        };
        let found = embedder.embed(&[&tokens]).unwrap().remove(0);
        check(what, &found, &expected);
    }
}

#[test]
fn pooled_rows_agree_with_transformers() {
    for name in DECODERS {
        for (kind, pooling, _) in POOLINGS {
            for normalised in [true, false] {
                let options = EmbedderOptions {
                    pooling: Some(pooling),
                    normalised: Some(normalised),
                };
                let embedder = load(&decoder(name), options).unwrap();
                check_all(&format!("{name} {kind}"), &embedder, name, kind, normalised);
            }
        }
    }
}

#[test]
fn a_folder_says_how_its_rows_are_pooled() {
    let name = "qwen3-qk-norm";
    for (kind, pooling, flag) in POOLINGS {
        let flags = format!(r#"{{"word_embedding_dimension": 64, "{flag}": true}}"#);
        let word = match kind {
            "first" => "cls",
            "last" => "lasttoken",
            other => other,
        };
        for config in [flags, format!(r#"{{"pooling_mode": "{word}"}}"#)] {
            let folder = sentence_transformer(name, MODULES, &config);
            let opened = ModelFolder::open(folder.path()).unwrap();
            assert!(Embedder::describes(&opened, EmbedderOptions::default()).unwrap());
            let embedder = load(folder.path(), EmbedderOptions::default()).unwrap();
            let normalised = true;
            assert_eq!(
                embedder.pooling(),
                PoolingSpec {
                    pooling,
                    normalised
                }
            );
            check_all(&config, &embedder, name, kind, true);
        }
    }
}

#[test]
fn vectors_keep_their_length_where_no_step_changes_it() {
    let without: Vec<&str> = MODULES
        .lines()
        .filter(|line| !line.contains("Normalize"))
        .collect();
    let without = without.join("\n").replace("Pooling\"},", "Pooling\"}");
    let pooling = r#"{"pooling_mode_lasttoken": true}"#;
    let folder = sentence_transformer("qwen3-qk-norm", &without, pooling);
    let embedder = load(folder.path(), EmbedderOptions::default()).unwrap();
    check_all("raw", &embedder, "qwen3-qk-norm", "last", false);
    // The operator has the last word.
    let options = EmbedderOptions {
        pooling: Some(Pooling::Mean),
        normalised: Some(true),
    };
    let embedder = load(folder.path(), options).unwrap();
    check_all("as told", &embedder, "qwen3-qk-norm", "mean", true);
}

#[test]
fn steps_that_are_not_computed_are_refused() {
    let last = r#"{"pooling_mode_lasttoken": true}"#;
    for (modules, pooling, expected) in [
        (MODULES.replace("Normalize", "Dense"), last, "Dense"),
        (MODULES.replace("\"1_Pooling", "\"../x"), last, "`1.path`"),
        (
            MODULES.to_owned(),
            r#"{"pooling_mode": "max"}"#,
            "`pooling_mode`",
        ),
        (MODULES.to_owned(), "{}", "`pooling_mode_mean_tokens`"),
        ("{}".to_owned(), last, "`modules.json` is not valid JSON"),
        (format!("[{}{{}}]", "{},".repeat(16)), last, "at most 16"),
    ] {
        let folder = sentence_transformer("qwen3-qk-norm", &modules, pooling);
        let error = load(folder.path(), EmbedderOptions::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// Texts that sentence-transformers would change before its tokenizer.
#[test]
fn texts_that_would_be_other_tokens_are_refused() {
    let tokenizer = |normalizer: &str| format!(r#"{{"normalizer": {normalizer}, "model": {{}}}}"#);
    let small = r#"{"type": "Lowercase"}"#;
    let bert = |small: bool| format!(r#"{{"type": "BertNormalizer", "lowercase": {small}}}"#);
    let several = format!(r#"{{"type": "Sequence", "normalizers": [{{"type": "NFC"}}, {small}]}}"#);
    let lower = r#"{"max_seq_length": 512, "do_lower_case": true}"#;
    let messages =
        r#"{"modality_config": {"text": {"method": "forward"}, "message": {"method": "forward"}}}"#;
    for (file, config, tokenizer, expected) in [
        (
            "sentence_bert_config.json",
            r#"{"max_seq_length": 9}"#,
            "{}".to_owned(),
            None,
        ),
        ("sentence_bert_config.json", lower, tokenizer(small), None),
        (
            "sentence_bert_config.json",
            lower,
            tokenizer(&several),
            None,
        ),
        (
            "sentence_bert_config.json",
            lower,
            tokenizer(&bert(true)),
            None,
        ),
        (
            "sentence_bert_config.json",
            lower,
            tokenizer(&bert(false)),
            Some("keeps capitals"),
        ),
        (
            "sentence_roberta_config.json",
            lower,
            tokenizer("null"),
            Some("keeps capitals"),
        ),
        (
            "sentence_bert_config.json",
            messages,
            "{}".to_owned(),
            Some("has `message`"),
        ),
    ] {
        let folder =
            sentence_transformer("qwen3-qk-norm", MODULES, r#"{"pooling_mode": "lasttoken"}"#);
        std::fs::write(folder.path().join(file), config).unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
        let error = load(folder.path(), EmbedderOptions::default())
            .err()
            .map(|error| error.to_string());
        match (&error, expected) {
            (None, None) => {}
            (Some(error), Some(expected)) => assert!(error.contains(expected), "{error}"),
            _ => panic!("{config}: {error:?}"),
        }
    }
}

#[test]
fn a_decoder_without_such_files_generates() {
    let folder = ModelFolder::open(decoder("qwen3-qk-norm")).unwrap();
    let describes = |options| Embedder::describes(&folder, options).unwrap();
    assert!(!describes(EmbedderOptions::default()));
    assert!(describes(EmbedderOptions {
        pooling: Some(Pooling::Last),
        normalised: None,
    }));
}

/// E5-Mistral and the like: the class of a decoder without a head, and names without a prefix.
#[test]
fn decoders_that_were_saved_without_a_head_are_read() {
    let name = "mistral-window";
    let folder = copied(name);
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    let config = config.replace("MistralForCausalLM", "MistralModel");
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let headless: Vec<(String, TensorView<'_>)> = tensors
        .iter()
        .filter_map(|(name, view)| Some((name.strip_prefix("model.")?.to_owned(), view)))
        .collect();
    assert!(headless.len() + 1 == tensors.len());
    std::fs::write(&path, safetensors::serialize(headless, None).unwrap()).unwrap();
    let embedder = load(folder.path(), EmbedderOptions::default()).unwrap();
    check_all(name, &embedder, name, "last", true);
}

#[test]
fn a_gguf_file_says_how_its_rows_are_pooled() {
    let path = tests().join("embeddings/data/phi3-last.gguf");
    let folder = ModelFolder::open(&path).unwrap();
    assert!(Embedder::describes(&folder, EmbedderOptions::default()).unwrap());
    let embedder = load(&path, EmbedderOptions::default()).unwrap();
    check_all("gguf", &embedder, "phi3-longrope-short", "last", true);
}

#[test]
fn a_text_has_the_same_bits_alone_in_a_batch_and_over_many_chunks() {
    let options = EmbedderOptions {
        pooling: Some(Pooling::Mean),
        normalised: None,
    };
    let embedder = load(&decoder("qwen3-qk-norm"), options).unwrap();
    // Together more rows than are computed at a time, with borders within texts.
    let texts: Vec<Vec<u32>> = [3_u32, 250, 1, 256, 100, 255, 17, 200]
        .map(|length| (0..length).map(|k| (k * 29 + length) % 140).collect())
        .into();
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let together = embedder.embed(&texts).unwrap();
    for (text, found) in texts.iter().zip(together) {
        assert_eq!(embedder.embed(&[text]).unwrap()[0], found);
    }
}

/// See `tests/embeddings/make_adapted.py`.
#[test]
fn feature_a1_adapters_of_embedding_models_agree_with_peft() {
    for (name, base, path) in [
        ("qwen3-all", "qwen3-qk-norm", "parity/adapters/qwen3-all"),
        (
            "qwen3-all",
            "qwen3-qk-norm",
            "parity/adapters/qwen3-all.gguf",
        ),
        (
            "phi3-stacked",
            "phi3-longrope-short",
            "parity/adapters/phi3-stacked",
        ),
        (
            "qwen3-features",
            "qwen3-qk-norm",
            "embeddings/data/qwen3-features",
        ),
    ] {
        for (kind, pooling) in [("mean", Pooling::Mean), ("last", Pooling::Last)] {
            let options = EmbedderOptions {
                pooling: Some(pooling),
                normalised: Some(false),
            };
            let embedder = load(&decoder(base), options).unwrap();
            let adapter = adapter(&embedder, path);
            for (tokens, expected) in references_of("adapted.safetensors", name, kind) {
                let text = EmbedText {
                    tokens: &tokens,
                    adapter: Some(&adapter),
                };
                let found = embedder.embed_adapted(&[text]).unwrap().remove(0);
                check(&format!("{path} {kind}"), &found, &expected);
            }
        }
    }
}

#[test]
fn texts_of_one_batch_have_the_adapters_of_their_own() {
    let options = EmbedderOptions {
        pooling: Some(Pooling::Mean),
        normalised: None,
    };
    let embedder = load(&decoder("qwen3-qk-norm"), options).unwrap();
    let all = adapter(&embedder, "parity/adapters/qwen3-all");
    let features = adapter(&embedder, "embeddings/data/qwen3-features");
    let texts: Vec<Vec<u32>> = [200_u32, 250, 1, 256, 100, 255, 17]
        .map(|length| (0..length).map(|k| (k * 31 + length) % 140).collect())
        .into();
    let turns = [None, Some(&all), Some(&features)];
    let texts: Vec<EmbedText<'_>> = texts
        .iter()
        .zip(turns.iter().cycle())
        .map(|(tokens, adapter)| EmbedText {
            tokens,
            adapter: *adapter,
        })
        .collect();
    let together = embedder.embed_adapted(&texts).unwrap();
    for (text, found) in texts.iter().zip(&together) {
        assert_eq!(embedder.embed_adapted(&[*text]).unwrap()[0], *found);
        let plain = &embedder.embed(&[text.tokens]).unwrap()[0];
        assert_eq!(text.adapter.is_none(), plain == found);
    }
}

#[test]
fn adapters_of_other_models_and_of_encoders_are_refused() {
    let options = EmbedderOptions {
        pooling: Some(Pooling::Last),
        normalised: None,
    };
    let qwen = load(&decoder("qwen3-qk-norm"), options).unwrap();
    let foreign = adapter(&qwen, "parity/adapters/qwen3-all");
    let encoder = load(&tests().join("embeddings/data/tiny-bert"), options).unwrap();
    assert!(encoder.adapter_base().is_none());
    let other = load(&decoder("mistral-window"), options).unwrap();
    for embedder in [encoder, other] {
        let text = EmbedText {
            tokens: &[1, 2],
            adapter: Some(&foreign),
        };
        let found = embedder.embed_adapted(&[text]);
        assert!(
            matches!(found, Err(RowsError::Input(InputError::Adapter))),
            "{found:?}"
        );
    }
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let options = EmbedderOptions {
        pooling: Some(Pooling::Last),
        normalised: None,
    };
    let mut embedder = load(&decoder("qwen3-qk-norm"), options).unwrap();
    embedder.limit_context(40);
    let refused = |text: &[u32]| match embedder.embed(&[&[1, 2], text]) {
        Err(RowsError::Input(error)) => error,
        other => panic!("{other:?}"),
    };
    for tokens in [0, 41] {
        let context = 40;
        assert_eq!(
            refused(&vec![1; tokens]),
            InputError::Context { tokens, context }
        );
    }
    let unknown = InputError::Token {
        token: 144,
        vocabulary: 144,
    };
    assert_eq!(refused(&[1, 144]), unknown);
}
