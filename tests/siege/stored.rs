//! Attacks by what callers store: uploads, files, batches, vector stores, conversations.

use serde_json::{Value, json};

use crate::attacks::{KEY, ask, post};
use crate::ground::Ground;
use crate::support::until;
use crate::wire;

const FILES: &str = "/v1/files";
const STORES: &str = "/v1/vector_stores";
const BOUNDARY: &str = "a-boundary";

/// Head of a request that uploads a form under a boundary of so many bytes, and of which so much is announced.
fn head(boundary: &str, length: usize) -> Vec<u8> {
    format!(
        "POST {FILES} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
         content-type: multipart/form-data; boundary={boundary}\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

fn part(disposition: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn upload(purpose: &str, name: &str, content: &[u8]) -> Vec<u8> {
    let form = [
        part("name=\"purpose\"", purpose.as_bytes()),
        part(&format!("name=\"file\"; filename=\"{name}\""), content),
        format!("--{BOUNDARY}--\r\n").into_bytes(),
    ]
    .concat();
    [head(BOUNDARY, form.len()), form].concat()
}

/// Upload a file; its id, if it was taken.
fn file(ground: &Ground, purpose: &str, name: &str, content: &[u8]) -> Option<String> {
    let made = wire::answer(ground, &upload(purpose, name, content))?;
    Some(made["id"].as_str()?.to_owned())
}

/// The id of what a request makes.
fn made(ground: &Ground, path: &str, body: &Value) -> Option<String> {
    let made = told(ground, "POST", path, &body.to_string())?;
    Some(made["id"].as_str()?.to_owned())
}

fn told(ground: &Ground, method: &str, path: &str, body: &str) -> Option<Value> {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    wire::answer(ground, request.as_bytes())
}

/// Ordinary use of what callers store: a vector store of two documents that is searched in, a batch, a conversation.
pub(crate) fn ordinary_use(ground: &Ground) {
    let pages = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n\
                 trailer<</Root 1 0 R>>\n%%EOF\n";
    let files = [("a.md", "# One\n\nIt is so."), ("a.pdf", pages)].map(|(name, content)| {
        file(ground, "user_data", name, content.as_bytes()).expect("a file")
    });
    let asked = json!({"name": "s", "file_ids": files, "embedding_model": "embeds"});
    let store = made(ground, STORES, &asked).expect("a vector store");
    until("the files are ingested", || {
        let shown = told(ground, "GET", &format!("{STORES}/{store}"), "");
        shown.is_some_and(|shown| shown["status"] == "completed")
    });
    let search = format!("{STORES}/{store}/search");
    told(
        ground,
        "POST",
        &search,
        &json!({"query": "one"}).to_string(),
    )
    .expect("results");
    told(ground, "DELETE", &format!("{STORES}/{store}"), "");
    let line = json!({
        "custom_id": "a", "method": "POST", "url": "/v1/completions",
        "body": {"model": "mortise-demo", "prompt": "x", "max_tokens": 4},
    });
    let input = file(ground, "batch", "in.jsonl", line.to_string().as_bytes()).expect("a file");
    let asked =
        json!({"input_file_id": input, "endpoint": "/v1/completions", "completion_window": "24h"});
    let batch = made(ground, "/v1/batches", &asked).expect("a batch");
    until("the batch is answered", || {
        let shown = told(ground, "GET", &format!("/v1/batches/{batch}"), "");
        shown.is_some_and(|shown| shown["status"] == "completed")
    });
    conversations(ground, 0);
    for id in files.iter().chain([&input]) {
        told(ground, "DELETE", &format!("{FILES}/{id}"), "");
    }
}

/// Forms that are cut off, have no end, many parts, a long boundary, or names that lead elsewhere.
pub(crate) fn forms(ground: &Ground, seed: u64) {
    let fields = part("name=\"purpose\"", b"user_data");
    match seed % 6 {
        0 => {
            let begun = [head(BOUNDARY, 4 << 20), fields].concat();
            wire::hold(ground, 30, &begun);
        }
        1 => {
            let many = part("name=\"x\"", b"").repeat(10_000);
            wire::exchange(ground, &[head(BOUNDARY, many.len()), many].concat());
        }
        2 => wire::exchange(ground, &head(&"b".repeat(10_000), 1 << 20)),
        3 => {
            // No part ever ends.
            let body = [
                part("name=\"file\"; filename=\"a\"", b""),
                vec![b'-'; 2 << 20],
            ]
            .concat();
            wire::exchange(ground, &[head(BOUNDARY, body.len()), body].concat());
        }
        4 => drop(file(ground, "user_data", "../../x\\u0000", b"x")),
        _ => {
            let name = "n".repeat(1 << 20);
            drop(file(ground, "user_data", &name, b"x"));
        }
    }
}

/// Files until the quota of the tenant is full, whose content is asked for and not read.
pub(crate) fn files(ground: &Ground, seed: u64) {
    let Some(id) = file(ground, "user_data", "a.bin", &vec![seed as u8; 1 << 20]) else {
        // The quota is full: some leave.
        let listed = told(ground, "GET", &format!("{FILES}?limit=20"), "");
        let ids = listed.as_ref().and_then(|listed| listed["data"].as_array());
        for file in ids.into_iter().flatten() {
            let id = file["id"].as_str().unwrap_or_default();
            told(ground, "DELETE", &format!("{FILES}/{id}"), "");
        }
        return;
    };
    let request = format!(
        "GET {FILES}/{id}/content HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n"
    );
    wire::hold(ground, 20, request.as_bytes());
    told(ground, "DELETE", &format!("{FILES}/{id}"), "");
}

/// Batches of lines that are wrong, large or many; some are left to run.
pub(crate) fn batches(ground: &Ground, seed: u64) {
    let line = |n: u64, body: &Value| {
        let line = json!({"custom_id": format!("{n}"), "method": "POST", "url": "/v1/completions", "body": body});
        line.to_string() + "\n"
    };
    let short = json!({"model": "mortise-demo", "prompt": "x", "max_tokens": 4});
    let content = match seed % 5 {
        0 => (0..50).map(|n| line(n, &short)).collect(),
        1 => "{\n".repeat(100_000),
        2 => line(
            0,
            &json!({"model": "mortise-demo", "prompt": " ".repeat(1 << 20)}),
        ),
        3 => line(0, &short).repeat(5000),
        _ => format!("{}\n", "[".repeat(2 << 20)),
    };
    let Some(input) = file(ground, "batch", "in.jsonl", content.as_bytes()) else {
        return;
    };
    let asked =
        json!({"input_file_id": input, "endpoint": "/v1/completions", "completion_window": "24h"});
    for _ in 0..4 {
        let Some(batch) = made(ground, "/v1/batches", &asked) else {
            break;
        };
        if !seed.is_multiple_of(4) {
            told(ground, "POST", &format!("/v1/batches/{batch}/cancel"), "{}");
        }
    }
    told(ground, "DELETE", &format!("{FILES}/{input}"), "");
}

fn nested_filter(depth: usize) -> Value {
    (0..depth).fold(
        json!({"type": "eq", "key": "a", "value": 1}),
        |inner, _| json!({"type": "and", "filters": [inner]}),
    )
}

/// Documents that are hard to divide, and searches that are hard to answer.
pub(crate) fn vector_stores(ground: &Ground, seed: u64) {
    let (name, content) = match seed % 6 {
        0 => ("a.txt", "x".repeat(300_000)),
        1 => ("a.html", "<div>".repeat(60_000)),
        2 => ("a.md", "# a\n".repeat(50_000)),
        3 => ("a.txt", "a\u{301}\u{202e} ".repeat(40_000)),
        4 => (
            "a.pdf",
            format!("%PDF-1.7\n{}", "1 0 obj << ".repeat(20_000)),
        ),
        _ => ("a.html", format!("<!--{}", "&amp".repeat(60_000))),
    };
    let file = file(ground, "user_data", name, content.as_bytes());
    let asked = json!({"name": "s", "file_ids": [file], "embedding_model": "embeds"});
    let store = made(ground, STORES, &asked);
    if let Some(store) = &store {
        let search = format!("{STORES}/{store}/search");
        for body in [
            json!({"query": "x ".repeat(100_000)}),
            json!({"query": vec!["x"; 2000]}),
            json!({"query": "x", "filters": nested_filter(60)}),
            json!({"query": "x", "filters": {"type": "in", "key": "a", "value": (0..50_000).collect::<Vec<_>>()}}),
            json!({"query": "x", "max_num_results": 50}),
        ] {
            told(ground, "POST", &search, &body.to_string());
        }
        told(ground, "DELETE", &format!("{STORES}/{store}"), "");
    }
    if let Some(file) = file {
        told(ground, "DELETE", &format!("{FILES}/{file}"), "");
    }
}

/// Conversations that grow, and pages of them that are not there.
pub(crate) fn conversations(ground: &Ground, seed: u64) {
    let path = "/v1/conversations";
    let Some(id) = made(ground, path, &json!({})) else {
        return;
    };
    let items = format!("{path}/{id}/items");
    let content = "and on ".repeat(1000 + (seed % 10_000) as usize);
    let message = json!({"type": "message", "role": "user", "content": content});
    for _ in 0..5 {
        ask(ground, &items, &json!({"items": vec![&message; 20]}));
    }
    let body = json!({
        "model": "mortise-demo", "input": "x", "conversation": id, "max_output_tokens": 8,
    });
    post(ground, KEY, "/v1/responses", body.to_string().as_bytes());
    for query in ["?after=nowhere", "?limit=100", "?limit=-1", "/item_nowhere"] {
        told(ground, "GET", &format!("{items}{query}"), "");
    }
    told(ground, "DELETE", &format!("{path}/{id}"), "");
}
