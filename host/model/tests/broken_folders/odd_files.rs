//! Files of a model that are no regular files: each is named at once, and none is waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use mortise_model::{Adapter, ModelFolder, ModelSpec};

use crate::{MODEL, SHARDED, copy, explained, load, original};

/// A FIFO in the place of a file. Nobody writes to it, so to open it in the usual way never ends.
fn make_fifo(path: &Path) {
    let _ = fs::remove_file(path);
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("run mkfifo").success());
}

/// Error of a read on a thread of its own: one that waits for a FIFO is left behind.
fn said(read: impl FnOnce() -> Result<(), String> + Send + 'static) -> String {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(read()));
    let ended = receiver.recv_timeout(Duration::from_secs(120));
    ended.expect("it does not wait").expect_err("refused")
}

fn check(path: PathBuf, file: &str) {
    let said = said(move || load(&path).map(drop));
    let fifo = said.contains("it is a FIFO, not a regular file");
    assert!(said.contains(file) && fifo, "{file}: {said}");
}

#[test]
fn a_fifo_in_the_place_of_any_file_of_a_folder_is_named() {
    for (model, file) in [
        (MODEL, "config.json"),
        (MODEL, "model.safetensors"),
        (SHARDED, "model.safetensors.index.json"),
        (SHARDED, "model-00002-of-00003.safetensors"),
    ] {
        let folder = copy(model);
        make_fifo(&folder.path().join(file));
        check(folder.path().to_owned(), file);
    }
}

#[test]
fn a_fifo_among_the_parts_of_a_gguf_model_is_named() {
    const PARTS: [&str; 3] = [
        "mixtral-experts-00001-of-00003.gguf",
        "mixtral-experts-00002-of-00003.gguf",
        "mixtral-experts-00003-of-00003.gguf",
    ];
    for odd in PARTS {
        let folder = tempfile::tempdir().unwrap();
        for part in PARTS {
            fs::copy(
                original("../../gguf/data/split").join(part),
                folder.path().join(part),
            )
            .unwrap();
        }
        make_fifo(&folder.path().join(odd));
        for opened in PARTS {
            check(folder.path().join(opened), odd);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    make_fifo(&folder.path().join("alone.gguf"));
    check(folder.path().join("alone.gguf"), "alone.gguf");
    // The only one of a folder.
    check(folder.path().to_owned(), "alone.gguf");
}

#[test]
fn a_fifo_in_the_place_of_a_file_of_an_adapter_is_named() {
    let spec = ModelSpec::read(&ModelFolder::open(original("llama-rope-scaled")).unwrap());
    let spec = std::sync::Arc::new(spec.unwrap());
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let folder = tempfile::tempdir().unwrap();
        let from = original("../adapters/llama-queries");
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            fs::copy(from.join(file), folder.path().join(file)).unwrap();
        }
        make_fifo(&folder.path().join(file));
        let (path, spec) = (folder.path().to_owned(), std::sync::Arc::clone(&spec));
        let said = said(move || {
            let folder = ModelFolder::open(path).map_err(|error| explained(&error))?;
            let adapter = Adapter::load(&folder, &spec, 1.0);
            adapter.map(drop).map_err(|error| explained(&error))
        });
        let fifo = said.contains("it is a FIFO, not a regular file");
        assert!(said.contains(file) && fifo, "{file}: {said}");
    }
}
