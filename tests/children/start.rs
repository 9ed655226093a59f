//! Start of a process: command line, readiness, output, failures on the way.

use std::process::Command;

use mortise_test_support as support;
use serde_json::json;
use support::binary;
use support::client::Request;

use super::{Parent, Script, code, lives, said, started};

#[test]
fn feature_b1_b5_c13_a_request_starts_the_command_with_port_and_host_appended() {
    let note = ["--say", "hello", "--note", "FOLDER/note"];
    let models = [Script::new("echo", &note), Script::new("other", &[])];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    assert_eq!(parent.state("echo"), "unloaded", "nothing runs at boot");
    assert_eq!(said(&parent.chat("echo", "Hi")), "hello");
    let note = parent.folder.path().join("note");
    let note = std::fs::read_to_string(note).expect("the arguments");
    assert!(note.ends_with(" --host 127.0.0.1\n"), "{note}");
    assert!(note.contains(" --port 50"), "{note}");
    let row = parent.row("echo");
    assert_eq!(row["resolved_backend"], "child");
    assert_eq!(row["definition"]["command"][0], "python3");
    assert_eq!(parent.state("other"), "unloaded");
    assert_eq!(parent.output("echo"), ["about to listen"]);
    parent
        .server
        .wait_for_log(|line| line.contains("about to listen"));
    // Bad questions are refused.
    let path = "/v1/admin/models/echo/log?lines=some";
    assert_eq!(code(&parent.ask(Request::get(path))).0, 400);
    let path = "/v1/admin/models/nobody/log";
    assert_eq!(code(&parent.ask(Request::get(path))).0, 404);
    let row = parent.act("echo", "unload").ok();
    assert_eq!(row["runtime_state"], "unloaded");
    assert_eq!(parent.output("echo").len(), 1, "the output outlives it");
}

#[test]
fn feature_b2_a_process_that_does_not_get_ready_is_ended_and_its_model_fails() {
    let never = ["--never", "1", "--pid", "FOLDER/pid"];
    let models = [
        Script {
            child: "ready_timeout_ms = 6000",
            ..Script::new("never", &never)
        },
        Script::new("exits", &["--exit", "7"]),
    ];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    let response = parent.act("never", "load");
    assert_eq!(code(&response), (500, "model_load_failed".to_owned()));
    let row = parent.row("never");
    let error = row["last_error"].as_str().expect("an error");
    for part in ["6000 ms", "HTTP 503", "about to listen"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!lives(parent.number("pid")));
    let response = parent.act("exits", "load");
    assert_eq!(response.status(), 500);
    let row = parent.row("exits");
    let error = row["last_error"].as_str().expect("an error");
    for part in ["exit status: 7", "no such model"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(row["runtime_state"], "failed");
}

#[test]
fn feature_b1_a_program_that_is_not_there_is_named() {
    let config = "[[models]]\nname = \"a\"\n[models.child]\ncommand = [\"no-such-program\"]\n\
                  [[models]]\nname = \"b\"\n[models.child]\ncommand = [\"./missing/program\"]\n";
    let (_server, admin) = started(&format!("{}{config}", super::ADMIN));
    for (name, part) in [
        ("a", "cannot run `no-such-program`"),
        ("b", "missing/program`"),
    ] {
        let path = format!("/v1/admin/models/{name}/load");
        let response = super::ask(&admin, Request::raw(&path, b""));
        assert_eq!(response.status(), 500);
        let message = response.json()["error"]["message"].to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn feature_b3_a_process_that_ignores_sigterm_is_killed_with_its_group() {
    let deaf = [
        "--deaf",
        "1",
        "--pid",
        "FOLDER/pid",
        "--fork",
        "FOLDER/worker",
    ];
    let models = [Script {
        child: "stop_timeout_ms = 300",
        ..Script::new("deaf", &deaf)
    }];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    assert_eq!(said(&parent.chat("deaf", "Hi")), "child");
    let all = ["pid", "worker0", "worker1"].map(|file| parent.number(file));
    assert!(all.iter().all(|pid| lives(*pid)), "{all:?}");
    parent.act("deaf", "unload").ok();
    // Those in its group, and the one that left it.
    assert!(!all.iter().any(|pid| lives(*pid)), "{all:?}");
    assert_eq!(parent.state("deaf"), "unloaded");
}

#[test]
fn feature_b1_a_flood_of_output_is_bounded() {
    let flood = ["--flood", "5000"];
    let Some(parent) = Parent::start(&[Script::new("flood", &flood)], "") else {
        return;
    };
    assert_eq!(said(&parent.chat("flood", "Hi")), "child");
    let lines = parent.output("flood");
    assert_eq!(lines.len(), 1000);
    assert_eq!(lines[999], "about to listen");
    assert_eq!(lines[998].len(), 4096);
    assert!(lines[997].starts_with("line 4999 x"));
    parent.act("flood", "unload").ok();
    parent
        .server
        .wait_for_log(|line| line.contains("left out of the log"));
    let logged = parent.server.log();
    let logged = logged.iter().filter(|line| line.contains("line="));
    assert!(logged.count() < 4000);
}

#[test]
fn feature_b5_a_second_mortise_serves_as_a_child() {
    let program = binary();
    let config = format!(
        "{}[lifecycle]\nstartup_model = \"inner\"\n[[models]]\nname = \"inner\"\n[models.child]\n\
         command = [{program:?}, \"serve\", \"--served-model-name\", \"{{name}}\"]\n\
         api = \"mortise\"\nready_timeout_ms = 60000\n",
        super::ADMIN
    );
    let (server, admin) = started(&config);
    let row = super::ask(&admin, Request::get("/v1/admin/models/inner")).ok();
    assert_eq!(
        row["runtime_state"], "loaded",
        "the startup model is loaded"
    );
    let asked = super::asked("inner", "What is mortise?");
    let answer = said(&server.post("/v1/chat/completions", &asked));
    assert!(answer.contains("mortise"), "{answer}");
    let pid = pid_of_child(server.pid());
    assert!(lives(pid));
}

#[test]
fn feature_e4_a_child_process_makes_embeddings() {
    let (program, folder) = (binary(), tempfile::tempdir().expect("make a folder"));
    let demo = support::example::root().join("examples/demo-model/model");
    let inner = folder.path().join("inner.toml");
    let table = format!("[[models]]\nname = \"inner\"\npath = {demo:?}\npooling = \"last\"\n");
    std::fs::write(&inner, table).expect("write");
    let config = format!(
        "{}[[models]]\nname = \"inner\"\n[models.child]\n\
         command = [{program:?}, \"serve\", \"--config\", {inner:?}, \"--port\", \"{{port}}\"]\n\
         api = \"mortise\"\ncapability = \"embed\"\nready_timeout_ms = 60000\n",
        super::ADMIN
    );
    let (server, admin) = started(&config);
    // The first request starts it.
    let wanted = json!({"model": "inner", "input": ["The wind.", "Rain."]});
    let made = server.post("/v1/embeddings", &wanted).ok();
    assert_eq!(made["data"].as_array().map(Vec::len), Some(2));
    let row = super::ask(&admin, Request::get("/v1/admin/models/inner")).ok();
    assert_eq!(row["capabilities"], json!(["embed"]));
    let pid = pid_of_child(server.pid());
    assert!(lives(pid));
    let kill = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(kill.expect("run kill").success());
    support::until("its end is known", || {
        let row = super::ask(&admin, Request::get("/v1/admin/models/inner")).ok();
        row["runtime_state"] == "failed"
    });
}

/// The command below the only guard of a server.
fn pid_of_child(server: u32) -> u32 {
    let children = |pid: u32| {
        let output = Command::new("pgrep")
            .args(["-P", &pid.to_string()])
            .output();
        let output = output.expect("run pgrep").stdout;
        let text = String::from_utf8_lossy(&output).into_owned();
        let numbers = text
            .split_whitespace()
            .map(|pid| pid.parse().expect("a pid"));
        numbers.collect::<Vec<u32>>()
    };
    let guards = children(server);
    assert_eq!(guards.len(), 1);
    children(guards[0])[0]
}
