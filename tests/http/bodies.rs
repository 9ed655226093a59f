//! Memory for bodies: who may not ask sends none, and all bodies together are bounded and shared.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{PATIENCE, Server, until};

const TEXT: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";
const AUTH: &str = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\ntenant = \"research\"\n\
                    requests_per_minute = 3\n\
                    [[auth.api_keys]]\nid = \"bob\"\nkey = \"bobs-key\"\n";

/// The head of a request whose body is yet to come.
fn head(path: &str, key: Option<&str>, length: usize) -> String {
    let authorization = match key {
        Some(key) => format!("authorization: Bearer {key}\r\n"),
        None => String::new(),
    };
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         {authorization}content-length: {length}\r\n\r\n"
    )
}

/// Connect from an address of the loopback network, or from any.
fn connect(server: &Server, from: Option<&str>) -> TcpStream {
    let stream = match from {
        None => TcpStream::connect(server.address()).expect("connect"),
        Some(from) => {
            let from: SocketAddr = format!("{from}:0").parse().expect("an address");
            let to: SocketAddr = server.address().parse().expect("an address");
            connect_from(from, to)
        }
    };
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    stream
}

fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket
            .bind(from)
            .expect("an address of the loopback network");
        socket.connect(to).await.expect("connect")
    });
    let stream = stream.into_std().expect("a stream");
    stream.set_nonblocking(false).expect("set blocking");
    stream
}

fn status(stream: &mut TcpStream) -> u16 {
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("an answer");
    let line = String::from_utf8(line.to_vec()).expect("UTF-8");
    line[9..].parse().unwrap_or_else(|_| panic!("{line}"))
}

/// The status of a request of which the head alone is sent.
fn status_of_head(server: &Server, head: &str) -> u16 {
    let mut stream = connect(server, None);
    stream.write_all(head.as_bytes()).expect("write");
    status(&mut stream)
}

#[test]
fn callers_are_asked_for_their_key_before_their_body() {
    let mut server = Server::scripted("default = \"x\"", AUTH);
    for path in [CHAT, TEXT, EMBEDDINGS] {
        for length in [1, 1000, 4_000_000, 40_000_000_000] {
            for key in [None, Some("wrong"), Some("")] {
                let head = head(path, key, length);
                assert_eq!(
                    status_of_head(&server, &head),
                    401,
                    "{path} {length} {key:?}"
                );
            }
        }
        // What is wrong with the body is told to those who may ask.
        for body in [&b"{"[..], b"", b"[]", b"{\"model\": 5}", b"\xff"] {
            let request = Request::raw(path, body);
            assert_eq!(server.send(&request).status(), 401);
            let known = request.header("authorization", "Bearer bobs-key");
            assert_eq!(server.send(&known).status(), 400);
        }
        let text = Request::raw(path, b"{}").header("content-type", "text/plain");
        assert_eq!(server.send(&text).status(), 401);
    }
    assert_eq!(server.metric("mortise_request_body_bytes"), 0.0);
    server.assert_sound();
}

#[test]
fn who_has_used_up_a_limit_sends_no_body_and_being_asked_twice_costs_once() {
    let mut server = Server::scripted("default = \"x\"", AUTH);
    let request = Request::post(CHAT, &chat("Hi")).header("authorization", "Bearer alices-key");
    for left in ["2", "1", "0"] {
        let response = server.send(&request);
        response.ok();
        assert_eq!(
            response.header("x-ratelimit-remaining-requests"),
            Some(left)
        );
    }
    let head = head(CHAT, Some("alices-key"), 1_000_000);
    assert_eq!(status_of_head(&server, &head), 429);
    let refused = server.send(&request);
    assert_eq!(refused.status(), 429);
    assert!(refused.header("retry-after").is_some());
    server.assert_sound();
}

const TIGHT: &str = "[server]\nmax_body_bytes = 100000\nbody_timeout_ms = 60000\n\
                     [limits]\nmax_body_bytes_in_flight = 400000\n";

#[test]
fn bodies_in_flight_are_bounded_and_shared_by_address() {
    let mut server = Server::scripted("default = \"x\"", TIGHT);
    // One address takes what it can; the last quarter is not for it.
    let announced = head(CHAT, None, 100_000);
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&server, Some("127.0.0.2"));
        stream.write_all(announced.as_bytes()).expect("write");
        held.push(stream);
    }
    until("three bodies are being read", || {
        server.metric("mortise_request_body_bytes") == 300_000.0
    });
    let mut more = connect(&server, Some("127.0.0.2"));
    more.write_all(announced.as_bytes()).expect("write");
    assert_eq!(status(&mut more), 503);
    let mut rest = String::new();
    more.read_to_string(&mut rest).expect("the answer");
    assert!(
        rest.contains("retry-after: 1") && rest.contains("body_memory_full"),
        "{rest}"
    );
    // Another one is served meanwhile.
    let mut request = chat("Hi");
    request["user"] = json!("u".repeat(100));
    for _ in 0..5 {
        server.post(CHAT, &request).ok();
    }
    let mut other = connect(&server, Some("127.0.0.3"));
    other.write_all(announced.as_bytes()).expect("write");
    until("the other's body is being read", || {
        server.metric("mortise_request_body_bytes") == 400_000.0
    });
    // Who leaves gives back what was held.
    drop((held, other, more));
    until("nothing is held", || {
        server.metric("mortise_request_body_bytes") == 0.0
    });
    server.post(CHAT, &request).ok();
    assert!(server.metric("mortise_request_bodies_refused_total") >= 1.0);
    server.assert_sound();
}

#[test]
fn tenants_behind_one_address_do_not_starve_each_other() {
    let keys = "[[auth.api_keys]]\nid = \"h\"\nkey = \"hogs-key\"\ntenant = \"hog\"\n\
                [[auth.api_keys]]\nid = \"o\"\nkey = \"others-key\"\ntenant = \"other\"\n";
    let mut server = Server::scripted("default = \"x\"", &format!("{keys}{TIGHT}"));
    let announced = head(CHAT, Some("hogs-key"), 100_000);
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&server, None);
        stream.write_all(announced.as_bytes()).expect("write");
        held.push(stream);
    }
    until("three bodies are being read", || {
        server.metric("mortise_request_body_bytes") == 300_000.0
    });
    assert_eq!(status_of_head(&server, &announced), 503);
    let request = Request::post(CHAT, &chat("Hi")).header("authorization", "Bearer others-key");
    for _ in 0..5 {
        server.send(&request).ok();
    }
    let mut other = connect(&server, None);
    let own = head(CHAT, Some("others-key"), 100_000);
    other.write_all(own.as_bytes()).expect("write");
    until("the other's body is being read", || {
        server.metric("mortise_request_body_bytes") == 400_000.0
    });
    drop((held, other));
    server.assert_sound();
}

#[test]
fn bodies_without_a_length_are_bounded_as_they_come() {
    let mut server = Server::scripted("default = \"x\"", TIGHT);
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    let chunk = format!("{:x}\r\n{}\r\n", 90_000, " ".repeat(90_000));
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut stream = connect(&server, None);
        stream.write_all(head.as_bytes()).expect("write");
        let _ = stream.write_all(chunk.as_bytes());
        held.push(stream);
    }
    until("some are refused", || {
        server.metric("mortise_request_bodies_refused_total") >= 1.0
    });
    assert!(server.metric("mortise_request_body_bytes") <= 400_000.0);
    drop(held);
    until("nothing is held", || {
        server.metric("mortise_request_body_bytes") == 0.0
    });
    server.assert_sound();
}

#[test]
fn half_sent_bodies_do_not_hold_up_the_end() {
    let script = "default = \"abcdefghij\"\ntoken_delay_ms = 20\nrepeat = 4";
    for sent in [
        head(CHAT, None, 1000),
        head(CHAT, None, 1000) + "{\"model\"",
        head(CHAT, None, 1000)[..60].to_owned(),
        "P".to_owned(),
        String::new(),
    ] {
        let mut server = Server::scripted(script, "[server]\ndrain_seconds = 600\n");
        let mut half = connect(&server, None);
        half.write_all(sent.as_bytes()).expect("write");
        // What is complete is answered to its end.
        let whole = Request::post(CHAT, &chat("Hi")).begin(server.address());
        until("the answer is being made", || {
            server.metric("mortise_requests_in_flight") >= 2.0
        });
        server.signal("TERM");
        whole.response().ok();
        assert_eq!(server.wait().code(), Some(0), "{sent:?}");
        let mut answer = String::new();
        let _ = half.read_to_string(&mut answer);
        if sent.contains("\r\n\r\n") {
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("server_stopping"), "{answer}");
        }
    }
}

/// Keyless streams of HTTP/2 are answered before their bodies, and hold no memory.
#[test]
fn streams_without_a_key_hold_nothing() {
    let mut server = Server::scripted("default = \"x\"", AUTH);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let address = server.address().to_owned();
    let statuses = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(&address)
            .await
            .expect("connect");
        let (requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let mut uploads = Vec::new();
        for _ in 0..100 {
            let request = http::Request::post(format!("http://{address}{CHAT}"))
                .header("content-type", "application/json")
                .body(())
                .expect("a request");
            let mut requests = requests.clone().ready().await.expect("ready");
            let (answer, upload) = requests.send_request(request, false).expect("sent");
            uploads.push((answer, upload));
        }
        let mut statuses = Vec::new();
        for (answer, mut upload) in uploads {
            let _ = upload.send_data(hyper::body::Bytes::from(vec![b' '; 1 << 20]), false);
            let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
            statuses.push(
                answer
                    .expect("in time")
                    .expect("an answer")
                    .status()
                    .as_u16(),
            );
        }
        statuses
    });
    assert_eq!(statuses, vec![401; 100]);
    assert_eq!(server.metric("mortise_request_body_bytes"), 0.0);
    server.assert_sound();
}

/// Memory of the values is known before they are made, whatever the dialect.
#[test]
fn small_bodies_of_many_values_are_refused_before_they_are_parsed() {
    let mut server = Server::scripted("default = \"x\"", TIGHT);
    let many = |field: &str, item: &str, count: usize| {
        let items = vec![item; count].join(",");
        format!("{{\"model\":\"scripted\",\"{field}\":[{items}]}}")
    };
    let message = "{\"role\":\"user\",\"content\":\"a\"}";
    for (path, body) in [
        ("/v1/responses", many("tools", "{\"type\":\"x\"}", 1000)),
        ("/v1/responses", many("input", message, 1000)),
        ("/v1/responses/input_tokens", many("input", message, 1000)),
        (TEXT, many("prompt", "7", 4000)),
        ("/v1/rerank", many("documents", "\"a\"", 4000)),
        (CHAT, many("messages", message, 1000)),
        ("/api/chat", many("messages", message, 1000)),
        ("/v1/messages", many("messages", message, 1000)),
    ] {
        assert!(body.len() < 40_000, "{path}");
        let head = head(path, None, body.len());
        let mut stream = connect(&server, None);
        stream.write_all(head.as_bytes()).expect("write");
        stream.write_all(body.as_bytes()).expect("write");
        assert_eq!(status(&mut stream), 413, "{path}");
    }
    // Fewer are taken, one after another, and nothing stays reserved.
    let few =
        json!({"model": "scripted", "input": vec![json!({"role": "user", "content": "a"}); 20]});
    for _ in 0..5 {
        server.post("/v1/responses", &few).ok();
    }
    until("nothing is held", || {
        server.metric("mortise_request_body_bytes") == 0.0
    });
    server.assert_sound();
}
