//! Adapters that contradict themselves or their model, or ask for what is not supported.

use std::fs;
use std::path::{Path, PathBuf};

use mortise_model::{Adapter, ModelFolder, ModelSpec};
use mortise_test_support::gguf_file::{self, F32, GgufFile, text};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{explained, original};

const BASE: &str = "llama-rope-scaled";
const ADAPTER: &str = "llama-queries";
const QUERY: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";

fn adapter(name: &str) -> PathBuf {
    original("../adapters").join(name)
}

fn load(path: &Path, scale: f32) -> Result<Adapter, String> {
    let spec = ModelSpec::read(&ModelFolder::open(original(BASE)).unwrap()).unwrap();
    let folder = ModelFolder::open(path).map_err(|error| explained(&error))?;
    Adapter::load(&folder, &spec, scale).map_err(|error| explained(&error))
}

fn check(path: &Path, expected: &[&str]) {
    let error = load(path, 1.0).expect_err("the adapter is wrong");
    for part in expected {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

fn copy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(adapter(ADAPTER).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn with_config(change: impl FnOnce(&mut Value)) -> TempDir {
    let folder = copy();
    let path = folder.path().join("adapter_config.json");
    let mut config = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
    folder
}

/// Name, type, shape and bytes of a tensor.
type Stored = (String, Dtype, Vec<usize>, Vec<u8>);

fn with_tensors(change: impl FnOnce(&mut Vec<Stored>)) -> TempDir {
    let folder = copy();
    let path = folder.path().join("adapter_model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<Stored> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            (
                name,
                view.dtype(),
                view.shape().to_vec(),
                view.data().to_vec(),
            )
        })
        .collect();
    tensors.sort_by(|one, other| one.0.cmp(&other.0));
    change(&mut tensors);
    let views = tensors.iter().map(|(name, kind, shape, bytes)| {
        (name, TensorView::new(*kind, shape.clone(), bytes).unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    folder
}

fn of<'a>(tensors: &'a mut [Stored], name: &str) -> &'a mut Stored {
    tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
}

#[test]
fn the_original_is_read() {
    let read = load(copy().path(), 1.0).unwrap();
    assert_eq!((read.rank(), read.alpha()), (8, 16.0));
    assert_eq!(read.modules(), ["q_proj", "v_proj"]);
}

#[test]
fn what_adapters_cannot_have_is_named() {
    for (field, value) in [
        ("use_dora", json!(true)),
        ("lora_bias", json!(true)),
        ("fan_in_fan_out", json!(true)),
        ("use_qalora", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("trainable_token_indices", json!([1, 2])),
        ("layer_replication", json!([[0, 1]])),
        ("target_parameters", json!(["mlp.experts.gate_up_proj"])),
        ("alora_invocation_tokens", json!([1])),
        ("bias", json!("all")),
        ("init_lora_weights", json!("pissa")),
        ("a_field_of_next_year", json!({"on": true})),
    ] {
        let wrong = with_config(|config| config[field] = value);
        let refused = format!("`{field}` in `adapter_config.json` is");
        check(wrong.path(), &[&refused]);
    }
    for (field, value, expected) in [
        ("peft_type", json!("IA3"), "is \"IA3\"; expected \"LORA\""),
        ("r", json!(0), "is 0; expected an integer from 1 to 512"),
        ("r", json!(100_000), "expected an integer from 1 to 512"),
        ("r", Value::Null, "is missing"),
        ("lora_alpha", json!(-1), "is -1; expected a number from 0"),
        ("lora_alpha", Value::Null, "is missing"),
        ("target_modules", Value::Null, "is missing"),
        ("target_modules", json!([]), "at least one name"),
        ("target_modules", json!([7]), "no list of names"),
        ("target_modules", json!("(?=.*)q_proj"), "looks ahead"),
        (
            "target_modules",
            json!("(q_proj"),
            "has the pattern `(q_proj`",
        ),
        ("target_modules", json!("a".repeat(5000)), "of 5000 bytes"),
        (
            "target_modules",
            json!("((x{1000}){1000}){1000}"),
            "too large",
        ),
        (
            "target_modules",
            json!(".*q_proj"),
            "for which there are tensors",
        ),
        (
            "target_modules",
            json!(["q_proj", "v_proj", "w_proj"]),
            "names `w_proj`",
        ),
        (
            "target_modules",
            json!(["q_proj"]),
            "does not name `model.layers.0.self_attn.v_proj`",
        ),
        (
            "rank_pattern",
            json!({"q_proj": 0}),
            "expected an integer from 1 to 512",
        ),
        ("rank_pattern", json!({"(": 4}), "has the pattern `(`"),
        ("alpha_pattern", json!({"q_proj": "x"}), "expected a number"),
    ] {
        let wrong = with_config(|config| config[field] = value);
        check(wrong.path(), &["adapter_config.json", field, expected]);
    }
}

#[test]
fn ranks_that_the_settings_do_not_say_are_refused() {
    let wrong = with_config(|config| config["r"] = json!(7));
    check(wrong.path(), &["lora_A.weight", "[8, 64]", "[7, 64]"]);
    let own = with_config(|config| config["rank_pattern"] = json!({"v_proj": 9}));
    check(own.path(), &["v_proj.lora_A.weight", "[8, 64]", "[9, 64]"]);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let wide = with_tensors(|tensors| {
        let tensor = of(tensors, QUERY);
        tensor.2 = vec![4, 128];
    });
    check(wide.path(), &[QUERY, "[4, 128]", "[4, 64]"]);
    let flat = with_tensors(|tensors| of(tensors, QUERY).2 = vec![512]);
    check(flat.path(), &[QUERY, "has shape [512]", "[512, 64]"]);
    let empty = with_tensors(|tensors| {
        let tensor = of(tensors, QUERY);
        (tensor.2, tensor.3) = (vec![0, 64], Vec::new());
    });
    check(empty.path(), &[QUERY, "has rank 0"]);
    let lonely = with_tensors(|tensors| tensors.retain(|tensor| tensor.0 != QUERY));
    check(lonely.path(), &["lora_A.weight` is missing"]);
    let whole = with_tensors(|tensors| {
        let tensor = of(tensors, QUERY);
        tensor.1 = Dtype::I32;
    });
    check(whole.path(), &[QUERY, "has type I32"]);
    for number in [f32::NAN, f32::INFINITY] {
        let wrong = with_tensors(|tensors| {
            of(tensors, QUERY).3[20..24].copy_from_slice(&number.to_le_bytes());
        });
        check(wrong.path(), &[QUERY, "at place 5"]);
    }
}

#[test]
fn modules_that_the_model_lacks_are_named() {
    let renamed = |from: &'static str, to: &'static str| {
        let folder = with_tensors(|tensors| {
            for tensor in tensors {
                tensor.0 = tensor.0.replace(from, to);
            }
        });
        let path = folder.path().join("adapter_config.json");
        let config = fs::read_to_string(&path).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["target_modules"] = json!("all-linear");
        fs::write(path, config.to_string()).unwrap();
        folder
    };
    check(
        renamed("q_proj", "query_proj").path(),
        &[
            "query_proj",
            "this layer has self_attn.q_proj, self_attn.k_proj",
        ],
    );
    check(
        renamed("layers.1", "layers.2").path(),
        &["model.layers.2", "layers 0 to 1"],
    );
    check(
        renamed("layers.1", "layers.99999999999999999999").path(),
        &["no matrix of a layer of the model"],
    );
    check(
        renamed("model.layers.0.self_attn.q_proj", "lm_head").path(),
        &["lm_head"],
    );
    check(
        renamed("base_model.", "").path(),
        &["no matrix of a layer of the model"],
    );
    for (part, what) in [
        ("lora_magnitude_vector", "DoRA"),
        ("lora_embedding_A", "an adapted embedding"),
    ] {
        let wrong = with_tensors(|tensors| {
            tensors.push((
                format!("base_model.model.model.layers.0.self_attn.q_proj.{part}"),
                Dtype::F32,
                vec![1],
                vec![0; 4],
            ));
        });
        check(wrong.path(), &[part, what, "not supported"]);
    }
    let twice = with_tensors(|tensors| {
        let own: Vec<Stored> = tensors
            .iter()
            .filter(|tensor| tensor.0.contains("layers.0.self_attn.q_proj"))
            .cloned()
            .collect();
        for mut tensor in own {
            tensor.0 = tensor.0.replace("model.model.layers", "model.layers");
            tensors.push(tensor);
        }
    });
    check(twice.path(), &["self_attn.q_proj", "of layer 0 twice"]);
}

#[test]
fn missing_and_damaged_files_are_named() {
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let folder = copy();
        fs::remove_file(folder.path().join(file)).unwrap();
        check(folder.path(), &["has no file", file]);
        fs::write(folder.path().join(file), b"{").unwrap();
        check(folder.path(), &[file]);
    }
    let nothing = with_tensors(Vec::clear);
    check(nothing.path(), &["target_modules", "no tensors"]);
    let error = load(copy().path(), f32::NAN).unwrap_err();
    assert!(error.contains("has scale NaN"), "{error}");
}

fn gguf() -> GgufFile {
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("llama"));
    file.entry("general.type", text("adapter"));
    file.entry("adapter.type", text("lora"));
    file.entry("adapter.lora.alpha", gguf_file::f32(4.0));
    let numbers = |count: usize| 0.5f32.to_le_bytes().repeat(count);
    file.tensor("blk.0.attn_q.weight.lora_a", &[2, 64], F32, numbers(128));
    file.tensor("blk.0.attn_q.weight.lora_b", &[64, 2], F32, numbers(128));
    file
}

fn with_gguf(change: impl FnOnce(&mut GgufFile)) -> (TempDir, PathBuf) {
    let mut file = gguf();
    change(&mut file);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    fs::write(&path, file.bytes()).unwrap();
    (folder, path)
}

#[test]
fn gguf_files_that_are_no_adapters_are_refused() {
    let (_kept, path) = with_gguf(|_| ());
    assert_eq!(load(&path, 1.0).unwrap().rank(), 2);
    let entry = |place: usize, value: Vec<u8>| with_gguf(|file| file.entries[place].1 = value);
    for ((_kept, path), expected) in [
        (
            entry(0, text("qwen2")),
            "is `qwen2`; the model is a LlamaForCausalLM",
        ),
        (entry(1, text("model")), "is `model`; expected `adapter`"),
        (entry(2, text("control")), "is `control`; expected `lora`"),
        (entry(3, gguf_file::f32(-1.0)), "is no number from 0"),
        (entry(3, text("four")), "is no number from 0"),
        (
            with_gguf(|file| file.tensors[0].name = b"blk.9.attn_q.weight.lora_a".to_vec()),
            "`blk.9.attn_q.weight.lora_a`",
        ),
        (
            with_gguf(|file| file.tensors[0].name = b"token_embd.weight.lora_a".to_vec()),
            "`token_embd.weight.lora_a`",
        ),
        (
            with_gguf(|file| drop(file.tensors.pop())),
            "tensor `blk.0.attn_q.weight.lora_b` is missing",
        ),
        (
            with_gguf(|file| file.tensors[1].sides = vec![64, 2]),
            "has shape [2, 64]; the configuration asks for [64, 2]",
        ),
        (with_gguf(|file| file.tensors.clear()), "adapts no matrix"),
        (
            with_gguf(|file| {
                file.entry("adapter.alora.invocation_tokens", gguf_file::i32s(&[1]));
            }),
            "adapters that begin at some tokens",
        ),
    ] {
        check(&path, &[expected]);
    }
    let error = load(&original(BASE), 1.0).unwrap_err();
    assert!(error.contains("adapter_config.json"), "{error}");
}
