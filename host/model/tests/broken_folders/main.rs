//! Wrong model folders: each gives one clear error, whatever is wrong with it.

mod adapters;
mod configurations;
mod mutants;
mod odd_files;
mod readings;
mod weights;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use mortise_model::Decoder;
use mortise_model::ModelFolder;
use mortise_model::WeightPrecision;
use serde_json::Value;
use tempfile::TempDir;

const MODEL: &str = "qwen2-bias";
const SHARDED: &str = "qwen3-qk-norm";

fn original(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/parity/data")
        .join(name)
}

/// A copy of a model that a test may spoil.
fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(original(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

fn load(path: &Path) -> Result<Decoder, String> {
    let folder = ModelFolder::open(path).map_err(|error| explained(&error))?;
    Decoder::load(&folder, WeightPrecision::AsStored).map_err(|error| explained(&error))
}

/// An error with its causes.
fn explained(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn check(path: &Path, expected: &[&str]) {
    // Not `expect_err`, which would print all weights.
    let Err(error) = load(path) else {
        panic!("the model loads; it should say {expected:?}");
    };
    for part in expected {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

fn with_config(name: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let folder = copy(name);
    let path = folder.path().join("config.json");
    let mut config = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
    folder
}

#[test]
fn missing_files_are_named() {
    check(
        Path::new("/nowhere/at/all"),
        &["cannot open model folder `/nowhere/at/all`", "No such file"],
    );
    check(
        &original(MODEL).join("config.json"),
        &["cannot open model folder", "not a directory"],
    );
    for (model, file) in [
        (MODEL, "config.json"),
        (MODEL, "model.safetensors"),
        (SHARDED, "model-00002-of-00003.safetensors"),
    ] {
        let folder = copy(model);
        fs::remove_file(folder.path().join(file)).unwrap();
        check(folder.path(), &["has no file", file]);
        fs::create_dir(folder.path().join(file)).unwrap();
        check(folder.path(), &["cannot read", file, "not a regular file"]);
    }
    let folder = copy(SHARDED);
    fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    check(folder.path(), &["has no file `model.safetensors`"]);
}
