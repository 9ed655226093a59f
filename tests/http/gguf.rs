//! Models from one GGUF file, and weights that are quantised when they are loaded. The file is made by
//! `tests/gguf/make_reference.py`.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::{Server, binary};

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/gguf/data/tiny-chat.gguf")
}

fn mortise(arguments: &[&str], input: &str) -> Output {
    use std::io::Write as _;
    let mut child = Command::new(binary())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start mortise");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("write the input");
    drop(stdin);
    child.wait_with_output().expect("wait for mortise")
}

fn printed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_gguf_file_is_served_with_its_own_tokenizer_and_template() {
    let path = file();
    let path = path.to_str().expect("a path in UTF-8");
    let messages = json!([{"role": "user", "content": "Größe <|im_start|> 日本語 😀?"}]);
    let rendered = printed(&mortise(
        &["template", "render", "--model", path],
        &json!({ "messages": messages }).to_string(),
    ));
    let tokens = rendered["tokens"].as_array().expect("tokens").len();
    let mut server = Server::start(&["--model", path]);
    let models = server.get("/v1/models").ok();
    assert_eq!(models["data"][0]["id"], "tiny-chat");
    let request = json!({
        "model": "tiny-chat", "messages": messages, "max_tokens": 6, "temperature": 0, "seed": 1,
    });
    let first = server.post(CHAT, &request).ok();
    assert_eq!(first["usage"]["prompt_tokens"], tokens);
    assert!(
        first["usage"]["completion_tokens"]
            .as_u64()
            .is_some_and(|n| (1..=6).contains(&n))
    );
    let second = server.post(CHAT, &request).ok();
    assert_eq!(first["choices"], second["choices"]);
    server.assert_sound();
}

#[test]
fn a_gguf_file_is_described() {
    let path = file();
    let path = path.to_str().expect("a path in UTF-8");
    let described = printed(&mortise(&["inspect", path], ""));
    assert_eq!(described["type"], "gguf");
    assert_eq!(described["metadata"]["general.architecture"], "qwen2");
    assert_eq!(
        described["metadata"]["tokenizer.ggml.tokens"]["length"],
        603
    );
    assert_eq!(described["tensors"].as_array().map(Vec::len), Some(26));
    assert_eq!(described["tensors"][0]["type"], "Q8_0");
    assert_eq!(described["tensors"][0]["shape"], json!([603, 64]));
}

#[test]
fn a_damaged_gguf_file_ends_the_start_with_the_reason() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("cut.gguf");
    let whole = std::fs::read(file()).expect("read the model");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("write a part");
    let path = path.to_str().expect("a path in UTF-8");
    let output = mortise(&["serve", "--port", "0", "--model", path], "");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("cut.gguf") && message.contains("the file ends before"),
        "{message}"
    );
}

/// Choices of a model's completion, to compare.
fn said(server: &Server) -> Value {
    let request = json!({
        "model": "m", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "logprobs": 2,
    });
    server.post("/v1/completions", &request).ok()["choices"].clone()
}

#[test]
fn a_model_that_is_replaced_by_renaming_is_served_to_the_end() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("m.gguf");
    std::fs::copy(file(), &path).expect("copy the model");
    let mut server = Server::start(&["--model", path.to_str().expect("UTF-8")]);
    let before = said(&server);
    let next = folder.path().join("next.gguf");
    std::fs::write(&next, "another model").expect("write another");
    std::fs::rename(&next, &path).expect("put it in the place of the first");
    assert_eq!(said(&server), before);
    std::fs::remove_file(&path).expect("remove it");
    assert_eq!(said(&server), before);
    server.assert_sound();
}

#[test]
fn a_folder_is_read_when_it_is_loaded_and_not_again() {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo-model/model");
    let folder = tempfile::tempdir().expect("make a folder");
    let to = folder.path().join("m");
    std::fs::create_dir(&to).expect("make a folder");
    for file in std::fs::read_dir(from).expect("the demo model") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("copy a file");
    }
    let mut server = Server::start(&["--model", to.to_str().expect("UTF-8")]);
    let before = said(&server);
    // Where it lies: a file that were still mapped would end the process here.
    for file in std::fs::read_dir(&to).expect("the model") {
        std::fs::write(file.expect("a file").path(), "").expect("empty it");
    }
    assert_eq!(said(&server), before);
    server.assert_sound();
}

#[test]
fn weights_are_quantised_when_the_configuration_says_so() {
    for format in ["q8_0", "q4_k"] {
        let mut server = Server::configured(&format!("[[models]]\nquantize = \"{format}\"\n"));
        let request = json!({
            "model": "mortise-demo",
            "messages": [{"role": "user", "content": "What is mortise?"}],
            "max_tokens": 8, "temperature": 0,
        });
        let answer = server.post(CHAT, &request).ok();
        let text = answer["choices"][0]["message"]["content"]
            .as_str()
            .expect("content");
        assert!(!text.is_empty(), "{format}");
        server.assert_sound();
    }
}

#[test]
fn a_decoder_makes_embeddings_where_its_pooling_is_said() {
    let path = file();
    let serve = |settings: &str| {
        Server::configured(&format!(
            "[[models]]\nname = \"m\"\npath = '{}'\n{settings}\n",
            path.display()
        ))
    };
    let embed = |server: &mut Server, input: Value| -> Vec<Vec<f64>> {
        let made = server
            .post("/v1/embeddings", &json!({"model": "m", "input": input}))
            .ok();
        let vectors = made["data"].as_array().expect("vectors").iter();
        vectors
            .map(|entry| serde_json::from_value(entry["embedding"].clone()).expect("numbers"))
            .collect()
    };
    let length = |vector: &[f64]| vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    let mut server = serve("pooling = \"last\"");
    let together = embed(&mut server, json!(["one", "another text", "日本語"]));
    for vector in &together {
        assert_eq!(vector.len(), 64);
        assert!((length(vector) - 1.0).abs() < 1e-5);
    }
    assert_eq!(embed(&mut server, json!("another text")), together[1..2]);
    let refused = server.post(
        CHAT,
        &json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}),
    );
    assert_eq!(refused.status(), 400);
    let long = json!({"model": "m", "input": "a word ".repeat(20_000)});
    let error = server.post("/v1/embeddings", &long).json()["error"].clone();
    assert_eq!(error["code"], "context_length_exceeded");
    assert_eq!(error["param"], "input");
    server.assert_sound();
    // The same rows, as long as they are.
    let mut raw = serve("pooling = \"last\"\nnormalize = false");
    let vectors = embed(&mut raw, json!("one"));
    let size = length(&vectors[0]);
    assert!((size - 1.0).abs() > 1e-2, "{size}");
    for (raw, unit) in vectors[0].iter().zip(&together[0]) {
        assert!((raw / size - unit).abs() < 1e-5);
    }
    raw.assert_sound();
    let mut mean = serve("pooling = \"mean\"");
    assert_ne!(embed(&mut mean, json!("another text")), together[1..2]);
    mean.assert_sound();
}
