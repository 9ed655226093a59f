//! Ingest outlives the process: a server is killed at random moments while documents are ingested, and the compaction of its
//! file while it is at work. Each document that was acknowledged is found whole after the next start, and none that was removed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::killed::rounds;
use crate::pgvector::in_database;
use crate::retrieval::{self, Caller, nobody};
use crate::support::binary;
use crate::support::postgres::Postgres;

/// Compact the file of a store, and kill that after some time, if it has not ended. True if it was killed.
fn compact(path: &Path, after: Duration) -> bool {
    let mut compaction = Command::new(binary())
        .args(["store", "vacuum", "--store"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start a compaction");
    std::thread::sleep(after);
    // It may have ended.
    let _ = compaction.kill();
    let ended = compaction.wait().expect("the end of a compaction");
    ended.code() != Some(0)
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
fn feature_e30_no_document_is_lost_whenever_the_server_or_a_compaction_is_killed() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    kill_and_look(&format!("[store]\npath = {path:?}\n"), Some(&path));
}

/// An index in the database loses no document by kills. Documents of a killed server are taken over by others after 15
/// s, which the end of this test waits for.
#[test]
fn feature_z8_no_document_of_an_index_in_the_database_is_lost_by_kills() {
    if let Some(postgres) = Postgres::with_pgvector() {
        kill_and_look(&in_database(&postgres.database("killed_ingest")), None);
    }
}

/// Kill servers of a configuration, and the compaction of the file of their store, if it is one.
fn kill_and_look(config: &str, file: Option<&Path>) {
    let (mut known, mut removed) = (Vec::<(usize, String)>::new(), Vec::new());
    let mut compactions = 0;
    let mut server = retrieval::server(config);
    let made = nobody(&server).post("/v1/vector_stores", &json!({"name": "all"}));
    let store = made.ok()["id"].as_str().expect("an id").to_owned();
    // Other moments in each round, the same in each run.
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..rounds() {
        known.push((round, attach(&nobody(&server), &store, round)));
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(random % 120));
        // What is removed leaves room that a compaction gives back.
        if round % 3 == 2 {
            let (number, file) = known.remove(random as usize % known.len());
            let path = format!("/v1/vector_stores/{store}/files/{file}");
            nobody(&server).delete(&path).ok();
            removed.push((number, file));
        }
        server.signal("KILL");
        server.wait();
        // From before its start to behind its end.
        let after = Duration::from_millis((random >> 20) % 80);
        compactions += usize::from(file.is_some_and(|file| compact(file, after)));
        server = retrieval::server(config);
        // What is half done goes on beside the next.
        if file.is_some() && random.is_multiple_of(4) {
            nobody(&server).ingested(&store);
        }
    }
    let caller = nobody(&server);
    caller.ingested(&store);
    for (number, file) in &known {
        check(&caller, &store, file, *number);
    }
    for (_, file) in &removed {
        let path = format!("/v1/vector_stores/{store}/files/{file}");
        assert_eq!(caller.get(&path).status(), 404);
    }
    let counts = caller.get(&format!("/v1/vector_stores/{store}")).ok()["file_counts"].clone();
    assert_eq!(counts["total"], known.len(), "{counts}");
    println!(
        "{} documents, {} removed, {compactions} of {} compactions killed",
        known.len(),
        removed.len(),
        rounds()
    );
}
