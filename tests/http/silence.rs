//! Connections that say nothing, or not all: they hold places only while nobody else wants them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{PATIENCE, Server, until};

const FEW: &str =
    "[server]\nmax_connections = 16\nheader_timeout_ms = 600000\nbody_timeout_ms = 600000\n";

fn open(server: &Server, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    let _ = stream.write_all(sent.as_bytes());
    stream
}

#[test]
fn silent_connections_shut_nobody_out() {
    for silence in [
        "",
        "G",
        "GET /health HTTP/1.1\r\nhost: localhost\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut server = Server::scripted("default = \"x\"", FEW);
        let mut silent = Vec::new();
        for _ in 0..10 {
            silent.extend((0..10).map(|_| open(&server, silence)));
            assert_eq!(server.get("/health").status(), 200);
            server.post(CHAT, &chat("Hi")).ok();
        }
        assert!(
            server.metric("mortise_connections_evicted_total") >= 80.0,
            "{silence:?}"
        );
        assert!(server.metric("mortise_connections ") <= 32.0);
        server.wait_for_log(|line| line.contains("make room"));
        let told = server
            .log()
            .iter()
            .filter(|line| line.contains("make room"))
            .count();
        assert!(told <= 3, "{told} lines");
        // The first ones were ended.
        let mut rest = Vec::new();
        let ended = silent[0].read_to_end(&mut rest);
        assert!(
            ended.is_ok()
                || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
        );
        server.assert_sound();
    }
}

#[test]
fn a_flood_of_silence_ends_no_answer() {
    let script = "default = \"abcdefghij\"\ntoken_delay_ms = 10\nrepeat = 20";
    let server = Server::scripted(script, FEW);
    let mut request = chat("Hi");
    request["stream"] = json!(true);
    let streams: Vec<_> = (0..8)
        .map(|_| Request::post(CHAT, &request).begin(server.address()))
        .collect();
    until("all streams run", || {
        server.metric("mortise_active_streams") >= 8.0
    });
    let silent: Vec<_> = (0..200).map(|_| open(&server, "")).collect();
    for stream in streams {
        let events = stream.response().events();
        let text: String = events
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!(text, "abcdefghij".repeat(20));
    }
    drop(silent);
}

#[test]
fn health_is_answered_while_every_place_is_at_work() {
    let script = "default = \"abcdefghij\"\ntoken_delay_ms = 20\nrepeat = 100000";
    let config = "[server]\nmax_connections = 4\nmax_connections_per_address = 4\n";
    let server = Server::scripted(script, config);
    let mut request = chat("Hi");
    request["stream"] = json!(true);
    let mut streams: Vec<_> = (0..4)
        .map(|_| Request::post(CHAT, &request).begin(server.address()))
        .collect();
    for stream in &mut streams {
        assert_eq!(stream.head().status, 200);
    }
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(server.get(path).status(), 200, "{path}");
    }
    for request in [Request::post(CHAT, &request), Request::get("/v1/models")] {
        let refused = server.send(&request);
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.json()["error"]["code"], "connections_full");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    // Places are given back.
    drop(streams);
    until("a place is free", || {
        server.get("/v1/models").status() == 200
    });
}
