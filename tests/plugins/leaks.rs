//! Messages of a plugin that breaks down reach the operator, and no caller of the API.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::client::{Request, Response, events};
use crate::support::example::every_kind as guest;
use crate::swap::Live;

/// Words of the guest's panic message, and of the messages that its toolchain and the runtime add.
const WORDS: [&str; 8] = [
    "gives up", "panicked", "trap ", "trapped", ".rs", "wasm", "thread", "guest",
];

/// A kind, the function that panics, and whether the head of a streamed answer is out by then.
const PANICS: [(&str, &str, bool); 9] = [
    ("policy", "authorize", false),
    ("chat-template", "render", false),
    ("output-parser", "constraint", false),
    ("output-parser", "open", false),
    ("output-parser", "feed", true),
    ("output-parser", "close", true),
    ("grammar", "compile", false),
    ("grammar", "mask", true),
    ("tool", "call", true),
];

/// Text by which a model calls a tool of the server.
fn call(tool: &str, text: &str) -> String {
    let call = json!({"name": tool, "arguments": {"text": text}});
    format!("<tool_call>\n{call}\n</tool_call>")
}

/// A server with a model for each of the guests, bound to it alone.
fn server() -> Live {
    let (file, path) = (guest(), crate::support::model::byte_level());
    let mut config = String::new();
    let mut model = |name: &str, say: &str| {
        let _ = write!(
            config,
            "[[models]]\nname = {name:?}\npath = {path:?}\nbackend = \"scripted\"\n\
             [models.script]\ndefault = {}\n",
            Value::from(say)
        );
    };
    for (kind, function, _) in PANICS {
        match kind {
            "tool" => model(function, &call("does", "panic")),
            _ => model(function, "The answer."),
        }
    }
    model("fails", &call("fails", "hunter2"));
    model("refuses", &call("refuses", "hunter2"));
    let mut bind = |kind: &str, more: &str| {
        let _ = write!(
            config,
            "[[plugins.bindings]]\nkind = {kind:?}\nfile = {file:?}\n\
             breaker = {{ failures = 0 }}\n{more}\n"
        );
    };
    bind("tool", "");
    for (kind, function, _) in PANICS.iter().filter(|(kind, ..)| *kind != "tool") {
        bind(
            kind,
            &format!("models = [{function:?}]\nsettings = {{ {function} = \"panic\" }}"),
        );
    }
    Live::start(0, &config)
}

fn request(model: &str, id: &str, stream: bool) -> Request {
    let mut body = json!({
        "model": model, "stream": stream, "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
    });
    match model {
        "compile" | "mask" => body["guided_regex"] = json!("only"),
        "call" => body["server_tools"] = json!(["does"]),
        "fails" | "refuses" => body["server_tools"] = json!([model]),
        _ => {}
    }
    Request::post("/v1/chat/completions", &body).header("x-request-id", id)
}

/// The error in an answer, streamed or not, and its message.
fn error_in(response: &Response, in_stream: bool, what: &str) -> (Value, String) {
    let text = response.text();
    let status = if in_stream { 200 } else { 500 };
    assert_eq!(response.status(), status, "{what}: {text}");
    let found = match in_stream {
        true => events(&text).pop().expect("an event"),
        false => response.json(),
    };
    let error = found["error"].clone();
    let message = error["message"].as_str().expect("a message").to_owned();
    (error, message)
}

#[test]
fn g8_a_panic_is_told_to_the_operator_and_not_to_the_caller() {
    let live = server();
    for (kind, function, late) in PANICS {
        for stream in [false, true] {
            let id = format!("leak-{function}-{stream}");
            let response = live.server.send(&request(function, &id, stream));
            let (error, message) = error_in(&response, late && stream, &id);
            assert_eq!(error["code"], "plugin_trap", "{id}: {error}");
            assert_eq!(error["type"], "server_error", "{id}: {error}");
            for part in [&format!("the {kind} plugin "), &id, "may be retried"] {
                assert!(message.contains(part), "{id}: {message}");
            }
            assert_eq!(response.header("x-request-id"), Some(&*id));
            let said = format!("{:?} {}", response.head, response.text());
            for word in WORDS {
                assert!(!said.contains(word), "{id} tells {word:?}: {said}");
            }
            let line = |line: &str| line.contains(&id) && line.contains("the guest gives up");
            live.server.wait_for_log(line);
            let status = live.status();
            let mut told = status["breakdowns"].as_array().expect("a list").iter();
            let last = told.find(|breakdown| breakdown["kind"] == kind);
            let last = last.expect("the breakdown");
            assert_eq!(last["request_id"], id, "{last}");
            assert_eq!(last["plugin"], "guest");
            assert_eq!(last["fault"], "trap");
            let text = last["text"].as_str().expect("a text");
            assert!(text.contains("the guest gives up"), "{text}");
        }
    }
}

#[test]
fn g8_a_defect_that_a_plugin_reports_is_no_message_for_callers() {
    let live = server();
    for stream in [false, true] {
        let id = format!("leak-internal-{stream}");
        let response = live.server.send(&request("fails", &id, stream));
        let (error, message) = error_in(&response, stream, &id);
        assert_eq!(error["code"], "plugin_internal", "{error}");
        assert!(message.contains("the tool plugin "), "{message}");
        assert!(!response.text().contains("hunter2"), "{}", response.text());
        let line = |line: &str| line.contains(&id) && line.contains("hunter2");
        live.server.wait_for_log(line);
    }
}

/// A refusal is an answer: what the plugin wrote is passed on.
#[test]
fn what_a_plugin_refuses_with_is_told_as_it_is() {
    let live = server();
    let response = live.server.send(&request("refuses", "refused", true));
    let output = events(&response.text()).into_iter().find_map(|event| {
        let calls = &event["choices"][0]["delta"]["server_tool_calls"];
        calls[0]["output"].as_str().map(str::to_owned)
    });
    assert_eq!(output.as_deref(), Some("hunter2"), "{}", response.text());
    // The guest compiles regular expressions only, and says so.
    let body = json!({
        "model": "mask", "messages": [{"role": "user", "content": "Hi"}],
        "response_format": {"type": "json_object"},
    });
    let response = live.server.post("/v1/chat/completions", &body);
    assert_eq!(response.status(), 400, "{}", response.text());
    assert!(response.text().contains("only regex here"));
}
