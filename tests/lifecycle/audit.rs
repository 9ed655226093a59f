//! The audit log of a running server, and logs that somebody has been at.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{binary, until};
use crate::{KEY, Managed, code, scripted};

/// A folder with the files of a server that records what happens, and its configuration.
struct Recorded {
    folder: tempfile::TempDir,
    config: String,
}

impl Recorded {
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let at = |name: &str| folder.path().join(name);
        let models = scripted("one", "default = \"1\"", "")
            + &scripted("two", "default = \"2\"", "enabled = false");
        let config = format!(
            "[audit]\nfile = {:?}\nstore = true\n{more}\n[store]\npath = {:?}\n{models}",
            at("audit.jsonl"),
            at("state.db")
        );
        Self { folder, config }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    /// Number of the entry whose head was noted last.
    fn noted(&self) -> Option<usize> {
        let note = self.folder.path().join("audit.jsonl.head");
        let head = std::fs::read_to_string(note).ok()?;
        head.split(':').next()?.parse().ok()
    }

    fn entries(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file()).expect("read the log");
        let line = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["entry"].clone();
        text.lines().map(line).collect()
    }
}

/// Outcome of `mortise audit` with these arguments.
fn audit(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(binary())
        .arg("audit")
        .args(arguments)
        .output()
        .expect("run mortise");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn feature_z7_what_is_done_and_who_was_refused_is_recorded_in_chains_that_hold() {
    let recorded = Recorded::new("");
    let mut managed = Managed::start(&recorded.config);
    assert_eq!(managed.act("two", "load", "").status(), 200);
    let alias = json!({"target": "two"});
    let set = Request::post("/v1/admin/aliases/prod", &alias).method("PUT");
    assert_eq!(managed.ask(set).status(), 201);
    for _ in 0..40 {
        let wrong = Request::get("/v1/admin/models").header("x-admin-token", "secret-guess");
        assert_eq!(wrong.send(&managed.admin).status(), 403);
    }
    managed.server.signal("HUP");
    let told = |entries: &[Value], wanted: &Value| {
        entries.iter().any(|entry| {
            let fields = wanted.as_object().expect("fields");
            fields.iter().all(|(name, value)| entry[name] == *value)
        })
    };
    let path_of = |action: &str| format!("/v1/admin/models/two/{action}");
    for wanted in [
        json!({"action": "server.start"}),
        json!({"action": "model.state", "model": "two", "state": "loaded"}),
        json!({"action": "admin.request", "outcome": "begun", "method": "POST", "path": path_of("load")}),
        json!({"action": "admin.request", "outcome": "ended", "status": 200, "path": path_of("load"), "peer": "127.0.0.1"}),
        json!({"action": "admin.request", "outcome": "refused", "status": 403, "error": "forbidden"}),
        json!({"action": "settings.reload", "reason": "SIGHUP", "outcome": "taken"}),
        json!({"action": "plugins.reload", "reason": "SIGHUP", "changed": false}),
    ] {
        until(&format!("{wanted} is recorded"), || {
            told(&recorded.entries(), &wanted)
        });
    }
    let entries = recorded.entries();
    let set = entries.iter().find(|entry| entry["status"] == 201);
    assert_eq!(set.expect("the alias")["detail"]["target"], "two");
    let refused = |entry: &&Value| entry["outcome"] == "refused";
    assert_eq!(entries.iter().filter(refused).count(), 20);
    managed.server.signal("TERM");
    assert!(managed.server.wait().success());
    let last = recorded.entries().pop().expect("an entry");
    assert_eq!(last["action"], "server.stop");
    let text = std::fs::read_to_string(recorded.file()).expect("read");
    for secret in [KEY, "secret-guess"] {
        assert!(!text.contains(secret), "a key stands in the audit log");
    }

    let (file, store) = (recorded.file(), recorded.folder.path().join("state.db"));
    let (whole, report) = audit(&["verify", "--file", path(&file), "--store", path(&store)]);
    assert!(whole, "{report}");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report[0]["entries"], entries.len() + 1);
    assert_eq!(report[1]["entries"], report[0]["entries"]);
    let head = report[0]["head"].as_str().expect("a head").to_owned();
    managed.server.wait_for_log(|line| line.contains(&head));
    let (_, shown) = audit(&["show", "--last", "1", "--file", path(&file)]);
    assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), last);

    tampered_with(&file, &head);
    let (whole, told) = audit(&["verify", "--file", path(&file)]);
    assert!(!whole && told.contains("its end was cut off"), "{told}");
    // A server does not write on behind a break.
    let config = recorded.folder.path().join("mortise.toml");
    std::fs::write(&config, &recorded.config).expect("write");
    let mut serve = Command::new(binary());
    serve.args(["serve", "--port", "0", "--config", path(&config)]);
    let output = serve.output().expect("run mortise");
    assert_eq!(output.status.code(), Some(1));
}

/// Change, swap and cut entries of a log; the end stays cut.
fn tampered_with(file: &Path, head: &str) {
    let text = std::fs::read_to_string(file).expect("read");
    let lines: Vec<&str> = text.lines().collect();
    let changed = text.replacen("\"two\"", "\"own\"", 1);
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    let mut without = lines.clone();
    without.remove(1);
    for (text, problem) in [
        (changed, "was changed"),
        (swapped.join("\n") + "\n", "put elsewhere"),
        (without.join("\n") + "\n", "taken out"),
    ] {
        std::fs::write(file, text).expect("write");
        let (whole, told) = audit(&["verify", "--file", path(file)]);
        assert!(!whole && told.contains(problem), "{problem}: {told}");
    }
    std::fs::write(file, lines[..lines.len() - 1].join("\n") + "\n").expect("write");
    // Whoever removes the note of the head as well is found by one that lies elsewhere.
    let note = file.with_extension("jsonl.head");
    let noted = std::fs::read(&note).expect("a note");
    std::fs::remove_file(&note).expect("remove");
    assert!(audit(&["verify", "--file", path(file)]).0);
    let (whole, told) = audit(&["verify", "--file", path(file), "--head", head]);
    assert!(!whole && told.contains("its end was cut off"), "{told}");
    std::fs::write(note, noted).expect("write");
}

#[test]
fn feature_z7_nothing_happens_that_cannot_be_recorded_if_so_configured() {
    for required in [true, false] {
        let recorded = Recorded::new(&format!("required = {required}"));
        let managed = Managed::start(&recorded.config);
        until("the start is recorded", || {
            let loaded = |entry: &Value| entry["model"] == "one" && entry["state"] == "loaded";
            let entries = recorded.entries();
            entries.iter().any(loaded) && recorded.noted() == Some(entries.len())
        });
        // The note of the head cannot be written any more.
        let block = recorded.folder.path().join("audit.jsonl.head.new");
        std::fs::create_dir(&block).expect("make a folder");
        let before = recorded.entries();
        let refused = managed.act("two", "load", "");
        let ready = || managed.server.get("/ready");
        if required {
            assert_eq!(code(&refused), (503, "audit_unavailable".to_owned()));
            assert_eq!(managed.state("two"), "unloaded");
            assert_eq!(ready().status(), 503);
            assert_eq!(ready().json()["checks"]["audit"], "failed");
        } else {
            assert_eq!(refused.status(), 200);
            assert_eq!(ready().ok()["checks"]["audit"], "degraded");
        }
        // A line whose head cannot be noted is taken back.
        until("nothing more is recorded", || recorded.entries() == before);
        // Inference goes on.
        assert_eq!(managed.chat("one").status(), 200);
        std::fs::remove_dir(&block).expect("remove");
        assert_eq!(managed.act("two", "load", "").status(), 200);
        assert_eq!(ready().ok()["checks"]["audit"], "ok");
        let (whole, told) = audit(&["verify", "--file", path(&recorded.file())]);
        assert!(whole, "{told}");
    }
}
