//! Connections that say nothing, or not all: they hold places only while nobody else wants them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::frames::{
    self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame,
};
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

/// A peer of HTTP/2 that asks for a large page and has room for none of it, with more headers. Its answer has begun.
fn reader_without_room(
    server: &Server,
    path: &str,
    body: &str,
    more: &[(&str, &str)],
) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    let mut headers = frames::request(if body.is_empty() { "GET" } else { "POST" }, path);
    headers.extend(more);
    let end = if body.is_empty() { END_STREAM } else { 0 };
    let mut sent = [
        frames::PREFACE,
        // SETTINGS_INITIAL_WINDOW_SIZE of 0.
        &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
        &frame(HEADERS, END_HEADERS | end, 1, &block(&headers)),
    ]
    .concat();
    if !body.is_empty() {
        sent.extend(frame(DATA, END_STREAM, 1, body.as_bytes()));
    }
    stream.write_all(&sent).expect("write");
    while frames::next(&mut stream).expect("a frame").kind != HEADERS {}
    stream
}

const PAGE: &str = "/openapi.json";

#[test]
fn peers_that_do_not_read_pages_shut_nobody_out() {
    let config = format!("{FEW}write_timeout_ms = 600000\n");
    let mut server = Server::scripted("default = \"x\"", &config);
    let mut readers = Vec::new();
    for round in 0..4 {
        // 14 are the share of the address.
        readers.extend((0..14).map(|_| reader_without_room(&server, PAGE, "", &[])));
        let found = server.get("/v1/models");
        assert_eq!(found.status(), 200, "round {round}: {}", found.text());
        server.post(CHAT, &chat("Hi")).ok();
    }
    // Over HTTP/1.1, pages are asked for one after the other.
    let asked = format!("GET {PAGE} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(100);
    let mut piped: Vec<_> = (0..14).map(|_| open(&server, &asked)).collect();
    for stream in &mut piped {
        let _ = stream.read_exact(&mut [0]);
    }
    assert_eq!(server.get("/v1/models").status(), 200);
    server.post(CHAT, &chat("Hi")).ok();
    assert!(server.metric("mortise_connections_evicted_total") >= 40.0);
    drop((readers, piped));
    server.assert_sound();
}

#[test]
fn pages_are_read_in_time_however_often_a_byte_is_taken() {
    let keys = "[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\n";
    let config = format!("{keys}[server]\nwrite_timeout_ms = 400\n");
    let mut server = Server::scripted("default = \"abcdefghij\"", &config);
    let body = chat("Hi").to_string();
    let key = [
        ("authorization", "Bearer sk-a"),
        ("content-type", "application/json"),
    ];
    // Of a small answer, the first byte takes all from the server's hands.
    for (path, takes) in [(PAGE, true), (PAGE, false), ("/v1/models", false)] {
        let mut known = reader_without_room(&server, CHAT, &body, &key);
        let mut slow = reader_without_room(&server, path, "", &[]);
        let mut drips = slow.try_clone().expect("a handle");
        let dripping = thread::spawn(move || {
            let more = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
            while takes && drips.write_all(&more).is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let is_reset = |frame: &frames::Frame| (frame.kind, frame.stream) == (RST_STREAM, 1);
        // The stream ends, or the connection, which has no other.
        loop {
            match frames::next(&mut slow) {
                Ok(frame) if is_reset(&frame) => break,
                Ok(_) => {}
                Err(error) => {
                    let waits = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    assert!(!waits, "nothing ends {path}: {error}");
                    break;
                }
            }
        }
        drop(slow.shutdown(Shutdown::Both));
        dripping.join().expect("the drips end");
        // Who is known has the time between two pieces of an answer, not that of the whole: no piece was taken.
        while !is_reset(&frames::next(&mut known).expect("a frame")) {}
    }
    server.assert_sound();
}
