//! Answers of a llama-server that are cut: by the caller, and by its end.

use crate::support::client::{Request, Stream};
use crate::support::{Server, until};
use crate::{CHAT, LlamaServer, MOMENT, asked, content, events, long, program, remote};

/// A stream of so many letters that has begun.
fn begun(server: &Server, letters: usize) -> (Stream, String) {
    let mut stream = Request::post(CHAT, &long("remote", letters)).begin(server.address());
    assert_eq!(stream.head().status, 200);
    let mut text = String::new();
    while events(&text).0.is_empty() {
        let chunk = stream.chunk().expect("the stream goes on");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    (stream, text)
}

#[test]
fn feature_b6_a_caller_that_goes_away_frees_the_slot_of_a_llama_server() {
    let Some(there) = LlamaServer::start() else {
        return;
    };
    let server = Server::configured(&remote(&there, "", ""));
    let mut freed = 0;
    for _ in 0..4 {
        let (stream, text) = begun(&server, 1400);
        // It stands still while the caller leaves, so that it cannot have come to the end before.
        there.signal("STOP");
        assert!(events(&text).0.len() < 1400, "there is something to cut");
        drop(stream);
        until("mortise has given the request up", || {
            server.metric("mortise_model_requests{") == 0.0
        });
        std::thread::sleep(MOMENT);
        there.signal("CONT");
        until("its slot is free", || there.busy() == 0);
        freed += 1;
    }
    assert_eq!(freed, 4, "more than it has slots");
    let answer = server.post(CHAT, &asked("remote", "What is mortise?")).ok();
    assert!(!content(&answer).is_empty());
}

#[test]
fn feature_x6_a_llama_server_that_ends_in_mid_stream_is_an_error_and_is_found_again() {
    let (Some(program), Some(mut there)) = (program(), LlamaServer::start()) else {
        return;
    };
    let server = Server::configured(&remote(&there, "", ""));
    let (mut stream, mut text) = begun(&server, 1400);
    there.signal("STOP");
    there.signal("KILL");
    while let Some(chunk) = stream.chunk() {
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    let (content, _, error) = events(&text);
    assert!(content.len() < 1400);
    assert_eq!(error["code"], "upstream_error", "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
    there.child.wait().expect("its end");
    let ask = || server.post(CHAT, &asked("remote", "What is mortise?"));
    let answer = ask();
    assert_eq!(answer.status(), 502, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "upstream_error");
    let port = there.port();
    drop(there);
    let _again = LlamaServer::at(&program, port, &[]);
    until("it is asked again", || ask().status() == 200);
}
