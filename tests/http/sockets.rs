//! WebSockets on the routes of chat and of responses.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::responses::RESPONSES;
use crate::support::{PATIENCE, Server, until};

/// `long` is answered for seconds.
fn script() -> String {
    let long = "Hello there, wörld 👋. ".repeat(200);
    format!(
        "default = {long:?}\ntoken_delay_ms = 1\nlines = [{{ when = \"short\", say = \"Hi.\" }}]\n"
    )
}

/// A client that speaks just enough of RFC 6455. Key and answer are those of its section 1.3.
pub(crate) struct Socket(pub(crate) TcpStream);

impl Socket {
    pub(crate) fn open(server: &Server, path: &str, more: &str) -> (u16, Self) {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("set a timeout");
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
            server.address()
        );
        stream.write_all(head.as_bytes()).expect("write");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("read the head");
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).expect("text").to_lowercase();
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        if status == Some(101) {
            let accept = "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=";
            assert!(answer.contains(accept), "{answer}");
            // Compression is not offered, and none may be agreed on.
            assert!(!answer.contains("sec-websocket-extensions"), "{answer}");
        }
        (status.expect("a status"), Self(stream))
    }

    fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            short @ 0..126 => frame.push(0x80 | short as u8),
            long => {
                frame.push(0x80 | 126);
                frame.extend((long as u16).to_be_bytes());
            }
        }
        let mask = [7, 1, 9, 3];
        frame.extend(mask);
        frame.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        self.0.write_all(&frame).expect("write a frame");
    }

    pub(crate) fn ask(&mut self, body: &Value) {
        self.send(1, body.to_string().as_bytes());
    }

    /// Kind and payload of the next frame.
    pub(crate) fn next(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("read a frame");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).expect("read a length");
                usize::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).expect("read a length");
                usize::try_from(u64::from_be_bytes(length)).expect("a short frame")
            }
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).expect("read a payload");
        (head[0] & 15, payload)
    }

    fn text(&mut self) -> String {
        let (kind, payload) = self.next();
        assert_eq!(kind, 1, "{:?}", String::from_utf8_lossy(&payload));
        String::from_utf8(payload).expect("text")
    }

    pub(crate) fn json(&mut self) -> Value {
        serde_json::from_str(&self.text()).expect("JSON")
    }

    /// Chunks up to the end.
    pub(crate) fn chunks(&mut self) -> Vec<Value> {
        let mut chunks = Vec::new();
        loop {
            match self.text().as_str() {
                "[DONE]" => return chunks,
                chunk => chunks.push(serde_json::from_str(chunk).expect("JSON")),
            }
        }
    }
}

/// Chunks without what differs from one answer to the next.
fn timeless(mut chunks: Vec<Value>) -> Vec<Value> {
    for chunk in &mut chunks {
        chunk["id"] = Value::Null;
        chunk["created"] = Value::Null;
    }
    chunks
}

fn content(chunks: &[Value]) -> String {
    let pieces = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    pieces.collect()
}

#[test]
fn feature_e26_chat_over_a_socket_has_the_chunks_of_a_stream() {
    let server = Server::scripted(&script(), "");
    let (status, mut socket) = Socket::open(&server, CHAT, "");
    assert_eq!(status, 101);
    let mut streamed = chat("short");
    streamed["stream"] = json!(true);
    let expected = timeless(server.post(CHAT, &streamed).events());
    for _ in 0..2 {
        socket.ask(&chat("short"));
        let chunks = timeless(socket.chunks());
        assert_eq!(content(&chunks), content(&expected));
        assert_eq!(chunks.first(), expected.first());
        assert_eq!(chunks.last(), expected.last());
    }
    // A mistake is told in the dialect's shape, and the socket stays open.
    socket.ask(&json!({"model": "scripted"}));
    assert_eq!(socket.json()["error"]["param"], "messages");
    socket.send(1, b"no JSON");
    assert_eq!(socket.json()["error"]["code"], "invalid_json");
    socket.send(9, b"are you there");
    assert_eq!(socket.next(), (10, b"are you there".to_vec()));
    socket.ask(&chat("short"));
    assert_eq!(content(&socket.chunks()), "Hi.");
    socket.send(8, &1000_u16.to_be_bytes());
    assert_eq!(socket.next().0, 8);
}

#[test]
fn feature_e26_closing_a_socket_cancels_its_answer() {
    let mut server = Server::scripted(&script(), "");
    let (_, mut socket) = Socket::open(&server, CHAT, "");
    socket.ask(&chat("long"));
    for _ in 0..5 {
        socket.json();
    }
    let running = "mortise_model_requests";
    drop(socket);
    let page = || server.get("/metrics").text();
    let idle = || {
        page()
            .lines()
            .filter(|line| line.starts_with(running))
            .all(|line| line.ends_with(" 0"))
    };
    until("the answer is cancelled", idle);
    server.assert_sound();
}

#[test]
fn feature_e3_responses_over_a_socket_take_turns() {
    let server = Server::scripted(&script(), "");
    let (status, mut socket) = Socket::open(&server, RESPONSES, "");
    assert_eq!(status, 101);
    let mut previous = Value::Null;
    for _ in 0..2 {
        socket.ask(&json!({
            "type": "response.create", "model": "scripted", "input": "short",
            "previous_response_id": previous,
        }));
        let mut last = socket.json();
        assert_eq!(last["type"], "response.created");
        while last["type"] != "response.completed" {
            last = socket.json();
        }
        let response = &last["response"];
        assert_eq!(response["previous_response_id"], previous);
        assert_eq!(response["output"][0]["content"][0]["text"], "Hi.");
        previous = response["id"].clone();
    }
    socket.ask(
        &json!({"type": "response.create", "model": "scripted", "input": "short",
        "previous_response_id": "resp_unknown"}),
    );
    let error = socket.json();
    assert_eq!(
        (&error["type"], &error["status"]),
        (&json!("error"), &json!(404))
    );
    assert_eq!(error["error"]["code"], "previous_response_not_found");
    socket.ask(&json!({"type": "session.update"}));
    assert_eq!(socket.json()["error"]["param"], "type");
}

/// The events of one answer over a socket, the last of them.
pub(crate) fn last_of(socket: &mut Socket) -> Value {
    let mut last = socket.json();
    while !["response.completed", "error"].contains(&last["type"].as_str().expect("a type")) {
        last = socket.json();
    }
    last
}

#[test]
fn feature_e3_a_socket_continues_what_is_not_stored() {
    let server = Server::scripted(&script(), "");
    let ask = |previous: &Value, input: Value| {
        json!({
            "type": "response.create", "model": "scripted", "input": input, "store": false,
            "previous_response_id": previous,
        })
    };
    let (_, mut socket) = Socket::open(&server, RESPONSES, "");
    let mut ids = vec![Value::Null];
    let mut tokens = Vec::new();
    for _ in 0..3 {
        socket.ask(&ask(ids.last().expect("an id"), json!("short")));
        let last = last_of(&mut socket);
        assert_eq!(last["type"], "response.completed", "{last}");
        ids.push(last["response"]["id"].clone());
        tokens.push(last["response"]["usage"]["input_tokens"].as_u64());
    }
    // Each prompt holds what was said before.
    assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
    let gone = |socket: &mut Socket, id: &Value| {
        socket.ask(&ask(id, json!("short")));
        let error = last_of(socket);
        assert_eq!(
            error["error"]["code"], "previous_response_not_found",
            "{error}"
        );
    };
    // The last one is kept, and a mistake in what continues it evicts it.
    gone(&mut socket, &ids[2]);
    socket.ask(&ask(&ids[3], json!("short")));
    let fourth = last_of(&mut socket)["response"]["id"].clone();
    socket.ask(&ask(
        &fourth,
        json!([{"type": "item_reference", "id": "msg_unknown"}]),
    ));
    assert_eq!(last_of(&mut socket)["status"], 400);
    gone(&mut socket, &fourth);
    // Another connection knows nothing of it, and nothing was written.
    socket.ask(&ask(&Value::Null, json!("short")));
    let fifth = last_of(&mut socket)["response"]["id"].clone();
    let (_, mut other) = Socket::open(&server, RESPONSES, "");
    gone(&mut other, &fifth);
    let path = format!("{RESPONSES}/{}", fifth.as_str().expect("an id"));
    assert_eq!(server.get(&path).status(), 404);
}

#[test]
fn sockets_are_for_callers_and_pages_that_may() {
    let keys = "[server]\ncors_origins = [\"https://chat.example\"]\n\
                [[auth.api_keys]]\nid = \"a\"\nkey = \"key-of-a-0123456789\"\n";
    let server = Server::scripted(&script(), keys);
    let key = "authorization: Bearer key-of-a-0123456789\r\n";
    let open = |more: &str| Socket::open(&server, CHAT, more).0;
    assert_eq!(open(""), 401);
    assert_eq!(open(key), 101);
    assert_eq!(open(&format!("{key}origin: https://evil.example\r\n")), 403);
    assert_eq!(open(&format!("{key}origin: https://chat.example\r\n")), 101);
    assert_eq!(
        open(&format!("{key}origin: http://{}\r\n", server.address())),
        101
    );
    assert_eq!(Socket::open(&server, "/v1/models", key).0, 200);
}

#[test]
fn sockets_share_the_memory_for_bodies() {
    let config =
        "[server]\nmax_body_bytes = 524288\n[limits]\nmax_body_bytes_in_flight = 1048576\n";
    let mut server = Server::scripted(&script(), config);
    let (status, mut first) = Socket::open(&server, CHAT, "");
    assert_eq!(status, 101);
    // An address leaves a quarter to others, and a second message would take it.
    assert_eq!(Socket::open(&server, CHAT, "").0, 503);
    first.ask(&chat("short"));
    assert_eq!(content(&first.chunks()), "Hi.");
    drop(first);
    until("the memory is free", || {
        Socket::open(&server, CHAT, "").0 == 101
    });
    server.assert_sound();
}

#[test]
fn feature_e26_a_socket_says_why_it_is_closed() {
    let server = Server::scripted(&script(), "");
    let code_of = |frames: &[u8]| {
        let (_, mut socket) = Socket::open(&server, CHAT, "");
        socket.0.write_all(frames).expect("write");
        let (kind, payload) = socket.next();
        assert_eq!(kind, 8);
        u16::from_be_bytes([payload[0], payload[1]])
    };
    // With a mask of zeros, payloads are as they stand.
    assert_eq!(code_of(&[0x83, 0x80, 0, 0, 0, 0]), 1002, "opcode 3");
    assert_eq!(code_of(&[0x81, 0x81, 0, 0, 0, 0, 0xff]), 1007, "no UTF-8");
    let long = [
        [0x81, 0xff].as_slice(),
        &(1_u64 << 20).to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    assert_eq!(code_of(&long), 1009, "a message of 1 MiB");
    assert_eq!(code_of(&[0x82, 0x80, 0, 0, 0, 0]), 1003, "binary");
    // While an answer is under way, too.
    let (_, mut socket) = Socket::open(&server, CHAT, "");
    socket.ask(&chat("long"));
    socket.json();
    socket
        .0
        .write_all(&[0x83, 0x80, 0, 0, 0, 0])
        .expect("write");
    let close = loop {
        match socket.next() {
            (1, _) => {}
            other => break other,
        }
    };
    assert_eq!(
        (close.0, &close.1[..2]),
        (8, 1002_u16.to_be_bytes().as_slice())
    );
}
