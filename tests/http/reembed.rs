//! New vectors for all documents of a vector store, while it is searched.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::killed::rounds;
use crate::pgvector::in_database;
use crate::retrieval::{Caller, nobody};
use crate::support::client::Request;
use crate::support::postgres::Postgres;
use crate::support::{Server, example, until};

const STORES: &str = "/v1/vector_stores";

/// A server with two models that make other vectors of the same texts, and one that takes short texts only.
fn server(more: &str) -> Server {
    let demo = example::root().join("examples/demo-model/model");
    let models = ["last", "mean"].map(|pooling| {
        format!("[[models]]\nname = \"{pooling}\"\npath = {demo:?}\npooling = \"{pooling}\"\n")
    });
    let models = models.concat();
    Server::scripted("default = \"a\"\n", &format!("{more}\n{models}"))
}

/// Text of a document of about so many chunks, in which one word is its own.
fn text(number: usize, sentences: usize) -> String {
    let sentences =
        (0..sentences).map(|at| format!("Sentence {at} of document {number} is here. "));
    sentences.collect::<String>() + &format!("Its word is zebra{number}.\n")
}

/// A vector store of the model `last`, in small chunks.
fn store(caller: &Caller<'_>, documents: usize, sentences: usize) -> String {
    let files = (0..documents)
        .map(|number| caller.file(&format!("{number}.txt"), text(number, sentences).as_bytes()));
    let files: Vec<String> = files.collect();
    let small = json!({"max_chunk_size_tokens": 40, "chunk_overlap_tokens": 10});
    let made = caller.post(
        STORES,
        &json!({"file_ids": files, "embedding_model": "last",
            "chunking_strategy": {"type": "static", "static": small}}),
    );
    let id = made.ok()["id"].as_str().expect("an id").to_owned();
    caller.ingested(&id);
    id
}

fn path(store: &str) -> String {
    format!("{STORES}/{store}/reembed")
}

fn begin(caller: &Caller<'_>, store: &str, model: &str) {
    let begun = caller
        .post(&path(store), &json!({"embedding_model": model}))
        .ok();
    assert_eq!(begun["status"], "in_progress", "{begun}");
}

fn ended(caller: &Caller<'_>, store: &str) -> Value {
    until("the vectors are made", || {
        caller.get(&path(store)).ok()["status"] != "in_progress"
    });
    caller.get(&path(store)).ok()
}

/// The best result by meaning: its text and its score.
fn best(caller: &Caller<'_>, store: &str, query: &str) -> (String, f64) {
    let found = caller.search(
        store,
        json!({"query": query, "ranking_options": {"ranker": "none"}}),
    );
    let text = found[0]["content"][0]["text"].as_str().expect("a text");
    (
        text.to_owned(),
        found[0]["score"].as_f64().expect("a score"),
    )
}

/// The cosine by a model itself.
fn cosine(caller: &Caller<'_>, model: &str, one: &str, other: &str) -> f64 {
    let body = json!({"model": model, "text_1": one, "text_2": other});
    let made = caller.post("/score", &body).ok();
    made["data"][0]["score"].as_f64().expect("a score")
}

fn check_model(caller: &Caller<'_>, store: &str, model: &str) {
    let query = "which word is it";
    let (text, score) = best(caller, store, query);
    let expected = cosine(caller, model, query, &text);
    assert!(
        (score - expected).abs() < 1e-4,
        "{model}: {score} is not {expected}"
    );
    assert_eq!(
        caller.get(&format!("{STORES}/{store}")).ok()["embedding_model"],
        model
    );
}

/// Each document is found whole by its word.
fn check_whole(caller: &Caller<'_>, store: &str, documents: usize) {
    let files = caller
        .get(&format!("{STORES}/{store}/files?limit=100"))
        .ok();
    let files = files["data"].as_array().expect("files").clone();
    assert_eq!(files.len(), documents);
    for file in &files {
        assert_eq!(file["status"], "completed", "{file}");
        let id = file["id"].as_str().expect("an id");
        let content = caller
            .get(&format!("{STORES}/{store}/files/{id}/content"))
            .ok();
        let chunks = content["data"].as_array().map(Vec::len);
        assert_eq!(
            file["progress"]["chunks_done"].as_u64(),
            chunks.map(|n| n as u64)
        );
    }
    let words = json!({"hybrid_search": {"embedding_weight": 0, "text_weight": 1}});
    for number in 0..documents {
        let query = json!({"query": format!("zebra{number}"), "ranking_options": words});
        let found = caller.search(store, query);
        assert_eq!(found[0]["filename"], format!("{number}.txt"), "{found:?}");
    }
}

#[test]
fn feature_e34_a_store_answers_with_its_old_vectors_until_it_has_new_ones() {
    let server = server("");
    let caller = nobody(&server);
    assert_eq!(caller.get(&path("vs_absent")).status(), 404);
    let store = store(&caller, 3, 150);
    assert_eq!(caller.get(&path(&store)).status(), 404);
    check_model(&caller, &store, "last");
    let file = caller.file("late.txt", b"A late text.");
    begin(&caller, &store, "mean");
    // Its documents stay as they are meanwhile.
    for (method, at) in [("POST", "/files"), ("POST", "/reembed")] {
        let body = match at {
            "/files" => json!({"file_id": file}),
            _ => json!({}),
        };
        let request = Request::post(&format!("{STORES}/{store}{at}"), &body).method(method);
        let refused = server.send(&request);
        assert_eq!(refused.status(), 409, "{}", refused.text());
        assert!(
            refused.text().contains("vector_store_busy"),
            "{}",
            refused.text()
        );
    }
    // Another name does not disturb the work.
    let renamed = caller.post(&format!("{STORES}/{store}"), &json!({"name": "renamed"}));
    assert_eq!(renamed.ok()["name"], "renamed");
    let query = "which word is it";
    let mut searches = 0;
    while caller.get(&path(&store)).ok()["status"] == "in_progress" {
        let (text, score) = best(&caller, &store, query);
        let known = ["last", "mean"].map(|model| cosine(&caller, model, query, &text));
        assert!(
            known.iter().any(|one| (one - score).abs() < 1e-4),
            "{score}: {known:?}"
        );
        searches += 1;
    }
    assert!(searches > 0);
    let end = ended(&caller, &store);
    assert_eq!(end["status"], "completed", "{end}");
    assert_eq!(
        (&end["files_done"], &end["last_error"]),
        (&json!(3), &Value::Null)
    );
    check_model(&caller, &store, "mean");
    check_whole(&caller, &store, 3);
    // Changes are taken again, and counted with the new model.
    let attach = json!({"file_id": file});
    caller
        .post(&format!("{STORES}/{store}/files"), &attach)
        .ok();
    caller.ingested(&store);
    let (text, score) = best(&caller, &store, "A late text.");
    assert!(text == "A late text." && score > 0.99, "{text} {score}");
    assert_eq!(
        caller.get(&format!("{STORES}/{store}")).ok()["name"],
        "renamed"
    );
}

#[test]
fn feature_e34_events_tell_of_the_work_and_it_can_be_ended() {
    let server = server("");
    let caller = nobody(&server);
    let store = store(&caller, 2, 150);
    begin(&caller, &store, "mean");
    let streamed = caller.get(&format!("{}?stream=true", path(&store))).text();
    let events = streamed
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    let (last, first) = (events.last().expect("events"), &events[0]);
    assert_eq!(
        (&last["status"], &first["status"]),
        (&json!("completed"), &json!("in_progress"))
    );
    assert_eq!(first["files_total"], 2);
    let done: Vec<u64> = events
        .iter()
        .filter_map(|event| event["chunks_done"].as_u64())
        .collect();
    assert!(done.is_sorted() && done.last() > Some(&0), "{done:?}");
    let end = |caller: &Caller<'_>| {
        let request = Request::get(&path(&store)).method("DELETE");
        caller.server.send(&request)
    };
    assert_eq!(end(&caller).ok()["status"], "completed");
    begin(&caller, &store, "last");
    assert_eq!(end(&caller).ok()["status"], "cancelled");
    check_model(&caller, &store, "mean");
    check_whole(&caller, &store, 2);
    // And again, from the beginning.
    begin(&caller, &store, "last");
    assert_eq!(ended(&caller, &store)["status"], "completed");
    check_model(&caller, &store, "last");
    let gone = caller
        .server
        .send(&Request::get(&format!("{STORES}/{store}")).method("DELETE"));
    assert_eq!(gone.status(), 200);
}

#[test]
fn feature_e34_a_model_that_cannot_read_the_chunks_changes_nothing() {
    let ranker = example::root().join("tests/embeddings/data/ranker-roberta");
    let folder = tempfile::tempdir().expect("a folder");
    for name in [
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        std::fs::copy(ranker.join(name), folder.path().join(name)).expect("a copy");
    }
    let config = std::fs::read_to_string(ranker.join("config.json")).expect("a file");
    let config = config.replace("ForSequenceClassification", "Model");
    std::fs::write(folder.path().join("config.json"), config).expect("a file");
    let short = format!("[[models]]\nname = \"short\"\npath = {:?}\n", folder.path());
    let server = server(&short);
    let caller = nobody(&server);
    let store = store(&caller, 1, 10);
    begin(&caller, &store, "short");
    let end = ended(&caller, &store);
    assert_eq!(
        (&end["status"], &end["last_error"]["code"]),
        (&json!("failed"), &json!("chunk_too_long"))
    );
    check_model(&caller, &store, "last");
    for (model, status) in [("scripted", 400), ("absent", 404)] {
        let refused = caller.post(&path(&store), &json!({"embedding_model": model}));
        assert_eq!(refused.status(), status, "{}", refused.text());
    }
}

#[test]
fn feature_e34_work_that_a_kill_ends_goes_on_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let durable = |path: &Path| server(&format!("[store]\npath = {path:?}\n"));
    let state = folder.path().join("state.db");
    let mut server = durable(&state);
    let store = store(&nobody(&server), 3, 100);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut model = "last";
    for _ in 0..rounds() {
        model = if model == "last" { "mean" } else { "last" };
        begin(&nobody(&server), &store, model);
        // Other moments in each round, the same in each run.
        for _ in 0..2 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            std::thread::sleep(Duration::from_millis(random % 700));
            server.signal("KILL");
            server.wait();
            server = durable(&state);
            check_whole(&nobody(&server), &store, 3);
        }
        let caller = nobody(&server);
        assert_eq!(ended(&caller, &store)["status"], "completed");
        check_model(&caller, &store, model);
        check_whole(&caller, &store, 3);
    }
}

#[test]
fn feature_e34_servers_that_share_a_store_take_new_vectors_into_use_together() {
    if let Some(postgres) = Postgres::shared() {
        let url = postgres.database("reembedded");
        take_into_use_together(&format!("[store]\nurl = {url:?}\n"));
    }
}

#[test]
fn feature_e34_servers_that_share_an_index_take_new_vectors_into_use_together() {
    if let Some(postgres) = Postgres::with_pgvector() {
        take_into_use_together(&in_database(&postgres.database("reembedded")));
    }
}

fn take_into_use_together(shared: &str) {
    let (one, other) = (server(shared), server(shared));
    let (here, there) = (nobody(&one), nobody(&other));
    let store = store(&here, 2, 150);
    check_model(&there, &store, "last");
    let file = here.file("late.txt", b"A late text.");
    begin(&here, &store, "mean");
    // Of what one server works on the others change nothing.
    for (path, body) in [
        (format!("{STORES}/{store}/files"), json!({"file_id": file})),
        (path(&store), json!({"embedding_model": "mean"})),
        (format!("{STORES}/{store}"), json!({"name": "renamed"})),
    ] {
        let refused = there.post(&path, &body);
        assert_eq!(refused.status(), 409, "{path}: {}", refused.text());
    }
    assert_eq!(ended(&there, &store)["status"], "completed");
    for caller in [&there, &here] {
        check_model(caller, &store, "mean");
        check_whole(caller, &store, 2);
    }
    // When the old vectors are gone, either may change it again.
    until("the other server changes it", || {
        let path = format!("{STORES}/{store}/files");
        there.post(&path, &json!({"file_id": file})).status() == 200
    });
    there.ingested(&store);
    assert_eq!(best(&here, &store, "A late text.").0, "A late text.");
}
