use std::sync::Arc;

use proptest::prelude::*;

use super::Detokenizer;
use crate::fixtures::{load, oracle};
use crate::tokenizer::Tokenizer;
use mortise_test_tokenizers::{END, all_kinds, byte_fallback, byte_level};

/// Text of tokens one by one, checking that every piece is whole text and nothing is taken back.
fn incremental(tokenizer: &Tokenizer, ids: &[u32], keep_special: bool, at_start: bool) -> String {
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer.table()), keep_special, at_start);
    let mut text = String::new();
    for &id in ids {
        detokenizer.push(id, &mut text);
    }
    detokenizer.finish(&mut text);
    text
}

fn ids_of(tokenizer: &Tokenizer, tokens: &[&str]) -> Vec<u32> {
    tokens
        .iter()
        .map(|token| tokenizer.token_id(token).expect("a token"))
        .collect()
}

#[test]
fn characters_are_never_split() {
    let tokenizer = load(&byte_level());
    let ids = tokenizer.encode_plain("a😀é").expect("encodes");
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer.table()), false, true);
    let mut pieces = Vec::new();
    for id in ids {
        let mut piece = String::new();
        detokenizer.push(id, &mut piece);
        if !piece.is_empty() {
            pieces.push(piece);
        }
    }
    assert_eq!(pieces, ["a", "😀", "é"]);
    assert_eq!(detokenizer.held(), 0);
}

#[test]
fn an_unfinished_character_becomes_a_replacement_at_the_end() {
    let tokenizer = load(&byte_level());
    let ids = ids_of(&tokenizer, &["a", "ð", "Ł"]);
    assert_eq!(incremental(&tokenizer, &ids, false, true), "a\u{FFFD}");
    let tokenizer = load(&byte_fallback(false));
    let ids = ids_of(&tokenizer, &["a", "<0xF0>", "<0x9F>", "b", "<0xC3>"]);
    assert_eq!(
        incremental(&tokenizer, &ids, false, true),
        "a\u{FFFD}\u{FFFD}b\u{FFFD}"
    );
}

#[test]
fn good_characters_among_broken_fallback_bytes_stay() {
    let tokenizer = load(&byte_fallback(false));
    let ids = ids_of(&tokenizer, &["<0xC3>", "<0xA9>", "<0xFF>", "<0x41>"]);
    assert_eq!(incremental(&tokenizer, &ids, false, true), "é\u{FFFD}A");
}

#[test]
fn the_first_space_counts_in_the_middle_of_a_text() {
    for metaspace in [false, true] {
        let tokenizer = load(&byte_fallback(metaspace));
        let ids = ids_of(&tokenizer, &["▁hello", "▁hello"]);
        assert_eq!(incremental(&tokenizer, &ids, false, true), "hello hello");
        assert_eq!(incremental(&tokenizer, &ids, false, false), " hello hello");
    }
}

#[test]
fn special_tokens_are_kept_on_request() {
    let tokenizer = load(&byte_level());
    let ids = ids_of(&tokenizer, &["hello", END, "<tool_call>"]);
    assert_eq!(
        incremental(&tokenizer, &ids, false, true),
        "hello<tool_call>"
    );
    assert_eq!(
        incremental(&tokenizer, &ids, true, true),
        "hello<|im_end|><tool_call>"
    );
}

#[test]
fn unknown_ids_have_no_text() {
    let tokenizer = load(&byte_level());
    assert_eq!(
        incremental(&tokenizer, &[1_000_000, u32::MAX], true, true),
        ""
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_tokens_equal_the_library(
        choices in proptest::collection::vec(any::<prop::sample::Index>(), 0..24),
        keep_special in any::<bool>(),
    ) {
        for (name, json) in all_kinds() {
            let tokenizer = load(&json);
            let size = tokenizer.vocabulary_size() + 2;
            let ids: Vec<u32> = choices.iter().map(|choice| choice.index(size) as u32).collect();
            let expected = oracle(&json).decode(&ids, !keep_special).expect("decodes");
            let text = incremental(&tokenizer, &ids, keep_special, true);
            // Of broken fallback bytes, the library gives up the good characters around them too.
            if name.starts_with("byte level") || !expected.contains('\u{FFFD}') {
                prop_assert_eq!(text, expected, "{}: {:?}", name, ids);
            } else {
                let clean = |text: &str| text.replace('\u{FFFD}', "").chars().count();
                prop_assert!(clean(&text) >= clean(&expected), "{}: {:?}", name, ids);
            }
        }
    }
}
