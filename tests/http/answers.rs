//! Shapes of answers, whole and streamed.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::Request;

pub(crate) const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

pub(crate) fn chat(text: &str) -> Value {
    json!({"model": "scripted", "messages": [{"role": "user", "content": text}]})
}

fn with(mut request: Value, more: Value) -> Value {
    let (Value::Object(request_map), Value::Object(more)) = (&mut request, more) else {
        panic!("objects are merged");
    };
    request_map.extend(more);
    request
}

fn weather() -> Value {
    json!([{"type": "function", "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }}])
}

const SCRIPT: &str = r#"
default = "Hello there, wörld 👋."
lines = [
    { when = "weather", say = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>" },
    { when = "think", say = "<think>\nLet me see.\n</think>\n\nForty-two." },
    { when = "sunny in Paris", say = "It is sunny." },
]
"#;

#[test]
fn feature_e1_t1_t2_a_whole_answer_has_the_shape_of_openai() {
    let server = Server::scripted(SCRIPT, "");
    let response = server.post(CHAT, &chat("Hi"));
    let body = response.ok();
    assert!(
        body["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("chatcmpl-"))
    );
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "scripted");
    assert!(
        body["created"]
            .as_u64()
            .is_some_and(|created| created > 1_700_000_000)
    );
    let choice = &body["choices"][0];
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"], "Hello there, wörld 👋.");
    assert_eq!(choice["message"]["refusal"], Value::Null);
    let usage = &body["usage"];
    let of = |field: &str| usage[field].as_u64().expect("a count");
    // Each byte is a token.
    assert_eq!(
        of("completion_tokens"),
        "Hello there, wörld 👋.".len() as u64
    );
    assert_eq!(
        of("total_tokens"),
        of("prompt_tokens") + of("completion_tokens")
    );
    assert!(
        response
            .header("x-request-id")
            .is_some_and(|id| id.starts_with("req_"))
    );
    assert_eq!(response.header("content-type"), Some("application/json"));
}

/// The pieces of a stream, put together for one choice.
fn joined(events: &[Value], index: u64, field: &str) -> String {
    let choices = events
        .iter()
        .flat_map(|event| event["choices"].as_array().expect("choices"));
    choices
        .filter(|choice| choice["index"] == index)
        .filter_map(|choice| choice["delta"][field].as_str())
        .collect()
}

#[test]
fn feature_f9_t3_t4_t6_a_stream_adds_up_to_the_whole_answer() {
    let server = Server::scripted(SCRIPT, "");
    for text in ["Hi", "think", "weather"] {
        let request = with(chat(text), json!({"tools": weather()}));
        let whole = server.post(CHAT, &request).ok();
        let request = with(
            request,
            json!({
                "stream": true,
                "stream_options": {"include_usage": true},
            }),
        );
        let response = server.post(CHAT, &request);
        assert_eq!(
            response.header("content-type"),
            Some("text/event-stream; charset=utf-8")
        );
        assert_eq!(response.header("cache-control"), Some("no-cache"));
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        let events = response.events();

        assert_eq!(
            events[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        let message = &whole["choices"][0]["message"];
        assert_eq!(
            joined(&events, 0, "content"),
            message["content"].as_str().unwrap_or("")
        );
        let reasoning = message["reasoning_content"].as_str().unwrap_or("");
        assert_eq!(joined(&events, 0, "reasoning_content"), reasoning);
        let calls = events.iter().filter_map(|event| {
            event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str()
        });
        let arguments = &message["tool_calls"][0]["function"]["arguments"];
        assert_eq!(calls.collect::<String>(), arguments.as_str().unwrap_or(""));

        let (usage, rest) = events.split_last().expect("events");
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"], whole["usage"]);
        let last = rest.last().expect("a last chunk");
        assert_eq!(
            last["choices"][0]["finish_reason"],
            whole["choices"][0]["finish_reason"]
        );
        assert_eq!(last["choices"][0]["delta"], json!({}));
        assert!(
            rest.iter()
                .all(|event| event["usage"].is_null() && event["id"] == usage["id"])
        );
    }
}

#[test]
fn feature_f13_p4_p5_tools_are_called_and_their_results_used() {
    let server = Server::scripted(SCRIPT, "");
    let request = with(chat("weather?"), json!({"tools": weather()}));
    let first = server.post(CHAT, &request).ok();
    let choice = &first["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["type"], "function");
    assert_eq!(call["function"]["name"], "get_weather");
    let arguments = call["function"]["arguments"]
        .as_str()
        .expect("arguments in a string");
    let arguments: Value = serde_json::from_str(arguments).expect("arguments in JSON");
    assert_eq!(arguments, json!({"city": "Paris"}));

    // The word that the first line waits for must not stand in the second prompt.
    let second = server.post(
        CHAT,
        &json!({"model": "scripted", "messages": [
            {"role": "user", "content": "And?"},
            choice["message"],
            {"role": "tool", "tool_call_id": call["id"], "content": "sunny in Paris"},
        ]}),
    );
    // The call's own name is in the prompt, so the script calls again without tools: as text.
    assert_eq!(second.ok()["choices"][0]["finish_reason"], "stop");
}

/// The notations of a call that a model may write: between marks, and a bare object with a name.
#[test]
fn feature_p4_calls_between_marks_and_bare_objects_are_calls() {
    let call = r#"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}"#;
    let model = |name: &str, say: &str| {
        let path = crate::support::model::byte_level();
        format!(
            "[[models]]\nname = {name:?}\npath = {path:?}\nbackend = \"scripted\"\n[models.script]\n\
             default = \"{say}\"\n"
        )
    };
    let server = Server::configured(&format!(
        "[[plugins.bindings]]\nkind = \"output-parser\"\nmodels = [\"bare\"]\nsettings = {{ format = \"llama3-json\" }}\n{}{}",
        model(
            "marked",
            &format!("Well. <tool_call>\\n{call}\\n</tool_call>")
        ),
        model("bare", &call.replace("arguments", "parameters"))
    ));
    for (name, content) in [("marked", json!("Well.")), ("bare", Value::Null)] {
        let request = with(chat("weather?"), json!({"model": name, "tools": weather()}));
        let whole = server.post(CHAT, &request).ok();
        let choice = &whole["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
        assert_eq!(choice["message"]["content"], content, "{whole}");
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "get_weather");
        let arguments = function["arguments"].as_str().expect("a text");
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        assert_eq!(arguments, json!({"city": "Paris"}));
        // A tool that nobody declared is not called: what was written is content.
        let undeclared = server
            .post(CHAT, &with(chat("weather?"), json!({"model": name})))
            .ok();
        let choice = &undeclared["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{undeclared}");
        let content = choice["message"]["content"].as_str().expect("a text");
        assert!(content.contains("get_weather"), "{content}");
    }
}

#[test]
fn the_older_functions_get_the_older_shape() {
    let server = Server::scripted(SCRIPT, "");
    let functions = json!([weather()[0]["function"]]);
    let request = with(
        chat("weather?"),
        json!({"functions": functions, "function_call": "auto"}),
    );
    let whole = server.post(CHAT, &request).ok();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "function_call");
    assert_eq!(choice["message"]["function_call"]["name"], "get_weather");
    assert!(choice["message"].get("tool_calls").is_none());
}

#[test]
fn feature_f10_choices_are_counted_through() {
    let server = Server::scripted(SCRIPT, "");
    let whole = server.post(CHAT, &with(chat("Hi"), json!({"n": 3}))).ok();
    let choices = whole["choices"].as_array().expect("choices");
    let indices: Vec<_> = choices
        .iter()
        .map(|choice| choice["index"].as_u64())
        .collect();
    assert_eq!(indices, [Some(0), Some(1), Some(2)]);
    let events = server
        .post(CHAT, &with(chat("Hi"), json!({"n": 2, "stream": true})))
        .events();
    for index in 0..2 {
        assert_eq!(joined(&events, index, "content"), "Hello there, wörld 👋.");
    }
}

#[test]
fn feature_f3_f8_limits_and_stop_strings_cut() {
    let server = Server::scripted(SCRIPT, "");
    let cut = |more: Value| {
        let body = server.post(CHAT, &with(chat("Hi"), more)).ok();
        let choice = &body["choices"][0];
        let text = choice["message"]["content"]
            .as_str()
            .expect("content")
            .to_owned();
        (
            text,
            choice["finish_reason"]
                .as_str()
                .expect("a reason")
                .to_owned(),
        )
    };
    assert_eq!(
        cut(json!({"max_tokens": 5})),
        ("Hello".to_owned(), "length".to_owned())
    );
    assert_eq!(
        cut(json!({"max_completion_tokens": 5})),
        ("Hello".to_owned(), "length".to_owned())
    );
    assert_eq!(
        cut(json!({"stop": "there"})),
        ("Hello ".to_owned(), "stop".to_owned())
    );
    assert_eq!(
        cut(json!({"stop": ["xyz", ", w"]})),
        ("Hello there".to_owned(), "stop".to_owned())
    );
}

#[test]
fn feature_f12_logprobs_have_the_shape_of_openai() {
    let server = Server::scripted(SCRIPT, "");
    let more = json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 4});
    let whole = server.post(CHAT, &with(chat("Hi"), more)).ok();
    let content = &whole["choices"][0]["logprobs"]["content"];
    let tokens: String = content
        .as_array()
        .expect("tokens")
        .iter()
        .map(|entry| {
            assert!(
                entry["logprob"]
                    .as_f64()
                    .is_some_and(|logprob| logprob <= 0.0)
            );
            assert!(entry["bytes"].is_array() && entry["top_logprobs"].is_array());
            entry["token"].as_str().expect("a token")
        })
        .collect();
    assert_eq!(tokens, "Hell");
}

#[test]
fn feature_e2_text_is_completed() {
    let server = Server::scripted(SCRIPT, "");
    let request = json!({"model": "scripted", "prompt": "Once", "max_tokens": 5, "echo": true});
    let whole = server.post(TEXT, &request).ok();
    assert_eq!(whole["object"], "text_completion");
    assert!(
        whole["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("cmpl-"))
    );
    assert_eq!(whole["choices"][0]["text"], "OnceHello");
    assert_eq!(whole["choices"][0]["finish_reason"], "length");

    let request = json!({
        "model": "scripted", "prompt": ["a", [98, 99]], "n": 2, "max_tokens": 3, "logprobs": 1,
    });
    let whole = server.post(TEXT, &request).ok();
    let choices = whole["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 4);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["text"], "Hel");
        assert_eq!(choice["logprobs"]["tokens"], json!(["H", "e", "l"]));
        assert_eq!(choice["logprobs"]["text_offset"], json!([0, 1, 2]));
    }
    assert_eq!(whole["usage"]["completion_tokens"], 12);
    assert_eq!(whole["usage"]["prompt_tokens"], 3);

    let request = json!({"model": "scripted", "prompt": "x", "max_tokens": 64, "stream": true});
    let events = server.post(TEXT, &request).events();
    let text: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(text, "Hello there, wörld 👋.");
}

#[test]
fn feature_f15_f16_t8_hints_are_accepted_and_request_ids_taken_over() {
    let server = Server::scripted(SCRIPT, "");
    let request = with(
        chat("Hi"),
        json!({
            "user": "u", "metadata": {"k": "v"}, "prompt_cache_key": "p", "safety_identifier": "s",
            "service_tier": "auto", "store": false, "modalities": ["text"], "seed": -5,
            "reasoning_effort": "low", "prediction": {"type": "content", "content": "x"},
        }),
    );
    let request = Request::post(CHAT, &request).header("x-request-id", "trace-7");
    let response = server.send(&request);
    response.ok();
    assert_eq!(response.header("x-request-id"), Some("trace-7"));
    let line = server.wait_for_log(|line| line.contains("trace-7"));
    for part in [
        "mortise::access",
        "status=200",
        "scripted",
        "user=\"u\"",
        "completion_tokens=25",
        "ttft_ms",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!line.contains("Hi"), "a prompt is in the log: {line}");
    // A caller may name its trace in place of the request.
    let traced = Request::post(CHAT, &chat("Hi")).header("x-request-trace", "trace-8");
    let response = server.send(&traced);
    response.ok();
    for name in ["x-request-id", "x-request-trace"] {
        assert_eq!(response.header(name), Some("trace-8"), "{name}");
    }
    server.wait_for_log(|line| line.contains("trace-8"));
    let odd = Request::post(CHAT, &chat("Hi")).header("x-request-trace", "no name");
    assert_eq!(server.send(&odd).header("x-request-trace"), None);
}

#[test]
fn padding_hides_the_lengths_of_tokens() {
    let server = Server::scripted(SCRIPT, "");
    let request = with(
        chat("Hi"),
        json!({
            "stream": true, "stream_options": {"include_obfuscation": true},
        }),
    );
    for event in server.post(CHAT, &request).events() {
        let padding = event["obfuscation"].as_str().expect("padding").len();
        let text = event["choices"][0]["delta"]["content"]
            .as_str()
            .map_or(0, str::len);
        assert_eq!((padding + text) % 32, 0);
    }
}

/// A runtime that takes conversations is written to the wire like one that takes tokens.
#[test]
fn a_scripted_server_of_conversations_answers_like_a_model() {
    let server = Server::configured(
        "[[models]]\nname = \"elsewhere\"\nbackend = \"scripted\"\n[models.script]\n\
         kind = \"conversation\"\n\
         default = \"<think>Let me see.</think>It is<call>get_weather {\\\"city\\\": \\\"Paris\\\"}</call>\"\n",
    );
    let request = with(
        chat("Hi"),
        json!({
            "model": "elsewhere",
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        }),
    );
    let whole = server.post(CHAT, &request).ok();
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["content"], "It is");
    assert_eq!(choice["message"]["reasoning"], "Let me see.");
    assert_eq!(choice["finish_reason"], "tool_calls");
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "get_weather");
    assert_eq!(call["arguments"], "{\"city\": \"Paris\"}");
    assert_eq!(whole["usage"]["prompt_tokens"], 2);
    let streamed = with(request, json!({"stream": true}));
    let events = server.post(CHAT, &streamed).events();
    let delta = |key: &str| -> String {
        let deltas = events
            .iter()
            .map(|event| &event["choices"][0]["delta"][key]);
        deltas.filter_map(|text| text.as_str()).collect()
    };
    assert_eq!(delta("content"), "It is");
    assert_eq!(delta("reasoning"), "Let me see.");
    let text = json!({"model": "elsewhere", "prompt": "x"});
    let refused = server.post(TEXT, &text);
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json()["error"]["param"], "prompt");
}
