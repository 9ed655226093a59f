//! Random operations of many clients against one server: loads, unloads, requests, switches of an alias, kills of a
//! process, scans. Nothing is lost, and nothing is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{binary, until, wait_for};
use crate::{Managed, asked, scripted};

const CLIENTS: u64 = 16;
/// Operations of all clients together, unless `MORTISE_OPERATIONS` says otherwise.
const OPERATIONS: u64 = 1000;
const MODELS: [&str; 4] = ["one", "two", "three", "child"];
/// Refusals that a model which comes and goes may answer with.
const REFUSALS: [&str; 9] = [
    "model_not_loaded",
    "model_loading",
    "model_unloading",
    "model_unloaded",
    "model_failed",
    "model_unavailable",
    "model_loaded",
    "model_load_failed",
    "upstream_error",
];

/// Random numbers that are the same for the same seed (xorshift64*, Vigna 2016).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn operations() -> u64 {
    let variable = std::env::var("MORTISE_OPERATIONS").ok();
    variable.map_or(OPERATIONS, |count| count.parse().expect("a number"))
}

/// A server whose models say their names; that of the last is another server, a process of the first.
fn server(folder: &Path) -> Managed {
    let says = |name: &str| scripted(name, &format!("default = \"I am {name}.\""), "");
    let inner = folder.join("child.toml");
    fs::write(&inner, says("child")).expect("written");
    let program = binary();
    let child = format!(
        "[[models]]\nname = \"child\"\nload_on_demand = false\n[models.child]\napi = \"mortise\"\n\
         command = [{program:?}, \"serve\", \"--config\", {inner:?}, \"--host\", \"{{host}}\", \"--port\", \
         \"{{port}}\"]\nmodel = \"child\"\n"
    );
    let models = folder.join("models");
    fs::create_dir_all(&models).expect("a folder");
    fs::write(models.join("found.gguf"), crate::library::tiny()).expect("written");
    let found = format!("[discovery]\nfolders = [{models:?}]\n");
    let alias = "[[aliases]]\nname = \"prod\"\ntarget = \"one\"\n";
    Managed::start(&format!(
        "{found}{alias}{}{}{}{child}",
        says("one"),
        says("two"),
        says("three")
    ))
}

/// Processes below a process, and their commands.
fn below(pid: u32) -> BTreeMap<u32, String> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("read /proc").flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        let number: u32 = number;
        // Processes may end meanwhile.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
        let mut words = behind.split(' ');
        let state = words.next().unwrap_or_default();
        let parent: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if state != "Z" {
            let command = fs::read_to_string(entry.path().join("cmdline"));
            parents.insert(number, (parent, command.unwrap_or_default()));
        }
    }
    let mut found = BTreeMap::new();
    let mut wanted = vec![pid];
    while let Some(pid) = wanted.pop() {
        for (number, (parent, command)) in &parents {
            if *parent == pid && found.insert(*number, command.clone()).is_none() {
                wanted.push(*number);
            }
        }
    }
    found
}

/// The text that a model says, or an allowed refusal.
fn check(name: &str, response: &crate::Response, told: &Mutex<BTreeMap<String, u64>>) {
    let count = |what: &str| {
        *told
            .lock()
            .expect("counts")
            .entry(what.to_owned())
            .or_default() += 1;
    };
    let body = response.json();
    if response.status() == 200 {
        let text = body["choices"][0]["message"]["content"]
            .as_str()
            .expect("a text");
        let says = |model: &&str| text == format!("I am {model}.");
        let speaker = MODELS
            .iter()
            .find(|model| says(model))
            .expect("one of them");
        assert!(name == "prod" || name == *speaker, "{name} says {text}");
        return count("answered");
    }
    let code = body["error"]["code"].as_str().expect("a code");
    assert!(REFUSALS.contains(&code), "{name}: {}", response.text());
    count(code);
}

/// One operation.
fn act(managed: &Managed, numbers: &mut Numbers, told: &Mutex<BTreeMap<String, u64>>) {
    let model = MODELS[numbers.below(4) as usize];
    match numbers.below(10) {
        choice @ 0..=2 => {
            let action = if choice < 2 { "load" } else { "unload" };
            let response = managed.act(model, action, "");
            let code = response.json()["error"]["code"].as_str().map(str::to_owned);
            let known = code.is_none_or(|code| REFUSALS.contains(&code.as_str()));
            assert!(known, "{action} of {model}: {}", response.text());
        }
        3 => {
            let target = MODELS[numbers.below(4) as usize];
            let body = json!({"target": model, "canary": {"target": target, "percent": 50}});
            let request = Request::post("/v1/admin/aliases/prod", &body);
            managed.ask(request.method("PUT")).ok();
        }
        4 => {
            let scan = managed.ask(Request::raw("/v1/admin/models/rescan", b""));
            assert!([200, 409].contains(&scan.status()), "{}", scan.text());
        }
        5 => {
            let processes = below(managed.server.pid());
            let servers = processes
                .iter()
                .filter(|(_, command)| command.split('\0').nth(1) == Some("serve"));
            for (pid, _) in servers {
                let mut kill = std::process::Command::new("kill");
                // It may have ended by itself.
                let _ = kill.args(["-s", "KILL", &pid.to_string()]).output();
            }
        }
        number => {
            let name = if number == 6 { "prod" } else { model };
            let mut body = asked(name);
            body["stream"] = Value::from(false);
            let response = managed.server.post("/v1/chat/completions", &body);
            check(name, &response, told);
        }
    }
}

/// Have all models unloaded, and wait until no process is left.
fn unload_all(managed: &Managed) {
    for model in MODELS {
        until("the model is unloaded", || {
            managed.act(model, "unload", "");
            ["unloaded", "failed"].contains(&managed.state(model).as_str())
        });
    }
    until("no process is left", || {
        below(managed.server.pid()).is_empty()
    });
}

/// Descriptors of the server, by what they are open on, and its threads, by name. The server is not asked: that would keep
/// idle threads from their end.
#[derive(Debug)]
struct Held {
    descriptors: Vec<String>,
    /// Descriptors of images of the memory of plugins.
    images: usize,
    threads: Vec<String>,
}

fn held(managed: &Managed) -> Held {
    let entries = |what: &str| {
        let folder = format!("/proc/{}/{what}", managed.server.pid());
        let entries = fs::read_dir(folder).expect("read /proc").flatten();
        entries.map(|entry| entry.path())
    };
    // Either may end meanwhile.
    let target = |path: PathBuf| Some(fs::read_link(path).ok()?.display().to_string());
    let name = |path: PathBuf| fs::read_to_string(path.join("comm")).ok();
    let (images, descriptors): (Vec<_>, Vec<_>) = entries("fd")
        .filter_map(target)
        .partition(|target| target.starts_with("/memfd:"));
    Held {
        descriptors,
        images: images.len(),
        threads: entries("task").filter_map(name).collect(),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn feature_l13_random_operations_of_many_clients_lose_nothing_and_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut managed = server(folder.path());
    for model in MODELS {
        managed.act(model, "load", "").ok();
        assert_eq!(managed.chat(model).status(), 200);
    }
    unload_all(&managed);
    let before = held(&managed);
    let told = Mutex::default();
    let count = operations();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (managed, told) = (&managed, &told);
            scope.spawn(move || {
                let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15 ^ (client + 1));
                for _ in 0..count.div_ceil(CLIENTS) {
                    act(managed, &mut numbers, told);
                }
            });
        }
    });
    println!("{count} operations: {:?}", told.lock().expect("counts"));
    assert!(told.lock().expect("counts")["answered"] > 0);
    unload_all(&managed);
    wait_for(|| {
        let now = held(&managed);
        // Passes that trim the memory may keep a thread of their own.
        // When an image is made depends on how long its plugin took to prepare: each default plugin may have one more.
        let as_before = now.descriptors.len() <= before.descriptors.len()
            && now.images <= before.images + 4
            && now.threads.len() <= before.threads.len() + 1;
        let missing = || format!("{now:?} are left, and there were {before:?}");
        as_before.then_some(()).ok_or_else(missing)
    });
    assert_eq!(managed.server.metric("mortise_requests_in_flight"), 1.0);
    for model in MODELS {
        managed.act(model, "load", "").ok();
        assert_eq!(managed.chat(model).status(), 200);
    }
    managed.server.assert_sound();
}
