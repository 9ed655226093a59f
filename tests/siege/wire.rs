//! Attacks below requests: connections, heads, bodies. Attackers take whatever comes back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ground::Ground;

/// How long an attacker listens to an answer.
const LISTEN: Duration = Duration::from_millis(1500);

/// A request in bytes.
pub(crate) fn post(key: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}\
         authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

/// Send bytes on a connection of their own, and read for a while.
pub(crate) fn exchange(ground: &Ground, sent: &[u8]) {
    let Some(mut stream) = ground.connect() else {
        return;
    };
    if stream.write_all(sent).is_ok() {
        listen(&mut stream);
    }
}

/// Send bytes and leave at once.
pub(crate) fn send_and_leave(ground: &Ground, sent: &[u8]) {
    if let Some(mut stream) = ground.connect() {
        let _ = stream.write_all(sent);
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn listen(stream: &mut TcpStream) {
    let begun = Instant::now();
    let _ = stream.set_read_timeout(Some(LISTEN));
    let mut piece = vec![0; 1 << 16];
    while begun.elapsed() < LISTEN {
        match stream.read(&mut piece) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Open many connections that send this much, and hold them.
pub(crate) fn hold(ground: &Ground, count: usize, sent: &[u8]) {
    let held: Vec<TcpStream> = (0..count)
        .filter_map(|_| {
            let mut stream = ground.connect()?;
            stream.write_all(sent).ok()?;
            Some(stream)
        })
        .collect();
    std::thread::sleep(Duration::from_millis(700));
    drop(held);
}

/// Open connections, and send one byte of a head after the other.
pub(crate) fn drip(ground: &Ground) {
    let mut streams: Vec<TcpStream> = (0..20).filter_map(|_| ground.connect()).collect();
    for byte in b"GET /v1/models HTTP/1.1\r\nhost: loc" {
        for stream in &mut streams {
            let _ = stream.write_all(&[*byte]);
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Heads that two servers could read in two ways.
pub(crate) fn ambiguous_heads(ground: &Ground) {
    for head in [
        "content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET",
        "content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        "transfer-encoding: x, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "content-length: 18446744073709551616\r\n\r\n",
        "host: twice\r\n\r\n",
        "x: a\n b\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "transfer-encoding: chunked\r\n\r\n5;x=\r\nabc",
        "transfer-encoding: chunked\r\n\r\n1 \r\n{\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\na: b\n\r\n",
    ] {
        let sent = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n{head}");
        exchange(ground, sent.as_bytes());
    }
    let many: String = (0..5000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    exchange(ground, format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes());
    let long = "a".repeat(1 << 20);
    exchange(ground, format!("GET /{long} HTTP/1.1\r\n").as_bytes());
    exchange(
        ground,
        format!("GET / HTTP/1.1\r\nx: {long}\r\n").as_bytes(),
    );
}

/// Requests that wait for leave to send a body, and never send it.
pub(crate) fn expectations(ground: &Ground, key: &str) {
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         authorization: Bearer {key}\r\ncontent-length: 1000000\r\nexpect: 100-continue\r\n\r\n"
    );
    hold(ground, 60, head.as_bytes());
}

/// Chunks with long extensions, one byte each, and trailers without end.
pub(crate) fn trailers(ground: &Ground, key: &str) {
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         authorization: Bearer {key}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let extension = "e".repeat(7000);
    let trailers: String = (0..100_000).map(|n| format!("t-{n}: {n}\r\n")).collect();
    for body in [
        format!("1;{extension}\r\n \r\n").repeat(300),
        "1\r\n \r\n".repeat(200_000),
        format!("2\r\n{{}}\r\n0\r\n{trailers}\r\n"),
        format!("1;{}", "e".repeat(1 << 20)),
    ] {
        exchange(ground, format!("{head}{body}").as_bytes());
    }
}

/// Questions after the server's health that nobody reads the answers of.
pub(crate) fn health_checks(ground: &Ground, seed: u64) {
    let path = ["/health", "/ready", "/metrics"][seed as usize % 3];
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    hold(ground, 100, request.repeat(30).as_bytes());
}

/// The answer to a request that asks for the end of its connection, if it is JSON.
pub(crate) fn answer(ground: &Ground, sent: &[u8]) -> Option<Value> {
    let mut stream = ground.connect()?;
    stream.write_all(sent).ok()?;
    let mut whole = Vec::new();
    stream.take(1 << 20).read_to_end(&mut whole).ok()?;
    let end = whole.windows(4).position(|four| four == b"\r\n\r\n")?;
    serde_json::from_slice(whole.get(end + 4..)?).ok()
}
