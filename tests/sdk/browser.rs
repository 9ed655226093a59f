//! The playground in a real browser, Debian's Chromium, on the demo model with a tool, on scripted models, and behind a key; and
//! the page of the admin side. The driver and the judge of accessibility come from npm.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Server, example, have, kept, model};
use crate::{run, sources};

const PROGRAM: &str = "chromium";

const ADMIN_KEY: &str = "an admin key of the tests";

const MARKDOWN: &str = "<think>\\nLet me think of 1 < 2.\\n</think>\\n\\n## A title\\n\\nSome **bold** text, a \
    [link](https://example.com/).\\n\\n- one\\n- two & three\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n```rust\\nif \
    a < b { **no** }\\n```\\n";

/// Models that say what the tests expect. The name of one is markup.
fn scripted() -> Server {
    let files = model::byte_level();
    let of = |name: &str, script: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {files:?}\nbackend = \"scripted\"\n[models.script]\n{script}\n"
        )
    };
    let lines = format!("lines = [{{ when = \"markdown\", say = \"{MARKDOWN}\" }}]");
    let markup = "<think>\\n<script>globalThis.ran=1</script>\\n</think>\\n\\n<img src=x onerror=globalThis.ran=1>";
    Server::configured(
        &[
            of("scripted", &lines),
            of("other", "default = \"I am the other model.\""),
            of(
                "slow",
                "default = \"And so on. \"\nrepeat = 1000\ntoken_delay_ms = 5",
            ),
            of(
                "hostile <img src=x onerror=globalThis.ran=1>",
                &format!("default = \"{markup}\""),
            ),
        ]
        .concat(),
    )
}

/// A server with an admin side that keeps an audit log in `folder` and takes plugins, and the address of that side.
fn managed(folder: &Path) -> (Server, String) {
    let files = model::byte_level();
    let (log, plugins) = (folder.join("audit.jsonl"), folder.join("plugins"));
    std::fs::create_dir(&plugins).expect("make a folder");
    let of = |name: &str, more: &str, script: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {files:?}\nbackend = \"scripted\"\n{more}[models.script]\n{script}\n"
        )
    };
    let server = Server::configured(&format!(
        "[admin]\nport = 0\nkey = {ADMIN_KEY:?}\n[audit]\nfile = {log:?}\n\
         [plugins]\ndir = {plugins:?}\nwatch_ms = 0\nupload = true\n{}{}",
        of(
            "slow",
            "",
            "default = \"And so on. \"\nrepeat = 100000\ntoken_delay_ms = 10",
        ),
        of(
            "other",
            "enabled = false\nreplica_max = 3\n",
            "default = \"I am the other model.\"",
        ),
    ));
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("admin side on ").expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let admin = format!("{}/", &address[..end]);
    (server, admin)
}

/// Where a program is, which the driver does not look for.
fn found(program: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths
        .find(|path| path.is_file())
        .expect("a program on the path")
}

/// The tests with what they need, installed below `target/`.
fn installed() -> PathBuf {
    let work = kept("sdk-browser");
    for file in [
        "package.json",
        "package-lock.json",
        "page.mjs",
        "payloads.mjs",
        "admin.test.mjs",
        "playground.test.mjs",
        "hostile.test.mjs",
    ] {
        std::fs::copy(sources().join("browser").join(file), work.join(file)).expect("copy");
    }
    run(Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund"])
        .env("npm_config_cache", work.join("npm-cache"))
        .current_dir(&work));
    work
}

#[test]
fn feature_z12_z13_people_use_the_pages_in_a_browser() {
    if !have(&["node", "npm", PROGRAM]) {
        return;
    }
    let work = installed();
    let plugins = tempfile::tempdir().expect("make a folder");
    let calculator = example::built("calculator");
    std::fs::copy(&calculator, plugins.path().join("calculator.wasm")).expect("copy the plugin");
    let demo = Server::start(&["--plugins", plugins.path().to_str().expect("UTF-8")]);
    let scripted = scripted();
    let locked = Server::start(&["--api-key", "the-key"]);
    let records = tempfile::tempdir().expect("make a folder");
    let (managed, admin) = managed(records.path());
    let report = run(Command::new("node")
        .args(["--test", "--test-concurrency=2"])
        .current_dir(&work)
        .env("MORTISE_CHROMIUM", found(PROGRAM))
        .env("MORTISE_DEMO_URL", demo.url("/"))
        .env("MORTISE_SCRIPTED_URL", scripted.url("/"))
        .env("MORTISE_LOCKED_URL", locked.url("/"))
        .env("MORTISE_ADMIN_URL", admin)
        .env("MORTISE_ADMIN_API_URL", managed.url("/"))
        .env("MORTISE_ADMIN_KEY", ADMIN_KEY)
        .env("MORTISE_PLUGIN", calculator));
    println!("{report}");
}
