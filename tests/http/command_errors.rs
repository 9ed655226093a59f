//! Mistakes that a new user makes: what each error says to do.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::commands::mortise;
use crate::support::{Server, binary};

/// Run a command that must fail with a status, and see that the last line ends with what to do.
fn advised(status: i32, arguments: &[&str], advice: &[&str]) {
    let output = mortise(arguments, "");
    told(status, arguments, advice, &output);
}

fn told(status: i32, arguments: &[&str], advice: &[&str], output: &std::process::Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}: {errors}"
    );
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.starts_with("mortise: "), "{arguments:?}: {errors}");
    let (_, end) = last
        .rsplit_once("; ")
        .unwrap_or_else(|| panic!("{arguments:?}: {last}"));
    for word in advice {
        assert!(
            end.contains(word),
            "{arguments:?}: `{word}` is not in the end of: {last}"
        );
    }
}

#[test]
fn a_port_in_use_is_said_with_what_chooses_another() {
    let server = Server::start(&[]);
    let (_, port) = server.address().rsplit_once(':').expect("a port");
    advised(
        1,
        &["serve", "--port", port],
        &["choose another port with --port", "[server]"],
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let config = folder.path().join("mortise.toml");
    let text = format!(
        "[server]\nport = 0\n[admin]\nport = {port}\nkey = \"an admin key of the tests\"\n"
    );
    std::fs::write(&config, text).expect("write");
    let config = config.to_str().expect("UTF-8");
    advised(
        1,
        &["serve", "--config", config],
        &["another port", "`port`", "[admin]"],
    );
}

#[test]
fn a_path_that_is_no_model_is_said_with_what_is_one() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (nothing, text) = (path("nothing"), path("notes.txt"));
    std::fs::write(&text, "no model").expect("write");
    let empty = folder.path().to_str().expect("UTF-8");
    for model in [&nothing, &text, empty] {
        advised(
            1,
            &["serve", "--port", "0", "--model", model],
            &["mortise serve --hf", "demo model"],
        );
    }
}

#[test]
fn a_model_that_is_not_there_is_said_with_those_that_are() {
    // Two models, so that the name decides.
    let model = crate::support::model::byte_level();
    let model = |name: &str| {
        format!(
            "[[models]]\nname = {name:?}\npath = {model:?}\nbackend = \"scripted\"\n[models.script]\ndefault = \"a\"\n"
        )
    };
    let admin = "[admin]\nport = 0\nkey = \"an admin key of the tests\"\n";
    let server = Server::configured(&format!("{admin}{}{}", model("one"), model("two")));
    let url = server.url("");
    let absent = ["chat", "--url", &url, "--model", "three", "hi"];
    advised(1, &absent, &["--model names another", "one, two"]);
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("http://").expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let admin = format!("http://{}", &address[..end]);
    let asked = |url: &str, key: &str, words: &[&str], advice: &[&str]| {
        let output = std::process::Command::new(binary())
            .args(words)
            .args(["--admin-url", url, "--admin-key-env", "THE_KEY"])
            .env("THE_KEY", key)
            .output()
            .expect("run mortise");
        told(1, words, advice, &output);
    };
    let key = "an admin key of the tests";
    asked(
        &admin,
        key,
        &["models", "load", "three"],
        &["`mortise models list`"],
    );
    asked(
        &admin,
        "a wrong key of the tests",
        &["models", "list"],
        &["--admin-key-env"],
    );
    asked(&url, key, &["models", "list"], &["[admin]", "port"]);
    asked(
        "http://127.0.0.1:1",
        key,
        &["models", "list"],
        &["mortise serve --config"],
    );
}

#[test]
fn a_server_that_is_not_named_or_does_not_run_is_said_with_how_it_is_started() {
    for command in [&["top", "--once"][..], &["chat", "hi"]] {
        let all = [command, &["--url", "http://127.0.0.1:1"]].concat();
        advised(1, &all, &["`mortise serve` starts a server", "--url"]);
    }
    let output = mortise(&["models", "list"], "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("--config") && errors.contains("--admin-url"),
        "{errors}"
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let config = folder.path().join("mortise.toml");
    std::fs::write(&config, "").expect("write");
    let config = config.to_str().expect("UTF-8");
    advised(
        1,
        &["models", "list", "--config", config],
        &["`[admin]`", "key_env"],
    );
    let keyless = [
        "models",
        "list",
        "--admin-url",
        "http://127.0.0.1:1",
        "--admin-key-env",
        "NOT_SET_HERE",
    ];
    advised(2, &keyless, &["export NOT_SET_HERE="]);
}

#[test]
fn a_missing_key_is_said_with_what_names_it() {
    let server = Server::start(&["--api-key", "the-key"]);
    advised(
        1,
        &["chat", "--url", &server.url(""), "hi"],
        &["--api-key-env"],
    );
}

#[test]
fn plugins_that_are_none_are_said_with_what_makes_one() {
    let folder = tempfile::tempdir().expect("make a folder");
    let absent = folder.path().join("absent");
    let absent = absent.to_str().expect("UTF-8");
    for command in [
        &["serve", "--port", "0"][..],
        &["plugin", "list"],
        &["parse", "--formats"],
    ] {
        let all = [command, &["--plugins", absent]].concat();
        advised(1, &all, &["mkdir -p", absent, "plugins.dir"]);
    }
    let file = folder.path().join("mine.wasm");
    let name = file.to_str().expect("UTF-8");
    std::fs::write(&file, b"\0asm\x01\0\0\0").expect("write");
    advised(
        1,
        &["plugin", "verify", name],
        &["wasm-tools component new"],
    );
    std::fs::write(&file, "text").expect("write");
    advised(1, &["plugin", "verify", name], &["--target wasm32-wasip2"]);
}

#[test]
fn a_wrong_configuration_is_said_with_what_is_right() {
    let folder = tempfile::tempdir().expect("make a folder");
    let config = folder.path().join("mortise.toml");
    let name = config.to_str().expect("UTF-8");
    advised(
        2,
        &["serve", "--config", name],
        &["mortise config print-default"],
    );
    std::fs::write(&config, "[server]\nprot = 1\n").expect("write");
    let output = mortise(&["serve", "--config", name], "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("line 2") && errors.contains("did you mean `port`?"),
        "{errors}"
    );
    std::fs::write(&config, "[server]\nzyxwvut = 1\n").expect("write");
    advised(
        2,
        &["config", "check", name],
        &["mortise config print-default"],
    );
}

#[test]
fn a_hub_that_is_not_reached_is_said_with_another_way() {
    let cache = tempfile::tempdir().expect("make a folder");
    let asked = |words: &[&str], offline: &str, advice: &[&str]| {
        let output = std::process::Command::new(binary())
            .args(words)
            .env("HF_ENDPOINT", "http://127.0.0.1:1")
            .env("HF_HUB_OFFLINE", offline)
            .env("HF_HOME", cache.path())
            .output()
            .expect("run mortise");
        told(1, words, advice, &output);
    };
    asked(
        &["pull", "org/name"],
        "0",
        &["`mortise serve --model PATH`"],
    );
    asked(
        &["pull", "org/name"],
        "1",
        &["`mortise serve --model PATH`"],
    );
    asked(
        &["serve", "--port", "0", "--hf", "org/name"],
        "0",
        &["mortise serve --model PATH"],
    );
}

#[test]
fn a_gpu_that_is_not_there_is_said_with_what_is() {
    if Path::new("/dev/nvidia0").exists() {
        return crate::support::skipped_because("this machine has a GPU");
    }
    advised(
        1,
        &["serve", "--port", "0", "--device", "cuda"],
        &["`mortise devices`", "--device cpu"],
    );
    advised(
        1,
        &["serve", "--port", "0", "--device", "cuda:7"],
        &["`mortise devices`", "--device cpu"],
    );
}

#[test]
fn an_address_without_a_scheme_is_said_with_what_it_should_be() {
    for command in [
        &["chat", "hi", "--url", "127.0.0.1:8080"][..],
        &["top", "--once", "--url", "localhost:8080"],
        &["health", "--url", "127.0.0.1:8080"],
        &[
            "models",
            "list",
            "--admin-url",
            "127.0.0.1:9100",
            "--admin-key-env",
            "KEY",
        ],
        &["config", "check", "--against", "127.0.0.1:9100"],
        &["bench", "--serve", "127.0.0.1:8080"],
    ] {
        let output = mortise(command, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {errors}");
        assert!(
            errors.contains("did you mean `http://"),
            "{command:?}: {errors}"
        );
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut command = Command::new(binary());
    command.args(["config", "print-default"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn();
    let output = output
        .and_then(std::process::Child::wait_with_output)
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
}
