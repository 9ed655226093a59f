//! Start-up: configuration, wrong folders, and what the log says.

use std::process::{Command, Output};

use serde_json::json;

use crate::answers::{CHAT, chat};
use crate::support::{Server, binary, model};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output {
        status,
        stderr,
        stdout,
    } = Command::new(binary())
        .args(arguments)
        .output()
        .expect("run mortise");
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code(), text)
}

#[test]
fn help_is_printed_and_the_default_file_is_right() {
    let (code, text) = run(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("mortise serve") && text.contains("Examples"),
        "{text}"
    );
    let (code, text) = run(&["config", "print-default"]);
    assert_eq!(code, Some(0));
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    std::fs::write(&path, text).expect("write");
    let (code, text) = run(&["config", "check", path.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_check_finds_what_is_not_there_and_needs_no_secrets() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    let checked = |text: &str| {
        std::fs::write(&path, text).expect("write");
        run(&["config", "check", path.to_str().expect("UTF-8")])
    };
    let model = "[[models]]\nname = \"m\"\n";
    let child = "[[models]]\nname = \"m\"\n[models.child]\n";
    for (text, told) in [
        (format!("{model}{model}"), "m"),
        (
            format!("{model}path = \"/nowhere/model\"\n"),
            "models[0].path",
        ),
        (
            format!("{child}command = [\"/nowhere/program\"]\n"),
            "models[0].child.command",
        ),
        (
            "[discovery]\nfolders = [\"/nowhere/models\"]\n".to_owned(),
            "discovery.folders",
        ),
        ("[engine]\ndevice = \"cuda\"\n".to_owned(), "engine.device"),
        (
            format!("{model}[models.engine]\ndevice = \"cuda:1\"\n"),
            "models[0].engine.device",
        ),
    ] {
        let (code, said) = checked(&text);
        assert_eq!(code, Some(2), "{text}: {said}");
        assert!(said.contains(told), "{text}: {said}");
    }
    let key = "[[auth.api_keys]]\nid = \"a\"\nkey_env = \"MORTISE_TEST_UNSET\"\n";
    let (code, said) = checked(key);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("auth.api_keys[0].key_env") && said.contains("MORTISE_TEST_UNSET"),
        "{said}"
    );
    // What else is wrong is found as well.
    let (code, said) = checked(&format!("{key}{model}path = \"/nowhere/model\"\n"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("models[0].path"), "{said}");
    let (code, said) = run(&[
        "serve",
        "--port",
        "0",
        "--config",
        path.to_str().expect("UTF-8"),
    ]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("MORTISE_TEST_UNSET"), "{said}");
}

#[test]
fn feature_c3_what_is_not_said_has_the_values_of_the_default_file() {
    let (_, text) = run(&["config", "print-default"]);
    for line in [
        "heartbeat_ms = 15000",
        "default_max_tokens = 2048",
        "max_context = 4096",
        "step_token_budget = 512",
        "max_batch = 32",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}");
    }
    let server = Server::scripted(&format!("default = \"{}\"", "x".repeat(3000)), "");
    let ask = json!({"model": "scripted", "input": "Hi"});
    let response = server.post("/v1/responses", &ask).ok();
    assert_eq!(response["usage"]["output_tokens"], 2048);
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    for (field, value) in [
        ("temperature", 1.0),
        ("top_p", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
    ] {
        assert_eq!(response[field].as_f64(), Some(value), "{field}");
    }
}

#[test]
fn wrong_usage_and_configuration_end_with_2() {
    assert_eq!(run(&["serve", "--prot", "1"]).0, Some(2));
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    std::fs::write(&path, "[server]\nprot = 1\n").expect("write");
    let (code, text) = run(&["serve", "--config", path.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("line 2") && text.contains("did you mean `port`?"),
        "{text}"
    );
}

#[test]
fn wrong_model_folders_end_with_1_and_one_message() {
    let folder = tempfile::tempdir().expect("make a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["empty", "malformed", "no-weights"] {
        std::fs::create_dir(at(name)).expect("make a folder");
    }
    std::fs::write(at("malformed").join("tokenizer.json"), "{\"decoder\":[}}}").expect("write");
    let good = model::byte_level();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(good.join(file), at("no-weights").join(file)).expect("copy");
    }
    for (name, part) in [
        ("missing", "missing"),
        ("empty", "tokenizer.json"),
        ("malformed", "tokenizer.json"),
        ("no-weights", "config.json"),
    ] {
        let path = at(name);
        let (code, text) = run(&[
            "serve",
            "--port",
            "0",
            "--model",
            path.to_str().expect("UTF-8"),
        ]);
        assert_eq!(code, Some(1), "{name}: {text}");
        let messages: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("mortise: "))
            .collect();
        assert_eq!(messages.len(), 1, "{text}");
        assert!(messages[0].contains(part), "{text}");
        assert!(!text.contains("panic"), "{text}");
    }
}

#[test]
fn wrong_plugins_are_refused_at_the_start_of_a_strict_server() {
    let folder = tempfile::tempdir().expect("make a folder");
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).expect("make a folder");
    std::fs::write(plugins.join("bad.wasm"), b"\0asm\x0d\0\x01\0truncated").expect("write");
    let config = folder.path().join("mortise.toml");
    let text = format!("[plugins]\ndir = {plugins:?}\nstrict = true\n");
    std::fs::write(&config, text).expect("write");
    let config = config.to_str().expect("UTF-8");
    let (code, text) = run(&["serve", "--port", "0", "--config", config]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("bad.wasm"), "{text}");
}

#[test]
fn the_log_says_which_plugin_serves_whom() {
    let server = Server::scripted("default = \"x\"", "");
    let log = server.log().join("\n");
    for kind in ["chat-template", "output-parser", "grammar", "policy"] {
        let line = log
            .lines()
            .find(|line| line.contains(&format!("kind=\"{kind}\"")));
        let line = line.unwrap_or_else(|| panic!("no {kind} in\n{log}"));
        assert!(
            line.contains("origin=\"embedded\"") && line.contains("digest="),
            "{line}"
        );
    }
}

#[test]
fn json_logs_are_json() {
    let server = Server::scripted("default = \"x\"", "[log]\nformat = \"json\"");
    server.post(CHAT, &chat("Hi")).ok();
    server.wait_for_log(|line| line.contains("mortise::access"));
    for line in server.log() {
        let parsed: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
        if parsed["target"] == "mortise::access" {
            assert_eq!(parsed["status"], 200);
            assert_eq!(parsed["model"], "scripted");
            assert_eq!(parsed["finish"], "stop");
        }
    }
}

#[test]
fn models_are_listed_with_their_aliases() {
    let path = model::byte_level();
    let server = Server::configured(&format!(
        "[[models]]\nname = \"first\"\naliases = [\"gpt-4o\"]\npath = {path:?}\n\
         backend = \"scripted\"\n[[models]]\nname = \"second\"\npath = {path:?}\n\
         backend = \"scripted\"\n[models.script]\ndefault = \"two\"\n"
    ));
    let list = server.get("/v1/models").ok();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"]
        .as_array()
        .expect("data")
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["first", "gpt-4o", "second"]);
    assert_eq!(list["data"][0]["object"], "model");
    assert_eq!(list["data"][0]["aliases"], json!(["gpt-4o"]));
    assert_eq!(server.get("/v1/models/gpt-4o").ok()["id"], "gpt-4o");
    assert_eq!(server.get("/v1/models/first").ok()["id"], "first");
    assert_eq!(server.get("/v1/models/third").status(), 404);
    let mut request = chat("Hi");
    request["model"] = json!("second");
    assert_eq!(
        server.post(CHAT, &request).ok()["choices"][0]["message"]["content"],
        "two"
    );
}
