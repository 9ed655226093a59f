//! Attacks by texts: such that are hard to encode, to look for and to keep, and routes that do little else with them.

use serde_json::{Value, json};

use crate::attacks::{CHAT, TEXT, ask, chat, text};
use crate::ground::Ground;
use crate::wire;

/// Text whose normal forms, boundaries of words or pieces are hard to find.
pub(crate) fn odd_texts(ground: &Ground, seed: u64) {
    let unit = [
        "a\u{301}\u{327}\u{31b}",
        "\u{1f468}\u{200d}\u{1f469}\u{200d}",
        "\u{202e}\u{2066}x",
        "\u{fdfa}",
        "1234567890",
        "<|im_start|>",
        "\u{feff}\u{fffd}",
        "ab\u{0}\r\n",
    ][seed as usize % 8];
    let long = unit.repeat((256 << 10) / unit.len());
    match seed / 8 % 4 {
        0 => ask(ground, TEXT, &text(json!(long), 4)),
        1 => {
            let message = json!([{"role": "user", "name": long.get(..8), "content": long}]);
            ask(ground, CHAT, &chat("messages", message));
        }
        2 => {
            let body = json!({"model": "mortise-demo", "prompt": long});
            ask(ground, "/tokenize", &body);
        }
        _ => {
            let body = json!({"model": "embeds", "input": [long]});
            ask(ground, "/v1/embeddings", &body);
        }
    }
}

/// Stop strings that are many, long or beginnings of each other, and biases of all tokens.
pub(crate) fn stops_and_biases(ground: &Ground, seed: u64) {
    let mut body = text(json!("x"), 100);
    match seed % 5 {
        0 => body["stop"] = json!(vec!["x"; 10_000]),
        1 => body["stop"] = json!(["a".repeat(1 << 20)]),
        2 => {
            let beginnings = (1..17).map(|length| "e".repeat(length));
            body["stop"] = json!(beginnings.collect::<Vec<_>>());
        }
        3 => {
            let biases = (0..100_000).map(|token| (token.to_string(), json!(-100)));
            body["logit_bias"] = Value::Object(biases.collect());
        }
        _ => body["stop_token_ids"] = json!((0..100_000).collect::<Vec<_>>()),
    }
    ask(ground, TEXT, &body);
}

/// Answers that are kept for the next who asks the same, each another.
pub(crate) fn cached_answers(ground: &Ground, seed: u64) {
    for n in 0..10 {
        let mut body = chat("temperature", json!(0));
        body["messages"][0]["content"] = json!(format!("{seed} {n}"));
        body["stop"] = json!(["e", " "]);
        ask(ground, CHAT, &body);
    }
}

/// Routes beside those that answer.
pub(crate) fn helpers(ground: &Ground, seed: u64) {
    let tokens: Vec<u64> = (0..100_000).map(|at| at % 2000).collect();
    let model = "mortise-demo";
    let long = "x ".repeat(100_000);
    let messages = json!([{"role": "user", "content": long}]);
    let (path, body) = match seed % 9 {
        0 => ("/detokenize", json!({"model": model, "tokens": tokens})),
        1 => (
            "/v1/chat/completions/render",
            json!({"model": model, "messages": messages}),
        ),
        2 => (
            "/v1/chat/completions/parse",
            json!({"model": model, "text": "<tool_call>".repeat(50_000)}),
        ),
        3 => (
            "/v1/messages/count_tokens",
            json!({"model": model, "messages": messages}),
        ),
        4 => (
            "/v1/responses/input_tokens",
            json!({"model": model, "input": long}),
        ),
        5 => ("/api/generate", json!({"model": model, "prompt": long})),
        6 => ("/api/show", json!({"model": "m".repeat(100_000)})),
        7 => (
            "/v1/score",
            json!({"model": "embeds", "text_1": long, "text_2": vec!["y"; 2000]}),
        ),
        _ => (
            "/v1/responses/compact",
            json!({"model": model, "input": long}),
        ),
    };
    ask(ground, path, &body);
    for path in ["/props", "/slots", "/v1/metrics", "/api/ps", "/v1/models"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        wire::exchange(ground, request.as_bytes());
    }
}

/// Guesses of what others have stored, and routes of operators without their key.
pub(crate) fn strangers_objects(ground: &Ground, seed: u64) {
    let request = |method: &str, path: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             authorization: Bearer attacker-key\r\ncontent-length: 2\r\n\
             content-type: application/json\r\n\r\n{{}}"
        );
        wire::exchange(ground, request.as_bytes());
    };
    for (method, path) in [
        ("GET", format!("/v1/responses/resp_{seed:032x}")),
        ("DELETE", format!("/v1/files/file-{seed:032x}")),
        ("POST", format!("/v1/batches/batch_{seed:032x}/cancel")),
        ("GET", format!("/v1/vector_stores/vs_{seed:032x}")),
        ("GET", format!("/v1/conversations/conv_{seed:032x}")),
        ("POST", "/api/pull".to_owned()),
        ("POST", "/api/v1/llm/cache/clear".to_owned()),
        ("POST", "/api/v1/llm/loras/load".to_owned()),
        ("GET", "/v1/admin/events".to_owned()),
    ] {
        request(method, &path);
    }
}
