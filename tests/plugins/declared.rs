//! Plugins that say themselves which models they serve.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::house_rules;
use crate::support::{self, Server};

fn mortise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mortise"))
        .args(arguments)
        .output()
        .expect("run mortise")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Pack a template that says what it serves, as its author would. The name ends in `.wasm`.
fn pack(folder: &Path, name: &str, serves: &Value) -> Output {
    let declared = folder.with_extension("json");
    std::fs::write(&declared, serves.to_string()).expect("write the declaration");
    let (declared, output) = (text(&declared), folder.join(name));
    let rest = ["--serves", declared, "--output", text(&output)];
    mortise(&[&["plugin", "pack", text(house_rules())], &rest[..]].concat())
}

fn packed(folder: &Path, name: &str, serves: &Value) {
    let output = pack(folder, name, serves);
    assert!(output.status.success(), "{output:?}");
}

/// Two models, one of which says that it is a llama, and a folder of plugins.
struct Site {
    folder: tempfile::TempDir,
    config: String,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let plain = support::model::byte_level();
        let llama = folder.path().join("llama");
        for made in [&llama, &folder.path().join("plugins")] {
            std::fs::create_dir(made).expect("make a folder");
        }
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(plain.join(file), llama.join(file)).expect("copy the model");
        }
        let kind = json!({"model_type": "llama"}).to_string();
        std::fs::write(llama.join("config.json"), kind).expect("write the configuration");
        let scripted = "backend = \"scripted\"\n[models.script]\ndefault = \"The answer.\"\n";
        let config = format!(
            "[plugins]\nwatch_ms = 20\ndir = {:?}\n\
             [[models]]\nname = \"mine\"\npath = {plain:?}\n{scripted}\
             [[models]]\nname = \"a-llama\"\npath = {llama:?}\n{scripted}",
            folder.path().join("plugins"),
        );
        let file = folder.path().join("mortise.toml");
        std::fs::write(&file, config).expect("write the configuration");
        let config = text(&file).to_owned();
        Self { folder, config }
    }

    fn plugins(&self) -> std::path::PathBuf {
        self.folder.path().join("plugins")
    }

    /// Origin of the chat template that serves each model, as `mortise plugin list` tells it.
    fn listed(&self) -> Result<Vec<(String, String)>, String> {
        let output = mortise(&["plugin", "list", "--config", &self.config]);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let serving = listed["serving"].as_array().expect("places");
        let templates = serving
            .iter()
            .filter(|place| place["kind"] == "chat-template");
        let name = |value: &Value| {
            let name = value.as_str().expect("a name");
            name.rsplit('/').next().expect("a name").to_owned()
        };
        let pairs = templates.map(|place| (name(&place["model"]), name(&place["origin"])));
        Ok(pairs.collect())
    }
}

fn pairs(expected: [(&str, &str); 2]) -> Result<Vec<(String, String)>, String> {
    Ok(expected
        .map(|(model, origin)| (model.to_owned(), origin.to_owned()))
        .to_vec())
}

#[test]
fn templates_serve_the_models_that_they_are_for() {
    let site = Site::new();
    let folder = site.plugins();
    packed(
        &folder,
        "llamas.wasm",
        &json!({"architectures": ["llama*"]}),
    );
    assert_eq!(
        site.listed(),
        pairs([("mine", "embedded"), ("a-llama", "llamas.wasm")])
    );

    // One that says nothing serves the rest; a name is more specific than an architecture.
    let plain = std::fs::read(house_rules()).expect("read the plugin");
    std::fs::write(folder.join("all.wasm"), plain).expect("write the plugin");
    assert_eq!(
        site.listed(),
        pairs([("mine", "all.wasm"), ("a-llama", "llamas.wasm")])
    );
    packed(&folder, "named.wasm", &json!({"models": ["a-*"]}));
    assert_eq!(
        site.listed(),
        pairs([("mine", "all.wasm"), ("a-llama", "named.wasm")])
    );

    // Neither of two is taken on a guess.
    packed(&folder, "other.wasm", &json!({"models": ["*-a"]}));
    assert_eq!(
        site.listed(),
        pairs([("mine", "all.wasm"), ("a-llama", "named.wasm")])
    );
    packed(&folder, "other.wasm", &json!({"models": ["a*a"]}));
    let told = site.listed().expect_err("a tie");
    for part in [
        "named.wasm",
        "other.wasm",
        "`a-llama`",
        "[[plugins.bindings]]",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_file_that_a_binding_names_serves_by_it_alone() {
    let site = Site::new();
    let folder = site.plugins();
    let plain = std::fs::read(house_rules()).expect("read the plugin");
    let file = folder.join("bound.wasm");
    std::fs::write(&file, plain).expect("write the plugin");
    let mut config = std::fs::read_to_string(&site.config).expect("read the configuration");
    config.push_str(&format!(
        "[[plugins.bindings]]\nkind = \"chat-template\"\nmodels = [\"mine\"]\nfile = {file:?}\n"
    ));
    std::fs::write(&site.config, config).expect("write the configuration");
    assert_eq!(
        site.listed(),
        pairs([("mine", "bound.wasm"), ("a-llama", "embedded")])
    );
}

#[test]
fn a_dropped_template_finds_its_model() {
    let site = Site::new();
    let server = Server::start(&["--config", &site.config]);
    let staged = site.folder.path().join("staged");
    std::fs::create_dir(&staged).expect("make a folder");
    packed(&staged, "llamas.wasm", &json!({"architectures": ["llama"]}));
    let dropped = site.plugins().join("llamas.wasm");
    std::fs::rename(staged.join("llamas.wasm"), dropped).expect("drop it in");
    let line = server.wait_for_log(|line| line.contains("serves") && line.contains("llamas.wasm"));
    assert!(line.contains("a-llama"), "{line}");
    let messages = json!([{"role": "user", "content": "What is mortise?"}]);
    let prompt = |model: &str| {
        let question = json!({"model": model, "messages": messages});
        let answer = server.post("/v1/chat/completions", &question);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer.json()["usage"]["prompt_tokens"].as_u64()
    };
    assert!(
        prompt("a-llama") > prompt("mine"),
        "its rules are in the prompt"
    );
}

#[test]
fn declarations_that_make_no_sense_are_told() {
    let site = Site::new();
    let output = pack(&site.plugins(), "x.wasm", &json!({"model": ["a"]}));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && told.contains("unknown field `model`"),
        "{told}"
    );

    // Packed by another tool.
    let mut wasm = std::fs::read(house_rules()).expect("read the plugin");
    let section = b"\x0emortise:serves{\"models\": []}";
    wasm.extend([0, section.len() as u8]);
    wasm.extend(section);
    let file = site.plugins().join("x.wasm");
    std::fs::write(&file, wasm).expect("write the plugin");
    let verified = mortise(&["plugin", "verify", text(&file)]);
    let told = [
        String::from_utf8_lossy(&verified.stderr).into_owned(),
        site.listed().expect_err("it is refused"),
    ];
    assert!(!verified.status.success());
    for told in told {
        assert!(
            told.contains("`models` of `mortise:serves` has 0 patterns"),
            "{told}"
        );
    }
}
