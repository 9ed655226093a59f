//! Keys and headers: which go to an upstream, and which come back.

use serde_json::json;

use crate::support::Server;
use crate::support::client::Request;
use crate::support::upstream::FakeUpstream;
use crate::{CHAT, chat, in_front_of, remote};

const OURS: &str = "upstreams-own-s3cret";

/// Configuration with the upstream's key in a file.
fn with_key(upstream: &FakeUpstream, folder: &tempfile::TempDir, more: &str) -> Server {
    let path = folder.path().join("key");
    std::fs::write(&path, format!("{OURS}\n")).expect("write the key");
    in_front_of(upstream, &format!("api_key_file = {path:?}\n{more}"))
}

#[test]
fn feature_t10_headers_of_callers_stay_here() {
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello"));
    let folder = tempfile::tempdir().expect("a folder");
    let server = with_key(&upstream, &folder, "");
    let request = Request::post(CHAT, &chat("remote", "Hi"))
        .header("authorization", "Bearer callers-own")
        .header("cookie", "session=callers-own")
        .header("x-forwarded-for", "10.9.8.7")
        .header("openai-organization", "callers-own")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        );
    let answer = server.send(&request);
    answer.ok();
    let received = upstream.received().pop().expect("a request");
    assert_eq!(received.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(
        received.header("authorization"),
        Some(&*format!("Bearer {OURS}"))
    );
    assert_eq!(received.header("host"), Some(upstream.address()));
    assert_eq!(received.header("content-type"), Some("application/json"));
    let length = received.body.len().to_string();
    assert_eq!(received.header("content-length"), Some(&*length));
    let id = received.header("x-request-id").expect("an id");
    assert_eq!(answer.header("x-request-id"), Some(id));
    let known = [
        "authorization",
        "host",
        "content-type",
        "content-length",
        "x-request-id",
        "accept",
        "user-agent",
        "traceparent",
    ];
    // Of the caller's trace, the upstream has its id and no more.
    let trace = received.header("traceparent").expect("a trace context");
    assert!(
        trace.starts_with("00-0af7651916cd43dd8448eb211c80319c-"),
        "{trace}"
    );
    for (name, value) in &received.headers {
        assert!(known.contains(&name.as_str()), "{name}: {value}");
        assert!(!value.contains("callers-own"), "{name}: {value}");
    }
    let body = String::from_utf8(received.body).expect("UTF-8");
    assert!(!body.contains("callers-own"), "{body}");
}

#[test]
fn remote_keys_come_from_files_and_variables_and_show_nowhere() {
    // An upstream that quotes the key, as some do.
    let upstream = FakeUpstream::start(|mut asked| {
        let key = asked
            .request
            .header("authorization")
            .unwrap_or("none")
            .to_owned();
        let status = match asked.request.json()["messages"][0]["content"].as_str() {
            Some("refuse") => 400,
            Some("forbid") => 401,
            _ => 500,
        };
        let error = json!({"error": {"message": format!("no, {key}"), "type": "x"}});
        asked.answer(status, "", &error.to_string());
    });
    let folder = tempfile::tempdir().expect("a folder");
    let server = with_key(&upstream, &folder, "");
    for (text, status) in [("refuse", 400), ("forbid", 502), ("fail", 502)] {
        let answer = server.post(CHAT, &chat("remote", text));
        assert_eq!(answer.status(), status, "{}", answer.text());
        assert!(!answer.text().contains("s3cret"), "{}", answer.text());
    }
    let log = server.wait_for_log(|line| line.contains("HTTP 500"));
    assert!(log.contains("no, Bearer ***"), "{log}");
    let log = server.log().join("\n");
    assert!(!log.contains("s3cret"), "{log}");
    // Cargo sets this variable for tests, so that there is one with a known value.
    let table = remote(&[upstream.url()], "api_key_env = \"CARGO_PKG_NAME\"");
    let by_variable = Server::configured(&table);
    by_variable.post(CHAT, &chat("remote", "fail"));
    let received = upstream.received().pop().expect("a request");
    assert_eq!(received.header("authorization"), Some("Bearer mortise"));
}

#[test]
fn remote_callers_keys_are_not_blamed_for_this_servers() {
    let upstream = FakeUpstream::start(|mut asked| asked.answer(401, "", "{}"));
    let auth = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\n";
    let server = Server::configured(&(auth.to_owned() + &remote(&[upstream.url()], "")));
    let request = Request::post(CHAT, &chat("remote", "Hi"));
    let answer = server.send(&request.header("authorization", "Bearer alices-key"));
    assert_eq!(answer.status(), 502);
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("your key is not at fault"), "{message}");
}
