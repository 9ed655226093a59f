//! Grants and demands of a binding: pins, signatures, settings, scope, order, and what happens when
//! its plugin breaks down.

use std::process::Command;

use ed25519_compact::{KeyPair, Seed};
use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};
use crate::support::example::every_kind as guest;
use crate::{house_rules, refused_with};

/// A server with a scripted model and these bindings, none of which is tried in vain.
fn server(bindings: &str) -> Server {
    Server::scripted(
        "lines = [{ when = \"object\", say = \"{}\" }, { when = \"think\", say = \"<think>\\nhm\\n</think>\\n\\nYes.\" }]\n\
         default = \"The answer.\"",
        &format!("[plugins]\nwatch_ms = 0\n{bindings}"),
    )
}

/// A binding of the guest.
fn binding(kind: &str, more: &str) -> String {
    let file = guest();
    format!("[[plugins.bindings]]\nkind = {kind:?}\nfile = {file:?}\n{more}\n")
}

fn ask(server: &Server, text: &str) -> Response {
    let messages = json!([{"role": "user", "content": text}]);
    let body = json!({"model": "scripted", "messages": messages});
    server.post("/v1/chat/completions", &body)
}

fn content(response: &Response) -> Value {
    assert_eq!(response.status(), 200, "{}", response.text());
    response.json()["choices"][0]["message"]["content"].clone()
}

fn code(response: &Response) -> Value {
    response.json()["error"]["code"].clone()
}

#[test]
fn a_pinned_file_must_have_its_digest() {
    let output = Command::new(env!("CARGO_BIN_EXE_mortise"))
        .arg("inspect")
        .arg(house_rules())
        .output()
        .expect("run mortise");
    let inspected: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(inspected["built_against"], "mortise:plugin@0.3.0");
    let digest = inspected["digest"].as_str().expect("a digest");
    let file = house_rules();
    let pinned = |digest: &str| {
        format!(
            "[[plugins.bindings]]\nkind = \"chat-template\"\nfile = {file:?}\nsha256 = {digest:?}\n"
        )
    };
    assert_eq!(content(&ask(&server(&pinned(digest)), "Hi")), "The answer.");
    let message = refused_with(&pinned(&"0".repeat(64)));
    assert!(
        message.contains(digest) && message.contains("plugins.bindings[0].sha256"),
        "{message}"
    );
}

#[test]
fn unsigned_and_tampered_files_are_refused_where_signatures_are_required() {
    let signer = KeyPair::from_seed(Seed::new([7; 32]));
    let wasm = std::fs::read(house_rules()).expect("read the plugin");
    let key: String = signer.pk.iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |wasm: &[u8], signature: Option<&[u8]>| {
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::write(folder.path().join("rules.wasm"), wasm).expect("write the plugin");
        if let Some(signature) = signature {
            std::fs::write(folder.path().join("rules.wasm.sig"), signature).expect("write");
        }
        let config = format!(
            "[server]\nport = 0\n[plugins]\ndir = {:?}\nstrict = true\nrequire_signed = true\ntrusted_keys = [{key:?}]\n",
            folder.path()
        );
        (folder, config)
    };
    let good = signer.sk.sign(&wasm, None);
    let (_folder, config) = start(&wasm, Some(good.as_ref()));
    let server = Server::configured(&config);
    server.wait_for_log(|line| line.contains("rules.wasm") && line.contains("serves"));
    let mut tampered = wasm.clone();
    *tampered.last_mut().expect("bytes") ^= 1;
    for (wasm, signature, reason) in [
        (&wasm, None, "no signature"),
        (
            &tampered,
            Some(good.as_ref()),
            "changed after it was signed",
        ),
    ] {
        let (_folder, config) = start(wasm, signature);
        let message = refused_with(&config);
        assert!(
            message.contains(reason) && message.contains("rules.wasm"),
            "{message}"
        );
    }
}

#[test]
fn a_broken_template_fails_its_request_or_falls_back() {
    let broken = "settings = { render = \"panic\" }";
    let closed = ask(&server(&binding("chat-template", broken)), "Hi");
    assert_eq!(
        (closed.status(), code(&closed)),
        (500, json!("plugin_trap"))
    );
    let binding = binding(
        "chat-template",
        &format!("on_failure = \"fallback\"\n{broken}"),
    );
    assert_eq!(content(&ask(&server(&binding), "Hi")), "The answer.");
}

#[test]
fn a_broken_parser_fails_its_request_or_passes_the_text_on() {
    let raw = "<think>\nhm\n</think>\n\nYes.";
    for function in ["constraint", "open", "feed"] {
        let broken = format!("settings = {{ {function} = \"panic\" }}");
        let closed = server(&binding("output-parser", &broken));
        let response = ask(&closed, "think");
        assert_eq!(
            (response.status(), code(&response)),
            (500, json!("plugin_trap")),
            "{function}"
        );
        let open = format!("on_failure = \"open\"\n{broken}");
        let said = content(&ask(&server(&binding("output-parser", &open)), "think"));
        // A parser that only could not say its constraint goes on to parse.
        assert!(
            said == raw || function == "constraint",
            "{function}: {said}"
        );
    }
}

#[test]
fn a_broken_grammar_fails_its_request_or_falls_back() {
    let constrained = |server: &Server| {
        let body = json!({
            "model": "scripted", "messages": [{"role": "user", "content": "an object"}],
            "response_format": {"type": "json_object"}, "max_tokens": 40,
        });
        server.post("/v1/chat/completions", &body)
    };
    let broken = "settings = { compile = \"panic\" }";
    let closed = constrained(&server(&binding("grammar", broken)));
    assert_eq!(
        (closed.status(), code(&closed)),
        (500, json!("plugin_trap"))
    );
    let binding = binding("grammar", &format!("on_failure = \"fallback\"\n{broken}"));
    let answer = constrained(&server(&binding));
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[test]
fn a_broken_policy_refuses_unless_it_is_told_to_be_passed_over() {
    // G6: what guards the server fails closed.
    let broken = "settings = { authorize = \"panic\" }";
    let closed = ask(&server(&binding("policy", broken)), "Hi");
    assert_eq!(
        (closed.status(), code(&closed)),
        (500, json!("plugin_trap"))
    );
    let open = binding("policy", &format!("on_failure = \"open\"\n{broken}"));
    assert_eq!(content(&ask(&server(&open), "Hi")), "The answer.");
    // The next one in the chain still has its say.
    let keys = "[[plugins.bindings]]\nkind = \"policy\"\norder = 1\n\
                settings = { anonymous = { allow = false } }\n";
    assert_eq!(ask(&server(&format!("{keys}{open}")), "Hi").status(), 401);
}

#[test]
fn policies_are_asked_in_their_order_about_their_routes() {
    // The guest lets everybody pass; the embedded policy wants a key.
    let keys = "[[plugins.bindings]]\nkind = \"policy\"\n\
                settings = { anonymous = { allow = false } }\n";
    let first = server(&format!("{keys}{}", binding("policy", "order = -1")));
    assert_eq!(ask(&first, "Hi").status(), 200, "the guest is asked first");
    let second = server(&format!("{keys}{}", binding("policy", "order = 1")));
    assert_eq!(ask(&second, "Hi").status(), 401, "the embedded one is");
    let lists = binding("policy", "order = -1\nroutes = [\"/v1/models*\"]");
    let lists = server(&format!("{keys}{lists}"));
    assert_eq!(lists.get("/v1/models").status(), 200);
    assert_eq!(ask(&lists, "Hi").status(), 401);
}

#[test]
fn j9_a_plugin_that_keeps_failing_is_suspended() {
    let binding = binding(
        "chat-template",
        "breaker = { failures = 3, window_ms = 600000, pause_ms = 600000 }\n\
         settings = { render = \"panic\" }",
    );
    let server = server(&binding);
    for _ in 0..3 {
        assert_eq!(code(&ask(&server, "Hi")), "plugin_trap");
    }
    let suspended = ask(&server, "Hi");
    assert_eq!(suspended.status(), 503);
    assert_eq!(code(&suspended), "plugin_suspended");
    let retry: u64 = suspended
        .header("retry-after")
        .and_then(|value| value.parse().ok())
        .expect("when to come back");
    assert!((1..=600).contains(&retry), "{retry}");
    let page = server.get("/metrics").text();
    for line in [
        "mortise_plugin_suspended{plugin=\"guest\",kind=\"chat-template\"} 1",
        "mortise_plugin_suspensions_total{plugin=\"guest\",kind=\"chat-template\"} 1",
        "mortise_plugin_faults_total{plugin=\"guest\",kind=\"chat-template\",function=\"chat-template.render\",fault=\"trap\"} 3",
        "mortise_plugin_call_duration_seconds_count{plugin=\"guest\",kind=\"chat-template\",function=\"chat-template.render\"} 4",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in\n{page}"
        );
    }
    // Another plugin is not concerned.
    let request = Request::post(
        "/v1/completions",
        &json!({"model": "scripted", "prompt": "Hi", "max_tokens": 3}),
    );
    assert_eq!(server.send(&request).status(), 200);
}

#[test]
fn bindings_that_make_no_sense_are_told_by_their_key() {
    for (binding, expected) in [
        (
            "kind = \"grammar\"\non_failure = \"open\"",
            "bindings[0].on_failure",
        ),
        (
            "kind = \"policy\"\non_failure = \"fallback\"",
            "\"closed\" or \"open\"",
        ),
        (
            "kind = \"grammar\"\nroutes = [\"/v1/*\", \"v1\"]",
            "`plugins.bindings[0].routes[1]` (line 3)",
        ),
        (
            "kind = \"policy\"\n\ntenants = []",
            "`plugins.bindings[0].tenants` (line 4)",
        ),
        (
            "kind = \"tool\"\ntenants = [\"a\",\n\"\"]",
            "`plugins.bindings[0].tenants[1]` (line 4)",
        ),
        (
            "kind = \"tool\"\nmodels = []",
            "`plugins.bindings[0].models` (line 3)",
        ),
        ("kind = \"grammar\"\norder = 1", "bindings[0].order"),
        ("kind = \"grammar\"\nsha256 = \"00\"", "bindings[0].sha256"),
        (
            "kind = \"grammar\"\nmemory_mib = 0",
            "bindings[0].memory_mib",
        ),
        (
            "kind = \"grammar\"\nbreaker = { pause_ms = 0 }",
            "breaker.pause_ms",
        ),
    ] {
        let message = refused_with(&format!("[[plugins.bindings]]\n{binding}\n"));
        assert!(message.contains(expected), "{message}");
    }
    let message = refused_with("[plugins]\nrequire_signed = true\n");
    assert!(message.contains("plugins.trusted_keys"), "{message}");
    let message = refused_with("[plugins]\ntrusted_keys = [\"0g\"]\n");
    assert!(message.contains("plugins.trusted_keys[0]"), "{message}");
}
