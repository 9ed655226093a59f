//! Generation settings of model folders and GGUF files.

use std::error::Error;
use std::fs;

use mortise_model::{GenerationConfig, ModelFolder};
use mortise_test_support::gguf_file::{GgufFile, f32, text, u32};
use proptest::prelude::*;
use serde_json::{Value, json};

const VOCABULARY: usize = 2048;

/// Read the settings of a folder with these files; null is no file.
fn read(config: &Value, generation: &Value) -> Result<GenerationConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    for (file, content) in [
        ("config.json", config),
        ("generation_config.json", generation),
    ] {
        if !content.is_null() {
            fs::write(folder.path().join(file), content.to_string()).unwrap();
        }
    }
    let folder = ModelFolder::open(folder.path()).unwrap();
    GenerationConfig::read(&folder, VOCABULARY).map_err(|error| error.to_string())
}

fn eos(config: Value, generation: Value) -> Vec<u32> {
    read(&config, &generation).unwrap().eos_tokens
}

fn refused(config: Value, generation: Value, expected: &str) {
    let error = read(&config, &generation).unwrap_err();
    assert!(
        error.contains(expected),
        "`{error}` does not say `{expected}`"
    );
}

#[test]
fn end_tokens_of_the_model_count_without_a_generation_config() {
    let model = json!({"eos_token_id": [2041, 13]});
    assert_eq!(eos(model.clone(), Value::Null), [2041, 13]);
    assert_eq!(eos(json!({"eos_token_id": 7}), Value::Null), [7]);
    assert_eq!(eos(json!({"eos_token_id": null}), Value::Null), [0; 0]);
    assert_eq!(eos(Value::Null, Value::Null), [0; 0]);
    // The other file has no end tokens.
    assert_eq!(eos(model.clone(), json!({"temperature": 0.5})), [2041, 13]);
    assert_eq!(
        eos(model.clone(), json!({"eos_token_id": null})),
        [2041, 13]
    );
    assert_eq!(eos(model.clone(), json!({"eos_token_id": []})), [2041, 13]);
    assert_eq!(eos(model, json!({"eos_token_id": [5]})), [5]);
    // Models of several parts name them at the top, beside the text decoder, or within it.
    let text = json!({"text_config": {"eos_token_id": 106}});
    assert_eq!(eos(text, Value::Null), [106]);
    let both = json!({"eos_token_id": [1, 106], "text_config": {"eos_token_id": 1}});
    assert_eq!(eos(both, Value::Null), [1, 106]);
}

#[test]
fn sampling_settings_of_the_model_count_without_a_generation_config() {
    let model = json!({
        "temperature": 0.6, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
        "repetition_penalty": 1.1, "max_new_tokens": 99, "eos_token_id": 3,
        "text_config": {"temperature": 0.1, "top_k": 1},
    });
    let found = read(&model, &Value::Null).unwrap();
    let numbers = (
        found.temperature,
        found.top_p,
        found.min_p,
        found.repetition_penalty,
    );
    assert_eq!(numbers, (Some(0.6), Some(0.9), Some(0.05), Some(1.1)));
    assert_eq!((found.top_k, found.max_tokens), (Some(40), Some(99)));
    // One file counts, not a mixture, but for the end tokens.
    let found = read(&model, &json!({"top_p": 0.8})).unwrap();
    assert_eq!(
        (found.temperature, found.top_p, found.top_k),
        (None, Some(0.8), None)
    );
    assert_eq!((found.max_tokens, found.eos_tokens), (None, vec![3]));
    let greedy = json!({"do_sample": false, "temperature": 0.7});
    assert_eq!(read(&model, &greedy).unwrap().temperature, Some(0.0));
    assert_eq!(read(&greedy, &Value::Null).unwrap().temperature, Some(0.0));
    let within = json!({"text_config": {"temperature": 0.3}});
    assert_eq!(read(&within, &Value::Null).unwrap().temperature, Some(0.3));
}

#[test]
fn tokens_that_the_model_lacks_are_refused_by_name() {
    let last = json!({"eos_token_id": VOCABULARY - 1});
    assert_eq!(eos(last.clone(), Value::Null), [2047]);
    assert_eq!(eos(Value::Null, last), [2047]);
    for id in [
        json!(VOCABULARY),
        json!(1_000_000_000),
        json!(u64::MAX),
        json!(-1),
        json!(1.5),
        json!("</s>"),
    ] {
        for value in [
            json!({"eos_token_id": id}),
            json!({"eos_token_id": [1, id]}),
        ] {
            let said = format!("names token {id}; the model has tokens 0 to 2047");
            refused(
                value.clone(),
                Value::Null,
                &format!("`eos_token_id` in `config.json` {said}"),
            );
            let said = format!("`eos_token_id` in `generation_config.json` {said}");
            refused(json!({"eos_token_id": 1}), value, &said);
        }
    }
    let many = json!({"eos_token_id": vec![1; 257]});
    refused(many, Value::Null, "has 257 entries; at most 256 are read");
}

#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    for (field, value, expected) in [
        (
            "temperature",
            json!(-0.1),
            "is -0.1; expected a number from 0 to 100",
        ),
        (
            "temperature",
            json!("warm"),
            "is \"warm\"; expected a number",
        ),
        ("top_p", json!(1.5), "is 1.5; expected a number from 0 to 1"),
        ("min_p", json!(-1), "is -1; expected a number from 0 to 1"),
        (
            "top_k",
            json!(-1),
            "is -1; expected an integer from 0 to 4294967295",
        ),
        (
            "repetition_penalty",
            json!(0),
            "is 0; expected a number from 0.001 to 100",
        ),
        (
            "max_new_tokens",
            json!(0),
            "is 0; expected an integer from 1",
        ),
        ("do_sample", json!(1), "is 1; expected true or false"),
    ] {
        let mut settings = json!({});
        settings[field] = value;
        for file in ["config.json", "generation_config.json"] {
            let expected = format!("`{field}` in `{file}` {expected}");
            match file {
                "config.json" => refused(settings.clone(), Value::Null, &expected),
                _ => refused(Value::Null, settings.clone(), &expected),
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("generation_config.json"),
        "{\"top_p\": }",
    )
    .unwrap();
    let folder = ModelFolder::open(folder.path()).unwrap();
    let error = GenerationConfig::read(&folder, VOCABULARY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`generation_config.json` is not valid JSON"
    );
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("line 1 column 11"), "{cause}");
}

fn read_gguf(entries: &[(&str, Vec<u8>)]) -> Result<GenerationConfig, String> {
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("llama"));
    for (key, value) in entries {
        file.entry(key, value.clone());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let folder = ModelFolder::open(&path).unwrap();
    GenerationConfig::read(&folder, VOCABULARY).map_err(|error| error.to_string())
}

#[test]
fn gguf_files_name_several_ends_and_sampling_settings() {
    let found = read_gguf(&[
        ("tokenizer.ggml.eos_token_id", u32(2)),
        ("tokenizer.ggml.eot_token_id", u32(32)),
        ("tokenizer.ggml.eom_token_id", u32(31)),
        ("general.sampling.temp", f32(0.6)),
        ("general.sampling.top_k", u32(20)),
    ])
    .unwrap();
    assert_eq!(found.eos_tokens, [2, 32, 31]);
    assert_eq!((found.temperature, found.top_k), (Some(0.6), Some(20)));
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let key = format!("tokenizer.ggml.{key}");
        let error = read_gguf(&[(&key, u32(1_000_000_000))]).unwrap_err();
        assert!(
            error.contains(&format!(
                "`{key}` in `GGUF metadata` names token 1000000000"
            )),
            "{error}"
        );
    }
    let error = read_gguf(&[("general.sampling.top_p", f32(2.0))]).unwrap_err();
    assert!(
        error.contains("`general.sampling.top_p` in `GGUF metadata` is 2"),
        "{error}"
    );
}

proptest! {
    /// Every token id that is read from a file is a token of the model, and every such id of the file is read.
    #[test]
    fn ids_that_are_read_are_those_of_the_file(
        ids in prop::collection::vec(prop_oneof![0u64..VOCABULARY as u64, any::<u64>()], 0..6),
        in_config: bool,
    ) {
        let file = json!({"eos_token_id": ids});
        let found = match in_config {
            true => read(&file, &Value::Null),
            false => read(&Value::Null, &file),
        };
        let all_known = ids.iter().all(|id| *id < VOCABULARY as u64);
        prop_assert_eq!(found.is_ok(), all_known);
        if let Ok(found) = found {
            let found: Vec<u64> = found.eos_tokens.into_iter().map(u64::from).collect();
            prop_assert_eq!(found, ids);
        }
    }
}
