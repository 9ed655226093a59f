//! Servers that share their counters through one Valkey server.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::valkey::Valkey;
use crate::support::{Server, until};

const CHAT: &str = "/v1/chat/completions";

fn host_with(valkey: &str, more: &str, delay_ms: u32) -> Server {
    let script =
        format!("default = \"One two three four five six.\"\ntoken_delay_ms = {delay_ms}\n");
    Server::scripted(&script, &format!("[valkey]\nurl = {valkey:?}\n{more}"))
}

fn host(valkey: &Valkey, more: &str) -> Server {
    host_with(&valkey.url(), more, 0)
}

fn key(terms: &str) -> String {
    // A machine that is busy with other tests must not lose the server by a slow answer.
    format!(
        "timeout_ms = 20000\nlease_seconds = 3\n[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\n{terms}\n"
    )
}

fn ask(stream: bool) -> Request {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body =
        json!({"model": "scripted", "stream": stream, "max_tokens": 4, "messages": messages});
    Request::post(CHAT, &body).header("authorization", "Bearer sk-a")
}

/// The check of the shared counters on the page of a server.
fn check(server: &Server) -> Value {
    let ready = server.get("/ready").json();
    ready["checks"]["counters"].clone()
}

#[test]
fn feature_z8_three_hosts_let_through_what_one_would_under_64_clients() {
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let hosts = [(); 3].map(|()| host(&valkey, &key("requests_per_day = 70")));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..64)
            .map(|client: usize| {
                let server = &hosts[client % 3];
                scope.spawn(move || [(); 2].map(|()| server.send(&ask(false)).status()))
            })
            .collect();
        let answers = clients
            .into_iter()
            .map(|client| client.join().expect("a client"));
        answers.flatten().collect()
    });
    let count = |status: u16| statuses.iter().filter(|other| **other == status).count();
    assert_eq!((count(200), count(429)), (70, 58), "{statuses:?}");
    let refused = hosts[2].send(&ask(false));
    assert_eq!(
        refused.header("x-ratelimit-remaining-requests-day"),
        Some("0")
    );
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn feature_z8_tokens_of_one_host_count_on_another() {
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let hosts = [(); 2].map(|()| host(&valkey, &key("tokens_per_day = 1000")));
    let left = |server: &Server| -> u64 {
        let list = Request::get("/v1/models").header("authorization", "Bearer sk-a");
        let answer = server.send(&list);
        let left = answer
            .header("x-ratelimit-remaining-tokens-day")
            .expect("a header");
        left.parse().expect("a number")
    };
    let before = left(&hosts[1]);
    let answer = hosts[0].send(&ask(false)).ok();
    let used = answer["usage"]["total_tokens"].as_u64().expect("a number");
    // What was reserved beyond it is given back when the answer has ended.
    until("the answer is settled", || {
        let spent = before.saturating_sub(left(&hosts[1]));
        spent + 1 >= used && spent <= used
    });
}

#[test]
fn feature_z8_streams_of_a_host_that_was_killed_no_longer_count() {
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let terms = key("max_concurrent = 2");
    let mut killed = host_with(&valkey.url(), &terms, 1_000);
    let other = host_with(&valkey.url(), &terms, 1_000);
    let begin = |server: &Server| {
        let mut stream = ask(true).begin(server.address());
        (stream.head().status, stream)
    };
    let streams = [begin(&killed), begin(&killed)];
    assert!(streams.iter().all(|(status, _)| *status == 200));
    assert_eq!(begin(&other).0, 429, "both hosts count together");
    killed.signal("KILL");
    killed.wait();
    until("the lease of the killed host has ended", || {
        begin(&other).0 == 200
    });
}

#[test]
fn feature_z8_a_lost_server_fails_closed_and_says_so() {
    let Some(mut valkey) = Valkey::start() else {
        return;
    };
    let server = host(&valkey, &key("requests_per_minute = 1000"));
    assert_eq!(server.send(&ask(false)).status(), 200);
    assert_eq!(check(&server), "ok");
    valkey.kill();
    let refused = server.send(&ask(false));
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "counters_unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(check(&server), "failed");
    server.wait_for_log(|line| line.contains("Valkey is lost; requests with limits are refused"));
    assert!(server.metric("mortise_shared_counters_lost_total") >= 1.0);
    assert!(server.metric("mortise_shared_counters_decisions_without_total") >= 1.0);
    valkey.restart();
    until("the server is found again", || {
        server.send(&ask(false)).status() == 200
    });
    assert!(server.metric("mortise_shared_counters_up") > 0.5);
}

#[test]
fn feature_z8_a_lost_server_leaves_the_limits_to_each_host() {
    let Some(mut valkey) = Valkey::start() else {
        return;
    };
    let local = format!("when_lost = \"local\"\n{}", key("requests_per_day = 6"));
    let hosts = [(); 2].map(|()| host(&valkey, &local));
    for server in &hosts {
        assert_eq!(server.send(&ask(false)).status(), 200);
    }
    valkey.kill();
    // The first heard of one request and the second of two: each goes on from there.
    for (server, more) in hosts.iter().zip([5, 4]) {
        let statuses: Vec<u16> = (0..8).map(|_| server.send(&ask(false)).status()).collect();
        let served = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(served, more, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 429].contains(status)));
        assert_eq!(check(server), "degraded");
    }
    valkey.restart();
    for server in &hosts {
        until("the server is found again", || check(server) == "ok");
    }
    for server in &hosts {
        assert_eq!(
            server.send(&ask(false)).status(),
            429,
            "what was drawn meanwhile counts"
        );
    }
}

#[test]
fn feature_z8_a_server_that_was_never_there_keeps_nobody_from_starting() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("none");
    let server = host_with(
        &format!("unix://{}", socket.display()),
        &key("requests_per_day = 9"),
        0,
    );
    assert_eq!(server.send(&ask(false)).status(), 503);
    // What has no limits needs no counters.
    assert_eq!(server.get("/health").status(), 200);
    server.wait_for_log(|line| line.contains("Valkey is lost"));
}

#[test]
fn feature_z8_tls_and_passwords_guard_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let port = crate::hosts::free_port();
    write_certificates(path);
    let file = |name: &str| path.join(name).display().to_string();
    let arguments = [
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file("cert.pem"),
        "--tls-key-file",
        &file("key.pem"),
        "--tls-auth-clients",
        "no",
        "--requirepass",
        "sesame",
    ];
    let Some(_valkey) = Valkey::start_with(&arguments) else {
        return;
    };
    let configuration = |authority: &str| {
        let ca = file(authority);
        let model = crate::support::model::byte_level();
        format!(
            "[valkey]\nurl = \"rediss://localhost:{port}\"\npassword_env = \"VALKEY_PASSWORD\"\nca_file = {ca:?}\n{}\n\
             [[models]]\nname = \"scripted\"\npath = {model:?}\nbackend = \"scripted\"\n[models.script]\n\
             default = \"One.\"\n",
            key("requests_per_day = 9")
        )
    };
    for (authority, password, status) in [
        ("cert.pem", "sesame", 200),
        ("cert.pem", "wrong", 503),
        ("other.pem", "sesame", 503),
    ] {
        let variables = [("VALKEY_PASSWORD", Path::new(password))];
        let server = Server::configured_with(&configuration(authority), &variables);
        let answer = server.send(&ask(false));
        assert_eq!(
            answer.status(),
            status,
            "{authority} {password}: {}",
            answer.text()
        );
        assert!(!server.log().iter().any(|line| line.contains("sesame")));
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A certificate of this machine with its key, and one of another authority.
fn write_certificates(folder: &Path) {
    for name in ["cert", "other"] {
        let names = vec!["localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).expect("write it");
        if name == "cert" {
            let key = made.signing_key.serialize_pem();
            std::fs::write(folder.join("key.pem"), key).expect("write it");
        }
    }
}
