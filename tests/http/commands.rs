//! Commands that talk to a running server, through pipes, and those about the command line itself.
//! `tests/sdk/terminal.rs` has them in a terminal.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::{Server, binary};

/// `mortise` with arguments and standard input.
pub(crate) fn mortise(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(binary())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start mortise");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // A command that refuses may have ended before it reads.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("wait for mortise")
}

pub(crate) fn printed(arguments: &[&str], input: &str) -> String {
    let output = mortise(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert!(errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn feature_z12_answers_go_through_pipes() {
    let script = "default = \"<think>\\nhm\\n</think>\\n\\nNothing.\"\nlines = [{ when = \"two\\n\\nlines\", say = \"Both.\" }]";
    let server = Server::scripted(script, "");
    let url = server.url("/v1");
    let chat = ["chat", "--url", &url];
    // The answer and nothing else.
    assert_eq!(printed(&chat, "hi\n"), "Nothing.\n");
    // What is piped in is put behind the words of the command line.
    assert_eq!(
        printed(&[&chat[..], &["two"]].concat(), "lines\n"),
        "Both.\n"
    );
    let limited = [&chat[..], &["--max-tokens", "1", "hi"]].concat();
    assert!(printed(&limited, "").len() < 5);
}

#[test]
fn feature_z12_refusals_say_what_to_do() {
    let server = Server::start(&["--api-key", "the-key"]);
    let url = server.url("");
    for (arguments, told) in [
        (&["chat", "--url", &url, "hi"][..], "--api-key-env"),
        (
            &["chat", "--url", "http://127.0.0.1:1", "hi"],
            "`mortise serve` starts a server",
        ),
        (
            &["top", "--once", "--url", "http://127.0.0.1:1"],
            "`mortise serve` starts a server",
        ),
    ] {
        let output = mortise(arguments, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(told), "{errors}");
    }
    let server = Server::start(&[]);
    let output = mortise(&["chat", "--url", &server.url("")], " \n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no message"));
}

#[test]
fn feature_z12_a_server_is_watched_as_json_and_as_a_table() {
    let server = Server::start(&[]);
    let body = json!({"messages": [{"role": "user", "content": "What is mortise?"}]});
    server.post(CHAT, &body).ok();
    let url = server.url("");
    let top = ["top", "--once", "--interval", "1", "--url", &url];
    let report: Value =
        serde_json::from_str(&printed(&[&top[..], &["--json"]].concat(), "")).expect("JSON");
    let model = &report["models"][0];
    assert_eq!(
        (&model["name"], &model["state"]),
        (&json!("mortise-demo"), &json!("loaded"))
    );
    assert_eq!(
        (&model["running"], &report["in_flight"]),
        (&json!(0), &json!(0))
    );
    assert!(
        model["kv_kept"].as_f64().is_some_and(|part| part > 0.0),
        "{report}"
    );
    let plugins = report["plugins"].as_array().expect("plugins");
    let kinds: Vec<&str> = plugins
        .iter()
        .filter_map(|plugin| plugin["kind"].as_str())
        .collect();
    assert_eq!(
        kinds,
        ["chat-template", "grammar", "output-parser", "policy"]
    );
    let table = printed(&top, "");
    assert!(
        table.contains("mortise-demo") && table.contains("output-parser"),
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "{table}");
}

#[test]
fn feature_z12_shells_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell], "");
        for word in ["completions", "--served-model-name", "rescan"] {
            let name = word.trim_start_matches('-');
            assert!(script.contains(name), "{shell}: {word}");
        }
    }
    let folder = tempfile::tempdir().expect("make a folder");
    printed(&["man", folder.path().to_str().expect("UTF-8")], "");
    for page in [
        "mortise.1",
        "mortise-serve.1",
        "mortise-models-load.1",
        "mortise-chat.1",
    ] {
        let text = std::fs::read_to_string(folder.path().join(page)).expect(page);
        assert!(text.contains(".TH") && text.contains(".SH"), "{page}");
    }
    assert!(printed(&["man"], "").contains(".TH mortise 1"));
}
