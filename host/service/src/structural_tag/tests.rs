use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use toktrie::ApproximateTokEnv;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other}"),
    }
}

fn lark(tag: Value) -> String {
    structural_tag(&object(tag), &[]).unwrap()
}

fn takes(lark: &str, tokens: &[u32]) -> bool {
    let factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
    let parser = factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
    let mut matcher = Matcher::new(parser);
    assert!(!matcher.is_error(), "{lark}\n{:?}", matcher.get_error());
    let taken = matcher.try_consume_tokens(tokens).unwrap();
    taken == tokens.len() && matcher.is_accepting().unwrap()
}

fn takes_text(lark: &str, text: &str) -> bool {
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    takes(lark, &tokens)
}

fn city() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    })
}

fn tool_tags() -> Value {
    json!({
        "type": "triggered_tags",
        "triggers": ["<function="],
        "tags": [
            {"begin": "<function=weather>", "content": {"type": "json_schema", "json_schema": city()},
             "end": "</function>"},
            {"begin": "<function=time>", "content": {"type": "regex", "pattern": "[A-Z]{3}/x"}, "end": "</function>"},
        ],
    })
}

#[test]
fn free_text_is_free_until_a_trigger() {
    let older = json!({
        "structures": [
            {"begin": "<function=weather>", "schema": city(), "end": "</function>"},
        ],
        "triggers": ["<function="],
    });
    for lark in [lark(older), lark(json!({"format": tool_tags()}))] {
        for text in [
            "",
            "No call < f > at all.\n",
            "<function=weather>{\"city\": \"Ulm\"}</function>",
            "I look. <function=weather>{\"city\": \"Ulm\"}</function> and\n<function=weather>{\"city\": \"A\"}</function>.",
        ] {
            assert!(takes_text(&lark, text), "{text}\n{lark}");
        }
        for text in [
            "<function=rm>{}</function>",
            "<function=weather>{\"city\": 1}</function>",
            "Yes: <function=weather>{\"city\": \"Ulm\"}</func",
        ] {
            assert!(!takes_text(&lark, text), "{text}\n{lark}");
        }
    }
    let lark = lark(json!({"format": tool_tags()}));
    assert!(takes_text(&lark, "<function=time>CET/x</function>"));
}

#[test]
fn tags_may_be_required_and_be_the_end() {
    let with = |flags: Value| {
        let mut tags = object(tool_tags());
        tags.extend(object(flags));
        lark(json!({"format": tags}))
    };
    let call = "<function=weather>{\"city\": \"Ulm\"}</function>";
    let at_least_one = with(json!({"at_least_one": true}));
    assert!(takes_text(&at_least_one, call));
    assert!(takes_text(&at_least_one, &format!("{call} and {call}")));
    assert!(!takes_text(&at_least_one, "Hm."));
    let first = with(json!({"stop_after_first": true}));
    assert!(takes_text(&first, &format!("Hm. {call}")));
    assert!(!takes_text(&first, &format!("{call}{call}")));
    let both = with(json!({"at_least_one": true, "stop_after_first": true}));
    assert!(takes_text(&both, call));
    assert!(!takes_text(&both, &format!("{call} ")));
}

#[test]
fn formats_are_put_together() {
    let thought = json!({"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": ["</think>", "</t>"]});
    let words = |word: &str| json!({"type": "const_string", "value": word});
    let item = json!({"type": "tag", "begin": "<i>", "content": {"type": "grammar", "grammar": "root ::= [0-9]+"}, "end": "</i>"});
    let format = json!({"type": "sequence", "elements": [
        {"type": "optional", "content": thought},
        {"type": "or", "elements": [words("yes"), words("no")]},
        {"type": "repeat", "min": 1, "max": 2, "content": words("!")},
        {"type": "tags_with_separator", "tags": [item], "separator": ","},
        {"type": "plus", "content": words(".")},
        {"type": "any_text"},
    ]});
    let lark = lark(json!({"format": format}));
    for text in [
        "<think>a < b</think>yes!.",
        "no!!<i>12</i>,<i>3</i>..and so on",
        "<think></t>no!.",
    ] {
        assert!(takes_text(&lark, text), "{text}\n{lark}");
    }
    for text in [
        "maybe!.",
        "yes.",
        "yes!!!.",
        "no!<i>a</i>.",
        "no!<i>1</i><i>2</i>.",
        "<think>yes!.",
    ] {
        assert!(!takes_text(&lark, text), "{text}\n{lark}");
    }
}

/// A mark that is a control token of the model is taken as one, and spelled out.
#[test]
fn marks_are_control_tokens_where_the_model_has_them() {
    let format = json!({
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": [{"begin": "<tool_call>", "content": {"type": "json_schema", "json_schema": city()}, "end": "</tool_call>"}],
    });
    let control = [("<tool_call>", 1), ("</tool_call>", 2)].map(|(text, id)| SpecialToken {
        id,
        text: text.to_owned(),
        special: false,
    });
    let tag = object(json!({"format": format}));
    let lark = structural_tag(&tag, &control).unwrap();
    assert!(lark.contains("<[1]>") && lark.contains("<[2]>"), "{lark}");
    assert!(takes_text(
        &lark,
        "So: <tool_call>{\"city\": \"Ulm\"}</tool_call>"
    ));
    assert!(!takes_text(&lark, "So: <tool_call>{}</tool_call>"));
    let without = structural_tag(&tag, &[]).unwrap();
    assert!(!without.contains("<["), "{without}");
}

#[test]
fn what_cannot_be_decided_is_refused_by_its_place() {
    let text = json!({"type": "any_text"});
    let tag = json!({"type": "tag", "begin": "<a>", "content": text, "end": "</a>"});
    let deep = (0..40).fold(
        text.clone(),
        |inner, _| json!({"type": "optional", "content": inner}),
    );
    for (tag, path) in [
        (json!({}), "format"),
        (json!({"format": text, "structures": []}), "structures"),
        (json!({"structures": [], "triggers": ["<"]}), "tags"),
        (
            json!({"structures": [7], "triggers": ["<"]}),
            "structures[0]",
        ),
        (json!({"format": 7}), "format"),
        (
            json!({"format": {"type": "token", "token": 3}}),
            "format.type",
        ),
        (
            json!({"format": {"type": "dispatch", "rules": []}}),
            "format.type",
        ),
        (
            json!({"format": {"type": "any_text", "max_tokens": 3}}),
            "format.max_tokens",
        ),
        (
            json!({"format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}}),
            "format.style",
        ),
        (
            json!({"format": {"type": "json_schema", "json_schema": 3}}),
            "format.json_schema",
        ),
        (
            json!({"format": {"type": "grammar", "grammar": "root ::= a"}}),
            "format.grammar",
        ),
        (
            json!({"format": {"type": "sequence", "elements": [text, tag]}}),
            "format.elements[0]",
        ),
        (
            json!({"format": {"type": "star", "content": text}}),
            "format.content",
        ),
        (
            json!({"format": {"type": "tag", "begin": "<a>", "content": text}}),
            "format.end",
        ),
        (
            json!({"format": {"type": "triggered_tags", "triggers": ["<b"], "tags": [tag]}}),
            "format.tags[0].begin",
        ),
        (
            json!({"format": {"type": "triggered_tags", "triggers": ["<a"], "tags": [tag], "excludes": ["x"]}}),
            "format.excludes",
        ),
        (json!({"format": deep}), "format"),
    ] {
        let error = structural_tag(&object(tag.clone()), &[]).unwrap_err();
        assert!(error.path.starts_with(path), "{tag}: {error:?}");
    }
}
