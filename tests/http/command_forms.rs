//! Forms of what commands print: each that prints a result can print JSON.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::book::helps;
use crate::commands::{mortise, printed};
use crate::support::{Server, binary};

const KEY: &str = "an admin key of the tests";

/// Commands without `--json`, and why.
const OTHER_FORMS: [(&str, &str); 27] = [
    ("serve", "a server; its log has `--log-format json`"),
    ("completions", "a script of a shell"),
    ("man", "a manual page"),
    ("config print-default", "a configuration file"),
    ("config import-router", "a configuration file"),
    ("plugin reference", "a page in Markdown"),
    ("template render", JSON),
    ("grammar check", JSON),
    ("tokenize", JSON),
    ("inspect", JSON),
    ("store check", JSON),
    ("audit verify", JSON),
    ("audit show", JSON),
    ("models show", JSON),
    ("loras show", JSON),
    ("plugin list", JSON),
    ("plugin inspect", JSON),
    ("plugin verify", JSON),
    ("plugin run", JSON),
    ("plugin bench", JSON),
    ("plugin profile", JSON),
    ("plugin pack", JSON),
    ("plugin compose", JSON),
    ("plugin sign", JSON),
    ("plugin push", JSON),
    ("plugin pull", JSON),
    ("plugin search", JSON),
];

const JSON: &str = "prints JSON in any case";

#[test]
fn every_command_that_prints_a_result_takes_json_or_says_why_not() {
    let mut left: BTreeSet<&str> = OTHER_FORMS.iter().map(|(name, _)| *name).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (words, help) in helps() {
        if words.is_empty() || help.contains("\nCommands:\n") {
            continue;
        }
        count += 1;
        let name = words.join(" ");
        let takes = help.contains("--json");
        match (takes, left.remove(&name[..])) {
            (true, true) => wrong.push(format!(
                "`{name}` takes --json and is listed as one that does not"
            )),
            (false, false) => {
                wrong.push(format!("`{name}` takes no --json and no reason is given"))
            }
            _ => {}
        }
    }
    assert!(count > 50, "{count} commands");
    assert!(left.is_empty(), "there are no commands {left:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Output of a command with `--json`.
fn as_json(arguments: &[&str], input: &str) -> Value {
    let text = printed(&[arguments, &["--json"]].concat(), input);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
}

#[test]
fn commands_without_a_server_print_json() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (store, copy, config) = (path("state.db"), path("copy.db"), path("mortise.toml"));
    let formats = as_json(&["parse", "--formats"], "");
    assert_eq!(formats[0]["name"], "auto");
    std::fs::write(
        &config,
        "[server]\nport = 0\n[admin]\nport = 0\nkey_env = \"NOT_SET_HERE\"\n",
    )
    .expect("write");
    let output = mortise(&["config", "check", &config, "--json"], "");
    let checked: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(checked["valid"], true);
    assert_eq!(checked["unset_variables"][0]["variable"], "NOT_SET_HERE");

    let keys = |words: &[&str]| as_json(&[&["keys"][..], words, &["--store", &store]].concat(), "");
    let made = keys(&["create", "alice"]);
    assert!(made["id"] == "alice" && made["key"].is_string(), "{made}");
    let rotated = keys(&["rotate", "alice"]);
    assert!(rotated["key"] != made["key"], "{rotated}");
    assert_eq!(keys(&["list"])["data"][0]["id"], "alice");
    assert_eq!(keys(&["revoke", "alice"])["state"], "revoked");
    let hash = as_json(&["keys", "password"], "a password\n");
    assert!(
        hash["hash"]
            .as_str()
            .is_some_and(|hash| hash.starts_with("$argon2")),
        "{hash}"
    );

    let copied = as_json(&["store", "backup", &copy, "--store", &store], "");
    assert_eq!(copied["copy"], copy);
    let shrunk = as_json(&["store", "vacuum", "--store", &store], "");
    assert!(
        shrunk["bytes"].is_u64() && shrunk["bytes_before"].is_u64(),
        "{shrunk}"
    );
}

#[test]
fn commands_about_plugins_print_json() {
    let folder = tempfile::tempdir().expect("make a folder");
    let made = std::process::Command::new(binary())
        .args(["plugin", "new", "mine", "--kind", "policy", "--json"])
        .current_dir(folder.path())
        .output()
        .expect("run mortise");
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(
        (&made["folder"], &made["next"][0]),
        (&json!("mine"), &json!("cd mine"))
    );
    // One case that holds and one that does not.
    let cases = folder.path().join("mine/cases");
    for entry in std::fs::read_dir(&cases).expect("cases") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("remove");
    }
    std::fs::write(cases.join("a.json"), r#"{"input": {}, "expect": {}}"#).expect("write");
    std::fs::write(
        cases.join("b.json"),
        r#"{"input": {}, "expect": {"nothing": 1}}"#,
    )
    .expect("write");
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bundle/prebuilt/policy.wasm");
    let output = mortise(
        &[
            "plugin",
            "test",
            policy.to_str().expect("UTF-8"),
            "--cases",
            cases.to_str().expect("UTF-8"),
            "--json",
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(1));
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(outcome["failed"], 1, "{outcome}");
    assert_eq!(
        outcome["cases"][0],
        json!({"name": "a", "passed": true, "error": null})
    );
    assert!(
        outcome["cases"][1]["error"].to_string().contains("nothing"),
        "{outcome}"
    );
}

#[test]
fn commands_to_a_server_print_json() {
    let script = "default = \"<think>\\nhm\\n</think>\\n\\nNothing.\"";
    let server = Server::scripted(script, &format!("[admin]\nport = 0\nkey = {KEY:?}\n"));
    let url = server.url("");
    let answer = as_json(&["chat", "--url", &url, "hi"], "");
    assert_eq!(
        (&answer["content"], &answer["model"]),
        (&json!("Nothing."), &json!("scripted"))
    );
    assert!(answer["reasoning"].to_string().contains("hm"), "{answer}");
    assert!(answer["usage"]["completion_tokens"].is_u64(), "{answer}");

    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("http://").expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let admin = format!("http://{}", &address[..end]);
    let asked = |words: &[&str]| {
        let place = [
            "--json",
            "--admin-url",
            &admin,
            "--admin-key-env",
            "THE_KEY",
        ];
        let output = std::process::Command::new(binary())
            .args(words)
            .args(place)
            .env("THE_KEY", KEY)
            .output()
            .expect("run mortise");
        let told = String::from_utf8_lossy(&output.stderr);
        // Nobody watches: no bar is drawn.
        assert!(
            output.status.success() && told.is_empty(),
            "{words:?}: {told}"
        );
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    assert_eq!(
        asked(&["models", "unload", "scripted"])["runtime_state"],
        "unloaded"
    );
    assert_eq!(
        asked(&["models", "load", "scripted"])["runtime_state"],
        "loaded"
    );
    assert_eq!(asked(&["models", "list"])["data"][0]["name"], "scripted");
    assert!(asked(&["models", "queues"])["data"].is_array());
    assert!(asked(&["loras", "list"])["loras"].is_array());
    assert!(asked(&["keys", "list"])["data"].is_array());
}
