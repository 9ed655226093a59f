//! Tokens that are reserved before a prompt is counted: as many for a body whose length is not declared, for ids, and for
//! what was stored of a conversation as for a text that stands in the request.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::responses::RESPONSES;
use crate::sockets::Socket;
use crate::support::client::{Request, Response};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, block, frame};
use crate::support::{PATIENCE, Server};

/// An answer takes so long that its tokens are not settled before the next request comes.
const SLOW: &str = "default = \"abcdefghij\"\ntoken_delay_ms = 50\nrepeat = 100000";
const QUICK: &str = "default = \"abcdefghij\"";

/// Keys `sk-0` to `sk-9` of one tenant, each with limits of its own.
fn keys(limit: &str) -> String {
    let key = |number: usize| {
        format!(
            "[[auth.api_keys]]\nid = \"k{number}\"\nkey = \"sk-{number}\"\ntenant = \"t\"\n{limit}\n"
        )
    };
    (0..10).map(key).collect()
}

fn long_chat() -> Value {
    json!({
        "model": "scripted", "max_tokens": 50, "stream": true,
        "messages": [{"role": "user", "content": "words ".repeat(250)}],
    })
}

fn keyed(path: &str, body: &Value, key: &str) -> Request {
    Request::post(path, body).header("authorization", &format!("Bearer {key}"))
}

/// Copy of a request with its body in chunks, whose length is not declared.
fn chunked(request: &Request) -> Request {
    let mut sent = request.clone().header("transfer-encoding", "chunked");
    let mut body = Vec::new();
    for part in request.body.chunks(100) {
        body.extend(format!("{:x}\r\n", part.len()).bytes());
        body.extend(part);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    sent.body = body;
    sent
}

fn left(answer: &Response) -> u64 {
    let left = answer.header("x-ratelimit-remaining-tokens-day");
    let left = left.unwrap_or_else(|| panic!("{}", answer.text()));
    left.parse().expect("a number")
}

fn assert_limited(server: &Server, key: &str, way: &str) {
    let refused = server.send(&keyed(CHAT, &long_chat(), key));
    assert_eq!(refused.status(), 429, "{way}");
    assert_eq!(
        refused.json()["error"]["code"],
        "rate_limit_exceeded",
        "{way}"
    );
}

#[test]
fn tokens_per_minute_count_prompts_whose_length_is_not_declared() {
    // One prompt of 1,500 bytes and its answer take most of a minute's tokens.
    let mut server = Server::scripted(SLOW, &keys("tokens_per_minute = 500"));
    let declared = keyed(CHAT, &long_chat(), "sk-0");
    let in_chunks = chunked(&keyed(CHAT, &long_chat(), "sk-1"));
    let mut streams = Vec::new();
    for (request, key) in [(declared, "sk-0"), (in_chunks, "sk-1")] {
        let mut stream = request.begin(server.address());
        assert_eq!(stream.head().status, 200, "{key}");
        assert_limited(&server, key, key);
        let again = server.send(&chunked(&keyed(CHAT, &long_chat(), key)));
        assert_eq!(again.status(), 429, "{key}");
        streams.push(stream);
    }

    let (status, mut socket) = Socket::open(&server, CHAT, "authorization: Bearer sk-2\r\n");
    assert_eq!(status, 101);
    socket.ask(&long_chat());
    assert!(socket.json()["choices"].is_array());
    assert_limited(&server, "sk-2", "a socket");

    let stream = TcpStream::connect(server.address()).expect("connect");
    let mut stream = frames::open(stream, PATIENCE);
    let mut headers = frames::request("POST", CHAT);
    headers.push(("content-type", "application/json"));
    headers.push(("authorization", "Bearer sk-3"));
    let body = long_chat().to_string();
    let asked = [
        frame(HEADERS, END_HEADERS, 1, &block(&headers)),
        frame(DATA, END_STREAM, 1, body.as_bytes()),
    ];
    stream.write_all(&asked.concat()).expect("write");
    while frames::next(&mut stream).expect("a frame").kind != DATA {}
    assert_limited(&server, "sk-3", "HTTP/2");
    drop((streams, socket, stream));
    server.assert_sound();
}

#[test]
fn ids_and_stored_conversations_reserve_what_texts_do() {
    let server = Server::scripted(QUICK, &keys("tokens_per_day = 100000"));
    let text = |prompt: Value| json!({"model": "scripted", "prompt": prompt, "max_tokens": 1});
    let reserved = |path: &str, body: &Value, key: &str| {
        let answer = server.send(&keyed(path, body, key));
        answer.ok();
        100_000 - left(&answer)
    };
    // Ids of one digit take two bytes of the body.
    let ids = reserved("/v1/completions", &text(json!(vec![9; 400])), "sk-0");
    assert!((400..450).contains(&ids), "{ids}");
    let texts = reserved("/v1/completions", &text(json!("a".repeat(1600))), "sk-1");
    assert!((400..450).contains(&texts), "{texts}");

    let long = json!({"model": "scripted", "input": "a".repeat(1600), "max_output_tokens": 16});
    let first = server.send(&keyed(RESPONSES, &long, "sk-2")).ok();
    let next = json!({
        "model": "scripted", "input": "b", "max_output_tokens": 16,
        "previous_response_id": first["id"],
    });
    let continued = reserved(RESPONSES, &next, "sk-3");
    assert!((416..500).contains(&continued), "{continued}");
}
