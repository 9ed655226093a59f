//! Model folders that differ from the demo model in one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, binary};

/// A copy of the demo model.
fn copy() -> TempDir {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo-model/model");
    let folder = tempfile::tempdir().expect("make a folder");
    for file in fs::read_dir(from).expect("the demo model") {
        let file = file.expect("a file");
        fs::copy(file.path(), folder.path().join(file.file_name())).expect("copy a file");
    }
    folder
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("read a file")).expect("JSON")
}

fn change(folder: &TempDir, file: &str, field: &str, value: Value) {
    let path = folder.path().join(file);
    let mut content = read_json(&path);
    content[field] = value;
    fs::write(path, content.to_string()).expect("write a file");
}

fn serve(folder: &TempDir) -> Server {
    Server::start(&["--model", folder.path().to_str().expect("UTF-8")])
}

fn complete(server: &Server) -> Value {
    let request = json!({
        "model": "m", "prompt": "It is", "max_tokens": 12, "temperature": 0, "logprobs": 1,
    });
    server.post("/v1/completions", &request).ok()["choices"][0].clone()
}

/// Without `generation_config.json`, the list of end tokens in `config.json` counts.
#[test]
fn end_tokens_of_the_configuration_end_an_answer() {
    let folder = copy();
    fs::remove_file(folder.path().join("generation_config.json")).expect("remove a file");
    let mut server = serve(&folder);
    let whole = complete(&server);
    let tokens: Vec<&str> = whole["logprobs"]["tokens"]
        .as_array()
        .expect("tokens")
        .iter()
        .map(|token| token.as_str().expect("a text"))
        .collect();
    let first = |at: &usize| !tokens[..*at].contains(&tokens[*at]);
    let at = (1..tokens.len()).find(first).expect("a second token");
    let vocabulary = read_json(&folder.path().join("tokenizer.json"));
    let key = tokens[at].replace(' ', "Ġ").replace('\n', "Ċ");
    let end = vocabulary["model"]["vocab"][&key].as_u64().expect("an id");
    server.assert_sound();
    drop(server);

    change(&folder, "config.json", "eos_token_id", json!([2041, end]));
    let mut server = serve(&folder);
    let ended = complete(&server);
    assert_eq!(ended["finish_reason"], "stop", "{ended}");
    assert_eq!(ended["text"], tokens[..at].concat(), "{ended}");
    server.assert_sound();
}

/// Error output of `mortise serve` for a folder that it refuses.
fn refusal(folder: &TempDir) -> String {
    let path = folder.path().to_str().expect("UTF-8");
    let output = Command::new(binary())
        .args(["serve", "--port", "0", "--model", path])
        .output()
        .expect("run the server");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[test]
fn a_fifo_in_the_place_of_a_model_file_ends_the_start_with_its_name() {
    for file in [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        let folder = copy();
        let path = folder.path().join(file);
        let _ = fs::remove_file(&path);
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("run mkfifo").success());
        let said = refusal(&folder);
        let expected = format!("`{file}`");
        let fifo = said.contains("it is a FIFO, not a regular file");
        assert!(said.contains(&expected) && fifo, "{file}: {said}");
    }
}

#[test]
fn absurd_sizes_and_tokens_end_the_start_with_their_name() {
    let sizes = [1 << 31, 1 << 33, 1 << 62, u64::MAX, 0];
    for size in sizes.map(Value::from).into_iter().chain([json!(-1)]) {
        let folder = copy();
        change(&folder, "config.json", "vocab_size", size.clone());
        let said = refusal(&folder);
        let expected = format!("`vocab_size` in `config.json` is {size}; expected an integer");
        assert!(said.contains(&expected), "{said}");
    }
    let folder = copy();
    let end = json!([2041, 1_000_000_000]);
    change(&folder, "generation_config.json", "eos_token_id", end);
    let said = refusal(&folder);
    assert!(
        said.contains("`eos_token_id` in `generation_config.json` names token 1000000000"),
        "{said}"
    );
}
