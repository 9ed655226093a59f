//! `Idempotency-Key`, and stored chat completions.

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::responses::RESPONSES;
use crate::support::Server;
use crate::support::client::{Request, Response};

const SCRIPT: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 5\n";

fn keyed(path: &str, body: &Value, key: &str) -> Request {
    Request::post(path, body).header("idempotency-key", key)
}

fn stored(text: &str, tag: &str) -> Value {
    let mut body = chat(text);
    body["store"] = json!(true);
    body["metadata"] = json!({"tag": tag});
    body
}

fn is_replay(response: &Response) -> bool {
    response.header("idempotency-replayed") == Some("true")
}

#[test]
fn feature_t11_a_key_stands_for_one_request() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let more = format!("[store]\npath = {path:?}\n");
    let server = Server::scripted(SCRIPT, &more);
    let mut streamed = chat("Hi");
    streamed["stream"] = json!(true);
    let response = json!({"model": "scripted", "input": "Hi"});
    let mut of_messages = chat("Hi");
    of_messages["max_tokens"] = json!(20);
    let mut ollama = chat("Hi");
    ollama["stream"] = json!(false);
    let requests = [
        keyed(CHAT, &chat("Hi"), "one"),
        keyed(CHAT, &streamed, "two"),
        keyed(RESPONSES, &response, "three"),
        keyed("/v1/conversations", &json!({}), "four"),
        keyed("/v1/messages", &of_messages, "of messages"),
        keyed("/api/chat", &ollama, "of ollama"),
    ];
    let first: Vec<Response> = requests
        .iter()
        .map(|request| server.send(request))
        .collect();
    let same = |server: &Server| {
        for (request, first) in requests.iter().zip(&first) {
            assert_eq!(first.status(), 200, "{}", first.text());
            assert!(!is_replay(first));
            let again = server.send(request);
            assert!(is_replay(&again));
            assert_eq!(again.text(), first.text());
            assert_eq!(again.header("content-type"), first.header("content-type"));
        }
    };
    same(&server);
    let other = server.send(&keyed(CHAT, &chat("Bye"), "one"));
    assert_eq!(other.status(), 409);
    assert_eq!(other.json()["error"]["code"], "idempotency_conflict");
    // Another caller's keys are others, and what failed may be tried again.
    let wrong = keyed(CHAT, &json!({"model": "scripted"}), "five");
    assert_eq!(server.send(&wrong).status(), 400);
    assert!(!is_replay(&server.send(&keyed(CHAT, &chat("Hi"), "five"))));
    let long = "k".repeat(300);
    let refused = server.send(&keyed(CHAT, &chat("Hi"), &long));
    assert_eq!(refused.json()["error"]["param"], "Idempotency-Key");
    drop(server);
    same(&Server::scripted(SCRIPT, &more));
}

#[test]
fn feature_t11_64_duplicates_at_once_are_done_once() {
    let server = Server::scripted(SCRIPT, "");
    for stream in [false, true] {
        let tag = format!("duplicates-{stream}");
        let mut body = stored("Hi", &tag);
        body["stream"] = json!(stream);
        let request = keyed(CHAT, &body, &tag);
        let answers = server.send_together(&vec![request; 64]);
        for answer in &answers {
            assert_eq!(answer.status(), 200, "{}", answer.text());
            assert_eq!(answer.text(), answers[0].text());
        }
        let first = answers.iter().filter(|answer| !is_replay(answer));
        assert_eq!(first.count(), 1);
        let listed = server.get(&format!("{CHAT}?metadata[tag]={tag}")).ok();
        assert_eq!(listed["data"].as_array().expect("a list").len(), 1);
    }
}

#[test]
fn feature_f17_stored_completions_are_listed_changed_and_deleted() {
    let server = Server::scripted(SCRIPT, "");
    let first = server.post(CHAT, &stored("Hi", "a")).ok();
    let mut streamed = stored("Hi", "b");
    streamed["stream"] = json!(true);
    let chunks = server.post(CHAT, &streamed).events();
    server.post(CHAT, &chat("Hi")).ok();
    let listed = server.get(CHAT).ok();
    let ids: Vec<&Value> = listed["data"].as_array().expect("a list").iter().collect();
    let ids: Vec<&Value> = ids.iter().map(|completion| &completion["id"]).collect();
    assert_eq!(ids, [&first["id"], &chunks[0]["id"]]);
    // A stream is stored as the whole completion that it adds up to.
    assert_eq!(listed["data"][1]["choices"], first["choices"]);
    let one = server.get(&format!("{CHAT}?metadata[tag]=b")).ok();
    assert_eq!(one["data"], json!([listed["data"][1]]));
    let none = server.get(&format!("{CHAT}?model=another")).ok();
    assert_eq!(none["data"], json!([]));
    let page = server.get(&format!("{CHAT}?limit=1")).ok();
    assert_eq!(
        (&page["last_id"], &page["has_more"]),
        (&first["id"], &json!(true))
    );

    let path = format!("{CHAT}/{}", first["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path).ok()["metadata"]["tag"], "a");
    let changed = server.post(&path, &json!({"metadata": {"tag": "c"}})).ok();
    assert_eq!(
        (&changed["metadata"]["tag"], &changed["id"]),
        (&json!("c"), &first["id"])
    );
    let messages = server.get(&format!("{path}/messages")).ok();
    assert_eq!(messages["data"][0]["content"], "Hi");
    let deleted = server.send(&Request::get(&path).method("DELETE")).ok();
    assert_eq!(deleted["object"], "chat.completion.deleted");
    assert_eq!(server.get(&path).status(), 404);
    let wrong = server.get(&format!("{CHAT}?colour=red"));
    assert_eq!(
        (wrong.status(), &wrong.json()["error"]["param"]),
        (400, &json!("colour"))
    );
}
