//! Settings that are read again while the server runs.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};
use crate::{ADMIN, Managed, asked, code, said, scripted};

const RELOAD: &str = "/v1/admin/settings/reload";

fn reload(managed: &Managed, config: &str) -> Response {
    managed.server.configure(&format!("{ADMIN}{config}"));
    managed.ask(Request::raw(RELOAD, b""))
}

fn names(report: &Value, kind: &str) -> Vec<String> {
    let names = report[kind].as_array().expect("names").iter();
    names
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn feature_c10_a_reload_takes_models_and_names_keys_that_need_a_restart() {
    let stays = scripted("stays", "default = \"s\"", "");
    let goes = scripted("goes", "default = \"g\"", "enabled = false");
    let changes = scripted("changes", "default = \"old\"", "enabled = false");
    let mut managed = Managed::start(&format!("{stays}{goes}{changes}"));
    let changed = scripted("changes", "default = \"new\"", "enabled = false");
    let added = scripted("added", "default = \"a\"", "aliases = [\"plus\"]");
    let config = format!("[limits]\nmax_queue = 7\n{stays}{changed}{added}");
    let report = reload(&managed, &config).ok();
    for (kind, expected) in [
        ("added", ["added"]),
        ("removed", ["goes"]),
        ("updated", ["changes"]),
        ("unchanged", ["stays"]),
    ] {
        assert_eq!(names(&report, kind), expected, "{kind}");
    }
    assert_eq!(report["service_restart_required"], true);
    assert_eq!(report["restart_keys"], json!(["limits.max_queue"]));
    // Nothing was loaded or unloaded by it, and everybody knows.
    assert_eq!(managed.state("added"), "unloaded");
    assert_eq!(managed.state("stays"), "loaded");
    let list = managed.server.get("/v1/models").ok();
    let listed = list["data"].as_array().expect("a list").iter();
    let listed: Vec<_> = listed.map(|model| model["id"].clone()).collect();
    assert_eq!(listed, ["stays", "changes", "added", "plus"]);
    assert_eq!(code(&managed.chat("goes")).0, 404);
    managed.act("changes", "load", "").ok();
    assert_eq!(said(&managed.chat("changes")), "new");
    managed.act("added", "load", "").ok();
    assert_eq!(said(&managed.chat("plus")), "a");
    let report = reload(&managed, &config).ok();
    assert_eq!(names(&report, "unchanged").len(), 3);
    managed.server.assert_sound();
}

#[test]
fn feature_c10_a_reload_that_would_invalidate_a_loaded_model_changes_nothing() {
    let loaded = scripted("loaded", "default = \"old\"", "");
    let managed = Managed::start(&loaded);
    let other = scripted("other", "default = \"o\"", "");
    let changed = scripted("loaded", "default = \"new\"", "");
    for (config, change) in [(format!("{other}{changed}"), "updated"), (other, "removed")] {
        let response = reload(&managed, &config);
        assert_eq!(
            code(&response),
            (409, "settings_reload_conflict".to_owned())
        );
        let conflict = json!({"model": "loaded", "state": "loaded", "change": change});
        assert_eq!(response.json()["conflicts"], json!([conflict]));
        assert_eq!(said(&managed.chat("loaded")), "old");
        let row = managed.ask(Request::get("/v1/admin/models/other"));
        assert_eq!(row.status(), 404);
    }
    // Names, and when it is unloaded, may change while it serves.
    let renamed = scripted(
        "loaded",
        "default = \"old\"",
        "aliases = [\"more\"]\npinned = true",
    );
    let report = reload(&managed, &renamed).ok();
    assert_eq!(names(&report, "updated"), ["loaded"]);
    assert_eq!(said(&managed.chat("more")), "old");
    assert_eq!(managed.row("loaded")["pinned"], true);
    let response = reload(&managed, "[server]\nprot = 1\n");
    assert_eq!(code(&response), (400, "invalid_settings".to_owned()));
    assert_eq!(said(&managed.chat("loaded")), "old");
}

#[test]
fn feature_c10_a_hangup_reads_the_models_too() {
    let first = scripted("first", "default = \"f\"", "");
    let managed = Managed::start(&first);
    let second = scripted("second", "default = \"s\"", "load_on_demand = true");
    managed.server.configure(&format!("{ADMIN}{first}{second}"));
    managed.server.signal("HUP");
    managed
        .server
        .wait_for_log(|line| line.contains("settings were read again"));
    assert_eq!(said(&managed.chat("second")), "s");
}

#[test]
fn feature_c4_files_are_laid_over_one_another_at_the_start_and_at_reloads() {
    let folder = tempfile::tempdir().expect("make a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("write the configuration");
        path.to_str().expect("UTF-8").to_owned()
    };
    let common = scripted("one", "default = \"common\"", "");
    let common = write("common.toml", &format!("{ADMIN}{common}"));
    let over = "[[models]]\nname = \"one\"\n[models.script]\ndefault = ";
    let local = write("local.toml", &format!("{over}\"local\"\n"));
    let server = Server::start(&["--config", &common, "--config", &local]);
    let ask = || said(&server.post("/v1/chat/completions", &asked("one")));
    assert_eq!(ask(), "local");
    write("local.toml", &format!("{over}\"changed\"\n"));
    server.signal("HUP");
    // It is loaded, and a change of what it says would need another runtime.
    server.wait_for_log(|line| line.contains("the settings change models that are loaded"));
    let two = scripted("two", "default = \"second\"", "load_on_demand = true");
    write("local.toml", &format!("{over}\"local\"\n{two}"));
    server.signal("HUP");
    server.wait_for_log(|line| line.contains("settings were read again"));
    assert_eq!(
        said(&server.post("/v1/chat/completions", &asked("two"))),
        "second"
    );
    assert_eq!(ask(), "local");
}
