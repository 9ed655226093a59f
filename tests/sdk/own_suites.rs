//! The own tests of OpenAI's and Anthropic's Python clients, which their source packages hold: whether the clients'
//! types, strict and loose, accept what the server answers. `own/examples_exist.py` makes what OpenAI's tests name.
//! Tests that cannot pass are listed with the reason that they are told.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Server, example, have, kept};
use crate::{minilm, python, run, sources};

/// A client with its tests: its package and version.
struct Client {
    package: &'static str,
    version: &'static str,
    /// Plugins of pytest.
    plugins: &'static [&'static str],
}

const OPENAI: Client = Client {
    package: "openai",
    version: "3.52.0",
    plugins: &["-p", "examples_exist"],
};
const ANTHROPIC: Client = Client {
    package: "anthropic",
    version: "2.12.0",
    plugins: &[],
};

/// A test that does not pass: part of its name, and part of the reason.
type Exception = (&'static str, &'static str);

/// Files of a client's tests, and how many of their tests pass.
struct Suite {
    files: &'static [&'static str],
    passes: u32,
    exceptions: &'static [Exception],
}

/// Each field of the API with a value that has its type, some of which mean nothing.
const ALL_CHAT: Exception = (
    "chat/test_completions.py",
    "`max_completion_tokens` is not supported: it must be at least 1",
);
const ALL_COMPLETIONS: Exception = (
    "api_resources/test_completions.py",
    "`logit_bias.foo` is not supported: the key must be a token id",
);

const GENERATING: Suite = Suite {
    files: &["chat", "test_completions.py", "test_models.py"],
    passes: 176,
    exceptions: &[ALL_CHAT, ALL_COMPLETIONS],
};

/// Suite with a server that ignores fields that cannot be honoured. `echo` with `logprobs` gives null to the first
/// token of the prompt, which no token goes before, as OpenAI's API does; the client's types do not know that.
const IGNORING: Suite = Suite {
    files: &["chat", "test_completions.py"],
    passes: 144,
    exceptions: &[("api_resources/test_completions.py", "")],
};

/// Responses and conversations.
const STATEFUL: Suite = Suite {
    files: &[
        "test_responses.py",
        "responses",
        "test_conversations.py",
        "conversations",
    ],
    passes: 280,
    exceptions: &[
        (
            "test_method_create_with_all_params",
            "`prompt` is not supported: this server stores no prompt templates",
        ),
        (
            "test_method_count_with_all_params",
            "`tools[0].allowed_callers` is not supported",
        ),
        // The client's type of what is compacted has no messages of users, which the API's description asks for.
        ("test_method_compact_with_all_params", ""),
    ],
};

const FILES: Suite = Suite {
    files: &["test_files.py", "test_batches.py"],
    passes: 148,
    exceptions: &[],
};

/// Vectors come in base64, which the client asks for, and decodes after its strict check.
const EMBEDDINGS: Suite = Suite {
    files: &["test_embeddings.py"],
    passes: 10,
    exceptions: &[("[strict]", "")],
};

/// Both ends of a page at once, of models that do not exist.
const PAGES: Exception = (
    "test_method_list_with_all_params",
    "`after_id` and `before_id` exclude each other",
);
const MESSAGES: &[&str] = &["test_messages.py", "test_models.py"];
const MESSAGES_STRICT: Suite = Suite {
    files: MESSAGES,
    passes: 72,
    exceptions: &[
        (
            "_with_all_params",
            "`tools[0].defer_loading` is not supported",
        ),
        PAGES,
    ],
};
const MESSAGES_IGNORING: Suite = Suite {
    files: MESSAGES,
    passes: 76,
    exceptions: &[
        // One of its schemas has a text in the place of a schema, which no grammar can be made of.
        (
            "_create_with_all_params",
            "the parameters of the tool `name`",
        ),
        PAGES,
    ],
};

/// The sources of a client, which hold its tests; the wheel does not.
fn sources_of(client: &Client, venv: &Path) -> PathBuf {
    let work = kept(&format!("{}-python", client.package));
    let name = format!("{}-{}", client.package, client.version);
    let sources = work.join(&name);
    if !sources.join("tests").is_dir() {
        run(Command::new(venv.join("bin/pip"))
            .args(["download", "-q", "--no-deps", "--no-binary", client.package])
            .arg(format!("{}=={}", client.package, client.version))
            .arg("-d")
            .arg(&work));
        run(Command::new(venv.join("bin/python"))
            .args(["-m", "tarfile", "-e"])
            .arg(work.join(format!("{name}.tar.gz")))
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

/// Tests of a report that failed for another reason than those that are known.
fn unknown<'a>(report: &'a str, exceptions: &[Exception]) -> Vec<&'a str> {
    let known = |line: &&str| {
        let of_line = |(name, why): &Exception| line.contains(name) && line.contains(why);
        exceptions.iter().any(of_line)
    };
    let ends = |line: &&str| line.starts_with("FAILED ") || line.starts_with("ERROR ");
    let ends = report.lines().filter(ends);
    ends.filter(|line| !known(line)).collect()
}

/// Run a suite at an address of a server, with these variables.
fn check(client: &Client, suite: &Suite, base: &str, variables: &[(&str, String)]) {
    let venv = python();
    let files = suite.files.iter();
    let output = Command::new(venv.join("bin/python"))
        .args(["-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"])
        .args(client.plugins)
        // The contents of files come from a mock there.
        .args(["-o", "addopts=", "-o", "asyncio_mode=auto", "--tb=no"])
        .args([
            "-k",
            "not aiohttp and not response_content and not method_content",
        ])
        .args(files.map(|file| format!("tests/api_resources/{file}")))
        .current_dir(sources_of(client, &venv))
        .env("PYTHONPATH", sources().join("own"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Reasons are cut to the width.
        .env("COLUMNS", "400")
        .env("TEST_API_BASE_URL", base)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("run pytest");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = passed(&report);
    println!(
        "{count} of {}'s own tests pass in {:?}",
        client.package, suite.files
    );
    let unknown = unknown(&report, suite.exceptions);
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(
        count >= suite.passes,
        "{count} of the client's own tests pass, {} did before:\n{report}",
        suite.passes
    );
}

/// A server whose models may be uploaded and deleted, and what tests need for that.
pub(crate) fn with_library(folder: &Path) -> (Server, [(&'static str, String); 3]) {
    let key = "an admin key of the tests";
    let model = example::root().join("examples/demo-model/model");
    let server = Server::configured(&format!(
        "[library]\nfolder = {folder:?}\napi = \"callers\"\n[admin]\nport = 0\nkey = {key:?}\n\
         [[models]]\nname = \"mortise-demo\"\npath = {model:?}\n"
    ));
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("admin side on ").expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let variables = [
        ("MORTISE_ADMIN_URL", address[..end].to_owned()),
        ("MORTISE_ADMIN_KEY", key.to_owned()),
        ("MORTISE_UPLOAD", model.to_str().expect("UTF-8").to_owned()),
    ];
    (server, variables)
}

#[test]
fn openais_own_tests_pass() {
    if !have(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let (strict, variables) = with_library(folder.path());
    let ignoring = Server::configured("[openai]\nunsupported = \"ignore\"\n");
    for (server, suite) in [
        (&strict, GENERATING),
        (&ignoring, IGNORING),
        (&strict, STATEFUL),
        (&strict, FILES),
        (&minilm(&python()), EMBEDDINGS),
    ] {
        check(&OPENAI, &suite, &server.url("/v1"), &variables);
    }
}

#[test]
fn anthropics_own_tests_pass() {
    if have(&["python3"]) {
        let ignoring = Server::configured("[openai]\nunsupported = \"ignore\"\n");
        check(
            &ANTHROPIC,
            &MESSAGES_STRICT,
            &Server::start(&[]).url(""),
            &[],
        );
        check(&ANTHROPIC, &MESSAGES_IGNORING, &ignoring.url(""), &[]);
    }
}

#[test]
fn a_pytest_report_is_read_right() {
    let report = "FAILED a.py::one - ValueError: x\nFAILED a.py::two - KeyError\nERROR b.py\n\
                  12 failed, 160 passed, 43 deselected in 9s\n";
    assert_eq!(passed(report), 160);
    assert_eq!(passed("160 passed in 9s\n"), 160);
    assert_eq!(passed("12 failed in 9s\n"), 0);
    let known = [("::one", "ValueError"), ("::two", "ValueError")];
    assert_eq!(
        unknown(report, &known),
        ["FAILED a.py::two - KeyError", "ERROR b.py"]
    );
}
