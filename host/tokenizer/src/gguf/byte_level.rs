//! Byte-level pair encoding: GPT-2 and its descendants, which differ in how they cut text into words.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{GgufVocabulary, wrong};
use crate::error::TokenizerError;

/// Contractions of English.
const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
/// Lines and other white space, as most families end their expression.
const SPACES: &str = r"\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words that begin with capitals, and such as do not.
const CAPITALISED: &str =
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+";
const CAPITALS: &str =
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*";

/// Pre-tokenization of a family.
struct Cutting {
    /// Expressions, one after the other; none for GPT-2's own.
    expressions: Vec<String>,
    /// Whether digits are cut one by one before GPT-2's own expression.
    digits: bool,
    /// Whether text is brought to Unicode's composed form first.
    composed: bool,
    /// Whether a word that is a token is taken whole, whatever the merges say.
    whole_words: bool,
    /// Whether a text begins with the beginning-of-sequence token if the file does not say.
    add_bos: bool,
}

/// `tokenizer.json`.
pub(super) fn describe(vocabulary: &GgufVocabulary) -> Result<Value, TokenizerError> {
    let cutting = Cutting::of(vocabulary.pre.as_deref().unwrap_or("default"))?;
    check_merges(vocabulary)?;
    let byte_level = |expression: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": expression,
        })
    };
    let mut steps: Vec<Value> = cutting
        .expressions
        .iter()
        .map(|expression| {
            json!({
                "type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated",
                "invert": false,
            })
        })
        .collect();
    if cutting.digits {
        steps.push(json!({"type": "Digits", "individual_digits": true}));
    }
    steps.push(byte_level(cutting.expressions.is_empty()));
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": cutting.composed.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": vocabulary.flagged(cutting.add_bos, false),
        "decoder": byte_level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": cutting.whole_words,
            "vocab": vocabulary.numbered(|_, token| token.to_owned()),
            "merges": vocabulary.merges,
        },
    }))
}

/// Each merge joins two tokens to a third.
fn check_merges(vocabulary: &GgufVocabulary) -> Result<(), TokenizerError> {
    let known: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
    for merge in &vocabulary.merges {
        let parts = merge.split_once(' ');
        let fits = parts.is_some_and(|(left, right)| {
            known.contains(left)
                && known.contains(right)
                && known.contains(format!("{left}{right}").as_str())
        });
        if !fits {
            return Err(wrong(format!(
                "the merge `{merge}` does not join two tokens to a third"
            )));
        }
    }
    Ok(())
}

impl Cutting {
    /// By the name that llama.cpp's converter gives a family.
    fn of(pre: &str) -> Result<Self, TokenizerError> {
        let plain = |expressions: Vec<String>| Self {
            expressions,
            digits: false,
            composed: false,
            whole_words: false,
            add_bos: false,
        };
        // Words, with numbers of at most so many digits.
        let words = |letters: &str, numbers: &str| {
            format!(
                r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
            )
        };
        Ok(match pre {
            "default" | "gpt-2" | "gpt2" | "phi-2" | "jina-es" | "jina-de" | "roberta-bpe"
            | "olmo" | "mpt" => plain(Vec::new()),
            "llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe" | "dbrx" | "falcon3"
            | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" | "jina-v5-nano" => Self {
                whole_words: true,
                add_bos: matches!(pre, "llama-bpe" | "llama3" | "llama-v3"),
                ..plain(vec![words(r"\p{L}", r"\p{N}{1,3}")])
            },
            "qwen2" | "stablelm2" | "deepseek-r1-qwen" | "megrez" | "kormo" | "f2llmv2" => Self {
                composed: pre == "qwen2",
                ..plain(vec![words(r"\p{L}", r"\p{N}")])
            },
            "qwen35" => Self {
                composed: true,
                ..plain(vec![format!(
                    r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
                )])
            },
            "gpt-4o" | "o200k" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => {
                plain(vec![format!(
                    r"{CAPITALISED}{CONTRACTIONS}?|{CAPITALS}{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
                )])
            }
            "tekken" => Self {
                whole_words: true,
                add_bos: true,
                ..plain(vec![format!(
                    r"{CAPITALISED}|{CAPITALS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
                )])
            },
            "smollm" | "starcoder" | "refact" | "command-r" | "exaone" | "minerva-7b"
            | "codeshell" | "granite-docling" => Self {
                digits: true,
                ..plain(Vec::new())
            },
            "deepseek-v3" | "hunyuan-dense" => plain(vec![
                r"\p{N}{1,3}".to_owned(),
                "[一-龥぀-ゟ゠-ヿ]+".to_owned(),
                format!(
                    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{{|}}~][A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}"##
                ),
            ]),
            other => {
                return Err(wrong(format!(
                    "the pre-tokenizer `{other}` is not supported; use the model's original folder"
                )));
            }
        })
    }
}
