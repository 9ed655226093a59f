//! Models that are pulled from a hub while the server runs, and removed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::hub::FakeHub;
use crate::support::client::Request;
use crate::support::contract::Contract;
use crate::support::{binary, example, wait_for};
use crate::{KEY, Managed, code, scripted};

/// A small model with a chat template, in one file.
pub(crate) fn tiny() -> Vec<u8> {
    fs::read(example::root().join("tests/gguf/data/tiny-chat.gguf")).expect("the model")
}

/// Configuration of a library in a folder.
pub(crate) fn library(folder: &Path, more: &str) -> String {
    format!("[library]\nfolder = {folder:?}\nmin_free_mib = 0\n{more}\n")
}

fn pull(managed: &Managed, model: &str) -> Value {
    let response = managed.ask(Request::post("/v1/admin/pulls", &json!({"model": model})));
    assert_eq!(response.status(), 202, "{}", response.text());
    response.json()
}

fn status(managed: &Managed, pull: &Value) -> Value {
    let id = pull["id"].as_str().expect("an id");
    managed
        .ask(Request::get(&format!("/v1/admin/pulls/{id}")))
        .ok()
}

/// The pull once it has ended.
fn ended(managed: &Managed, pull: &Value) -> Value {
    wait_for(|| {
        let row = status(managed, pull);
        match row["ended_at_ms"].is_null() {
            true => Err(row.to_string()),
            false => Ok(row),
        }
    })
}

pub(crate) fn delete(managed: &Managed, path: &str) -> crate::Response {
    managed.ask(Request::get(path).method("DELETE"))
}

pub(crate) fn answers(managed: &Managed, model: &str) -> u16 {
    let body = json!({
        "model": model, "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}],
    });
    managed.server.post("/v1/chat/completions", &body).status()
}

pub(crate) fn command(managed: &Managed, arguments: &[&str]) -> Output {
    let url = format!("http://{}", managed.admin);
    Command::new(binary())
        .arg("models")
        .args(arguments)
        .args(["--admin-url", &url, "--admin-key-env", "THE_KEY"])
        .env("THE_KEY", KEY)
        .output()
        .expect("run the command")
}

#[test]
fn feature_l12_a_pulled_model_is_listed_serves_and_goes_with_its_files() {
    let hub = FakeHub::start(&[("tiny.Q8_0.gguf", tiny())]);
    let folder = tempfile::tempdir().expect("a folder");
    let config = library(folder.path(), "");
    let mut managed = Managed::with(&config, &hub.variables());
    assert_eq!(managed.server.get("/v1/models").ok()["data"], json!([]));
    let done = command(&managed, &["pull", "org/tiny:Q8_0"]);
    assert!(done.status.success(), "{done:?}");
    let row = managed.row("org%2Ftiny%3AQ8_0");
    assert_eq!(row["runtime_state"], "unloaded");
    assert_eq!(row["origin"], "discovered");
    assert_eq!(answers(&managed, "org/tiny:Q8_0"), 200);

    let path = "/v1/admin/models/org%2Ftiny%3AQ8_0";
    let refused = delete(&managed, path);
    assert_eq!(code(&refused), (409, "model_loaded".to_owned()));
    managed.act("org%2Ftiny%3AQ8_0", "unload", "").ok();
    let done = command(&managed, &["rm", "org/tiny:Q8_0"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(
        code(&delete(&managed, path)),
        (404, "unknown_model".to_owned())
    );
    assert_eq!(answers(&managed, "org/tiny:Q8_0"), 404);
    let left = fs::read_dir(folder.path().join("hub")).expect("the cache");
    let left = left.flatten().filter(|entry| entry.file_name() != ".locks");
    assert_eq!(left.count(), 0);
    managed.server.assert_sound();
}

#[test]
fn feature_l12_a_pull_tells_of_its_progress_is_cancelled_and_goes_on_later() {
    let weights = tiny();
    let hub = FakeHub::start(&[("tiny.gguf", weights.clone())]);
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::with(&library(folder.path(), ""), &hub.variables());
    let key = format!("Bearer {KEY}");
    let events = Request::get("/v1/admin/events").header("authorization", &key);
    let mut events = events.begin(&managed.admin);
    assert_eq!(events.head().status, 200);
    hub.pause_at(weights.len() / 2);
    let first = pull(&managed, "org/tiny");
    // The same model is not pulled twice at once.
    assert_eq!(pull(&managed, "org/tiny")["id"], first["id"]);
    let halfway = wait_for(|| {
        let row = status(&managed, &first);
        let done = row["bytes_done"].as_u64().expect("a number");
        (done > 0)
            .then_some(row)
            .ok_or_else(|| "no bytes".to_owned())
    });
    assert_eq!(halfway["state"], "downloading");
    assert_eq!(halfway["bytes_total"], weights.len());
    let path = format!("/v1/admin/pulls/{}", first["id"].as_str().expect("an id"));
    assert_eq!(delete(&managed, &path).ok()["state"], "cancelling");
    // Another piece comes, at which the pull finds out.
    hub.pause_at(weights.len() / 2 + 4096);
    assert_eq!(ended(&managed, &first)["state"], "cancelled");
    hub.go_on();
    assert!(
        fs::read_dir(folder.path().join("entries"))
            .expect("entries")
            .next()
            .is_none()
    );

    let second = ended(&managed, &pull(&managed, "org/tiny"));
    assert_eq!(second["state"], "completed", "{second}");
    let mut gets = hub
        .seen()
        .into_iter()
        .filter(|line| line.starts_with("GET /org/tiny/resolve"));
    let last = gets.next_back().expect("a request");
    assert!(!last.ends_with("from 0"), "it began anew: {last}");
    assert_eq!(answers(&managed, "org/tiny"), 200);
    let mut told = String::new();
    while !told.contains(r#""state":"completed""#) {
        let chunk = events.chunk().expect("an event");
        told.push_str(&String::from_utf8(chunk).expect("UTF-8"));
    }
    for state in ["queued", "downloading", "cancelling", "cancelled"] {
        assert!(
            told.contains(&format!(r#""state":"{state}""#)),
            "{state} in {told}"
        );
    }
    assert!(told.contains("event: model.pull"), "{told}");
}

#[test]
fn feature_l12_a_model_that_was_pulled_is_there_after_a_restart() {
    let hub = FakeHub::start(&[("tiny.gguf", tiny())]);
    let folder = tempfile::tempdir().expect("a folder");
    let config = library(folder.path(), "");
    let managed = Managed::with(&config, &hub.variables());
    let done = ended(&managed, &pull(&managed, "org/tiny@v2"));
    assert_eq!(done["state"], "completed", "{done}");
    let second = std::panic::catch_unwind(|| Managed::with(&config, &[]));
    assert!(second.is_err(), "two servers share a library");
    managed.server.signal("KILL");
    drop(managed);
    // What no entry names is removed, such as the files of an upload that was cut by the end of the process.
    for rest in ["files/lost", "incoming/lost"] {
        fs::create_dir_all(folder.path().join(rest)).expect("a folder");
    }
    let managed = Managed::with(&config, &[]);
    assert_eq!(answers(&managed, "org/tiny@v2"), 200);
    assert!(!folder.path().join("files/lost").exists());
    assert!(!folder.path().join("incoming/lost").exists());
    let rows = managed.ask(Request::get("/v1/admin/library")).ok();
    assert_eq!(rows["data"][0]["source"], "pull");
}

#[test]
fn feature_l12_pulls_that_cannot_be_are_refused_with_the_reason() {
    let hub = FakeHub::start(&[("tiny.gguf", tiny()), ("README.md", b"x".to_vec())]);
    let folder = tempfile::tempdir().expect("a folder");
    let says = scripted("org/taken", "default = \"x\"", "");
    let config = library(folder.path(), "max_mib = 1") + &says;
    let managed = Managed::with(&config, &hub.variables());
    let ask = |body: Value| code(&managed.ask(Request::post("/v1/admin/pulls", &body)));
    assert_eq!(
        ask(json!({"model": "../x"})),
        (400, "invalid_pull".to_owned())
    );
    assert_eq!(
        ask(json!({"name": "a/b"})),
        (422, "invalid_pull".to_owned())
    );
    assert_eq!(
        ask(json!({"model": "org/taken"})),
        (409, "name_in_use".to_owned())
    );
    let unknown = ended(&managed, &pull(&managed, "org/tiny:Q2_K"));
    assert_eq!(unknown["state"], "failed");
    assert!(
        unknown["error"]
            .as_str()
            .expect("a reason")
            .contains("tiny.gguf"),
        "{unknown}"
    );
    let absent = managed.ask(Request::get("/v1/admin/pulls/absent"));
    assert_eq!(code(&absent), (404, "unknown_pull".to_owned()));
    let configured = delete(&managed, "/v1/admin/models/org%2Ftaken");
    assert_eq!(code(&configured).0, 409);
    managed.act("org%2Ftaken", "unload", "").ok();
    let configured = delete(&managed, "/v1/admin/models/org%2Ftaken");
    assert_eq!(code(&configured), (409, "model_not_in_library".to_owned()));

    let large = vec![0; 2 << 20];
    let hub = FakeHub::start(&[("large.gguf", large)]);
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::with(&library(folder.path(), "max_mib = 1"), &hub.variables());
    let full = ended(&managed, &pull(&managed, "org/large"));
    let error = full["error"].as_str().expect("a reason");
    assert!(error.contains("library.max_mib"), "{error}");
    let gets = hub
        .seen()
        .into_iter()
        .filter(|line| line.starts_with("GET /org"));
    assert_eq!(
        gets.count(),
        0,
        "nothing is fetched for which there is no room"
    );
}

#[test]
fn feature_l12_without_a_library_nothing_comes_or_goes() {
    let managed = Managed::start(&scripted("one", "default = \"x\"", ""));
    let pull = managed.ask(Request::post("/v1/admin/pulls", &json!({"model": "a/b"})));
    assert_eq!(code(&pull), (403, "library_off".to_owned()));
    let removal = delete(&managed, "/v1/admin/models/one");
    assert_eq!(code(&removal), (403, "library_off".to_owned()));
}

#[test]
fn feature_l12_callers_pull_and_delete_where_the_server_lets_them() {
    let hub = FakeHub::start(&[("tiny.gguf", tiny())]);
    let folder = tempfile::tempdir().expect("a folder");
    let config = library(folder.path(), "api = \"operators\"");
    let managed = Managed::with(&config, &hub.variables());
    let contract = Contract::new(managed.server.get("/openapi.json").ok());
    let post = |path: &str, body: Value, key: Option<&str>| {
        let request = Request::post(path, &body);
        managed.server.send(&match key {
            Some(key) => request.header("x-admin-token", key),
            None => request,
        })
    };
    let body = || json!({"model": "hf.co/org/tiny"});
    assert_eq!(post("/api/pull", body(), None).status(), 401);
    assert_eq!(
        post("/api/pull", body(), Some("another key of the tests")).status(),
        401
    );
    let (_, _, operation) = contract.operation("ollamaPull");
    let pulled = post("/api/pull", body(), Some(KEY));
    contract.holds(operation, &pulled);
    let lines: Vec<Value> = pulled
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.last().expect("a line")["status"], "success");
    assert!(
        lines.iter().any(|line| line["total"] == tiny().len()),
        "{lines:?}"
    );
    let again = json!({"model": "org/tiny", "stream": false});
    assert_eq!(
        post("/api/pull", again, Some(KEY)).ok()["status"],
        "success"
    );
    let tag = post("/api/pull", json!({"model": "llama3.2"}), Some(KEY));
    assert_eq!(tag.status(), 400);
    assert_eq!(answers(&managed, "org/tiny"), 200);
    let delete = |path: &str| {
        let request = Request::get(path).method("DELETE");
        managed.server.send(&request.header("x-admin-token", KEY))
    };
    assert_eq!(
        code(&delete("/v1/models/org/tiny")),
        (409, "model_loaded".to_owned())
    );
    managed.act("org%2Ftiny", "unload", "").ok();
    let deleted = delete("/v1/models/org/tiny");
    contract.holds(contract.operation("deleteModel").2, &deleted);
    assert_eq!(
        deleted.ok(),
        json!({"id": "org/tiny", "object": "model", "deleted": true})
    );
    assert_eq!(delete("/v1/models/org/tiny").status(), 404);
    let absent = Request::post("/api/delete", &json!({"model": "org/tiny"})).method("DELETE");
    assert_eq!(
        managed
            .server
            .send(&absent.header("x-admin-token", KEY))
            .status(),
        404
    );

    let off = Managed::start(&scripted("one", "default = \"x\"", ""));
    let request = Request::get("/v1/models/one").method("DELETE");
    let refused = off.server.send(&request.header("x-admin-token", KEY));
    assert_eq!(code(&refused), (403, "admin_only".to_owned()));
}

#[test]
fn feature_e15_a_model_tells_of_itself_below_its_name_and_is_loaded_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tiny.gguf");
    fs::write(&file, tiny()).expect("written");
    let model = format!(
        "[[models]]\nname = \"lab/tiny\"\npath = {file:?}\nenabled = false\nload_on_demand = true\n"
    );
    let managed = Managed::start(&(model + &scripted("one", "default = \"x\"", "")));
    assert_eq!(managed.state("lab%2Ftiny"), "unloaded");
    let get = |path: &str| managed.server.get(path);
    assert_eq!(get("/lab%2Ftiny/health").ok(), json!({"status": "ok"}));
    assert_eq!(managed.state("lab%2Ftiny"), "loaded");
    assert_eq!(
        get("/lab%2Ftiny/props").ok(),
        get("/props?model=lab%2Ftiny").ok()
    );
    assert_eq!(get("/one/slots").ok(), get("/slots?model=one").ok());
    let absent = get("/absent/health");
    assert_eq!(code(&absent), (404, "model_unavailable".to_owned()));
    assert!(
        absent.text().contains("model unavailable"),
        "{}",
        absent.text()
    );
}

#[test]
fn feature_e16_without_a_name_the_model_that_was_loaded_last_is_told_of() {
    let config = scripted("one", "default = \"x\"", "") + &scripted("two", "default = \"x\"", "");
    let managed = Managed::start(&config);
    let get = |path: &str| managed.server.get(path);
    for (name, other) in [("one", "two"), ("two", "one"), ("one", "two")] {
        managed.act(name, "unload", "").ok();
        assert_eq!(get("/props").ok()["model_alias"], other);
        managed.act(name, "load", "").ok();
        let props = get("/props").ok();
        assert_eq!(props["model_alias"], name);
        assert_eq!(get(&format!("/props?model={name}")).ok(), props);
        assert_eq!(
            get("/slots").ok(),
            get(&format!("/slots?model={name}")).ok()
        );
    }
    for name in ["one", "two"] {
        managed.act(name, "unload", "").ok();
    }
    let refused = get("/props");
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json()["error"]["param"], "model");
}
