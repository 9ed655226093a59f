//! Structured output under the names and in the notations of other servers.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::client::Request;
use crate::support::{Server, until};

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

#[test]
fn feature_p7_json_mode_writes_an_object_and_nothing_around_it() {
    let server = Server::configured("");
    for format in [
        json!({"response_format": {"type": "json_object"}}),
        json!({"structured_outputs": {"json_object": true}}),
    ] {
        let mut request = asked("mortise-demo", format);
        request["max_tokens"] = json!(400);
        for text in ["Hi", "Answer in a block of ```json, with words around it."] {
            request["messages"][0]["content"] = json!(text);
            for temperature in [0, 1] {
                request["temperature"] = json!(temperature);
                request["seed"] = json!(7);
                let answer = server.post(CHAT, &request).ok();
                let choice = &answer["choices"][0];
                let content = choice["message"]["content"].as_str().expect("a text");
                assert!(
                    content.starts_with('{') && !content.contains("```"),
                    "{content}"
                );
                if choice["finish_reason"] == "length" {
                    continue;
                }
                let value: Value = serde_json::from_str(content).expect(content);
                assert!(value.is_object(), "{content}");
            }
        }
    }
}

/// With one instance of the grammar plugin, one grammar that is not given back would leave nothing for the next request.
#[test]
fn feature_p9_grammars_are_given_back_on_every_way_out() {
    let server = Server::scripted(
        "lines = [{ when = \"long\", say = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" }]\ndefault = \"ab\"\nrepeat = 1\n\
         token_delay_ms = 20",
        "[[plugins.bindings]]\nkind = \"grammar\"\ninstances = 1\n",
    );
    let constrained = |text: &str, more: Value| {
        let mut body = asked("scripted", json!({"guided_regex": "a*b?"}));
        body["messages"][0]["content"] = json!(text);
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    };
    let finish = |body: &Value| server.post(CHAT, body).ok()["choices"][0]["finish_reason"].clone();
    for _ in 0..2 {
        // The grammar is complete; the limit, a stop string and the answer of a word cut it.
        assert_eq!(finish(&constrained("Hi", json!({}))), "stop");
        assert_eq!(
            finish(&constrained("long", json!({"max_tokens": 2}))),
            "length"
        );
        assert_eq!(finish(&constrained("long", json!({"stop": "aaa"}))), "stop");
        // It is refused as it is compiled, and as its schema is read.
        for wrong in [
            json!({"guided_regex": "("}),
            json!({"guided_regex": null, "guided_json": {"not": {}}}),
        ] {
            let refused = server.post(CHAT, &constrained("Hi", wrong));
            assert!([400, 422].contains(&refused.status()), "{}", refused.text());
        }
        // The caller leaves.
        let request = constrained("long", json!({"stream": true}));
        let mut stream = Request::post(CHAT, &request).begin(server.address());
        assert_eq!(stream.head().status, 200);
        assert!(stream.chunk().is_some());
        drop(stream);
        until("the grammar of the caller who left is given back", || {
            server.post(CHAT, &constrained("Hi", json!({}))).status() == 200
        });
    }
    // Two at once: one has it, and the other waits for it or is told.
    let both = [
        Request::post(CHAT, &constrained("Hi", json!({}))),
        Request::post(CHAT, &constrained("Hi", json!({}))),
    ];
    for answer in server.send_together(&both) {
        assert!(
            [200, 429, 503].contains(&answer.status()),
            "{}",
            answer.text()
        );
    }
    assert_eq!(finish(&constrained("Hi", json!({}))), "stop");
}
