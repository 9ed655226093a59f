//! Places that all tenants share, and nobody waits for the whole of what another has there: lines and checks of batches,
//! embeddings, instances of plugins.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::batches::{BATCHES, lines, path_of};
use crate::files::{FILES, form, upload};
use crate::retrieval::{self, Caller};
use crate::support::client::Request;
use crate::support::{Server, until, wait_for};

const SCRIPT: &str = "default = \"Hello there, wörld 👋.\"\n";
const SLOW: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 20\n";
const KEYS: &str = "[[auth.api_keys]]\nid = \"flood\"\nkey = \"flood-key\"\ntenant = \"flood\"\n\
                    [[auth.api_keys]]\nid = \"late\"\nkey = \"late-key\"\ntenant = \"late\"\n";

fn callers(server: &Server) -> [Caller<'_>; 2] {
    ["flood-key", "late-key"].map(|key| Caller { server, key })
}

/// Id of a file for a batch.
fn input(caller: &Caller<'_>, content: &str) -> String {
    let body = form(
        &[("purpose", "batch")],
        Some(("in.jsonl", content.as_bytes())),
    );
    let request = upload(&body).header("authorization", &format!("Bearer {}", caller.key));
    let file = caller.server.send(&request).ok();
    file["id"].as_str().expect("an id").to_owned()
}

/// Path of a batch that is made.
fn batch(caller: &Caller<'_>, input: &str) -> String {
    let body = json!({"input_file_id": input, "endpoint": CHAT, "completion_window": "24h"});
    path_of(&caller.post(BATCHES, &body).ok())
}

fn complete(caller: &Caller<'_>, path: &str) -> Value {
    wait_for(|| {
        let now = caller.get(path).ok();
        match now["status"] == "completed" {
            true => Ok(now),
            false => Err(now.to_string()),
        }
    })
}

#[test]
fn lines_of_batches_take_turns_by_owner() {
    let server = Server::scripted(SLOW, &format!("[limits]\nbatch_lines = 2\n{KEYS}"));
    let [flood, late] = callers(&server);
    let (many, few) = (input(&flood, &lines(10)), input(&late, &lines(5)));
    let batches: Vec<String> = (0..20).map(|_| batch(&flood, &many)).collect();
    let answered = || {
        let counts = batches.iter().map(|path| {
            let now = flood.get(path).ok();
            now["request_counts"]["completed"]
                .as_u64()
                .expect("a count")
        });
        counts.sum::<u64>()
    };
    until("the first lines are answered", || answered() > 0);
    let before = answered();
    let done = complete(&late, &batch(&late, &few));
    assert_eq!(done["request_counts"]["completed"], 5);
    // Behind a line of each of the flood's batches for each of its own, it would have waited for a hundred.
    let meanwhile = answered() - before;
    assert!(meanwhile < 60, "{meanwhile} lines of the flood came first");
}

/// A batch that waits for memory leaves its place among those that are checked, and can be cancelled.
#[test]
fn a_batch_that_waits_for_memory_keeps_no_other_waiting() {
    let server = Server::scripted(
        SCRIPT,
        &format!(
            "[server]\nmax_body_bytes = 1000000\nbody_timeout_ms = 600000\n\
             [limits]\nmax_body_bytes_in_flight = 4000000\n{KEYS}"
        ),
    );
    let [flood, late] = callers(&server);
    let mut long = chat("Hi");
    long["messages"][0]["content"] = json!("x".repeat(200_000));
    let long = json!({"custom_id": "long", "method": "POST", "url": CHAT, "body": long});
    let long = input(&flood, &format!("{}{long}\n", lines(1)));
    let short = input(&late, &lines(3));
    // Bodies that are announced, and hold what they are said to have.
    let hold = |length: usize| {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             authorization: Bearer flood-key\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("write");
        stream
    };
    let held = [1_000_000, 1_000_000, 950_000].map(hold);
    until("the bodies are being read", || {
        server.metric("mortise_request_body_bytes") == 2_950_000.0
    });
    let stuck = [(); 3].map(|()| batch(&flood, &long));
    let done = complete(&late, &batch(&late, &short));
    assert_eq!(done["request_counts"]["completed"], 3);
    for path in &stuck {
        assert_eq!(flood.get(path).ok()["status"], "validating");
    }
    let cancel = Request::raw(&format!("{}/cancel", stuck[0]), b"")
        .header("authorization", "Bearer flood-key");
    let cancelled = server.send(&cancel).ok();
    assert!(
        ["cancelling", "cancelled"].contains(&cancelled["status"].as_str().expect("a status")),
        "{cancelled}"
    );
    drop(held);
    for path in &stuck[1..] {
        let done = complete(&flood, path);
        // The long line is longer than the context.
        let counts = json!({"total": 2, "completed": 1, "failed": 1});
        assert_eq!(done["request_counts"], counts);
    }
    let file = done["output_file_id"].as_str().expect("an id");
    assert_eq!(late.get(&format!("{FILES}/{file}")).status(), 200);
    assert_eq!(flood.get(&format!("{FILES}/{file}")).status(), 404);
}

#[test]
fn embeddings_take_turns_by_tenant() {
    const FLOOD: usize = 60;
    let server = Arc::new(retrieval::server(KEYS));
    let flood: Vec<_> = (0..FLOOD)
        .map(|number| {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                let text = format!("{number} {}", "a b ".repeat(450));
                let body = json!({"model": "embeds", "input": text});
                let [flood, _] = callers(&server);
                flood.post("/v1/embeddings", &body).ok()
            })
        })
        .collect();
    let waiting = || server.metric("mortise_queue_depth{model=\"embeds\"}");
    until("the flood waits", || waiting() >= 40.0);
    let [_, late] = callers(&server);
    let body = json!({"model": "embeds", "input": "hello"});
    late.post("/v1/embeddings", &body).ok();
    // In the order of requests, all of them would have been first.
    let left = waiting();
    assert!(left >= 15.0, "{left} of the flood wait");
    for request in flood {
        request.join().expect("no panic");
    }
}

/// A constrained answer keeps an instance of the grammar's component for as long as it takes.
#[test]
fn a_tenant_leaves_instances_of_plugins_to_others() {
    let script = format!("default = \"{}\"\ntoken_delay_ms = 200\n", "a".repeat(500));
    let mut server = Server::scripted(&script, &format!("[plugins]\ninstances = 8\n{KEYS}"));
    let ask = |key: &str, most: usize| {
        let body = json!({
            "model": "scripted", "prompt": "x", "stream": true, "max_tokens": most, "guided_regex": "a*",
        });
        let asked = Request::post("/v1/completions", &body);
        let asked = asked.header("authorization", &format!("Bearer {key}"));
        asked.begin(server.address())
    };
    let flood: Vec<_> = (0..7)
        .map(|_| {
            let mut stream = ask("flood-key", 1000);
            assert_eq!(stream.head().status, 200);
            stream.chunk().expect("a first chunk");
            stream
        })
        .collect();
    // The last one is not the flood's.
    assert_eq!(ask("flood-key", 1).response().status(), 503);
    for _ in 0..3 {
        let answer = ask("late-key", 2).response();
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    drop(flood);
    server.assert_sound();
}
