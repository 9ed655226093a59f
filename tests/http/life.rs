//! Many clients, slow ones, those that leave, and the end of the server.

use std::io::Read as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::client::{Request, events};
use crate::support::{PATIENCE, Server, until};

fn streamed(text: &str) -> Request {
    let mut request = chat(text);
    request["stream"] = json!(true);
    Request::post(CHAT, &request)
}

const SLOW: &str = "default = \"abcdefghij\"\ntoken_delay_ms = 20\nrepeat = 1000";

#[test]
fn tokens_arrive_as_they_are_made() {
    // All of it would take longer than a client waits.
    let server = Server::scripted(SLOW, "");
    let mut stream = streamed("Hi").begin(server.address());
    assert_eq!(stream.head().status, 200);
    for _ in 0..10 {
        assert!(stream.chunk().is_some());
    }
}

#[test]
fn thirty_two_clients_get_their_own_answers() {
    let lines: Vec<String> = (0..32)
        .map(|client| format!("{{ when = \"client {client}!\", say = \"answer {client}\" }}"))
        .collect();
    let script = format!(
        "default = \"nobody\"\ntoken_delay_ms = 2\nlines = [{}]",
        lines.join(",")
    );
    let mut server = Server::scripted(&script, "");
    std::thread::scope(|scope| {
        for client in 0..32 {
            let server = &server;
            scope.spawn(move || {
                let events = server
                    .send(&streamed(&format!("I am client {client}!")))
                    .events();
                let text: String = events
                    .iter()
                    .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
                    .collect();
                assert_eq!(text, format!("answer {client}"));
            });
        }
    });
    server.assert_sound();
}

#[test]
fn a_client_that_leaves_ends_its_answer() {
    let server = Server::scripted(SLOW, "");
    for streams in [true, false] {
        let mut request = chat("Hi");
        request["stream"] = json!(streams);
        let mut stream = Request::post(CHAT, &request).begin(server.address());
        if streams {
            assert_eq!(stream.head().status, 200);
            stream.chunk();
        }
        let decoding = || server.metric("mortise_batch_size_decode{");
        until("the answer is being made", || decoding() >= 1.0);
        drop(stream);
        until("the answer ends", || decoding() == 0.0);
        let kind = format!("stream={streams}");
        server.wait_for_log(|line| line.contains("cancelled") && line.contains(&kind));
    }
    until("no stream is left", || {
        server.metric("mortise_active_streams") == 0.0
    });
}

#[test]
fn feature_t5_heartbeats_keep_silent_streams_alive() {
    let script = "default = \"ab\"\ntoken_delay_ms = 600000";
    let server = Server::scripted(script, "[server]\nheartbeat_ms = 50");
    let mut stream = streamed("Hi").begin(server.address());
    assert_eq!(stream.head().status, 200);
    let chunks = std::iter::from_fn(|| stream.chunk());
    let beats = chunks.filter(|chunk| chunk == b": keep-alive\n\n");
    assert_eq!(beats.take(3).count(), 3);
}

#[test]
fn peers_that_say_nothing_are_dropped() {
    let server = Server::scripted("default = \"x\"", "[server]\nheader_timeout_ms = 200");
    for opening in [
        &b""[..],
        b"P",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        std::io::Write::write_all(&mut stream, opening).expect("write");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("set a timeout");
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(
            ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset),
            "the connection stays open"
        );
    }
}

/// A stream that is being answered: its first chunks have come.
fn opened(server: &Server) -> crate::support::client::Stream {
    let mut stream = streamed("Hi").begin(server.address());
    assert_eq!(stream.head().status, 200);
    stream.chunk();
    stream.chunk();
    stream
}

fn rest(mut stream: crate::support::client::Stream) -> String {
    let text: Vec<u8> = std::iter::from_fn(|| stream.chunk()).flatten().collect();
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn open_streams_finish_after_sigterm() {
    // Long enough for all that is asked of the server meanwhile.
    let script = "default = \"abcdefghij\"\ntoken_delay_ms = 50\nrepeat = 10";
    let mut server = Server::scripted(script, "");
    let stream = opened(&server);
    server.signal("TERM");
    server.wait_for_log(|line| line.contains("stopping"));
    // Who asks is told; new work is refused.
    assert_eq!(server.get("/ready").status(), 503);
    assert_eq!(server.get("/health").status(), 200);
    let refused = server.post(CHAT, &chat("Hi"));
    assert_eq!(
        (refused.status(), refused.json()["error"]["code"].clone()),
        (503, json!("server_stopping"))
    );
    let events = events(&rest(stream));
    assert_eq!(events.last(), Some(&Value::from("[DONE]")));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_stream_is_ended_properly_when_the_time_to_drain_is_over() {
    let mut server = Server::scripted(SLOW, "[server]\ndrain_seconds = 1");
    let stream = opened(&server);
    server.signal("TERM");
    // Reading panics if the chunked body breaks off.
    let events = events(&rest(stream));
    let last = events.last().expect("a last event");
    assert_eq!(last["error"]["code"], "server_stopping", "{last}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut server = Server::scripted(SLOW, "");
    let whole = Request::post(CHAT, &chat("Hi")).begin(server.address());
    let stream = opened(&server);
    server.signal("INT");
    server.wait_for_log(|line| line.contains("stopping"));
    server.signal("INT");
    let events = events(&rest(stream));
    assert_eq!(
        events.last().expect("an event")["error"]["code"],
        "server_stopping"
    );
    let whole = whole.response();
    assert_eq!(
        (whole.status(), whole.json()["error"]["code"].clone()),
        (503, json!("server_stopping"))
    );
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn metrics_stay_few_whatever_is_asked_for() {
    let server = Server::scripted("default = \"x\"", "");
    // Reading the page is a request too, and begins its own series.
    server.get("/metrics");
    let ask = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            server.get(&format!("/v1/nothing/{number}"));
            let mut request = chat("Hi");
            request["model"] = json!(format!("model-{number}"));
            server.post(CHAT, &request).ok();
        }
        server.get("/metrics").text()
    };
    // What every request begins once, some of it after its answer, is there after the first ones.
    let before = ask(0..100).lines().count();
    let page = ask(100..200);
    assert!(page.lines().count() <= before + 10, "{page}");
    assert!(!page.contains("model-7"), "{page}");
    assert!(server.metric("mortise_tokens_output_total{") >= 200.0);
}

/// Without such a bucket Prometheus computes no quantile.
#[test]
fn every_histogram_ends_with_a_bucket_for_all() {
    let server = Server::scripted("default = \"x\"", "");
    server.post(CHAT, &chat("Hi")).ok();
    let page = server.get("/metrics").text();
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let histograms: Vec<&str> = kinds
        .filter_map(|line| line.strip_suffix(" histogram"))
        .collect();
    assert!(histograms.contains(&"mortise_plugin_call_duration_seconds"));
    for name in histograms {
        let series = |start: &str, part: &str| {
            let lines = page.lines();
            let own = lines.filter(|line| line.starts_with(start) && line.contains(part));
            own.count()
        };
        let all = series(&format!("{name}_bucket{{"), "le=\"+Inf\"");
        assert_eq!(all, series(&format!("{name}_count"), ""), "{name}: {page}");
    }
}
