//! Runs commands as an author types them, with what takes long to install laid ready.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::support::example::{add_target, root, target};
use crate::support::{binary, kept};

/// The language of `mortise plugin new … --lang LANG`, and the name of its project.
fn project(line: &str) -> Option<(&str, &str)> {
    let (name, options) = line.strip_prefix("mortise plugin new ")?.split_once(' ')?;
    let lang = options
        .split_once("--lang ")
        .map_or("rust", |(_, lang)| lang.trim());
    Some((name, lang))
}

/// Lay ready what a new project would fetch or build: the same for all projects of a language.
fn prepare(name: &str, lang: &str) -> String {
    match lang {
        "rust" => {
            add_target();
            // Cargo makes a folder that is missing, but not behind a link.
            let target = target();
            format!("mkdir -p {target:?} && ln -s {target:?} {name}/target\n")
        }
        "c" | "python" => {
            let venv = python();
            // Newer than what `make` compares it with.
            format!(
                "mkdir -p {name}/build && ln -s {venv:?} {name}/build/venv\n\
                 touch {name}/build/venv/bin/ziglang {name}/build/venv/bin/componentize-py\n"
            )
        }
        // `npm install` is quick.
        "js" => String::new(),
        other => panic!("no language `{other}`"),
    }
}

/// Run a script in `folder`; what it printed.
pub(crate) fn run(folder: &Path, script: &str) -> String {
    let mut text = String::from("set -eu\n");
    for line in script.lines() {
        text.push_str(line);
        text.push('\n');
        if let Some((name, lang)) = project(line) {
            text.push_str(&prepare(name, lang));
        }
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let own = binary().parent().expect("a folder").display().to_string();
    let begun = Instant::now();
    // A page that waits for what does not come must not hold the tests up for ever.
    let output = Command::new("timeout")
        .args(["1800", "bash", "-c", &text])
        .current_dir(folder)
        .env("PATH", format!("{own}:{path}"))
        // What compilers keep for the next time.
        .env("XDG_CACHE_HOME", kept("authors-cache"))
        .env("npm_config_cache", kept("authors-npm"))
        .env("npm_config_prefer_offline", "true")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("run bash");
    // What `docs/plugins/times.md` has, with `--nocapture`.
    let first = script.lines().next().unwrap_or_default();
    println!("{:.1} s: {first} …", begun.elapsed().as_secs_f64());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

fn install(folder: &Path, stamp: &str, script: &str) {
    let file = folder.join("installed.stamp");
    if std::fs::read_to_string(&file).ok().as_deref() != Some(stamp) {
        let output = Command::new("bash")
            .args(["-euc", script])
            .current_dir(folder)
            .output()
            .expect("run bash");
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::write(&file, stamp).expect("write the stamp");
    }
}

fn template(path: &str) -> String {
    let file = root().join("host/author/templates").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

static INSTALLING: Mutex<()> = Mutex::new(());

/// A virtual environment with what the projects in C and Python name.
fn python() -> PathBuf {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = kept("authors-python");
    let makefile = template("c/Makefile.in");
    let zig = makefile
        .lines()
        .find_map(|line| line.strip_prefix("ZIG := "));
    let wanted = format!(
        "{} {}",
        template("python/requirements.txt").trim(),
        zig.expect("the Makefile pins zig")
    );
    let script = format!(
        "python3 -m venv --clear venv && venv/bin/pip install -q --disable-pip-version-check {wanted}"
    );
    install(&folder, &wanted, &script);
    folder.join("venv")
}

/// Compiler that checks types of JavaScript.
pub(crate) fn typescript() -> PathBuf {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = kept("authors-typescript");
    let wanted = "typescript@5.9.3";
    // What npm keeps for the next time is as large as what it installs.
    let script = format!(
        "npm install --silent --no-audit --no-fund --no-save --prefix . --cache npm-cache {wanted} && rm -r npm-cache"
    );
    install(&folder, wanted, &script);
    folder.join("node_modules/typescript/bin/tsc")
}
