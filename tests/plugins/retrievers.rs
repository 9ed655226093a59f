//! Retrievers, from a plugin file to chunks, searches and answers.

use serde_json::{Value, json};

use crate::refused_with;
use crate::support::client::{Request, Response};
use crate::support::example::{every_kind, root};
use crate::support::{Server, until};

const STORES: &str = "/v1/vector_stores";
const RAG: &str = "/api/v1/llm/rag";

/// A server with a model that makes vectors, and the guest as retrievers: one works, others lie about offsets, break down in
/// all they do, or loop.
fn server() -> Server {
    let demo = root().join("examples/demo-model/model");
    let demo = demo.to_str().expect("a path in UTF-8");
    let mut config = format!(
        "[[models]]\nname = \"embeds\"\npath = '{demo}'\npooling = \"last\"\n[retrieval]\nsearch_tool = true\n"
    );
    let guest = every_kind();
    for (name, binding) in [
        ("lines", ""),
        (
            "lies",
            "settings = { spans = \"torn\", queries = \"many\", choice = \"beyond\" }",
        ),
        (
            "may-lie",
            "settings = { spans = \"torn\", queries = \"many\", choice = \"beyond\" }\non_failure = \"open\"",
        ),
        (
            "bombs",
            "settings = { chunk = \"bomb\", rewrite = \"bomb\", assemble = \"panic\" }\nmemory_mib = 16",
        ),
        (
            "loops",
            "settings = { chunk = \"loop\" }\ndeadline_ms = 100",
        ),
        ("acmes", "tenants = [\"acme\"]"),
    ] {
        config.push_str(&format!(
            "[[plugins.bindings]]\nkind = \"retriever\"\nname = \"{name}\"\nfile = {guest:?}\n\
             breaker = {{ failures = 0 }}\n{binding}\n"
        ));
    }
    Server::scripted("default = \"It is the second line [1].\"\n", &config)
}

/// Id of an uploaded file.
fn file(server: &Server, name: &str, content: &str) -> String {
    const EDGE: &str = "edge-of-parts";
    let body = format!(
        "--{EDGE}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--{EDGE}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n--{EDGE}--\r\n"
    );
    let upload = Request::raw("/v1/files", body.as_bytes()).header(
        "content-type",
        &format!("multipart/form-data; boundary={EDGE}"),
    );
    let uploaded = server.send(&upload).ok();
    uploaded["id"].as_str().expect("an id").to_owned()
}

/// A vector store of one file with a retriever, once that is ingested or not, and the file as it is then.
fn store(server: &Server, retriever: &str, file: &str) -> (String, Value) {
    let body = json!({"name": retriever, "file_ids": [file], "retriever": retriever});
    let made = server.post(STORES, &body).ok();
    assert_eq!(made["retriever"], retriever);
    let id = made["id"].as_str().expect("an id").to_owned();
    let path = format!("{STORES}/{id}/files/{file}");
    until("the file is ingested", || {
        server.get(&path).ok()["status"] != "in_progress"
    });
    (id, server.get(&path).ok())
}

const LINES: &str = "The first line is öld.\nThe second line is zebra.\n\nThe third one ends.\n";

/// Chunks of a file: places and texts.
fn chunks(server: &Server, store: &str, file: &str) -> Vec<(usize, String)> {
    let content = server.get(&format!("{STORES}/{store}/files/{file}/content"));
    let content = content.ok();
    let rows = content["data"].as_array().expect("chunks").iter();
    rows.map(|row| {
        let place = |name: &str| row[name].as_u64().expect("a place") as usize;
        let text = row["text"].as_str().expect("a text");
        assert_eq!(&LINES[place("start")..place("end")], text);
        (place("start"), text.to_owned())
    })
    .collect()
}

fn code(response: &Response) -> (u16, String) {
    let code = response.json()["error"]["code"].clone();
    (
        response.status(),
        code.as_str().unwrap_or_default().to_owned(),
    )
}

#[test]
fn feature_w9_a_retriever_divides_rewrites_and_chooses() {
    let server = server();
    let file = file(&server, "lines.txt", LINES);
    let (id, member) = store(&server, "lines", &file);
    assert_eq!(member["status"], "completed", "{member}");
    let texts: Vec<String> = chunks(&server, &id, &file)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        texts,
        [
            "The first line is öld.",
            "The second line is zebra.",
            "The third one ends."
        ]
    );
    // The guest searches for both halves of a query, if it is asked to.
    let search = |more: Value| {
        let mut body = json!({"query": "zebra|ends", "max_num_results": 3});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        server.post(&format!("{STORES}/{id}/search"), &body)
    };
    let found = search(json!({"rewrite_query": true})).ok();
    assert_eq!(found["search_query"], json!(["zebra", "ends"]));
    let scores: Vec<f64> = found["data"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["score"].as_f64())
        .collect();
    assert!(
        scores.is_sorted_by(|one, other| one >= other) && scores.len() == 3,
        "{found}"
    );
    assert_eq!(
        search(json!({})).ok()["search_query"],
        json!(["zebra|ends"])
    );
    // It chooses the last of the candidates.
    let asked = |more: Value| {
        let mut body = json!({"query": "The second line is zebra.", "collection": id, "top_k": 1,
            "model": "scripted", "similarity_threshold": -1.0});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        server.post(RAG, &body)
    };
    let own = asked(json!({"context_assembly": "concat"})).ok();
    assert_eq!(own["documents_retrieved"], 1);
    assert_eq!(own["sources"][0]["text"], "The second line is zebra.");
    for more in [json!({}), json!({"context_assembly": "lines"})] {
        let chosen = asked(more).ok();
        assert_eq!(
            (&chosen["documents_retrieved"], &chosen["documents_used"]),
            (&json!(3), &json!(1))
        );
        assert_ne!(chosen["sources"][0]["text"], "The second line is zebra.");
        assert_eq!(chosen["text"], "It is the second line [1].");
    }
    // Of another, or of nobody.
    for name in ["acmes", "absent", ""] {
        let refused = asked(json!({"context_assembly": name}));
        assert_eq!(refused.status(), 400, "{}", refused.text());
    }
    let refused = server.post(STORES, &json!({"name": "x", "retriever": "acmes"}));
    assert_eq!(
        (refused.status(), &refused.json()["error"]["param"]),
        (400, &json!("retriever"))
    );
    // Without it, queries are searched as they are.
    let taken = server
        .post(&format!("{STORES}/{id}"), &json!({"retriever": ""}))
        .ok();
    assert_eq!(taken["retriever"], Value::Null);
    assert_eq!(search(json!({"rewrite_query": true})).status(), 400);
}

#[test]
fn feature_w9_hostile_retrievers_cost_their_own_work() {
    let server = server();
    let file = file(&server, "lines.txt", LINES);
    let failed = |retriever: &str| {
        let (id, member) = store(&server, retriever, &file);
        assert_eq!(member["status"], "failed", "{retriever}: {member}");
        assert_eq!(member["last_error"]["code"], "retriever_failed", "{member}");
        id
    };
    let lies = failed("lies");
    failed("bombs");
    failed("loops");
    let search = |id: &str| {
        let body = json!({"query": "zebra", "rewrite_query": true});
        server.post(&format!("{STORES}/{id}/search"), &body)
    };
    assert_eq!(
        code(&search(&lies)),
        (500, "plugin_invalid_result".to_owned())
    );
    // One that may fail leaves the work to the server's own way.
    let (id, member) = store(&server, "may-lie", &file);
    assert_eq!(member["status"], "completed", "{member}");
    assert_eq!(chunks(&server, &id, &file).len(), 1);
    let found = search(&id).ok();
    assert_eq!(found["search_query"], json!(["zebra"]));
    let body = json!({"query": "zebra", "collection": id, "model": "scripted", "similarity_threshold": -1.0});
    assert_eq!(server.post(RAG, &body).ok()["documents_used"], 1);
    let mut lied = body.clone();
    lied["context_assembly"] = json!("lies");
    let refused = server.post(RAG, &lied);
    assert_eq!(refused.status(), 500, "{}", refused.text());
    lied["context_assembly"] = json!("bombs");
    assert_eq!(server.post(RAG, &lied).status(), 500);
    for (function, fault) in [
        ("chunk", "invalid-result"),
        ("chunk", "memory"),
        ("chunk", "deadline"),
        ("rewrite", "invalid-result"),
        ("assemble", "trap"),
    ] {
        let page = server.get("/metrics").text();
        let counted = page.lines().any(|line| {
            line.starts_with("mortise_plugin_faults_total")
                && line.contains(&format!("function=\"retriever.{function}\""))
                && line.contains(&format!("fault=\"{fault}\""))
                && !line.ends_with(" 0")
        });
        assert!(counted, "{function} {fault}");
    }
    server
        .wait_for_log(|line| line.contains("a retriever failed, and the server's own way serves"));
}

#[test]
fn feature_w9_retrievers_are_chosen_by_names_that_mean_one() {
    let guest = every_kind();
    let bound = |more: &str| {
        format!("[[plugins.bindings]]\nkind = \"retriever\"\nfile = {guest:?}\n{more}\n")
    };
    for (config, part) in [
        (bound("models = [\"a\"]"), "chosen by its name"),
        (bound("name = \"concat\""), "the server's own"),
        (bound("") + &bound(""), "retrievers of the name `guest`"),
        (bound("on_failure = \"fallback\""), "\"closed\" or \"open\""),
        (
            "[retrieval]\nretriever = \"absent\"\n".to_owned(),
            "there is no retriever `absent`",
        ),
    ] {
        let message = refused_with(&config);
        assert!(message.contains(part), "{config}: {message}");
    }
}
