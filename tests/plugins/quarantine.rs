//! Files of the plugin folder that are no plugins, or no good ones: the server starts and reloads without
//! them, and says so.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{Server, wait_for};
use crate::{house_rules, refused_with};

const KEY: &str = "an-admin-key-of-some-length";

/// A server with this folder of plugins, looked at often, and an admin side.
struct Guarded {
    server: Server,
    admin: String,
    _config: tempfile::TempDir,
}

impl Guarded {
    fn start(plugins: &Path, more: &str) -> Self {
        let config = tempfile::tempdir().expect("make a folder");
        let path = config.path().join("mortise.toml");
        let text = format!(
            "[admin]\nport = 0\nkey = {KEY:?}\n[plugins]\ndir = {plugins:?}\nwatch_ms = 50\n{more}\n\
             [[models]]\nname = \"scripted\"\npath = {:?}\nbackend = \"scripted\"\n\
             [models.script]\ndefault = \"The answer.\"\n",
            crate::support::model::byte_level()
        );
        std::fs::write(&path, text).expect("write the configuration");
        let server = Server::start(&["--config", path.to_str().expect("UTF-8")]);
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line.split_once("http://").expect("an address");
        Self {
            admin: address.trim().to_owned(),
            server,
            _config: config,
        }
    }

    fn status(&self) -> Value {
        let request = Request::get("/v1/admin/plugins");
        let request = request.header("authorization", &format!("Bearer {KEY}"));
        request.send(&self.admin).ok()
    }

    /// Wait until the template comes from a file of this name, or from none.
    fn serves(&self, file: &str) {
        wait_for(|| {
            let status = self.status();
            let serving = status["serving"].as_array().expect("places").clone();
            let template = serving
                .iter()
                .find(|place| place["kind"] == "chat-template");
            let origin = template.and_then(|place| place["origin"].as_str());
            match origin.is_some_and(|origin| origin.ends_with(file)) {
                true => Ok(()),
                false => Err(format!("{file}: {status:#}")),
            }
        });
    }

    fn answers(&self) {
        let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]});
        let answer = self.server.post("/v1/chat/completions", &body).ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "The answer.");
    }

    fn ready(&self) -> Value {
        self.server.get("/ready").ok()
    }
}

/// Things that are named like plugins and are none, each with a part of the reason.
const ODDITIES: [(&str, &str); 7] = [
    ("fifo", "a FIFO"),
    ("socket", "a socket"),
    ("folder", "a folder"),
    ("device", "a device"),
    ("broken link", "No such file"),
    ("name", "not UTF-8"),
    ("control characters", "not a component"),
];

/// Put one of them into a folder; what must be dropped last.
fn add(folder: &Path, oddity: &str) -> Option<UnixListener> {
    let path = folder.join("odd.wasm");
    match oddity {
        "fifo" => {
            let made = Command::new("mkfifo").arg(&path).status();
            assert!(made.expect("run mkfifo").success());
        }
        "socket" => return Some(UnixListener::bind(&path).expect("bind")),
        "folder" => std::fs::create_dir(&path).expect("make a folder"),
        "device" => std::os::unix::fs::symlink("/dev/zero", &path).expect("link"),
        "broken link" => std::os::unix::fs::symlink("nowhere", &path).expect("link"),
        "name" => {
            let name = OsStr::from_bytes(b"odd-\xff\xfe.wasm");
            std::fs::copy(house_rules(), folder.join(name)).expect("copy");
        }
        _ => std::fs::write(folder.join("odd\n\u{1b}[31m.wasm"), b"x").expect("write"),
    }
    None
}

#[test]
fn odd_files_end_no_reload() {
    for (oddity, reason) in ODDITIES {
        let folder = tempfile::tempdir().expect("make a folder");
        let mut guarded = Guarded::start(folder.path(), "");
        assert_eq!(guarded.ready()["checks"]["plugins"], "ok");
        let held = add(folder.path(), oddity);
        // By the watcher, with what comes after.
        std::fs::copy(house_rules(), folder.path().join("rules.wasm")).expect("copy");
        guarded.serves("rules.wasm");
        std::fs::remove_file(folder.path().join("rules.wasm")).expect("remove");
        guarded.serves("embedded");
        // By SIGHUP, more than once.
        for _ in 0..2 {
            let reloads = || {
                guarded
                    .server
                    .metric("mortise_plugin_reloads_total{outcome=\"unchanged\"")
            };
            let before = reloads();
            guarded.server.signal("HUP");
            wait_for(|| match reloads() > before {
                true => Ok(()),
                false => Err(format!("no reload with {oddity}")),
            });
        }
        let status = guarded.status();
        let rejected = status["rejected"].as_array().expect("a list");
        assert_eq!(rejected.len(), 1, "{oddity}: {status:#}");
        let told = rejected[0]["reason"].as_str().expect("a reason");
        if oddity != "control characters" {
            assert!(told.contains(reason), "{oddity}: {told}");
        }
        assert_eq!(guarded.ready()["plugins"]["refused_files"], 1);
        let log = guarded.server.log();
        assert!(log.iter().all(|line| !line.contains('\u{1b}')), "{log:?}");
        guarded.answers();
        guarded.server.assert_sound();
        drop(held);
    }
}

#[test]
fn a_server_starts_without_odd_and_broken_files_and_says_so() {
    let whole = std::fs::read(house_rules()).expect("read the plugin");
    let half = whole[..whole.len() / 2].to_vec();
    let contents = [
        ("cut off", half),
        ("no wasm", b"not wasm at all".to_vec()),
        ("empty", Vec::new()),
    ];
    let broken = contents
        .iter()
        .map(|(name, content)| (*name, Some(content)));
    let odd = ODDITIES.iter().map(|(name, _)| (*name, None));
    for (name, content) in broken.chain(odd) {
        let folder = tempfile::tempdir().expect("make a folder");
        let held = match content {
            Some(content) => {
                std::fs::write(folder.path().join("odd.wasm"), content).expect("write");
                None
            }
            None => add(folder.path(), name),
        };
        std::fs::copy(house_rules(), folder.path().join("rules.wasm")).expect("copy");
        let mut guarded = Guarded::start(folder.path(), "");
        guarded.serves("rules.wasm");
        guarded.answers();
        assert_eq!(
            guarded.ready()["plugins"],
            json!({"refused_files": 1, "reload": "ok"}),
            "{name}"
        );
        assert_eq!(
            guarded.status()["rejected"].as_array().map(Vec::len),
            Some(1),
            "{name}"
        );
        guarded
            .server
            .wait_for_log(|line| line.contains("starts without it") && line.contains("odd"));
        guarded.server.assert_sound();
        drop(held);
    }
}

#[test]
fn a_file_that_is_mended_serves_and_nothing_is_told_of_it_any_more() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("rules.wasm");
    std::fs::write(&path, b"half a plugin").expect("write");
    let guarded = Guarded::start(folder.path(), "");
    guarded.serves("embedded");
    assert_eq!(guarded.ready()["plugins"]["refused_files"], 1);
    std::fs::copy(house_rules(), &path).expect("copy");
    guarded.serves("rules.wasm");
    assert_eq!(guarded.ready()["checks"]["plugins"], "ok");
}

#[test]
fn a_strict_server_starts_with_all_or_not_at_all() {
    for (oddity, _) in ODDITIES {
        let folder = tempfile::tempdir().expect("make a folder");
        let held = add(folder.path(), oddity);
        let config = format!("[plugins]\nstrict = true\ndir = {:?}\n", folder.path());
        assert!(refused_with(&config).contains("odd"), "{oddity}");
        drop(held);
    }
}

/// To start without a policy that the operator wanted would be to let everybody in.
#[test]
fn no_server_starts_without_a_policy() {
    let policy = std::fs::read(crate::support::example::built("daily-quota")).expect("read");
    let half = &policy[..policy.len() * 9 / 10];
    for content in [half.to_vec(), [b"x".to_vec(), policy.clone()].concat()] {
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::write(folder.path().join("quota.wasm"), &content).expect("write");
        let message = refused_with(&format!("[plugins]\ndir = {:?}\n", folder.path()));
        assert!(message.contains("quota.wasm"), "{message}");
    }
    // Nor without a file that the configuration names.
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("rules.wasm");
    std::fs::write(&file, b"no wasm").expect("write");
    let message = refused_with(&format!(
        "[plugins]\ndir = {:?}\n[[plugins.bindings]]\nkind = \"chat-template\"\nfile = {file:?}\n",
        folder.path()
    ));
    assert!(message.contains("rules.wasm"), "{message}");
}
