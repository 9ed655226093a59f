//! The audit log about users who log in, and about keys that are changed by command.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::limits::hashed;
use crate::support::{Server, binary, until};

fn entries(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["entry"].clone();
    text.lines().map(line).collect()
}

fn of_logins(log: &Path) -> Vec<Value> {
    let is_login = |entry: &Value| entry["action"] == "user.login";
    entries(log).into_iter().filter(is_login).collect()
}

#[test]
fn feature_z7_logins_are_recorded_without_passwords_and_the_refused_ones_in_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let more = format!(
        "[audit]\nfile = {log:?}\n[[auth.users]]\nname = \"ann\"\npassword_hash = \"{}\"\n",
        hashed("sesame")
    );
    let server = Server::scripted("default = \"x\"", &more);
    let log_in = |name: &str, password: &str| {
        let body = json!({"username": name, "password": password});
        server.post("/api/v1/auth/login", &body).status()
    };
    assert_eq!(log_in("ann", "sesame"), 200);
    assert_eq!(log_in("ann", "open-up"), 401);
    assert_eq!(log_in("a-password-in-the-wrong-field", "x"), 401);
    let found = of_logins(&log);
    let fields = |entry: &Value| {
        let fields = ["outcome", "user", "error", "peer"];
        fields.map(|name| entry[name].as_str().unwrap_or_default().to_owned())
    };
    let found: Vec<[String; 4]> = found.iter().map(fields).collect();
    let expected = [
        ["ok", "ann", "", "127.0.0.1"],
        ["refused", "ann", "wrong_login", "127.0.0.1"],
        ["refused", "", "wrong_login", "127.0.0.1"],
    ];
    assert_eq!(found, expected.map(|fields| fields.map(str::to_owned)));
    for _ in 0..40 {
        log_in("ann", "open-up");
    }
    // Of many the number is told, with the next that is recorded.
    assert_eq!(of_logins(&log).len(), 1 + 20);
    let text = std::fs::read_to_string(&log).expect("read");
    for secret in ["sesame", "open-up", "wrong-field"] {
        assert!(!text.contains(secret), "{secret} stands in the audit log");
    }
}

#[test]
fn feature_z7_nobody_logs_in_unrecorded_where_the_log_is_required() {
    let user = format!(
        "[[auth.users]]\nname = \"ann\"\npassword_hash = \"{}\"\n",
        hashed("sesame")
    );
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let more = format!("[audit]\nfile = {log:?}\nrequired = true\n{user}");
    let server = Server::scripted("default = \"x\"", &more);
    let body = json!({"username": "ann", "password": "sesame"});
    assert_eq!(server.post("/api/v1/auth/login", &body).status(), 200);
    // Without its folder the head cannot be written.
    std::fs::remove_dir_all(folder.path()).expect("remove the folder");
    until("a login is refused", || {
        let answer = server.post("/api/v1/auth/login", &body);
        answer.status() == 503 && answer.text().contains("audit_unavailable")
    });
}

#[test]
fn feature_z7_keys_that_are_changed_by_command_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, log) = (
        folder.path().join("state.db"),
        folder.path().join("audit.jsonl"),
    );
    let keys = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command
            .arg("keys")
            .args(arguments)
            .arg("--store")
            .arg(&store);
        let output = command
            .arg("--audit")
            .arg(&log)
            .output()
            .expect("run mortise");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).trim().to_owned(),
        )
    };
    let (made, secret) = keys(&["create", "ann"]);
    assert!(made, "{secret}");
    assert!(!keys(&["rotate", "nobody"]).0);
    assert!(keys(&["revoke", "ann"]).0);
    let found: Vec<(Value, Value, Value)> = entries(&log)
        .into_iter()
        .map(|entry| {
            (
                entry["command"].clone(),
                entry["key"].clone(),
                entry["outcome"].clone(),
            )
        })
        .collect();
    let mut expected = Vec::new();
    for (command, key) in [("create", "ann"), ("rotate", "nobody"), ("revoke", "ann")] {
        for outcome in ["begun", "ended"] {
            expected.push((json!(command), json!(key), json!(outcome)));
        }
    }
    assert_eq!(found, expected);
    assert!(entries(&log)[3]["error"].is_string());
    let text = std::fs::read_to_string(&log).expect("read");
    assert!(!text.contains(&secret), "a key stands in the audit log");
    let audit = ["audit", "verify", "--file"];
    let verified = Command::new(binary()).args(audit).arg(&log).status();
    assert!(verified.expect("run mortise").success());
}
