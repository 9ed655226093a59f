//! Models that are found in folders, and go with their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::{Request, Response};
use crate::support::{Server, binary, example};
use crate::{ADMIN, KEY, Managed, code, said, scripted};

const RESCAN: &str = "/v1/admin/models/rescan";

/// A small model with a chat template, in one file.
fn tiny() -> PathBuf {
    example::root().join("tests/gguf/data/tiny-chat.gguf")
}

fn put(folder: &Path, name: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("make a folder");
    fs::copy(tiny(), path).expect("copy the model");
}

fn discovery(folder: &Path) -> String {
    format!("[discovery]\nfolders = [{folder:?}]\n")
}

fn listed(server: &Server) -> Vec<String> {
    let list = server.get("/v1/models").ok();
    let models = list["data"].as_array().expect("a list").iter();
    models
        .map(|model| model["id"].as_str().expect("an id").to_owned())
        .collect()
}

fn rescan(managed: &Managed) -> Value {
    managed.ask(Request::raw(RESCAN, b"")).ok()
}

fn chat(managed: &Managed, model: &str) -> Response {
    let body = json!({
        "model": model, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hi"}],
    });
    managed.server.post("/v1/chat/completions", &body)
}

#[test]
fn feature_m5_models_come_and_go_with_their_files() {
    let folder = tempfile::tempdir().expect("make a folder");
    put(folder.path(), "first.gguf");
    fs::write(folder.path().join("text.gguf"), "no model").expect("write a file");
    let exact = "[openai]\nany_model = false\n";
    let mut managed = Managed::start(&format!("{exact}{}", discovery(folder.path())));
    assert_eq!(listed(&managed.server), ["first"]);
    assert_eq!(managed.row("first")["origin"], "discovered");
    assert_eq!(managed.state("first"), "unloaded");
    assert_eq!(chat(&managed, "first").status(), 200);

    put(folder.path(), "org/second.gguf");
    let report = rescan(&managed);
    assert_eq!(
        (&report["new_models"], &report["removed"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(report["models"]["added"], json!(["org/second"]));
    let skipped = &report["skipped"][0];
    assert_eq!(skipped["reason"], "it is no GGUF file");
    assert!(
        skipped["path"]
            .as_str()
            .expect("a path")
            .ends_with("text.gguf")
    );
    assert_eq!(chat(&managed, "org/second").status(), 200);

    // A model whose file is gone serves until it is unloaded.
    fs::remove_file(folder.path().join("first.gguf")).expect("remove the file");
    let report = managed.ask(Request::get("/admin/rescan")).ok();
    assert_eq!(report["models"]["in_use"], json!(["first"]));
    assert_eq!(report["removed"], 0);
    assert_eq!(chat(&managed, "first").status(), 200);
    managed.act("first", "unload", "").ok();
    let report = rescan(&managed);
    assert_eq!(report["models"]["removed"], json!(["first"]));
    assert_eq!(chat(&managed, "first").status(), 404);
    assert_eq!(listed(&managed.server), ["org/second"]);
    managed.server.assert_sound();
}

#[test]
fn feature_m5_configured_models_stay_whatever_a_scan_finds() {
    let folder = tempfile::tempdir().expect("make a folder");
    put(folder.path(), "mine.gguf");
    put(folder.path(), "second-name.gguf");
    let mine = scripted(
        "mine",
        "default = \"configured\"",
        "aliases = [\"second-name\"]",
    );
    let managed = Managed::start(&format!("{}{mine}", discovery(folder.path())));
    let report = rescan(&managed);
    assert_eq!(report["new_models"], 0);
    assert_eq!(report["skipped"].as_array().expect("a list").len(), 2);
    assert_eq!(said(&managed.chat("mine")), "configured");
    assert_eq!(managed.row("mine")["origin"], "configured");
}

#[test]
fn feature_e14_a_reload_of_all_models_leaves_those_of_the_start() {
    let folder = tempfile::tempdir().expect("make a folder");
    put(folder.path(), "small.gguf");
    put(folder.path(), "other.gguf");
    let startup = "[lifecycle]\nstartup_model = \"small\"\n";
    let managed = Managed::start(&format!("{startup}{}", discovery(folder.path())));
    assert_eq!(managed.state("small"), "loaded");
    managed.act("other", "load", "").ok();
    let loads = || {
        managed.row("small")["loaded_at_ms"]
            .as_u64()
            .expect("a time")
    };
    let before = loads();
    let report = managed.ask(Request::raw("/admin/reload", b"")).ok();
    assert_eq!(report, json!({"status": "reloaded"}));
    assert_eq!(managed.state("small"), "loaded");
    assert!(loads() >= before);
    assert_eq!(managed.state("other"), "unloaded");
}

#[test]
fn feature_c11_a_startup_model_must_be_configured_or_found() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    let startup = "[lifecycle]\nstartup_model = \"absent\"\n";
    fs::write(&path, format!("{startup}{}", discovery(folder.path()))).expect("write it");
    let output = Command::new(binary())
        .args(["serve", "--port", "0", "--config"])
        .arg(&path)
        .output()
        .expect("run mortise");
    assert!(!output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("no model is called `absent`"), "{log}");
}

#[test]
fn folders_are_settings_that_a_reload_takes() {
    let one = tempfile::tempdir().expect("make a folder");
    let two = tempfile::tempdir().expect("make a folder");
    put(one.path(), "one.gguf");
    put(two.path(), "two.gguf");
    let managed = Managed::start(&discovery(one.path()));
    managed
        .server
        .configure(&format!("{ADMIN}{}", discovery(two.path())));
    let report = managed
        .ask(Request::raw("/v1/admin/settings/reload", b""))
        .ok();
    assert_eq!(report["added"], json!(["two"]));
    assert_eq!(report["removed"], json!(["one"]));
    assert_eq!(report["restart_keys"], json!([]));
    assert_eq!(listed(&managed.server), ["two"]);
    // A rescan goes by the settings that were read last.
    put(two.path(), "three.gguf");
    assert_eq!(rescan(&managed)["models"]["added"], json!(["three"]));
}

#[test]
fn models_that_are_found_may_be_served_by_processes() {
    let folder = tempfile::tempdir().expect("make a folder");
    put(folder.path(), "small.gguf");
    let binary = binary();
    let child = format!(
        "[discovery.child]\ncommand = [{binary:?}, \"serve\", \"--served-model-name\", \"{{name}}\"]\n\
         api = \"mortise\"\n"
    );
    let managed = Managed::start(&format!("{}{child}", discovery(folder.path())));
    assert_eq!(managed.row("small")["resolved_backend"], "child");
    let answer = chat(&managed, "small").ok();
    assert_eq!(answer["model"], "small");
    assert_eq!(answer["usage"]["completion_tokens"], 4);
}

#[test]
fn the_command_line_names_folders_and_asks_for_scans() {
    let folder = tempfile::tempdir().expect("make a folder");
    put(folder.path(), "small.gguf");
    let server = Server::start(&["--models-dir", folder.path().to_str().expect("UTF-8")]);
    assert_eq!(listed(&server), ["small"]);
    drop(server);
    let managed = Managed::start(&discovery(folder.path()));
    put(folder.path(), "more.gguf");
    let run = || {
        let output = Command::new(binary())
            .args(["models", "rescan", "--admin-key-env", "KEY", "--admin-url"])
            .arg(format!("http://{}", managed.admin))
            .env("KEY", KEY)
            .output()
            .expect("run mortise");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(run(), "added    more\n");
    assert_eq!(run(), "nothing has changed\n");
}

#[test]
fn a_server_that_finds_nothing_starts_and_says_so() {
    let folder = tempfile::tempdir().expect("make a folder");
    let managed = Managed::start(&discovery(folder.path()));
    assert_eq!(listed(&managed.server), Vec::<String>::new());
    assert_eq!(code(&chat(&managed, "any")).0, 404);
    put(folder.path(), "late.gguf");
    assert_eq!(rescan(&managed)["new_models"], 1);
    assert_eq!(chat(&managed, "late").status(), 200);
}

#[test]
fn feature_m2_an_alias_waits_for_a_model_that_is_found_later() {
    let folder = tempfile::tempdir().expect("make a folder");
    put(folder.path(), "first.gguf");
    let alias = "[[aliases]]\nname = \"prod\"\ntarget = \"later\"\n";
    let config = format!("{}{alias}", discovery(folder.path()));
    let managed = Managed::start(&config);
    let tells = |line: &str| line.contains("`prod`") && line.contains("`later`");
    managed
        .server
        .wait_for_log(|line| line.contains("WARN") && tells(line));
    // No other model answers for it, though there is only one.
    let refused = chat(&managed, "prod");
    assert_eq!(code(&refused), (404, "model_not_found".to_owned()));
    assert!(tells(&refused.text()), "{}", refused.text());
    assert!(refused.text().contains("first"), "{}", refused.text());
    assert_eq!(managed.server.get("/v1/models/prod").status(), 404);
    let state = || {
        let ready = managed.server.get("/ready").ok();
        (
            ready["checks"]["aliases"].clone(),
            ready["aliases"]["without_model"].clone(),
        )
    };
    let row = || managed.ask(Request::get("/v1/admin/aliases/prod")).ok();
    assert_eq!(state(), (json!("degraded"), json!(1)));
    assert_eq!(row()["missing"], json!(["later"]));

    put(folder.path(), "later.gguf");
    assert_eq!(rescan(&managed)["warnings"], json!([]));
    assert_eq!(chat(&managed, "prod").ok()["model"], "later");
    assert_eq!(
        (state(), row()["missing"].clone()),
        ((json!("ok"), json!(null)), json!([]))
    );
    managed.act("later", "unload", "").ok();
    fs::remove_file(folder.path().join("later.gguf")).expect("remove the file");
    let reload = Request::raw("/v1/admin/settings/reload", b"");
    for report in [rescan(&managed), managed.ask(reload).ok()] {
        let warnings = report["warnings"].as_array().expect("a list");
        assert!(
            warnings.len() == 1 && tells(&warnings[0].to_string()),
            "{warnings:?}"
        );
    }
    drop(managed);

    // A start that is strict refuses it, and a check tells of it.
    let path = folder.path().join("mortise.toml");
    fs::write(&path, format!("{ADMIN}{config}")).expect("write it");
    let run = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .arg(&path)
            .output()
            .expect("run mortise");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(tells(&told), "{told}");
        output.status.code()
    };
    assert_eq!(run(&["config", "check"]), Some(0));
    assert_eq!(
        run(&["serve", "--strict", "--port", "0", "--config"]),
        Some(1)
    );
}

#[test]
fn a_folder_that_is_not_there_ends_the_start_as_it_does_a_check() {
    let output = Command::new(binary())
        .args(["serve", "--port", "0", "--models-dir", "/nowhere/models"])
        .output()
        .expect("run mortise");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("`/nowhere/models` is no folder"), "{told}");
}

#[test]
fn feature_c4_commands_read_the_files_that_a_server_does() {
    let folder = tempfile::tempdir().expect("make a folder");
    let managed = Managed::start(&scripted("one", "default = \"x\"", ""));
    let (_, port) = managed.admin.rsplit_once(':').expect("a port");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("write it");
        path
    };
    let common = write("common.toml", "[admin]\nport = 1\nkey = \"x\"\n".to_owned());
    let local = write(
        "local.toml",
        format!("[admin]\nport = {port}\nkey = {KEY:?}\n"),
    );
    let run = |arguments: &[&str], local: &Path| {
        let output = Command::new(binary())
            .args(arguments)
            .env("MORTISE_CONFIG", &common)
            .env("MORTISE_LOCAL_CONFIG", local)
            .output()
            .expect("run mortise");
        let told = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&told).into_owned(),
        )
    };
    let (done, told) = run(&["models", "list"], &local);
    assert!(done && told.contains("one"), "{told}");
    let (done, told) = run(&["config", "check"], &local);
    assert!(done, "{told}");
    let wrong = write("wrong.toml", "[server]\nprot = 1\n".to_owned());
    let given = common.to_str().expect("UTF-8");
    for arguments in [&["config", "check"][..], &["config", "check", given]] {
        let (done, told) = run(arguments, &wrong);
        assert!(!done && told.contains("wrong.toml"), "{told}");
    }
    let nothing = Command::new(binary()).args(["config", "check"]).output();
    let nothing = nothing.expect("run mortise");
    assert_eq!(nothing.status.code(), Some(2));
}
