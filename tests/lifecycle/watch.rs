//! Requests that are being answered, the stream of events, and the page, on the admin side.

use serde_json::{Value, json};

use crate::support::client::{Request, Stream};
use crate::support::{until, wait_for};
use crate::{KEY, Managed, code, scripted};

/// A model that answers for as long as somebody reads.
const ENDLESS: &str = "default = \"And so on. \"\nrepeat = 100000\ntoken_delay_ms = 10";

fn asked(stream: bool) -> Request {
    let body = json!({
        "model": "slow",
        "stream": stream,
        "max_tokens": 30_000,
        "messages": [{"role": "user", "content": "Go on"}],
    });
    Request::post("/v1/chat/completions", &body)
}

fn slow() -> Managed {
    Managed::start(&scripted("slow", ENDLESS, ""))
}

/// The requests that are being answered, once there are so many.
fn listed(managed: &Managed, count: u64) -> Value {
    wait_for(|| {
        let rows = managed.ask(Request::get("/v1/admin/requests")).ok();
        match rows["total"] == count {
            true => Ok(rows),
            false => Err(format!("{count} requests; there are {rows}")),
        }
    })
}

fn cancel(managed: &Managed, id: &str) -> (u16, Value) {
    let path = format!("/v1/admin/requests/{id}/cancel");
    let response = managed.ask(Request::raw(&path, b""));
    (response.status(), response.json())
}

#[test]
fn feature_z13_a_request_is_listed_and_cancelled() {
    let managed = slow();
    let mut stream = asked(true).begin(managed.server.address());
    assert_eq!(stream.head().status, 200);
    let mut text = String::new();
    while text.matches("\"content\":").count() < 4 {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().expect("an event")));
    }
    let rows = listed(&managed, 1);
    let row = &rows["data"][0];
    assert_eq!(
        (&row["model"], &row["state"]),
        (&json!("slow"), &json!("running"))
    );
    assert!(row["completion_tokens"].as_u64() >= Some(3), "{row}");
    assert!(row["prompt_tokens"].as_u64() > Some(0), "{row}");
    let id = row["id"].as_str().expect("an id");
    let (status, body) = cancel(&managed, id);
    assert_eq!((status, &body["cancelled"]), (200, &json!(true)));
    let mut rest = String::new();
    while let Some(chunk) = stream.chunk() {
        rest.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(rest.contains("\"code\":\"request_cancelled\""), "{rest}");
    listed(&managed, 0);
    let (status, body) = cancel(&managed, id);
    assert_eq!(
        (status, &body["error"]["code"]),
        (404, &json!("unknown_request"))
    );
}

#[test]
fn feature_z13_an_answer_that_is_not_streamed_is_cancelled_with_an_error() {
    let managed = slow();
    let refused = std::thread::scope(|scope| {
        let asking = scope.spawn(|| asked(false).send(managed.server.address()));
        let rows = listed(&managed, 1);
        let id = rows["data"][0]["id"].as_str().expect("an id");
        assert_eq!(cancel(&managed, id).0, 200);
        asking.join().expect("an answer")
    });
    assert_eq!(code(&refused), (403, "request_cancelled".to_owned()));
}

fn follow(managed: &Managed, query: &str) -> Stream {
    let path = format!("/v1/admin/events{query}");
    let key = format!("Bearer {KEY}");
    Request::get(&path)
        .header("authorization", &key)
        .begin(&managed.admin)
}

#[test]
fn feature_z13_events_tell_of_what_a_reader_asks_for() {
    let folder = tempfile::tempdir().expect("make a folder");
    let log = folder.path().join("audit.jsonl");
    let audit = format!("[audit]\nfile = {log:?}\n");
    let managed = Managed::start(&(audit + &scripted("slow", ENDLESS, "")));
    let mut events = follow(&managed, "?topics=numbers,requests,plugins,audit");
    assert_eq!(events.head().status, 200);
    let mut answer = asked(true).begin(managed.server.address());
    assert_eq!(answer.head().status, 200);
    answer.chunk().expect("an event");
    managed.act("absent", "load", "");
    let mut text = String::new();
    let wanted = [
        "event: numbers\ndata: {",
        "\"generated_tokens\":",
        "\"tenants\":[{\"",
        "event: requests\ndata: {",
        "\"state\":\"running\"",
        "event: plugins\ndata: {",
        "\"generation\":1",
        "event: audit.entry\ndata: {",
        "\"path\":\"/v1/admin/models/absent/load\"",
    ];
    while !wanted.iter().all(|wanted| text.contains(wanted)) {
        let chunk = events.chunk().expect("the stream goes on");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(!text.contains("event: model.state"), "{text}");
    let entries = managed.ask(Request::get("/v1/admin/audit")).ok();
    let newest = &entries["data"][0];
    assert_eq!(newest["path"], "/v1/admin/models/absent/load");
    let refused = managed.ask(Request::get("/v1/admin/events?topics=everything"));
    assert_eq!(code(&refused), (400, "invalid_topics".to_owned()));
}

#[test]
fn feature_z13_readers_of_events_are_bounded() {
    let managed = Managed::start(&scripted("one", "default = \"1\"", ""));
    let mut readers: Vec<Stream> = (0..32)
        .map(|_| follow(&managed, "?topics=numbers"))
        .collect();
    for reader in &mut readers {
        assert_eq!(reader.head().status, 200);
    }
    let refused = follow(&managed, "").response();
    assert_eq!(code(&refused), (503, "too_many_event_streams".to_owned()));
    readers.pop();
    until("a place for a reader", || {
        follow(&managed, "").head().status == 200
    });
}

#[test]
fn feature_z13_the_page_needs_no_key_and_can_be_left_out() {
    let one = scripted("one", "default = \"1\"", "");
    let managed = Managed::start(&one);
    let page = Request::get("/").send(&managed.admin);
    assert_eq!(page.status(), 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    let text = page.text();
    let files = text.split("\"page/").skip(1);
    let files: Vec<&str> = files.filter_map(|rest| rest.split('"').next()).collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let response = Request::get(&format!("/page/{file}")).send(&managed.admin);
        assert_eq!(response.status(), 200, "{file}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(
        Request::get("/page/x.js").send(&managed.admin).status(),
        404
    );
    assert_eq!(
        Request::get("/v1/admin/models")
            .send(&managed.admin)
            .status(),
        401
    );
    let without = Managed::start_with("page = false\n", &one);
    for path in ["/", "/page/main.js"] {
        assert_eq!(without.ask(Request::get(path)).status(), 404, "{path}");
    }
}

/// Read events until all of these texts have come.
fn wait_for_texts(events: &mut Stream, seen: &mut String, wanted: &[&str]) {
    while !wanted.iter().all(|wanted| seen.contains(wanted)) {
        let chunk = events.chunk().expect("the stream goes on");
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
}

#[test]
fn feature_z13_events_tell_of_aliases_and_keys() {
    let managed = Managed::start(&scripted("one", "default = \"1\"", ""));
    let mut events = follow(&managed, "?topics=aliases,keys");
    assert_eq!(events.head().status, 200);
    let mut text = String::new();
    // The present state first.
    let empty = [
        "event: aliases\ndata: {",
        "event: keys\ndata: {",
        "\"data\":[]",
    ];
    wait_for_texts(&mut events, &mut text, &empty);
    let alias = Request::post("/v1/admin/aliases/prod", &json!({"target": "one"}));
    assert_eq!(managed.ask(alias.method("PUT")).status(), 201);
    wait_for_texts(&mut events, &mut text, &["\"name\":\"prod\""]);
    let key = Request::post("/v1/admin/keys", &json!({"id": "ann"}));
    let secret = managed.ask(key).json()["key"].clone();
    let secret = secret.as_str().expect("a secret");
    let made = ["\"id\":\"ann\"", "\"state\":\"active\""];
    wait_for_texts(&mut events, &mut text, &made);
    managed
        .ask(Request::raw("/v1/admin/keys/ann/revoke", b""))
        .ok();
    wait_for_texts(&mut events, &mut text, &["\"state\":\"revoked\""]);
    let gone = Request::get("/v1/admin/aliases/prod").method("DELETE");
    managed.ask(gone).ok();
    assert!(!text.contains(secret) && !text.contains("sha256"), "{text}");
    text.clear();
    let empty = ["event: aliases\ndata: {", "\"data\":[]"];
    wait_for_texts(&mut events, &mut text, &empty);
}
