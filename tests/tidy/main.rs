//! Rules that reviewers would otherwise repeat, one file a rule: who may depend on whom, how long a file may be,
//! which names are no names, what the CI must run.

mod book;
mod circles;
mod contract;
mod dialects;
mod files;
mod functions;
mod limits;
mod names;
mod readers;
mod rooms;
mod source;
mod threats;
mod words;
mod workspace;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manifest(room: &str) -> toml::Table {
    toml_file(&root().join(room).join("Cargo.toml"))
}

fn toml_file(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("read a folder of the repository");
    let entries = entries.map(|entry| entry.expect("read a folder entry").path());
    // In one order, which the page of limits keeps.
    for path in entries.collect::<BTreeSet<_>>() {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') && name != "node_modules" {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["host", "kernels", "plugins", "wit"] {
        rust_files(&root().join(folder), &mut found);
    }
    assert!(
        found.len() > 30,
        "the walk found only {} files",
        found.len()
    );
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_name().is_some_and(|name| name == "tests.rs")
}
