//! The demo model as a GGUF file, as llama.cpp's converter writes models of its family, with every number in 32 bits: so
//! both engines compute with the same ones.

use std::io::Write as _;
use std::path::PathBuf;

use mortise_test_support as support;
use serde_json::Value;
use support::gguf_file::{F32, GgufFile, bool, f32, i32s, text, texts, u32};
use support::{example, kept};

/// Types of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// Names of a layer's tensors, there and in GGUF files.
const LAYER: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The file, made once and shared by all tests.
pub(crate) fn path() -> PathBuf {
    let folder = kept("engines");
    let path = folder.join("demo.gguf");
    if !path.is_file() {
        let mut aside = tempfile::NamedTempFile::new_in(&folder).expect("make a file");
        aside.write_all(&bytes()).expect("write the model");
        aside.persist(&path).expect("put the file in its place");
    }
    path
}

fn read(name: &str) -> Vec<u8> {
    let path = example::root().join("examples/demo-model/model").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&read(name)).expect("JSON")
}

fn bytes() -> Vec<u8> {
    let mut file = GgufFile::default();
    describe(&mut file);
    tokens(&mut file);
    tensors(&mut file);
    file.bytes()
}

/// Shape of the model.
fn describe(file: &mut GgufFile) {
    let config = json("config.json");
    let number = |name: &str| u32(config[name].as_u64().expect("a number") as u32);
    file.entry("general.architecture", text("qwen3"));
    file.entry("general.name", text("mortise-demo"));
    for (name, key) in [
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
    ] {
        file.entry(&format!("qwen3.{name}"), number(key));
    }
    let real = |name: &str| f32(config[name].as_f64().expect("a number") as f32);
    file.entry(
        "qwen3.attention.layer_norm_rms_epsilon",
        real("rms_norm_eps"),
    );
    file.entry("qwen3.rope.freq_base", real("rope_theta"));
}

/// The tokenizer, and the chat template.
fn tokens(file: &mut GgufFile) {
    let (tokenizer, config) = (json("tokenizer.json"), json("tokenizer_config.json"));
    let mut known: Vec<(u64, String, i32)> = Vec::new();
    let vocabulary = tokenizer["model"]["vocab"].as_object().expect("tokens");
    for (token, id) in vocabulary {
        known.push((id.as_u64().expect("an id"), token.clone(), NORMAL));
    }
    let added = tokenizer["added_tokens"].as_array().expect("tokens");
    for token in added {
        let kind = match token["special"] == true {
            true => CONTROL,
            false => USER_DEFINED,
        };
        let content = token["content"].as_str().expect("a text").to_owned();
        known.push((token["id"].as_u64().expect("an id"), content, kind));
    }
    known.sort_unstable();
    assert!(known.iter().map(|token| token.0).eq(0..known.len() as u64));
    let id_of = |key: &str| {
        let content = config[key].as_str().expect("a token");
        let found = known.iter().find(|token| token.1 == content);
        u32(found.expect("an id").0 as u32)
    };
    let merges = tokenizer["model"]["merges"].as_array().expect("merges");
    let merges: Vec<String> = merges
        .iter()
        .map(|pair| {
            let part = |at: usize| pair[at].as_str().expect("a part");
            format!("{} {}", part(0), part(1))
        })
        .collect();
    let words: Vec<&str> = known.iter().map(|token| token.1.as_str()).collect();
    let kinds: Vec<i32> = known.iter().map(|token| token.2).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    file.entry("tokenizer.ggml.model", text("gpt2"));
    // Its own pattern has no name there.
    file.entry("tokenizer.ggml.pre", text("qwen2"));
    file.entry("tokenizer.ggml.tokens", texts(&words));
    file.entry("tokenizer.ggml.token_type", i32s(&kinds));
    file.entry("tokenizer.ggml.merges", texts(&merges));
    file.entry("tokenizer.ggml.eos_token_id", id_of("eos_token"));
    file.entry("tokenizer.ggml.padding_token_id", id_of("pad_token"));
    file.entry("tokenizer.ggml.add_bos_token", bool(false));
    let template = config["chat_template"].as_str().expect("a template");
    file.entry("tokenizer.chat_template", text(template));
}

/// The weights, from 16 bits to 32.
fn tensors(file: &mut GgufFile) {
    let weights = read("model.safetensors");
    let (length, rest) = weights.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let (header, data) = rest.split_at(usize::try_from(length).expect("a length"));
    let header: Value = serde_json::from_slice(header).expect("JSON");
    for (name, tensor) in header.as_object().expect("tensors") {
        if name == "__metadata__" {
            continue;
        }
        assert_eq!(tensor["dtype"], "BF16", "{name}");
        let numbers = |key: &str| -> Vec<u64> {
            let numbers = tensor[key].as_array().expect("numbers").iter();
            numbers
                .map(|number| number.as_u64().expect("a number"))
                .collect()
        };
        let place = numbers("data_offsets");
        let halves = data[place[0] as usize..place[1] as usize].chunks_exact(2);
        let data = halves.flat_map(|half| [0, 0, half[0], half[1]]).collect();
        file.tensor(&renamed(name), &numbers("shape"), F32, data);
    }
}

/// Name of a tensor in GGUF files.
fn renamed(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => return "token_embd.weight".to_owned(),
        "model.norm.weight" => return "output_norm.weight".to_owned(),
        _ => {}
    }
    let inner = name.strip_prefix("model.layers.").expect("a layer");
    let (number, inner) = inner.split_once('.').expect("a number");
    let inner = inner.strip_suffix(".weight").expect("a matrix");
    let known = LAYER.iter().find(|(known, _)| *known == inner);
    let (_, short) = known.unwrap_or_else(|| panic!("{name} is not known"));
    format!("blk.{number}.{short}.weight")
}
