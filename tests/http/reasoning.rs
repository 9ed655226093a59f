//! Reasoning where callers want it, and as much of it as they allow.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;

const SCRIPT: &str = r#"
default = "<think>\nLet me see.\n</think>\n\nForty-two."
lines = [
    { when = "weather", say = "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>" },
]
"#;

fn asked(model: &str, text: &str, more: Value) -> Value {
    let mut body = json!({
        "model": model, "temperature": 0,
        "messages": [{"role": "user", "content": text}],
    });
    let (Value::Object(all), Value::Object(more)) = (&mut body, more) else {
        panic!("objects are merged");
    };
    all.extend(more);
    body
}

/// Content and reasoning of a whole answer, which a stream adds up to.
fn answer(server: &Server, text: &str, more: Value) -> (String, String) {
    let request = asked("scripted", text, more);
    let whole = server.post(CHAT, &request).ok();
    let message = &whole["choices"][0]["message"];
    let of = |field: &str| message[field].as_str().unwrap_or("").to_owned();
    let (content, reasoning) = (of("content"), of("reasoning_content"));
    assert_eq!(reasoning, of("reasoning"));
    let mut streamed = request;
    streamed["stream"] = json!(true);
    let events = server.post(CHAT, &streamed).events();
    let joined = |field: &str| -> String {
        let deltas = events.iter().map(|event| &event["choices"][0]["delta"]);
        deltas.filter_map(|delta| delta[field].as_str()).collect()
    };
    assert_eq!(joined("content"), content);
    assert_eq!(joined("reasoning_content"), reasoning);
    (content, reasoning)
}

#[test]
fn feature_s14_reasoning_stands_where_the_caller_wants_it() {
    let server = Server::scripted(SCRIPT, "");
    let tool = json!([{"type": "function", "function": {"name": "get_weather"}}]);
    let (said, thought) = ("Forty-two.", "Let me see.");
    let within = "<think>\nLet me see.\n</think>\n\nForty-two.";
    for (more, content, reasoning) in [
        (json!({}), said, thought),
        (json!({"reasoning_format": "auto"}), said, thought),
        (json!({"reasoning_format": "deepseek"}), said, thought),
        (json!({"include_reasoning": true}), said, thought),
        (json!({"reasoning_format": "none"}), within, ""),
        (json!({"separate_reasoning": false}), within, ""),
        (
            json!({"reasoning_format": "deepseek-legacy"}),
            within,
            thought,
        ),
        (json!({"reasoning_format": "hidden"}), said, ""),
        (json!({"include_reasoning": false}), said, ""),
    ] {
        let found = answer(&server, "Hi", more.clone());
        assert_eq!(found, (content.to_owned(), reasoning.to_owned()), "{more}");
    }
    let more = json!({"reasoning_format": "none", "tools": tool});
    let found = answer(&server, "weather", more);
    assert_eq!(found.0, "<think>\nHm.\n</think>");
    // What is cut off stays open.
    let found = answer(
        &server,
        "Hi",
        json!({"reasoning_format": "raw", "max_tokens": 14}),
    );
    assert_eq!(found.0, "<think>\nLet me");
    for (more, param) in [
        (json!({"reasoning_format": "some"}), "reasoning_format"),
        (
            json!({"reasoning_format": "none", "include_reasoning": false}),
            "include_reasoning",
        ),
        (json!({"thinking_budget": -2}), "thinking_budget"),
        (
            json!({"thinking_budget": 2, "thinking_token_budget": 3}),
            "thinking_budget",
        ),
    ] {
        let refused = server.post(CHAT, &asked("scripted", "Hi", more.clone()));
        assert_eq!(refused.status(), 400, "{more}");
        assert_eq!(refused.json()["error"]["param"], param, "{more}");
    }
}

#[test]
fn feature_s14_reasoning_ends_with_its_budget_and_the_answer_goes_on() {
    let server = Server::configured("");
    let ask = |more: Value| {
        let request = asked("mortise-demo", "What is 4213 plus 1789?", more);
        let answer = server.post(CHAT, &request).ok();
        let message = &answer["choices"][0]["message"];
        let of = |field: &str| message[field].as_str().unwrap_or("").to_owned();
        let reasoning = &answer["usage"]["completion_tokens_details"]["reasoning_tokens"];
        let tokens = reasoning.as_u64().expect("a number");
        (of("reasoning_content"), of("content"), tokens)
    };
    let (thought, said, all) = ask(json!({}));
    assert!(
        !thought.is_empty() && !said.is_empty() && all > 20,
        "{thought}"
    );
    for field in [
        "thinking_token_budget",
        "thinking_budget_tokens",
        "reasoning_budget_tokens",
        "thinking_budget",
    ] {
        let (short, answered, tokens) = ask(json!({field: 8}));
        assert!(!short.is_empty() && thought.starts_with(&short), "{short}");
        assert!(short.len() < thought.len() / 2, "{short}");
        // The marks count as reasoning.
        assert!((8..16).contains(&tokens), "{tokens}");
        // A model that was not trained for it goes on to think aloud.
        assert!(answered.contains("1789"), "{answered}");
    }
    assert_eq!(
        ask(json!({"thinking_budget": -1})),
        (thought.clone(), said.clone(), all)
    );
    assert_eq!(ask(json!({"thinking_budget": 4000})), (thought, said, all));
    let (none, answered, _) = ask(json!({"thinking_budget": 0}));
    assert_eq!(none, "");
    assert!(!answered.is_empty());
    // A schema holds the answer behind the forced end.
    let schema =
        json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}});
    let (_, answered, _) = ask(json!({"thinking_budget": 8, "response_format": format}));
    let answered: Value = serde_json::from_str(&answered).expect("JSON");
    assert!(answered["sum"].is_i64(), "{answered}");
    let refused = json!({"thinking_budget": 8, "use_beam_search": true, "beam_size": 2});
    let refused = server.post(CHAT, &asked("mortise-demo", "Hi", refused));
    assert_eq!(refused.json()["error"]["param"], "thinking_budget");
}
