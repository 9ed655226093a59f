//! The Ollama dialect: its shapes, its errors, and what it shares with the others.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};

const GENERATE: &str = "/api/generate";

const SCRIPT: &str = r#"
default = "Hello there, wörld 👋."
lines = [
    { when = "think", say = "<think>\nLet me see.\n</think>\n\nForty-two." },
]
"#;

fn lines(response: &Response) -> Vec<Value> {
    let text = response.text();
    assert!(text.ends_with('\n'), "{text:?}");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

fn asked(prompt: &str, more: Value) -> Value {
    let mut body = json!({"model": "scripted", "prompt": prompt});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

#[test]
fn a_streamed_answer_is_a_line_for_each_piece_and_figures_at_the_end() {
    let server = Server::scripted(SCRIPT, "");
    let response = server.post(GENERATE, &asked("Hi", json!({})));
    assert_eq!(response.status(), 200);
    let kind = response.header("content-type");
    assert_eq!(kind, Some("application/x-ndjson"));
    let lines = lines(&response);
    let (last, pieces) = lines.split_last().expect("lines");
    assert!(!pieces.is_empty());
    let mut text = String::new();
    for piece in pieces {
        assert_eq!(
            (&piece["model"], &piece["done"]),
            (&json!("scripted"), &json!(false))
        );
        assert!(
            piece["created_at"]
                .as_str()
                .is_some_and(|at| at.ends_with('Z'))
        );
        text.push_str(piece["response"].as_str().expect("text"));
    }
    assert_eq!(text, "Hello there, wörld 👋.");
    assert_eq!(
        (&last["done"], &last["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    assert_eq!(last["response"], "");
    for figure in ["total_duration", "prompt_eval_count", "eval_count"] {
        assert!(
            last[figure].as_u64().is_some_and(|count| count > 0),
            "{figure}: {last}"
        );
    }
}

#[test]
fn a_whole_answer_is_one_object_with_the_same_text() {
    let server = Server::scripted(SCRIPT, "");
    let body = server
        .post(GENERATE, &asked("Hi", json!({"stream": false})))
        .ok();
    assert_eq!(
        (&body["response"], &body["done"]),
        (&json!("Hello there, wörld 👋."), &json!(true))
    );
    let thought = server
        .post(GENERATE, &asked("think", json!({"stream": false})))
        .ok();
    assert_eq!(thought["response"], "Forty-two.");
    assert!(
        thought["thinking"]
            .as_str()
            .is_some_and(|text| text.contains("Let me see"))
    );
    let limits = json!({"stream": false, "options": {"num_predict": 2}});
    let short = server.post(GENERATE, &asked("Hi", limits)).ok();
    assert_eq!(
        (&short["done_reason"], &short["eval_count"]),
        (&json!("length"), &json!(2))
    );
    let stop = json!({"stream": false, "options": {"stop": ["there"]}});
    let cut = server.post(GENERATE, &asked("Hi", stop)).ok();
    assert_eq!(
        (&cut["response"], &cut["done_reason"]),
        (&json!("Hello "), &json!("stop"))
    );
    let in_flight = server.metric(
        "mortise_requests_total{route=\"/api/generate\",model=\"scripted\",status=\"200\"}",
    );
    assert!((in_flight - 4.0).abs() < f64::EPSILON, "{in_flight}");
}

#[test]
fn errors_below_api_are_ollamas_and_others_are_openais() {
    let server = Server::scripted(SCRIPT, "");
    let told = |response: &Response| -> String {
        let body = response.json();
        let fields = body.as_object().expect("an object").len();
        assert_eq!(fields, 1, "{body}");
        body["error"].as_str().expect("a text").to_owned()
    };
    let refused = server.post(GENERATE, &asked("Hi", json!({"images": ["aGk="]})));
    assert_eq!(refused.status(), 400);
    assert!(told(&refused).contains("`images` is not supported"));
    let unknown = server.post(
        GENERATE,
        &asked("Hi", json!({"options": {"tempreture": 1}})),
    );
    assert_eq!(unknown.status(), 400);
    assert!(told(&unknown).contains("did you mean `options.temperature`?"));
    let bounds = server.post(
        GENERATE,
        &asked("Hi", json!({"options": {"temperature": 9}})),
    );
    assert_eq!(bounds.status(), 400);
    assert!(told(&bounds).contains("temperature"));
    let broken = server.send(&Request::raw(GENERATE, b"{"));
    assert_eq!(broken.status(), 400);
    assert!(told(&broken).contains("not valid JSON"));
    let missing = server.get("/api/nothing");
    assert_eq!(missing.status(), 404);
    assert!(told(&missing).contains("/api/nothing"));
    let method = server.get(GENERATE);
    assert_eq!(
        (method.status(), method.header("allow")),
        (405, Some("POST"))
    );
    assert!(told(&method).contains("/api/generate"));
    for path in ["/v1/nothing", "/apiary", "/nothing"] {
        let other = server.get(path);
        assert_eq!(other.status(), 404, "{path}");
        assert_eq!(other.json()["error"]["code"], "unknown_route", "{path}");
    }
}

#[test]
fn keys_guard_this_dialect_as_they_do_the_others() {
    let config = "[auth]\napi_keys = [{ id = \"a\", key = \"open-sesame\" }]\n";
    let server = Server::scripted(SCRIPT, config);
    let body = asked("Hi", json!({"stream": false}));
    let refused = server.post(GENERATE, &body);
    assert_eq!(refused.status(), 401);
    assert!(refused.json()["error"].is_string());
    let request = Request::post(GENERATE, &body).header("authorization", "Bearer open-sesame");
    assert_eq!(server.send(&request).ok()["done"], true);
}
