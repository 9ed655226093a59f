//! Collections of documents of all callers, as operators see and change them.

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{example, until};
use crate::{KEY, Managed, code, scripted};

const ALL: &str = "/v1/admin/collections";

/// Callers of a tenant and one without, a model that makes vectors and one that does not, and an audit log.
fn managed(folder: &std::path::Path) -> Managed {
    let demo = example::root().join("examples/demo-model/model");
    let log = folder.join("audit.jsonl");
    Managed::start(&format!(
        "[audit]\nfile = {log:?}\n\
         [[auth.api_keys]]\nid = \"ann\"\nkey = \"the key of ann\"\ntenant = \"acme\"\n\
         [[auth.api_keys]]\nid = \"bob\"\nkey = \"the key of bob\"\n\
         [[models]]\nname = \"embeds\"\npath = {demo:?}\npooling = \"last\"\n{}",
        scripted("one", "default = \"one\"", "")
    ))
}

fn put(managed: &Managed, collection: &str, name: &str, content: &[u8]) -> crate::Response {
    let path = format!("{collection}/files?name={name}");
    managed.ask(Request::raw(&path, content))
}

fn rows(managed: &Managed) -> Vec<Value> {
    let all = managed.ask(Request::get(ALL)).ok();
    all["data"].as_array().expect("rows").clone()
}

fn remove(managed: &Managed, path: &str) -> Value {
    managed.ask(Request::get(path).method("DELETE")).ok()
}

#[test]
fn feature_e36_collections_of_all_callers_are_made_filled_searched_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = managed(folder.path());
    let post = |path: &str, body: &Value| managed.ask(Request::post(path, body));
    let asked = |key: &str, path: &str| {
        let key = format!("Bearer the key of {key}");
        managed
            .server
            .send(&Request::get(path).header("authorization", &key))
    };
    assert!(rows(&managed).is_empty());
    let body = json!({"tenant": "acme", "name": "papers", "embedding_model": "embeds"});
    let made = post(ALL, &body);
    assert_eq!(made.status(), 201, "{}", made.text());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(made.json()["owner"], "tenant acme");
    let collection = format!("{ALL}/tenant%20acme/{id}");

    // A document is a file of the tenant, and is ingested as one that its caller attached.
    let text = "# Term\n\nThe zebra agreement ends after a year.\n";
    let added = put(&managed, &collection, "a%20b.md", text.as_bytes());
    assert_eq!(added.status(), 202, "{}", added.text());
    let file = added.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(added.json()["filename"], "a b.md");
    until("the document is ingested", || {
        rows(&managed)[0]["file_counts"]["completed"] == 1
    });
    let row = &rows(&managed)[0];
    assert_eq!(
        (&row["tenant"], &row["caller"]),
        (&json!("acme"), &Value::Null)
    );
    assert_eq!(
        (&row["status"], &row["chunks"]),
        (&json!("completed"), &json!(1))
    );
    let files = managed
        .ask(Request::get(&format!("{collection}/files?limit=5")))
        .ok();
    assert_eq!(files["data"][0]["progress"]["chunks_done"], 1, "{files}");
    let store = format!("/v1/vector_stores/{id}");
    assert_eq!(asked("ann", &store).ok()["name"], "papers");
    assert_eq!(
        asked("ann", &format!("/v1/files/{file}")).ok()["filename"],
        "a b.md"
    );
    // No other caller has it, and an operator finds it with its owner only.
    assert_eq!(asked("bob", &store).status(), 404);
    let elsewhere = managed.ask(Request::get(&format!("{ALL}/caller%20bob/{id}")));
    assert_eq!(code(&elsewhere), (404, "not_found".to_owned()));

    let found = post(&format!("{collection}/search"), &json!({"query": "zebra"})).ok();
    let hit = &found["data"][0];
    assert_eq!(
        (&hit["file_id"], &hit["filename"]),
        (&json!(file), &json!("a b.md"))
    );
    let passage = &hit["content"][0];
    let place = |name: &str| passage[name].as_u64().expect("a place") as usize;
    assert!(
        text[place("start")..place("end")].contains("zebra"),
        "{passage}"
    );

    let begun = post(&format!("{collection}/reembed"), &json!({})).ok();
    assert_eq!(begun["status"], "in_progress", "{begun}");
    until("the vectors are made", || {
        rows(&managed)[0]["reembedding"]["status"] == "completed"
    });
    let ended = remove(&managed, &format!("{collection}/reembed"));
    assert_eq!(ended["status"], "completed", "{ended}");

    assert_eq!(
        remove(&managed, &format!("{collection}/files/{file}"))["deleted"],
        true
    );
    assert_eq!(rows(&managed)[0]["file_counts"]["total"], 0);
    assert_eq!(asked("ann", &format!("/v1/files/{file}")).status(), 200);
    assert_eq!(remove(&managed, &collection)["deleted"], true);
    assert!(rows(&managed).is_empty());
    let entries = managed.ask(Request::get("/v1/admin/audit")).text();
    for told in ["a b.md", "papers", "/reembed", "\"vector_store.deleted\""] {
        assert!(entries.contains(told), "{told} is not in {entries}");
    }
}

#[test]
fn feature_e36_what_cannot_be_is_refused_as_callers_are_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = managed(folder.path());
    let post = |path: &str, body: &Value| code(&managed.ask(Request::post(path, body)));
    let refused = |status, code: &str| (status, code.to_owned());
    let both = json!({"tenant": "a", "caller": "b"});
    assert_eq!(post(ALL, &both), refused(400, "invalid_collection"));
    assert_eq!(
        post(ALL, &json!({"nam": "x"})),
        refused(422, "invalid_collection")
    );
    assert_eq!(
        post(ALL, &json!({"tenant": ""})),
        refused(400, "invalid_value")
    );
    assert_eq!(
        post(ALL, &json!({"embedding_model": "one"})),
        refused(400, "invalid_value")
    );
    assert_eq!(post(ALL, &json!({"embedding_model": "absent"})).0, 404);
    assert!(rows(&managed).is_empty());
    // Callers who are not told apart have one, too.
    let made = managed
        .ask(Request::post(ALL, &json!({"name": "open"})))
        .json();
    assert_eq!(made["owner"], "caller anonymous", "{made}");
    let id = made["id"].as_str().expect("an id");
    let collection = format!("{ALL}/caller%20anonymous/{id}");
    for owner in ["server", "tenant%20", "nobody"] {
        let path = format!("{ALL}/{owner}/{id}");
        assert_eq!(
            code(&managed.ask(Request::get(&path))),
            refused(400, "invalid_value"),
            "{owner}"
        );
    }
    for path in ["", "?nam=x", "?name=a&b=c"] {
        let sent = managed.ask(Request::raw(&format!("{collection}/files{path}"), b"text"));
        assert_eq!(code(&sent), refused(400, "invalid_query"), "{path}");
    }
    assert_eq!(
        code(&put(&managed, &collection, "", b"text")),
        refused(400, "invalid_value")
    );
    let large = vec![b'a'; (16 << 20) + 1];
    assert_eq!(
        code(&put(&managed, &collection, "a.txt", &large)),
        refused(413, "file_too_large")
    );
    assert_eq!(
        code(&put(
            &managed,
            &format!("{ALL}/caller%20anonymous/vs_absent"),
            "a.txt",
            b"a"
        ))
        .0,
        404
    );
    assert_eq!(managed.server.get("/v1/files").status(), 401);
    let row = &rows(&managed)[0];
    assert_eq!(row["file_counts"]["total"], 0, "{row}");
    let absent = managed.ask(Request::get(&format!("{collection}/files/absent")).method("DELETE"));
    assert_eq!(code(&absent), refused(404, "not_found"));
    let search = |body: Value| post(&format!("{collection}/search"), &body);
    assert_eq!(search(json!({"query": " "})), refused(400, "invalid_value"));
    assert_eq!(
        search(json!({"query": "a", "most": 1})),
        refused(422, "invalid_collection")
    );
}

#[test]
fn feature_e36_events_tell_of_collections_when_they_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = managed(folder.path());
    let request = Request::get("/v1/admin/events?topics=collections");
    let mut stream = request.header("x-admin-token", KEY).begin(&managed.admin);
    assert_eq!(stream.head().status, 200);
    let mut text = String::new();
    let mut follow = |wanted: &str| {
        while !text.contains(wanted) {
            text.push_str(&String::from_utf8_lossy(&stream.chunk().expect("an event")));
        }
    };
    follow("\"total\":0");
    let body = json!({"tenant": "acme", "name": "papers"});
    let made = managed.ask(Request::post(ALL, &body)).json();
    follow("\"name\":\"papers\"");
    let id = made["id"].as_str().expect("an id");
    put(
        &managed,
        &format!("{ALL}/tenant%20acme/{id}"),
        "a.txt",
        b"A zebra.",
    )
    .json();
    follow("\"completed\":1");
}
