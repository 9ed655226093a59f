//! SentencePiece vocabularies: byte-pair encoding by score, and unigram.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{BYTE, CONTROL, GgufVocabulary, UNKNOWN, UNUSED, wrong};
use crate::error::TokenizerError;

/// Character that stands for a space.
const SPACE: &str = "▁";

/// `tokenizer.json` of a vocabulary that merges pairs.
pub(super) fn describe_merging(vocabulary: &GgufVocabulary) -> Result<Value, TokenizerError> {
    need_scores(vocabulary)?;
    let spelled = spelled(vocabulary);
    let prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let unknown = vocabulary.text(vocabulary.unknown).or_else(|| {
        let id = vocabulary.types.iter().position(|kind| *kind == UNKNOWN)?;
        Some(&vocabulary.tokens[id])
    });
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": {"type": "Sequence", "normalizers": spaces(prefix)},
        "pre_tokenizer": null,
        "post_processor": vocabulary.flagged(true, false),
        "decoder": decoder(prefix.into()),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true,
            "byte_fallback": has_bytes(vocabulary), "ignore_merges": false,
            "vocab": vocabulary.numbered(|id, _| spelled[id].to_string()),
            "merges": merges(vocabulary, &spelled),
        },
    }))
}

/// `tokenizer.json` of a vocabulary that is searched for the best segmentation.
pub(super) fn describe_scored(vocabulary: &GgufVocabulary) -> Result<Value, TokenizerError> {
    need_scores(vocabulary)?;
    let unknown = vocabulary.unknown.map(|id| id as usize);
    let unknown = unknown.or_else(|| vocabulary.types.iter().position(|kind| *kind == UNKNOWN));
    let scored: Vec<Value> = vocabulary
        .tokens
        .iter()
        .zip(&vocabulary.scores)
        .map(|(token, score)| json!([token, score]))
        .collect();
    let mut steps = Vec::new();
    if !vocabulary.character_map.is_empty() {
        steps.push(json!({
            "type": "Precompiled",
            "precompiled_charsmap": STANDARD.encode(&vocabulary.character_map),
        }));
    }
    let trimmed = vocabulary.remove_extra_whitespaces.unwrap_or(false);
    if trimmed {
        for (spaces, content) in [(r"\A +| +\z", ""), (" {2,}", " ")] {
            steps
                .push(json!({"type": "Replace", "pattern": {"Regex": spaces}, "content": content}));
        }
    }
    let prefix = vocabulary.add_space_prefix.unwrap_or(true);
    steps.extend(spaces(prefix));
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": null,
        "post_processor": vocabulary.flagged(false, true),
        "decoder": decoder(if trimmed { SPACES_TRIMMED } else { prefix.into() }),
        "model": {
            "type": "Unigram", "unk_id": unknown, "vocab": scored,
            "byte_fallback": has_bytes(vocabulary),
        },
    }))
}

/// Normalizers that write spaces as the vocabulary has them, with one more before the text.
fn spaces(prefix: bool) -> Vec<Value> {
    let mut steps = Vec::new();
    if prefix {
        steps.push(json!({"type": "Prepend", "prepend": SPACE}));
    }
    steps.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE}));
    steps
}

/// Spaces that are left out before a text of a vocabulary that never has any there: all.
const SPACES_TRIMMED: usize = 1 << 10;

/// `decoder` of `tokenizer.json`, which leaves out up to `trimmed` spaces before a text.
fn decoder(trimmed: usize) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if trimmed > 0 {
        steps.push(json!({"type": "Strip", "content": " ", "start": trimmed, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn need_scores(vocabulary: &GgufVocabulary) -> Result<(), TokenizerError> {
    if vocabulary.scores.is_empty() {
        return Err(wrong("it has no scores".to_owned()));
    }
    Ok(())
}

fn has_bytes(vocabulary: &GgufVocabulary) -> bool {
    vocabulary.types.contains(&BYTE)
}

/// Tokens as text is spelled when it is looked up. Gemma's files have runs of spaces as they are.
fn spelled(vocabulary: &GgufVocabulary) -> Vec<Cow<'_, str>> {
    let spelled = |token: &String| token.replace(' ', SPACE).into();
    let tokens = vocabulary.tokens.iter();
    tokens
        .map(|token| match token.contains(' ') {
            true if token.trim().is_empty() => spelled(token),
            _ => token.into(),
        })
        .collect()
}

/// The merges that scores imply: every way to put a token together from two others, the best token
/// first. Tokens that text must not become are left out.
fn merges<'a>(vocabulary: &GgufVocabulary, tokens: &'a [Cow<'_, str>]) -> Vec<[&'a str; 2]> {
    let ids: HashMap<&str, usize> = tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| !matches!(vocabulary.kind(*id), CONTROL | UNKNOWN | UNUSED | BYTE))
        .map(|(id, token)| (token.as_ref(), id))
        .collect();
    // Gemma's scores do not follow the order in which its merges were learned; its ids do.
    let by_id = vocabulary.architecture.starts_with("gemma");
    let mut found = Vec::new();
    for (token, id) in &ids {
        let score = if by_id {
            -(*id as f32)
        } else {
            vocabulary.scores[*id]
        };
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(left_id), Some(right_id)) = (ids.get(left), ids.get(right)) {
                found.push((score, (*left_id, *right_id), [left, right]));
            }
        }
    }
    found.sort_by(|(score, ids, _), (other, other_ids, _)| {
        other.total_cmp(score).then(ids.cmp(other_ids))
    });
    found.into_iter().map(|(_, _, merge)| merge).collect()
}
