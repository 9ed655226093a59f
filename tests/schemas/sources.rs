//! Schemas with instances that fit and do not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A schema with its instances.
pub(crate) struct Group {
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) schema: Value,
    /// Documents, each with whether it fits.
    pub(crate) instances: Vec<(Value, bool)>,
    pub(crate) draft: jsonschema::Draft,
}

/// The folder of the test suite. `None` if it cannot be had here, which fails where `MORTISE_REQUIRE_SDKS` is set.
pub(crate) fn suite(tmp: &str, test: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/schemas/fetch.py");
    let folder = Path::new(tmp).join("json-schema-test-suite-4.26.0");
    let fetched = Command::new("python3").arg(script).arg(&folder).output();
    let why = match fetched {
        Ok(output) if output.status.success() => return Some(folder),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(
        std::env::var_os("MORTISE_REQUIRE_SDKS").is_none(),
        "the test suite cannot be fetched, and MORTISE_REQUIRE_SDKS is set: {why}"
    );
    skipped(&format!("{test}: the test suite cannot be fetched"));
    None
}

/// Say what is not tested, and why.
pub(crate) fn skipped(what: &str) {
    // Past the capture of the test runner, which shows nothing of tests that pass.
    let line = format!("skipped: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The groups of one draft, by file.
pub(crate) fn groups(folder: &Path, draft: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for path in sorted(&folder.join(draft)) {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        for group in read(&path).as_array().unwrap() {
            let name = format!("{draft}/{file}: {}", group["description"].as_str().unwrap());
            groups.push(Group {
                category: file.clone(),
                name,
                schema: group["schema"].clone(),
                instances: instances(group),
                draft: match draft {
                    "draft7" => jsonschema::Draft::Draft7,
                    _ => jsonschema::Draft::Draft202012,
                },
            });
        }
    }
    groups
}

/// Each `each`-th file of a folder.
pub(crate) fn files(folder: &Path, each: usize) -> impl Iterator<Item = Group> {
    sorted(folder).into_iter().step_by(each).map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let content = read(&path);
        Group {
            category: name
                .split("---")
                .next()
                .and_then(|name| name.split("_").next())
                .unwrap()
                .to_owned(),
            name,
            schema: content["schema"].clone(),
            instances: instances(&content),
            draft: jsonschema::Draft::Draft202012.detect(&content["schema"]),
        }
    })
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn instances(group: &Value) -> Vec<(Value, bool)> {
    let tests = group["tests"].as_array().map_or(&[][..], Vec::as_slice);
    tests
        .iter()
        .map(|test| (test["data"].clone(), test["valid"].as_bool().unwrap()))
        .collect()
}
