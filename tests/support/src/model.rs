//! A model folder without weights, for the scripted backend: each byte is a token, and ChatML has
//! its control tokens. What comes out of such a model is exactly what a script says.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, json};

use super::kept;

/// Control tokens, from id 256 on.
pub const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Chat template. `<think>` is named in it, so that the output parser looks for reasoning.
const TEMPLATE: &str = "\
{#- An answer may begin with a <think> block. -#}{%- if tools %}<|im_start|>system\n# Tools\n<tools>\
{%- for tool in tools %}\n{{ tool | tojson }}{%- endfor %}\n</tools>\n\
Answer with <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call><|im_end|>\n{% endif -%}\
{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
{%- for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>\
{%- endfor %}<|im_end|>\n{% endfor -%}\
{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}";

/// The folder, made once and shared by all test programs.
pub fn byte_level() -> PathBuf {
    let folder = kept("byte-level");
    write(&folder, "tokenizer.json", &tokenizer().to_string());
    let config = json!({
        "eos_token": "<|im_end|>",
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": false,
    });
    write(&folder, "tokenizer_config.json", &config.to_string());
    folder
}

/// Write a file aside and rename it, since others may read or write it at the same time.
fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return;
    }
    let mut aside = tempfile::NamedTempFile::new_in(folder).expect("make a file");
    aside
        .write_all(text.as_bytes())
        .expect("write a file of the model");
    aside.persist(path).expect("put the file in its place");
}

fn tokenizer() -> serde_json::Value {
    let mut vocabulary = Map::new();
    for byte in 0..=255_u8 {
        vocabulary.insert(visible(byte).to_string(), json!(byte));
    }
    let added: Vec<_> = CONTROL
        .iter()
        .zip(256..)
        .map(|(text, id)| {
            json!({
                "id": id, "content": text, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            })
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
        },
        "post_processor": null,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

/// The character that stands for a byte in byte-level vocabularies.
fn visible(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !printable(other)).count();
    char::from_u32(256 + u32::try_from(before).expect("below 256")).expect("a character")
}
