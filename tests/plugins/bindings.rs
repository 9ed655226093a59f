//! Scope of a binding: tenants, routes and models, of which the most specific counts.

use std::process::Command;

use serde_json::{Value, json};

use crate::refused;
use crate::support::Server;
use crate::support::client::{Request, Response};
use crate::support::example::every_kind as guest;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// The keys of three callers; the last has no tenant.
const KEYS: &str = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"acmes-key\"\ntenant = \"acme\"\n\
     [[auth.api_keys]]\nid = \"bob\"\nkey = \"umbrellas-key\"\ntenant = \"umbrella\"\n\
     [[auth.api_keys]]\nid = \"carol\"\nkey = \"nobodys-key\"\n";

const ACME: &str = "acmes-key";
const UMBRELLA: &str = "umbrellas-key";
const NOBODY: &str = "nobodys-key";

/// A binding of the guest, which breaks down where it is told to.
fn binding(kind: &str, more: &str) -> String {
    let file = guest();
    format!(
        "[[plugins.bindings]]\nkind = {kind:?}\nfile = {file:?}\nbreaker = {{ failures = 0 }}\n{more}\n"
    )
}

fn configuration(bindings: &str) -> String {
    format!("[plugins]\nwatch_ms = 0\n{bindings}\n{KEYS}")
}

fn server(bindings: &str) -> Server {
    let script = "lines = [{ when = \"object\", say = \"{}\" }]\ndefault = \"The answer.\"";
    Server::scripted(script, &configuration(bindings))
}

/// One question with a key; `more` are further fields.
fn ask(server: &Server, key: &str, route: &str, more: Value) -> Response {
    let mut body = json!({"model": "scripted", "max_tokens": 20});
    let text = "Give me an object.";
    match route {
        CHAT => body["messages"] = json!([{"role": "user", "content": text}]),
        _ => body["prompt"] = json!(text),
    }
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let request = Request::post(route, &body);
    server.send(&request.header("authorization", &format!("Bearer {key}")))
}

/// Status and code of a plain question on the chat route.
fn came_to(server: &Server, key: &str) -> (u16, Value) {
    let response = ask(server, key, CHAT, json!({}));
    (response.status(), response.json()["error"]["code"].clone())
}

fn fine() -> (u16, Value) {
    (200, Value::Null)
}

fn trapped() -> (u16, Value) {
    (500, json!("plugin_trap"))
}

#[test]
fn a_tenants_own_plugins_serve_it_and_nobody_else() {
    for (kind, function) in [("chat-template", "render"), ("output-parser", "open")] {
        let broken =
            format!("tenants = [\"ac*\", \"other\"]\nsettings = {{ {function} = \"panic\" }}");
        let server = server(&binding(kind, &broken));
        assert_eq!(came_to(&server, ACME), trapped(), "{kind}");
        assert_eq!(came_to(&server, UMBRELLA), fine(), "{kind}");
        assert_eq!(came_to(&server, NOBODY), fine(), "{kind}");
    }
    let broken = "tenants = [\"acme\"]\nsettings = { compile = \"panic\" }";
    let server = server(&binding("grammar", broken));
    let constrained = json!({"response_format": {"type": "json_object"}});
    let status = |key| ask(&server, key, CHAT, constrained.clone()).status();
    assert_eq!([ACME, UMBRELLA, NOBODY].map(status), [500, 200, 200]);
}

#[test]
fn routes_choose_plugins_of_every_kind() {
    // A grammar for texts, and a template that would break down if texts had one.
    let grammar = "routes = [\"/v1/completions\"]\nsettings = { compile = \"panic\" }";
    let template = "routes = [\"/v1/comp*\"]\nsettings = { render = \"panic\" }";
    let parser = "routes = [\"/v1/comp*\"]\nsettings = { open = \"panic\" }";
    let bindings = [
        binding("grammar", grammar),
        binding("chat-template", template),
        binding("output-parser", parser),
        binding("tool", "routes = [\"/v1/comp*\"]"),
        binding(
            "policy",
            "routes = [\"/v1/models*\"]\nsettings = { authorize = \"panic\" }",
        ),
        "[[plugins.bindings]]\nkind = \"policy\"\n".to_owned(),
    ];
    let server = server(&bindings.concat());
    let constrained = json!({"response_format": {"type": "json_object"}});
    let chat = ask(&server, ACME, CHAT, constrained.clone());
    assert_eq!(chat.status(), 200, "{}", chat.text());
    let text = ask(&server, ACME, COMPLETIONS, constrained);
    assert_eq!(text.status(), 500, "{}", text.text());
    assert_eq!(ask(&server, ACME, COMPLETIONS, json!({})).status(), 200);
    assert_eq!(server.get("/v1/models").status(), 500);
    let tool = ask(&server, ACME, CHAT, json!({"server_tools": ["does"]}));
    assert_eq!(tool.json()["error"]["code"], "unknown_server_tool");
}

#[test]
fn the_most_specific_binding_serves_wherever_it_stands() {
    let broken = "settings = { render = \"panic\" }";
    let bindings = [
        binding(
            "chat-template",
            "tenants = [\"acme\"]\nroutes = [\"/v1/chat/*\"]",
        ),
        binding("chat-template", &format!("tenants = [\"acme\"]\n{broken}")),
        binding(
            "chat-template",
            &format!("models = [\"scripted\"]\n{broken}"),
        ),
        binding("chat-template", "tenants = [\"umb*\"]"),
        binding("chat-template", ""),
    ];
    let mut reversed = bindings.clone();
    reversed.reverse();
    for bindings in [bindings, reversed] {
        let server = server(&bindings.concat());
        assert_eq!(came_to(&server, ACME), fine(), "tenant and route");
        assert_eq!(came_to(&server, UMBRELLA), fine(), "tenant before model");
        assert_eq!(came_to(&server, NOBODY), trapped(), "model before all");
    }
}

#[test]
fn bindings_that_claim_the_same_requests_are_refused_by_their_lines() {
    // Lines 3, 7 and 11: the first two lines are those of `[plugins]`.
    for (first, second, third) in [
        ("", "", "models = [\"x\"]"),
        ("tenants = [\"a*\"]", "tenants = [\"*e\"]", ""),
        ("routes = [\"/v1/*\", \"*\"]", "routes = [\"/v1/*\"]", ""),
    ] {
        let binding =
            |more: &str| format!("[[plugins.bindings]]\nkind = \"output-parser\"\n{more}\n\n");
        let config = configuration(&[first, second, third].map(binding).concat());
        let folder = tempfile::tempdir().expect("make a folder");
        let path = folder.path().join("mortise.toml");
        std::fs::write(&path, config).expect("write the configuration");
        let message = refused(&["--config", path.to_str().expect("UTF-8")]);
        for part in [
            "bindings[0] (line 3)",
            "bindings[1] (line 7)",
            "output-parser",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn a_policy_of_a_tenant_is_asked_after_the_keys() {
    // No other policy is bound: the embedded one names the tenants by their keys.
    let broken = "tenants = [\"acme\"]\norder = -10\nsettings = { authorize = \"panic\" }";
    let server = server(&binding("policy", broken));
    assert_eq!(came_to(&server, ACME), trapped());
    assert_eq!(came_to(&server, UMBRELLA), fine());
    assert_eq!(came_to(&server, NOBODY), fine());
    assert_eq!(came_to(&server, "no-key").0, 401, "keys still count");
    // It narrows what the key allows, and its route counts as well.
    let keys = "tenants = [\"acme\"]\nroutes = [\"/v1/completions\"]\n";
    let server = self::server(&binding(
        "policy",
        &format!("{keys}settings = {{ authorize = \"panic\" }}"),
    ));
    assert_eq!(came_to(&server, ACME), fine());
    assert_eq!(ask(&server, ACME, COMPLETIONS, json!({})).status(), 500);
}

#[test]
fn j10_a_tenant_can_neither_name_nor_call_anothers_tools() {
    let server = server(&binding("tool", "tenants = [\"acme\"]"));
    let tools = json!({"server_tools": ["does"]});
    let own = ask(&server, ACME, CHAT, tools.clone());
    assert_eq!(own.status(), 200, "{}", own.text());
    for key in [UMBRELLA, NOBODY] {
        let response = ask(&server, key, CHAT, tools.clone());
        let error = response.json()["error"].clone();
        assert_eq!(response.status(), 400);
        assert_eq!(error["code"], "unknown_server_tool");
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains("no plugin offers this request any"),
            "{message}"
        );
        for others in ["refuses", "fails", "tells", "asks"] {
            assert!(!message.contains(others), "{message}");
        }
    }
}

#[test]
fn operators_are_told_whom_a_plugin_serves() {
    let bindings = [
        binding(
            "chat-template",
            "tenants = [\"acme\"]\nroutes = [\"/v1/chat/*\"]",
        ),
        binding("policy", "tenants = [\"umb*\"]\nmodels = [\"x\", \"y\"]"),
    ];
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    std::fs::write(&path, configuration(&bindings.concat())).expect("write the configuration");
    let output = Command::new(env!("CARGO_BIN_EXE_mortise"))
        .args(["plugin", "list", "--config"])
        .arg(&path)
        .output()
        .expect("run mortise");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    let admin = "[admin]\nport = 0\nkey = \"a key of the admin\"\n";
    let server = server(&format!("{}{admin}", bindings.concat()));
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("http://").expect("an address");
    let request = Request::get("/v1/admin/plugins");
    let status = request
        .header("authorization", "Bearer a key of the admin")
        .send(address.trim());
    for (serving, model) in [(&listed, "mortise-demo"), (&status.json(), "scripted")] {
        let serving = serving["serving"].as_array().expect("places");
        let conditions = |place: &Value| {
            ["kind", "model", "models", "tenants", "routes", "binding"]
                .map(|key| place[key].clone())
                .to_vec()
        };
        let shown: Vec<Vec<Value>> = serving.iter().map(conditions).collect();
        let (all, none) = (json!(["*"]), Value::Null);
        for expected in [
            // The embedded policy names the tenants for the one that is bound to some.
            json!(["policy", none, all, all, all, none]),
            json!(["policy", none, ["x", "y"], ["umb*"], all, 1]),
            json!(["chat-template", model, all, ["acme"], ["/v1/chat/*"], 0]),
            json!(["chat-template", model, all, all, all, none]),
        ] {
            let expected = expected.as_array().expect("a list");
            assert!(shown.contains(expected), "{expected:?} not in {shown:#?}");
        }
    }
}
