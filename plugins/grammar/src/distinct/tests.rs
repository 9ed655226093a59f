use serde_json::{Value, json};

use crate::engine::{Engine, Vocabulary};
use crate::matcher::{Mask, Matcher, Status};
use crate::source::Source;

const END: u32 = 256;
/// Tokens beside those of a byte each: some hold whole texts, or the end of one and another.
const MORE: [&str; 16] = [
    "<end>",
    "[\"",
    "\"]",
    "\",\"",
    "\"a\"",
    "a\",\"a\"",
    "[\"a\",\"a\"]",
    "\\u0061",
    "\"b\",\"b",
    "\",\"a\",",
    "ab",
    "\": [\"",
    "[{},{}",
    "},{}",
    "\"a\":\"",
    "\"}",
];

fn engine() -> Engine {
    let mut bytes: Vec<u8> = (0..=255).collect();
    let mut offsets: Vec<u32> = (0..=256).collect();
    for token in MORE {
        bytes.extend(token.as_bytes());
        offsets.push(bytes.len() as u32);
    }
    Engine::new(&Vocabulary {
        bytes,
        offsets,
        eos: vec![END],
        control: vec![END],
    })
    .unwrap()
}

fn matcher(engine: &mut Engine, schema: &Value) -> Matcher {
    engine
        .compile(&Source::JsonSchema(schema.to_string()))
        .unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn takes(matcher: &Matcher, text: &str) -> bool {
    let mut copy = matcher.fork();
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    copy.accept(&tokens).is_ok() && copy.status().is_ok_and(|status| status != Status::Active)
}

fn set() -> Value {
    json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})
}

#[test]
fn feature_p8_texts_of_an_array_differ() {
    let mut engine = engine();
    let letters: Vec<String> = (0..30).map(|at| format!("v{at}")).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "tags": set(),
            "listed": {"type": "array", "items": {"$ref": "#/$defs/letter"}, "uniqueItems": true, "minItems": 1},
            "short": {"type": "array", "items": {"type": "string", "maxLength": 4}, "uniqueItems": true},
            "free": {"type": "array", "items": {"type": "string"}},
            "deep": {"type": "array", "items": set()},
        },
        "additionalProperties": false,
        "$defs": {"letter": {"enum": letters}},
    });
    let matcher = matcher(&mut engine, &schema);
    for (text, valid) in [
        (r#"{"tags": []}"#, true),
        (r#"{"tags": ["a", "b", "ab", ""]}"#, true),
        (r#"{"tags": ["a", "b", "a"]}"#, false),
        (r#"{"tags": ["a", "\u0061"]}"#, false),
        (r#"{"tags": ["\ud83d\ude00", "😀"]}"#, false),
        (r#"{"tags": ["a\n", "a\\n", "\"", "\\\""]}"#, true),
        (r#"{"tags": ["tags", "a"]}"#, true),
        (r#"{"listed": ["v3", "v1", "v10", "v29"]}"#, true),
        (r#"{"listed": ["v1", "v10", "v1"]}"#, false),
        (r#"{"listed": ["v30"]}"#, false),
        (r#"{"short": ["abcd", "abce", "abc"]}"#, true),
        (r#"{"short": ["abcd", "abcd"]}"#, false),
        (r#"{"free": ["a", "a"]}"#, true),
        (r#"{"tags": ["a"], "free": ["a", "a"]}"#, true),
        (r#"{"deep": [["a"], ["a", "b"], ["b", "b"]]}"#, false),
        (r#"{"deep": [["a"], ["a", "b"], ["a"]]}"#, true),
    ] {
        assert_eq!(takes(&matcher, text), valid, "{text}");
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(jsonschema::is_valid(&schema, &value), valid, "{text}");
    }
}

fn of(items: Value) -> Value {
    json!({"type": "array", "items": items, "uniqueItems": true})
}

fn closed(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Arrays of other items than texts, which must differ.
fn of_objects() -> [Value; 7] {
    let text = json!({"type": "string"});
    let count = json!({"type": "integer", "minimum": 0});
    let open = json!({"type": "object", "properties": {"a": text, "b": {"type": "integer"}}});
    [
        of(closed(json!({"a": text, "b": text}), json!([]))),
        of(closed(json!({"a": text, "b": count}), json!(["b"]))),
        // The kind does not count: no two have the same name.
        of(closed(
            json!({"a": text, "b": {"enum": ["a", "b"]}}),
            json!(["a", "b"]),
        )),
        of(open.clone()),
        of(
            json!({"anyOf": [closed(json!({"a": {"type": "boolean"}, "b": open}), json!([])), text]}),
        ),
        of(count),
        json!({"type": "object", "properties": {"a": of(closed(json!({"b": set()}), json!([])))}, "required": ["a"]}),
    ]
}

#[test]
fn feature_p8_objects_of_an_array_differ() {
    let mut engine = engine();
    let texts = [
        r#"[]"#,
        r#"[{}]"#,
        r#"[{}, {}]"#,
        r#"[{}, {"a": "x"}, {"b": "x"}, {"a": "x", "b": "x"}]"#,
        r#"[{"a": "x", "b": "y"}, {"a": "x", "b": "y"}]"#,
        r#"[{"a": "x", "b": "y"}, {"a": "x", "b": "yy"}]"#,
        r#"[{"a": "x", "b": "y"}, {"a": "\u0078","b":"y" }]"#,
        r#"[{"b": 0}, {"b": 10}, {"a": "x", "b": 1}]"#,
        r#"[{"b": 0}, {"b": 0}]"#,
        r#"[{"a": "x", "b": 12}, {"a": "x", "b": 12}]"#,
        r#"[{"a": "x", "b": "a"}, {"a": "y", "b": "a"}]"#,
        r#"[{"a": "x", "b": "a"}, {"a": "x", "b": "a"}]"#,
        r#"[{"a": "x", "c": [1, {}]}, {"a": "x", "c": [1]}, {"a": "x"}]"#,
        r#"[{"a": "x", "c": [1, {}]}, {"c": [1, {}], "a": "x"}]"#,
        r#"[{"a": true, "b": {"a": "x"}}, {"a": true, "b": {"a": "x", "c": 1}}, "a", "b"]"#,
        r#"[{"a": true, "b": {"a": "x"}}, {"a": true, "b": {"a": "x"}}]"#,
        r#"["a", {"b": {}}, {"b": {}}]"#,
        r#"["a", {"b": {}}, "a"]"#,
        r#"[0, 1, 10, 100]"#,
        r#"[0, 1, 0]"#,
        r#"[1, 10, 1]"#,
        r#"{"a": [{"b": ["x"]}, {"b": ["x", "y"]}, {"b": []}, {}]}"#,
        r#"{"a": [{"b": ["x"]}, {"b": ["y", "y"]}]}"#,
        r#"{"a": [{"b": ["x"]}, {"b": ["x"]}]}"#,
    ];
    for schema in of_objects() {
        let matcher = matcher(&mut engine, &schema);
        let (mut taken, mut refused) = (0, 0);
        for text in texts {
            let value: Value = serde_json::from_str(text).unwrap();
            let valid = jsonschema::is_valid(&schema, &value);
            assert!(valid || !takes(&matcher, text), "{schema} {text}");
            if valid && !text.contains("\\u") {
                taken += usize::from(takes(&matcher, text));
                refused += usize::from(!takes(&matcher, text));
            }
        }
        assert!(taken > 0 && refused == 0, "{schema}: {taken} and {refused}");
    }
    let name = json!({"type": "string"});
    let same = of(closed(
        json!({"a": name, "b": {"type": "boolean"}}),
        json!(["a", "b"]),
    ));
    let same = self::matcher(&mut engine, &same);
    assert!(!takes(
        &same,
        r#"[{"a": "x", "b": true}, {"a": "x", "b": false}]"#
    ));
    // There are but two, or three, or nothing tells how one could become another.
    for few in [
        closed(json!({"a": {"type": "boolean"}}), json!([])),
        closed(json!({"a": name, "b": {"type": "boolean"}}), json!([])),
        closed(
            json!({"a": {"type": "string", "pattern": "^a?$"}}),
            json!([]),
        ),
        json!({"type": ["string", "null"]}),
        json!({"anyOf": [{"type": "object"}, {"type": "object"}]}),
        json!({"type": "integer", "maximum": 3}),
    ] {
        let source = Source::JsonSchema(of(few.clone()).to_string());
        assert!(engine.compile(&source).is_err(), "{few}");
    }
}

/// Tokens that would repeat an item are not in the mask, however much they hold.
#[test]
fn masks_leave_out_what_would_repeat() {
    let mut engine = engine();
    let mut matcher = matcher(&mut engine, &set());
    let more = |text: &str| 256 + MORE.iter().position(|token| *token == text).unwrap() as u32;
    let allowed = |matcher: &mut Matcher| {
        let words = matcher.mask().unwrap().0.into_dense(256 + MORE.len(), 9);
        (0..256 + MORE.len() as u32)
            .filter(|t| words[*t as usize / 32] >> (t % 32) & 1 == 1)
            .collect::<Vec<u32>>()
    };
    assert!(!allowed(&mut matcher).contains(&more("[\"a\",\"a\"]")));
    assert!(allowed(&mut matcher).contains(&more("[\"")));
    matcher.accept(&[more("[\"")]).unwrap();
    assert!(!allowed(&mut matcher).contains(&more("a\",\"a\"")));
    matcher.accept(&[u32::from(b'a'), more("\",\"")]).unwrap();
    let at_text = allowed(&mut matcher);
    assert!(at_text.contains(&u32::from(b'a')) && at_text.contains(&more("ab")));
    assert!(!at_text.contains(&more("a\",\"a\"")) && at_text.contains(&more("\",\"")));
    matcher.accept(&[u32::from(b'a')]).unwrap();
    for token in [u32::from(b'"'), more("\"]"), more("\",\"")] {
        assert!(!allowed(&mut matcher).contains(&token), "{token}");
        assert!(matcher.fork().accept(&[token]).is_err());
        assert_eq!(matcher.probe(&[u32::from(b'b'), token]).unwrap(), 2);
    }
    // What is taken back is forgotten.
    matcher.rollback(3).unwrap();
    matcher.accept(&[u32::from(b'b'), u32::from(b'"')]).unwrap();
    matcher.accept(&[u32::from(b','), more("\"a\"")]).unwrap();
    assert!(matcher.accept(&[u32::from(b','), more("\"a\"")]).is_err());
}

/// A model without any idea never comes to a place where nothing may follow, and what it writes is valid.
#[test]
fn feature_p8_no_way_ends_where_nothing_may_follow() {
    let mut engine = engine();
    let schemas = [
        set(),
        json!({"type": "array", "items": {"enum": ["a", "ab", "abc", "b", "c", "d", "e", "f", "g"]}, "uniqueItems": true, "minItems": 7}),
        json!({"type": "array", "items": {"type": "string", "maxLength": 4}, "uniqueItems": true, "minItems": 3, "maxItems": 6}),
        json!({"type": "object", "properties": {"a": set(), "b": {"anyOf": [{"type": "null"}, set()]}}, "required": ["a", "b"], "additionalProperties": false}),
    ];
    for schema in schemas.into_iter().chain(of_objects()) {
        let start = matcher(&mut engine, &schema);
        for seed in 0..40_u64 {
            let mut matcher = start.fork();
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
            let mut text = Vec::new();
            let text = loop {
                let (mask, status) = matcher.mask().unwrap_or_else(|error| {
                    panic!("{schema}: {}: {error}", String::from_utf8_lossy(&text))
                });
                let words = Mask::into_dense(mask, 256 + MORE.len(), 9);
                // Few letters, so that texts meet.
                let few = |t: &u32| {
                    *t > 255 || b"ab\"[]{},: cdefgnul".iter().any(|b| u32::from(*b) == *t)
                };
                let all: Vec<u32> = (0..256 + MORE.len() as u32)
                    .filter(|t| *t != END && words[*t as usize / 32] >> (t % 32) & 1 == 1)
                    .collect();
                let allowed: Vec<u32> = match all.iter().copied().filter(few).collect::<Vec<u32>>()
                {
                    some if some.is_empty() => all,
                    some => some,
                };
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let choice = (random >> 33) as usize;
                let ends = choice.is_multiple_of(3) || text.len() > 300;
                if status == Status::Finished || status == Status::Accepting && ends {
                    break text;
                }
                let closing = allowed
                    .iter()
                    .find(|t| **t == u32::from(b']') || **t == u32::from(b'"'));
                let token = match closing {
                    Some(token) if choice.is_multiple_of(2) || text.len() > 200 => *token,
                    _ => allowed[choice % allowed.len()],
                };
                matcher.accept(&[token]).unwrap();
                match token.checked_sub(256) {
                    Some(more) => text.extend(MORE[more as usize].bytes()),
                    None => text.push(token as u8),
                }
                if text.len() > 2_000 {
                    break Vec::new();
                }
            };
            if text.is_empty() {
                continue;
            }
            let value: Value = serde_json::from_slice(&text).unwrap();
            assert!(jsonschema::is_valid(&schema, &value), "{schema}: {value}");
        }
    }
}
