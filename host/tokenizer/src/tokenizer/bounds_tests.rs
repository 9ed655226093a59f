//! Bounds of one encoding: long words, texts that are refused early, work that is stopped.

use std::cell::Cell;

use mortise_test_tokenizers::{all_kinds, byte_fallback, byte_level};
use proptest::prelude::*;
use serde_json::Value;

use crate::fixtures::{load, oracle};
use crate::{EncodeLimits, TextSegment, Tokenizer, TokenizerError, TokenizerFiles};

const DEMO: &[u8] = include_bytes!("../../../../examples/demo-model/model/tokenizer.json");

fn demo() -> (Tokenizer, tokenizers::Tokenizer) {
    let files = TokenizerFiles {
        tokenizer: DEMO,
        ..TokenizerFiles::default()
    };
    let ours = Tokenizer::load(files).expect("the demo model's tokenizer");
    let library = tokenizers::Tokenizer::from_bytes(DEMO).expect("the demo model's tokenizer");
    (ours, library)
}

/// The ids of plain text, whatever length it has, are those of the library.
fn check_plain(tokenizer: &Tokenizer, library: &tokenizers::Tokenizer, text: &str) {
    let expected = library.encode(text, false).expect("encodes");
    let ids = tokenizer.encode_plain(text).expect("encodes");
    let differ = ids.iter().zip(expected.get_ids()).position(|(a, b)| a != b);
    let start: String = text.chars().take(20).collect();
    assert!(
        ids == expected.get_ids(),
        "{start:?}… of {} bytes differs at {differ:?}",
        text.len()
    );
}

/// Work and result of encoding plain text within so many tokens.
fn work(
    tokenizer: &Tokenizer,
    text: &str,
    max_tokens: usize,
) -> (usize, Result<Vec<u32>, TokenizerError>) {
    let done = Cell::new(0);
    let proceed = |work| {
        done.set(done.get() + work);
        true
    };
    let limits = EncodeLimits {
        max_tokens,
        proceed: &proceed,
    };
    let result = tokenizer.encode_segments_within(&[TextSegment::Plain(text)], limits);
    (done.get(), result)
}

fn runs() -> Vec<String> {
    let mut runs: Vec<String> = [
        " ",
        "a",
        "hello",
        " hello",
        "the ",
        "\n",
        " \n",
        "ab",
        "é",
        "漢",
        "😀",
        "x1",
        "hhe",
        "▁",
        "worldhello",
        "!",
        "e\u{301}",
        "\u{0}",
    ]
    .into_iter()
    .flat_map(|unit| [1_100, 5_000].map(|bytes: usize| unit.repeat(bytes / unit.len() + 1)))
    .collect();
    runs.push(
        "word hello the\n".repeat(50) + &"hello".repeat(700) + " and   more " + &" ".repeat(3000),
    );
    runs
}

#[test]
fn feature_p10_long_words_and_runs_equal_the_library() {
    for (name, json) in all_kinds() {
        // Its unknown words are no error for WordLevel, but a control character is its control token.
        let (tokenizer, library) = (load(&json), oracle(&json));
        for text in runs() {
            if name != "word level" || !text.contains('§') {
                check_plain(&tokenizer, &library, &text);
            }
        }
    }
    let (tokenizer, library) = demo();
    for text in runs() {
        check_plain(&tokenizer, &library, &text);
    }
}

#[test]
fn work_grows_with_the_text_and_not_with_its_square() {
    let (demo, _) = demo();
    let mut tokenizers: Vec<(&str, Tokenizer)> = all_kinds()
        .into_iter()
        .map(|(name, json)| (name, load(&json)))
        .collect();
    tokenizers.push(("demo", demo));
    for (name, tokenizer) in &tokenizers {
        for unit in [
            " ",
            "a",
            "\n",
            " \t",
            "hello",
            "a ",
            "<|im_start|>",
            "é",
            "e\u{301}",
            ".",
        ] {
            let of = |bytes: usize| work(tokenizer, &unit.repeat(bytes / unit.len()), usize::MAX).0;
            let (short, long) = (of(64 << 10), of(256 << 10));
            assert!(
                long <= 5 * (short + (16 << 10)),
                "{name}: {unit:?}: {short}, {long}"
            );
        }
    }
}

#[test]
fn texts_that_cannot_fit_are_refused_before_they_are_encoded() {
    let (tokenizer, _) = demo();
    for text in [
        " ".repeat(64 << 10),
        "additionalProperties ".repeat(10_000),
        "é".repeat(1 << 20),
    ] {
        let (work, result) = work(&tokenizer, &text, 2048);
        let Err(TokenizerError::TooLong { at_least }) = result else {
            panic!("{result:?}");
        };
        assert!(
            at_least > 2048 && work == 0,
            "{at_least} tokens after {work}"
        );
        let exact = tokenizer.encode_plain(&text).expect("encodes").len();
        assert!(at_least <= exact, "{at_least} is not below {exact}");
    }
}

#[test]
fn encoding_stops_soon_after_there_are_too_many_tokens() {
    for (name, json) in all_kinds() {
        let tokenizer = load(&json);
        let text = "hello world a ".repeat(100_000);
        let (work, result) = work(&tokenizer, &text, 100);
        assert!(
            matches!(result, Err(TokenizerError::TooLong { .. })),
            "{name}: {result:?}"
        );
        let all = self::work(&tokenizer, &text, usize::MAX).0;
        assert!(work * 2 < all, "{name}: {work} of {all}");
    }
}

#[test]
fn encoding_stops_within_a_slice_of_being_told() {
    let (demo, _) = demo();
    let tokenizers = [demo, load(&byte_level()), load(&byte_fallback(true))];
    for tokenizer in &tokenizers {
        for unit in [" ", "a", "hello world ", "é", "ĠĠ", "e\u{301}"] {
            let text = unit.repeat(1 << 18);
            let calls = Cell::new(0);
            let proceed = |_| calls.replace(calls.get() + 1) < 3;
            let limits = EncodeLimits {
                max_tokens: usize::MAX,
                proceed: &proceed,
            };
            let result = tokenizer.encode_text_within(&text, limits);
            assert_eq!(result, Err(TokenizerError::Cancelled), "{unit:?}");
            assert_eq!(calls.get(), 4, "nothing is asked after the answer was no");
        }
    }
}

/// A tokenizer of some kind with other steps in some places.
fn with_steps(kind: usize, steps: &[(&str, Value)]) -> Value {
    let mut json = all_kinds()[kind].1.clone();
    for (place, step) in steps {
        json[*place] = step.clone();
    }
    json
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_bound_is_never_above_the_tokens(
        text in "([a-zA-Z0-9 .\n]|\u{212a}|\u{1d400}|e\u{301}|\u{ad}|\u{3000}|漢|😀|<\\|pad\\|>){0,200}",
        steps in proptest::sample::subsequence(vec![
            serde_json::json!({"type": "NFKC"}), serde_json::json!({"type": "Lowercase"}),
            serde_json::json!({"type": "Strip", "strip_left": true, "strip_right": true}),
            serde_json::json!({"type": "StripAccents"}),
            serde_json::json!({"type": "Replace", "pattern": {"String": "ab"}, "content": "a"}),
            serde_json::json!({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}),
            serde_json::json!({"type": "Replace", "pattern": {"Regex": "[a-c]+"}, "content": ""}),
            serde_json::json!({"type": "Replace", "pattern": {"String": "."}, "content": ""}),
        ], 0..5),
    ) {
        for kind in 0..all_kinds().len() {
            for normalizer in [all_kinds()[kind].1["normalizer"].clone(),
                serde_json::json!({"type": "Sequence", "normalizers": steps.clone()})] {
                let tokenizer = load(&with_steps(kind, &[("normalizer", normalizer)]));
                let ids = tokenizer.encode_special(&text).expect("encodes");
                let least = tokenizer.pipeline.bound.tokens(&text);
                prop_assert!(least <= ids.len(), "{least} is above {}", ids.len());
            }
        }
    }

    #[test]
    fn random_long_words_equal_the_library(
        parts in proptest::collection::vec(("[a-eh-lo-wĠ ▁<>é漢\u{301}]{1,8}", 1..400usize), 1..8),
    ) {
        let text: String = parts.iter().map(|(unit, times)| unit.repeat(*times)).collect();
        let kinds = all_kinds().into_iter().map(|(_, json)| (load(&json), oracle(&json)));
        for (tokenizer, library) in kinds.chain([demo()]) {
            // The library finds control tokens in any text, such as `<s>`, where plain text has none.
            let control = library.get_added_tokens_decoder();
            if !control.values().any(|token| text.contains(&token.content)) {
                check_plain(&tokenizer, &library, &text);
            }
        }
    }

    #[test]
    fn random_steps_equal_the_library(
        normalizers in proptest::collection::vec(normalizer(), 0..4),
        pre_tokenizers in proptest::collection::vec(pre_tokenizer(), 0..4),
        text in "([a-eA-E0-9 '.,\n\t]|é|e\u{301}|漢|\u{3000}|😀|hello|<norm>){0,60}",
        nested in any::<bool>(),
    ) {
        let mut normalizer = serde_json::json!({"type": "Sequence", "normalizers": normalizers});
        let mut pre_tokenizer =
            serde_json::json!({"type": "Sequence", "pretokenizers": pre_tokenizers});
        if nested {
            normalizer = serde_json::json!({"type": "Sequence", "normalizers": [normalizer]});
            pre_tokenizer = serde_json::json!({"type": "Sequence", "pretokenizers": [pre_tokenizer]});
        }
        for kind in [0, 1, 3, 4] {
            let json = with_steps(kind, &[
                ("normalizer", normalizer.clone()), ("pre_tokenizer", pre_tokenizer.clone()),
                ("post_processor", Value::Null),
            ]);
            let expected = oracle(&json).encode(text.as_str(), false).expect("encodes");
            let ids = load(&json).encode_special(&text).expect("encodes");
            prop_assert_eq!(ids, expected.get_ids(), "{}", json);
        }
    }
}

fn normalizer() -> impl Strategy<Value = Value> {
    let replace = |pattern: Value, content: &str| serde_json::json!({"type": "Replace", "pattern": pattern, "content": content});
    prop::sample::select(vec![
        serde_json::json!({"type": "NFC"}),
        serde_json::json!({"type": "NFKD"}),
        serde_json::json!({"type": "Lowercase"}),
        serde_json::json!({"type": "Strip", "strip_left": true, "strip_right": false}),
        serde_json::json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        serde_json::json!({"type": "StripAccents"}),
        serde_json::json!({"type": "Prepend", "prepend": "▁"}),
        serde_json::json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true}),
        serde_json::json!({"type": "Nmt"}),
        replace(serde_json::json!({"String": " "}), "▁"),
        replace(serde_json::json!({"String": "ab"}), ""),
        replace(serde_json::json!({"Regex": r"\s+"}), " "),
        replace(serde_json::json!({"Regex": "[a-c]"}), "xy"),
        replace(serde_json::json!({"Regex": r"\A +| +\z"}), ""),
        replace(serde_json::json!({"Regex": r"(\w)\1"}), "z"),
    ])
}

fn pre_tokenizer() -> impl Strategy<Value = Value> {
    let split = |pattern: Value, behavior: &str, invert: bool| serde_json::json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert});
    let patterns = [
        serde_json::json!({"String": " "}),
        serde_json::json!({"Regex": r"\s+(?!\S)|\s"}),
        serde_json::json!({"Regex": r"\w+|[^\w\s]+"}),
        serde_json::json!({"Regex": r"(\d)\1"}),
    ];
    let mut all = vec![
        serde_json::json!({"type": "Digits", "individual_digits": true}),
        serde_json::json!({"type": "Digits", "individual_digits": false}),
        serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false}),
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
        serde_json::json!({"type": "Whitespace"}),
        serde_json::json!({"type": "WhitespaceSplit"}),
        serde_json::json!({"type": "BertPreTokenizer"}),
        serde_json::json!({"type": "Punctuation", "behavior": "Contiguous"}),
        serde_json::json!({"type": "UnicodeScripts"}),
        serde_json::json!({"type": "FixedLength", "length": 3}),
    ];
    for pattern in patterns {
        for behavior in [
            "Removed",
            "Isolated",
            "MergedWithPrevious",
            "MergedWithNext",
            "Contiguous",
        ] {
            all.push(split(pattern.clone(), behavior, false));
            all.push(split(pattern.clone(), behavior, true));
        }
    }
    prop::sample::select(all)
}
