//! The JSON file of llama-router, written anew as a file of this server.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::{Config, Overrides};

/// Largest file that is read, in bytes.
pub(crate) const MAX_ROUTER_FILE_BYTES: usize = 4 << 20;

/// Paths that llama-router passes on where its file lists none.
const PROXIED: [&str; 4] = ["/v1/", "/health", "/slots", "/props"];
/// Bytes that the key of the admin side has at least.
const LEAST_KEY_BYTES: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterFile {
    #[serde(default)]
    version: serde_json::Value,
    #[serde(default)]
    startup_model: String,
    #[serde(default)]
    router: Router,
    #[serde(default)]
    default_spawn: Spawn,
    #[serde(default)]
    models: Vec<RouterModel>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Router {
    host: String,
    port: u16,
    base_port: u16,
    connection_timeout_s: u64,
    read_timeout_s: u64,
    admin_token: String,
    notify_model_swap: bool,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8082,
            base_port: 50_000,
            connection_timeout_s: 5,
            read_timeout_s: 600,
            admin_token: String::new(),
            notify_model_swap: false,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Spawn {
    command: Vec<String>,
    proxy_endpoints: Vec<String>,
    health_endpoint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterModel {
    name: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    state: State,
    #[serde(default)]
    group: String,
    #[serde(default)]
    spawn: Option<Spawn>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Manual,
    Auto,
}

/// A router's file as a file of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRouter {
    /// The configuration, with the notes as comments.
    pub text: String,
    /// Differences to the router, each a sentence.
    pub notes: Vec<String>,
}

/// Write a router's file anew. What is written has been checked.
///
/// # Errors
/// With the place, when the file is none of a router's, or says what cannot be.
pub fn import_router(json: &str) -> Result<ImportedRouter, String> {
    if json.len() > MAX_ROUTER_FILE_BYTES {
        return Err(format!("it has more than {MAX_ROUTER_FILE_BYTES} bytes"));
    }
    let file: RouterFile = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let known = matches!(&file.version, serde_json::Value::Null)
        || file.version == 1
        || file.version == "1"
        || file.version == "1.0";
    if !known {
        return Err(format!("`version`: it must be 1; it is {}", file.version));
    }
    if file.models.is_empty() {
        return Err("`models`: there are none".to_owned());
    }
    let is_model = |model: &RouterModel| model.name == file.startup_model;
    if !file.startup_model.is_empty() && !file.models.iter().any(is_model) {
        return Err(format!(
            "`startup_model`: no model is called `{}`",
            file.startup_model
        ));
    }
    let mut notes = Vec::new();
    let table = table_of(&file, &mut notes)?;
    let written = toml::to_string(&table).map_err(|error| error.to_string())?;
    let checked = Config::of_text(&written, Path::new("mortise.toml"), Overrides::default());
    checked.map_err(|error| error.to_string())?;
    // A name must not end the comment that it stands in.
    for note in &mut notes {
        *note = note.replace(char::is_control, " ");
    }
    let comments: String = notes.iter().map(|note| format!("# {note}\n")).collect();
    Ok(ImportedRouter {
        text: format!("{comments}{written}"),
        notes,
    })
}

fn table_of(file: &RouterFile, notes: &mut Vec<String>) -> Result<Table, String> {
    let router = &file.router;
    let mut server = Table::new();
    server.insert("host".to_owned(), Value::from(router.host.as_str()));
    server.insert("port".to_owned(), Value::from(i64::from(router.port)));
    if !["127.0.0.1", "localhost", "::1"].contains(&router.host.as_str()) {
        server.insert("plaintext".to_owned(), Value::from(true));
        notes.push(
            "Other machines can reach the server, in the clear as before; see [server.tls]."
                .to_owned(),
        );
    }
    let mut table = Table::new();
    table.insert("server".to_owned(), Value::Table(server));
    if router.admin_token.len() >= LEAST_KEY_BYTES {
        table.insert("admin".to_owned(), Value::Table(admin(router, notes)));
    } else if !router.admin_token.is_empty() {
        notes.push(format!(
            "`admin_token` has less than {LEAST_KEY_BYTES} bytes and is left out, and so is the admin side: see [admin]."
        ));
    }
    let mut lifecycle = Table::new();
    if !file.startup_model.is_empty() {
        let name = Value::from(file.startup_model.as_str());
        lifecycle.insert("startup_model".to_owned(), name);
    }
    if router.notify_model_swap {
        lifecycle.insert("swap_notices".to_owned(), Value::from(true));
    }
    if !lifecycle.is_empty() {
        table.insert("lifecycle".to_owned(), Value::Table(lifecycle));
    }
    let waits = Router::default().connection_timeout_s;
    if router.connection_timeout_s != waits {
        notes.push(
            "`connection_timeout_s` has no counterpart: processes are on this machine.".to_owned(),
        );
    }
    let models: Result<Vec<Value>, String> = file
        .models
        .iter()
        .enumerate()
        .map(|(index, entry)| model(index, entry, file, notes).map(Value::Table))
        .collect();
    table.insert("models".to_owned(), Value::Array(models?));
    Ok(table)
}

/// The admin side, which has a port of its own here.
fn admin(router: &Router, notes: &mut Vec<String>) -> Table {
    let port = router.port.checked_add(1).unwrap_or(u16::MAX - 1);
    let mut admin = Table::new();
    admin.insert("port".to_owned(), Value::from(i64::from(port)));
    let key = Value::from(router.admin_token.as_str());
    admin.insert("key".to_owned(), key);
    notes.push(format!("The admin side has a port of its own: {port}."));
    admin
}

fn model(
    index: usize,
    entry: &RouterModel,
    file: &RouterFile,
    notes: &mut Vec<String>,
) -> Result<Table, String> {
    let spawn = entry.spawn.as_ref().unwrap_or(&file.default_spawn);
    let command = match spawn.command.is_empty() {
        true => &file.default_spawn.command,
        false => &spawn.command,
    };
    if command.is_empty() {
        return Err(format!(
            "`models[{index}].spawn.command`: neither it nor `default_spawn.command` says which program runs"
        ));
    }
    let name = &entry.name;
    if entry.state == State::Auto {
        notes.push(format!(
            "`{name}` was found by a scan and stays now though its file may go; [discovery] scans instead."
        ));
    }
    let other = |path: &String| !PROXIED.contains(&path.as_str());
    if let Some(path) = spawn.proxy_endpoints.iter().find(|path| other(path)) {
        notes.push(format!(
            "`{path}` of `{name}` is not passed on: this server has routes of its own."
        ));
    }
    let mut child = Table::new();
    let words = command.iter().map(|word| Value::from(word.as_str()));
    child.insert("command".to_owned(), Value::Array(words.collect()));
    child.insert("api".to_owned(), Value::from(api_of(command)));
    let base_port = i64::from(file.router.base_port);
    child.insert("base_port".to_owned(), Value::from(base_port));
    let wait = file.router.read_timeout_s.saturating_mul(1000);
    let wait = i64::try_from(wait).map_err(|_| "`router.read_timeout_s`: it is too long")?;
    for key in ["first_byte_timeout_ms", "chunk_timeout_ms"] {
        child.insert(key.to_owned(), Value::from(wait));
    }
    if !entry.group.is_empty() {
        child.insert("group".to_owned(), Value::from(entry.group.as_str()));
    }
    let health = spawn.health_endpoint.as_ref();
    if let Some(path) = health.or(file.default_spawn.health_endpoint.as_ref()) {
        child.insert("health_path".to_owned(), Value::from(path.as_str()));
    }
    let mut model = Table::new();
    model.insert("name".to_owned(), Value::from(name.as_str()));
    if !entry.path.is_empty() {
        model.insert("path".to_owned(), Value::from(entry.path.as_str()));
    }
    model.insert("child".to_owned(), Value::Table(child));
    Ok(model)
}

/// Fields that the program knows, by its name.
fn api_of(command: &[String]) -> &'static str {
    let program = command.first().map(|program| {
        let name = Path::new(program).file_stem();
        name.map(|name| name.to_string_lossy().into_owned())
    });
    match program.flatten().as_deref() {
        Some("llama-server") => "llama-server",
        Some("vllm") => "vllm",
        Some("mortise") => "mortise",
        _ => "openai",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"{
        "version": 1,
        "startup_model": "b",
        "router": {"host": "127.0.0.1", "port": 8082, "base_port": 51000, "connection_timeout_s": 5,
                   "read_timeout_s": 300, "admin_token": "", "notify_model_swap": true},
        "default_spawn": {"command": ["llama-server", "-c", "4096"],
                          "proxy_endpoints": ["/v1/", "/health", "/slots", "/props"], "health_endpoint": "/health"},
        "models": [
            {"name": "a", "path": "/models/a.gguf", "state": "auto", "group": ""},
            {"name": "b", "path": "/models/b.gguf", "state": "manual", "group": "small",
             "spawn": {"command": ["vllm", "serve"], "proxy_endpoints": ["/metrics"], "health_endpoint": "/ping"}}
        ]
    }"#;

    #[test]
    fn feature_c11_a_routers_file_becomes_a_configuration() {
        let imported = import_router(FILE).expect("a right file");
        let path = Path::new("/base/mortise.toml");
        let config =
            Config::of_text(&imported.text, path, Overrides::default()).expect("it is right");
        assert_eq!(config.port, 8082);
        let [a, b] = config.models.as_slice() else {
            panic!("two models");
        };
        let (child_a, child_b) = (
            a.child.as_ref().expect("one"),
            b.child.as_ref().expect("one"),
        );
        assert_eq!(child_a.command, ["llama-server", "-c", "4096"]);
        assert_eq!(child_b.command, ["vllm", "serve"]);
        assert_eq!(
            (child_a.base_port, child_b.group.as_deref()),
            (51000, Some("small"))
        );
        assert_eq!(child_b.health_path, "/ping");
        assert_eq!((a.lifecycle.enabled, b.lifecycle.enabled), (false, true));
        assert!(config.lifecycle.swap_notices);
        for part in ["`a` was found", "`/metrics` of `b`"] {
            assert!(
                imported.notes.iter().any(|note| note.contains(part)),
                "{part}"
            );
            assert!(imported.text.contains(part));
        }
    }

    #[test]
    fn feature_c11_what_a_routers_file_gets_wrong_is_named() {
        let with =
            |from: &str, to: &str| import_router(&FILE.replace(from, to)).expect_err("wrong");
        for (from, to, part) in [
            (
                r#""startup_model": "b""#,
                r#""startup_model": "c""#,
                "startup_model",
            ),
            (r#""version": 1"#, r#""version": 2"#, "version"),
            (r#""base_port""#, r#""basis""#, "basis"),
            (
                r#"["llama-server", "-c", "4096"]"#,
                "[]",
                "models[0].spawn.command",
            ),
            (r#""state": "auto""#, r#""state": "off""#, "off"),
            (r#""name": "a""#, r#""name": "b""#, "b"),
            (r#""base_port": 51000"#, r#""base_port": 80"#, "base_port"),
        ] {
            let message = with(from, to);
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        assert!(import_router("[").is_err() && import_router("{}").is_err());
    }

    proptest! {
        #[test]
        fn what_is_imported_can_be_read(
            name in "[a-z\"\\\\\n ]{1,8}", word in ".{1,12}", token in ".{0,20}", port in 0..=u16::MAX,
        ) {
            let file = serde_json::json!({
                "router": {"port": port, "admin_token": token},
                "models": [{"name": name, "state": "auto", "spawn": {"command": [word]}}],
            });
            if let Ok(imported) = import_router(&file.to_string()) {
                prop_assert!(Config::of_text(&imported.text, Path::new("m.toml"), Overrides::default()).is_ok());
            }
        }
    }
}
