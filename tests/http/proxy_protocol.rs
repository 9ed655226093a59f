//! Connections that a proxy passes on with the PROXY protocol.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::client::{Request, connect_from};
use crate::support::{PATIENCE, Server};

const TABLES: &str = "[server]\nproxy_protocol = true\nheader_timeout_ms = 1000\n\
                      [auth]\ntrusted_proxies = [\"127.0.0.1\"]\n";

/// Version 2 for a client at 192.0.2.8, with a further field.
const SECOND: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\xc0\0\x02\x08\xc0\0\x02\x01\x9c\x40\x01\xbb\x04\0\x01\0";

/// Answer of the server to bytes, until it closes the connection.
fn answer(mut stream: TcpStream, bytes: &[u8]) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(bytes).expect("write");
    let mut answer = Vec::new();
    // A connection that is refused may be reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into_bytes()
}

#[test]
fn feature_t20_a_trusted_proxy_names_the_client_in_both_versions() {
    let server = Server::scripted("default = \"x\"", TABLES);
    let connect = || TcpStream::connect(server.address()).expect("connect");
    for (header, path, peer) in [
        (
            &b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 443\r\n"[..],
            "/v1/first",
            "192.0.2.7",
        ),
        (
            b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n",
            "/v1/sixth",
            "2001:db8::7",
        ),
        (SECOND, "/v1/second", "192.0.2.8"),
        (b"PROXY UNKNOWN\r\n", "/v1/unknown", "127.0.0.1"),
    ] {
        let said = answer(connect(), &[header, &get(path)].concat());
        assert!(said.starts_with("HTTP/1.1 404"), "{said}");
        let peer = format!("peer={peer} ");
        let quoted = format!("peer=\"{}\"", peer.trim_start_matches("peer=").trim());
        server.wait_for_log(|line| line.contains(&peer) || line.contains(&quoted));
    }
}

#[test]
fn feature_t20_without_a_header_a_proxy_gets_nothing_and_others_are_read_as_http() {
    let mut server = Server::scripted("default = \"x\"", TABLES);
    let connect = || TcpStream::connect(server.address()).expect("connect");
    let endless = [b"PROXY ".as_slice(), &[b'x'; 4096]].concat();
    let long = [&SECOND[..14], b"\xff\xff", &[0; 4096]].concat();
    for bytes in [
        &get("/health")[..],
        b"PROXY TCP9 a b c d\r\n",
        &endless,
        &long,
    ] {
        assert_eq!(answer(connect(), bytes), "");
    }
    // One that says nothing is not waited for without end.
    assert_eq!(answer(connect(), b"PROXY TCP4 192.0"), "");
    let stranger = "127.0.0.2".parse().expect("an address");
    let open = connect_from(Some(stranger), server.address()).expect("connect");
    assert!(answer(open, &get("/health")).starts_with("HTTP/1.1 200"));
    let open = connect_from(Some(stranger), server.address()).expect("connect");
    let said = answer(open, &[SECOND, &get("/health")].concat());
    assert!(!said.contains(" 200 "), "{said}");
    let request = Request::get("/health").from(stranger);
    assert_eq!(server.send(&request).status(), 200);
    server.assert_sound();
}
