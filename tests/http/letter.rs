//! HTTP/1.1 by the letter: what two readers could take differently is refused, and every refusal arrives.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::frames::{self, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, block, frame};
use crate::support::{PATIENCE, Server};

/// Send bytes as they are, and read all that comes back until the server closes.
fn exchange(server: &Server, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    // The server may have answered and closed before all is written.
    let _ = stream.write_all(sent);
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("an answer and the end");
    String::from_utf8(answer).expect("UTF-8")
}

/// Statuses and codes of the answers in what came back.
fn answers(text: &str) -> Vec<(u16, Option<String>)> {
    let mut rest = text;
    let mut found = Vec::new();
    while let Some((head, after)) = rest.split_once("\r\n\r\n") {
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|head| head.get(..3)?.parse().ok())
            .unwrap_or_else(|| panic!("no answer begins with {head:?}"));
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().expect("a number");
        let body: Value = serde_json::from_str(&after[..length]).expect("JSON");
        found.push((status, body["error"]["code"].as_str().map(str::to_owned)));
        rest = &after[length..];
    }
    assert_eq!(rest, "");
    found
}

fn malformed() -> (u16, Option<String>) {
    (400, Some("malformed_request".to_owned()))
}

#[test]
fn ambiguous_heads_are_refused() {
    let mut server = Server::scripted("default = \"x\"", "");
    let body = chat("Hi").to_string();
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let own = format!("content-length: {length}\r\n");
    let te = "transfer-encoding: chunked\r\n";
    let host = "host: localhost\r\n";
    let cases = [
        // Both ways to say how long the body is.
        (format!("{host}{own}{te}"), &chunked),
        (format!("{host}{te}{own}"), &chunked),
        (format!("{host}{te}content-length: 0\r\n"), &chunked),
        // Lengths that are there twice.
        (format!("{host}{own}{own}"), &body),
        (format!("{host}{own}content-length: 1\r\n"), &body),
        (
            format!("{host}content-length: {length}, {length}\r\n"),
            &body,
        ),
        (format!("{host}content-length: +{length}\r\n"), &body),
        // Codings that are not chunked alone.
        (format!("{host}transfer-encoding: x, chunked\r\n"), &chunked),
        (
            format!("{host}transfer-encoding: chunked, chunked\r\n"),
            &chunked,
        ),
        (
            format!("{host}transfer-encoding: chunked\r\ntransfer-encoding: x\r\n"),
            &chunked,
        ),
        (format!("{host}transfer-encoding: gzip\r\n"), &chunked),
        // Names of the server.
        (own.clone(), &body),
        (format!("{host}{host}{own}"), &body),
        (format!("{host}host: other\r\n{own}"), &body),
        // Callers.
        (
            format!("{host}{own}authorization: Bearer a\r\nauthorization: Bearer b\r\n"),
            &body,
        ),
        (
            format!("{host}{own}authorization: Bearer a\r\nauthorization: Bearer a\r\n"),
            &body,
        ),
        (
            format!("{host}{own}x-api-key: a\r\nx-api-key: b\r\n"),
            &body,
        ),
        // Lines.
        (format!("{host}{own}x-a: b\n"), &body),
        (format!("{host}{own}x-a: b\rx-c: d\r\n"), &body),
        (format!("{host}{own}x-a : b\r\n"), &body),
        (format!("{host}{own}x-a: b\r\n folded\r\n"), &body),
        (format!("{host}{own}x-a: b\0c\r\n"), &body),
    ];
    for (headers, body) in cases {
        let behind = "GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let sent = format!(
            "POST {CHAT} HTTP/1.1\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}\r\n{body}{behind}"
        );
        let found = answers(&exchange(&server, sent.as_bytes()));
        assert_eq!(found, [malformed()], "{headers:?}");
    }
    let log = server.log().join("\n");
    assert!(!log.contains("smuggled"), "{log}");
    server.assert_sound();
}

/// One byte wrong in a chunked body that a lenient reader takes.
#[test]
fn chunks_that_a_lenient_reader_takes_are_refused_at_once() {
    let config = "[server]\nbody_timeout_ms = 600000\nheader_timeout_ms = 600000\n";
    let mut server = Server::scripted("default = \"x\"", config);
    let body = chat("Hi").to_string();
    let size = format!("{:x}", body.len());
    let chunk = |line: &[u8], rest: &str| {
        [line, b"\r\n", body.as_bytes(), b"\r\n", rest.as_bytes()].concat()
    };
    let line = |line: &str| chunk(line.as_bytes(), "0\r\n\r\n");
    let end = |end: &str| chunk(size.as_bytes(), end);
    let cases = [
        ("a space behind the size", line(&format!("{size} "))),
        ("a tab behind the size", line(&format!("{size}\t"))),
        ("a space before the size", line(&format!(" {size}"))),
        (
            "an extension that is not ASCII",
            chunk(&[size.as_bytes(), b";a=\xe4"].concat(), "0\r\n\r\n"),
        ),
        (
            "a control character in an extension",
            line(&format!("{size};a=\u{1}")),
        ),
        (
            "a long extension",
            line(&format!("{size};a={}", "x".repeat(9000))),
        ),
        (
            "a line feed alone behind a size",
            [size.as_bytes(), b"\n", body.as_bytes(), b"\r\n0\r\n\r\n"].concat(),
        ),
        ("a space behind the last size", end("0 \r\n\r\n")),
        ("a line feed alone in a trailer", end("0\r\na: b\n\r\n")),
        ("a line feed alone at the end", end("0\r\na: b\r\n\n")),
        (
            "long trailers",
            end(&format!("0\r\na: {}\r\n\r\n", "x".repeat(9000))),
        ),
    ];
    for (what, body) in cases {
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        let behind = "GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let sent = [head.as_bytes(), &body, behind.as_bytes()].concat();
        // The connection is closed by the server: the client asks for nothing of that.
        let found = answers(&exchange(&server, &sent));
        let refused = (400, Some("body_unreadable".to_owned()));
        assert_eq!(found, [refused], "{what}");
    }
    let log = server.log().join("\n");
    assert!(!log.contains("smuggled"), "{log}");
    server.assert_sound();
}

#[test]
fn hosts_that_name_no_server_and_doubles_are_refused() {
    let config = "[server]\nallowed_hosts = [\"*\"]\n";
    let server = Server::scripted("default = \"x\"", config);
    let get = |headers: &str| {
        let sent = format!("GET /health HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
        answers(&exchange(&server, sent.as_bytes()))
    };
    for good in [
        "localhost",
        "a.example:80",
        "[::1]:8080",
        "127.0.0.1",
        "a_b",
    ] {
        let found = get(&format!("host: {good}\r\n"));
        assert_eq!(found, [(200, None)], "{good:?}");
    }
    for bad in [
        "a b", "a,b", "a, b", "u@a", "u:p@a:80", "[", "[::1", "[::1]x", "[x]", "::1", "a:b",
        "a:99999", "a/b", "a\\b", "http://a", "a%2", "<a>",
    ] {
        let found = get(&format!("host: {bad}\r\n"));
        assert_eq!(found, [malformed()], "{bad:?}");
    }
    // Over HTTP/2 the name may stand in two places.
    for (name, value) in [
        ("host", "a,b"),
        (":authority", "u@a"),
        (":authority", "a,b"),
    ] {
        let mut headers = frames::request("GET", "/health");
        if name.starts_with(':') {
            headers.retain(|(known, _)| *known != name);
            headers.insert(0, (name, value));
        } else {
            headers.retain(|(known, _)| *known != ":authority");
            headers.push((name, value));
        }
        let stream = TcpStream::connect(server.address()).expect("connect");
        let mut stream = frames::open(stream, PATIENCE);
        let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&headers));
        stream.write_all(&asked).expect("write");
        let answer = loop {
            let frame = frames::next(&mut stream).expect("a frame");
            if frame.stream == 1 {
                break frame;
            }
        };
        // Status 400 is entry 12 of the static table (RFC 7541, appendix A). What h2 does not take, it resets itself.
        let refused = answer.kind == HEADERS && answer.payload.first() == Some(&0x8c);
        assert!(
            refused || answer.kind == RST_STREAM,
            "{name}: {value}: {answer:?}"
        );
    }
    for name in [
        "x-request-timeout",
        "x-stainless-timeout",
        "idempotency-key",
        "content-encoding",
        "content-type",
        "origin",
        "api-key",
    ] {
        for second in ["5", "6"] {
            let found = get(&format!(
                "host: localhost\r\n{name}: 5\r\n{name}: {second}\r\n"
            ));
            assert_eq!(found, [malformed()], "{name}");
        }
    }
}

#[test]
fn a_bad_head_behind_good_requests_is_answered_in_its_turn() {
    let server = Server::scripted("default = \"x\"", "");
    let good = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for bad in [
        "GET /health HTTP/1.1\nhost: localhost\n\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/9.9\r\nhost: localhost\r\n\r\n",
        "\u{1b}[31m\r\n\r\n",
    ] {
        let found = answers(&exchange(
            &server,
            format!("{good}{good}{bad}{good}").as_bytes(),
        ));
        assert_eq!(found, [(200, None), (200, None), malformed()], "{bad:?}");
    }
}

#[test]
fn sound_requests_of_all_shapes_are_answered() {
    let server = Server::scripted("default = \"x\"", "");
    let body = chat("Hi").to_string();
    let (length, half) = (body.len(), body.len() / 2);
    let (one, two) = body.split_at(half);
    let post =
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    let last = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    for request in [
        format!("{post}Content-Length: {length}\r\n\r\n{body}"),
        format!("\r\n{post}Content-Length:{length}\r\n\r\n{body}"),
        format!(
            "{post}Transfer-Encoding: CHUNKED\r\n\r\n{length:X};a=b\r\n{body}\r\n0\r\nx: y\r\n\r\n"
        ),
        format!(
            "{post}transfer-encoding: chunked\r\n\r\n{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n000\r\n\r\n",
            one.len(),
            two.len()
        ),
    ] {
        let sent = format!("{request}{last}");
        let found = answers(&exchange(&server, sent.as_bytes()));
        assert_eq!(found, [(200, None), (200, None)], "{request:?}");
        // In small pieces it is the same request.
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("set a timeout");
        stream.set_nodelay(true).expect("set no delay");
        for piece in sent.as_bytes().chunks(11) {
            stream.write_all(piece).expect("write");
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        assert_eq!(answers(&text), found);
    }
    let old = exchange(&server, b"GET /health HTTP/1.0\r\n\r\n");
    assert!(
        old.starts_with("HTTP/1.0 200") || old.starts_with("HTTP/1.1 200"),
        "{old}"
    );
}

#[test]
fn slow_heads_are_told_so() {
    let mut server = Server::scripted("default = \"x\"", "[server]\nheader_timeout_ms = 300");
    let post = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n");
    let good = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (sent, before) in [
        ("G".to_owned(), 0),
        (post.clone(), 0),
        (format!("{post}x-a: "), 0),
        (format!("{good}{post}"), 1),
    ] {
        let found = answers(&exchange(&server, sent.as_bytes()));
        let (last, first) = found.split_last().expect("an answer");
        assert_eq!(*last, (408, Some("request_timeout".to_owned())), "{sent:?}");
        assert_eq!(first.len(), before);
    }
    // Slow by drops.
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    let mut writer = stream.try_clone().expect("a second handle");
    let drops = std::thread::spawn(move || {
        while writer.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    let _ = stream.shutdown(Shutdown::Both);
    drops.join().expect("drops");
    // Who says nothing hears nothing.
    assert_eq!(exchange(&server, b""), "");
    server.assert_sound();
}

/// A body that no length announces is not read, and costs the answer none of its end.
#[test]
fn what_was_not_announced_takes_nothing_from_the_answer() {
    let mut server = Server::scripted("default = \"x\"", "");
    let whole = server.get("/openapi.json").body;
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    let head = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    // More than the server reads at once, and written at once: what comes behind the answer is nobody's fault.
    let sent = [&head[..], &[b'{'; 24_576]].concat();
    stream.write_all(&sent).expect("write all");
    // The answer is longer than what the socket takes unread, so that its end would be lost with a reset.
    std::thread::sleep(Duration::from_millis(500));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read the answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    assert!(answer.ends_with(&whole), "{} bytes came", answer.len());
    server.assert_sound();
}

/// The answer comes although the request goes on: no reset in its place.
#[test]
fn early_answers_arrive_whole() {
    let auth = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"s3cret-key\"";
    let mut server = Server::scripted("default = \"x\"", auth);
    let large = vec![b' '; 3_000_000];
    let json = "application/json";
    let key = "Bearer s3cret-key";
    for (method, path, content_type, authorization, status) in [
        ("POST", CHAT, json, "Bearer wrong", 401),
        ("POST", CHAT, "text/plain", key, 415),
        ("POST", "/v1/nothing", json, key, 404),
        ("PUT", CHAT, json, key, 405),
        ("POST", "/health", json, key, 405),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n\
             authorization: {authorization}\r\ncontent-length: {}\r\n\r\n",
            large.len()
        );
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("set a timeout");
        stream.write_all(head.as_bytes()).expect("write the head");
        // All of it can be written, whenever the answer is read.
        stream
            .write_all(&large)
            .unwrap_or_else(|error| panic!("{status}: {error}"));
        let mut answer = [0; 12];
        stream
            .read_exact(&mut answer)
            .unwrap_or_else(|error| panic!("{status}: {error}"));
        assert_eq!(answer, format!("HTTP/1.1 {status}").as_bytes());
        let mut rest = String::new();
        stream
            .read_to_string(&mut rest)
            .unwrap_or_else(|error| panic!("{status}: {error}"));
        assert!(rest.contains("\"error\""), "{rest}");
    }
    server.assert_sound();
}

#[test]
fn names_of_models_that_are_no_text_are_answered_in_json() {
    let server = Server::scripted("default = \"x\"", "");
    for path in [
        "/v1/models/%ff",
        "/v1/models/a%80b",
        "/v1/models/%c0%af",
        "/v1/models/%ed%a0%80",
    ] {
        let response = server.get(path);
        assert_eq!(response.status(), 400, "{path}: {}", response.text());
        assert_eq!(response.json()["error"]["param"], json!("model"), "{path}");
        assert!(response.header("x-request-id").is_some());
    }
    let request = Request::get("/v1/models/%73cripted");
    server.send(&request).ok();
}
