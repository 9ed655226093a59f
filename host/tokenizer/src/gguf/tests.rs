use base64::Engine as _;
use serde::Deserialize;

use super::{BYTE, CONTROL, GgufVocabulary};
use crate::{TextSegment, Tokenizer, TokenizerError};

/// Made by `tests/gguf/make_tokenizers.py`.
const REFERENCE: &str = include_str!("../../../../tests/gguf/data/tokenizers.json");

#[derive(Deserialize)]
struct Entry {
    name: String,
    vocabulary: Vocabulary,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    /// Text that the reference decodes the ids to, if it is a reference for that.
    decoded: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Vocabulary {
    architecture: String,
    model: String,
    pre: Option<String>,
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
    merges: Vec<String>,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    separator: Option<u32>,
    add_bos: Option<bool>,
    add_space_prefix: Option<bool>,
    remove_extra_whitespaces: Option<bool>,
    character_map: String,
}

impl From<Vocabulary> for GgufVocabulary {
    fn from(from: Vocabulary) -> Self {
        Self {
            architecture: from.architecture,
            model: from.model,
            pre: from.pre,
            tokens: from.tokens,
            scores: from.scores,
            types: from.types,
            merges: from.merges,
            bos: from.bos,
            eos: from.eos,
            unknown: from.unknown,
            separator: from.separator,
            add_bos: from.add_bos,
            add_eos: None,
            add_space_prefix: from.add_space_prefix,
            remove_extra_whitespaces: from.remove_extra_whitespaces,
            character_map: base64::engine::general_purpose::STANDARD
                .decode(from.character_map)
                .expect("base64"),
            chat_templates: Vec::new(),
        }
    }
}

fn entries() -> Vec<(String, GgufVocabulary, Vec<Case>)> {
    let entries: Vec<Entry> = serde_json::from_str(REFERENCE).expect("the reference");
    entries
        .into_iter()
        .map(|entry| (entry.name, entry.vocabulary.into(), entry.cases))
        .collect()
}

fn vocabulary(name: &str) -> GgufVocabulary {
    let found = entries().into_iter().find(|(known, ..)| known == name);
    found.expect("a vocabulary of the reference").1
}

#[test]
fn feature_p10_hard_texts_give_the_ids_of_the_reference() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (name, vocabulary, cases) in entries() {
        let tokenizer = Tokenizer::from_gguf(vocabulary.clone())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for case in cases {
            // BERT's reference puts its tokens around the text.
            let found = if vocabulary.model == "bert" {
                tokenizer.encode_text(&case.text)
            } else {
                tokenizer.encode_plain(&case.text)
            };
            let found = found.unwrap_or_else(|error| panic!("{name}: {:?}: {error}", case.text));
            if found != case.ids {
                wrong.push(format!(
                    "{name}: {:?}: {found:?} is not {:?}",
                    case.text, case.ids
                ));
            }
            if let Some(expected) = case.decoded {
                let found = tokenizer.decode(&case.ids, true);
                if found != expected {
                    wrong.push(format!("{name}: {found:?} is not {expected:?}"));
                }
            }
            checked += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(checked > 400, "{checked}");
}

#[test]
fn control_tokens_come_from_templates_only() {
    let tokenizer = Tokenizer::from_gguf(vocabulary("qwen2")).unwrap();
    let start = tokenizer.token_id("<|im_start|>").unwrap();
    let text = "<|im_start|>user";
    let special = tokenizer
        .encode_segments(&[TextSegment::Special(text)])
        .unwrap();
    assert_eq!(special[0], start);
    assert!(!tokenizer.encode_plain(text).unwrap().contains(&start));
    assert_eq!(tokenizer.eos(), tokenizer.token_id("<|endoftext|>"));
    assert!(
        tokenizer
            .control_tokens()
            .iter()
            .any(|token| token.id == start)
    );
}

#[test]
fn tokens_around_a_text_follow_the_flags() {
    let mut llama = vocabulary("llama");
    let with = Tokenizer::from_gguf(llama.clone())
        .unwrap()
        .encode_text("a")
        .unwrap();
    assert_eq!(with[0], llama.bos.unwrap());
    llama.add_bos = Some(false);
    llama.add_eos = Some(true);
    let without = Tokenizer::from_gguf(llama.clone())
        .unwrap()
        .encode_text("a")
        .unwrap();
    assert_eq!(without[..without.len() - 1], with[1..]);
    assert_eq!(without.last(), llama.eos.as_ref());
}

#[test]
fn bytes_that_are_no_text_come_out_as_bytes() {
    let vocabulary = vocabulary("llama");
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    let byte = |byte: u8| tokenizer.token_id(&format!("<0x{byte:02X}>")).unwrap();
    let a = tokenizer.token_id("a").unwrap();
    assert_eq!(
        tokenizer.decode(&[a, byte(0xF0), byte(0x9F), byte(0x98), byte(0x80)], true),
        "a😀"
    );
    assert_eq!(tokenizer.decode(&[a, byte(0xFF), a], true), "a\u{FFFD}a");
}

#[test]
fn chat_templates_are_found_by_name() {
    let mut vocabulary = vocabulary("gpt-2");
    vocabulary.chat_templates = vec![
        ("default".to_owned(), "plain".to_owned()),
        ("tool_use".to_owned(), "tools".to_owned()),
    ];
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    assert_eq!(tokenizer.chat_template(), Some("plain"));
    assert_eq!(tokenizer.chat_templates().len(), 2);
}

#[test]
fn a6_vocabularies_that_contradict_themselves() {
    let refused = |name: &str, what: &str, spoil: &dyn Fn(&mut GgufVocabulary)| {
        let mut spoiled = vocabulary(name);
        spoil(&mut spoiled);
        match Tokenizer::from_gguf(spoiled) {
            Err(TokenizerError::Malformed { reason, .. }) => {
                assert!(reason.contains(what), "`{reason}` does not say `{what}`");
            }
            other => panic!("{name}, {what}: {other:?}"),
        }
    };
    refused("llama", "scores", &|v| v.scores.truncate(10));
    refused("llama", "scores", &|v| v.tokens.truncate(10));
    refused("llama", "has no scores", &|v| v.scores.clear());
    refused("llama", "not a number", &|v| v.scores[5] = f32::NAN);
    refused("llama", "token types", &|v| v.types.truncate(10));
    refused("llama", "type 7", &|v| v.types[9] = 7);
    refused("llama", "type -1", &|v| v.types[9] = -1);
    refused("llama", "bos_token_id is 700", &|v| v.bos = Some(700));
    refused("gpt-2", "eos_token_id", &|v| v.eos = Some(u32::MAX));
    refused("t5", "unknown_token_id", &|v| v.unknown = Some(1 << 30));
    refused("gpt-2", "the merge `nope`", &|v| {
        v.merges.push("nope".to_owned())
    });
    refused("gpt-2", "the merge `zz yy`", &|v| {
        v.merges.push("zz yy".to_owned())
    });
    refused("gpt-2", "are both", &|v| v.tokens[3] = v.tokens[4].clone());
    refused("gpt-2", "0 tokens", &|v| {
        *v = GgufVocabulary {
            model: "gpt2".to_owned(),
            ..GgufVocabulary::default()
        }
    });
    refused("gpt-2", "the pre-tokenizer `exotic`", &|v| {
        v.pre = Some("exotic".to_owned())
    });
    refused("gpt-2", "the model `rwkv`", &|v| {
        v.model = "rwkv".to_owned()
    });
    refused("bert", "no unknown token", &|v| {
        v.tokens[1] = "[OTHER]".to_owned();
        v.unknown = None;
    });
    refused("t5", "precompiled_charsmap", &|v| {
        v.character_map.truncate(7)
    });
}

#[test]
fn types_say_what_is_a_byte_and_what_is_control() {
    let vocabulary = vocabulary("llama");
    let count = |kind: i32| {
        vocabulary
            .types
            .iter()
            .filter(|found| **found == kind)
            .count()
    };
    assert_eq!(count(BYTE), 256);
    assert_eq!(count(CONTROL), 2);
}
