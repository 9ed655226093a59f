//! The Anthropic dialect: what its callers are known by, its errors, and what it shares with the others.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};

const MESSAGES: &str = "/v1/messages";

const SCRIPT: &str = r#"
default = "Hello there, wörld 👋."
lines = [
    { when = "think", say = "<think>\nLet me see.\n</think>\n\nForty-two." },
    { when = "rest", say = "The rest is silence." },
]
"#;

fn asked(text: &str, more: Value) -> Value {
    let mut body = json!({
        "model": "scripted",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": text}],
    });
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

fn error(response: &Response) -> (u16, String) {
    let body = response.json();
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(
        body["request_id"].as_str(),
        response.header("request-id"),
        "{body}"
    );
    let kind = body["error"]["type"].as_str().expect("a type");
    (response.status(), kind.to_owned())
}

#[test]
fn a_thread_is_refused_so_that_clients_go_on_without_one() {
    let server = Server::scripted(SCRIPT, "[openai]\nunsupported = \"ignore\"\n");
    for thread in [
        json!({"type": "create"}),
        json!({"type": "continue", "previous_message_id": "msg_1"}),
    ] {
        let refused = server.post(MESSAGES, &asked("Hi", json!({"thread": thread})));
        assert_eq!(error(&refused), (400, "invalid_request_error".to_owned()));
        let details = &refused.json()["error"]["details"];
        assert_eq!(details["error_code"], "thread_unsupported_request");
        assert_eq!(details["unsupported"], json!(["thread"]));
    }
    server
        .post(MESSAGES, &asked("Hi", json!({"thread": null})))
        .ok();
}

#[test]
fn keys_guard_this_dialect_and_its_callers_are_known_by_their_header() {
    let keys = "[[auth.api_keys]]\nid = \"a\"\nkey = \"secret-key\"\n";
    let server = Server::scripted(SCRIPT, keys);
    let body = asked("Hi", json!({}));
    let refused = (401, "authentication_error".to_owned());
    assert_eq!(error(&server.post(MESSAGES, &body)), refused);
    let listed = Request::get("/v1/models").header("anthropic-version", "2023-06-01");
    assert_eq!(error(&server.send(&listed)), refused);
    let openai = server.get("/v1/models").json();
    assert_eq!(openai["error"]["code"], "invalid_api_key", "{openai}");
    let with_key = Request::post(MESSAGES, &body).header("x-api-key", "secret-key");
    let answer = server.send(&with_key).ok();
    assert_eq!(
        answer["content"],
        json!([{"type": "text", "text": "Hello there, wörld 👋."}])
    );
    let page = |query: &str| {
        let listed = Request::get(&format!("/v1/models{query}"));
        let listed = listed.header("anthropic-version", "2023-06-01");
        server.send(&listed.header("x-api-key", "secret-key"))
    };
    let of_stage = |stage: &str| page(&format!("?lifecycle%5B%5D={stage}&limit=5"));
    let active = of_stage("active").ok();
    assert_eq!(active["data"][0]["lifecycle"], "active", "{active}");
    for stage in ["deprecated", "retired"] {
        assert_eq!(of_stage(stage).ok()["data"], json!([]), "{stage}");
    }
    let invalid = (400, "invalid_request_error".to_owned());
    assert_eq!(error(&of_stage("unborn")), invalid);
    let models = page("").ok();
    assert_eq!(models["data"][0]["type"], "model", "{models}");
    assert_eq!(
        (&models["first_id"], &models["has_more"]),
        (&json!("scripted"), &json!(false))
    );
}

#[test]
fn turns_of_one_author_are_joined_and_failed_tools_are_told() {
    let server = Server::start(&[]);
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}});
    let body = json!({
        "model": "mortise-demo",
        "max_tokens": 1,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "One."},
            {"role": "user", "content": [{"type": "text", "text": "Two."}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                call("c1"), call("c2"),
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "fine"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "broken", "is_error": true},
                {"type": "text", "text": "And?"},
            ]},
        ],
    });
    let used = server.post(MESSAGES, &body).ok()["usage"].clone();
    // The same conversation as OpenAI's route takes it.
    let function = |id: &str| {
        let called = json!({"name": "f", "arguments": "{\"a\":1}"});
        json!({"id": id, "type": "function", "function": called})
    };
    let chat = json!({
        "messages": [
            {"role": "user", "content": "One.\nTwo."},
            {"role": "assistant", "content": "", "reasoning_content": "hm",
             "tool_calls": [function("c1"), function("c2")]},
            {"role": "tool", "tool_call_id": "c1", "content": "fine"},
            {"role": "tool", "tool_call_id": "c2", "content": "error: broken"},
            {"role": "user", "content": "And?"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    });
    let rendered = server.post("/v1/chat/completions/render", &chat).ok();
    let tokens = |name: &str| used[name].as_u64().expect("a number");
    let prompt = tokens("input_tokens") + tokens("cache_read_input_tokens");
    assert_eq!(rendered["count"].as_u64(), Some(prompt), "{rendered}");
}

#[test]
fn what_is_left_out_is_named_and_what_is_wrong_is_refused() {
    let server = Server::scripted(SCRIPT, "[openai]\nunsupported = \"ignore\"\n");
    let odd = asked(
        "Hi",
        json!({
            "mcp_servers": [], "speed": "fast", "nonsense": 1,
            "system": [{"type": "text", "text": "Be brief.", "citations": [{"cited_text": "x"}]}],
        }),
    );
    let answer = server.post(MESSAGES, &odd);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let ignored = answer.header("x-mortise-ignored").unwrap_or_default();
    for name in ["mcp_servers", "speed", "nonsense", "system[0].citations"] {
        assert!(ignored.contains(name), "{ignored}");
    }
    let invalid = (400, "invalid_request_error".to_owned());
    for more in [
        json!({"messages": [{"role": "user", "content": []}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "text", "input": {}}]}]}),
        json!({"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        json!({"thinking": {"type": "adaptive", "budget_tokens": 2000}}),
        json!({"metadata": {"user_id": 7}}),
    ] {
        let refused = server.post(MESSAGES, &asked("Hi", more.clone()));
        assert_eq!(error(&refused), invalid, "{more}");
    }
    let missing = server.get("/v1/messages/nothing");
    assert_eq!(error(&missing), (404, "not_found_error".to_owned()));
    let method = server.get(MESSAGES);
    assert_eq!(error(&method).0, 405);
}

#[test]
fn a_wrong_schema_of_a_tool_is_told_as_such_beside_a_format_too() {
    let server = Server::start(&[]);
    let tool = |schema: Value| json!({"name": "f", "strict": true, "input_schema": schema});
    let format = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    let wrong = json!({"type": "object", "properties": {"location": "bar"}});
    let body = json!({
        "model": "mortise-demo", "max_tokens": 5, "output_config": format,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool(json!({"type": "object"}))],
    });
    server.post(MESSAGES, &body).ok();
    let mut refused = body;
    let mut second = tool(wrong);
    second["name"] = json!("g");
    refused["tools"].as_array_mut().expect("tools").push(second);
    let refused = server.post(MESSAGES, &refused);
    let kind = error(&refused);
    let message = refused.json()["error"]["message"].to_string();
    assert_eq!(kind, (400, "invalid_request_error".to_owned()), "{message}");
    assert!(message.contains("the tool `g`"), "{message}");
    assert!(
        message.contains("must be an object or boolean"),
        "{message}"
    );
    // Nothing of the grammar that was made of both.
    assert!(
        !message.contains("Lark") && !message.contains("answer:"),
        "{message}"
    );
}

#[test]
fn what_a_model_thinks_unasked_is_not_shown() {
    let server = Server::scripted(SCRIPT, "");
    let plain = server.post(MESSAGES, &asked("think", json!({}))).ok();
    assert_eq!(
        plain["content"],
        json!([{"type": "text", "text": "Forty-two."}])
    );
    let thinking = json!({"thinking": {"type": "adaptive"}});
    let shown = server.post(MESSAGES, &asked("think", thinking)).ok();
    assert_eq!(shown["content"][0]["type"], "thinking", "{shown}");
    let stop = json!({"stop_sequences": ["silence"], "stream": true});
    let streamed = server.post(MESSAGES, &asked("rest", stop));
    let text = streamed.text();
    let end = text
        .lines()
        .find(|line| line.contains("\"message_delta\"") && line.starts_with("data: "));
    let end: Value = serde_json::from_str(&end.expect("an end")[6..]).expect("JSON");
    let expected = json!({"stop_reason": "stop_sequence", "stop_sequence": "silence"});
    assert_eq!(end["delta"], expected);
}
