//! The own tests of OpenAI's Node client, which are in its repository and not in what npm gives: they run where
//! `MORTISE_OPENAI_NODE` names a checkout. `own/node/examples-exist.js` makes what they name.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::own_suites::with_library;
use crate::support::{Server, have, kept, skipped_because};
use crate::{minilm, python, run, sources};

/// Version whose tests the counts below are of.
const VERSION: &str = "7.5.0";

/// A test that does not pass: its name behind that of its resource, and part of the reason.
type Exception = (&'static str, &'static str);

/// Files of the client's tests, and how many of their tests pass.
struct Suite {
    files: &'static [&'static str],
    passes: u64,
    exceptions: &'static [Exception],
}

/// Each field of the API with a value that has its type, some of which mean nothing.
const ALL_CHAT: Exception = (
    "resource completions create: required and optional params",
    "`max_completion_tokens` is not supported: it must be at least 1",
);
const ALL_COMPLETIONS: Exception = (
    "resource completions create: required and optional params",
    "`logit_bias.foo` is not supported: the key must be a token id",
);

/// Suite of the routes that this server has.
const STRICT: Suite = Suite {
    files: &[
        "chat/",
        "/completions.test",
        "/models.test",
        "/responses/",
        "conversations/",
        "/files.test",
        "/batches.test",
    ],
    passes: 50,
    exceptions: &[ALL_CHAT, ALL_COMPLETIONS],
};

/// Suite with a server that ignores fields that cannot be honoured.
const IGNORING: Suite = Suite {
    files: &["chat/", "/completions.test"],
    passes: 12,
    exceptions: &[],
};

const EMBEDDINGS: Suite = Suite {
    files: &["/embeddings.test"],
    passes: 2,
    exceptions: &[],
};

/// Install what runs the tests, and give the folder.
fn jest() -> std::path::PathBuf {
    let work = kept("openai-node");
    for file in [
        "package.json",
        "package-lock.json",
        "jest.config.js",
        "examples-exist.js",
    ] {
        std::fs::copy(sources().join("own/node").join(file), work.join(file)).expect("copy");
    }
    if !work.join("node_modules").is_dir() {
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund"])
            .env("npm_config_cache", work.join("npm-cache"))
            .current_dir(&work));
    }
    work
}

fn check(checkout: &Path, suite: &Suite, base: &str, variables: &[(&str, String)]) {
    let work = jest();
    let report = work.join("report.json");
    let patterns = suite.files.iter();
    let output = Command::new(work.join("node_modules/.bin/jest"))
        .args(["--config", "jest.config.js", "--runInBand", "--json"])
        .arg("--outputFile")
        .arg(&report)
        .arg("--testPathPatterns")
        .args(patterns.map(|pattern| format!("tests/api-resources/.*{pattern}").replace(".*/", "")))
        .args(["--testPathIgnorePatterns", "beta", "live", "admin"])
        .current_dir(&work)
        .env("OPENAI_NODE", checkout)
        .env("TEST_API_BASE_URL", base)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("run jest");
    let report = std::fs::read_to_string(&report);
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let passed = report["numPassedTests"].as_u64().expect("a number");
    println!(
        "{passed} of the Node client's own tests pass in {:?}",
        suite.files
    );
    let unknown = unknown(&report, suite.exceptions);
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(
        passed >= suite.passes,
        "{passed} of the client's own tests pass, {} did before",
        suite.passes
    );
}

/// Tests of a report that failed for another reason than those that are known, and files that could not be run.
fn unknown(report: &Value, exceptions: &[Exception]) -> Vec<String> {
    let of = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut unknown = Vec::new();
    for file in of(&report["testResults"]) {
        let tests = of(&file["assertionResults"]);
        if tests.is_empty() {
            unknown.push(file["message"].to_string());
        }
        for test in tests.iter().filter(|test| test["status"] == "failed") {
            let name = test["fullName"].as_str().unwrap_or_default();
            let why = of(&test["failureMessages"]);
            let why: String = why.iter().filter_map(Value::as_str).collect();
            let known = |(known, reason): &Exception| name == *known && why.contains(reason);
            if !exceptions.iter().any(known) {
                unknown.push(format!(
                    "{name}: {}",
                    why.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    unknown
}

#[test]
fn openais_own_node_tests_pass() {
    let Some(checkout) = std::env::var_os("MORTISE_OPENAI_NODE") else {
        return skipped_because("MORTISE_OPENAI_NODE names no checkout of openai-node");
    };
    if !have(&["node", "npm", "python3"]) {
        return;
    }
    let checkout = Path::new(&checkout);
    let package = std::fs::read_to_string(checkout.join("package.json")).expect("a checkout");
    let package: Value = serde_json::from_str(&package).expect("JSON");
    assert_eq!(
        package["version"], VERSION,
        "the counts are of another version"
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let (strict, variables) = with_library(folder.path());
    let ignoring = Server::configured("[openai]\nunsupported = \"ignore\"\n");
    for (server, suite) in [
        (&strict, STRICT),
        (&ignoring, IGNORING),
        (&minilm(&python()), EMBEDDINGS),
    ] {
        check(checkout, &suite, &server.url("/v1"), &variables);
    }
}

#[test]
fn a_jest_report_is_read_right() {
    let report = serde_json::json!({"testResults": [
        {"message": "", "assertionResults": [
            {"status": "passed", "fullName": "a one", "failureMessages": []},
            {"status": "failed", "fullName": "a two", "failureMessages": ["Error: 400 x\n at"]},
            {"status": "failed", "fullName": "a three", "failureMessages": ["Error: 500"]},
        ]},
        {"message": "cannot be read", "assertionResults": []},
    ]});
    let told = unknown(&report, &[("a two", "400 x"), ("a three", "400")]);
    assert_eq!(told, ["a three: Error: 500", "\"cannot be read\""]);
}
