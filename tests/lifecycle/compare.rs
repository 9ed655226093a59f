//! Settings that are compared with those of a running server before it reads them.

use std::process::{Command, Output};

use serde_json::json;

use crate::support::binary;
use crate::support::client::Request;
use crate::{ADMIN, KEY, Managed, code, scripted};

const CHECK: &str = "/v1/admin/settings/check";

/// `mortise config check` of these files against a server.
fn compare(managed: &Managed, files: &[&str], more: &[&str]) -> Output {
    let url = format!("http://{}", managed.admin);
    Command::new(binary())
        .args(["config", "check"])
        .args(files)
        .args(["--against", &url])
        .args(more)
        .env("ADMIN_KEY", KEY)
        .output()
        .expect("run mortise")
}

#[test]
fn feature_c10_a_check_against_a_server_says_what_a_reload_would_change() {
    let stays = scripted("stays", "default = \"s\"", "");
    let goes = scripted("goes", "default = \"g\"", "enabled = false");
    let loaded = scripted("loaded", "default = \"old\"", "");
    let managed = Managed::start(&format!("{stays}{goes}{loaded}"));
    let folder = tempfile::tempdir().expect("make a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("write the configuration");
        path.to_str().expect("UTF-8").to_owned()
    };
    let same = write("same.toml", &format!("{ADMIN}{stays}{goes}{loaded}"));
    let told = |output: Output| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    // The key is that of the file.
    let nothing = told(compare(&managed, &[&same], &[]));
    assert_eq!(
        nothing,
        "the configuration is right, and the server has it\n"
    );

    let added = scripted("added", "default = \"a\"", "");
    let changed = scripted("loaded", "default = \"new\"", "");
    let common = write("common.toml", &format!("{stays}{changed}{added}"));
    let local = write(
        "local.toml",
        "[limits]\nmax_queue = 7\n[auth]\nanonymous = true\n[[auth.api_keys]]\nid = \"ann\"\n\
         key = \"a key that is told to nobody\"\n",
    );
    let key = ["--admin-key-env", "ADMIN_KEY"];
    let lines = told(compare(&managed, &[&common, &local], &key));
    for line in [
        "models added:       added",
        "models removed:     goes",
        "models updated:     loaded",
        "taken by a reload:  auth.anonymous auth.api_keys models",
        "taken by a restart: admin.key admin.port limits.max_queue",
        "a reload is refused: loaded is loaded and would be updated; unload it first",
    ] {
        assert!(lines.lines().any(|found| found == line), "{line}\n{lines}");
    }
    let json = told(compare(
        &managed,
        &[&common, &local],
        &[&key[..], &["--json"]].concat(),
    ));
    assert!(!json.contains("told to nobody"), "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["unchanged"], json!(["stays"]));
    assert_eq!(json["service_restart_required"], true);
    // Nothing has changed by being asked about.
    assert_eq!(managed.state("loaded"), "loaded");
    assert_eq!(
        managed.ask(Request::get("/v1/admin/models/added")).status(),
        404
    );
    of_the_files_of_the_server(&managed, &format!("{stays}{loaded}"));
    let unreachable = compare(&managed, &[&common], &[]);
    assert!(!unreachable.status.success(), "the file has no key");
}

/// Without a body the server compares what its own files have by now.
fn of_the_files_of_the_server(managed: &Managed, config: &str) {
    managed.server.configure(&format!("{ADMIN}{config}"));
    let report = managed.ask(Request::raw(CHECK, b"")).ok();
    assert_eq!(report["removed"], json!(["goes"]));
    assert_eq!(report["conflicts"], json!([]));
    managed
        .ask(Request::raw("/v1/admin/settings/reload", b""))
        .ok();
    let report = managed.ask(Request::raw(CHECK, b"")).ok();
    assert_eq!(report["removed"], json!([]));
    assert_eq!(report["reload_keys"], json!([]));
    for (body, status) in [
        (json!({"settings": "[server]\nprot = 1\n"}), 400),
        (json!({"settings": 1}), 400),
        (json!({"files": []}), 400),
        (json!({"settings": "#".repeat(1 << 20)}), 413),
    ] {
        let refused = managed.ask(Request::post(CHECK, &body));
        assert_eq!(code(&refused), (status, "invalid_settings".to_owned()));
    }
    assert_eq!(Request::raw(CHECK, b"").send(&managed.admin).status(), 401);
}
