//! The contract, fuzzed by schemathesis: whatever is sent, the answers are those that the document declares.

use std::process::Command;

use crate::support::{Server, have};
use crate::{environment, run};

/// Requests to each operation, where `MORTISE_EXAMPLES` says nothing else.
const EXAMPLES: &str = "2";

const SCRIPT: &str = "default = \"Hello there.\"\n";

#[test]
fn feature_e27_a_fuzzer_finds_no_answer_that_the_contract_does_not_declare() {
    if !have(&["python3"]) {
        return;
    }
    let venv = environment("sdk-schemathesis", "schemathesis/requirements.txt");
    let server = Server::scripted(SCRIPT, "");
    let mut document = server.get("/openapi.json").ok();
    for path in document["paths"]
        .as_object_mut()
        .expect("paths")
        .values_mut()
    {
        for operation in path.as_object_mut().expect("methods").values_mut() {
            // Without policies, the statuses are those that are named.
            let responses = operation["responses"].as_object_mut().expect("responses");
            responses.retain(|status, _| status != "4XX");
        }
    }
    let work = tempfile::tempdir().expect("make a folder");
    let file = work.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).expect("write the document");
    let examples = std::env::var("MORTISE_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned());
    let report = run(Command::new(venv.join("bin/schemathesis"))
        .args(["run", "--phases", "fuzzing", "--max-examples", &examples])
        .args([
            "--seed",
            "1",
            "--no-shrink",
            "--generation-database",
            "none",
        ])
        .args([
            // Two share caches of hypothesis that are not made for threads.
            "--workers",
            "1",
            "--warnings",
            "off",
            "--suppress-health-check",
            "all",
        ])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,\
             response_schema_conformance",
        ])
        .args(["--url", &server.url("")])
        .arg(&file)
        .current_dir(work.path()));
    println!("{report}");
}
