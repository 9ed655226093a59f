//! Requests that nobody waits for any more, and requests that have waited long enough.

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::Server;
use crate::support::client::{Request, Response, events};

const TEXT: &str = "/v1/completions";
/// An answer whose first token takes longer than any test waits for it.
const SLOW: &str = "default = \"abcdefghij\"\ntoken_delay_ms = 20000\nmax_sequences = 64";

fn body(path: &str, stream: bool) -> Value {
    let mut body = match path {
        CHAT => chat("Hi"),
        _ => json!({"model": "scripted", "prompt": "Hi"}),
    };
    body["stream"] = json!(stream);
    body
}

/// The code of an error, in a body or in the last event of a stream.
fn code(response: &Response) -> Value {
    let last = match response.status() {
        200 => events(&response.text()).pop().expect("an event"),
        _ => response.json(),
    };
    last["error"]["code"].clone()
}

#[test]
fn who_says_how_long_it_waits_is_not_worked_for_longer() {
    let mut server = Server::scripted(SLOW, "");
    for path in [CHAT, TEXT] {
        for (name, value) in [
            ("x-request-timeout", "0.3"),
            ("x-stainless-timeout", "1"),
            ("x-request-timeout", "1"),
        ] {
            let request = Request::post(path, &body(path, false)).header(name, value);
            let response = server.send(&request);
            assert_eq!(response.status(), 408, "{name}: {}", response.text());
            let error = &response.json()["error"];
            assert_eq!(error["code"], "request_timeout");
            assert_eq!(response.header("x-should-retry"), Some("false"));
            let stream = Request::post(path, &body(path, true)).header(name, value);
            let sent = server.send(&stream);
            assert_eq!(code(&sent), "request_timeout");
        }
    }
    server.assert_sound();
}

#[test]
fn requests_wait_no_longer_than_the_operator_lets_them() {
    let mut server = Server::scripted(SLOW, "[limits]\nmax_queue_wait_ms = 300\n");
    for path in [CHAT, TEXT] {
        let response = server.post(path, &body(path, false));
        assert_eq!(response.status(), 503, "{}", response.text());
        assert_eq!(response.json()["error"]["code"], "queue_timeout");
        assert!(response.header("retry-after").is_some());
        let sent = server.post(path, &body(path, true));
        assert_eq!(code(&sent), "queue_timeout");
    }
    server.assert_sound();
}

#[test]
fn answers_that_have_begun_are_not_cut_off() {
    let script = "default = \"abcdefghij\"\ntoken_delay_ms = 100\nrepeat = 4";
    let server = Server::scripted(script, "[limits]\nmax_queue_wait_ms = 3000\n");
    // A stream takes longer than its caller waits for the first piece.
    let request = Request::post(CHAT, &body(CHAT, true)).header("x-request-timeout", "3");
    let sent = server.send(&request).events();
    let text: String = sent
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "abcdefghij".repeat(4));
    // What is sent whole is waited for as a whole.
    let whole = Request::post(CHAT, &body(CHAT, false));
    let late = server.send(&whole.clone().header("x-request-timeout", "0.5"));
    assert_eq!(late.status(), 408);
    server.send(&whole).ok();
}

#[test]
fn limits_that_are_none_are_told() {
    let server = Server::scripted("default = \"x\"", "");
    for wrong in ["0", "-1", "soon", "1e9", "5 s"] {
        let request = Request::post(CHAT, &chat("Hi")).header("x-request-timeout", wrong);
        let response = server.send(&request);
        assert_eq!(response.status(), 400, "{wrong}");
        assert!(response.text().contains("x-request-timeout"));
    }
    // What clients send of themselves is never the reason to refuse.
    for odd in ["0", "NOT_GIVEN", "-5", "600"] {
        let request = Request::post(CHAT, &chat("Hi")).header("x-stainless-timeout", odd);
        server.send(&request).ok();
    }
}
