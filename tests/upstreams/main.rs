//! Models that other servers answer for: a second mortise as upstream, and one that misbehaves.

mod answers;
mod command;
mod dispatch;
mod embeddings;
mod gate;
mod hostile;
mod hygiene;
mod rendered;

use mortise_test_support as support;
use serde_json::{Value, json};
use support::Server;
use support::upstream::FakeUpstream;

/// Path of chat requests.
const CHAT: &str = "/v1/chat/completions";

/// A table of a model `remote` of these upstreams, without health checks.
fn remote(urls: &[String], more: &str) -> String {
    format!(
        "[[models]]\nname = \"remote\"\n[models.upstream]\nurls = {urls:?}\nmodel = \"m\"\n\
         health_check = \"config-only\"\n{more}\n"
    )
}

/// A model beside the remote one, which must be served whatever happens to that.
const BYSTANDER: &str = "[[models]]\nname = \"bystander\"\nbackend = \"scripted\"\n\
                         [models.script]\nkind = \"conversation\"\ndefault = \"All is well.\"\n";

/// A server whose model `remote` is this upstream's, and a bystander; `more` belongs to the upstream.
fn in_front_of(upstream: &FakeUpstream, more: &str) -> Server {
    Server::configured(&(remote(&[upstream.url()], more) + BYSTANDER))
}

fn chat(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

fn streamed(model: &str, text: &str) -> Value {
    let mut body = chat(model, text);
    body["stream"] = json!(true);
    body
}

/// Content of a whole answer.
fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("content")
}
