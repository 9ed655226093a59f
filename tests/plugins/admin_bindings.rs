//! Bindings that operators make on the admin side, change and remove.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};
use crate::support::contract::Contract;
use crate::swap::{KEY, version};

/// A server that keeps changes, and the contract that its answers are held to.
struct Binding {
    server: Server,
    admin: String,
    contract: Contract,
}

impl Binding {
    fn start(config: &str) -> Self {
        let server = Server::start(&["--config", config]);
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line.split_once("http://").expect("an address");
        let admin = address.trim().to_owned();
        let asked = Request::get("/v1/admin/openapi.json");
        let document = asked.header("x-admin-token", KEY).send(&admin).ok();
        let contract = Contract::new(document);
        Self {
            server,
            admin,
            contract,
        }
    }

    /// The answer of an operation, which is one that it declares.
    fn ask(&self, id: &str, name: &str, body: &Value) -> Response {
        let (path, method, operation) = self.contract.operation(id);
        let request = Request::post(&path.replace("{name}", name), body);
        let request = request.method(&method.to_uppercase());
        let response = request.header("x-admin-token", KEY).send(&self.admin);
        self.contract.holds(operation, &response);
        response
    }

    fn set(&self, name: &str, body: Value) -> Response {
        self.ask("setPluginBinding", name, &body)
    }

    fn refused(&self, name: &str, body: Value) -> (u16, String) {
        let response = self.set(name, body);
        let code = response.json()["error"]["code"].clone();
        (
            response.status(),
            code.as_str().unwrap_or_default().to_owned(),
        )
    }

    /// The version of the chat template of a model, and its binding.
    fn template(&self, model: &str) -> Value {
        let asked = Request::get("/v1/admin/plugins").header("x-admin-token", KEY);
        let status = asked.send(&self.admin).ok();
        let serving = status["serving"].as_array().expect("places");
        let of_model = |row: &&Value| row["kind"] == "chat-template" && row["model"] == model;
        let row = serving.iter().find(of_model).expect("a template");
        row["version"].clone()
    }

    fn names(&self) -> Vec<(Value, Value)> {
        let listed = self.ask("listPluginBindings", "", &json!({})).ok();
        let rows = listed["data"].as_array().expect("rows").clone();
        let name = |row: Value| (row["name"].clone(), row["changeable"].clone());
        rows.into_iter().map(name).collect()
    }
}

/// Two models; bindings of the admin side are kept if `persist` says so.
fn configured(folder: &std::path::Path, persist: &str) -> String {
    let model = crate::support::model::byte_level();
    let plugins = folder.join("plugins");
    let models = ["one", "two"].map(|name| {
        format!("[[models]]\nname = {name:?}\npath = {model:?}\nbackend = \"scripted\"\n[models.script]\ndefault = \"Yes.\"\n")
    });
    let text = format!(
        "[admin]\nport = 0\nkey = {KEY:?}\n{persist}\n[plugins]\ndir = {plugins:?}\nwatch_ms = 0\n\
         [[plugins.bindings]]\nname = \"configured\"\nkind = \"grammar\"\n{}",
        models.concat()
    );
    let path = folder.join("mortise.toml");
    std::fs::create_dir_all(&plugins).expect("make a folder");
    std::fs::write(&path, text).expect("write the configuration");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn feature_e35_plugins_are_bound_swapped_and_unbound_on_the_admin_side() {
    let folder = tempfile::tempdir().expect("make a folder");
    let config = configured(folder.path(), "persist = \"kept.toml\"");
    let write = |file: &str, of: &str| {
        std::fs::write(folder.path().join("plugins").join(file), version(of)).expect("write");
    };
    write("a.wasm", "7.0.1");
    let side = Binding::start(&config);
    assert_eq!(side.template("two"), "7.0.1");
    let bound = side.set(
        "rules",
        json!({"kind": "chat-template", "file": "a.wasm", "models": ["one"]}),
    );
    assert_eq!(bound.status(), 201, "{}", bound.text());
    assert_eq!(bound.json()["changeable"], true);
    assert_eq!(side.template("one"), "7.0.1");
    assert_ne!(side.template("two"), "7.0.1");
    assert_eq!(
        side.names(),
        [
            (json!("configured"), json!(false)),
            (json!("rules"), json!(true))
        ]
    );

    // Swapped for another file, and then taken to another model.
    write("b.wasm", "7.0.2");
    let swapped = side.set(
        "rules",
        json!({"kind": "chat-template", "file": "b.wasm", "models": ["two"]}),
    );
    assert_eq!(swapped.status(), 200, "{}", swapped.text());
    assert_eq!(side.template("two"), "7.0.2");

    // What is refused changes nothing.
    let kind = "chat-template";
    for (body, status, code) in [
        (
            json!({"kind": kind, "file": "../a.wasm"}),
            400,
            "invalid_binding",
        ),
        (
            json!({"kind": kind, "settings": {"a": [null]}}),
            400,
            "invalid_binding",
        ),
        (json!({"kind": "grammer"}), 422, "invalid_binding"),
        (
            json!({"kind": kind, "http": {"origins": ["https://example.com"]}}),
            422,
            "invalid_binding",
        ),
        (
            json!({"kind": kind, "file": "absent.wasm"}),
            422,
            "binding_refused",
        ),
        (json!({"kind": kind, "order": 3}), 422, "binding_refused"),
    ] {
        assert_eq!(
            side.refused("rules", body.clone()),
            (status, code.to_owned()),
            "{body}"
        );
    }
    let fixed = side.refused("configured", json!({"kind": "grammar"}));
    assert_eq!(fixed, (409, "not_persisted".to_owned()));
    assert_eq!(side.template("two"), "7.0.2");

    // It is kept for the next start.
    drop(side.server);
    let side = Binding::start(&config);
    assert_eq!(side.template("two"), "7.0.2");
    let remove = || {
        side.ask("deletePluginBinding", "rules", &json!({}))
            .status()
    };
    // Without it two files would be for every model.
    assert_eq!(remove(), 422);
    assert_eq!(side.template("two"), "7.0.2");
    std::fs::remove_file(folder.path().join("plugins/a.wasm")).expect("remove it");
    assert_eq!(remove(), 200);
    assert_eq!(side.names(), [(json!("configured"), json!(false))]);
    assert_eq!(side.template("one"), "7.0.2");
    assert_eq!(remove(), 404);
    drop(side);
    let side = Binding::start(&configured(folder.path(), ""));
    let unkept = side.refused("rules", json!({"kind": kind, "models": ["one"]}));
    assert_eq!(unkept, (409, "not_persisted".to_owned()));
}
