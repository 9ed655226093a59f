//! Attacks by what the server trusts least: another server that answers for a model, and plugins of an operator who was
//! deceived.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;

use crate::attacks::{CHAT, ask, chat, post_with};
use crate::ground::Ground;
use crate::support::upstream::{Asked, FakeUpstream};

/// Bytes that an upstream sends at most in one answer.
const FLOOD: usize = 64 << 20;

/// A server that answers each request in another wrong way.
pub(crate) fn upstream() -> FakeUpstream {
    let count = AtomicUsize::new(0);
    FakeUpstream::start(move |asked| misbehave(asked, count.fetch_add(1, Relaxed)))
}

fn misbehave(mut asked: Asked, number: usize) {
    match number % 12 {
        0 => drop(asked.write(vec![0xff; 1 << 20])),
        1 => {
            let line = "x".repeat(1 << 20);
            asked.write(format!("HTTP/1.1 200 OK\r\nx: {line}\r\n\r\n"));
        }
        2 => asked.answer(500, "retry-after: 99999999999\r\n", &"<".repeat(1 << 20)),
        3 => asked.answer(
            200,
            "content-type: application/json\r\n",
            &"[".repeat(1 << 20),
        ),
        // A line without an end, and events without one.
        4 => endless(asked, &"x".repeat(1 << 16)),
        5 => endless(
            asked,
            &format!(
                "data: {}\n\n",
                json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(1000)}}]})
            ),
        ),
        6 => {
            asked.begin();
            let call = json!({"tool_calls": [{"index": 4_000_000_000u32, "function": {"name": "f", "arguments": "{".repeat(100_000)}}]});
            asked.delta(&call);
            asked.finish("tool_calls");
        }
        7 => {
            asked.begin();
            std::thread::sleep(Duration::from_secs(3));
        }
        8 => {
            asked.begin();
            asked.write("ffffffffffffffff\r\n");
        }
        9 => drop(asked.write("HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n{")),
        10 => drop(asked.stream.flush()),
        _ => asked.say("Yes."),
    }
}

fn endless(mut asked: Asked, piece: &str) {
    asked.begin();
    let mut sent = 0;
    while sent < FLOOD && asked.chunk(piece) {
        sent += piece.len();
    }
}

/// A request to one of the models that attackers use beside the tenant's. What comes of it is the model's affair.
pub(crate) fn ordinary_request(ground: &Ground, model: &str) {
    ask(ground, CHAT, &chat("model", json!(model)));
    let texts = json!({"model": model, "input": ["one", "two"]});
    ask(ground, "/v1/embeddings", &texts);
}

/// Answers of another server, streamed and whole.
pub(crate) fn misbehaving_upstream(ground: &Ground, seed: u64) {
    let mut body = chat("model", json!("elsewhere"));
    for n in 0..4 {
        body["stream"] = json!((seed + n).is_multiple_of(2));
        ask(ground, CHAT, &body);
    }
}

/// Commands that the guests of the tests carry out.
const COMMANDS: [&str; 6] = ["loop", "bomb", "overflow", "print", "huge", "chatter"];

/// Requests that a grammar plugin and a guardrail do their worst on.
pub(crate) fn hostile_plugins(ground: &Ground, seed: u64) {
    let command = COMMANDS[seed as usize % COMMANDS.len()];
    let mut body = chat("model", json!("hostile"));
    if seed % 12 < 6 {
        body["guided_regex"] = json!(command);
    } else {
        body["guided_regex"] = json!(format!("then-{command}"));
    }
    ask(ground, CHAT, &body);
    let plain = chat("model", json!("hostile"));
    ask(ground, CHAT, &plain);
}

/// Headers that a policy does its worst on, small and large.
pub(crate) fn hostile_policy(ground: &Ground, seed: u64) {
    let command = COMMANDS[seed as usize % COMMANDS.len()];
    let filler = "x".repeat(if seed.is_multiple_of(2) { 20_000 } else { 10 });
    let headers = format!("x-ask: {command}\r\nx-filler: {filler}\r\n");
    let body = chat("user", json!("someone")).to_string();
    for _ in 0..3 {
        post_with(ground, "rogue-key", CHAT, &headers, body.as_bytes());
    }
}
