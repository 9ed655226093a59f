//! Packages: the Debian package and the wheel, made of the program that cargo built, installed into folders, and asked
//! for an answer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::run;
use crate::support::{Server, binary, example, have, skipped_because};

/// Largest exposure of the service by `systemd-analyze security`, from 0 to 10.
const EXPOSURE_MAX: f64 = 2.0;

pub(crate) fn packaging() -> PathBuf {
    example::root().join("packaging")
}

/// The file in a folder whose name ends like this.
pub(crate) fn ending(folder: &Path, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.unwrap_or_else(|| panic!("{} has no *{end}", folder.display()))
}

pub(crate) fn answers(program: &Path, arguments: &[&str]) {
    let server = Server::of(program, arguments);
    let asked = json!({"messages": [{"role": "user", "content": "What is mortise?"}]});
    let answer = server.post("/v1/chat/completions", &asked).ok();
    let text = answer["choices"][0]["message"]["content"].as_str();
    assert!(
        text.is_some_and(|text| text.contains("mortise")),
        "{answer}"
    );
}

fn debian_package_serves(made: &Path, work: &Path) {
    let root = work.join("root");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(ending(made, ".deb"))
        .arg(&root));
    for file in [
        "usr/lib/systemd/system/mortise.service",
        "usr/share/man/man1/mortise-serve.1.gz",
        "usr/share/bash-completion/completions/mortise",
        "usr/share/doc/mortise/copyright",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let program = root.join("usr/bin/mortise");
    let config = root.join("etc/mortise/mortise.toml");
    run(Command::new(&program)
        .args(["config", "check"])
        .arg(&config));
    // As shipped, but for the folders that the service has.
    let text = std::fs::read_to_string(&config).expect("the configuration");
    let var = work.join("var");
    std::fs::create_dir_all(var.join("lib/mortise")).expect("make a folder");
    std::fs::create_dir_all(var.join("cache/mortise")).expect("make a folder");
    let text = text.replace("/var/", &format!("{}/", var.display()));
    std::fs::write(&config, text).expect("write the configuration");
    answers(&program, &["--config", config.to_str().expect("UTF-8")]);
    assert!(var.join("lib/mortise/state.db").is_file());
}

fn wheel_serves(made: &Path, work: &Path) {
    let begun = Instant::now();
    let venv = work.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    run(Command::new(venv.join("bin/pip"))
        .args(["install", "-q", "--no-index", "--no-deps"])
        .arg(ending(made, ".whl")));
    answers(&venv.join("bin/mortise"), &[]);
    // For the page on installing; nothing asserts on it.
    let taken = begun.elapsed().as_secs_f64();
    println!("from the wheel to the first answer: {taken:.1} s, a virtual environment included");
}

fn list_is_right(made: &Path) {
    let list = std::fs::read_to_string(ending(made, ".cdx.json")).expect("the list");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let components = list["components"].as_array().expect("components");
    let lock = std::fs::read_to_string(example::root().join("Cargo.lock")).expect("Cargo.lock");
    let lock: toml::Table = lock.parse().expect("TOML");
    let locked = lock["package"].as_array().expect("packages");
    for component in components {
        let same =
            |package: &toml::Value, key: &str| package[key].as_str() == component[key].as_str();
        let found = locked
            .iter()
            .any(|package| same(package, "name") && same(package, "version"));
        assert!(found, "{component}");
    }
    let named = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(
        named("wasmtime") && named("hyper") && components.len() > 150,
        "{}",
        components.len()
    );
    // Neither tests nor build scripts become part of the program.
    assert!(!named("proptest") && !named("cc"));
}

#[test]
fn what_is_handed_out_serves() {
    if !have(&["dpkg-deb", "strip", "objdump", "zstd", "python3"]) {
        return;
    }
    let work = tempfile::tempdir().expect("make a folder");
    let made = work.path().join("dist");
    let report = run(Command::new(packaging().join("package"))
        .arg("--binary")
        .arg(binary())
        .arg("--out")
        .arg(&made)
        .arg("--quick"));
    println!("{report}");
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&made));
    list_is_right(&made);
    debian_package_serves(&made, work.path());
    crate::debian::package_is_installed_and_purged(&ending(&made, ".deb"));
    wheel_serves(&made, work.path());
    // What the container file copies is there.
    let file = std::fs::read_to_string(packaging().join("Containerfile")).expect("the file");
    let copied = file.lines().filter(|line| line.starts_with("COPY "));
    let sources: Vec<&str> = copied
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(sources, ["mortise", "state"]);
    for source in sources {
        assert!(made.join(source).exists(), "{source}");
    }
}

#[test]
fn the_service_has_few_rights() {
    // Only where systemd is: the packages of others do without it.
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return skipped_because("`systemd-analyze` is not installed");
    }
    let report = run(Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(packaging().join("mortise.service")));
    let line = report
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let score = line.and_then(|line| line.rsplit(": ").next()?.split(' ').next()?.parse().ok());
    assert!(
        score.is_some_and(|score: f64| score <= EXPOSURE_MAX),
        "{report}"
    );
}
