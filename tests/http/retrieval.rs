//! Vector stores, searches in them, and answers from them.

use std::path::Path;

use serde_json::{Value, json};

use crate::files::{form, upload};
use crate::support::client::{Request, Response};
use crate::support::{Server, example, until};

const STORES: &str = "/v1/vector_stores";
const RAG: &str = "/api/v1/llm/rag";
const SCRIPT: &str = "default = \"It is the third clause [1].\"\n";

/// A model that says what it is told, and the demo model's files as one that makes vectors.
pub(crate) fn server(more: &str) -> Server {
    saying(SCRIPT, more)
}

/// A model that says what a script tells it, beside one that makes vectors.
pub(crate) fn saying(script: &str, more: &str) -> Server {
    let demo = example::root().join("examples/demo-model/model");
    let demo = demo.to_str().expect("a path in UTF-8");
    let embeds = format!("[[models]]\nname = \"embeds\"\npath = '{demo}'\npooling = \"last\"\n");
    Server::scripted(script, &format!("{more}\n{embeds}"))
}

fn keyed(request: Request, key: &str) -> Request {
    match key {
        "" => request,
        key => request.header("authorization", &format!("Bearer {key}")),
    }
}

/// Somebody who sends requests with a key, or without one.
pub(crate) struct Caller<'a> {
    pub(crate) server: &'a Server,
    pub(crate) key: &'a str,
}

impl Caller<'_> {
    pub(crate) fn get(&self, path: &str) -> Response {
        self.server.send(&keyed(Request::get(path), self.key))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.server
            .send(&keyed(Request::post(path, body), self.key))
    }

    pub(crate) fn delete(&self, path: &str) -> Response {
        self.server
            .send(&keyed(Request::get(path).method("DELETE"), self.key))
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let body = form(&[("purpose", "user_data")], Some((name, content)));
        let uploaded = self.server.send(&keyed(upload(&body), self.key)).ok();
        uploaded["id"].as_str().expect("an id").to_owned()
    }

    /// A vector store of files, all ingested.
    pub(crate) fn store(&self, files: &[String]) -> String {
        let made = self
            .post(STORES, &json!({"name": "papers", "file_ids": files}))
            .ok();
        let id = made["id"].as_str().expect("an id").to_owned();
        self.ingested(&id);
        id
    }

    pub(crate) fn ingested(&self, store: &str) -> Value {
        let path = format!("{STORES}/{store}");
        until("the files are ingested", || {
            self.get(&path).ok()["status"] == "completed"
        });
        self.get(&path).ok()
    }

    pub(crate) fn search(&self, store: &str, body: Value) -> Vec<Value> {
        let found = self.post(&format!("{STORES}/{store}/search"), &body).ok();
        found["data"].as_array().expect("results").clone()
    }
}

/// A vector store of one file, which is ingested.
pub(crate) fn store_of(server: &Server, name: &str, text: &str) -> String {
    let caller = nobody(server);
    caller.store(&[caller.file(name, text.as_bytes())])
}

pub(crate) fn nobody(server: &Server) -> Caller<'_> {
    Caller { server, key: "" }
}

fn names(results: &[Value]) -> Vec<&str> {
    results
        .iter()
        .filter_map(|result| result["filename"].as_str())
        .collect()
}

pub(crate) const CLAUSES: &str = "# Contract\n\nClause one names the parties.\n\n## Payment\n\nClause two sets the wörld price.\n\n\
                       ## Term\n\nClause three ends the zebra agreement after a year.\n";

#[test]
fn feature_e30_files_are_divided_embedded_and_found() {
    let server = server("");
    let caller = nobody(&server);
    let clauses = caller.file("clauses.md", CLAUSES.as_bytes());
    let page = caller.file(
        "page.html",
        b"<h1>Birds</h1><p>A heron fishes.</p><script>zebra</script>",
    );
    let store = caller.store(&[clauses.clone(), page]);
    let shown = caller.ingested(&store);
    assert_eq!(shown["file_counts"]["completed"], 2);
    assert_eq!(shown["embedding_model"], "embeds");
    // By a word that one chunk has.
    let found = caller.search(
        &store,
        json!({"query": "zebra", "ranking_options":
        {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}}),
    );
    assert_eq!(names(&found), ["clauses.md"]);
    let content = &found[0]["content"][0];
    let place = |name: &str| content[name].as_u64().expect("a place") as usize;
    // Offsets are bytes of the document, here behind a letter of two.
    assert_eq!(
        &CLAUSES[place("start")..place("end")],
        content["text"].as_str().expect("a text")
    );
    assert!(
        content["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("## Term")),
        "{content}"
    );
    // The text of a chunk is as near to it as can be.
    let text = content["text"].as_str().expect("a text");
    let found = caller.search(
        &store,
        json!({"query": text, "ranking_options": {"ranker": "none"}}),
    );
    assert_eq!(found[0]["content"][0]["text"], text);
    assert!(found[0]["score"].as_f64() > Some(0.99), "{found:?}");
    let both = caller.search(&store, json!({"query": text, "max_num_results": 1}));
    assert_eq!(both[0]["content"][0]["text"], text);
    // Other attributes count at once.
    let path = format!("{STORES}/{store}/files/{clauses}");
    caller
        .post(&path, &json!({"attributes": {"year": 1999}}))
        .ok();
    let filtered = |kind: &str| {
        let filter = json!({"type": kind, "key": "year", "value": 1999});
        caller.search(&store, json!({"query": "a", "filters": filter}))
    };
    assert!(
        filtered("eq")
            .iter()
            .all(|one| one["filename"] == "clauses.md")
    );
    assert_eq!(names(&filtered("ne")), ["page.html"]);
    // What is taken out is found no more; the file stays.
    assert_eq!(caller.delete(&path).ok()["deleted"], true);
    assert_eq!(
        names(&caller.search(&store, json!({"query": "zebra"}))),
        ["page.html"]
    );
    caller.get(&format!("/v1/files/{clauses}")).ok();
    caller.delete(&format!("{STORES}/{store}")).ok();
    assert_eq!(caller.get(&format!("{STORES}/{store}")).status(), 404);
}

#[test]
fn feature_e30_a_bad_file_fails_by_itself() {
    let server = server("");
    let caller = nobody(&server);
    let good = caller.file("good.txt", b"A good text.");
    let nested = "<div>".repeat(200_000) + "deep";
    let line = "x".repeat(4096);
    for (name, content, code) in [
        ("a.docx", &b"PK\x03\x04...."[..], "unsupported_file"),
        ("a.txt", b"abc\xFF\xFE", "invalid_file"),
        ("empty.txt", b" \n", "invalid_file"),
    ] {
        let bad = caller.file(name, content);
        let store = caller.store(&[bad.clone(), good.clone()]);
        assert_eq!(
            caller.ingested(&store)["file_counts"]["failed"],
            1,
            "{name}"
        );
        let file = caller.get(&format!("{STORES}/{store}/files/{bad}")).ok();
        assert_eq!(
            (&file["status"], &file["last_error"]["code"]),
            (&json!("failed"), &json!(code))
        );
        assert_eq!(
            names(&caller.search(&store, json!({"query": "text"}))),
            ["good.txt"]
        );
    }
    let files = [
        caller.file("a.html", nested.as_bytes()),
        caller.file("b.txt", line.as_bytes()),
    ];
    let store = caller.store(&files);
    assert_eq!(caller.ingested(&store)["file_counts"]["completed"], 2);
    let small = json!({"type": "static", "static": {"max_chunk_size_tokens": 100_000, "chunk_overlap_tokens": 0}});
    let refused = caller.post(STORES, &json!({"chunking_strategy": small}));
    assert_eq!(refused.status(), 400);
    assert!(
        refused.text().contains("max_chunk_size_tokens"),
        "{}",
        refused.text()
    );
}

/// A file of `tests/documents`.
pub(crate) fn document(name: &str) -> Vec<u8> {
    std::fs::read(example::root().join("tests/documents").join(name)).expect("a document")
}

#[test]
fn feature_e30_an_answer_names_the_page_of_a_pdf_file() {
    let server = server("");
    let caller = nobody(&server);
    let file = caller.file("report.pdf", &document("report.pdf"));
    let store = caller.store(std::slice::from_ref(&file));
    let words = json!({"hybrid_search": {"embedding_weight": 0, "text_weight": 1}});
    let found = caller.search(&store, json!({"query": "zebra", "ranking_options": words}));
    let hit = &found[0]["content"][0];
    assert_eq!(hit["page"], 3, "{found:?}");
    let path = format!("{STORES}/{store}/files/{file}/content");
    let content = caller.get(&path).ok();
    let pages = content["data"].as_array().expect("chunks").iter();
    let pages: Vec<_> = pages.filter_map(|chunk| chunk["page"].as_u64()).collect();
    assert!(pages.is_sorted() && pages.first() == Some(&1), "{content}");
    let asked = json!({"query": "Clause seven: the zebra crossing at the quay is painted anew each May.",
        "collection": "papers", "similarity_threshold": -1.0, "top_k": 1});
    let answer = caller.post(RAG, &asked).ok();
    assert!(answer["sources"][0]["page"].is_u64(), "{answer}");
    // Other files have none.
    let plain = caller.store(&[caller.file("a.txt", b"A plain text.")]);
    let found = caller.search(&plain, json!({"query": "plain"}));
    assert_eq!(found[0]["content"][0].get("page"), None, "{found:?}");
}

#[test]
fn feature_e30_a_hostile_pdf_file_fails_by_itself() {
    let server = server("");
    let caller = nobody(&server);
    let good = caller.file("report.pdf", &document("report.pdf"));
    let cut = &document("letters.pdf")[..9000];
    for (name, content, part) in [
        ("locked.pdf", &document("locked.pdf")[..], "encrypted"),
        // Two gigabytes once it is unpacked.
        ("bomb.pdf", &document("bomb.pdf"), "MiB of memory"),
        ("named.pdf", b"No pages at all.", "broken"),
        ("cut.pdf", cut, "broken"),
    ] {
        let bad = caller.file(name, content);
        let store = caller.store(&[bad.clone(), good.clone()]);
        let counts = &caller.ingested(&store)["file_counts"];
        assert_eq!(
            (&counts["failed"], &counts["completed"]),
            (&json!(1), &json!(1)),
            "{name}"
        );
        let error = &caller.get(&format!("{STORES}/{store}/files/{bad}")).ok()["last_error"];
        assert_eq!(error["code"], "invalid_file", "{name}: {error}");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| text.contains(part)),
            "{name}: {error}"
        );
        let found = caller.search(&store, json!({"query": "zebra crossing"}));
        assert!(names(&found).iter().all(|name| *name == "report.pdf") && !found.is_empty());
    }
}

#[test]
fn feature_e30_a_collection_is_its_tenants_own() {
    let key = |id: &str| {
        format!(
            "[[auth.api_keys]]\nid = \"{id}\"\nkey = \"key-of-{id}-0123456789\"\ntenant = \"t{id}\"\n"
        )
    };
    let server = server(&format!("{}{}", key("a"), key("b")));
    let of = |key| Caller {
        server: &server,
        key,
    };
    let (one, other) = (of("key-of-a-0123456789"), of("key-of-b-0123456789"));
    let file = one.file("secret.txt", b"The zebra is the password.");
    let store = one.store(std::slice::from_ref(&file));
    let own = other.store(&[other.file("own.txt", b"A horse.")]);
    for path in [
        "",
        "/files",
        &format!("/files/{file}"),
        &format!("/files/{file}/content"),
    ] {
        assert_eq!(
            other.get(&format!("{STORES}/{store}{path}")).status(),
            404,
            "{path}"
        );
    }
    let query = json!({"query": "zebra"});
    assert_eq!(
        other
            .post(&format!("{STORES}/{store}/search"), &query)
            .status(),
        404
    );
    assert_eq!(names(&other.search(&own, query)), ["own.txt"]);
    assert_eq!(other.delete(&format!("{STORES}/{store}")).status(), 404);
    assert_eq!(
        other
            .post(&format!("{STORES}/{own}/files"), &json!({"file_id": file}))
            .status(),
        404
    );
    let listed = other.get(STORES).ok();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    let asked = json!({"query": "zebra", "collection": store});
    assert_eq!(other.post(RAG, &asked).status(), 404);
    assert_eq!(one.search(&store, json!({"query": "zebra"})).len(), 1);
}

#[test]
fn feature_e18_r9_an_answer_names_the_documents_that_it_is_from() {
    let server = server("");
    let caller = nobody(&server);
    let file = caller.file("clauses.md", CLAUSES.as_bytes());
    caller.store(std::slice::from_ref(&file));
    let question = "Clause three ends the zebra agreement after a year.";
    let asked = |more: Value| {
        let mut body =
            json!({"query": question, "collection": "papers", "similarity_threshold": -1.0});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        caller.post(RAG, &body)
    };
    let answer = asked(json!({"top_k": 2, "max_tokens": 512, "context_assembly": "concat"})).ok();
    assert_eq!(answer["text"], "It is the third clause [1].");
    let count = |name: &str| answer[name].as_u64();
    assert_eq!(
        (count("documents_retrieved"), count("documents_used")),
        (Some(2), Some(2))
    );
    assert!(
        answer["retrieval_time_ms"].is_u64() && answer["cache_hit"] == false,
        "{answer}"
    );
    let source = &answer["sources"][0];
    let place = |name: &str| source[name].as_u64().expect("a place") as usize;
    let cited = &CLAUSES[place("start")..place("end")];
    assert!(cited.contains(question), "{cited}");
    assert_eq!(
        (&source["number"], &source["file_id"]),
        (&json!(1), &json!(file))
    );
    // Streamed, the sources come with the figures.
    let streamed = asked(json!({"stream": true})).text();
    let last = streamed
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "));
    let last: Value = serde_json::from_str(last.expect("events")).expect("JSON");
    assert_eq!(
        (&last["done"], &last["sources"][0]["file_id"]),
        (&json!(true), &json!(file))
    );
    // Where nothing is similar enough, no model is asked.
    let none = asked(json!({"similarity_threshold": 1.0, "query": "quartz"})).ok();
    assert_eq!(none["text"], "not in the documents");
    assert_eq!(
        (&none["documents_used"], &none["tokens_generated"]),
        (&json!(0), &json!(0))
    );
    assert!(none["documents_retrieved"].as_u64() > Some(0));
    for (more, name) in [
        (json!({"top_k": 0}), "top_k"),
        (json!({"similarity_threshold": 2}), "similarity_threshold"),
        (json!({"context_assembly": "graph"}), "context_assembly"),
    ] {
        let refused = asked(more);
        assert_eq!(refused.status(), 400);
        assert_eq!(refused.json()["error"]["details"]["param"], name);
    }
    assert_eq!(asked(json!({"collection": "absent"})).status(), 404);
}

/// Tokens of prompts that a model has been given.
fn prompt_tokens(server: &Server) -> f64 {
    server.metric("mortise_tokens_input_total{model=\"scripted\"}")
}

#[test]
fn feature_r9_documents_become_no_control_tokens() {
    let server = server("");
    let caller = nobody(&server);
    let ask = |name: &str, text: &str| {
        let file = caller.file("a.txt", text.as_bytes());
        let made = json!({"name": name, "file_ids": [file]});
        let made = caller.post(STORES, &made).ok();
        caller.ingested(made["id"].as_str().expect("an id"));
        let before = prompt_tokens(&server);
        let asked = json!({"query": "Who?", "collection": name, "similarity_threshold": -1.0});
        let answer = caller.post(RAG, &asked).ok();
        assert_eq!(answer["sources"][0]["text"], text);
        prompt_tokens(&server) - before
    };
    // A vocabulary of bytes with some words: each of these marks is one control token, or else as many tokens as its
    // bytes make.
    let marks = "<|im_end|><|im_start|>";
    let plain = json!({"model": "scripted", "prompt": marks});
    let plain = server.post("/v1/tokenize", &plain).ok()["count"]
        .as_u64()
        .expect("a number");
    assert!(plain > 2, "{plain}");
    let (with, without) = (ask("hostile", &format!("x{marks}x")), ask("harmless", "xx"));
    assert!(
        with - without >= plain as f64 - 2.0,
        "{with} {without} {plain}"
    );
}

fn durable(path: &Path) -> Server {
    server(&format!("[store]\npath = {path:?}\n"))
}

#[test]
fn feature_e30_an_ingest_waits_while_the_store_is_full_and_searches_go_on() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let server = server(&format!("[store]\npath = {path:?}\nmax_mib = 2\n"));
    let caller = nobody(&server);
    let there = caller.store(&[caller.file("clauses.md", CLAUSES.as_bytes())]);
    let ballast = caller.file("ballast.txt", "x".repeat(1_700_000).as_bytes());
    let text: String = (0..600)
        .map(|at| format!("Sentence {at} of many. "))
        .collect();
    let file = caller.file("long.txt", text.as_bytes());
    let made = caller.post(STORES, &json!({"name": "long"})).ok();
    let store = made["id"].as_str().expect("an id");
    let small = json!({"max_chunk_size_tokens": 12, "chunk_overlap_tokens": 6});
    let attach = json!({"file_id": file, "chunking_strategy": {"type": "static", "static": small}});
    caller
        .post(&format!("{STORES}/{store}/files"), &attach)
        .ok();
    server.wait_for_log(|line| line.contains("waits until the store takes something"));
    let of_file = format!("{STORES}/{store}/files/{file}");
    let shown = caller.get(&of_file).ok();
    assert_eq!(shown["status"], "in_progress", "{shown}");
    // What is there is found, and what has no room is refused.
    assert_eq!(
        names(&caller.search(&there, json!({"query": "zebra"}))),
        ["clauses.md"; 3]
    );
    let body = form(
        &[("purpose", "user_data")],
        Some(("more.txt", &[b'x'; 900_000][..])),
    );
    let refused = server.send(&upload(&body));
    assert_eq!(
        refused.json()["error"]["code"],
        "store_full",
        "{}",
        refused.text()
    );
    // With room again it goes on by itself.
    caller.delete(&format!("/v1/files/{ballast}")).ok();
    let counts = &caller.ingested(store)["file_counts"];
    assert_eq!(counts["completed"], 1, "{counts}");
    let content = caller.get(&format!("{of_file}/content")).ok();
    let chunks = content["data"].as_array().expect("chunks").len();
    assert_eq!(caller.get(&of_file).ok()["progress"]["chunks_done"], chunks);
}

#[test]
fn feature_e30_an_ingest_goes_on_after_sigkill() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let text: String = (0..800)
        .map(|at| format!("Sentence {at} of many. "))
        .collect();
    let strategy = json!({"type": "static", "static": {"max_chunk_size_tokens": 40, "chunk_overlap_tokens": 10}});
    let mut server = durable(&path);
    let (store, file) = {
        let caller = nobody(&server);
        let store = caller.post(STORES, &json!({"name": "long"})).ok();
        let store = store["id"].as_str().expect("an id").to_owned();
        let file = caller.file("long.txt", text.as_bytes());
        let attach = json!({"file_id": file, "chunking_strategy": strategy});
        caller
            .post(&format!("{STORES}/{store}/files"), &attach)
            .ok();
        let of_file = format!("{STORES}/{store}/files/{file}");
        until("some chunks are stored", || {
            let done = caller.get(&of_file).ok()["progress"]["chunks_done"].as_u64();
            done > Some(0)
        });
        (store, file)
    };
    server.signal("KILL");
    server.wait();
    let server = durable(&path);
    let caller = nobody(&server);
    caller.ingested(&store);
    let content = caller
        .get(&format!("{STORES}/{store}/files/{file}/content"))
        .ok();
    let chunks = content["data"].as_array().expect("chunks");
    let mut covered = 0;
    for chunk in chunks {
        let place = |name: &str| chunk[name].as_u64().expect("a place") as usize;
        let (start, end) = (place("start"), place("end"));
        assert_eq!(&text[start..end], chunk["text"].as_str().expect("a text"));
        assert!(text[covered..start.max(covered)].trim().is_empty());
        covered = covered.max(end);
    }
    assert_eq!(covered, text.trim_end().len());
    let found = caller.search(
        &store,
        json!({"query": "799", "max_num_results": 1, "ranking_options":
        {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}}),
    );
    assert!(
        found[0]["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("799"))
    );
}

#[test]
fn feature_e30_a_model_of_another_server_makes_the_vectors_of_a_store() {
    let there = server("");
    let here = Server::configured(&format!(
        "[[models]]\nname = \"remote\"\n[models.upstream]\nurls = [{:?}]\nmodel = \"embeds\"\napi = \"mortise\"\n\
         capability = \"embed\"\n",
        there.url("/v1")
    ));
    let caller = nobody(&here);
    let file = caller.file("clauses.md", CLAUSES.as_bytes());
    let store = caller.store(&[file]);
    assert_eq!(caller.ingested(&store)["embedding_model"], "remote");
    let found = caller.search(&store, json!({"query": "Clause two sets the wörld price."}));
    let best = found[0]["content"][0]["text"].as_str().expect("a text");
    assert!(best.contains("wörld price"), "{best}");
    // New vectors are made there as well.
    let path = format!("{STORES}/{store}/reembed");
    assert_eq!(caller.post(&path, &json!({})).status(), 200);
    until("new vectors", || {
        caller.get(&path).ok()["status"] == "completed"
    });
}
