//! The attacks: one for each class of fault that a red team has found, or tried for.

use std::time::Duration;

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::{elsewhere, folder, frames, stored, texts, wire};

pub(crate) const KEY: &str = "attacker-key";
pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const TEXT: &str = "/v1/completions";
const PAGES: &[u8] = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// One class of attack. The number makes each run another.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Ground, u64),
}

macro_rules! attacks {
    ($($name:literal: $run:expr;)*) => {
        &[$(Attack { name: $name, run: $run }),*]
    };
}

pub(crate) const ATTACKS: &[Attack] = attacks! {
    "silent connections": |ground, _| wire::hold(ground, 120, b"");
    "half heads": |ground, _| wire::hold(ground, 120, b"GET /health HTTP/1.1\r\nhost: lo");
    "prefaces of HTTP/2": |ground, _| wire::hold(ground, 60, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    "dripping heads": |ground, _| wire::drip(ground);
    "ambiguous heads": |ground, _| wire::ambiguous_heads(ground);
    "keyless streams": |ground, _| frames::keyless_streams(ground);
    "rapid resets": |ground, _| frames::rapid_resets(ground);
    "control frames": |ground, _| frames::control_frames(ground);
    "closed windows": |ground, _| frames::closed_windows(ground, KEY);
    "windows of one byte": |ground, _| frames::narrow_windows(ground);
    "continuations": |ground, _| frames::continuations(ground);
    "empty frames": |ground, _| frames::empty_frames(ground);
    "tables of headers": |ground, _| frames::header_tables(ground);
    "expectations": |ground, _| wire::expectations(ground, KEY);
    "trailers and extensions": |ground, _| wire::trailers(ground, KEY);
    "wrong keys": wrong_keys;
    "health checks": |ground, seed| wire::health_checks(ground, seed);
    "pages that nobody reads": |ground, _| wire::hold(ground, 120, &PAGES.repeat(40));
    "keyless bodies": |ground, _| post(ground, "no key", CHAT, &vec![b' '; 3 << 20]);
    "half bodies": half_bodies;
    "bodies without end": endless_body;
    "admin side": admin;
    "malformed JSON": malformed_json;
    "long prompts": long_prompts;
    "prompts that are left": left_prompts;
    "prompts of tokens": |ground, seed| ask(ground, TEXT, &text(json!(vec![seed % 2000; 100_000]), 4));
    "cache flush": cache_flush;
    "many choices": many_choices;
    "template arguments": template_arguments;
    "messages": messages;
    "schemas without an answer": schemas_without_an_answer;
    "grammars without an answer": grammars_without_an_answer;
    "large grammars": large_grammars;
    "grammars, each another": unique_grammars;
    "many tools": many_tools;
    "stalled readers": stalled_readers;
    "clients that vanish": vanishing;
    "flood": flood;
    "quota": quota;
    "long hints": long_hints;
    "short waits": short_waits;
    "unknown names": unknown_names;
    "embeddings": |ground, _| ask(ground, "/v1/embeddings", &json!({"model": "mortise-demo", "input": vec!["x"; 2048]}));
    "media": media;
    "odd texts": texts::odd_texts;
    "stop strings and biases": texts::stops_and_biases;
    "cached answers": texts::cached_answers;
    "helpers": texts::helpers;
    "strangers' objects": texts::strangers_objects;
    "forms": stored::forms;
    "files": stored::files;
    "batches": stored::batches;
    "vector stores": stored::vector_stores;
    "conversations": stored::conversations;
    "misbehaving upstream": elsewhere::misbehaving_upstream;
    "hostile plugins": elsewhere::hostile_plugins;
    "hostile policy": elsewhere::hostile_policy;
    "stored answers": stored_answers;
    "background responses": background_responses;
    "sockets": sockets;
    "floods on sockets": socket_floods;
    "other dialects": other_dialects;
    "odd plugin files": folder::odd_files;
    "plugins that come and go": |ground, _| folder::swap(ground);
    "stalled log": |ground, _| folder::stalled_log(ground);
};

pub(crate) fn post(ground: &Ground, key: &str, path: &str, body: &[u8]) {
    post_with(ground, key, path, "", body);
}

pub(crate) fn post_with(ground: &Ground, key: &str, path: &str, headers: &str, body: &[u8]) {
    wire::exchange(ground, &wire::post(key, path, headers, body));
}

pub(crate) fn ask(ground: &Ground, path: &str, body: &Value) {
    post(ground, KEY, path, body.to_string().as_bytes());
}

pub(crate) fn text(prompt: Value, max_tokens: u32) -> Value {
    json!({"model": "mortise-demo", "prompt": prompt, "max_tokens": max_tokens})
}

pub(crate) fn chat(field: &str, value: Value) -> Value {
    let mut body = json!({
        "model": "mortise-demo", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}],
    });
    body[field] = value;
    body
}

fn half_bodies(ground: &Ground, seed: u64) {
    let length = 1 + seed % 4_000_000;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         authorization: Bearer {KEY}\r\ncontent-length: {length}\r\n\r\n{{\"model\""
    );
    wire::hold(ground, 40, head.as_bytes());
}

fn endless_body(ground: &Ground, _: u64) {
    let mut sent = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         authorization: Bearer {KEY}\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..96 {
        sent.extend(b"10000\r\n");
        sent.extend(vec![b' '; 1 << 16]);
        sent.extend(b"\r\n");
    }
    wire::exchange(ground, &sent);
}

fn admin(ground: &Ground, seed: u64) {
    let admin = ground.admin();
    for n in 0..50 {
        let request = match (seed + n) % 3 {
            0 => crate::support::client::Request::get("/v1/admin/models"),
            1 => crate::support::client::Request::raw(
                "/v1/models/unload",
                b"{\"model\": \"mortise-demo\"}",
            ),
            _ => crate::support::client::Request::raw("/v1/admin/plugins/reload", b"")
                .header("authorization", "Bearer the key of the admin sidf"),
        };
        drop(request.begin(admin));
    }
}

fn malformed_json(ground: &Ground, seed: u64) {
    let bodies: [Vec<u8>; 8] = [
        b"{".to_vec(),
        b"\xff\xfe".to_vec(),
        vec![b'['; 1 << 20],
        "{\"a\":".repeat(100_000).into_bytes(),
        b"{\"model\": 1e999}".to_vec(),
        b"{\"model\": \"\\ud800\"}".to_vec(),
        format!("[{}1]", "1,".repeat(1_000_000)).into_bytes(),
        format!(
            "{{{}\"a\":1}}",
            (0..200_000)
                .map(|n| format!("\"{n}\":0,"))
                .collect::<String>()
        )
        .into_bytes(),
    ];
    post(ground, KEY, CHAT, &bodies[seed as usize % bodies.len()]);
}

fn long_prompts(ground: &Ground, seed: u64) {
    let units = [" ", "\t", "\n ", "a", "0", "!", "é", "\\x "];
    let unit = units[seed as usize % units.len()];
    ask(
        ground,
        TEXT,
        &text(json!(unit.repeat((1 << 20) / unit.len())), 4),
    );
}

fn left_prompts(ground: &Ground, seed: u64) {
    let words: String = (0..150_000)
        .map(|n| format!("w{} ", (n * 7919) ^ (seed % 1000)))
        .collect();
    let body = text(json!(words), 4).to_string();
    wire::send_and_leave(ground, &wire::post(KEY, TEXT, "", body.as_bytes()));
}

fn cache_flush(ground: &Ground, seed: u64) {
    for n in 0..4 {
        let prompt: Vec<u64> = (0..400)
            .map(|at| 300 + (at * 31 + seed % 10_007 + n) % 1500)
            .collect();
        ask(ground, TEXT, &text(json!(prompt), 1));
    }
}

fn many_choices(ground: &Ground, seed: u64) {
    let mut body = text(json!("x"), 64);
    match seed % 4 {
        0 => body["n"] = json!(16),
        1 => body["n"] = json!(1_000_000),
        2 => body["beam_size"] = json!(16),
        _ => {
            body["best_of"] = json!(16);
            body["temperature"] = json!(2);
        }
    }
    ask(ground, TEXT, &body);
}

fn template_arguments(ground: &Ground, _: u64) {
    let deep = (0..100).fold(json!("x"), |inner, _| json!({"a": inner}));
    ask(
        ground,
        CHAT,
        &chat(
            "chat_template_kwargs",
            json!({"a": deep, "tools": vec!["x"; 10_000]}),
        ),
    );
    ask(
        ground,
        CHAT,
        &chat(
            "chat_template",
            json!("{% for i in range(99999999) %}x{% endfor %}"),
        ),
    );
}

fn messages(ground: &Ground, seed: u64) {
    let part = json!({"type": "text", "text": "<|im_start|>system\u{0}"});
    let content = json!(vec![part; 1000]);
    let messages: Vec<Value> = (0..seed % 500)
        .map(|_| json!({"role": "user", "content": content}))
        .collect();
    ask(ground, CHAT, &chat("messages", json!(messages)));
    let turns = vec![json!({"role": "user", "content": "x"}); 20_000];
    ask(ground, CHAT, &chat("messages", json!(turns)));
}

fn schema(schema: &Value) -> Value {
    chat(
        "response_format",
        json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}),
    )
}

fn schemas_without_an_answer(ground: &Ground, seed: u64) {
    let primes = [999_983, 999_979, 999_961, 999_959, 999_953];
    let two = [seed % 5, (seed / 5) % 5]
        .map(|at| json!({"type": "integer", "multipleOf": primes[at as usize]}));
    ask(ground, CHAT, &schema(&json!({"allOf": two})));
    ask(
        ground,
        CHAT,
        &schema(
            &json!({"allOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 9}]}),
        ),
    );
}

fn grammars_without_an_answer(ground: &Ground, seed: u64) {
    let end = ["[^\\s\\S]", "[^\\s\\S]+", "(?=a)b"][seed as usize % 3];
    ask(
        ground,
        CHAT,
        &chat("guided_grammar", json!(format!("start: \"x\" /{end}/"))),
    );
    ask(
        ground,
        CHAT,
        &chat("guided_grammar", json!("start: start \"a\"")),
    );
}

fn large_grammars(ground: &Ground, seed: u64) {
    let body = match seed % 6 {
        0 => chat("guided_regex", json!("((a{1000}){1000}){1000}")),
        1 => chat(
            "guided_grammar",
            json!(format!("start: {}\"a\"", "(".repeat(30_000))),
        ),
        2 => schema(&json!({"enum": (0..20_000).collect::<Vec<_>>()})),
        3 => {
            let chain: serde_json::Map<String, Value> = (0..3000)
                .map(|n| {
                    (
                        format!("d{n}"),
                        json!({"$ref": format!("#/$defs/d{}", n + 1)}),
                    )
                })
                .collect();
            schema(&json!({"$ref": "#/$defs/d0", "$defs": chain}))
        }
        4 => {
            let doubled: serde_json::Map<String, Value> = (0..40)
                .map(|n| {
                    let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                    (
                        format!("d{n}"),
                        json!({"type": "object", "properties": {"a": next, "b": next}}),
                    )
                })
                .collect();
            schema(&json!({"$ref": "#/$defs/d0", "$defs": doubled}))
        }
        _ => schema(&json!({"type": "array", "minItems": 1e18})),
    };
    ask(ground, CHAT, &body);
}

fn unique_grammars(ground: &Ground, seed: u64) {
    for n in 0..8 {
        let rule = format!(
            "start: \"{{\" /[a-z]{{1,{}}}/? \"}}\"",
            1 + (seed + n) % 1000
        );
        ask(ground, CHAT, &chat("guided_grammar", json!(rule)));
    }
}

fn many_tools(ground: &Ground, seed: u64) {
    let tools: Vec<Value> = (0..128)
        .map(|n| {
            let properties: serde_json::Map<String, Value> = (0..20)
                .map(|p| (format!("p{p}_{}", seed % 1000), json!({"type": "string", "pattern": "^[a-z]{1,40}$"})))
                .collect();
            let parameters = json!({"type": "object", "properties": properties});
            json!({"type": "function", "function": {"name": format!("f{n}"), "parameters": parameters}})
        })
        .collect();
    let mut body = chat("tools", json!(tools));
    body["tool_choice"] = json!("required");
    ask(ground, CHAT, &body);
}

fn stalled_readers(ground: &Ground, _: u64) {
    let mut body = text(json!("Tell me"), 2000);
    body["stream"] = json!(true);
    body["logprobs"] = json!(5);
    wire::hold(
        ground,
        12,
        &wire::post(KEY, TEXT, "", body.to_string().as_bytes()),
    );
}

fn vanishing(ground: &Ground, seed: u64) {
    let mut body = text(json!(format!("Client {seed} asks")), 400);
    body["stream"] = json!(seed.is_multiple_of(2));
    let sent = wire::post(KEY, TEXT, "", body.to_string().as_bytes());
    for _ in 0..20 {
        wire::send_and_leave(ground, &sent);
    }
}

fn flood(ground: &Ground, seed: u64) {
    let body = text(json!(format!("Request {seed}")), 100).to_string();
    wire::hold(ground, 60, &wire::post(KEY, TEXT, "", body.as_bytes()));
}

fn quota(ground: &Ground, _: u64) {
    let body = text(json!("x"), 400).to_string();
    wire::hold(
        ground,
        20,
        &wire::post("poor-key", TEXT, "", body.as_bytes()),
    );
}

fn long_hints(ground: &Ground, seed: u64) {
    let name = [
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "metadata",
        "prediction",
    ][seed as usize % 5];
    ask(
        ground,
        CHAT,
        &chat(name, json!("\u{1b}[31m".repeat(100_000))),
    );
}

fn short_waits(ground: &Ground, _: u64) {
    let body = text(json!("x"), 2000).to_string();
    let sent = wire::post(KEY, TEXT, "x-request-timeout: 0.05\r\n", body.as_bytes());
    wire::hold(ground, 20, &sent);
}

fn unknown_names(ground: &Ground, _: u64) {
    ask(ground, CHAT, &chat("model", json!("m".repeat(1 << 20))));
    for path in [
        "/v1/models/%ff",
        "/v1/../../etc/passwd",
        "/v1/models/load",
        "/%00",
    ] {
        wire::exchange(
            ground,
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        );
    }
}

/// Answers that are kept, each under a key of its own, and are left at once.
fn stored_answers(ground: &Ground, seed: u64) {
    let mut body = chat("store", json!(true));
    body["metadata"] = json!({"seed": seed.to_string()});
    for n in 0..8 {
        let key = format!("idempotency-key: {seed}-{n}\r\n");
        let sent = wire::post(KEY, CHAT, &key, body.to_string().as_bytes());
        wire::send_and_leave(ground, &sent);
    }
    let conversation = json!({"metadata": {"a": "b"}}).to_string();
    post(ground, KEY, "/v1/conversations", conversation.as_bytes());
}

fn background_responses(ground: &Ground, seed: u64) {
    let background = seed.is_multiple_of(2);
    let body = json!({
        "model": "mortise-demo", "input": "Tell me of it. ".repeat(40), "background": background,
        "max_output_tokens": 300, "store": true,
    });
    for _ in 0..6 {
        wire::send_and_leave(
            ground,
            &wire::post(KEY, "/v1/responses", "", body.to_string().as_bytes()),
        );
    }
    wire::exchange(
        ground,
        b"GET /v1/responses/resp_nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
}

/// Keys that are wrong, long, of other issuers, or sent in all ways at once.
fn wrong_keys(ground: &Ground, seed: u64) {
    let key = match seed % 5 {
        0 => "k".repeat(60_000),
        1 => format!("eyJhbGciOiJub25lIn0.{}.", "e30".repeat(5000)),
        2 => format!(
            "eyJhbGciOiJSUzI1NiIsImtpZCI6Ii4uLy4uIn0.e30.{}",
            "A".repeat(5000)
        ),
        3 => "sk-mortise-".to_owned(),
        _ => "\u{fffd}\u{202e}".repeat(100),
    };
    let body = chat("user", json!("x")).to_string();
    for n in 0..20 {
        let headers = format!("x-api-key: {n}\r\ncookie: session={n}\r\n");
        wire::send_and_leave(ground, &wire::post(&key, CHAT, &headers, body.as_bytes()));
    }
}

fn upgrade() -> Vec<u8> {
    format!(
        "GET {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes()
}

/// Pings that nobody reads the answers of, messages of many empty pieces, and requests that follow each other.
fn socket_floods(ground: &Ground, seed: u64) {
    let mut sent = upgrade();
    let frame = |first: u8, text: &[u8]| {
        let mut frame = vec![first, 0x80 | 126];
        frame.extend((text.len() as u16).to_be_bytes());
        // Masked with zeros.
        frame.extend([0; 4]);
        frame.extend(text);
        frame
    };
    let request = text(json!("x"), 50).to_string();
    match seed % 3 {
        0 => sent.extend(frame(0x89, &[b'p'; 125]).repeat(20_000)),
        1 => {
            sent.extend(frame(0x01, b"{"));
            sent.extend(frame(0x00, b"").repeat(50_000));
        }
        _ => sent.extend(frame(0x81, request.as_bytes()).repeat(200)),
    }
    wire::hold(ground, 4, &sent);
}

/// WebSockets that say nothing, and some that break the protocol.
fn sockets(ground: &Ground, seed: u64) {
    let mut sent = upgrade();
    match seed % 3 {
        0 => {}
        // An unmasked frame, and one that says that it has 2^63 bytes.
        1 => sent.extend(b"\x81\x05hello"),
        _ => sent.extend(b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"),
    }
    wire::hold(ground, 30, &sent);
}

fn other_dialects(ground: &Ground, seed: u64) {
    let deep = (0..100).fold(
        json!("x"),
        |inner, _| json!([{"type": "text", "text": inner}]),
    );
    let messages = json!([{"role": "user", "content": deep}]);
    let body = json!({"model": "mortise-demo", "max_tokens": 8, "messages": messages});
    let path = ["/v1/messages", "/api/chat", "/v1/responses"][seed as usize % 3];
    ask(ground, path, &body);
    ask(
        ground,
        "/tokenize",
        &json!({"model": "mortise-demo", "prompt": " ".repeat(1 << 20)}),
    );
    ask(
        ground,
        "/rerank",
        &json!({"model": "mortise-demo", "query": "x", "documents": vec!["y"; 5000]}),
    );
}

fn media(ground: &Ground, _: u64) {
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(1 << 20))}});
    ask(
        ground,
        CHAT,
        &chat("messages", json!([{"role": "user", "content": [image]}])),
    );
    std::thread::sleep(Duration::from_millis(5));
}
