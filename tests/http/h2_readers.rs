//! HTTP/2 peers that read an answer late, by the byte, or not at all.

use std::io::Write as _;
use std::net::TcpStream;

use crate::support::client::Request;
use crate::support::frames::{
    DATA, END_HEADERS, END_STREAM, Frame, HEADERS, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    block, frame, next, request,
};
use crate::support::{PATIENCE, Server};

/// Error code of a stream that is given up (RFC 9113, 7).
const CANCEL: u32 = 8;

const CONFIG: &str =
    "[server]\nwrite_timeout_ms = 1000\n[[auth.api_keys]]\nid = \"one\"\nkey = \"the-key\"\n";

/// A connection whose streams begin with room for so many bytes.
fn opened(server: &Server, window: u32) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let [a, b, c, d] = window.to_be_bytes();
    let sent = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d])];
    stream.write_all(&sent.concat()).expect("sent");
    stream
}

fn get(stream: &mut TcpStream, id: u32, path: &str, key: &str) {
    let bearer = format!("Bearer {key}");
    let mut headers = request("GET", path);
    if !key.is_empty() {
        headers.push(("authorization", &bearer));
    }
    let head = frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&headers));
    stream.write_all(&head).expect("sent");
}

/// Frames of one stream up to its end, or an error where the connection ends before.
fn frames_of(stream: &mut TcpStream, id: u32) -> std::io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    loop {
        let frame = next(stream)?;
        if frame.stream != id {
            continue;
        }
        let is_data = frame.kind == DATA || frame.kind == HEADERS;
        let ends = frame.kind == RST_STREAM || is_data && frame.flags & END_STREAM != 0;
        frames.push(frame);
        if ends {
            return Ok(frames);
        }
    }
}

fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    data.flat_map(|frame| frame.payload.clone()).collect()
}

#[test]
fn a_stream_whose_peer_makes_no_room_is_reset_and_the_others_go_on() {
    let server = Server::configured(CONFIG);
    let path = "/v1/models";
    let mut stream = opened(&server, 10);
    // With the room that a stream begins with, and with a little more.
    for (id, room) in [(1, 0), (3, 5)] {
        get(&mut stream, id, path, "the-key");
        if room > 0 {
            let update = frame(WINDOW_UPDATE, 0, id, &u32::to_be_bytes(room));
            stream.write_all(&update).expect("sent");
        }
        let frames = frames_of(&mut stream, id).expect("the connection lives on");
        assert_eq!(bytes_of(&frames).len(), 10 + room as usize);
        let last = frames.last().expect("a frame");
        assert_eq!((last.kind, last.error()), (RST_STREAM, Some(CANCEL)));
    }
    get(&mut stream, 5, path, "the-key");
    let update = frame(WINDOW_UPDATE, 0, 5, &60_000u32.to_be_bytes());
    stream.write_all(&update).expect("sent");
    let frames = frames_of(&mut stream, 5).expect("an answer");
    let body: serde_json::Value = serde_json::from_slice(&bytes_of(&frames)).expect("JSON");
    assert_eq!(body["object"], "list");
}

/// Keyless peers are cut off in time though they take a byte now and then: the stream, or the connection that has no other.
#[test]
fn a_peer_without_a_key_takes_no_longer_for_dripping() {
    let server = Server::configured(CONFIG);
    let mut stream = opened(&server, 0);
    get(&mut stream, 1, "/openapi.json", "");
    let mut drips = stream.try_clone().expect("a second handle");
    let dripping = std::thread::spawn(move || {
        let drip = frame(WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes());
        while drips.write_all(&drip).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    if let Ok(frames) = frames_of(&mut stream, 1) {
        let last = frames.last().expect("a frame");
        assert_eq!((last.kind, last.error()), (RST_STREAM, Some(CANCEL)));
    }
    drop(stream.shutdown(std::net::Shutdown::Both));
    dripping.join().expect("the drips end");
}

#[test]
fn room_for_the_answer_and_no_more_is_enough() {
    let server = Server::configured(CONFIG);
    let models = Request::get("/v1/models").header("authorization", "Bearer the-key");
    let whole = server.send(&models).text();
    let mut stream = opened(&server, u32::try_from(whole.len()).expect("short"));
    get(&mut stream, 1, "/v1/models", "the-key");
    let frames = frames_of(&mut stream, 1).expect("an answer");
    assert_eq!(String::from_utf8(bytes_of(&frames)).expect("UTF-8"), whole);
    assert_eq!(frames.last().map(|last| last.kind), Some(DATA));
}
