//! Batches: lines that are answered, that are wrong, that fail; cancelled, expired, and taken up after SIGKILL.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::files::{FILES, content, form, upload, uploaded};
use crate::responses::RESPONSES;
use crate::support::client::Request;
use crate::support::{Server, have, model, until, wait_for};

pub(crate) const BATCHES: &str = "/v1/batches";
const SCRIPT: &str = "default = \"Hello there, wörld 👋.\"\n";
const SLOW: &str = "default = \"Hello there, wörld 👋.\"\ntoken_delay_ms = 20\n";

fn line(id: &str, url: &str, body: &Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": url, "body": body}).to_string() + "\n"
}

pub(crate) fn lines(count: usize) -> String {
    (0..count)
        .map(|number| {
            line(
                &format!("line-{number}"),
                CHAT,
                &chat(&format!("Hi {number}")),
            )
        })
        .collect()
}

pub(crate) fn create(server: &Server, content: &str, endpoint: &str) -> Value {
    let input = uploaded(server, content);
    let body = json!({
        "input_file_id": input,
        "endpoint": endpoint,
        "completion_window": "24h",
        "metadata": {"note": "of a test"},
    });
    server.post(BATCHES, &body).ok()
}

pub(crate) fn path_of(batch: &Value) -> String {
    format!("{BATCHES}/{}", batch["id"].as_str().expect("an id"))
}

/// The batch when its status is one of these.
pub(crate) fn when(server: &Server, batch: &Value, wanted: &[&str]) -> Value {
    wait_for(|| {
        let now = server.get(&path_of(batch)).ok();
        match wanted.contains(&now["status"].as_str().expect("a status")) {
            true => Ok(now),
            false => Err(format!("the batch is {now}")),
        }
    })
}

/// Lines of an output file by their `custom_id`, each of which is there once.
pub(crate) fn outputs(server: &Server, file: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for line in content(server, file).lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let id = line["custom_id"].as_str().expect("an id").to_owned();
        assert!(found.insert(id, line).is_none(), "a line is there twice");
    }
    found
}

#[test]
fn feature_e29_lines_are_answered_as_requests_are() {
    let server = Server::scripted(SCRIPT, "");
    let mut wrong = chat("Hi");
    wrong["temperature"] = json!(7);
    let mut tokens = chat("Hi");
    tokens["max_tokens"] = json!(3);
    let input = line("good", CHAT, &chat("Hi"))
        + "\r\n"
        + &line("wrong", CHAT, &wrong)
        + &line("ä", CHAT, &tokens);
    let made = create(&server, input.trim_end(), CHAT);
    assert_eq!(
        (
            &made["object"],
            &made["endpoint"],
            &made["status"],
            &made["errors"],
            &made["metadata"]
        ),
        (
            &json!("batch"),
            &json!(CHAT),
            &json!("validating"),
            &Value::Null,
            &json!({"note": "of a test"})
        )
    );
    let batch = when(&server, &made, &["completed"]);
    assert_eq!(
        batch["request_counts"],
        json!({"total": 3, "completed": 2, "failed": 1})
    );
    for time in ["in_progress_at", "finalizing_at", "completed_at"] {
        assert!(batch[time].is_i64(), "{time} in {batch}");
    }
    for time in ["failed_at", "expired_at", "cancelling_at", "cancelled_at"] {
        assert_eq!(batch[time], Value::Null, "{time}");
    }
    assert_eq!(
        batch["expires_at"].as_i64(),
        batch["created_at"].as_i64().map(|at| at + 86400)
    );
    let output = outputs(&server, &batch["output_file_id"]);
    let mut usage = [0, 0];
    for (id, body) in [("good", chat("Hi")), ("ä", tokens)] {
        let direct = server.post(CHAT, &body).ok();
        let (line, response) = (&output[id], &output[id]["response"]);
        assert_eq!(
            (&line["error"], &response["status_code"]),
            (&Value::Null, &json!(200))
        );
        assert!(
            line["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("batch_req_")),
            "{line}"
        );
        for field in ["choices", "usage", "object", "model"] {
            assert_eq!(response["body"][field], direct[field], "{field}");
        }
        for (sum, name) in usage.iter_mut().zip(["prompt_tokens", "completion_tokens"]) {
            *sum += direct["usage"][name].as_u64().expect("a number");
        }
    }
    assert_eq!(
        [
            &batch["usage"]["input_tokens"],
            &batch["usage"]["output_tokens"]
        ],
        [usage[0], usage[1]]
    );
    let errors = outputs(&server, &batch["error_file_id"]);
    let response = &errors["wrong"]["response"];
    assert_eq!((errors.len(), &response["status_code"]), (1, &json!(400)));
    assert_eq!(response["body"], server.post(CHAT, &wrong).json());
    let file = server
        .get(&format!(
            "{FILES}/{}",
            batch["output_file_id"].as_str().expect("an id")
        ))
        .ok();
    assert_eq!(file["purpose"], "batch_output");
    assert_eq!(
        file["bytes"].as_u64(),
        Some(content(&server, &batch["output_file_id"]).len() as u64)
    );

    let ask = json!({"model": "scripted", "input": "Hi"});
    let made = create(&server, &line("r", RESPONSES, &ask), RESPONSES);
    let batch = when(&server, &made, &["completed"]);
    let answer = &outputs(&server, &batch["output_file_id"])["r"]["response"]["body"];
    // A response that a line made is stored as any is.
    let stored = server.get(&format!(
        "{RESPONSES}/{}",
        answer["id"].as_str().expect("an id")
    ));
    assert_eq!(stored.ok()["output"], answer["output"]);
    assert_eq!(batch["error_file_id"], Value::Null);
    let ask = json!({"model": "scripted", "prompt": "Hi"});
    let made = create(
        &server,
        &line("c", "/v1/completions", &ask),
        "/v1/completions",
    );
    when(&server, &made, &["completed"]);
    let listed = server.get(&format!("{BATCHES}?limit=2")).ok();
    assert_eq!(
        (&listed["data"][0]["id"], &listed["has_more"]),
        (&made["id"], &json!(true))
    );
    let rest = server.get(&format!(
        "{BATCHES}?after={}",
        listed["last_id"].as_str().expect("an id")
    ));
    assert_eq!(rest.ok()["data"].as_array().map(Vec::len), Some(1));
}

#[test]
fn feature_e29_wrong_lines_fail_the_batch_and_are_named() {
    let server = Server::scripted(SCRIPT, "");
    let errors = |input: &str| {
        let made = create(&server, input, CHAT);
        let batch = when(&server, &made, &["failed"]);
        assert!(batch["failed_at"].is_i64() && batch["in_progress_at"].is_null());
        assert_eq!(
            (&batch["output_file_id"], &batch["error_file_id"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(batch["errors"]["object"], "list");
        let entries = batch["errors"]["data"].as_array().expect("a list").iter();
        let entries = entries.map(|entry| {
            assert!(
                entry["message"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{entry}"
            );
            (
                entry["code"].as_str().expect("a code").to_owned(),
                entry["line"].as_u64(),
            )
        });
        entries.collect::<Vec<_>>()
    };
    let good = |id: &str| line(id, CHAT, &chat("Hi"));
    let mut other = chat("Hi");
    other["model"] = json!("another");
    let input = good("a")
        + "{nonsense\n\n"
        + &good("a")
        + &line("b", RESPONSES, &chat("Hi"))
        + &line("c", CHAT, &other)
        + &format!("{{\"x\":\"{}\"}}\n", "y".repeat(5_000_000))
        + &good("d");
    let entry = |code: &str, line: u64| (code.to_owned(), Some(line));
    assert_eq!(
        errors(&input),
        [
            entry("invalid_json_line", 2),
            entry("duplicate_custom_id", 4),
            entry("mismatched_url", 5),
            entry("mismatched_model", 6),
            entry("line_too_long", 7),
        ]
    );
    assert_eq!(errors("\n\n"), [("empty_file".to_owned(), None)]);
    let small = json!({"custom_id": "x", "method": "POST", "url": CHAT, "body": {}}).to_string();
    let many: String = (0..100_000)
        .map(|number| small.replace("\"x\"", &format!("\"{number}\"")) + "\n")
        .collect();
    assert_eq!(errors(&many), [("too_many_lines".to_owned(), None)]);
    assert_eq!(errors(&"[\n".repeat(1000)).len(), 100);
}

#[test]
fn feature_e29_a_batch_is_asked_for_in_its_words() {
    let server = Server::scripted(SCRIPT, "");
    let input = uploaded(&server, &lines(1));
    let body = json!({"input_file_id": input, "endpoint": CHAT, "completion_window": "24h"});
    let refused = |field: &str, value: Value, status: u16, param: &str| {
        let mut body = body.clone();
        body[field] = value;
        let answer = server.post(BATCHES, &body);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status(), &error["param"]),
            (status, &json!(param)),
            "{error}"
        );
    };
    refused("endpoint", json!("/v1/files"), 400, "endpoint");
    refused("completion_window", json!("48h"), 400, "completion_window");
    refused("input_file_id", json!("file-x"), 404, "input_file_id");
    refused("input_file_id", Value::Null, 400, "input_file_id");
    refused("colour", json!("red"), 400, "colour");
    refused("metadata", json!({"k": 5}), 400, "metadata.k");
    refused(
        "output_expires_after",
        json!({"anchor": "created_at", "seconds": 5}),
        400,
        "output_expires_after",
    );
    let note = form(&[("purpose", "user_data")], Some(("a", b"x")));
    let note = server.send(&upload(&note)).ok();
    refused("input_file_id", note["id"].clone(), 400, "input_file_id");
    assert_eq!(server.get(&format!("{BATCHES}/batch_x")).status(), 404);
    // The same key stands for one batch.
    let keyed = Request::post(BATCHES, &body).header("idempotency-key", "one");
    let (first, again) = (server.send(&keyed).ok(), server.send(&keyed).ok());
    assert_eq!(first["id"], again["id"]);
    let done = when(&server, &first, &["completed"]);
    let cancel = server.post(&format!("{}/cancel", path_of(&done)), &json!({}));
    assert_eq!(
        (cancel.status(), &cancel.json()["error"]["code"]),
        (409, &json!("batch_ended"))
    );
}

#[test]
fn feature_e29_a_cancelled_batch_keeps_what_was_answered() {
    let server = Server::scripted(
        SLOW,
        "batch_lines = 2\n"
            .replace("batch", "[limits]\nbatch")
            .as_str(),
    );
    let made = create(&server, &lines(200), CHAT);
    wait_for(
        || match server.get(&path_of(&made)).ok()["request_counts"]["completed"].as_u64() {
            Some(1..) => Ok(()),
            count => Err(format!("{count:?} lines are answered")),
        },
    );
    let input = format!("{FILES}/{}", made["input_file_id"].as_str().expect("an id"));
    let delete = || server.send(&Request::get(&input).method("DELETE"));
    assert_eq!(
        (delete().status(), &delete().json()["error"]["code"]),
        (409, &json!("file_in_use"))
    );
    let cancel = || {
        server
            .post(&format!("{}/cancel", path_of(&made)), &json!({}))
            .ok()
    };
    let status = cancel()["status"].clone();
    assert!(status == "cancelling" || status == "cancelled", "{status}");
    let batch = when(&server, &made, &["cancelled"]);
    assert!(batch["cancelling_at"].is_i64() && batch["cancelled_at"].is_i64());
    assert_eq!(cancel(), batch);
    let answered = outputs(&server, &batch["output_file_id"]).len();
    assert_eq!(
        batch["request_counts"],
        json!({"total": 200, "completed": answered, "failed": 0})
    );
    assert!(answered < 200, "all was answered before it was cancelled");
    wait_for(|| match delete().status() {
        200 => Ok(()),
        status => Err(format!("{status}")),
    });
}

#[test]
fn feature_e29_policies_decide_on_every_line() {
    let keys = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\nmax_tokens = 4\n\
                [[auth.api_keys]]\nid = \"bob\"\nkey = \"bobs-key\"\nmodels = [\"another\"]\n";
    let server = Server::scripted(SCRIPT, keys);
    let by = |key: &str, request: Request| {
        server.send(&request.header("authorization", &format!("Bearer {key}")))
    };
    let mut more = chat("Hi");
    more["max_tokens"] = json!(5);
    let input = line("all", CHAT, &chat("Hi")) + &line("more", CHAT, &more);
    let file = form(&[("purpose", "batch")], Some(("in", input.as_bytes())));
    let make = |key: &str| {
        let file = by(key, upload(&file)).ok();
        let body =
            json!({"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"});
        by(key, Request::post(BATCHES, &body))
    };
    assert_eq!(make("bobs-key").status(), 403);
    let batch = make("alices-key").ok();
    let done = wait_for(|| {
        let now = by("alices-key", Request::get(&path_of(&batch))).ok();
        match now["status"] == "completed" {
            true => Ok(now),
            false => Err(now.to_string()),
        }
    });
    for (field, id, body) in [
        ("output_file_id", "all", chat("Hi")),
        ("error_file_id", "more", more),
    ] {
        let direct = by("alices-key", Request::post(CHAT, &body));
        let Some(file) = done[field].as_str() else {
            assert_eq!(direct.status(), 200, "{done}");
            continue;
        };
        let answer = by(
            "alices-key",
            Request::get(&format!("{FILES}/{file}/content")),
        )
        .text();
        let line = answer
            .lines()
            .find(|line| line.contains(&format!("\"{id}\"")))
            .expect("the line");
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["response"]["status_code"], direct.status());
        assert_eq!(
            line["response"]["body"]["choices"],
            direct.json()["choices"]
        );
    }
    assert_eq!(by("bobs-key", Request::get(&path_of(&batch))).status(), 404);
}

fn with_store(script: &str, path: &Path) -> Server {
    Server::scripted(
        script,
        &format!("[limits]\nbatch_lines = 2\n[store]\npath = {path:?}\n"),
    )
}

#[test]
fn feature_e29_a_batch_goes_on_after_sigkill_and_answers_each_line_once() {
    const LINES: usize = 60;
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let server = with_store(SLOW, &path);
    let made = create(&server, &lines(LINES), CHAT);
    let (mut server, mut answered) = (Some(server), 0);
    for round in 0..3 {
        let running = server.take().expect("a server");
        let seen = wait_for(|| {
            let now = running.get(&path_of(&made)).ok();
            let count = now["request_counts"]["completed"]
                .as_u64()
                .expect("a number");
            match count >= answered + 2 {
                true => Ok(count),
                false => Err(format!("{count} lines are answered in round {round}")),
            }
        });
        // What was told of is never told of less.
        assert!(seen >= answered);
        answered = seen;
        running.signal("KILL");
        drop(running);
        server = Some(with_store(if round == 2 { SCRIPT } else { SLOW }, &path));
        let now = server.as_ref().expect("a server").get(&path_of(&made)).ok();
        assert!(
            now["request_counts"]["completed"]
                .as_u64()
                .expect("a number")
                >= answered,
            "{now}"
        );
    }
    let server = server.expect("a server");
    let batch = when(&server, &made, &["completed"]);
    assert_eq!(
        batch["request_counts"],
        json!({"total": LINES, "completed": LINES, "failed": 0})
    );
    assert_eq!(outputs(&server, &batch["output_file_id"]).len(), LINES);
}

#[test]
fn feature_e29_a_batch_that_expires_tells_which_lines_were_not_answered() {
    if !have(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("state.db");
    let server = with_store(SLOW, &path);
    let made = create(&server, &lines(100), CHAT);
    wait_for(
        || match server.get(&path_of(&made)).ok()["request_counts"]["completed"].as_u64() {
            Some(1..) => Ok(()),
            count => Err(format!("{count:?} lines are answered")),
        },
    );
    server.signal("KILL");
    drop(server);
    // A day passes.
    let script = "import sqlite3, json, sys\n\
        c = sqlite3.connect(sys.argv[1])\n\
        (body,) = c.execute(\"SELECT body FROM records WHERE kind = 'batch'\").fetchone()\n\
        body = json.loads(body)\n\
        body[0]['expires_at'] = 1\n\
        c.execute(\"UPDATE records SET body = ? WHERE kind = 'batch'\", [json.dumps(body).encode()])\n\
        c.commit()\n";
    let aged = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .status()
        .expect("run python3");
    assert!(aged.success());
    let server = with_store(SLOW, &path);
    let batch = when(&server, &made, &["expired"]);
    assert!(batch["expired_at"].is_i64() && batch["completed_at"].is_null());
    let (answers, errors) = (
        outputs(&server, &batch["output_file_id"]),
        outputs(&server, &batch["error_file_id"]),
    );
    assert_eq!(answers.len() + errors.len(), 100);
    assert!(errors.keys().all(|id| !answers.contains_key(id)));
    for line in errors.values() {
        assert_eq!(
            (&line["response"], &line["error"]["code"]),
            (&Value::Null, &json!("batch_expired"))
        );
    }
    let counts = json!({"total": 100, "completed": answers.len(), "failed": errors.len()});
    assert_eq!(batch["request_counts"], counts);
}

#[test]
fn feature_e29_lines_leave_their_turn_to_others() {
    let server = Server::configured("[limits]\nmax_batch = 1\nbatch_lines = 8\n");
    let ask = |text: &str| {
        json!({
            "model": "mortise-demo", "ignore_eos": true, "max_tokens": 100,
            "messages": [{"role": "user", "content": text}],
        })
    };
    let input: String = (0..60)
        .map(|number| line(&number.to_string(), CHAT, &ask(&format!("Hi {number}"))))
        .collect();
    let made = create(&server, &input, CHAT);
    let answered = || {
        let now = server.get(&path_of(&made)).ok();
        now["request_counts"]["completed"]
            .as_u64()
            .expect("a number")
    };
    wait_for(|| match answered() {
        0 => Err("no line is answered".to_owned()),
        _ => Ok(()),
    });
    // Seven lines wait for the only place; the request is answered before them.
    let before = answered();
    server.post(CHAT, &ask("Hello")).ok();
    let after = answered();
    assert!(
        after < before + 6,
        "{before} lines were answered before, and {after} after"
    );
}

/// The first line is read before a batch is made, and counts for its tenant as the others do: those who share its address
/// have a share of their own.
#[test]
fn the_first_line_counts_for_the_tenant_of_the_batch() {
    const LENGTH: usize = 1_000_000;
    let model = model::byte_level();
    let second = format!(
        "[[models]]\nname = \"another\"\npath = {model:?}\nbackend = \"scripted\"\n[models.script]\n{SCRIPT}\n"
    );
    let server = Server::scripted(
        SCRIPT,
        &format!(
            "[server]\nmax_body_bytes = {LENGTH}\nbody_timeout_ms = 600000\n\
             [limits]\nmax_body_bytes_in_flight = 4000000\n\
             [[auth.api_keys]]\nid = \"neighbour\"\nkey = \"neighbours-key\"\n\
             [[auth.api_keys]]\nid = \"one\"\nkey = \"the-key\"\ntenant = \"acme\"\n{second}"
        ),
    );
    let keyed = |request: Request| request.header("authorization", "Bearer the-key");
    let upload_of = |content: &str| {
        let body = form(
            &[("purpose", "batch")],
            Some(("in.jsonl", content.as_bytes())),
        );
        let file = server.send(&keyed(upload(&body))).ok();
        file["id"].as_str().expect("an id").to_owned()
    };
    let mut asked = chat("Hi");
    asked["model"] = json!("scripted");
    let short = upload_of(&line("short", CHAT, &asked));
    asked["messages"][0]["content"] = json!("x".repeat(200_000));
    let long = upload_of(&line("long", CHAT, &asked));
    let begin = |input: &str| {
        let body = json!({"input_file_id": input, "endpoint": CHAT, "completion_window": "24h"});
        server.send(&keyed(Request::post(BATCHES, &body)))
    };
    // Bodies that are announced, and hold what they are said to have.
    let hold = |key: &str, length: usize| {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             authorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("write");
        stream
    };
    let held = |bytes: f64| {
        until("the bodies are being read", || {
            server.metric("mortise_request_body_bytes") == bytes
        });
    };
    let neighbour = [(); 3].map(|()| hold("neighbours-key", LENGTH));
    held(3_000_000.0);
    let made = begin(&short).ok();
    assert_eq!(made["model"], "scripted");
    let path = path_of(&made);
    until("the batch is answered", || {
        server.send(&keyed(Request::get(&path))).ok()["status"] == "completed"
    });
    // With the share of the tenant held as well, the line is not passed over: its caller is told to come again.
    held(3_000_000.0);
    let own = hold("the-key", 950_000);
    held(3_950_000.0);
    let busy = begin(&long);
    assert_eq!(busy.status(), 503, "{}", busy.text());
    assert_eq!(busy.json()["error"]["code"], "body_memory_full");
    drop((neighbour, own));
    held(0.0);
    assert_eq!(begin(&long).ok()["model"], "scripted");
}
