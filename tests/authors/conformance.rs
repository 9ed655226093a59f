//! The compatibility kit: this host passes it, by itself and by the protocol for others; a host that is wrong does not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Map, Value};

use crate::support::binary;
use crate::support::example::root;

fn kit() -> PathBuf {
    root().join("wit/conformance/v0.3")
}

fn conformance(kit: &Path, host: Option<&str>) -> Output {
    let mut command = Command::new(binary());
    command.args(["plugin", "conformance"]).arg(kit);
    if let Some(host) = host {
        command.args(["--host", host]);
    }
    command.output().expect("run mortise")
}

#[test]
fn feature_w5_this_host_passes_the_kit() {
    let output = conformance(&kit(), None);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("100 cases passed"), "{told}");
}

#[test]
fn feature_w5_a_host_is_asked_by_the_protocol() {
    // Each question is a process that compiles the component.
    let part = tempfile::tempdir().expect("make a folder");
    std::fs::copy(
        kit().join("every-kind.wasm"),
        part.path().join("every-kind.wasm"),
    )
    .expect("copy");
    let cases = std::fs::read_to_string(kit().join("cases.json")).expect("the cases");
    let mut cases: Map<String, Value> = serde_json::from_str(&cases).expect("JSON");
    cases.retain(|name, _| ["policy-denies", "tool-answers", "policy-panics"].contains(&&**name));
    let text = Value::Object(cases).to_string();
    std::fs::write(part.path().join("cases.json"), text).expect("write the cases");
    let command = format!("{} plugin conformance", binary().display());
    let output = conformance(part.path(), Some(&command));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    // Hosts that are wrong: one that says the same to everything, one that fails, one that is silent.
    for (host, problem) in [
        ("echo '{\"fault\": \"trap\"}'", "host.answer is missing"),
        ("exit 3", "failed (exit status: 3)"),
        ("cat >/dev/null", "does not answer in JSON"),
    ] {
        let output = conformance(part.path(), Some(host));
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            !output.status.success() && told.contains(problem),
            "{host}: {told}"
        );
        assert!(told.contains("FAILED  policy-denies: "), "{told}");
    }
}
