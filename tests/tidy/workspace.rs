//! The workspace as cargo and CI see it: commands, profiles, features, names of suites.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{manifest, root, rust_files, toml_file};

#[test]
fn ci_runs_the_command_that_the_readme_promises() {
    let readme = fs::read_to_string(root().join("README.md")).expect("read README.md");
    let ci = fs::read_to_string(root().join(".ci/run")).expect("read .ci/run");
    let command = "cargo test --release --workspace";
    assert!(
        readme.contains(command),
        "README.md does not show `{command}`"
    );
    assert!(ci.contains(command), ".ci/run does not run `{command}`");
}

#[test]
fn a_chat_request_is_followed_in_thirty_files() {
    let page = fs::read_to_string(root().join("docs/internals.md")).expect("the page");
    let (_, list) = page
        .split_once("## Files of one chat request")
        .expect("the list");
    let list = list.split("\n## ").next().unwrap_or_default();
    let files: Vec<_> = list
        .lines()
        .filter_map(|line| line.split_once(". `")?.1.split_once('`'))
        .map(|(file, _)| file)
        .collect();
    assert!((20..=30).contains(&files.len()), "{} files", files.len());
    for file in files {
        assert!(root().join(file).is_file(), "docs/internals.md: no {file}");
    }
}

#[test]
fn j12_the_sandbox_page_names_every_machine_that_is_shipped_for() {
    // What a runtime escapes from on one kind of processor it may not on another.
    let deny = toml_file(&root().join("deny.toml"));
    let targets = deny["graph"]["targets"].as_array().expect("targets");
    let page = fs::read_to_string(root().join("docs/plugins/sandbox.md")).expect("the page");
    let native = targets.iter().filter_map(toml::Value::as_str);
    let native: Vec<&str> = native
        .filter(|target| !target.starts_with("wasm"))
        .collect();
    assert!(native.contains(&"x86_64-unknown-linux-gnu"), "{native:?}");
    for target in native {
        let name = format!("`{target}`");
        assert!(
            page.contains(&name),
            "docs/plugins/sandbox.md says nothing of {name}"
        );
    }
    let advice = "Run untrusted plugins on x86-64";
    assert!(
        page.contains(advice),
        "docs/plugins/sandbox.md no longer advises: {advice}"
    );
}

#[test]
fn panics_unwind_in_the_release_profile() {
    // A panic in one request must end that request, not the process.
    let profile = &manifest(".")["profile"]["release"];
    assert_eq!(profile["panic"].as_str(), Some("unwind"));
}

/// Number of code blocks in doc comments that `cargo test` would compile.
fn doc_tests(package: &Path) -> usize {
    let mut files = Vec::new();
    rust_files(&package.join("src"), &mut files);
    let texts = files.iter().map(fs::read_to_string);
    let lines = texts.map(|text| {
        let text = text.expect("read a source");
        let fences = text.lines().filter_map(|line| {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
            comment.trim_start().strip_prefix("```").map(str::to_owned)
        });
        // Every other fence ends a block.
        let opening = fences.step_by(2);
        opening
            .filter(|language| ["", "rust", "no_run", "should_panic"].contains(&language.trim()))
            .count()
    });
    lines.sum()
}

#[test]
fn doc_tests_are_looked_for_where_there_are_any() {
    // Cargo starts rustdoc once for each package that does not say otherwise, code blocks or not.
    let mut with = Vec::new();
    for member in members() {
        let package = root().join(&member);
        if !package.join("src/lib.rs").exists() {
            continue;
        }
        let looked = manifest(&member)
            .get("lib")
            .and_then(|lib| lib.get("doctest")?.as_bool());
        let found = doc_tests(&package);
        let told = format!("{member}/Cargo.toml has `doctest = {looked:?}` and {found} doc tests");
        assert_eq!(looked != Some(false), found > 0, "{told}");
        with.extend((found > 0).then_some(member));
    }
    assert_eq!(with, ["wit/sdk"], "the walk sees doc tests");
}

/// Packages with their features, as cargo would choose them.
fn chosen_features(selection: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args([
            "--target",
            "x86_64-unknown-linux-gnu",
            "--format",
            "{p} [{f}]",
        ])
        .args(selection)
        .current_dir(root())
        .output()
        .expect("run cargo tree");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", ""))
        .collect()
}

#[test]
fn running_and_testing_share_what_is_compiled() {
    // Cargo chooses features for what a command selects. Where `cargo run` and `cargo test` differ in
    // one crate, everything above it is compiled twice: minutes on a fresh clone.
    let run = chosen_features(&["-p", "mortise", "-e", "normal,build"]);
    let test = chosen_features(&["--workspace", "-e", "normal,build,dev"]);
    let alone: Vec<_> = run.difference(&test).collect();
    assert!(
        run.len() > 200 && alone.is_empty(),
        "tests choose other features than these; add theirs to host/bundle/Cargo.toml: {alone:#?}"
    );
    // A crate that build scripts and the server's own build share by `cargo run`, and no longer by `cargo test`, is built
    // once more with all that stands on it, wasmtime and most rooms among them.
    let twice = built_twice(&test);
    let apart: Vec<_> = twice
        .iter()
        .filter(|package| !OF_GENERATORS.contains(package))
        .collect();
    assert!(
        apart.is_empty(),
        "tests build these with two sets of features; give both tables of host/bundle/Cargo.toml the same: {apart:?}"
    );
}

/// Packages that the generators of bindings for C and for Rust depend on, with features of each. None is built by
/// `cargo run`.
const OF_GENERATORS: [&str; 1] = ["wasm-encoder v0.258.3"];

/// Packages for which two builds of one crate are chosen.
fn built_twice(chosen: &BTreeSet<String>) -> Vec<&str> {
    let package = |line: &String| line.split(" [").next().unwrap_or_default().len();
    let pairs = chosen.iter().zip(chosen.iter().skip(1));
    let twice = pairs.filter(|(one, other)| one[..package(one)] == other[..package(other)]);
    twice.map(|(one, _)| &one[..package(one)]).collect()
}

#[test]
fn building_and_running_share_what_is_compiled() {
    // The build script of `host/bundle` stands on the crates that the server runs with.
    let run = chosen_features(&["-p", "mortise", "-e", "normal,build"]);
    let twice = built_twice(&run);
    assert!(
        twice.is_empty(),
        "these are built with two sets of features; give both tables of host/bundle/Cargo.toml the same: {twice:?}"
    );
    let planted = ["a v1.0 [std]", "b v1.0 []", "b v1.0 [std]", "b v2.0 []"].map(str::to_owned);
    assert_eq!(built_twice(&planted.into()), ["b v1.0"]);
}

/// Names of the test suites of one package: those in its manifest, and its files below `tests`.
fn suites(package: &Path) -> Vec<String> {
    let manifest = toml_file(&package.join("Cargo.toml"));
    let named = manifest.get("test").and_then(toml::Value::as_array);
    let named = named.into_iter().flatten();
    let mut suites: Vec<String> = named
        .filter_map(|test| Some(test.get("name")?.as_str()?.to_owned()))
        .collect();
    for entry in fs::read_dir(package.join("tests")).into_iter().flatten() {
        let path = entry.expect("read a folder entry").path();
        let is_suite =
            path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if is_suite && !suites.contains(&name) {
            suites.push(name);
        }
    }
    suites
}

/// Folders of the workspace's packages.
fn members() -> Vec<String> {
    let mut packages = [
        "fuzz",
        "kernels",
        "kernels/cuda",
        "kernels/cuda/emulator",
        "tests/support",
        "tests/tokenizers",
        "wit/sdk",
    ]
    .map(str::to_owned)
    .to_vec();
    for folder in ["host", "plugins"] {
        let entries = fs::read_dir(root().join(folder)).expect("read a folder");
        let names = entries.map(|entry| entry.expect("read a folder entry").file_name());
        packages.extend(names.map(|name| format!("{folder}/{}", name.to_string_lossy())));
    }
    packages
}

#[test]
fn suites_have_unique_names() {
    let mut seen = BTreeMap::new();
    let mut double = Vec::new();
    for package in members() {
        for suite in suites(&root().join(&package)) {
            if let Some(other) = seen.insert(suite.clone(), package.clone()) {
                double.push(format!("`{suite}` of {package} and {other}"));
            }
        }
    }
    assert!(seen.len() > 40, "only {} suites were found", seen.len());
    assert!(
        double.is_empty(),
        "`cargo test --test NAME` and `.ci/lanes` take a suite by its name: rename one each of {double:?}"
    );
}
