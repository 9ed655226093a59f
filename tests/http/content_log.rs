//! Log of contents: off, or redacted and marked, for the models and tenants that are named.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;
use crate::support::client::Request;

const SCRIPT: &str =
    "default = \"Write to bob@mail.example, key sk-live-0123456789abcdef, thanks.\"\n";

const SECRETS: [&str; 5] = [
    "bob@mail",
    "sk-live",
    "4111",
    "alice@home",
    "sk-secret-of-alice",
];

fn ask(server: &Server, key: &str, stream: bool) {
    let text = "My card is 4111 1111 1111 1111, my address alice@home.example. What now?";
    let body = json!({
        "model": "scripted", "stream": stream, "messages": [{"role": "user", "content": text}],
    });
    let request = Request::post(CHAT, &body).header("authorization", &format!("Bearer {key}"));
    assert_eq!(server.send(&request).status(), 200);
}

fn keys() -> &'static str {
    "[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-secret-of-alice\"\ntenant = \"acme\"\n\
     [[auth.api_keys]]\nid = \"b\"\nkey = \"sk-secret-of-bob\"\ntenant = \"other\"\n"
}

fn contents(server: &Server) -> Vec<Value> {
    let lines = server.log().into_iter();
    let lines = lines.filter(|line| line.contains("content of a request"));
    lines
        .map(|line| serde_json::from_str(&line).expect("JSON"))
        .collect()
}

/// The last request has its line in the access log, so that all before it are written.
fn settled(server: &Server, requests: usize) {
    crate::support::until("the requests are logged", || {
        let lines = server.log();
        let access = lines
            .iter()
            .filter(|line| line.contains("\"completion_tokens\""));
        access.count() >= requests
    });
}

#[test]
fn feature_z6_contents_are_logged_if_asked_for_and_redacted() {
    let log = "[log]\nformat = \"json\"\ncontent = \"redacted\"\ncontent_tenants = [\"ac*\"]\n";
    let server = Server::scripted(SCRIPT, &format!("{log}{}", keys()));
    ask(&server, "sk-secret-of-alice", false);
    ask(&server, "sk-secret-of-alice", true);
    ask(&server, "sk-secret-of-bob", true);
    settled(&server, 3);
    let found = contents(&server);
    assert_eq!(found.len(), 2, "one tenant is named");
    for line in &found {
        assert_eq!(
            (&line["tenant"], &line["model"]),
            (&json!("acme"), &json!("scripted"))
        );
        let prompt = "[user] My card is [redacted card], my address [redacted email]. What now?";
        assert_eq!(line["prompt"], prompt);
        let answer = "[choice 0] Write to [redacted email], key [redacted key], thanks.";
        assert_eq!(
            line["answer"], answer,
            "pieces of a stream are joined first"
        );
        assert_eq!(
            (&line["redacted"], &line["cut"]),
            (&json!(4), &json!(false))
        );
    }
    let log = server.log().join("\n");
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(log.contains("log.content is set"));
}

#[test]
fn feature_o5_no_content_is_logged_by_default() {
    let server = Server::scripted(
        SCRIPT,
        &format!("[log]\nlevel = \"trace\"\nformat = \"json\"\n{}", keys()),
    );
    ask(&server, "sk-secret-of-alice", true);
    settled(&server, 1);
    assert_eq!(contents(&server), Vec::<Value>::new());
    let log = server.log().join("\n");
    for words in SECRETS.into_iter().chain(["What now", "Write to"]) {
        assert!(!log.contains(words), "{words} is in the log");
    }
    // Of the request the line has its names and numbers.
    let line = server
        .log()
        .into_iter()
        .find(|line| line.contains("\"completion_tokens\""));
    let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
    for name in [
        "id",
        "tenant",
        "model",
        "total_ms",
        "prompt_tokens",
        "completion_tokens",
        "finish",
    ] {
        assert!(!line[name].is_null(), "{name}: {line}");
    }
}
