//! Many streams at once, over server-sent events and WebSockets, of chats and of responses: each says what the same
//! request says when it is asked alone and not streamed.

use std::thread;

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::responses::RESPONSES;
use crate::sockets::Socket;
use crate::support::Server;

const STREAMS: usize = 256;
/// Requests that differ.
const KINDS: usize = 16;

/// Ways to ask.
#[derive(Debug, Clone, Copy)]
enum Way {
    ChatEvents,
    ChatSocket,
    ResponseEvents,
    ResponseSocket,
}

const WAYS: [Way; 4] = [
    Way::ChatEvents,
    Way::ChatSocket,
    Way::ResponseEvents,
    Way::ResponseSocket,
];

/// Text, reasoning before the rest, and number of its tokens.
type Said = (String, u64);

fn chat(number: usize) -> Value {
    json!({
        "model": "mortise-demo", "messages": [{"role": "user", "content": text(number)}],
        "max_tokens": 24, "temperature": 0.9, "seed": number,
    })
}

fn response(number: usize) -> Value {
    json!({
        "model": "mortise-demo", "input": text(number), "store": false,
        "max_output_tokens": 24, "temperature": 0.9, "seed": number,
    })
}

fn text(number: usize) -> String {
    format!("What is {number} + {}?", number * 7)
}

fn tokens(usage: &Value, name: &str) -> u64 {
    usage[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no `{name}`: {usage}"))
}

/// Reasoning and content of a message or of a chunk.
fn of_message(message: &Value) -> String {
    let parts = ["reasoning_content", "content"].map(|name| message[name].as_str());
    parts.into_iter().flatten().collect()
}

fn alone(server: &Server, way: Way, number: usize) -> Said {
    match way {
        Way::ChatEvents | Way::ChatSocket => {
            let whole = server.post(CHAT, &chat(number)).ok();
            let text = of_message(&whole["choices"][0]["message"]);
            (text, tokens(&whole["usage"], "completion_tokens"))
        }
        Way::ResponseEvents | Way::ResponseSocket => {
            let whole = server.post(RESPONSES, &response(number)).ok();
            let items = whole["output"].as_array().expect("items").iter();
            let parts = items.flat_map(|item| item["content"].as_array().expect("content"));
            let texts = parts.filter_map(|part| part["text"].as_str());
            (texts.collect(), tokens(&whole["usage"], "output_tokens"))
        }
    }
}

fn of_chunks(chunks: &[Value]) -> Said {
    let deltas = chunks
        .iter()
        .map(|chunk| of_message(&chunk["choices"][0]["delta"]));
    let usage = &chunks.last().expect("chunks")["usage"];
    (deltas.collect(), tokens(usage, "completion_tokens"))
}

fn of_events(events: &[Value]) -> Said {
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
    }
    let last = &events.last().expect("events")["response"];
    let deltas = events.iter().filter_map(|event| event["delta"].as_str());
    (deltas.collect(), tokens(&last["usage"], "output_tokens"))
}

fn streamed(server: &Server, way: Way, number: usize) -> Said {
    let (mut chat, mut response) = (chat(number), response(number));
    chat["stream_options"] = json!({"include_usage": true});
    match way {
        Way::ChatEvents => {
            chat["stream"] = json!(true);
            of_chunks(&server.post(CHAT, &chat).events())
        }
        Way::ResponseEvents => {
            response["stream"] = json!(true);
            of_events(&server.post(RESPONSES, &response).events())
        }
        Way::ChatSocket => {
            let (status, mut socket) = Socket::open(server, CHAT, "");
            assert_eq!(status, 101);
            socket.ask(&chat);
            of_chunks(&socket.chunks())
        }
        Way::ResponseSocket => {
            let (status, mut socket) = Socket::open(server, RESPONSES, "");
            assert_eq!(status, 101);
            response["type"] = json!("response.create");
            socket.ask(&response);
            let mut events = vec![socket.json()];
            while let Some(last) = events.last()
                && last["response"]["usage"].is_null()
            {
                assert_ne!(last["type"], "error", "{last}");
                events.push(socket.json());
            }
            of_events(&events)
        }
    }
}

#[test]
fn feature_e26_f11_256_streams_at_once_say_what_each_says_alone() {
    let mut server = Server::start(&[]);
    let number = |stream: usize| (stream / WAYS.len()) % KINDS;
    let way = |stream: usize| WAYS[stream % WAYS.len()];
    let alone: Vec<Said> = (0..KINDS * WAYS.len())
        .map(|stream| alone(&server, way(stream), number(stream)))
        .collect();
    assert!(
        alone
            .iter()
            .all(|(text, count)| !text.is_empty() && *count > 2)
    );
    thread::scope(|scope| {
        let server = &server;
        let begun: Vec<_> = (0..STREAMS)
            .map(|stream| scope.spawn(move || streamed(server, way(stream), number(stream))))
            .collect();
        for (stream, said) in begun.into_iter().enumerate() {
            let said = said.join().expect("an answer");
            let expected = &alone[stream % alone.len()];
            assert_eq!(&said, expected, "{:?} of {}", way(stream), number(stream));
        }
    });
    server.assert_sound();
}
