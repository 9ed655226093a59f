//! Upstreams that misbehave: each ends one request with one clear error, and costs nobody else anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, events};
use crate::support::upstream::{Asked, FakeUpstream};
use crate::{CHAT, chat, content, in_front_of, streamed};

type Misbehave = fn(&mut Asked);

/// Ways to misbehave before an answer has begun, with the status, the code, and words of the message.
const AT_THE_START: &[(&str, Misbehave, u16, &str, &str)] = &[
    ("closes", |_| {}, 502, "upstream_error", "broke off"),
    (
        "garbage",
        |asked| {
            asked.write("\0\u{1}SSH-2.0\r\n\r\n");
        },
        502,
        "upstream_error",
        "broke off",
    ),
    (
        "stalls",
        Asked::wait_for_close,
        502,
        "upstream_error",
        "did not answer within",
    ),
    (
        "stalls after the head",
        |asked| {
            asked.begin();
            asked.wait_for_close();
        },
        502,
        "upstream_error",
        "sent nothing for",
    ),
    (
        "endless head",
        endless_head,
        502,
        "upstream_error",
        "broke off",
    ),
    (
        "redirect",
        |asked| asked.answer(307, "location: http://127.0.0.1:1/steal\r\n", ""),
        502,
        "upstream_error",
        "redirect",
    ),
    (
        "429",
        |asked| asked.answer(429, "retry-after: 7\r\n", "{}"),
        503,
        "model_unavailable",
        "429",
    ),
    (
        "500",
        |asked| asked.answer(500, "", "Traceback: /srv/secret.py"),
        502,
        "upstream_error",
        "HTTP 500",
    ),
    (
        "400",
        |asked| asked.answer(400, "", "{\"error\":{\"message\":\"seed is odd\"}}"),
        400,
        "invalid_request",
        "seed is odd",
    ),
    (
        "404",
        |asked| asked.answer(404, "", "{}"),
        502,
        "upstream_error",
        "does not know the model",
    ),
    ("too long", too_long, 400, "context_length_exceeded", "512"),
    (
        "large error",
        |asked| asked.answer(500, "", &"x".repeat(10_000_000)),
        502,
        "upstream_error",
        "HTTP 500",
    ),
    (
        "no stream",
        |asked| asked.answer(200, "content-type: text/html\r\n", "<html>"),
        502,
        "upstream_error",
        "text/html",
    ),
    (
        "compressed",
        |asked| {
            asked.answer(
                200,
                "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n",
                "x",
            )
        },
        502,
        "upstream_error",
        "gzip",
    ),
    (
        "empty",
        |asked| asked.answer(200, "content-type: text/event-stream\r\n", ""),
        502,
        "upstream_error",
        "in the middle",
    ),
    (
        "no JSON",
        |asked| asked.answer(200, "content-type: text/event-stream\r\n", "data: x\n\n"),
        502,
        "upstream_error",
        "cannot be read",
    ),
];

/// Ways to misbehave after a word of the answer.
const IN_THE_MIDDLE: &[(&str, Misbehave, &str)] = &[
    ("closes", |_| {}, "broke off"),
    (
        "ends",
        |asked| {
            asked.write("0\r\n\r\n");
        },
        "in the middle",
    ),
    ("stalls", Asked::wait_for_close, "sent nothing for"),
    (
        "garbage",
        |asked| {
            asked.write("no chunk size\r\n");
        },
        "broke off",
    ),
    (
        "garbage in JSON",
        |asked| {
            asked.chunk("data: {\"choices\":[{]}\n\n");
        },
        "cannot be read",
    ),
    ("a line of 100 MB", long_line, "more than 1048576 bytes"),
    ("an event of 100 MB", long_event, "more than 1048576 bytes"),
    (
        "another choice",
        |asked| {
            asked.chunk("data: {\"choices\":[{\"index\":7,\"delta\":{\"content\":\"x\"}}]}\n\n");
        },
        "choice 7",
    ),
    ("calls without end", many_calls, "tool calls"),
    (
        "a failure",
        |asked| {
            asked.chunk("data: {\"error\":{\"message\":\"out of memory\"}}\n\n");
        },
        "out of memory",
    ),
    (
        "a finish that is none",
        |asked| {
            asked.finish("abort");
        },
        "abort",
    ),
];

fn endless_head(asked: &mut Asked) {
    asked.write("HTTP/1.1 200 OK\r\n");
    while asked.write(format!("x-a: {}\r\n", "a".repeat(1000))) {}
}

fn too_long(asked: &mut Asked) {
    let error = json!({"error": {
        "code": 400, "message": "the request exceeds the available context size", "n_ctx": 512,
        "n_prompt_tokens": 600, "type": "exceed_context_size_error",
    }});
    asked.answer(400, "", &error.to_string());
}

fn long_line(asked: &mut Asked) {
    let piece = "x".repeat(100_000);
    asked.chunk("data: ");
    for _ in 0..1000 {
        if !asked.chunk(&piece) {
            return;
        }
    }
}

fn long_event(asked: &mut Asked) {
    let piece = format!("data: {}\n", "x".repeat(100_000));
    for _ in 0..1000 {
        if !asked.chunk(&piece) {
            return;
        }
    }
}

fn many_calls(asked: &mut Asked) {
    for index in 0..1000 {
        let call = json!({"index": index, "id": format!("c{index}"), "function": {"name": "f"}});
        if !asked.delta(&json!({"tool_calls": [call]})) {
            return;
        }
    }
}

/// Runs an attack while the bystander is asked without pause, and checks that it always answers.
pub(crate) fn beside_a_bystander(server: &Server, attack: impl FnOnce()) {
    let over = Arc::new(AtomicBool::new(false));
    let (seen, address) = (Arc::clone(&over), server.address().to_owned());
    let bystander = std::thread::spawn(move || {
        let mut answers = 0;
        while answers < 3 || !seen.load(SeqCst) {
            let answer = Request::post(CHAT, &chat("bystander", "Hi")).send(&address);
            assert_eq!(content(&answer.ok()), "All is well.");
            answers += 1;
        }
    });
    attack();
    over.store(true, SeqCst);
    bystander.join().expect("the bystander is served");
}

/// An upstream that misbehaves in the way whose number is the message.
fn misbehaving(ways: &'static [Misbehave], begin: bool) -> FakeUpstream {
    FakeUpstream::start(move |mut asked| {
        let body = asked.request.json();
        let text = body["messages"][0]["content"].as_str().expect("a text");
        if begin {
            asked.begin();
            asked.delta(&json!({"content": "Hello"}));
        }
        ways[text.parse::<usize>().expect("a number")](&mut asked);
    })
}

/// Patient enough for a busy machine where it should answer, and quick where it never does.
const LIMITS: &str =
    "first_byte_timeout_ms = 3000\nchunk_timeout_ms = 3000\nconnect_timeout_ms = 3000";

/// A server of its own for each attack: the breaker of another would be open after some.
fn server_for(upstream: &FakeUpstream) -> Server {
    in_front_of(upstream, LIMITS)
}

fn leak(ways: Vec<Misbehave>) -> &'static [Misbehave] {
    Vec::leak(ways)
}

#[test]
fn feature_x6_streams_that_an_upstream_refuses_have_the_status_of_whole_answers() {
    let ways = leak(AT_THE_START.iter().map(|(_, way, ..)| *way).collect());
    let upstream = misbehaving(ways, false);
    // Fewer failures than a breaker waits for, on each server.
    let groups = [
        ["429", "400", "too long", "404"],
        ["closes", "500", "redirect", "no stream"],
    ];
    for group in groups {
        let mut server = server_for(&upstream);
        for wanted in group {
            let number = AT_THE_START.iter().position(|(name, ..)| *name == wanted);
            let number = number.expect("a way");
            let (name, _, status, code, words) = AT_THE_START[number];
            let answer = server.post(CHAT, &streamed("remote", &number.to_string()));
            let told = answer.text();
            assert_eq!(answer.status(), status, "{name}: {told}");
            assert_eq!(answer.json()["error"]["code"], code, "{name}: {told}");
            assert!(told.contains(words), "{name}: {told}");
            let retry = if status == 503 { Some("7") } else { None };
            assert_eq!(answer.header("retry-after"), retry, "{name}");
        }
        server.assert_sound();
    }
    assert_eq!(upstream.received().len(), 8, "nothing was asked twice");
}

#[test]
fn remote_upstreams_that_misbehave_at_the_start_are_errors() {
    let ways = leak(AT_THE_START.iter().map(|(_, way, ..)| *way).collect());
    let upstream = misbehaving(ways, false);
    for group in AT_THE_START.chunks(4) {
        let mut server = server_for(&upstream);
        beside_a_bystander(&server, || {
            for (name, _, status, code, words) in group {
                let number = AT_THE_START.iter().position(|(known, ..)| known == name);
                let text = number.expect("a number").to_string();
                let answer = server.post(CHAT, &chat("remote", &text));
                let told = answer.text();
                assert_eq!(answer.status(), *status, "{name}: {told}");
                let error = &answer.json()["error"];
                assert_eq!(error["code"], *code, "{name}: {told}");
                assert!(
                    error["message"].to_string().contains(words),
                    "{name}: {told}"
                );
                assert!(
                    !told.contains("secret") && !told.contains("steal"),
                    "{name}: {told}"
                );
                let retry = if *status == 503 { Some("7") } else { None };
                assert_eq!(answer.header("retry-after"), retry, "{name}");
            }
        });
        server.assert_sound();
    }
    let asked = upstream.received().len();
    assert_eq!(asked, AT_THE_START.len(), "nothing was asked twice");
}

#[test]
fn remote_upstreams_that_misbehave_in_the_middle_end_their_stream_with_an_error() {
    let ways = leak(IN_THE_MIDDLE.iter().map(|(_, way, _)| *way).collect());
    let upstream = misbehaving(ways, true);
    for group in IN_THE_MIDDLE.chunks(2) {
        let mut server = server_for(&upstream);
        beside_a_bystander(&server, || {
            for (name, _, words) in group {
                let number = IN_THE_MIDDLE.iter().position(|(known, ..)| known == name);
                let text = number.expect("a number").to_string();
                let whole = server.post(CHAT, &chat("remote", &text));
                assert_eq!(whole.status(), 502, "{name}: {}", whole.text());
                assert!(whole.text().contains(words), "{name}: {}", whole.text());
                let streamed = server.post(CHAT, &streamed("remote", &text));
                assert_eq!(streamed.status(), 200, "{name}");
                let told = streamed.text();
                let parts = events(&told);
                assert!(
                    parts
                        .iter()
                        .any(|part| part["choices"][0]["delta"]["content"] == "Hello"),
                    "{name}: {told}"
                );
                let error = parts
                    .iter()
                    .find_map(|part| part["error"]["message"].as_str());
                assert!(
                    error.is_some_and(|text| text.contains(words)),
                    "{name}: {told}"
                );
            }
        });
        server.assert_sound();
    }
}

#[test]
fn remote_lengths_that_lie_are_noticed() {
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let stream = format!("{text}{end}");
    let head = |length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // Too long, and closed in the middle; too short by the end; too long behind a whole answer.
    let answers = [
        head(stream.len()) + text,
        head(text.len()) + &stream,
        head(stream.len() + 1000) + &stream,
    ];
    let upstream = FakeUpstream::start(move |mut asked| {
        let body = asked.request.json();
        let number = body["messages"][0]["content"]
            .as_str()
            .and_then(|text| text.parse::<usize>().ok());
        asked.write(&answers[number.expect("a number")]);
    });
    let mut server = server_for(&upstream);
    beside_a_bystander(&server, || {
        for (number, words) in [("0", "broke off"), ("1", "in the middle")] {
            let answer = server.post(CHAT, &chat("remote", number));
            assert_eq!(answer.status(), 502, "{}", answer.text());
            assert!(answer.text().contains(words), "{}", answer.text());
        }
        // All that was asked for is there.
        let answer: Value = server.post(CHAT, &chat("remote", "2")).ok();
        assert_eq!(content(&answer), "Hello");
    });
    server.assert_sound();
}
