//! Tokenizer files that mean harm: refused by name when they are read, or a bounded cost for a request.

use base64::Engine as _;
use mortise_test_tokenizers::{all_kinds, byte_fallback, byte_level, unigram, word_piece};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{GgufVocabulary, Tokenizer, TokenizerError, TokenizerFiles};

fn try_load(json: &Value) -> Result<Tokenizer, TokenizerError> {
    let bytes = json.to_string().into_bytes();
    Tokenizer::load(TokenizerFiles {
        tokenizer: &bytes,
        ..TokenizerFiles::default()
    })
}

fn refused(json: &Value, name: &str) {
    let error = try_load(json).expect_err(name).to_string();
    assert!(error.contains(name), "`{error}` does not name {name}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

fn with(place: &str, step: Value) -> Value {
    let mut json = byte_fallback(false);
    json[place] = step;
    json
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
}

/// A table of characters: a trie of so many units, as the file says and as there are, and replacements.
fn character_map(said: u32, units: &[u32], replacements: &str) -> Value {
    let mut bytes = said.to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(replacements.as_bytes());
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    json!({"type": "Precompiled", "precompiled_charsmap": encoded})
}

/// A step in so many sequences, one inside the other.
fn nested(step: Value, list: &str, depth: usize) -> Value {
    (0..depth).fold(step, |inner, _| json!({"type": "Sequence", list: [inner]}))
}

#[test]
fn steps_that_make_texts_grow_are_refused_by_name() {
    let long = "x".repeat(1000);
    for depth in [0, 1, 5] {
        let normalizer = |step| with("normalizer", nested(step, "normalizers", depth));
        refused(
            &normalizer(replace("a", &long)),
            "Replace puts in 1000 bytes",
        );
        refused(
            &normalizer(json!({"type": "Prepend", "prepend": long})),
            "Prepend puts in 1000 bytes",
        );
        refused(
            &normalizer(replace("", "x")),
            "the pattern of Replace is empty",
        );
        let empty = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "x"});
        refused(&normalizer(empty), "the pattern of Replace is empty");
        for nothing in ["x*", "a?", "(?=a)", r"\b", "(?:)", "^"] {
            let step = json!({"type": "Replace", "pattern": {"Regex": nothing}, "content": "-"});
            refused(&normalizer(step), "matches the empty text");
        }
        let decoder = nested(replace("a", &long), "decoders", depth);
        refused(&with("decoder", decoder), "Replace puts in 1000 bytes");
    }
    // Each small, all together a thousandfold and a millionfold.
    let doubling = |times: usize, unit: &str| {
        let steps: Vec<Value> = (0..times).map(|_| replace("a", unit)).collect();
        with(
            "normalizer",
            json!({"type": "Sequence", "normalizers": steps}),
        )
    };
    refused(&doubling(10, "aa"), "normalizer Replace makes");
    refused(&doubling(20, "aa"), "Replace steps make a text");
    refused(&doubling(4, &"a".repeat(64)), "Replace steps make a text");
    refused(&doubling(65, "a"), "more than 64 normalizers");
}

#[test]
fn numbers_in_files_are_checked_before_memory_is_asked_for() {
    let normalizer = |step| with("normalizer", step);
    refused(
        &normalizer(character_map(u32::MAX, &[0; 4], "a\0")),
        "shorter than its trie",
    );
    refused(
        &normalizer(character_map(16, &[0; 4], &"x".repeat(300))),
        "replaces a character by 300 bytes",
    );
    refused(
        &with("pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        "length 0",
    );
    let mut json = word_piece();
    json["model"]["max_input_chars_per_word"] = json!(1_000_000);
    refused(&json, "max_input_chars_per_word is 1000000");
    let mut json = byte_level();
    json["model"]["dropout"] = json!(0.5);
    refused(&json, "dropout");
    let mut json = byte_level();
    json["model"]["vocab"]["hello"] = json!(1u64 << 31);
    refused(&json, "token id 2147483648");
    let mut json = unigram();
    json["model"]["unk_id"] = json!(1u32 << 30);
    refused(&json, "unk_id");
    let strip = json!({"type": "Strip", "content": " ", "start": 1u64 << 60, "stop": 0});
    let tokenizer = try_load(&with(
        "decoder",
        json!({"type": "Sequence", "decoders": [strip]}),
    ));
    let tokenizer = tokenizer.expect("a large number of spaces is no harm");
    assert_eq!(
        tokenizer.decode(&tokenizer.encode_plain("a").unwrap(), true),
        "▁a"
    );
}

#[test]
fn post_processors_only_put_tokens_around_a_text() {
    let template = |single: Value| {
        let mut json = byte_level();
        json["post_processor"] = json!({"type": "TemplateProcessing", "single": single,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"x": {"id": "x", "ids": vec![5; 100], "tokens": vec!["x"; 100]}}});
        json
    };
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    refused(&template(json!([text, text])), "post-processor");
    refused(&template(json!([token])), "post-processor");
    refused(
        &template(Value::Array(
            [vec![text.clone()], vec![token.clone(); 100]].concat(),
        )),
        "post-processor",
    );
    let good = try_load(&template(json!([token, text]))).expect("a hundred tokens before a text");
    assert_eq!(good.encode_text("a").unwrap().len(), 101);
}

#[test]
fn post_processors_that_make_too_much_are_refused_before_they_run() {
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    let template = |single: Value, ids: usize, name: usize| {
        json!({"type": "TemplateProcessing", "single": single,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"x": {"id": "x", "ids": vec![5; ids], "tokens": vec!["x".repeat(name); ids]}}})
    };
    let many = [vec![text.clone()], vec![token.clone(); 100_000]].concat();
    let doubled = template(json!([text, text]), 1, 1);
    for bomb in [
        // Five hundred million tokens.
        template(Value::Array(many.clone()), 5000, 1),
        // Ten thousand million bytes of names.
        template(Value::Array(many[..1001].to_vec()), 1, 10_000_000),
        // Two to the power of forty texts.
        json!({"type": "Sequence", "processors": vec![doubled; 40]}),
    ] {
        let mut json = byte_level();
        json["post_processor"] = bomb;
        refused(&json, "post-processor");
    }
    // A pair that is too large is no pair; one text goes.
    let mut json = byte_level();
    json["post_processor"] = template(json!([text]), 5000, 1);
    json["post_processor"]["pair"] = Value::Array(many);
    assert!(try_load(&json).is_ok());
}

#[test]
fn a_text_that_grows_beyond_reason_costs_its_own_request() {
    // No plain text shows it: the growth needs characters that nobody tries.
    let steps: Vec<Value> = (0..4)
        .map(|_| json!({"type": "Replace", "pattern": {"Regex": "[ЖЩ]"}, "content": "ЖЩ"}))
        .collect();
    let tokenizer = try_load(&with(
        "normalizer",
        json!({"type": "Sequence", "normalizers": steps}),
    ));
    let tokenizer = tokenizer.expect("sixteenfold is within bounds");
    assert!(tokenizer.encode_plain(&"Ж".repeat(10_000)).is_ok());
    let steps: Vec<Value> = [8, 8, 2]
        .map(|times| json!({"type": "Replace", "pattern": {"Regex": "Ж"}, "content": "Ж".repeat(times)}))
        .into();
    let json = with(
        "normalizer",
        json!({"type": "Sequence", "normalizers": steps}),
    );
    let tokenizer = try_load(&json).expect("no plain text shows it");
    let error = tokenizer
        .encode_plain(&"Ж".repeat(10_000))
        .expect_err("128 times as long");
    assert!(matches!(error, TokenizerError::Growth { .. }), "{error}");
    assert!(error.to_string().contains("Replace"), "{error}");
    assert!(tokenizer.encode_plain("hello").is_ok());
}

#[test]
fn vocabularies_of_gguf_files_are_checked_alike() {
    let tokens: Vec<String> = ["<unk>", "</s>", "▁", "a", "b"].map(str::to_owned).into();
    let vocabulary = |character_map: Vec<u8>| GgufVocabulary {
        model: "t5".to_owned(),
        scores: vec![-1.0; tokens.len()],
        types: vec![2, 3, 1, 1, 1],
        tokens: tokens.clone(),
        character_map,
        ..GgufVocabulary::default()
    };
    let error = |map: Vec<u8>| {
        Tokenizer::from_gguf(vocabulary(map))
            .expect_err("hostile")
            .to_string()
    };
    let large = u32::MAX.to_le_bytes().to_vec();
    assert!(error([large, vec![0; 64]].concat()).contains("shorter than its trie"));
    let long = [16u32.to_le_bytes().to_vec(), vec![0; 16], vec![b'x'; 5000]].concat();
    assert!(error(long).contains("replaces a character by 5000 bytes"));
    let mut trimmed = vocabulary(Vec::new());
    trimmed.remove_extra_whitespaces = Some(true);
    let tokenizer = Tokenizer::from_gguf(trimmed).expect("a good vocabulary");
    // Time in the square of the run would be minutes.
    let spaces = format!("{}a{}", " ".repeat(300_000), " ".repeat(300_000));
    assert_eq!(
        tokenizer.encode_plain(&spaces).unwrap(),
        tokenizer.encode_plain("a").unwrap()
    );
}

/// A step with some of its numbers and texts drawn.
fn step() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just(String::new()), "[a-c ▁]{1,3}", "[a-c]{60,80}"];
    let pattern = || {
        prop_oneof![
            text().prop_map(|text| json!({"String": text})),
            prop::sample::select(vec![
                "a+",
                "(a+)+$",
                "a*",
                " ",
                r"\s+(?!\S)",
                "(",
                "[a-c]",
                "(a|a)*b",
                "."
            ])
            .prop_map(|regex| json!({"Regex": regex})),
        ]
    };
    let behavior = prop::sample::select(vec![
        "Removed",
        "Isolated",
        "MergedWithNext",
        "Contiguous",
        "Odd",
    ]);
    prop_oneof![
        (pattern(), text()).prop_map(|(pattern, content)| {
            json!({"type": "Replace", "pattern": pattern, "content": content})
        }),
        text().prop_map(|prepend| json!({"type": "Prepend", "prepend": prepend})),
        (pattern(), behavior, any::<bool>()).prop_map(|(pattern, behavior, invert)| {
            json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert})
        }),
        (0..4u64).prop_map(|length| json!({"type": "FixedLength", "length": length})),
        (any::<u32>(), text()).prop_map(|(said, text)| character_map(said % 64, &[0, 1, 2, 3], &text)),
        (text(), any::<u64>(), any::<u64>()).prop_map(|(content, start, stop)| {
            json!({"type": "Strip", "content": content, "start": start, "stop": stop, "strip_left": true,
                "strip_right": true})
        }),
        prop::sample::select(vec!["NFKD", "Lowercase", "ByteFallback", "Fuse", "ByteLevel", "Metaspace",
            "BertPreTokenizer", "Nonsense", "Digits", "WordPiece", "CTC", "ByteLevel"])
            .prop_map(|kind| json!({"type": kind, "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true, "replacement": "▁", "prepend_scheme": "always", "individual_digits": true,
                "prefix": "##", "cleanup": true})),
    ]
}

fn sequence(list: &'static str) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![3 => step(), 1 => Just(Value::Null)];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        proptest::collection::vec(inner, 0..6)
            .prop_map(move |steps| json!({"type": "Sequence", list: steps}))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn drawn_steps_are_refused_by_name_or_bounded(
        normalizer in sequence("normalizers"),
        pre_tokenizer in sequence("pretokenizers"),
        decoder in sequence("decoders"),
        post_processor in sequence("processors"),
        which in 0..6usize,
        text in "[a-d ▁\n日]{0,20}",
    ) {
        let all = [("normalizer", normalizer), ("pre_tokenizer", pre_tokenizer), ("decoder", decoder),
            ("post_processor", post_processor)];
        // One by one, so that a refusal of one does not hide the others, and all at once.
        for drawn in [&all[..1], &all[1..2], &all[2..3], &all[3..], &all[..]] {
            let mut json = all_kinds()[which].1.clone();
            for (place, step) in drawn {
                json[*place] = step.clone();
            }
            match try_load(&json) {
                Err(error) => prop_assert!(error.to_string().contains("tokenizer.json"), "{error}"),
                Ok(tokenizer) => {
                    let text = text.repeat(50);
                    match tokenizer.encode_text(&text) {
                        Ok(ids) => {
                            prop_assert!(ids.len() <= 64 * text.len() + 4096 + 1024);
                            let decoded = tokenizer.decode(&ids, true);
                            prop_assert!(decoded.len() <= ids.len() * (64 * 64 + 4096));
                        }
                        // What a request can meet is said in words, without the library's insides.
                        Err(error) => {
                            let said = error.to_string();
                            prop_assert!(!said.contains("index") && !said.contains("gave up"), "{said}");
                        }
                    }
                }
            }
        }
    }
}

/// Random texts that share no beginning, so that each byte is a state of the automaton.
fn texts(count: usize, bytes: usize) -> Vec<String> {
    let text = |number: usize| format!("{number:08x}{}", "x".repeat(bytes - 8));
    (0..count)
        .map(|number| text(number.reverse_bits() >> 32))
        .collect()
}

#[test]
fn added_tokens_are_bounded_by_their_bytes_together_before_they_are_searched_for() {
    let added = |normalized: Value, texts: &[String]| -> Value {
        let tokens = texts.iter().enumerate().map(|(number, text)| {
            json!({"id": 5000 + number, "content": text, "special": true, "normalized": normalized,
                   "single_word": false, "lstrip": false, "rstrip": false})
        });
        tokens.collect()
    };
    let with = |normalizer: Value, normalized: Value, texts: &[String]| {
        let mut json = byte_fallback(false);
        json["normalizer"] = normalizer;
        json["added_tokens"] = added(normalized, texts);
        json
    };
    const SAID: &str = "bytes together";
    let many = texts(2100, 4096);
    for normalized in [json!(false), json!(true)] {
        refused(&with(Value::Null, normalized, &many), SAID);
    }
    // Fewer, with what a normalizer may make of them: of each step by itself, and of all together.
    let prepend = json!({"type": "Prepend", "prepend": "y".repeat(64)});
    let table = character_map(16, &[0; 4], &"x".repeat(256));
    let replace = replace("x", "xx");
    for (normalizer, count, bytes) in [
        (replace.clone(), 1100, 4096),
        (json!({"type": "NFKD"}), 200, 4096),
        (table, 10, 4096),
        (prepend.clone(), 130_000, 9),
        (
            json!({"type": "Sequence", "normalizers": [prepend, {"type": "NFC"}, replace]}),
            20_000,
            9,
        ),
    ] {
        refused(&with(normalizer, json!(true), &texts(count, bytes)), SAID);
    }
}

#[test]
fn added_tokens_of_the_smaller_file_have_the_same_bounds() {
    let json = byte_level();
    let size = try_load(&json).expect("loads").vocabulary_size();
    let load = |texts: &[String]| {
        let tokens = texts.iter().enumerate().map(|(number, text)| {
            let flags = json!({"content": text, "special": true, "normalized": false});
            ((size + number).to_string(), flags)
        });
        let tokens: serde_json::Map<String, Value> = tokens.collect();
        Tokenizer::load(TokenizerFiles {
            tokenizer: json.to_string().as_bytes(),
            config: Some(
                json!({"added_tokens_decoder": tokens})
                    .to_string()
                    .as_bytes(),
            ),
            ..TokenizerFiles::default()
        })
    };
    for (texts, said) in [
        (texts(2100, 4096), "bytes together"),
        (texts(1, 4097), "an added token has 4097 bytes"),
        (texts((1 << 18) + 1, 9), "262145 added tokens"),
    ] {
        let error = load(&texts).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
        assert!(error.contains("tokenizer_config.json"), "{error}");
    }
    // As many as a model of speech has.
    let speech: Vec<String> = (0..65_536).map(|n| format!("<|s{n}|>")).collect();
    let tokenizer = load(&speech).expect("they fit");
    assert_eq!(tokenizer.vocabulary_size(), size + speech.len());
    assert_eq!(
        tokenizer.token_id("<|s65535|>"),
        Some((size + 65_535) as u32)
    );
}
