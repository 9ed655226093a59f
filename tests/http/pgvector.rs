//! The index of vector stores in the database that servers share, found by `pgvector`.

use std::process::Command;

use serde_json::json;

use crate::retrieval::{Caller, server};
use crate::support::client::Request;
use crate::support::postgres::Postgres;
use crate::support::{Server, binary};

const STORES: &str = "/v1/vector_stores";

/// Configuration of a server whose index is in the database of its store.
pub(crate) fn in_database(url: &str) -> String {
    format!("[store]\nurl = {url:?}\n[retrieval]\nindex = \"pgvector\"\n")
}

fn files(found: &[serde_json::Value]) -> Vec<&str> {
    let mut names: Vec<&str> = found
        .iter()
        .filter_map(|one| one["filename"].as_str())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn feature_z8_an_index_in_the_database_is_that_of_all_servers() {
    let Some(postgres) = Postgres::with_pgvector() else {
        return;
    };
    let url = postgres.database("of_all");
    let keys = ["a", "b"].map(|id| {
        format!("[[auth.api_keys]]\nid = \"{id}\"\nkey = \"key-of-{id}-0123456789\"\ntenant = \"t{id}\"\n")
    });
    let keys = keys.concat();
    // What is there before, one of which the index is in memory has stored.
    let before = server(&format!("[store]\nurl = {url:?}\n{keys}"));
    fn of<'a>(server: &'a Server, key: &'a str) -> Caller<'a> {
        Caller { server, key }
    }
    let (ann, bob) = ("key-of-a-0123456789", "key-of-b-0123456789");
    let caller = of(&before, ann);
    let store = caller.store(&[caller.file("old.md", b"The zebra is old.")]);
    let all = json!({"query": "zebra"});
    assert_eq!(files(&caller.search(&store, all.clone())), ["old.md"]);

    let with = format!("{}{keys}", in_database(&url));
    let (one, other) = (server(&with), server(&with));
    assert_eq!(
        files(&of(&one, ann).search(&store, all.clone())),
        ["old.md"]
    );
    let caller = of(&one, ann);
    let file = caller.file("new.md", b"The zebra is new.");
    let attach = json!({"file_id": file, "attributes": {"year": 2024, "quote": "a\"\\b"}});
    caller
        .post(&format!("{STORES}/{store}/files"), &attach)
        .ok();
    caller.ingested(&store);
    let check = |query: &serde_json::Value, expected: &[&str]| {
        for server in [&other, &one, &before] {
            let found = of(server, ann).search(&store, query.clone());
            assert_eq!(files(&found), expected, "{query}");
        }
    };
    check(&all, &["new.md", "old.md"]);
    let year = |kind: &str, year: u32| json!({"query": "zebra", "filters": {"type": kind, "key": "year", "value": year}});
    check(&year("gte", 2024), &["new.md"]);
    check(&year("ne", 2024), &["old.md"]);
    let path = format!("{STORES}/{store}/files/{file}");
    let changed = json!({"attributes": {"year": 2025}});
    caller.post(&path, &changed).ok();
    check(&year("eq", 2024), &[]);
    check(&year("eq", 2025), &["new.md"]);
    // Nobody finds what is another tenant's.
    let bobs = of(&other, bob);
    let own = bobs.store(&[bobs.file("bob.md", b"The zebra is his.")]);
    assert_eq!(files(&bobs.search(&own, all.clone())), ["bob.md"]);
    let refused = bobs.post(&format!("{STORES}/{store}/search"), &all);
    assert_eq!(refused.status(), 404);
    check(&all, &["new.md", "old.md"]);
    caller.delete(&path).ok();
    check(&all, &["old.md"]);
    // Rows go with the vector store.
    let gone = Request::get(&format!("{STORES}/{own}")).method("DELETE");
    let gone = gone.header("authorization", &format!("Bearer {bob}"));
    other.send(&gone).ok();
    let left = "SELECT count(DISTINCT owner), count(*) FROM mortise.search_documents";
    assert_eq!(postgres.ask("of_all", left), "1|1");
}

#[test]
fn feature_z8_a_database_without_pgvector_ends_the_start() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("make a folder");
    let config = folder.path().join("mortise.toml");
    let url = postgres.database("no_pgvector");
    for (text, problem) in [
        (in_database(&url), "CREATE EXTENSION vector"),
        (
            "[retrieval]\nindex = \"pgvector\"\n".to_owned(),
            "store.url",
        ),
    ] {
        std::fs::write(&config, text).expect("write the configuration");
        let mut start = Command::new(binary());
        start
            .args(["serve", "--port", "0", "--config"])
            .arg(&config);
        let output = start.output().expect("run mortise");
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains(problem), "{said}");
    }
}
