//! Grants for a plugin that is tried on the command line: origins, secrets, the time.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::house_rules;
use crate::support::example::{built, every_kind};
use crate::tools::site;

/// `mortise plugin` with these arguments, which must succeed or fail; what it printed.
fn plugin(arguments: &[&str], succeeds: bool) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_mortise"))
        .arg("plugin")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("run mortise");
    let (told, printed) = (&output.stderr, &output.stdout);
    let told = String::from_utf8_lossy(told);
    let printed = String::from_utf8_lossy(printed).into_owned();
    assert_eq!(
        output.status.success(),
        succeeds,
        "{arguments:?}: {told}{printed}"
    );
    match succeeds {
        true => printed,
        false => format!("{told}{printed}"),
    }
}

/// Answer of a plugin to an input.
fn asked(file: &Path, input: &Value, more: &[&str]) -> Value {
    let question = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(question.path(), input.to_string()).expect("write the input");
    let files = [file, question.path()].map(|path| path.to_str().expect("UTF-8"));
    let arguments = [&["run", files[0], "--input", files[1]], more].concat();
    serde_json::from_str(&plugin(&arguments, true)).expect("JSON")
}

/// Subject of the guest's allowance for a command; the guest puts its answer there.
fn subject(command: &str, more: &[&str]) -> Value {
    let input = json!({"model": command});
    let more = [&["--kind", "policy"], more].concat();
    asked(every_kind(), &input, &more)["allow"]["subject"].clone()
}

#[test]
fn secrets_are_granted_by_name() {
    let granted = ["--secret", "door=sesame", "--secret", "safe=a=b"];
    assert_eq!(subject("secret:sesame", &granted), "door");
    assert_eq!(subject("secret:a=b", &granted), "safe");
    assert_eq!(subject("secret:door", &granted), "unknown");
    assert_eq!(subject("secret:sesame", &[]), "unknown");
}

#[test]
fn origins_are_granted_one_by_one() {
    let origin = site();
    let ask = |more: &[&str]| {
        let arguments = json!({"text": format!("GET {origin}/page")});
        let input = json!({"name": "asks", "arguments": arguments});
        let more = [&["--kind", "tool"], more].concat();
        asked(every_kind(), &input, &more)["result"].clone()
    };
    let refused = ask(&[]);
    assert!(
        !refused.as_str().expect("a text").contains("content"),
        "{refused}"
    );
    let refused = ask(&["--allow-origin", "https://id.example"]);
    assert!(
        !refused.as_str().expect("a text").contains("content"),
        "{refused}"
    );
    let answered = ask(&[
        "--allow-origin",
        "https://id.example",
        "--allow-origin",
        &origin,
    ]);
    assert_eq!(answered, "200 the content");
}

#[test]
fn the_clock_stands_still_where_it_is_told_to() {
    let noon = ["--now", "2024-02-29T12:00:00Z"];
    assert_eq!(subject("clock", &noon), "1709208000000");
    let real: u64 = subject("clock", &[])
        .as_str()
        .expect("a text")
        .parse()
        .expect("a number");
    assert!(
        real > 1_709_208_000_000,
        "without it, it is the system's: {real}"
    );
}

#[test]
fn golden_cases_have_a_time_of_their_own() {
    let at = |case: &Value, more: &[&str], succeeds: bool| {
        let cases = tempfile::tempdir().expect("a folder");
        let path = cases.path().join("case.json");
        std::fs::write(path, case.to_string()).expect("write the case");
        let files = [every_kind(), cases.path()].map(|path| path.to_str().expect("UTF-8"));
        let arguments = [&["test", files[0], "--cases", files[1]], more].concat();
        plugin(&arguments, succeeds)
    };
    let case = |now: Option<&str>, millis: &str| {
        let mut case = json!({
            "kind": "policy", "input": {"model": "clock"}, "expect": {"allow": {"subject": millis}},
        });
        if let Some(now) = now {
            case["now"] = json!(now);
        }
        case
    };
    let noon = ["--now", "2024-02-29T12:00:00Z"];
    at(&case(None, "1704067200000"), &[], true);
    at(&case(None, "1709208000000"), &noon, true);
    at(
        &case(Some("2024-02-29T13:00:00+01:00"), "1709208000000"),
        &[],
        true,
    );
    at(&case(Some("1970-01-01T00:00:01Z"), "1000"), &noon, true);
    at(&case(Some("1970-01-01T00:00:01Z"), "1001"), &[], false);
    let message = at(&case(Some("noon"), "0"), &[], false);
    assert!(
        message.contains("noon") && message.contains("RFC 3339"),
        "{message}"
    );
    let secret = json!({
        "kind": "policy", "input": {"model": "secret:sesame"}, "expect": {"allow": {"subject": "door"}},
    });
    at(&secret, &["--secret", "door=sesame"], true);
    at(&secret, &[], false);
}

#[test]
fn a_plugin_that_passes_its_cases_is_abused() {
    let cases = tempfile::tempdir().expect("a folder");
    let input = json!({"name": "does", "arguments": {"text": "nothing"}});
    let case = json!({"kind": "tool", "input": input, "expect": {"result": "nothing"}});
    std::fs::write(cases.path().join("case.json"), case.to_string()).expect("write the case");
    let files = [every_kind(), cases.path()].map(|path| path.to_str().expect("UTF-8"));
    let told = plugin(&["test", files[0], "--cases", files[1]], false);
    assert!(told.contains("ok      case\n"), "{told}");
    // Of its other tools one answers and one is broken.
    let kept = "ok      abuse: does, arguments of marks\n";
    let broken = "FAILED  abuse: fails, arguments of marks: plugin `guest` ";
    assert!(told.contains(kept) && told.contains(broken), "{told}");
}

#[test]
fn what_a_plugin_could_not_use_is_refused() {
    let calculator = built("calculator");
    let [template, tool] =
        [house_rules(), calculator.as_path()].map(|path| path.to_str().expect("UTF-8"));
    for (file, grant, expected) in [
        (
            template,
            ["--allow-origin", "https://a.example"],
            "only a policy, a tool, a guardrail or a retriever",
        ),
        (template, ["--secret", "a=b"], "only a policy"),
        (tool, ["--secret", "a=b"], "only a policy"),
        (tool, ["--now", "yesterday"], "RFC 3339"),
        (tool, ["--allow-origin", "a.example"], "no scheme"),
        (tool, ["--secret", "hunter2"], "NAME=VALUE"),
    ] {
        for command in ["run", "test"] {
            let message = plugin(&[&[command, file], &grant[..]].concat(), false);
            assert!(message.contains(expected), "{grant:?}: {message}");
        }
    }
}
