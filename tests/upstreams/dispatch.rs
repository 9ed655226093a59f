//! Several upstreams of one model, and upstreams that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use serde_json::json;

use crate::support::upstream::FakeUpstream;
use crate::support::{Server, until};
use crate::{CHAT, chat, content, remote};

fn says(text: &'static str) -> FakeUpstream {
    FakeUpstream::start(move |mut asked| asked.say(text))
}

/// A base URL where nobody listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    format!("http://{}/v1", listener.local_addr().expect("an address"))
}

#[test]
fn feature_x6_unreachable_upstreams_are_502_and_then_left_alone() {
    let server = Server::configured(&remote(&[nobody()], ""));
    let ask = || {
        let answer = server.post(CHAT, &chat("remote", "Hi"));
        let code = answer.json()["error"]["code"]
            .as_str()
            .expect("a code")
            .to_owned();
        (
            answer.status(),
            code,
            answer.header("retry-after").is_some(),
        )
    };
    assert_eq!(ask(), (502, "upstream_error".to_owned(), false));
    // After some failures in a row it is not asked any more.
    until("a pause", || {
        ask() == (503, "model_unavailable".to_owned(), true)
    });
}

#[test]
fn feature_z10_remote_upstreams_that_recover_are_asked_again() {
    let well = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&well);
    let upstream = FakeUpstream::start(move |mut asked| match now.load(SeqCst) {
        true => asked.say("Hello"),
        false => asked.answer(500, "", "{}"),
    });
    let server = Server::configured(&remote(&[upstream.url()], ""));
    let status = || server.post(CHAT, &chat("remote", "Hi")).status();
    assert_eq!(status(), 502);
    until("a pause", || status() == 503);
    let open = || server.metric("mortise_engine_circuit_open{");
    assert_eq!(open(), 1.0);
    assert!(server.metric("mortise_engine_circuit_opened_total{") >= 1.0);
    well.store(true, SeqCst);
    until("an answer", || status() == 200);
    assert_eq!(open(), 0.0);
    assert_eq!(status(), 200);
}

#[test]
fn feature_z10_remote_requests_move_to_another_upstream_before_the_first_byte_only() {
    let other = says("from the other");
    let refuses = FakeUpstream::start(|mut asked| asked.answer(503, "retry-after: 60\r\n", "{}"));
    for first in [nobody(), refuses.url()] {
        let server = Server::configured(&remote(&[first, other.url()], ""));
        for _ in 0..8 {
            let answer = server.post(CHAT, &chat("remote", "Hi")).ok();
            assert_eq!(content(&answer), "from the other");
        }
    }
    // An answer that has begun, and a request that may be under way, are not asked for twice.
    for begun in [true, false] {
        let breaks = FakeUpstream::start(move |mut asked| {
            if begun {
                asked.begin();
                asked.delta(&json!({"content": "x"}));
            }
        });
        let before = other.received().len();
        let urls = [breaks.url(), other.url()];
        let server = Server::configured(&remote(&urls, "max_retries = 5"));
        let statuses = [(); 2].map(|()| server.post(CHAT, &chat("remote", "Hi")).status());
        assert!(statuses.contains(&502), "{statuses:?}");
        assert_eq!(breaks.received().len() + other.received().len() - before, 2);
    }
    // Nor is anything asked twice where the operator says so.
    let server = Server::configured(&remote(&[nobody(), other.url()], "max_retries = 0"));
    let statuses = [(); 2].map(|()| server.post(CHAT, &chat("remote", "Hi")).status());
    assert!(statuses.contains(&502), "{statuses:?}");
}

#[test]
fn feature_z10_remote_those_on_standby_serve_while_no_other_can() {
    let well = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&well);
    let first = FakeUpstream::start(move |mut asked| match now.load(SeqCst) {
        true => asked.say("from the first"),
        false => asked.answer(503, "", "{}"),
    });
    let spare = says("from the spare");
    let standby = format!("standby = [{:?}]", spare.url());
    let server = Server::configured(&remote(&[first.url()], &standby));
    let ask = || content(&server.post(CHAT, &chat("remote", "Hi")).ok()).to_owned();
    let on_standby = || server.metric("mortise_upstream_on_standby{");
    let engine = || server.get("/ready").json()["checks"]["engine"].clone();
    for _ in 0..4 {
        assert_eq!(ask(), "from the first");
    }
    assert!(spare.received().is_empty());
    // Every request is answered, those that find out that the first fails as well.
    well.store(false, SeqCst);
    until("requests that go to the spare at once", || {
        assert_eq!(ask(), "from the spare");
        on_standby() == 1.0
    });
    server.wait_for_log(|line| line.contains("no upstream but those on standby"));
    assert_eq!(engine(), "degraded");
    assert_eq!(
        server.get("/ready").json()["engine"]["models_on_standby"],
        1
    );
    assert_eq!(server.metric("mortise_engine_circuit_open{"), 0.0);
    let asked = server.metric("mortise_upstream_standby_requests_total{");
    assert_eq!(asked, spare.received().len() as f64);
    // The first is probed, and takes over when it is back.
    well.store(true, SeqCst);
    until("the first is back", || ask() == "from the first");
    let before = spare.received().len();
    for _ in 0..4 {
        assert_eq!(ask(), "from the first");
    }
    assert_eq!(spare.received().len(), before);
    assert_eq!(on_standby(), 0.0);
    assert_eq!(engine(), "ok");
    server.wait_for_log(|line| line.contains("upstreams on standby are no longer asked"));
}

#[test]
fn feature_z10_remote_those_on_standby_serve_while_others_are_not_well() {
    let (first, spare) = (says("from the first"), says("from the spare"));
    let more = format!(
        "standby = [{:?}]\nhealth_path = \"/health\"\nhealth_interval_ms = 50",
        spare.url()
    );
    let config = remote(&[first.url()], &more).replace("health_check = \"config-only\"\n", "");
    let server = Server::configured(&config);
    let ask = || content(&server.post(CHAT, &chat("remote", "Hi")).ok()).to_owned();
    assert_eq!(ask(), "from the first");
    first.set_health(500);
    server.wait_for_log(|line| line.contains("an upstream is not well"));
    for _ in 0..4 {
        assert_eq!(ask(), "from the spare");
    }
    first.set_health(200);
    server.wait_for_log(|line| line.contains("an upstream is well again"));
    assert_eq!(ask(), "from the first");
}

#[test]
fn remote_one_upstream_is_asked_again_if_configured() {
    let asked_so_far = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked_so_far);
    let upstream = FakeUpstream::start(move |mut asked| match count.fetch_add(1, SeqCst) {
        0 => asked.answer(429, "retry-after: 1\r\n", "{}"),
        _ => asked.say("Hello"),
    });
    let server = Server::configured(&remote(&[upstream.url()], "max_retries = 1"));
    assert_eq!(
        content(&server.post(CHAT, &chat("remote", "Hi")).ok()),
        "Hello"
    );
    assert_eq!(asked_so_far.load(SeqCst), 2);
}

#[test]
fn remote_conversations_with_one_beginning_meet_one_upstream() {
    let upstreams = [(); 4].map(|()| says("Hello"));
    let urls: Vec<String> = upstreams.iter().map(FakeUpstream::url).collect();
    let table = remote(&urls, "dispatch = \"prefix-affine\"");
    // Two servers agree without knowing of each other.
    let servers = [(); 2].map(|()| Server::configured(&table));
    let turn = |text: &str, answer: Option<&str>| {
        let mut body = chat("remote", text);
        if let (Some(answer), Some(messages)) = (answer, body["messages"].as_array_mut()) {
            messages.push(json!({"role": "assistant", "content": answer}));
            messages.push(json!({"role": "user", "content": "Go on"}));
        }
        body
    };
    let counts = || {
        upstreams
            .each_ref()
            .map(|upstream| upstream.received().len())
    };
    let mut used = std::collections::BTreeSet::new();
    for number in 0..12 {
        let before = counts();
        let text = format!("Conversation {number}");
        for server in &servers {
            server.post(CHAT, &turn(&text, None)).ok();
            server.post(CHAT, &turn(&text, Some("Hello"))).ok();
        }
        let after = counts();
        let grown: Vec<usize> = (0..4).filter(|&at| after[at] > before[at]).collect();
        assert_eq!(grown.len(), 1, "{before:?} {after:?}");
        used.extend(grown);
    }
    assert!(used.len() > 1, "they are spread");
}

#[test]
fn remote_health_checks_steer_around_the_ill() {
    // It answers chats and fails its health check.
    let ill = says("from the ill");
    let well = says("from the well");
    let urls = [ill.url(), well.url()];
    let config = remote(&urls, "health_path = \"/health\"\nhealth_interval_ms = 50")
        .replace("health_check = \"config-only\"\n", "");
    let server = Server::configured(&config);
    // Both answer any GET with 200: both take turns.
    let ask = || content(&server.post(CHAT, &chat("remote", "Hi")).ok()).to_owned();
    let answers: std::collections::BTreeSet<String> = (0..8).map(|_| ask()).collect();
    assert_eq!(answers.len(), 2);
    ill.set_health(500);
    server.wait_for_log(|line| line.contains("an upstream is not well"));
    for _ in 0..8 {
        assert_eq!(ask(), "from the well");
    }
    ill.set_health(200);
    server.wait_for_log(|line| line.contains("an upstream is well again"));
    let answers: std::collections::BTreeSet<String> = (0..8).map(|_| ask()).collect();
    assert_eq!(answers.len(), 2);
}
