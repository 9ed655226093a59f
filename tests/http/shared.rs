//! Several servers at one PostgreSQL database: what one stores the others serve, and work belongs to one of them.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::batches::{BATCHES, create, lines, outputs, path_of, when};
use crate::files::{FILES, content, form, upload};
use crate::killed::mortise;
use crate::responses::RESPONSES;
use crate::retrieval;
use crate::support::client::Request;
use crate::support::postgres::Postgres;
use crate::support::{Server, binary, until, wait_for};
use crate::tls::Authority;

const QUICK: &str = "default = \"Hello there, wörld 👋.\"\n";
const SLOW: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 40\n";
const HELD: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 1000\n";
const ADMIN_KEY: &str = "an admin key of the tests";

fn at(url: &str, script: &str, more: &str) -> Server {
    Server::scripted(script, &format!("[store]\nurl = {url:?}\n{more}\n"))
}

fn ask(text: &str) -> Value {
    json!({"model": "scripted", "input": text})
}

fn id_of(value: &Value) -> String {
    value["id"].as_str().expect("an id").to_owned()
}

#[test]
fn feature_z8_what_one_server_stores_the_other_serves() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("served");
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| at(&url, QUICK, ""));
        let other = scope.spawn(|| at(&url, QUICK, ""));
        (one.join().expect("starts"), other.join().expect("starts"))
    });
    let first = one.post(RESPONSES, &ask("Hi")).ok();
    let path = format!("{RESPONSES}/{}", id_of(&first));
    assert_eq!(other.get(&path).ok(), first);
    let mut next = ask("And?");
    next["previous_response_id"] = first["id"].clone();
    let second = other.post(RESPONSES, &next).ok();
    let items = one.get(&format!("{RESPONSES}/{}/input_items", id_of(&second)));
    assert!(
        items.ok()["data"]
            .as_array()
            .is_some_and(|data| !data.is_empty())
    );

    let mut keyed = chat("Hi");
    keyed["store"] = json!(true);
    let keyed = |text: &str| {
        let mut body = keyed.clone();
        body["messages"][0]["content"] = json!(text);
        Request::post(CHAT, &body).header("idempotency-key", "a key")
    };
    let made = one.send(&keyed("Hi"));
    let again = other.send(&keyed("Hi"));
    assert_eq!(again.text(), made.text());
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let conflict = other.send(&keyed("Another"));
    assert_eq!(conflict.status(), 409);
    assert_eq!(conflict.json()["error"]["code"], "idempotency_conflict");

    let deleted = Request::get(&path).method("DELETE");
    other.send(&deleted).ok();
    assert_eq!(one.get(&path).status(), 404);
}

#[test]
fn feature_z8_a_key_that_comes_to_both_at_once_is_done_once() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("keys_at_once");
    let servers = [at(&url, SLOW, ""), at(&url, SLOW, "")];
    for round in 0..3 {
        let mut body = chat("Hi");
        body["store"] = json!(true);
        body["metadata"] = json!({"round": round.to_string()});
        let request = Request::post(CHAT, &body).header("idempotency-key", &format!("key {round}"));
        let replayed = AtomicUsize::new(0);
        let answers: Vec<String> = std::thread::scope(|scope| {
            let asked = servers.iter().chain(&servers).map(|server| {
                scope.spawn(|| {
                    let answer = server.send(&request);
                    if answer.header("idempotency-replayed").is_some() {
                        replayed.fetch_add(1, Ordering::Relaxed);
                    }
                    id_of(&answer.ok())
                })
            });
            let asked: Vec<_> = asked.collect();
            asked
                .into_iter()
                .map(|asked| asked.join().expect("an answer"))
                .collect()
        });
        assert!(answers.iter().all(|id| *id == answers[0]), "{answers:?}");
        assert_eq!(replayed.load(Ordering::Relaxed), 3);
        let listed = servers[0]
            .get(&format!("{CHAT}?metadata[round]={round}"))
            .ok();
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn feature_z8_work_of_a_killed_server_is_done_by_another_once() {
    const LINES: usize = 40;
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("taken_up");
    let few = "[limits]\nbatch_lines = 2\n";
    let (one, other) = (at(&url, SLOW, few), at(&url, QUICK, few));
    let batch = create(&one, &lines(LINES), CHAT);
    let mut background = ask("Hi");
    background["background"] = json!(true);
    background["input"] = json!("Hi ".repeat(50));
    wait_for(|| {
        let now = other.get(&path_of(&batch)).ok();
        match now["request_counts"]["completed"].as_u64() {
            Some(2..) => Ok(()),
            _ => Err(format!("the batch is {now}")),
        }
    });
    let made = one.post(RESPONSES, &background).ok();
    let path = format!("{RESPONSES}/{}", id_of(&made));
    one.signal("KILL");
    drop(one);
    let ended = wait_for(|| {
        let now = other.get(&path).ok();
        match now["status"] == "completed" {
            true => Ok(now),
            false => Err(format!("the response is {}", now["status"])),
        }
    });
    assert_eq!(id_of(&ended), id_of(&made));
    let batch = when(&other, &batch, &["completed"]);
    assert_eq!(
        batch["request_counts"],
        json!({"total": LINES, "completed": LINES, "failed": 0})
    );
    assert_eq!(outputs(&other, &batch["output_file_id"]).len(), LINES);
}

#[test]
fn feature_z8_one_server_works_and_the_other_cancels() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("cancelled");
    let (one, other) = (at(&url, HELD, ""), at(&url, HELD, ""));
    let mut body = ask("Hi");
    body["background"] = json!(true);
    let (first, second) = (
        one.post(RESPONSES, &body).ok(),
        one.post(RESPONSES, &body).ok(),
    );
    let path = format!("{RESPONSES}/{}", id_of(&first));
    let cancelled = other.post(&format!("{path}/cancel"), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(one.get(&path).ok()["status"], "cancelled");
    // The other server streams what the first one makes, when that has ended.
    let path = format!("{RESPONSES}/{}", id_of(&second));
    let events = other.get(&format!("{path}?stream=true")).text();
    assert!(events.contains("response.completed"), "{events}");

    let batch = create(&one, &lines(10), CHAT);
    when(&one, &batch, &["in_progress"]);
    // Neither server removes what one of them reads.
    let input = format!(
        "{FILES}/{}",
        batch["input_file_id"].as_str().expect("an id")
    );
    for server in [&one, &other] {
        let refused = server.send(&Request::get(&input).method("DELETE"));
        assert_eq!(refused.status(), 409, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "file_in_use");
    }
    let now = other.post(&format!("{BATCHES}/{}/cancel", id_of(&batch)), &json!({}));
    let now = now.ok();
    assert!(
        ["cancelling", "cancelled"].contains(&now["status"].as_str().expect("a status")),
        "{now}"
    );
    let now = when(&other, &batch, &["cancelled"]);
    assert_eq!(when(&one, &batch, &["cancelled"]), now);
    let deleted = other.send(&Request::get(&input).method("DELETE")).ok();
    assert_eq!(deleted["deleted"], true);
}

#[test]
fn feature_z8_keys_and_documents_of_one_are_known_to_the_other() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("known");
    let more = format!(
        "[store]\nurl = {url:?}\n[admin]\nport = 0\nkey = {ADMIN_KEY:?}\n[audit]\nstore = true\n"
    );
    let (one, other) = (retrieval::server(&more), retrieval::server(&more));
    let store = retrieval::store_of(&one, "birds.md", "A heron fishes at dawn.");
    let search = |server: &Server, store: &str, query: &str| {
        let path = format!("/v1/vector_stores/{store}/search");
        let body = json!({"query": query});
        server.post(&path, &body).ok()["data"]
            .as_array()
            .expect("results")
            .len()
    };
    assert_eq!(search(&one, &store, "heron"), 1);
    assert_eq!(search(&other, &store, "heron"), 1);
    let another = form(
        &[("purpose", "user_data")],
        Some(("more.md", b"Another heron sleeps.")),
    );
    let file = id_of(&other.send(&upload(&another)).ok());
    let path = format!("/v1/vector_stores/{store}/files");
    other.post(&path, &json!({"file_id": file})).ok();
    until("both find the document of one", || {
        search(&other, &store, "heron") == 2 && search(&one, &store, "heron") == 2
    });

    let admin = |server: &Server, path: &str, body: &Value| {
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line
            .split_once("admin side on http://")
            .expect("an address");
        let end = address.find(['"', ' ']).unwrap_or(address.len());
        Request::post(path, body)
            .header("authorization", &format!("Bearer {ADMIN_KEY}"))
            .send(&address[..end])
    };
    let created = admin(&one, "/v1/admin/keys", &json!({"id": "ann"}));
    let secret = created.json()["key"].as_str().expect("a secret").to_owned();
    let status = |server: &Server| {
        let request = Request::post(CHAT, &chat("Hi"));
        server
            .send(&request.header("authorization", &format!("Bearer {secret}")))
            .status()
    };
    until("the other takes the key", || status(&other) == 200);
    assert_eq!(status(&one), 200);
    let taken = admin(&other, "/v1/admin/keys", &json!({"id": "ann"}));
    assert_eq!(taken.status(), 409, "{}", taken.text());
    admin(&other, "/v1/admin/keys/ann/revoke", &json!({})).ok();
    assert_eq!(status(&other), 401);
    until("the first refuses the key", || status(&one) == 401);

    // Both have written to one chain.
    let folder = tempfile::tempdir().expect("make a folder");
    let config = folder.path().join("mortise.toml");
    std::fs::write(&config, &more).expect("write the configuration");
    let config = config.to_str().expect("UTF-8");
    let report = mortise(&["audit", "verify", "--config", config]);
    assert!(report.contains("\"whole\": true"), "{report}");
    let shown = mortise(&["audit", "show", "--last", "100", "--config", config]);
    assert!(shown.matches("server.start").count() >= 2, "{shown}");
}

#[test]
fn feature_z8_a_lost_database_fails_what_promises_state_and_comes_back() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.database("lost");
    let server = at(&url, QUICK, "[health]\nrequired = [\"store\"]\n");
    let first = server.post(RESPONSES, &ask("Hi")).ok();
    let path = format!("{RESPONSES}/{}", id_of(&first));
    let batch = create(&server, &lines(3), CHAT);
    postgres.end();
    let mut without = ask("Hi");
    without["store"] = json!(false);
    let refused = wait_for(|| {
        let answer = server.post(RESPONSES, &ask("Hi"));
        match answer.status() {
            200 => Err("a response was promised".to_owned()),
            _ => Ok(answer),
        }
    });
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "store_unavailable");
    assert_eq!(server.get(&path).status(), 503);
    server.post(RESPONSES, &without).ok();
    server.post(CHAT, &chat("Hi")).ok();
    until("the server says that the store is lost", || {
        let ready = server.get("/ready");
        ready.status() == 503 && ready.json()["checks"]["store"] == "failed"
    });
    postgres.begin();
    until("the store is there again", || {
        server.get("/ready").status() == 200
    });
    assert_eq!(server.get(&path).ok(), first);
    server.post(RESPONSES, &ask("Hi")).ok();
    let batch = when(&server, &batch, &["completed"]);
    assert_eq!(
        content(&server, &batch["output_file_id"]).lines().count(),
        3
    );
}

#[test]
fn feature_z8_operators_check_the_database_and_are_told_of_its_own_tools() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("operated");
    let folder = tempfile::tempdir().expect("make a folder");
    let config = folder.path().join("mortise.toml");
    std::fs::write(folder.path().join("url"), format!("{url}\n")).expect("write the address");
    std::fs::write(&config, "[store]\nurl_file = \"url\"\n").expect("write the configuration");
    let config = config.to_str().expect("UTF-8");
    let run = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .args(["--config", config])
            .output()
            .expect("run mortise");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success(),
            text + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (good, said) = run(&["store", "check"]);
    assert!(
        !good && said.contains("has no tables of mortise yet"),
        "{said}"
    );
    let server = at(&url, QUICK, "");
    server.post(RESPONSES, &ask("Hi")).ok();
    let (good, said) = run(&["store", "check"]);
    assert!(good, "{said}");
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (&report["whole"], &report["records"]["response"]),
        (&json!(true), &json!(1))
    );
    let copy = folder.path().join("copy.db");
    let copy = copy.to_str().expect("UTF-8");
    for (arguments, instead) in [
        (&["store", "backup", copy][..], "pg_dump"),
        (&["store", "vacuum"], "VACUUM"),
    ] {
        let (good, said) = run(arguments);
        assert!(!good && said.contains(instead), "{said}");
    }
    // A server that finds no database says which, and no secret.
    let missing = url.replace("user=mortise", "user=mortise&password=hunter2");
    let missing = missing.replace("operated", "no_such_database");
    std::fs::write(folder.path().join("url"), missing).expect("write the address");
    let (good, said) = run(&["serve", "--port", "0"]);
    assert!(!good && said.contains("no_such_database"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn feature_z8_the_way_to_the_database_is_encrypted_and_its_certificate_checked() {
    let authority = Authority::new();
    authority.sign("database", "db");
    let (certificate, key) = (
        authority.file("database.pem"),
        authority.file("database.key"),
    );
    let Some(postgres) = Postgres::secure(&certificate, &key) else {
        return;
    };
    postgres.database("encrypted");
    let remote = |host: &str, mode: &str| {
        let url = postgres.remote_url(host, "encrypted");
        format!("{url}?sslmode={mode}&application_name=tested")
    };
    let with = |url: &str, authority: &Authority| {
        let trusted = authority.file("ca.pem");
        format!("[store]\nurl = {url:?}\nca_file = {trusted:?}\n")
    };
    for (host, mode) in [("localhost", "require"), ("127.0.0.1", "verify-full")] {
        let config = with(&remote(host, mode), &authority);
        let server = Server::scripted(QUICK, &config);
        server.post(RESPONSES, &ask("Hi")).ok();
        let sessions = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                        WHERE application_name = 'tested'";
        assert_eq!(postgres.ask("encrypted", sessions), "t", "{mode}");
    }
    // Neither a certificate of another authority is believed, nor a server without one.
    let folder = tempfile::tempdir().expect("make a folder");
    let plain = Postgres::shared().expect("it is installed");
    let unencrypted = plain.database("unencrypted") + "&sslmode=require";
    for (url, trusted, problem) in [
        (
            remote("localhost", "require"),
            Authority::new(),
            "certificate",
        ),
        (unencrypted, authority, "TLS"),
    ] {
        let config = folder.path().join("mortise.toml");
        std::fs::write(&config, with(&url, &trusted)).expect("write the configuration");
        let mut check = Command::new(binary());
        check.args(["store", "check", "--config"]).arg(&config);
        let output = check.output().expect("run mortise");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(problem), "{said}");
    }
}
