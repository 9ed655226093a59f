//! Tensors and files of weights that contradict the rest.

use std::fs;

use serde_json::Value;
use serde_json::json;

use crate::{MODEL, SHARDED, check, copy, load, original, with_config};

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
fn a8_headers_of_safetensors() {
    let spoiled = |bytes: &[u8], expected: &str| {
        let folder = copy(MODEL);
        fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        check(
            folder.path(),
            &["weights file `model.safetensors` is damaged", expected],
        );
    };
    let header = |text: &str, data: usize| {
        let length = (text.len() as u64).to_le_bytes();
        [&length[..], text.as_bytes(), &vec![0; data][..]].concat()
    };
    spoiled(
        &[&(1_u64 << 63).to_le_bytes()[..], b"{}"].concat(),
        "header should have",
    );
    spoiled(&header(&"[".repeat(90 << 20), 0), "not a JSON object");
    spoiled(
        &header(&format!("{{\"a\":{}", "[".repeat(90 << 20)), 0),
        "not a JSON object",
    );
    spoiled(
        &header(
            r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}"#,
            12,
        ),
        "",
    );
    for shape in [
        "[4294967296,4294967296]",
        "[18446744073709551615,18446744073709551615]",
        "[-1]",
        "[0.5]",
    ] {
        let tensor = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}"#);
        spoiled(&header(&tensor, 4), "");
    }
    spoiled(
        &header(
            r#"{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}"#,
            1,
        ),
        "expected at most 8 sizes",
    );
    spoiled(
        &header(
            r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":[]}}"#,
            1,
        ),
        "unknown field `more`",
    );
}

#[test]
fn duplicate_keys_of_safetensors_are_refused() {
    let at =
        |first, last| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":[{first},{last}]}}"#);
    let (low, high) = (at(0, 4), at(4, 8));
    let twice = r#"{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    for (header, named) in [
        (format!(r#"{{"a":{low},"a":{low}}}"#), "`a` is there twice"),
        (format!(r#"{{"a":{low},"a":{high}}}"#), "`a` is there twice"),
        (
            format!(r#"{{"a":{high},"b":{low},"a":{high}}}"#),
            "`a` is there twice",
        ),
        (
            format!(r#"{{"a":{low},"\u0061":{low}}}"#),
            "`a` is there twice",
        ),
        (
            format!(r#"{{"__metadata__":{{"k":"1","k":"2"}},"a":{low}}}"#),
            "`k` is there twice",
        ),
        (
            r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned(),
            "`__metadata__` is there twice",
        ),
        (format!(r#"{{"a":{twice}}}"#), "duplicate field `dtype`"),
    ] {
        let folder = copy(MODEL);
        let length = (header.len() as u64).to_le_bytes();
        let file = [&length[..], header.as_bytes(), &[0; 8]].concat();
        fs::write(folder.path().join("model.safetensors"), file).unwrap();
        check(
            folder.path(),
            &["weights file `model.safetensors` is damaged", named],
        );
    }
    let shard = "model-00001-of-00003.safetensors";
    for (index, named) in [
        (
            format!(r#"{{"weight_map": {{"a": "{shard}", "a": "{shard}"}}}}"#),
            "`a` is there twice",
        ),
        (
            r#"{"weight_map": {}, "weight_map": {}}"#.to_owned(),
            "duplicate field `weight_map`",
        ),
        (
            r#"{"weight_map": {"a": 5}}"#.to_owned(),
            "invalid type: integer `5`",
        ),
        (r#"{"weight_map": []}"#.to_owned(), "expected an object"),
        ("{}".to_owned(), "missing field `weight_map`"),
    ] {
        let folder = copy(SHARDED);
        let path = folder.path().join("model.safetensors.index.json");
        fs::write(path, index).unwrap();
        check(
            folder.path(),
            &[
                "`weight_map` in `model.safetensors.index.json` must map names",
                named,
            ],
        );
    }
}

#[test]
fn a12_an_index_may_not_leave_the_folder() {
    let indexed = |file: &str, expected: &[&str]| {
        let folder = copy(SHARDED);
        let index = json!({"weight_map": {"model.norm.weight": file}});
        let path = folder.path().join("model.safetensors.index.json");
        fs::write(path, index.to_string()).unwrap();
        check(folder.path(), expected);
    };
    for file in [
        "../model.safetensors",
        "/etc/passwd",
        "/etc/passwd.safetensors",
        "a\\b.safetensors",
        "a\0.safetensors",
        "weights.bin",
        "sha256:../../x",
    ] {
        indexed(file, &["`weight_map`", "expected a .safetensors file"]);
    }
    // Names like any other: there is no such file.
    for file in [
        "%2e%2e%2fmodel.safetensors",
        "CON.safetensors",
        "C:x.safetensors",
    ] {
        indexed(file, &["has no file", file]);
    }
    let long = format!("{}.safetensors", "x".repeat(4084));
    indexed(&long, &["cannot read"]);
}

#[test]
fn duplicated_keys_are_no_error() {
    let folder = copy(MODEL);
    let path = folder.path().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(path, config.replacen('{', "{\"hidden_size\": 1,", 1)).unwrap();
    load(folder.path()).unwrap();
}
