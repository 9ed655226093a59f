//! `mortise plugin compose`: one plugin around another, as one file; and parts that do their worst.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::shell::run;
use crate::support::client::Request;
use crate::support::example::{built, every_kind, inner_template, outer_template, root, source};
use crate::support::{Server, binary};

fn compose(outer: &Path, inner: Option<&Path>, output: &Path) -> Output {
    Command::new(binary())
        .args(["plugin", "compose"])
        .arg(outer)
        .args(inner)
        .arg("--output")
        .arg(output)
        .output()
        .expect("run mortise")
}

/// A composed plugin in a folder of its own.
fn composed(outer: &Path, inner: Option<&Path>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("whole.wasm");
    let output = compose(outer, inner, &file);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    (folder, file)
}

#[test]
fn outers_around_the_embedded_plugins_pass_their_cases() {
    for name in ["company-line", "no-thoughts", "cap-tokens"] {
        let (_folder, file) = composed(&built(name), None);
        let printed = run(&source(name), &format!("mortise plugin test {file:?}"));
        assert!(printed.contains("cases passed"), "{name}: {printed}");
    }
}

#[test]
fn an_outer_goes_around_a_plugin_from_a_file() {
    let (_folder, file) = composed(&built("company-line"), Some(&built("house-rules")));
    let settings = r#"{"line": "Be kind.", "inner": {"rules": "Be brief."}}"#;
    let script = format!(
        "echo '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hi\"}}]}}' \
         | mortise plugin run {file:?} --settings '{settings}'"
    );
    let printed = run(&root(), &script);
    let output: Value = serde_json::from_str(&printed).expect("JSON");
    let expected = "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n\
                    <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(output["prompt"], expected);
}

#[test]
fn what_does_not_fit_is_told() {
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("whole.wasm");
    let (_kept, whole) = composed(&built("company-line"), None);
    let outer = built("company-line");
    let text = folder.path().join("text.wasm");
    std::fs::write(&text, "no component").expect("write a file");
    for (outer, inner, told) in [
        (
            built("house-rules"),
            None,
            "the outer plugin cannot be composed: it imports no kind of plugin",
        ),
        (
            outer.clone(),
            Some(built("daily-quota")),
            "the inner plugin cannot be composed: the outer calls `mortise:plugin/chat-template@0.3.0`",
        ),
        (
            outer.clone(),
            Some(whole),
            "the inner plugin cannot be composed: it is composed of two already",
        ),
        (
            outer.clone(),
            Some(outer.clone()),
            "the inner plugin cannot be composed: it imports `mortise:plugin/chat-template@0.3.0`",
        ),
        (
            outer,
            Some(text),
            "the inner plugin cannot be composed: it is no component",
        ),
    ] {
        let output = compose(&outer, inner.as_deref(), &file);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(told),
            "{told}: {errors}"
        );
        assert!(!file.exists(), "{told}");
    }
}

/// The inner gets no more than its place grants: one of every kind, in the place of a template, would reach the clock.
#[test]
fn an_inner_has_the_grants_of_the_outers_kind_only() {
    let (_folder, file) = composed(outer_template(), Some(every_kind()));
    let errors = refused(&file, "verify", &json!({}));
    assert!(
        errors.contains("is not grantable to a chat-template plugin"),
        "{errors}"
    );
    let errors = refused(&built("company-line"), "verify", &json!({}));
    assert!(
        errors.contains("written around another chat-template plugin"),
        "{errors}"
    );
}

fn ask(file: &Path, command: &str, settings: &Value) -> Output {
    let mut child = Command::new(binary());
    let child = child.args(["plugin", command]).arg(file);
    let input = tempfile::NamedTempFile::new().expect("make a file");
    std::fs::write(&input, r#"{"messages": []}"#).expect("write a file");
    if command == "run" {
        child.arg("--input").arg(input.path());
    }
    let child = child.args(["--settings", &settings.to_string()]);
    child.stdin(Stdio::null()).output().expect("run mortise")
}

fn refused(file: &Path, command: &str, settings: &Value) -> String {
    let output = ask(file, command, settings);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{settings}: {errors}");
    errors
}

#[test]
fn each_part_reads_its_own_settings() {
    let (_folder, file) = composed(outer_template(), Some(inner_template()));
    let settings = json!({"a": 1, "inner": {"b": 2}});
    let output = ask(&file, "run", &settings);
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed["prompt"], r#"{"a":1}{"b":2}"#);
}

#[test]
fn parts_that_break_down_break_the_whole_and_nothing_else() {
    let (_folder, file) = composed(outer_template(), Some(inner_template()));
    for (settings, told) in [
        (json!({"outer": "loop"}), "deadline"),
        (json!({"outer": "many"}), "deadline"),
        (json!({"inner": {"render": "loop"}}), "deadline"),
        (json!({"outer": "panic"}), "the guest gives up"),
        (json!({"inner": {"render": "panic"}}), "the guest gives up"),
        (
            json!({"outer": "unprepared"}),
            "a call arrived before `prepare`",
        ),
        (
            json!({"inner": {"prepare": "fault"}}),
            "the inner does not like this",
        ),
        (json!({"inner": {"prepare": "panic"}}), "the guest gives up"),
        (json!({"inner": 5}), "`inner` must be an object"),
    ] {
        let errors = refused(&file, "run", &settings);
        assert!(errors.contains(told), "{settings}: {errors}");
    }
}

/// Each part may have what an instance may have, and both together no more than that.
#[test]
fn both_parts_have_one_budget() {
    let (_folder, file) = composed(outer_template(), Some(inner_template()));
    for settings in [
        json!({"outer": "hold"}),
        json!({"inner": {"render": "hold"}}),
    ] {
        let output = ask(&file, "run", &settings);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{settings}: {errors}");
    }
    let both = json!({"outer": "hold", "inner": {"render": "hold"}});
    let errors = refused(&file, "run", &both);
    assert!(errors.contains("memory"), "{errors}");
}

#[test]
fn a_composed_plugin_serves_and_its_settings_are_checked() {
    let (_folder, file) = composed(&built("company-line"), None);
    let config = |settings: &str| {
        format!(
            "[[plugins.bindings]]\nkind = \"chat-template\"\nfile = {file:?}\nsettings = {settings}\n"
        )
    };
    let server = Server::configured(&config("{ line = \"Be kind.\", inner = {} }"));
    let body = json!({"model": "mortise-demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    Request::post("/v1/chat/completions", &body)
        .send(server.address())
        .ok();
    let metrics = Request::get("/metrics").send(server.address()).text();
    let calls = metrics.lines().find(|line| {
        line.starts_with("mortise_plugin_calls_total{")
            && line.contains("\"whole\"")
            && line.contains("render")
    });
    assert!(calls.is_some_and(|line| line.ends_with(" 1")), "{calls:?}");
    let folder = tempfile::tempdir().expect("make a folder");
    let wrong = folder.path().join("mortise.toml");
    std::fs::write(&wrong, config("{ inner = { nothing = 1 } }")).expect("write a file");
    let output = Command::new(binary())
        .args(["plugin", "list", "--config"])
        .arg(&wrong)
        .output()
        .expect("run mortise");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("settings.inner.nothing"), "{errors}");
}
