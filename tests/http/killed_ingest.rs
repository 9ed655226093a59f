//! Ingest outlives the process: a server is killed at random moments while documents are ingested, and each that it
//! has acknowledged is found whole after the next start.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::killed::rounds;
use crate::retrieval::{Caller, nobody, server};
use crate::support::Server;

fn durable(path: &Path) -> Server {
    server(&format!("[store]\npath = {path:?}\n"))
}

/// Text of a document, in which one word is its own.
fn text(number: usize) -> String {
    let sentences = (0..60).map(|at| format!("Sentence {at} of document {number}. "));
    sentences.collect::<String>() + &format!("Its word is zebra{number}.\n")
}

/// Attach a new document, in small chunks. Returns its file's id.
fn attach(caller: &Caller<'_>, store: &str, number: usize) -> String {
    let file = caller.file(&format!("{number}.txt"), text(number).as_bytes());
    let small = json!({"max_chunk_size_tokens": 40, "chunk_overlap_tokens": 10});
    let body = json!({
        "file_id": file, "chunking_strategy": {"type": "static", "static": small},
    });
    caller
        .post(&format!("/v1/vector_stores/{store}/files"), &body)
        .ok();
    file
}

/// A document has all of its text, each chunk once, and is found by its word.
fn check(caller: &Caller<'_>, store: &str, file: &str, number: usize) {
    let path = format!("/v1/vector_stores/{store}/files/{file}");
    let shown = caller.get(&path).ok();
    assert_eq!(shown["status"], "completed", "{shown}");
    let content = caller.get(&format!("{path}/content")).ok();
    let chunks = content["data"].as_array().expect("chunks");
    assert_eq!(shown["progress"]["chunks_done"], chunks.len());
    let (text, mut covered) = (text(number), 0);
    let place = |chunk: &Value, name: &str| chunk[name].as_u64().expect("a place") as usize;
    for (at, chunk) in chunks.iter().enumerate() {
        let (start, end) = (place(chunk, "start"), place(chunk, "end"));
        assert_eq!(&text[start..end], chunk["text"].as_str().expect("a text"));
        assert!(text[covered..start.max(covered)].trim().is_empty());
        assert!(end > covered, "chunk {at} is there twice");
        covered = end;
    }
    assert_eq!(covered, text.trim_end().len());
    let words = json!({"embedding_weight": 0, "text_weight": 1});
    let query = json!({
        "query": format!("zebra{number}"), "ranking_options": {"hybrid_search": words},
    });
    let found = caller.search(store, query);
    assert_eq!(found[0]["file_id"], file, "{found:?}");
}

#[test]
fn feature_e30_no_document_is_lost_whenever_the_server_is_killed() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let mut known: Vec<String> = Vec::new();
    let mut server = durable(&path);
    let made = nobody(&server).post("/v1/vector_stores", &json!({"name": "all"}));
    let store = made.ok()["id"].as_str().expect("an id").to_owned();
    // Other moments in each round, the same in each run.
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    for _ in 0..rounds() {
        known.push(attach(&nobody(&server), &store, known.len()));
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(random % 120));
        server.signal("KILL");
        server.wait();
        server = durable(&path);
        // What is half done goes on beside the next.
        if random.is_multiple_of(4) {
            nobody(&server).ingested(&store);
        }
    }
    let caller = nobody(&server);
    caller.ingested(&store);
    for (number, file) in known.iter().enumerate() {
        check(&caller, &store, file, number);
    }
}
