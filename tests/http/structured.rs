//! Structured output under the names and in the notations of other servers.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;

fn asked(model: &str, more: Value) -> Value {
    let mut body = json!({
        "model": model, "temperature": 0, "max_tokens": 60,
        "messages": [{"role": "user", "content": "Hi"}],
    });
    let (Value::Object(all), Value::Object(more)) = (&mut body, more) else {
        panic!("objects are merged");
    };
    all.extend(more);
    body
}

#[test]
fn feature_s14_answers_follow_grammars_of_all_notations() {
    let server = Server::configured("");
    let gbnf = "root ::= \"<\" word (\"-\" word)* \">\"\nword ::= [xyz]{2}";
    let tag = json!({
        "type": "tag", "begin": "<", "end": ">",
        "content": {"type": "grammar", "grammar": "root ::= [xyz]{2}"},
    });
    let older = json!({"triggers": ["<"], "structures": [{"begin": "<x>", "schema": {"type": "null"}, "end": "</x>"}]});
    let text = |more: Value| {
        let answer = server.post(CHAT, &asked("mortise-demo", more)).ok();
        let text = answer["choices"][0]["message"]["content"].as_str();
        (
            text.expect("a text").to_owned(),
            answer["choices"][0]["finish_reason"].clone(),
        )
    };
    for more in [
        json!({"grammar": gbnf}),
        json!({"ebnf": gbnf}),
        json!({"guided_grammar": gbnf}),
        json!({"structured_outputs": {"grammar": gbnf}}),
        json!({"regex": "<[xyz]{2}(-[xyz]{2})*>"}),
        json!({"response_format": {"type": "structural_tag", "format": tag}}),
        json!({"structured_outputs": {"structural_tag": json!({"type": "structural_tag", "format": tag}).to_string()}}),
    ] {
        let (found, finish) = text(more.clone());
        let inner = found.strip_prefix('<').unwrap_or_default();
        let inner = inner.trim_end_matches('>');
        assert!(!inner.is_empty(), "{more}: {found}");
        assert!(inner.chars().all(|c| "xyz-".contains(c)), "{more}: {found}");
        assert!(
            finish == "stop" || found.len() > 50,
            "{more}: {found} {finish}"
        );
    }
    let (found, _) = text(json!({"json_schema": {"const": 7}}));
    assert_eq!(found, "7");
    let mut free = older;
    free["type"] = json!("structural_tag");
    let (found, _) = text(json!({"response_format": free}));
    assert!(!found.is_empty());
}

#[test]
fn feature_s14_grammars_that_cannot_be_used_are_refused_by_name() {
    let server = Server::scripted("default = \"x\"", "");
    let rules: String = (0..3_000)
        .map(|at| format!("r{at} ::= r{}\n", at + 1))
        .collect();
    for (more, param) in [
        (json!({"grammar": "root ::= a"}), "grammar"),
        (
            json!({"ebnf": format!("root ::= {}", "(".repeat(60_000))}),
            "ebnf",
        ),
        (
            json!({"guided_grammar": format!("root ::= r0\n{rules}")}),
            "guided_grammar",
        ),
        (
            json!({"grammar": "root ::= \"a\"", "regex": "a"}),
            "grammar",
        ),
        (
            json!({"structured_outputs": {"structural_tag": 7}}),
            "structured_outputs.structural_tag",
        ),
        (
            json!({"response_format": {"type": "structural_tag"}}),
            "response_format.format",
        ),
        (
            json!({"response_format": {"type": "structural_tag", "format": {"type": "any_tokens"}}}),
            "response_format.format.type",
        ),
    ] {
        let refused = server.post(CHAT, &asked("scripted", more.clone()));
        assert_eq!(refused.status(), 400, "{param}: {}", refused.text());
        assert_eq!(
            refused.json()["error"]["param"],
            param,
            "{}",
            refused.text()
        );
    }
}
