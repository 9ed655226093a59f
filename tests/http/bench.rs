//! `mortise bench`: that it measures what it says, not how fast this machine is.

use std::process::Command;

use serde_json::Value;

use crate::support::{Server, binary};

fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(binary())
        .args(["bench", "--json", "--repeat", "1"])
        .args(arguments)
        .output()
        .expect("start mortise");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn result<'a>(report: &'a Value, work: &str) -> &'a Value {
    let results = report["results"].as_array().expect("results");
    let found = results
        .iter()
        .find(|row| row["work"].as_str().is_some_and(|name| name.contains(work)));
    found.unwrap_or_else(|| panic!("no {work} in {report}"))
}

#[test]
fn the_engine_is_measured() {
    // Enough tokens that a reader who was held up a moment sees the last of them come.
    let report = bench(&["--prompt", "32", "--generate", "64", "--streams", "1,3"]);
    for (work, figure) in [
        ("prefill, 32 tokens", "tokens_per_second"),
        ("decode, 1 at once", "tokens_per_second"),
        ("decode, 3 at once", "times_one_stream"),
        ("prefix of 2000", "first_token_again"),
        ("among 8 streams", "longest_gap"),
    ] {
        let value = result(&report, work)[figure].as_f64();
        assert!(value.is_some_and(|value| value > 0.0), "{work}: {report}");
    }
}

#[test]
fn a_server_is_measured_and_its_refusal_told() {
    let server = Server::start(&[]);
    let url = server.url("");
    let report = bench(&[
        "--serve",
        &url,
        "--prompt",
        "20",
        "--generate",
        "6",
        "--streams",
        "2",
    ]);
    let row = result(&report, "2 clients");
    assert_eq!(row["failed"], 0.0);
    assert!(
        row["prompt_tokens"]
            .as_f64()
            .is_some_and(|tokens| tokens > 20.0),
        "{row}"
    );
    assert!(
        row["completion_tokens"]
            .as_f64()
            .is_some_and(|tokens| tokens > 1.0),
        "{row}"
    );

    let guarded = Server::start(&["--api-key", "s3cret"]);
    let output = Command::new(binary())
        .args(["bench", "--serve", &guarded.url("/v1")])
        .output()
        .expect("start mortise");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("401"),
        "{errors}"
    );
}
