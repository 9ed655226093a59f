//! Masks, matchers and limits, over a small vocabulary of our own.

#[path = "grammar/lark.rs"]
mod lark;
#[path = "grammar/names.rs"]
mod names;

use mortise_grammar::engine::{Engine, Vocabulary, masks_for};
use mortise_grammar::error::GrammarError;
use mortise_grammar::matcher::{Mask, Matcher, Status, forced};
use mortise_grammar::source::Source;
use serde_json::{Value, json};

const EOS: u32 = 256;
const CALL: u32 = 257;

/// All bytes, two control tokens, and some pieces of JSON and words.
fn vocabulary() -> Vocabulary {
    let pieces = [
        "<eos>", "<call>", "{\"", "\": ", "\", \"", "\"}", "true", "false", "null", "name", "age",
        ", ", "00", "ab", "city", "  ", "\n  ",
    ];
    let mut vocabulary = Vocabulary {
        eos: vec![EOS],
        control: vec![EOS, CALL],
        ..Vocabulary::default()
    };
    let bytes = (0..=255).map(|byte| vec![byte]);
    for token in bytes.chain(pieces.iter().map(|piece| piece.as_bytes().to_vec())) {
        vocabulary.offsets.push(vocabulary.bytes.len() as u32);
        vocabulary.bytes.extend(token);
    }
    vocabulary.offsets.push(vocabulary.bytes.len() as u32);
    vocabulary
}

fn engine() -> Engine {
    Engine::new(&vocabulary()).unwrap()
}

fn size() -> usize {
    vocabulary().offsets.len() - 1
}

fn text_of(token: u32) -> Vec<u8> {
    let vocabulary = vocabulary();
    let at = |index: usize| vocabulary.offsets[index] as usize;
    vocabulary.bytes[at(token as usize)..at(token as usize + 1)].to_vec()
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn schema(value: Value) -> Source {
    Source::JsonSchema(value.to_string())
}

fn allows(matcher: &mut Matcher, token: u32) -> bool {
    let dense = matcher
        .mask()
        .unwrap()
        .0
        .into_dense(size(), size().div_ceil(32));
    dense[token as usize / 32] >> (token % 32) & 1 == 1
}

/// Whether the grammar takes the whole text.
fn takes(source: &Source, text: &str) -> bool {
    let mut matcher = engine().compile(source).unwrap();
    matcher.probe(&bytes(text)).unwrap() == text.len() && {
        matcher.accept(&bytes(text)).unwrap();
        matcher.status().unwrap() != Status::Active
    }
}

fn refused(source: &Source) -> String {
    match engine().compile(source) {
        Err(GrammarError::Invalid(text)) => text,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn layouts_of_json_pass_and_runs_of_blanks_do_not() {
    let source = schema(json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "boolean"}}},
        "required": ["a", "b"], "additionalProperties": false,
    }));
    for text in [
        r#"{"a":1,"b":[true,false]}"#,
        r#"{"a": 1, "b": [true, false]}"#,
        r#"{ "a" : 1 , "b" : [ ] }"#,
        "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    false\n  ]\n}",
        "{\r\n\t\"a\": 1,\r\n\t\"b\": []\r\n}",
    ] {
        assert!(takes(&source, text), "{text}");
    }
    for text in [
        r#"{"a":  1, "b": []}"#,
        "{\n\n\"a\": 1, \"b\": []}",
        &format!("{{\n{}\"a\": 1, \"b\": []}}", " ".repeat(40)),
        r#"{"b": [], "a": 1}"#,
        r#"{"a": 1.5, "b": []}"#,
        r#"{"a": 1}"#,
    ] {
        assert!(!takes(&source, text), "{text}");
    }
}

#[test]
fn every_kind_of_source_compiles() {
    assert!(takes(&Source::JsonObject, r#"{"x": [1, {"y": null}]}"#));
    assert!(!takes(&Source::JsonObject, "[1]"));
    assert!(takes(&Source::Regex("[a-c]{2,3}x?".to_owned()), "abcx"));
    assert!(!takes(&Source::Regex("[a-c]{2,3}x?".to_owned()), "a"));
    assert!(takes(
        &Source::Lark("start: \"a\" (\"b\" | /c+/)".to_owned()),
        "accc"
    ));
    assert!(takes(&Source::JsonSchema("true".to_owned()), "[1, \"a\"]"));
}

#[test]
fn control_tokens_are_allowed_where_the_grammar_names_them_only() {
    let mut engine = engine();
    let mut matcher = engine
        .compile(&Source::Lark("start: <call> /[a-z<>]+/".to_owned()))
        .unwrap();
    let (mask, status) = matcher.mask().unwrap();
    assert_eq!(
        (mask.clone(), status),
        (Mask::Only(vec![CALL]), Status::Active)
    );
    assert_eq!(forced(&mask, status), [CALL]);
    matcher.accept(&[CALL]).unwrap();
    assert!(!allows(&mut matcher, CALL) && !allows(&mut matcher, EOS));
    assert!(allows(&mut matcher, u32::from(b'<')));
    let by_id = Source::Lark(format!("start: <[{CALL}]>"));
    assert_eq!(
        engine.compile(&by_id).unwrap().mask().unwrap().0,
        Mask::Only(vec![CALL])
    );
}

#[test]
fn a_matcher_says_where_it_stands() {
    let mut matcher = engine().compile(&Source::Regex("ab?".to_owned())).unwrap();
    assert_eq!(matcher.status(), Ok(Status::Active));
    assert!(!allows(&mut matcher, EOS));
    matcher.accept(&bytes("a")).unwrap();
    assert_eq!(matcher.status(), Ok(Status::Accepting));
    assert!(allows(&mut matcher, EOS) && allows(&mut matcher, u32::from(b'b')));
    matcher.accept(&bytes("b")).unwrap();
    assert_eq!(
        matcher.mask(),
        Ok((Mask::Only(vec![EOS]), Status::Finished))
    );
    matcher.accept(&[EOS]).unwrap();
    assert_eq!(
        matcher.mask(),
        Ok((Mask::Only(vec![EOS]), Status::Finished))
    );
}

#[test]
fn tokens_are_taken_back_and_copies_are_independent() {
    let mut matcher = engine()
        .compile(&Source::Regex("abc|abd".to_owned()))
        .unwrap();
    let start = matcher.mask().unwrap();
    matcher.accept(&bytes("ab")).unwrap();
    let mut copy = matcher.fork();
    copy.accept(&bytes("c")).unwrap();
    assert_eq!(copy.status(), Ok(Status::Finished));
    copy.accept(&[EOS]).unwrap();
    assert_eq!(matcher.status(), Ok(Status::Active));
    matcher.accept(&bytes("d")).unwrap();
    copy.rollback(2).unwrap();
    copy.accept(&bytes("d")).unwrap();
    assert_eq!(copy.mask(), matcher.mask());
    matcher.rollback(3).unwrap();
    assert_eq!(matcher.mask().unwrap(), start);
    assert!(matcher.rollback(1).is_err());
}

#[test]
fn a_probe_changes_nothing() {
    let mut matcher = engine().compile(&Source::Regex("abc".to_owned())).unwrap();
    let before = matcher.mask().unwrap();
    assert_eq!(matcher.probe(&bytes("abx")), Ok(2));
    assert_eq!(
        matcher.probe(&[bytes("abc"), vec![EOS, EOS]].concat()),
        Ok(5)
    );
    assert_eq!(matcher.probe(&[97, 9_999]), Ok(1));
    assert_eq!(matcher.probe(&[EOS]), Ok(0));
    assert_eq!(matcher.mask().unwrap(), before);
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    for tokens in [
        bytes("x"),
        vec![EOS],
        vec![9_999],
        [bytes("abc"), vec![EOS, 97]].concat(),
    ] {
        let mut matcher = engine().compile(&Source::Regex("abc".to_owned())).unwrap();
        assert!(
            matches!(matcher.accept(&tokens), Err(GrammarError::Internal(_))),
            "{tokens:?}"
        );
    }
}

#[test]
fn the_oracle_gives_a_mask_a_position() {
    let source = Source::Regex("ab".to_owned());
    let masks = masks_for(&mut engine(), &source, &bytes("ab")).unwrap();
    let only = |token: u32| Mask::Only(vec![token]).into_dense(size(), size().div_ceil(32));
    let mut first = only(97);
    let ab = (0..size() as u32)
        .find(|&token| text_of(token) == b"ab")
        .unwrap();
    first[ab as usize / 32] |= 1 << (ab % 32);
    assert_eq!(masks, [first, only(98), only(EOS)]);
}

#[test]
fn errors_name_the_path() {
    let deep = (0..70).fold(json!({}), |inner, _| json!({"items": inner}));
    let wide: Vec<Value> = (0..30_000).map(Value::from).collect();
    let many = (0..1001).map(|index| (format!("p{index}"), json!({})));
    let many = Value::Object(many.collect());
    for (source, expected) in [
        (Source::JsonSchema("{".to_owned()), "is not JSON"),
        (Source::JsonSchema("[]".to_owned()), "must be an object"),
        (schema(deep), "nested deeper than 64, at `/items/items"),
        (
            schema(json!({"properties": {"a": {"enum": wide}}})),
            "more than 20000 values, at `/properties/a/enum/",
        ),
        (
            schema(json!({"type": "object", "properties": {"a": {"properties": many}}})),
            "names more than 1000 properties, at `/properties/a/properties`",
        ),
        (
            schema(json!({"properties": {"x/y": {"type": "array", "minItems": 1e9}}})),
            "counts to more than 100000, at `/properties/x~1y/minItems`",
        ),
        (
            schema(
                json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
                "b": {"type": "string", "pattern": "(?=x)"}}}}}),
            ),
            "at `/properties/a/properties/b`",
        ),
        (
            schema(json!({"type": "object", "properties": {"a": {"anyOf": [
                {"type": "integer"}, {"type": "nonsense"}]}}})),
            "at `/properties/a/anyOf/1`",
        ),
        (
            Source::Regex("(".to_owned()),
            "the regular expression cannot be used",
        ),
        (
            Source::Lark("start: foo".to_owned()),
            "the Lark grammar cannot be used",
        ),
        (Source::Lark("x".repeat(300_000)), "has 300000 bytes"),
    ] {
        let error = refused(&source);
        assert!(error.contains(expected), "{error}\n{expected}");
        assert!(error.len() < 1_024);
    }
}

#[test]
fn c1_c3_c7_bombs_are_refused_or_harmless() {
    let start = std::time::Instant::now();
    let twice = |inner: Value| json!({"anyOf": [inner.clone(), inner]});
    let doubling = (0..12).fold(
        json!({"type": "string", "pattern": "[a-z]+"}),
        |inner, _| twice(inner),
    );
    for source in [
        Source::Regex("(((a{1,1000}){1,1000}){1,1000}){1,1000}".to_owned()),
        Source::Regex("(a|b|ab)*".repeat(200) + "c"),
        Source::Regex("(.*a){1,30}.{1000}".to_owned()),
        Source::Lark("start: (\"a\" | \"b\"){1,1000000}".to_owned()),
        Source::Lark("start: a a\na: b b\nb: c c\nc: \"x\"{0,100000}".to_owned()),
        schema(doubling),
        schema(json!({"$ref": "#"})),
        schema(json!({"type": "array", "minItems": 100_000, "items": {"type": "object"}})),
        schema(json!({"type": "string", "maxLength": 100_000})),
        schema(
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
        ),
    ] {
        let label = format!("{:.80}", format!("{source:?}"));
        if let Ok(mut matcher) = engine().compile(&source) {
            let _ = matcher.mask();
        }
        assert!(start.elapsed().as_secs() < 20, "{label}");
    }
}

/// Definitions that each refer to the next, in `wrap`.
fn chained(links: usize, wrap: impl Fn(Value) -> Value) -> Source {
    let link = |index: usize| json!({"$ref": format!("#/$defs/a{index}")});
    let mut definitions: serde_json::Map<_, _> = (0..links)
        .map(|index| (format!("a{index}"), wrap(link(index + 1))))
        .collect();
    definitions.insert(format!("a{links}"), json!({"type": "integer"}));
    schema(json!({"$ref": "#/$defs/a0", "$defs": definitions}))
}

/// Rules or terminals that each refer to the next.
fn ruled(links: usize, letter: char, rule: impl Fn(&str) -> String) -> Source {
    let mut text = format!("start: {letter}0\n");
    for index in 0..links {
        let next = rule(&format!("{letter}{}", index + 1));
        text.push_str(&format!("{letter}{index}: {next}\n"));
    }
    Source::Lark(format!("{text}{letter}{links}: \"x\"\n"))
}

#[test]
fn c1_references_that_lead_too_deep_are_refused() {
    type Chain = fn(usize) -> Source;
    let chains: [(usize, Chain); 12] = [
        (190, |links| chained(links, |next| next)),
        (95, |links| chained(links, |next| json!({"items": next}))),
        (95, |links| {
            chained(links, |next| json!({"prefixItems": [next]}))
        }),
        (95, |links| {
            chained(links, |next| json!({"properties": {"p": next}}))
        }),
        (95, |links| {
            chained(links, |next| json!({"additionalProperties": next}))
        }),
        (95, |links| {
            chained(links, |next| json!({"anyOf": [next, {"type": "null"}]}))
        }),
        (190, |links| ruled(links, 'a', str::to_owned)),
        (190, |links| {
            ruled(links, 'a', |next| format!("\"y\" {next}?"))
        }),
        (63, |links| {
            ruled(links, 'a', |next| format!("(\"b\" (\"c\" {next}))"))
        }),
        (190, |links| {
            ruled(links, 'A', |next| format!("\"y\" {next}"))
        }),
        (95, |links| {
            ruled(links, 'A', |next| format!("(\"y\" {next})*"))
        }),
        // All on one line.
        (190, |links| {
            let Source::Lark(text) = ruled(links, 'a', |next| format!("\"y\" {next} -> z")) else {
                unreachable!("it is Lark")
            };
            let (first, rest) = text.split_once('\n').expect("lines");
            Source::Lark(format!("{first} -> z {}", rest.replace('\n', " ")))
        }),
    ];
    for (index, (links, chain)) in chains.iter().enumerate() {
        let fits = engine().compile(&chain(*links));
        // The last has no line break where one belongs.
        assert!(fits.is_ok() || index == 11, "{index}: {fits:?}");
        for links in [links + 4, 3000] {
            match engine().compile(&chain(links)) {
                Err(GrammarError::TooComplex(text)) => assert!(text.contains("deep"), "{text}"),
                Err(GrammarError::Invalid(text)) if links == 3000 => {
                    assert!(
                        text.contains("at most") || text.contains("holds more"),
                        "{text}"
                    );
                }
                other => panic!("{index}, {links} links: {other:?}"),
            }
        }
    }
}

#[test]
fn c1_the_order_of_references_hides_no_depth() {
    // Whoever looks at the first references first meets each definition when all below it are known.
    let links = 3000;
    let known_first: Vec<Value> = (0..=links)
        .rev()
        .map(|index| json!({"$ref": format!("#/$defs/a{index}")}))
        .collect();
    let Source::JsonSchema(text) = chained(links, |next| json!({"items": next})) else {
        unreachable!("it is a schema")
    };
    let mut root: Value = serde_json::from_str(&text).expect("JSON");
    root["anyOf"] = Value::Array(known_first);
    let short: Value = json!({"additionalProperties": root["anyOf"], "$defs": root["$defs"]});
    for source in [schema(root), schema(short)] {
        let error = engine().compile(&source).expect_err("too deep");
        assert!(
            matches!(&error, GrammarError::TooComplex(text) if text.contains("deeper than"))
                || matches!(&error, GrammarError::Invalid(text) if text.contains("holds more")),
            "{error:?}"
        );
    }
}

#[test]
fn references_in_a_circle_are_not_deep() {
    let tree = json!({"$defs": {"node": {"type": "object", "properties": {
        "left": {"$ref": "#/$defs/node"}, "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    }}}, "$ref": "#/$defs/node"});
    assert!(engine().compile(&schema(tree)).is_ok());
    let rules = "start: list\nlist: \"[\" (item (\",\" item)*)? \"]\"\nitem: list | \"x\"\n";
    assert!(takes(&Source::Lark(rules.to_owned()), "[[x,[]],x]"));
    // Deep, and a part of one grammar only.
    let Source::JsonSchema(deep) = chained(300, |next| json!({"items": next})) else {
        unreachable!("it is a schema")
    };
    let within = Source::Lark(format!("start: %json {deep}"));
    let error = engine().compile(&within).expect_err("too deep");
    assert!(matches!(error, GrammarError::TooComplex(_)), "{error:?}");
}

/// Walk at random through what the masks allow; what comes out must fit the schema.
fn walk(source: &Source, seed: u64) -> Option<String> {
    let mut matcher = engine().compile(source).unwrap();
    let mut state = seed;
    let mut text = Vec::new();
    for step in 0..400 {
        let (mask, status) = matcher.mask().unwrap();
        let dense = mask.into_dense(size(), size().div_ceil(32));
        let allowed: Vec<u32> = (0..size() as u32)
            .filter(|token| dense[*token as usize / 32] >> (token % 32) & 1 == 1)
            .collect();
        // Late in the walk, what closes is preferred, so that most walks end.
        let closing = [EOS, u32::from(b'"'), u32::from(b'}'), u32::from(b']')];
        let close = closing.into_iter().find(|token| allowed.contains(token));
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let any = allowed[(state >> 33) as usize % allowed.len()];
        let token = close
            .filter(|_| step > 60 || state >> 62 == 0)
            .unwrap_or(any);
        if token == EOS {
            assert_ne!(status, Status::Active);
            return Some(String::from_utf8(text).unwrap());
        }
        matcher.accept(&[token]).unwrap();
        text.extend(text_of(token));
    }
    None
}

/// A small validator of our own for the keywords that the walks use.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(schema) = schema.as_object() else {
        return schema.as_bool().unwrap_or(false);
    };
    schema.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$defs" => true,
        "$ref" => {
            let pointer = rule.as_str().unwrap().trim_start_matches('#');
            fits(root, root.pointer(pointer).unwrap(), value)
        }
        "type" => match rule {
            Value::Array(kinds) => kinds.iter().any(|kind| is_a(kind, value)),
            kind => is_a(kind, value),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "const" => rule == value,
        "anyOf" => {
            let options = rule.as_array().unwrap();
            options.iter().any(|option| fits(root, option, value))
        }
        "minimum" => value.as_f64() >= rule.as_f64(),
        "maximum" => value.as_f64() <= rule.as_f64(),
        "maxLength" => value.as_str().unwrap().chars().count() as u64 <= rule.as_u64().unwrap(),
        "items" => value
            .as_array()
            .unwrap()
            .iter()
            .all(|item| fits(root, rule, item)),
        "minItems" => value.as_array().unwrap().len() as u64 >= rule.as_u64().unwrap(),
        "maxItems" => value.as_array().unwrap().len() as u64 <= rule.as_u64().unwrap(),
        "required" => rule
            .as_array()
            .unwrap()
            .iter()
            .all(|name| value.get(name.as_str().unwrap()).is_some()),
        "properties" => rule
            .as_object()
            .unwrap()
            .iter()
            .all(|(name, part)| value.get(name).is_none_or(|field| fits(root, part, field))),
        "additionalProperties" => value
            .as_object()
            .unwrap()
            .keys()
            .all(|name| schema["properties"].get(name).is_some()),
        other => panic!("the validator does not know `{other}`"),
    })
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("the validator does not know the type `{other}`"),
    }
}

#[test]
fn c8_random_walks_over_the_masks_fit_the_schema() {
    let schemas = [
        json!({"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        }, "required": ["name", "age"], "additionalProperties": false}),
        json!({"anyOf": [
            {"type": "object", "properties": {"kind": {"const": "x"}, "v": {"type": "boolean"}},
             "required": ["kind", "v"], "additionalProperties": false},
            {"type": "array", "items": {"type": ["null", "number"]}, "minItems": 1, "maxItems": 2},
        ]}),
        json!({"$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "integer", "maximum": 9, "minimum": 0},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        }, "required": ["value", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"}),
        json!({"type": "object"}),
    ];
    for value in schemas {
        let source = schema(value.clone());
        let finished = (0..30).filter_map(|seed| walk(&source, seed)).map(|text| {
            let answer: Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(fits(&value, &value, &answer), "{text} against {value}");
        });
        let finished = finished.count();
        assert!(finished >= 10, "{finished} of 30 walks ended for {value}");
    }
}

#[test]
fn a_broken_vocabulary_is_refused() {
    let check = |change: fn(&mut Vocabulary), expected: &str| {
        let mut vocabulary = vocabulary();
        change(&mut vocabulary);
        let error = Engine::new(&vocabulary).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(|v| v.offsets.clear(), "it has 0 tokens");
    check(|v| v.eos.clear(), "no token that ends a sequence");
    check(|v| v.bytes.truncate(5), "lies outside the bytes");
    check(
        |v| v.control.push(9_999),
        "control token 9999 does not exist",
    );
}

/// A grammar with 12 100 ways to go on after its first text: more than a row of items may hold.
fn wide() -> Source {
    let ways = (0..12_100).map(|way| format!("L \"{}u\" \"{}v\"", way / 110, way % 110));
    let ways: Vec<String> = ways.collect();
    Source::Lark(format!(
        "start: \"zqzqzqzq\" ({})\nL: /[a-z]/\n",
        ways.join(" | ")
    ))
}

#[test]
fn a_text_that_makes_the_grammar_too_hard_is_told_from_a_defect() {
    let mut matcher = engine().compile(&wide()).unwrap();
    matcher.mask().unwrap();
    let fault = bytes("zqzqzqzqa").into_iter().find_map(|token| {
        let taken = matcher.accept(&[token]);
        taken.and_then(|()| matcher.mask().map(drop)).err()
    });
    assert!(
        matches!(fault, Some(GrammarError::TooComplex(_))),
        "{fault:?}"
    );
    // And stays so.
    assert!(matches!(matcher.mask(), Err(GrammarError::TooComplex(_))));
}
