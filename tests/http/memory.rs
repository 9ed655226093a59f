//! Memory of a server that serves a model of realistic size from a GGUF file.
#![cfg(target_os = "linux")]

use std::collections::VecDeque;
use std::path::Path;

use serde_json::json;

use crate::support::gguf_file::{F32, GgufFile, f32, i32s, text, texts, u32};
use crate::support::{Server, wait_for};

// The shape of Qwen2.5-0.5B.
const VOCABULARY: usize = 151_936;
const HIDDEN: u64 = 896;
const WIDE: u64 = 4864;
const LAYERS: u64 = 24;
const HEADS: u64 = 14;
const KV_HEADS: u64 = 2;
const KV_WIDTH: u64 = KV_HEADS * (HIDDEN / HEADS);
/// `Q8_0`
const KIND: u32 = 8;

const MIB: u64 = 1 << 20;
const KV_MIB: u64 = 32;
/// Beyond the file and the cache: what a server has besides, whatever the model, and the buffers of a batch. 195 to 203
/// were seen.
const REST_MIB: u64 = 240;
/// Memory, code and files aside, that a server may have more than before its first load once its model is unloaded: 5 % of
/// the 92 MiB that it had then, code and files included. 38 MiB before and 30 to 37 after were seen; with glibc's own
/// thresholds, 47 to 56.
const LEFT_MIB: u64 = 5;

/// The characters that stand for bytes in vocabularies of this kind.
fn byte_characters() -> Vec<char> {
    let printable = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    (0..256)
        .map(|byte| match printable(&byte) {
            true => byte,
            false => others.next().unwrap_or_default(),
        })
        .filter_map(char::from_u32)
        .collect()
}

/// A vocabulary of the right size: longer and longer words, each a merge of a word and a character.
fn vocabulary() -> (Vec<String>, Vec<String>) {
    let mut tokens: Vec<String> = byte_characters().iter().map(char::to_string).collect();
    let mut merges = Vec::new();
    let mut words: VecDeque<String> = tokens[33..].iter().cloned().collect();
    while tokens.len() < VOCABULARY - 1 {
        let word = words.pop_front().expect("each word makes longer ones");
        for letter in 'a'..='z' {
            let longer = format!("{word}{letter}");
            if tokens.len() < VOCABULARY - 1 {
                merges.push(format!("{word} {letter}"));
                tokens.push(longer.clone());
                words.push_back(longer);
            }
        }
    }
    tokens.push("<|endoftext|>".to_owned());
    (tokens, merges)
}

/// Write a model whose matrices are holes in the file. The file's size.
fn write_model(path: &Path) -> u64 {
    let (tokens, merges) = vocabulary();
    let mut types = vec![1; VOCABULARY];
    types[VOCABULARY - 1] = 3;
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("qwen2"));
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", 32_768),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", WIDE),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
    ] {
        file.entry(&format!("qwen2.{key}"), u32(value as u32));
    }
    file.entry("qwen2.attention.layer_norm_rms_epsilon", f32(1e-6));
    file.entry("tokenizer.ggml.model", text("gpt2"));
    file.entry("tokenizer.ggml.pre", text("qwen2"));
    let listed = |list: &[String]| texts(&list.iter().map(String::as_str).collect::<Vec<_>>());
    file.entry("tokenizer.ggml.tokens", listed(&tokens));
    file.entry("tokenizer.ggml.token_type", i32s(&types));
    file.entry("tokenizer.ggml.merges", listed(&merges));
    file.entry("tokenizer.ggml.eos_token_id", u32(VOCABULARY as u32 - 1));
    let mut end = 0;
    let mut place = |name: &str, shape: &[u64], kind: u32| {
        let count: u64 = shape.iter().product();
        file.tensor(name, shape, kind, Vec::new());
        file.tensors.last_mut().expect("a tensor").offset = Some(end);
        let bytes = if kind == KIND {
            count / 32 * 34
        } else {
            count * 4
        };
        end += bytes.next_multiple_of(32);
    };
    place("token_embd.weight", &[VOCABULARY as u64, HIDDEN], KIND);
    place("output_norm.weight", &[HIDDEN], F32);
    for layer in 0..LAYERS {
        for (name, outputs, inputs) in [
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", KV_WIDTH, HIDDEN),
            ("attn_v", KV_WIDTH, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", WIDE, HIDDEN),
            ("ffn_up", WIDE, HIDDEN),
            ("ffn_down", HIDDEN, WIDE),
        ] {
            place(
                &format!("blk.{layer}.{name}.weight"),
                &[outputs, inputs],
                KIND,
            );
        }
        for (name, width) in [
            ("attn_q.bias", HIDDEN),
            ("attn_k.bias", KV_WIDTH),
            ("attn_v.bias", KV_WIDTH),
            ("attn_norm.weight", HIDDEN),
            ("ffn_norm.weight", HIDDEN),
        ] {
            place(&format!("blk.{layer}.{name}"), &[width], F32);
        }
    }
    let header = file.bytes();
    let total = header.len() as u64 + end;
    std::fs::write(path, header).expect("write the header");
    let sparse = std::fs::OpenOptions::new().write(true).open(path);
    sparse
        .and_then(|file| file.set_len(total))
        .expect("make the file longer");
    total
}

/// Most memory that a process had, in bytes.
fn peak(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// A figure of a process's memory, in bytes.
fn memory(pid: u32, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find(|line| line.starts_with(figure));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
    kibibytes
        .and_then(|number| number.parse::<u64>().ok())
        .expect("a number")
        << 10
}

#[test]
fn a_server_takes_the_file_the_cache_and_little_more() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("half-a-billion.gguf");
    let file = write_model(&path);
    assert!(file > 500 * MIB, "{file}");
    let mut server = Server::configured(&format!(
        "[engine]\nkv_cache_mib = {KV_MIB}\n[[models]]\npath = '{}'\n",
        path.display()
    ));
    let loaded = peak(server.pid());
    let request = json!({"model": "m", "prompt": "memory of a process", "max_tokens": 2});
    server.post("/v1/completions", &request).ok();
    let used = peak(server.pid());
    let [file, loaded, used] = [file, loaded, used].map(|bytes| bytes / MIB);
    println!("file {file} MiB, peak after load {loaded} MiB, after a request {used} MiB");
    assert!(
        used <= file + KV_MIB + REST_MIB,
        "{used} MiB for a file of {file} MiB; {loaded} MiB after loading"
    );
    server.assert_sound();
}

/// `cargo test --release -p mortise --test http memory -- --nocapture` shows the figures.
#[test]
fn an_unloaded_model_leaves_little_behind() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("half-a-billion.gguf");
    write_model(&path);
    let mut server = Server::configured(&format!(
        "[engine]\nkv_cache_mib = {KV_MIB}\n\
         [lifecycle]\nload_on_demand = true\nidle_timeout_seconds = 3\nidle_check_seconds = 1\n\
         [[models]]\nname = \"m\"\npath = '{}'\nenabled = false\n",
        path.display()
    ));
    let resident = |server: &Server| memory(server.pid(), "VmRSS:") / MIB;
    // Without pages of files: how many of the program's own are in memory is the system's choice.
    let own = |server: &Server| memory(server.pid(), "RssAnon:") / MIB;
    let before = own(&server);
    let mut left: Vec<u64> = Vec::new();
    for _ in 0..3 {
        let empty = resident(&server);
        let request = json!({"model": "m", "prompt": "memory of a process", "max_tokens": 2});
        server.post("/v1/completions", &request).ok();
        let loaded = resident(&server);
        assert!(
            loaded > empty + 300,
            "{loaded} MiB with the model, {empty} without"
        );
        let now = wait_for(|| match own(&server) {
            now if now <= before + LEFT_MIB => Ok(now),
            now => Err(format!("{now} MiB, {before} before and {loaded} loaded")),
        });
        left.push(now);
    }
    println!("{before} MiB before the first load, {left:?} after unloads");
    server.assert_sound();
}
