//! Encoders against `transformers`, see `tests/embeddings/make_reference.py`.

mod references;

use std::path::{Path, PathBuf};

use mortise_model::{Encoder, EncoderSpec, InputError, ModelFolder, Pooling, WeightPrecision};
use references::References;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/embeddings/data")
        .join(name)
}

fn load(path: &Path) -> Encoder {
    let folder = ModelFolder::open(path).unwrap();
    Encoder::load(&folder, WeightPrecision::AsStored).unwrap()
}

/// Tokens of a text and its vector.
fn references(pooling: &str) -> Vec<(Vec<u32>, Vec<f32>)> {
    let file = References::read(&data("tiny-bert/reference.safetensors"));
    let of = |index| {
        let tokens = file.tokens(&format!("tokens.{index}"));
        (tokens, file.floats(&format!("{pooling}.{index}")))
    };
    (0..3).map(of).collect()
}

fn check_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() < 1e-5,
            "{what}: {found} is not {expected}"
        );
    }
}

#[test]
fn vectors_agree_with_transformers() {
    for path in ["tiny-bert", "tiny-bert.gguf"] {
        let encoder = load(&data(path));
        assert_eq!(encoder.spec().pooling.pooling, Pooling::Mean, "{path}");
        for (tokens, expected) in references("mean") {
            let found = encoder.embed(&[&tokens]).unwrap().remove(0);
            check_close(path, &found, &expected);
        }
    }
}

#[test]
fn the_pooling_of_the_folder_is_used() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(data("tiny-bert").join(file), folder.path().join(file)).unwrap();
    }
    let pooling = folder.path().join("1_Pooling");
    std::fs::create_dir(&pooling).unwrap();
    let say = |text: &str| std::fs::write(pooling.join("config.json"), text).unwrap();
    say(r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#);
    let encoder = load(folder.path());
    for (tokens, expected) in references("first") {
        check_close("first", &encoder.embed(&[&tokens]).unwrap()[0], &expected);
    }
    for wrong in [
        r#"{"pooling_mode_max_tokens": true}"#,
        r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#,
        r#"{"pooling_mode_mean_tokens": false}"#,
    ] {
        say(wrong);
        let folder = ModelFolder::open(folder.path()).unwrap();
        let error = EncoderSpec::read(&folder).expect_err(wrong).to_string();
        assert!(error.contains("pooling_mode"), "{error}");
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_in_a_batch() {
    let encoder = load(&data("tiny-bert"));
    let texts: Vec<Vec<u32>> = references("mean")
        .into_iter()
        .map(|(tokens, _)| tokens)
        .collect();
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let together = encoder.embed(&texts).unwrap();
    for (text, found) in texts.iter().zip(together) {
        assert_eq!(encoder.embed(&[text]).unwrap()[0], found);
    }
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let encoder = load(&data("tiny-bert"));
    let context = encoder.spec().context;
    assert_eq!(
        encoder.embed(&[&vec![1; context + 1]]),
        Err(InputError::Context {
            tokens: context + 1,
            context,
        })
    );
    assert!(encoder.embed(&[&[]]).is_err());
    assert_eq!(
        encoder.embed(&[&[1, 96]]),
        Err(InputError::Token {
            token: 96,
            vocabulary: 96,
        })
    );
}
