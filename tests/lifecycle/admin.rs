//! States, load and unload over the admin side, and the command that speaks to it.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{binary, until};
use crate::{KEY, Managed, code, said, scripted};

const ONE: &str = "default = \"one\"";

fn pair() -> Managed {
    Managed::start(&format!(
        "{}{}",
        scripted("one", ONE, "aliases = [\"first\"]\nreplica_max = 3"),
        scripted("two", "default = \"two\"", "enabled = false\npinned = true"),
    ))
}

#[test]
fn feature_e11_l5_every_model_has_a_row() {
    let managed = pair();
    assert_eq!(said(&managed.chat("first")), "one");
    let list = managed.ask(Request::get("/v1/admin/models")).ok();
    let rows = list["data"].as_array().expect("rows");
    let names: Vec<&Value> = rows.iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["one", "two"]);
    let (one, two) = (&rows[0], &rows[1]);
    assert_eq!(one["runtime_state"], "loaded");
    assert_eq!(one["configured_enabled"], true);
    assert_eq!(one["loaded_replicas"], 1);
    assert_eq!(one["usage_count"], 1);
    assert!(one["vram_estimate_mib"].is_u64());
    assert_eq!(two["vram_estimate_source"], "model_artifact_size");
    assert_eq!(two["runtime_state"], "unloaded");
    assert_eq!(two["is_loaded"], false);
    assert_eq!(two["configured_enabled"], false);
    assert_eq!(two["pinned"], true);
    assert_eq!(managed.row("one"), rows[0]);
    let missing = managed.ask(Request::get("/v1/admin/models/three"));
    assert_eq!(code(&missing), (404, "unknown_model".to_owned()));
}

#[test]
fn feature_e13_l1_models_are_loaded_and_unloaded_at_run_time() {
    let managed = pair();
    let refused = managed.chat("two");
    assert_eq!(code(&refused), (409, "model_not_loaded".to_owned()));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(
        managed.act("two", "load", "").ok()["runtime_state"],
        "loaded"
    );
    assert_eq!(
        managed.act("two", "load", "").ok()["runtime_state"],
        "loaded"
    );
    assert_eq!(said(&managed.chat("two")), "two");
    for _ in 0..2 {
        let row = managed.act("two", "unload", "").ok();
        assert_eq!(row["runtime_state"], "unloaded");
    }
    let refused = managed.chat("two");
    assert_eq!(code(&refused), (409, "model_not_loaded".to_owned()));
    assert_eq!(said(&managed.chat("one")), "one");
}

#[test]
fn feature_e9_models_are_named_in_the_body_too() {
    let managed = pair();
    let load = |body: &Value| managed.ask(Request::post("/v1/models/load", body));
    assert_eq!(load(&json!({"model": "two"})).ok()["is_loaded"], true);
    let unload = json!({"model": "two"});
    let unloaded = managed
        .ask(Request::post("/v1/models/unload", &unload))
        .ok();
    assert_eq!(unloaded["is_loaded"], false);
    assert_eq!(code(&load(&json!({"model": "three"}))).0, 404);
    assert_eq!(
        code(&load(&json!({}))),
        (422, "invalid_load_request".to_owned())
    );
}

#[test]
fn feature_l3_settings_of_a_load_are_checked_and_live_until_the_unload() {
    let managed = pair();
    let load = |body: &str| managed.act("one", "load", body);
    let late = load(r#"{"replicas": 2}"#);
    assert_eq!(code(&late), (409, "model_loaded".to_owned()));
    managed.act("one", "unload", "").ok();
    for (body, status) in [
        (r#"{"replicas": 4}"#, 400),
        (r#"{"replicas": 0}"#, 400),
        (r#"{"quantize": "q8_0"}"#, 400),
        (r#"{"replicas": "#, 400),
        (r#"{"replicas": "two"}"#, 422),
        (r#"{"replcas": 2}"#, 422),
    ] {
        assert_eq!(
            code(&load(body)),
            (status, "invalid_load_request".to_owned()),
            "{body}"
        );
    }
    let row = load(r#"{"replicas": 3}"#).ok();
    assert_eq!(
        (&row["loaded_replicas"], &row["replicas"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(row["load_override"], json!({"replicas": 3}));
    assert_eq!(said(&managed.chat("one")), "one");
    managed.act("one", "unload", "").ok();
    let row = load(r#"{"replicas": null}"#).ok();
    assert_eq!(row["load_override"], json!({"replicas": null}));
    assert_eq!(row["loaded_replicas"], 1);
}

#[test]
fn feature_l3_settings_that_an_embedding_model_lacks_are_not_ignored() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/gguf/data/tiny-chat.gguf"
    );
    let managed = Managed::start(&format!(
        "{}[[models]]\nname = \"vectors\"\npath = {path:?}\npooling = \"last\"\nenabled = false\nreplica_max = 2\n",
        scripted("one", ONE, ""),
    ));
    for body in [r#"{"replicas": 2}"#, r#"{"kv_type": "q8_0"}"#] {
        let refused = managed.act("vectors", "load", body);
        assert_eq!(
            code(&refused),
            (500, "model_load_failed".to_owned()),
            "{body}"
        );
        assert!(
            refused
                .text()
                .contains("leave `replicas` and `kv_type` out")
        );
    }
    assert_eq!(managed.act("vectors", "load", "").ok()["is_loaded"], true);
}

#[test]
fn feature_z2_the_admin_side_takes_its_key_in_either_header_and_nobody_without() {
    let managed = pair();
    let list = || Request::get("/v1/admin/models");
    let with = |header: &str, value: &str| list().header(header, value).send(&managed.admin);
    assert_eq!(with("x-admin-token", KEY).status(), 200);
    let wrong = with("x-admin-token", "wrong");
    assert_eq!(code(&wrong), (403, "forbidden".to_owned()));
    assert_eq!(with("authorization", "Bearer wrong").status(), 403);
    assert_eq!(list().send(&managed.admin).status(), 401);
    let elsewhere = managed.server.get("/v1/admin/models");
    assert_eq!(elsewhere.status(), 404);
}

#[test]
fn events_tell_of_every_change_of_state() {
    let managed = pair();
    let key = format!("Bearer {KEY}");
    let request = Request::get("/v1/admin/events").header("authorization", &key);
    let mut stream = request.begin(&managed.admin);
    assert_eq!(
        stream.head().header("content-type"),
        Some("text/event-stream")
    );
    managed.act("two", "load", "").ok();
    managed.act("two", "unload", "").ok();
    let mut text = String::new();
    let seen = |text: &str| text.matches("\"state\":\"unloaded\"").count() == 2;
    while !seen(&text) {
        let chunk = stream.chunk().expect("the stream goes on");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    // One event a model with its present state, then what happens.
    for wanted in [
        "event: model.state",
        "{\"model\":\"one\",\"state\":\"loaded\",\"error\":null}",
        "event: model.progress",
        "\"stage\":\"binding\"",
        "\"state\":\"unloading\"",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
}

#[test]
fn the_command_line_lists_loads_and_unloads() {
    let managed = pair();
    let run = |arguments: &[&str]| {
        let output = Command::new(binary())
            .arg("models")
            .args(arguments)
            .args(["--admin-url", &format!("http://{}", managed.admin)])
            .args(["--admin-key-env", "THE_ADMIN_KEY"])
            .env("THE_ADMIN_KEY", KEY)
            .output()
            .expect("run mortise");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.success(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (_, table, _) = run(&["list"]);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1][..2], ["one", "loaded"]);
    assert_eq!(rows[2][..2], ["two", "unloaded"]);
    let (done, told, _) = run(&["load", "one", "--set", "replicas=2"]);
    assert!(!done && told.is_empty());
    assert!(run(&["unload", "one"]).0);
    assert!(run(&["load", "one", "--set", "replicas=2"]).0);
    let (_, shown, _) = run(&["show", "one"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["loaded_replicas"], 2);
    let (done, _, error) = run(&["load", "three"]);
    assert!(
        !done && error.contains("no model is called `three`"),
        "{error}"
    );
}

#[test]
fn metrics_tell_the_states() {
    let managed = pair();
    let metric = |state: &str| {
        let beginning = format!("mortise_model_state{{model=\"two\",state=\"{state}\"}}");
        managed.server.metric(&beginning)
    };
    assert_eq!((metric("unloaded"), metric("loaded")), (1.0, 0.0));
    managed.act("two", "load", "").ok();
    assert_eq!((metric("unloaded"), metric("loaded")), (0.0, 1.0));
    managed.chat("two").ok();
    let uses = || {
        managed
            .server
            .metric("mortise_model_uses_total{model=\"two\"}")
    };
    until("the use is counted", || uses() == 1.0);
}

#[test]
fn feature_e12_gpu_memory_is_told_beside_that_of_the_models() {
    use std::os::unix::fs::PermissionsExt as _;
    let config = scripted("m", "default = \"m\"", "");
    let folder = tempfile::tempdir().expect("make a folder");
    let asked = |path: &std::path::Path| {
        let managed = Managed::with(&config, &[("PATH", path)]);
        managed.ask(Request::get("/v1/admin/gpu-memory")).ok()
    };
    let without = asked(folder.path());
    assert_eq!(without["gpus"], json!([]));
    assert_eq!(without["error"], "`nvidia-smi` is not installed");
    let tool = folder.path().join("nvidia-smi");
    std::fs::write(&tool, "#!/bin/sh\necho '0, NVIDIA H100, 1024, 4096'\n").expect("written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&tool, executable).expect("made executable");
    let with = asked(folder.path());
    assert_eq!(with["error"], Value::Null);
    let gpu = json!({"index": 0, "name": "NVIDIA H100", "used_mib": 1024, "total_mib": 4096, "used_over_total": 0.25});
    assert_eq!(with["gpus"], json!([gpu]));
    let model = &with["models"][0];
    assert_eq!(model["name"], "m");
    assert_eq!(model["is_loaded"], true);
    assert!(model["vram_estimate_mib"].is_u64(), "{model}");
}
