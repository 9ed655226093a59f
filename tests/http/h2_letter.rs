//! HTTP/2 by the letter: peers that break the rules of RFC 9113 and RFC 7541 get the error that these name, on the
//! stream or the connection. The cases are those of h2spec, by its numbers, as far as a server can fail them and ours
//! does not. One is left out: pseudo-headers in trailers (8.1.2.1/3). `h2` (0.4.20) takes the fields of trailers by
//! `Headers::into_fields` and drops pseudo-headers before anyone above it sees them, without a setting for it; trailers
//! themselves are dropped here, so that nothing in them has an effect, and the request is answered.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::Server;
use crate::support::frames::{
    ACK, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR, GOAWAY, HEADERS, PING, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE,
    REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, block, frame, next, open,
    request,
};

/// A server that has said nothing for so long tolerates what was wrong. Only a case that fails waits.
const TOLERATED: Duration = Duration::from_secs(10);

/// Place at which an error must show.
#[derive(Debug, Clone, Copy)]
enum At {
    /// The connection: GOAWAY with one of these codes, or its end.
    Connection(&'static [u32]),
    /// The stream or the connection.
    Stream(&'static [u32]),
}

use At::{Connection, Stream};

type Case = (&'static str, Vec<u8>, At);

/// The headers of a request, as a frame on `stream`.
fn ask(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &block(&request("GET", "/health")))
}

/// A whole request with these headers.
fn headers(all: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(all))
}

/// A request with one more header.
fn with(name: &str, value: &str) -> Vec<u8> {
    let mut all = request("GET", "/health");
    all.push((name, value));
    headers(&all)
}

/// A request without one of its pseudo-headers.
fn without(name: &str) -> Vec<u8> {
    let mut all = request("GET", "/health");
    all.retain(|(known, _)| *known != name);
    headers(&all)
}

/// A request whose body has another length than it says.
fn lengths(path: &str, pieces: &[&[u8]]) -> Vec<u8> {
    let mut all = request("POST", path);
    all.push(("content-type", "application/json"));
    all.push(("content-length", "1"));
    let mut bytes = frame(HEADERS, END_HEADERS, 1, &block(&all));
    for (at, piece) in pieces.iter().enumerate() {
        let last = at + 1 == pieces.len();
        bytes.extend(frame(DATA, if last { END_STREAM } else { 0 }, 1, piece));
    }
    bytes
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    let mut payload = id.to_be_bytes().to_vec();
    payload.extend(value.to_be_bytes());
    frame(SETTINGS, 0, 0, &payload)
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn header_block(bytes: &[u8]) -> Vec<u8> {
    let mut all = block(&request("GET", "/health"));
    all.extend(bytes);
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &all)
}

const WHOLE: u8 = END_HEADERS | END_STREAM;
const MORE: [u8; 3] = [0x10, 0, 0];

fn frames_and_streams() -> Vec<Case> {
    vec![
        (
            "4.2/2",
            [
                ask(1, END_HEADERS),
                frame(DATA, END_STREAM, 1, &[0; 16_385]),
            ]
            .concat(),
            Stream(&[FRAME_SIZE_ERROR]),
        ),
        (
            "4.2/3",
            frame(HEADERS, WHOLE, 1, &[0x10; 16_385]),
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        (
            "4.3/1",
            frame(HEADERS, WHOLE, 1, &[0xff; 20]),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "4.3/2",
            [ask(1, 0), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9])].concat(),
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "4.3/3",
            [ask(1, 0), ask(3, WHOLE)].concat(),
            Connection(&[PROTOCOL_ERROR]),
        ),
        ("5.1.1/1", ask(2, WHOLE), Connection(&[PROTOCOL_ERROR])),
        (
            "5.1.1/2",
            [ask(5, WHOLE), ask(3, WHOLE)].concat(),
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "5.1/1",
            frame(DATA, END_STREAM, 1, b"test"),
            Stream(&[PROTOCOL_ERROR, STREAM_CLOSED]),
        ),
        ("5.1/2", reset(1), Connection(&[PROTOCOL_ERROR])),
        ("5.1/3", window(1, 100), Connection(&[PROTOCOL_ERROR])),
        (
            "5.1/4",
            frame(CONTINUATION, END_HEADERS, 1, &MORE),
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "5.1/5",
            [ask(1, WHOLE), frame(DATA, END_STREAM, 1, b"test")].concat(),
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1/6",
            [ask(1, WHOLE), ask(1, WHOLE)].concat(),
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1/7",
            [ask(1, WHOLE), frame(CONTINUATION, END_HEADERS, 1, &MORE)].concat(),
            Stream(&[STREAM_CLOSED, PROTOCOL_ERROR]),
        ),
        (
            "5.1/8",
            [
                ask(1, END_HEADERS),
                reset(1),
                frame(DATA, END_STREAM, 1, b"test"),
            ]
            .concat(),
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1/9",
            [ask(1, END_HEADERS), reset(1), ask(1, WHOLE)].concat(),
            Stream(&[STREAM_CLOSED]),
        ),
        (
            "5.1/10",
            [
                ask(1, END_HEADERS),
                reset(1),
                frame(CONTINUATION, END_HEADERS, 1, &MORE),
            ]
            .concat(),
            Stream(&[STREAM_CLOSED, PROTOCOL_ERROR]),
        ),
        (
            "5.3.1/1",
            {
                let mut payload = vec![0, 0, 0, 1, 9];
                payload.extend(block(&request("GET", "/health")));
                frame(HEADERS, WHOLE | 0x20, 1, &payload)
            },
            Stream(&[PROTOCOL_ERROR]),
        ),
        (
            "5.3.1/2",
            frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 9]),
            Stream(&[PROTOCOL_ERROR]),
        ),
        (
            "5.4.1",
            frame(PING, 0, 3, &[0; 8]),
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "5.5/2",
            [ask(1, 0), frame(0x16, 0, 0, b"test")].concat(),
            Connection(&[PROTOCOL_ERROR]),
        ),
    ]
}

fn definitions() -> Vec<Case> {
    let (protocol, size) = (
        Connection(&[PROTOCOL_ERROR]),
        Connection(&[FRAME_SIZE_ERROR]),
    );
    vec![
        ("6.1/1", frame(DATA, END_STREAM, 0, b"test"), protocol),
        (
            "6.1/3",
            [
                ask(1, END_HEADERS),
                frame(DATA, 8 | END_STREAM, 1, &[6, 0, 0]),
            ]
            .concat(),
            protocol,
        ),
        ("6.2/3", ask(0, WHOLE), protocol),
        (
            "6.2/4",
            frame(HEADERS, WHOLE | 8, 1, &[9, 0x10, 0]),
            protocol,
        ),
        ("6.3/1", frame(PRIORITY, 0, 0, &[0, 0, 0, 1, 9]), protocol),
        (
            "6.3/2",
            [ask(1, END_HEADERS), frame(PRIORITY, 0, 1, &[0; 4])].concat(),
            Stream(&[FRAME_SIZE_ERROR]),
        ),
        ("6.4/1", reset(0), protocol),
        (
            "6.4/3",
            [ask(1, END_HEADERS), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
            size,
        ),
        ("6.5/1", frame(SETTINGS, ACK, 0, &[0]), size),
        (
            "6.5/2",
            frame(SETTINGS, 0, 1, &[0, 3, 0, 0, 0, 100]),
            protocol,
        ),
        ("6.5/3", frame(SETTINGS, 0, 0, &[0, 3, 0]), size),
        ("6.5.2/1", setting(2, 2), protocol),
        (
            "6.5.2/2",
            setting(4, 1 << 31),
            Connection(&[FLOW_CONTROL_ERROR]),
        ),
        ("6.5.2/3", setting(5, 16_383), protocol),
        ("6.5.2/4", setting(5, 1 << 24), protocol),
        ("6.7/3", frame(PING, 0, 1, &[0; 8]), protocol),
        ("6.7/4", frame(PING, 0, 0, &[0; 6]), size),
        ("6.8/1", frame(GOAWAY, 0, 1, &[0; 8]), protocol),
        ("6.9/1", window(0, 0), protocol),
        (
            "6.9/2",
            [ask(1, END_HEADERS), window(1, 0)].concat(),
            Stream(&[PROTOCOL_ERROR]),
        ),
        ("6.9/3", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1]), size),
        (
            "6.9.1/2",
            [window(0, (1 << 31) - 1), window(0, (1 << 31) - 1)].concat(),
            Connection(&[FLOW_CONTROL_ERROR]),
        ),
        (
            "6.9.1/3",
            [
                ask(1, END_HEADERS),
                window(1, (1 << 31) - 1),
                window(1, (1 << 31) - 1),
            ]
            .concat(),
            Stream(&[FLOW_CONTROL_ERROR]),
        ),
        (
            "6.10/2",
            [ask(1, 0), frame(DATA, END_STREAM, 1, b"test")].concat(),
            protocol,
        ),
        (
            "6.10/3",
            [ask(1, 0), frame(CONTINUATION, END_HEADERS, 0, &MORE)].concat(),
            protocol,
        ),
        (
            "6.10/4",
            [
                ask(1, END_HEADERS),
                frame(CONTINUATION, END_HEADERS, 1, &MORE),
            ]
            .concat(),
            protocol,
        ),
        (
            "8.2/1",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 3]),
            protocol,
        ),
    ]
}

fn messages() -> Vec<Case> {
    let malformed = Stream(&[PROTOCOL_ERROR]);
    let twice = |name| {
        let mut all = request("GET", "/health");
        let again = all.iter().copied().find(|(known, _)| *known == name);
        all.extend(again);
        headers(&all)
    };
    let late = {
        let mut all = request("GET", "/health");
        all.insert(1, ("x-test", "ok"));
        headers(&all)
    };
    let trailers = |flags: u8, all: &[(&str, &str)]| {
        let begin = frame(
            HEADERS,
            END_HEADERS,
            1,
            &block(&request("POST", "/v1/completions")),
        );
        let body = frame(DATA, 0, 1, b"test");
        [begin, body, frame(HEADERS, flags, 1, &block(all))].concat()
    };
    vec![
        (
            "8.1/1",
            trailers(END_HEADERS, &[("x-test", "ok")]),
            malformed,
        ),
        ("8.1.2/1", with("X-TEST", "ok"), malformed),
        ("8.1.2.1/1", with(":test", "ok"), malformed),
        ("8.1.2.1/2", with(":status", "200"), malformed),
        ("8.1.2.1/4", late, malformed),
        ("8.1.2.2/1", with("connection", "keep-alive"), malformed),
        ("8.1.2.2/2", with("te", "trailers, deflate"), malformed),
        (
            "8.1.2.3/1",
            {
                let mut all = request("GET", "");
                all.sort_unstable();
                headers(&all)
            },
            malformed,
        ),
        ("8.1.2.3/2", without(":method"), malformed),
        ("8.1.2.3/3", without(":scheme"), malformed),
        ("8.1.2.3/4", without(":path"), malformed),
        ("8.1.2.3/5", twice(":method"), malformed),
        ("8.1.2.3/6", twice(":scheme"), malformed),
        ("8.1.2.3/7", twice(":path"), malformed),
        (
            "8.1.2.6/1",
            lengths("/v1/completions", &[b"test"]),
            malformed,
        ),
        (
            "8.1.2.6/1, unknown route",
            lengths("/", &[b"test"]),
            malformed,
        ),
        (
            "8.1.2.6/2",
            lengths("/v1/completions", &[b"test", b"test"]),
            malformed,
        ),
        (
            "8.1.2.6/2, unknown route",
            lengths("/", &[b"test", b"test"]),
            malformed,
        ),
        (
            "hpack 2.3.3/1",
            header_block(&[0xff, 0]),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "hpack 2.3.3/2",
            header_block(&[0x7f, 0x20, 1, b'a']),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "hpack 4.2/1",
            header_block(&[0x20]),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "hpack 5.2/1",
            header_block(&[
                0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x84, 0x49, 0x50, 0x9f, 0xff,
            ]),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "hpack 5.2/2",
            header_block(&[
                0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x83, 0x49, 0x50, 0x90,
            ]),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "hpack 6.1/1",
            header_block(&[0x80]),
            Connection(&[COMPRESSION_ERROR]),
        ),
        (
            "hpack 6.3/1",
            {
                let mut all = vec![0x3f, 0xe1, 0xff, 0x03];
                all.extend(block(&request("GET", "/health")));
                frame(HEADERS, WHOLE, 1, &all)
            },
            Connection(&[COMPRESSION_ERROR]),
        ),
    ]
}

/// A connection whose settings both sides have heard.
fn settled(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connect");
    let mut stream = open(stream, TOLERATED);
    while next(&mut stream).is_ok_and(|frame| frame.kind != SETTINGS || frame.flags == ACK) {}
    let acknowledged = frame(SETTINGS, ACK, 0, &[]);
    stream.write_all(&acknowledged).expect("written");
    stream
}

/// The error that comes, as text; `Ok` where it is one of those expected.
fn judge(stream: &mut TcpStream, expected: At) -> Result<(), String> {
    let mut seen = Vec::new();
    loop {
        let frame = match next(stream) {
            Ok(frame) => frame,
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {
                return Err(seen.join(", "));
            }
            // The connection has ended.
            Err(_) => return Ok(()),
        };
        let (codes, fits) = match expected {
            Connection(codes) => (codes, frame.kind == GOAWAY),
            Stream(codes) => (codes, frame.kind == GOAWAY || frame.kind == RST_STREAM),
        };
        if fits && frame.error().is_some_and(|code| codes.contains(&code)) {
            return Ok(());
        }
        seen.push(format!(
            "{}:{} {:?}",
            frame.kind,
            frame.stream,
            frame.error()
        ));
    }
}

fn endure(cases: Vec<Case>) {
    let mut server = Server::start(&[]);
    let mut failures = Vec::new();
    for (name, bytes, expected) in cases {
        let mut stream = settled(&server);
        // The server may close while we still write.
        let _ = stream.write_all(&bytes);
        if let Err(seen) = judge(&mut stream, expected) {
            failures.push(format!("{name}: expected {expected:?}, got {seen}"));
        }
        assert_eq!(server.get("/health").status(), 200, "after {name}");
    }
    assert!(failures.is_empty(), "{failures:#?}");
    server.assert_sound();
}

#[test]
fn frames_and_streams_that_break_the_rules_are_refused() {
    endure(frames_and_streams());
}

#[test]
fn frames_of_wrong_contents_are_refused() {
    endure(definitions());
}

#[test]
fn messages_that_are_malformed_are_refused() {
    endure(messages());
}

/// 5.1.2/1
#[test]
fn streams_beyond_the_limit_are_refused() {
    let script = "default = \"x\"\ntoken_delay_ms = 600000";
    let server = Server::scripted(script, "");
    let mut stream = settled(&server);
    let mut all = request("POST", "/v1/completions");
    all.push(("content-type", "application/json"));
    for number in 0..129 {
        let bytes = frame(HEADERS, END_HEADERS, 2 * number + 1, &block(&all));
        stream.write_all(&bytes).expect("written");
    }
    judge(&mut stream, Stream(&[PROTOCOL_ERROR, REFUSED_STREAM])).expect("refused");
}
