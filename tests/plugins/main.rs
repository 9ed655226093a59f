//! Operators at work with plugins: build one from `examples/`, drop it into a folder, and see
//! that it serves.

mod admin_bindings;
mod bindings;
mod declared;
mod grants;
mod guardrails;
mod keys_first;
mod leaks;
mod policy_grants;
mod quarantine;
mod retrievers;
mod surroundings;
mod swap;
mod templates;
mod threats;
mod tools;
mod uploads;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mortise_test_support as support;
use serde_json::{Value, json};
use support::Server;

/// `examples/plugins/house-rules`, built as its README line says.
fn house_rules() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::example::built("house-rules"))
}

/// A plugins folder with this file in it.
fn folder(name: &str, content: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("make a folder");
    std::fs::write(folder.path().join(name), content).expect("write the plugin");
    folder
}

fn plugins_folder() -> tempfile::TempDir {
    folder(
        "house_rules.wasm",
        &std::fs::read(house_rules()).expect("read the plugin"),
    )
}

fn answer(server: &Server) -> Value {
    let messages = json!([{"role": "user", "content": "What is mortise?"}]);
    let response = server.post(
        "/v1/chat/completions",
        &json!({"model": "mortise-demo", "messages": messages}),
    );
    assert_eq!(response.status(), 200, "{}", response.text());
    response.json()
}

#[test]
fn a_dropped_file_serves_and_the_log_says_so() {
    let plugins = plugins_folder();
    let dropped = Server::start(&["--plugins", plugins.path().to_str().expect("UTF-8")]);
    let line =
        dropped.wait_for_log(|line| line.contains("chat-template") && line.contains("serves"));
    assert!(
        line.contains("house_rules.wasm") && line.contains("mortise-demo"),
        "{line}"
    );
    // The other kinds stay with their defaults.
    let line =
        dropped.wait_for_log(|line| line.contains("output-parser") && line.contains("serves"));
    assert!(line.contains("embedded"), "{line}");

    let plain = Server::start(&[]);
    let tokens = |server: &Server| answer(server)["usage"]["prompt_tokens"].as_u64();
    assert!(
        tokens(&dropped) > tokens(&plain),
        "the rules of the dropped template are not in the prompt"
    );
}

#[test]
fn settings_of_the_configuration_reach_the_plugin() {
    let plugins = plugins_folder();
    let prompt_tokens = |rules: &str| {
        let server = Server::configured(&format!(
            "[plugins]\ndir = {:?}\n[[plugins.bindings]]\nkind = \"chat-template\"\nsettings = {{ rules = {rules} }}\n",
            plugins.path()
        ));
        answer(&server)["usage"]["prompt_tokens"].as_u64()
    };
    assert!(
        prompt_tokens("\"Answer in one word, please, and be kind to everyone.\"")
            > prompt_tokens("\"Hi\"")
    );
}

#[test]
fn bindings_choose_models_by_their_architecture() {
    // The demo model is a qwen3; this one says that it is a llama.
    let llama = tempfile::tempdir().expect("make a folder");
    let plain = support::model::byte_level();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(plain.join(file), llama.path().join(file)).expect("copy the model");
    }
    let config = json!({"model_type": "llama"}).to_string();
    std::fs::write(llama.path().join("config.json"), config).expect("write the configuration");
    let text = format!(
        "[plugins]\nwatch_ms = 0\n\
         [[plugins.bindings]]\nkind = \"chat-template\"\nfile = {:?}\narchitectures = [\"llama*\"]\n\
         [[models]]\nname = \"mortise-demo\"\n\
         [[models]]\nname = \"a-llama\"\npath = {:?}\nbackend = \"scripted\"\n\
         [models.script]\ndefault = \"The answer.\"\n\
         [[models]]\nname = \"nameless\"\npath = {plain:?}\nbackend = \"scripted\"\n\
         [models.script]\ndefault = \"The answer.\"\n",
        house_rules(),
        llama.path(),
    );
    let served_by = [
        ("mortise-demo", "embedded"),
        ("a-llama", "house_rules.wasm"),
        ("nameless", "embedded"),
    ];
    let server = Server::configured(&text);
    for (model, origin) in served_by {
        let line = server.wait_for_log(|line| {
            line.contains("plugin serves") && line.contains("chat-template") && line.contains(model)
        });
        assert!(line.contains(origin), "{line}");
    }

    // And an operator is told so beforehand.
    let config = llama.path().join("mortise.toml");
    std::fs::write(&config, text).expect("write the configuration");
    let output = Command::new(env!("CARGO_BIN_EXE_mortise"))
        .args(["plugin", "list", "--config"])
        .arg(config)
        .output()
        .expect("run mortise");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let serving = listed["serving"].as_array().expect("places");
    for (model, origin) in served_by {
        let of_model = |place: &&Value| place["model"] == model && place["kind"] == "chat-template";
        let place = serving.iter().find(of_model).expect("a template");
        let told = place["origin"].as_str().expect("an origin");
        assert!(told.ends_with(origin), "{model}: {told}");
    }
}

fn refused(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_mortise"))
        .args(["serve", "--port", "0"])
        .args(arguments)
        .output()
        .expect("run mortise");
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("panicked"), "{message}");
    message
}

#[test]
fn settings_that_a_plugin_refuses_keep_the_server_from_starting() {
    let plugins = plugins_folder();
    let config = plugins.path().join("mortise.toml");
    std::fs::write(
        &config,
        format!(
            "[plugins]\ndir = {:?}\n[[plugins.bindings]]\nkind = \"chat-template\"\nsettings = {{ rules = 5 }}\n",
            plugins.path()
        ),
    )
    .expect("write the configuration");
    let message = refused(&["--config", config.to_str().expect("UTF-8")]);
    assert!(
        message.contains("house_rules")
            && message.contains("plugins.bindings[0].settings.rules (line 5)")
            && message.contains("string"),
        "{message}"
    );
}

/// The message of a server that does not start with this configuration.
fn refused_with(config: &str) -> String {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    std::fs::write(&path, config).expect("write the configuration");
    refused(&["--config", path.to_str().expect("UTF-8")])
}

#[test]
fn misspelt_settings_of_default_plugins_are_told_by_their_line() {
    for (kind, right, misspelt, known) in [
        (
            "policy",
            "public_routes = []",
            "anonymos = { allow = true }",
            "`anonymous`",
        ),
        (
            "chat-template",
            "",
            "chat_tmplate = \"x\"",
            "`chat_template`",
        ),
        (
            "output-parser",
            "format = \"auto\"",
            "resoning = \"think\"",
            "`reasoning`",
        ),
    ] {
        let name = misspelt.split(' ').next().expect("a name");
        let config = format!(
            "[[plugins.bindings]]\nkind = {kind:?}\n[plugins.bindings.settings]\n{right}\n{misspelt}\n"
        );
        let message = refused_with(&config);
        let place = format!("plugins.bindings[0].settings.{name} (line 5)");
        for part in [&place, "the name is unknown", known] {
            assert!(message.contains(part), "{message}");
        }
    }
    let keys = "[[plugins.bindings]]\nkind = \"policy\"\n[[plugins.bindings.settings.keys]]\n\
                id = \"a\"\ntennant = \"acme\"\n";
    let message = refused_with(keys);
    let place = "plugins.bindings[0].settings.keys.0.tennant (line 5)";
    assert!(
        message.contains(place) && message.contains("`tenant`"),
        "{message}"
    );
}

/// The guest with a schema that takes no other settings than these.
fn packed(folder: &Path, names: &[&str]) -> PathBuf {
    let properties: serde_json::Map<_, _> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({})))
        .collect();
    let schema = json!({"additionalProperties": false, "properties": properties});
    let (schema_file, packed) = (folder.join("schema.json"), folder.join("packed.wasm"));
    std::fs::write(&schema_file, schema.to_string()).expect("write the schema");
    let output = Command::new(env!("CARGO_BIN_EXE_mortise"))
        .args(["plugin", "pack"])
        .arg(support::example::every_kind())
        .arg("--settings-schema")
        .args([&schema_file, Path::new("--output"), &packed])
        .output()
        .expect("run mortise");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    packed
}

#[test]
fn keys_go_to_the_policies_that_take_them() {
    let folder = tempfile::tempdir().expect("make a folder");
    let file = packed(folder.path(), &["authorize"]);
    let own = format!(
        "[[plugins.bindings]]\nkind = \"policy\"\norder = 1\nfile = {file:?}\n\
         settings = {{ authorize = \"nothing\" }}\n"
    );
    let keys = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"one\"\n";
    let default = "[[plugins.bindings]]\nkind = \"policy\"\n";
    let both = Server::scripted("default = \"x\"", &format!("{keys}{default}{own}"));
    let ask = |key: &str| {
        let body = json!({"model": "scripted", "prompt": "Hi", "max_tokens": 1});
        let request = support::client::Request::post("/v1/completions", &body);
        let request = request.header("authorization", &format!("Bearer {key}"));
        both.send(&request).status()
    };
    assert_eq!((ask("one"), ask("two")), (200, 401));
    // Alone, it would leave the keys unread.
    let message = refused_with(&format!("{keys}{own}"));
    for part in ["`[auth]` gives `keys`", "`packed`", "no file"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_broken_file_keeps_a_strict_server_from_starting_and_is_named() {
    let whole = std::fs::read(house_rules()).expect("read the plugin");
    for content in [&whole[..whole.len() / 2], b"not wasm at all", b""] {
        let plugins = folder("broken.wasm", content);
        let message = refused_with(&format!(
            "[plugins]\nstrict = true\ndir = {:?}\n",
            plugins.path()
        ));
        assert!(message.contains("broken.wasm"), "{message}");
    }
}
