//! Models that come and go in a running server: admin side, load on demand, eviction, unload, start.

mod admin;
mod aliases;
mod audit;
mod collections;
mod compare;
mod contract;
mod demand;
mod discovery;
mod hub;
mod ingest;
mod keys;
mod library;
mod loras;
mod loras_of_loads;
mod overrides;
mod path;
mod persist;
mod profiles;
mod queues;
mod quotas;
mod random;
mod release;
mod settings;
mod start;
mod uploads;
mod watch;

use std::path::Path;

use mortise_test_support as support;
use serde_json::{Value, json};
use support::client::{Request, Response};
use support::{Server, model};

const KEY: &str = "an admin key of the tests";

/// Configuration of the admin side, on a free port.
const ADMIN: &str = "[admin]\nport = 0\nkey = \"an admin key of the tests\"\n";

/// A scripted model of this name that says `says`; `more` is further keys.
fn scripted(name: &str, says: &str, more: &str) -> String {
    let path = model::byte_level();
    format!(
        "[[models]]\nname = \"{name}\"\npath = {path:?}\nbackend = \"scripted\"\n{more}\n\
         [models.script]\n{says}\n"
    )
}

/// A server with an admin side.
struct Managed {
    server: Server,
    admin: String,
}

impl Managed {
    fn start(config: &str) -> Self {
        Self::with(config, &[])
    }

    /// With further keys of the admin side.
    fn start_with(admin: &str, config: &str) -> Self {
        Self::with(&format!("{admin}{config}"), &[])
    }

    fn with(config: &str, variables: &[(&str, &Path)]) -> Self {
        let server = Server::configured_with(&format!("{ADMIN}{config}"), variables);
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line
            .split_once("admin side on http://")
            .expect("an address");
        let end = address.find(['"', ' ']).unwrap_or(address.len());
        let admin = address[..end].to_owned();
        Self { server, admin }
    }

    fn ask(&self, request: Request) -> Response {
        let key = format!("Bearer {KEY}");
        request.header("authorization", &key).send(&self.admin)
    }

    fn row(&self, name: &str) -> Value {
        self.ask(Request::get(&format!("/v1/admin/models/{name}")))
            .ok()
    }

    fn state(&self, name: &str) -> String {
        let row = self.row(name);
        row["runtime_state"].as_str().expect("a state").to_owned()
    }

    /// Load or unload, with a body.
    fn act(&self, name: &str, action: &str, body: &str) -> Response {
        let path = format!("/v1/admin/models/{name}/{action}");
        self.ask(Request::raw(&path, body.as_bytes()))
    }

    fn chat(&self, model: &str) -> Response {
        self.server.post("/v1/chat/completions", &asked(model))
    }
}

fn asked(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]})
}

fn code(response: &Response) -> (u16, String) {
    let code = response.json()["error"]["code"].as_str().map(str::to_owned);
    (response.status(), code.unwrap_or_default())
}

fn said(response: &Response) -> String {
    let answer = response.ok();
    let content = answer["choices"][0]["message"]["content"].as_str();
    content.expect("a text").to_owned()
}
