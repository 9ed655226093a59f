//! mortise in front of an engine that is not ours: llama-server, llama.cpp's server, with the demo model as a GGUF file.
//!
//! `MORTISE_LLAMA_SERVER` names the program, which `tests/engines/fetch-llama-server` builds. Without it each test is
//! reported as skipped, by name.

mod child;
mod demo_gguf;
mod embeddings;
mod failures;
mod front;
mod rendered;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mortise_test_support as support;
use serde_json::{Value, json};
use support::client::{Request, Response};
use support::{Server, skipped_because, wait_for};

/// Path of chat requests.
const CHAT: &str = "/v1/chat/completions";

/// Name of the model at llama-server.
const DEMO: &str = "demo";

/// Arguments that have it compute as exactly as mortise does, and tell of its slots.
const EXACT: [&str; 12] = [
    "--alias",
    DEMO,
    "--parallel",
    "2",
    "--ctx-size",
    "4096",
    "--cache-type-k",
    "f32",
    "--cache-type-v",
    "f32",
    "--flash-attn",
    "off",
];

/// The program; `None`, which is told, if the environment names none.
fn program() -> Option<PathBuf> {
    let Some(program) = std::env::var_os("MORTISE_LLAMA_SERVER") else {
        skipped_because("MORTISE_LLAMA_SERVER does not name llama-server");
        return None;
    };
    let program = PathBuf::from(program);
    assert!(program.is_file(), "{} is no file", program.display());
    Some(std::fs::canonicalize(program).expect("an absolute path"))
}

/// A running llama-server. Dropping it kills it.
struct LlamaServer {
    child: Child,
    address: String,
}

impl LlamaServer {
    /// One that has loaded the demo model.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// A server with further arguments.
    fn start_with(more: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        Some(Self::at(&program()?, port, more))
    }

    fn at(program: &Path, port: u16, more: &[&str]) -> Self {
        let child = Command::new(program)
            .arg("--model")
            .arg(demo_gguf::path())
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--threads", "2", "--no-webui"])
            .args(EXACT)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start llama-server");
        let mut server = Self {
            child,
            address: format!("127.0.0.1:{port}"),
        };
        wait_for(|| {
            let ended = server.child.try_wait().expect("ask for its end");
            assert!(ended.is_none(), "llama-server has ended: {ended:?}");
            match std::net::TcpStream::connect(&server.address) {
                Ok(_) if server.get("/health").status() == 200 => Ok(()),
                _ => Err("llama-server is not ready".to_owned()),
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    fn port(&self) -> u16 {
        let (_, port) = self.address.rsplit_once(':').expect("a port");
        port.parse().expect("a number")
    }

    fn get(&self, path: &str) -> Response {
        Request::get(path).send(&self.address)
    }

    fn post(&self, path: &str, body: &Value) -> Response {
        Request::post(path, body).send(&self.address)
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.expect("run kill").success());
    }

    /// Slots that compute an answer.
    fn busy(&self) -> usize {
        let slots = self.get("/slots").ok();
        let slots = slots.as_array().expect("slots").iter();
        slots.filter(|slot| slot["is_processing"] == true).count()
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A table of a model `remote` of this llama-server; `more` belongs to the upstream.
fn remote(there: &LlamaServer, model: &str, more: &str) -> String {
    format!(
        "[[models]]\nname = \"remote\"\n{model}\n[models.upstream]\nurls = [{:?}]\nmodel = \"{DEMO}\"\n\
         api = \"llama-server\"\nhealth_check = \"config-only\"\n{more}\n",
        there.url()
    )
}

fn asked(model: &str, text: &str) -> Value {
    json!({"model": model, "temperature": 0, "max_tokens": 120, "messages": [{"role": "user", "content": text}]})
}

/// A request whose answer goes on for so many letters.
fn long(model: &str, letters: usize) -> Value {
    let mut body = asked(model, "Write.");
    body["max_tokens"] = json!(1500);
    body["stream"] = json!(true);
    let grammar = format!("root ::= [a-z]{{{letters}}}");
    body["structured_outputs"] = json!({"grammar": grammar});
    body
}

/// Content of a whole answer.
fn content(answer: &Value) -> &str {
    let content = answer["choices"][0]["message"]["content"].as_str();
    content.unwrap_or_else(|| panic!("no content: {answer}"))
}

/// Content of a streamed answer, its usage, and its error, if it has one.
fn streamed(server: &Server, mut body: Value) -> (String, Value, Value) {
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let answer = server.post(CHAT, &body);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    events(&answer.text())
}

/// Content, usage and error of the text of a stream.
fn events(text: &str) -> (String, Value, Value) {
    let (mut content, mut usage, mut error) = (String::new(), Value::Null, Value::Null);
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(chunk) = serde_json::from_str::<Value>(data) else {
            continue;
        };
        content += chunk["choices"][0]["delta"]["content"]
            .as_str()
            .unwrap_or_default();
        for (name, place) in [("usage", &mut usage), ("error", &mut error)] {
            if !chunk[name].is_null() {
                *place = chunk[name].clone();
            }
        }
    }
    (content, usage, error)
}

/// A pause in which something that must not happen could.
const MOMENT: Duration = Duration::from_millis(200);
