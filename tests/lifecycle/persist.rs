//! Changes of the admin side that outlive the server, if a request asks for it; digest pins; numbers of aliases.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::binary;
use crate::support::client::{Request, Response};
use crate::{ADMIN, Managed, asked, code, scripted};

fn config(folder: &Path) -> String {
    let says = |name: &str| scripted(name, &format!("default = \"I am {name}.\""), "");
    // The table `[admin]` has begun already.
    let persist = folder.join("kept.toml");
    format!("persist = {persist:?}\n{}{}", says("one"), says("two"))
}

fn put(managed: &Managed, name: &str, query: &str, body: &serde_json::Value) -> Response {
    let path = format!("/v1/admin/aliases/{name}{query}");
    managed.ask(Request::post(&path, body).method("PUT"))
}

#[test]
fn feature_c12_changes_outlive_the_server_only_if_they_are_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept.toml");
    let managed = Managed::start(&config(folder.path()));
    let models = managed.ask(Request::get("/v1/admin/models")).ok();
    assert_eq!(models["can_persist"], true);
    let body = json!({"target": "one", "canary": {"target": "two", "percent": 10.0}});
    assert_eq!(put(&managed, "passing", "", &body).status(), 201);
    assert!(!kept.exists(), "nothing was to be kept");
    let wrong = put(&managed, "prod", "?persist=yes", &body);
    assert_eq!(code(&wrong), (400, "invalid_query".to_owned()));
    let first = put(&managed, "prod", "?persist=true", &body);
    assert_eq!(
        (first.status(), first.header("x-persisted")),
        (201, Some("written"))
    );
    let again = put(&managed, "prod", "?persist=true", &body);
    assert_eq!(
        (again.status(), again.header("x-persisted")),
        (200, Some("unchanged"))
    );
    let unload = managed.ask(Request::raw(
        "/v1/admin/models/two/unload?persist=true",
        b"",
    ));
    assert_eq!(
        (unload.status(), unload.header("x-persisted")),
        (200, Some("written"))
    );
    // The other way to name the model keeps the change, too.
    let named = |query: &str| {
        let path = format!("/v1/models/unload{query}");
        managed.ask(Request::post(&path, &json!({"model": "two"})))
    };
    assert_eq!(
        code(&named("?persist=yes")),
        (400, "invalid_query".to_owned())
    );
    assert_eq!(
        named("?persist=true").header("x-persisted"),
        Some("unchanged")
    );
    drop(managed);

    let managed = Managed::start(&config(folder.path()));
    let row = managed.ask(Request::get("/v1/admin/aliases/prod")).ok();
    assert_eq!(row["canary"]["target"], "two");
    assert_eq!(
        managed
            .ask(Request::get("/v1/admin/aliases/passing"))
            .status(),
        404
    );
    assert_eq!(
        (managed.state("one"), managed.state("two")),
        ("loaded".to_owned(), "unloaded".to_owned())
    );
    let gone = managed.ask(Request::get("/v1/admin/aliases/prod?persist=true").method("DELETE"));
    assert_eq!(gone.header("x-persisted"), Some("written"));
    assert!(
        !fs::read_to_string(&kept)
            .expect("the file")
            .contains("prod")
    );
    drop(managed);

    let without = scripted("one", "default = \"x\"", "");
    let managed = Managed::start(&without);
    let refused = put(&managed, "prod", "?persist=true", &json!({"target": "one"}));
    assert_eq!(code(&refused), (409, "not_persisted".to_owned()));
    let models = managed.ask(Request::get("/v1/admin/models")).ok();
    assert_eq!(models["can_persist"], false);
}

#[test]
fn feature_c12_what_is_kept_of_a_model_goes_with_its_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let persist = format!("persist = {:?}\n", folder.path().join("kept.toml"));
    let one = scripted("one", "default = \"x\"", "");
    let two = scripted("two", "default = \"y\"", "enabled = false");
    let away = "[[models]]\nname = \"away\"\nenabled = false\n[models.upstream]\nurls = [\"http://127.0.0.1:9/v1\"]\n";
    let managed = Managed::start(&format!("{persist}{one}{two}{away}"));
    for (name, action) in [("two", "load"), ("away", "load"), ("away", "unload")] {
        let path = format!("/v1/admin/models/{name}/{action}?persist=true");
        let kept = managed.ask(Request::raw(&path, b""));
        assert_eq!(
            (kept.status(), kept.header("x-persisted")),
            (200, Some("written"))
        );
    }
    managed.act("two", "unload", "").ok();
    // Both entries are deleted, and what was kept of them is no model.
    let config = format!("{ADMIN}{persist}{one}");
    managed.server.configure(&config);
    let report = managed
        .ask(Request::raw("/v1/admin/settings/reload", b""))
        .ok();
    assert_eq!(report["removed"], json!(["two", "away"]));
    assert_eq!(report["updated"], json!([]));
    let warnings = report["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for name in ["`two`", "`away`", "kept.toml"] {
        assert!(
            report["warnings"].to_string().contains(name),
            "{name}: {warnings:?}"
        );
    }
    drop(managed);
    let managed = Managed::start(&format!("{persist}{one}"));
    managed
        .server
        .wait_for_log(|line| line.contains("WARN") && line.contains("`away`"));
    let gone = managed.ask(Request::get("/v1/admin/models/two"));
    assert_eq!(code(&gone), (404, "unknown_model".to_owned()));
    let file = folder.path().join("mortise.toml");
    fs::write(&file, config).expect("written");
    let check = |more: &[&str]| {
        let check = std::process::Command::new(binary())
            .args(["config", "check"])
            .args(more)
            .arg(&file)
            .output();
        let output = check.expect("run mortise");
        assert!(output.status.success(), "{output:?}");
        output
    };
    let told = String::from_utf8(check(&[]).stderr).expect("UTF-8");
    assert!(told.contains("`two`") && told.contains("`away`"), "{told}");
    let json: serde_json::Value = serde_json::from_slice(&check(&["--json"]).stdout).expect("JSON");
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(2));
}

#[test]
fn feature_c12_a_kept_alias_needs_no_restart_and_can_be_rolled_back_after_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::start(&config(folder.path()));
    put(&managed, "prod", "", &json!({"target": "one"})).json();
    let body = json!({"target": "one", "canary": {"target": "two", "percent": 10.0}});
    assert_eq!(put(&managed, "prod", "?persist=true", &body).status(), 200);
    let reload = |managed: &Managed| {
        managed
            .ask(Request::raw("/v1/admin/settings/reload", b""))
            .ok()
    };
    let report = reload(&managed);
    assert_eq!(report["service_restart_required"], false);
    assert_eq!(report["restart_keys"], json!([]));
    // What the file says and the server does not do takes a restart.
    put(&managed, "prod", "", &json!({"target": "two"})).ok();
    assert_eq!(reload(&managed)["restart_keys"], json!(["aliases"]));
    drop(managed);

    let managed = Managed::start(&config(folder.path()));
    let back = "/v1/admin/aliases/prod/rollback?persist=true";
    let rolled = managed.ask(Request::raw(back, b""));
    assert_eq!(rolled.header("x-persisted"), Some("written"));
    let rolled = rolled.ok();
    assert_eq!(
        (&rolled["target"], &rolled["canary"]),
        (&json!("one"), &json!(null))
    );
    drop(managed);
    let managed = Managed::start(&config(folder.path()));
    let row = managed.ask(Request::get("/v1/admin/aliases/prod")).ok();
    assert_eq!(row["canary"], json!(null));
    assert_eq!(row["previous"]["canary"]["target"], "two");
}

#[test]
fn feature_m2_the_numbers_of_an_alias_are_on_the_page_of_metrics() {
    let models = scripted("one", "default = \"x\"", "") + &scripted("two", "default = \"y\"", "");
    let alias = "[[aliases]]\nname = \"prod\"\ntarget = \"one\"\ncanary = { target = \"two\", tenants = [] }\n";
    let managed = Managed::start(&format!("{models}{alias}"));
    for _ in 0..3 {
        assert_eq!(managed.chat("prod").status(), 200);
    }
    assert_eq!(
        put(&managed, "prod", "", &json!({"target": "two"})).status(),
        200
    );
    assert_eq!(managed.chat("prod").status(), 200);
    let of = |family: &str, model: &str| {
        managed.server.metric(&format!(
            "mortise_{family}_total{{alias=\"prod\",model=\"{model}\"}}"
        ))
    };
    assert_eq!(
        (of("alias_requests", "one"), of("alias_requests", "two")),
        (3.0, 1.0)
    );
    assert_eq!(
        (of("alias_first_tokens", "one"), of("alias_errors", "one")),
        (3.0, 0.0)
    );
    assert!(of("alias_latency_seconds", "one") >= of("alias_first_token_seconds", "one"));
    assert!(of("alias_first_token_seconds", "one") > 0.0);
}

#[test]
fn feature_m3_answers_of_a_model_tell_when_it_is_to_be_removed() {
    let models = scripted(
        "old",
        "default = \"x\"",
        "deprecation_date = \"2031-05-09\"",
    );
    let managed = Managed::start(&(models + &scripted("new", "default = \"y\"", "")));
    let old = managed.chat("old");
    // 2031-05-09 is a Friday by `date -d`.
    assert_eq!(old.header("sunset"), Some("Fri, 09 May 2031 00:00:00 GMT"));
    assert_eq!(managed.chat("new").header("sunset"), None);
    let mut streamed = asked("old");
    streamed["stream"] = json!(true);
    let streamed = managed.server.post("/v1/chat/completions", &streamed);
    assert!(streamed.header("sunset").is_some());
    let listed = managed.server.get("/v1/models/old").ok();
    assert_eq!(listed["deprecation_date"], "2031-05-09");
}

#[test]
fn feature_m7_a_model_whose_files_are_others_than_pinned_is_not_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    fs::write(&path, crate::library::tiny()).expect("written");
    let output = std::process::Command::new("sha256sum")
        .arg(&path)
        .output()
        .expect("sha256sum");
    let digest = String::from_utf8_lossy(&output.stdout[..64]).into_owned();
    let model = |name: &str, pin: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {path:?}\nenabled = false\nsha256 = \"{pin}\"\n"
        )
    };
    let managed = Managed::start(&(model("right", &digest) + &model("wrong", &"0".repeat(64))));
    managed.act("right", "load", "").ok();
    let wrong = managed.act("wrong", "load", "");
    assert_eq!(code(&wrong), (500, "model_load_failed".to_owned()));
    assert!(wrong.text().contains(&digest), "{}", wrong.text());
    managed.act("right", "unload", "").ok();
    let mut bytes = fs::read(&path).expect("the file");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&path, bytes).expect("written");
    assert_eq!(code(&managed.act("right", "load", "")).0, 500);
}
