//! Small tokenizers of every kind for tests, as values of `tokenizer.json`.

use serde_json::{Value, json};

/// An entry of `added_tokens`.
pub fn added(id: usize, content: &str, flags: &[&str]) -> Value {
    let flag = |name: &str| flags.contains(&name);
    json!({
        "id": id, "content": content, "special": flag("special"),
        "normalized": flag("normalized"), "lstrip": flag("lstrip"), "rstrip": flag("rstrip"),
        "single_word": flag("single_word"),
    })
}

fn numbered(tokens: &[String]) -> Value {
    Value::Object(
        tokens
            .iter()
            .enumerate()
            .map(|(id, t)| (t.clone(), json!(id)))
            .collect(),
    )
}

/// Tokens and merges such that each word can be made from its characters.
fn merged(mut tokens: Vec<String>, words: &[&str]) -> (Vec<String>, Vec<Value>) {
    let mut merges = Vec::new();
    for word in words {
        let mut left = String::new();
        for character in word.chars() {
            if !left.is_empty() {
                let whole = format!("{left}{character}");
                if !tokens.contains(&whole) {
                    merges.push(json!([left, character.to_string()]));
                    tokens.push(whole);
                }
            }
            left.push(character);
        }
    }
    (tokens, merges)
}

/// Control token that begins a message of the chat format that tests use.
pub const START: &str = "<|im_start|>";
/// Control token that ends a message.
pub const END: &str = "<|im_end|>";

/// One printable character for each byte, as byte-level vocabularies write them.
fn alphabet() -> impl Iterator<Item = char> {
    let printable = ('!'..='~').chain('¡'..='¬').chain('®'..='ÿ');
    printable.chain('\u{100}'..='\u{143}')
}

/// Byte-level BPE in the way of GPT-2 and Qwen.
pub fn byte_level() -> Value {
    let tokens = alphabet().map(String::from).collect();
    let words = ["hello", "Ġworld", "Ġthe", "user", "ĊĊ", "ĠĠ", "Ã©", "ðŁĺ"];
    let (tokens, merges) = merged(tokens, &words);
    let next = tokens.len();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": {"type": "NFC"},
        "added_tokens": [
            added(next, "<|endoftext|>", &["special"]),
            added(next + 1, START, &["special"]),
            added(next + 2, END, &["special"]),
            added(next + 3, "<tool_call>", &[]),
            added(next + 4, "</tool_call>", &[]),
            added(next + 5, "<|pad|>", &["special", "lstrip", "rstrip"]),
            added(next + 6, "<norm>", &["normalized"]),
            added(next + 7, "    ", &[]),
            added(next + 8, "<word>", &["single_word"]),
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [next], "tokens": ["<|endoftext|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": numbered(&tokens), "merges": merges},
    })
}

fn fallback_tokens() -> Vec<String> {
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let control = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let letters = "▁abcdefghijklmnopqrstuvwxyz<>/|_,.!?"
        .chars()
        .map(String::from);
    control.into_iter().chain(bytes).chain(letters).collect()
}

/// BPE with byte fallback in the way of Llama 2; with `metaspace`, in the way of its successors.
pub fn byte_fallback(metaspace: bool) -> Value {
    let (tokens, merges) = merged(fallback_tokens(), &["▁hello", "▁▁", "world", "▁w"]);
    let next = tokens.len();
    let (normalizer, pre_tokenizer, decoder) = if metaspace {
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
        (
            Value::Null,
            metaspace.clone(),
            json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, metaspace]}),
        )
    } else {
        (
            json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}),
            Value::Null,
            json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
        )
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": normalizer,
        "added_tokens": [
            added(0, "<unk>", &["special"]), added(1, "<s>", &["special"]), added(2, "</s>", &["special"]),
            added(next, START, &["special"]), added(next + 1, END, &["special"]),
            added(next + 2, "<tool_call>", &["normalized", "rstrip"]), added(next + 3, "<norm>", &["normalized"]),
        ],
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
            "vocab": numbered(&tokens), "merges": merges},
    })
}

/// Unigram, whose vocabulary holds the control tokens too.
pub fn unigram() -> Value {
    let mut tokens = fallback_tokens();
    let next = tokens.len();
    tokens.extend([START, END, "▁hello", "▁wor", "ld"].map(str::to_owned));
    let score = |(at, token): (usize, &String)| {
        json!([
            token,
            if at < 3 {
                0.0
            } else {
                -1.0 - at as f64 / 100.0
            }
        ])
    };
    let vocab: Vec<Value> = tokens.iter().enumerate().map(score).collect();
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [
            added(0, "<unk>", &["special"]), added(1, "<s>", &["special"]), added(2, "</s>", &["special"]),
            added(next, START, &["special"]), added(next + 1, END, &["special"]),
        ],
        "pre_tokenizer": metaspace, "post_processor": null, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false},
    })
}

/// WordPiece in the way of BERT.
pub fn word_piece() -> Value {
    let tokens: Vec<String> = [
        "[UNK]", "[CLS]", "[SEP]", "hello", "wor", "##ld", "a", "##a", ".", "'", "s", START, END,
    ]
    .map(str::to_owned)
    .into();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "added_tokens": [
            added(0, "[UNK]", &["special"]), added(1, "[CLS]", &["special"]), added(2, "[SEP]", &["special"]),
            added(11, START, &["special"]), added(12, END, &["special"]),
        ],
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": numbered(&tokens)},
    })
}

/// Whole words, with control tokens among them, and no decoder.
pub fn word_level() -> Value {
    let tokens: Vec<String> = ["<unk>", "hello", "world", START, END, "§"]
        .map(str::to_owned)
        .into();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [
            added(0, "<unk>", &["special"]), added(3, START, &["special"]),
            added(4, END, &["special"]), added(5, "§", &["special"]),
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": numbered(&tokens)},
    })
}

/// All of the above by name.
pub fn all_kinds() -> Vec<(&'static str, Value)> {
    vec![
        ("byte level", byte_level()),
        ("byte fallback", byte_fallback(false)),
        ("metaspace first", byte_fallback(true)),
        ("unigram", unigram()),
        ("word piece", word_piece()),
        ("word level", word_level()),
    ]
}
