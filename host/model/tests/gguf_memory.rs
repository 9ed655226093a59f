//! Memory that loading a file takes. Alone in its program, since it measures the process.
#![cfg(target_os = "linux")]

use mortise_model::{Decoder, ModelFolder, WeightPrecision};
use mortise_test_support::gguf_file::{self, F32, GgufFile, text, u32};

const HIDDEN: u64 = 4096;
const VOCABULARY: u64 = 32_000;
/// `Q8_0`
const KIND: u32 = 8;
const BF16: u32 = 30;

/// Most memory that the process had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kibibytes = line.split_whitespace().nth(1).unwrap();
    kibibytes.parse::<u64>().unwrap() << 10
}

/// A model of two layers, one quantised, one in floating point, whose matrices are holes in a file of
/// more than 500 MB.
fn sparse_model(path: &std::path::Path) -> u64 {
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("llama"));
    for (key, value) in [
        ("block_count", 2),
        ("context_length", 128),
        ("embedding_length", HIDDEN as u32),
        ("feed_forward_length", 8192),
        ("attention.head_count", 32),
        ("attention.head_count_kv", 8),
    ] {
        file.entry(&format!("llama.{key}"), u32(value));
    }
    file.entry(
        "llama.attention.layer_norm_rms_epsilon",
        gguf_file::f32(1e-5),
    );
    let mut end = 0;
    let mut place = |file: &mut GgufFile, name: String, shape: &[u64], kind: u32| {
        let count: u64 = shape.iter().product();
        file.tensor(&name, shape, kind, Vec::new());
        file.tensors.last_mut().unwrap().offset = Some(end);
        let bytes = match kind {
            KIND => count / 32 * 34,
            BF16 => count * 2,
            _ => count * 4,
        };
        end += bytes.next_multiple_of(32);
    };
    place(
        &mut file,
        "token_embd.weight".into(),
        &[VOCABULARY, HIDDEN],
        KIND,
    );
    place(&mut file, "output_norm.weight".into(), &[HIDDEN], F32);
    for layer in 0..2 {
        for (name, outputs, inputs) in [
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", HIDDEN / 4, HIDDEN),
            ("attn_v", HIDDEN / 4, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", 8192, HIDDEN),
            ("ffn_up", 8192, HIDDEN),
            ("ffn_down", HIDDEN, 8192),
        ] {
            place(
                &mut file,
                format!("blk.{layer}.{name}.weight"),
                &[outputs, inputs],
                [KIND, BF16][layer],
            );
        }
        for name in ["attn_norm", "ffn_norm"] {
            place(
                &mut file,
                format!("blk.{layer}.{name}.weight"),
                &[HIDDEN],
                F32,
            );
        }
    }
    let header = file.bytes();
    let total = header.len() as u64 + end;
    std::fs::write(path, header).unwrap();
    let sparse = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    sparse.set_len(total).unwrap();
    total
}

#[test]
fn the_weights_are_held_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let size = sparse_model(&path);
    assert!(size > 500 << 20, "{size}");
    let before = peak();
    let folder = ModelFolder::open(&path).unwrap();
    let model = Decoder::load(&folder, WeightPrecision::AsStored).unwrap();
    let grown = peak() - before;
    // Weights are packed, and what was read of the file is given back. Only the largest
    // matrix is there in both forms for a moment: a fifth of this file at most.
    assert!(
        model.spec().layers == 2 && grown < size + size / 4 + (32 << 20),
        "{grown} bytes for a file of {size}"
    );
}
