//! The official OpenAI clients, Python and Node, against the built server with the demo model;
//! and the Python client's own test files. Both clients are installed below `target/`.
//!
//! Without `python3` or `node` the respective test says so and passes, unless
//! `MORTISE_REQUIRE_SDKS=1` is set, as `.ci/run` does.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../support/mod.rs"]
mod support;

use support::Server;

const OPENAI_PYTHON: &str = "3.52.0";
/// Tests of the client's own files that pass, loose and strict together: a floor that only rises.
const OPENAI_PYTHON_PASSES: u32 = 0;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("create a folder below target/");
    folder
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk")
}

/// Whether the program is there; without it the test has nothing to run.
fn have(program: &str) -> bool {
    if Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("MORTISE_REQUIRE_SDKS").is_none(),
        "`{program}` is not installed and MORTISE_REQUIRE_SDKS is set"
    );
    eprintln!("not run: `{program}` is not installed");
    false
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("start the command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{text}");
    text
}

/// A virtual environment with the pinned requirements, made anew when they change.
fn python() -> PathBuf {
    let venv = folder("sdk-python");
    let requirements = sources().join("python/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).expect("read requirements.txt");
    let stamp = venv.join("requirements.installed");
    if std::fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        run(Command::new(venv.join("bin/pip")).args(["install", "-q", "-r"]).arg(&requirements));
        std::fs::write(&stamp, &wanted).expect("write the stamp");
    }
    venv
}

#[test]
fn the_python_client_works() {
    if !have("python3") {
        return;
    }
    let venv = python();
    let server = Server::start(&[]);
    let report = run(Command::new(venv.join("bin/python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(sources().join("python"))
        .env("MORTISE_BASE_URL", server.url("/v1"))
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    println!("{report}");
}

#[test]
fn the_node_client_works() {
    if !have("node") {
        return;
    }
    let work = folder("sdk-node");
    for file in ["package.json", "package-lock.json", "chat.test.mjs"] {
        std::fs::copy(sources().join("node").join(file), work.join(file)).expect("copy");
    }
    run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&work));
    let server = Server::start(&[]);
    let report = run(Command::new("node")
        .arg("--test")
        .current_dir(&work)
        .env("MORTISE_BASE_URL", server.url("/v1")));
    println!("{report}");
}
