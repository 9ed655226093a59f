//! Tasks that must go on: each is made to panic in the running server, which starts it again and says so, or
//! ends with a message.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::client::{Request, Stream, events};
use crate::support::postgres::Postgres;
use crate::support::{Server, example, until, wait_for};

const KEY: &str = "an-admin-key-of-some-length";
const TEXT: &str = "/v1/completions";

/// A server in which faults can be injected, with everything that has a task.
struct Faulty {
    server: Server,
    faults: tempfile::TempDir,
    plugins: tempfile::TempDir,
}

/// Events of the admin side.
struct Followed(Stream);

impl Followed {
    fn wait_for(&mut self, wanted: &str) {
        let mut text = String::new();
        while !text.contains(wanted) {
            let chunk = self.0.chunk().expect("the stream goes on");
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
    }
}

impl Faulty {
    fn start() -> Self {
        Self::with("")
    }

    /// `more` is further configuration.
    fn with(more: &str) -> Self {
        let folder = || tempfile::tempdir().expect("make a folder");
        let (faults, plugins) = (folder(), folder());
        let config = format!(
            "[admin]\nport = 0\nkey = {KEY:?}\n[plugins]\ndir = {:?}\nwatch_ms = 50\n\
             [audit]\nfile = {:?}\n{more}",
            plugins.path(),
            faults.path().join("audit.jsonl")
        );
        let server = Server::configured_with(&config, &[("MORTISE_FAULTS", faults.path())]);
        Self {
            server,
            faults,
            plugins,
        }
    }

    /// `HOST:PORT` of the admin side.
    fn admin(&self) -> String {
        let line = self
            .server
            .wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line
            .split_once("admin side on http://")
            .expect("an address");
        address.trim_end_matches(['"', '}']).to_owned()
    }

    /// Events of the admin side from now on.
    fn follow(&self) -> Followed {
        let mut events = Request::get("/v1/admin/events")
            .header("x-admin-token", KEY)
            .begin(&self.admin());
        assert_eq!(events.head().status, 200);
        Followed(events)
    }

    /// Make a task panic, and wait until it has. `provoke` makes the task do something.
    fn strike(&self, task: &str, provoke: impl Fn()) {
        let file = self.faults.path().join(task);
        std::fs::write(&file, "").expect("write the file of the fault");
        until(&format!("the fault hits {task}"), || {
            provoke();
            !file.exists()
        });
    }

    /// The server counts the restart, and has told of it.
    fn was_restarted(&self, task: &str) {
        let counter = format!("mortise_task_restarts_total{{task=\"{task}\"}}");
        until(&format!("{task} is started again"), || {
            let page = self.server.get("/metrics").text();
            page.contains(&format!("{counter} 1\n"))
        });
        let panic = format!("a fault was injected into {task}");
        self.server.wait_for_log(|line| line.contains(&panic));
    }

    fn completion(&self) -> String {
        let body = json!({
            "model": "mortise-demo", "prompt": "One, two,", "max_tokens": 8, "temperature": 0,
        });
        let answer = self.server.post(TEXT, &body).ok();
        let text = answer["choices"][0]["text"].as_str();
        text.expect("a text").to_owned()
    }
}

#[test]
fn the_thread_that_writes_the_log_is_started_again() {
    let faulty = Faulty::start();
    let get = |path: &str| faulty.server.get(path).status();
    faulty.strike("log", || assert_eq!(get("/health"), 200));
    faulty.was_restarted("log");
    assert_eq!(get("/v1/afterwards"), 404);
    faulty.server.wait_for_log(|line| line.contains("404"));
}

#[test]
fn the_thread_that_counts_epochs_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("plugin-epochs", || ());
    faulty.was_restarted("plugin-epochs");
    let chat = json!({"model": "mortise-demo", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]});
    faulty.server.post("/v1/chat/completions", &chat).ok();
}

#[test]
fn the_watcher_of_plugins_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("plugin-watcher", || ());
    faulty.was_restarted("plugin-watcher");
    let bad = faulty.plugins.path().join("bad.wasm");
    std::fs::write(bad, "no plugin").expect("write a file");
    faulty.server.wait_for_log(|line| line.contains("bad.wasm"));
}

#[test]
fn the_task_that_hears_sighup_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("reload-on-hangup", || ());
    // Even a signal that comes before the task is there again is heard.
    let bad = faulty.plugins.path().join("bad.wasm");
    std::fs::write(bad, "no plugin").expect("write a file");
    faulty.server.signal("HUP");
    faulty.was_restarted("reload-on-hangup");
    faulty.server.wait_for_log(|line| line.contains("SIGHUP"));
}

#[test]
fn the_admin_side_is_started_again() {
    let faulty = Faulty::start();
    let line = faulty
        .server
        .wait_for_log(|line| line.contains("admin side on http://"));
    let (_, admin) = line.split_once("http://").expect("an address");
    faulty.strike("admin-listener", || ());
    faulty.was_restarted("admin-listener");
    let request =
        Request::get("/v1/admin/plugins").header("authorization", &format!("Bearer {KEY}"));
    request.send(admin).ok();
}

#[test]
fn the_task_that_records_models_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("audit-models", || ());
    faulty.was_restarted("audit-models");
}

#[test]
fn the_look_for_idle_models_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("idle-models", || ());
    faulty.was_restarted("idle-models");
}

#[test]
fn the_return_of_freed_memory_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("memory-trim", || ());
    faulty.was_restarted("memory-trim");
}

#[test]
fn the_look_at_what_other_servers_share_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("shared-store", || ());
    faulty.was_restarted("shared-store");
}

#[test]
fn the_look_at_store_and_disk_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("health", || ());
    faulty.was_restarted("health");
}

#[test]
fn feature_e7_a_stuck_engine_is_told_of_until_it_goes_on() {
    let faulty = Faulty::with("[health]\nengine_stall_seconds = 1\n");
    let ask = |path: &str| faulty.server.get(path);
    assert_eq!(
        (ask("/health").status(), ask("/ready").status()),
        (200, 200)
    );
    let stall = faulty.faults.path().join("engine-stall");
    std::fs::write(&stall, "").expect("write the file of the fault");
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| faulty.completion());
        until("the engine counts as stuck", || {
            ask("/health").status() == 503
        });
        assert_eq!(ask("/health").json()["checks"]["engine"], "failed");
        let ready = ask("/ready");
        assert_eq!(
            (ready.status(), &ready.json()["status"]),
            (503, &json!("not_ready"))
        );
        assert!(ready.json()["engine"]["stuck_seconds"].as_u64() >= Some(1));
        std::fs::remove_file(&stall).expect("remove it");
        answer.join().expect("it is answered after all");
    });
    assert_eq!(
        (ask("/health").status(), ask("/ready").status()),
        (200, 200)
    );
}

#[test]
fn a_load_whose_files_do_not_answer_is_given_up_and_others_are_loaded() {
    let demo = example::root().join("examples/demo-model/model");
    let model = |name: &str| {
        let enabled = name == "first";
        format!("[[models]]\nname = {name:?}\npath = {demo:?}\nenabled = {enabled}\n")
    };
    let models = ["first", "second", "third"].map(model).concat();
    let faulty = Faulty::with(&format!("[lifecycle]\nload_stall_seconds = 1\n{models}"));
    let admin = faulty.admin();
    let load = |name: &str| {
        let path = format!("/v1/admin/models/{name}/load");
        let request = Request::raw(&path, b"").header("x-admin-token", KEY);
        let answer = request.send(&admin);
        (answer.status(), answer.text())
    };
    let is_late = |(status, text): (u16, String), expected: u16| {
        assert!(text.contains("model_load_timeout"), "{text}");
        assert_eq!(status, expected, "{text}");
    };
    // Who opens a FIFO waits for its other end.
    let stall = faulty.faults.path().join("load-stall");
    let made = std::process::Command::new("mkfifo").arg(&stall).status();
    assert!(made.expect("run mkfifo").success());
    is_late(load("second"), 504);
    let held = faulty.faults.path().join("held");
    std::fs::rename(&stall, &held).expect("rename it");
    // Its thread still waits.
    is_late(load("second"), 409);
    assert_eq!(load("third").0, 200);
    let asked = json!({"model": "second", "prompt": "Hi", "max_tokens": 1});
    let refused = faulty.server.post(TEXT, &asked);
    is_late((refused.status(), refused.text()), 409);
    drop(std::fs::File::options().write(true).open(&held));
    until("it is loaded after all", || load("second").0 == 200);
    faulty.server.post(TEXT, &asked).ok();
}

#[test]
fn the_task_that_writes_counters_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("counters", || ());
    faulty.was_restarted("counters");
}

#[test]
fn the_task_that_keeps_shared_counters_is_started_again() {
    let faulty = Faulty::with("[valkey]\nurl = \"unix:///nonexistent/socket\"\n");
    faulty.strike("shared-counters", || ());
    faulty.was_restarted("shared-counters");
}

#[test]
fn the_task_that_hands_over_is_started_again() {
    let faulty = Faulty::start();
    faulty.strike("hand-over", || ());
    faulty.was_restarted("hand-over");
}

#[test]
fn the_task_that_sends_traces_is_started_again() {
    let faulty = Faulty::with("[traces]\nendpoint = \"http://127.0.0.1:9/v1/traces\"\n");
    faulty.strike("traces", || ());
    faulty.was_restarted("traces");
}

#[test]
fn the_checks_of_upstreams_are_started_again() {
    let upstream = "[[models]]\nname = \"far\"\n[models.upstream]\nurls = [\"http://127.0.0.1:9/v1\"]\n\
                    health_interval_ms = 50\n";
    let faulty = Faulty::with(upstream);
    faulty.strike("upstream-health", || ());
    faulty.was_restarted("upstream-health");
    let again = |line: &str| line.contains("upstream-health") && line.contains("started again");
    faulty.server.wait_for_log(again);
}

#[test]
fn the_tasks_of_a_shared_database_are_started_again() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.database("faults");
    let faulty = Faulty::with(&format!("[store]\nurl = {url:?}\n"));
    for task in ["store-beat", "store-sweep"] {
        faulty.strike(task, || ());
        faulty.was_restarted(task);
    }
    // Others still see that this host is there.
    let seen = || postgres.ask("faults", "select max(seen) from mortise.hosts");
    let before = seen();
    until("the host says again that it is there", || seen() != before);
}

#[test]
fn the_tasks_that_hear_of_the_end_are_started_again() {
    for (task, name) in [("stop-on-terminate", "TERM"), ("stop-on-interrupt", "INT")] {
        let mut faulty = Faulty::start();
        faulty.strike(task, || ());
        // It is not lost, even before the task is there again.
        faulty.server.signal(name);
        assert_eq!(faulty.server.wait().code(), Some(0), "{task}");
    }
}

#[test]
fn an_engine_begins_anew_and_ends_only_what_it_had() {
    let faulty = Faulty::start();
    let before = faulty.completion();
    for stream in [false, true] {
        let body =
            json!({"model": "mortise-demo", "prompt": "One", "max_tokens": 8, "stream": stream});
        let file = faulty.faults.path().join("engine");
        let restarts = || faulty.server.metric("mortise_engine_restarts_total{");
        let before_fault = restarts();
        // The turn that takes the request panics, unless a turn at the end of an earlier one did.
        let error = wait_for(|| {
            std::fs::write(&file, "").expect("write the file of the fault");
            let answer = faulty.server.post(TEXT, &body);
            let error = match stream {
                true => events(&answer.text())[0]["error"].clone(),
                false => answer.json()["error"].clone(),
            };
            match error.is_null() {
                true => Err("no request fails".to_owned()),
                false => Ok(error),
            }
        });
        assert_eq!(error["code"], "engine_error", "{error}");
        assert!(restarts() > before_fault);
        assert_eq!(faulty.completion(), before);
    }
    faulty
        .server
        .wait_for_log(|line| line.contains("begins anew"));
    until("nothing is left behind", || {
        faulty.server.metric("mortise_batch_size_decode{") == 0.0
            && faulty.server.metric("mortise_kv_blocks_used{") == 0.0
    });
}

#[test]
fn feature_z10_an_engine_that_fails_again_and_again_takes_no_requests() {
    let faulty = Faulty::with("[limits]\nbreaker_failures = 2\n");
    let file = faulty.faults.path().join("engine");
    let body = json!({"model": "mortise-demo", "prompt": "One", "max_tokens": 8});
    let open = || faulty.server.metric("mortise_engine_circuit_open{");
    assert_eq!(open(), 0.0);
    let mut events = faulty.follow();
    // The engine's loop panics in each turn until the circuit is open.
    let refused = wait_for(|| {
        std::fs::write(&file, "").expect("write the file of the fault");
        let answer = faulty.server.post(TEXT, &body);
        match answer.status() {
            503 => Ok(answer),
            status => Err(format!("{status} and no refusal")),
        }
    });
    let _ = std::fs::remove_file(&file);
    assert_eq!(refused.json()["error"]["code"], "model_unavailable");
    let wait = refused.header("retry-after").map(str::parse::<u64>);
    assert!(matches!(wait, Some(Ok(1..=31))), "{wait:?}");
    assert!(faulty.server.metric("mortise_engine_circuit_opened_total{") >= 1.0);
    let failed = |line: &str| line.contains("takes no requests for a pause");
    let line = faulty.server.wait_for_log(failed);
    assert!(line.contains("mortise-demo"), "{line}");
    events.wait_for("\"circuit\":\"open\"");
    // Until a probe has passed, its part is degraded, and only this model is refused: the server stays ready.
    let ready = faulty.server.get("/ready");
    assert_eq!(ready.status(), 200);
    assert_eq!(ready.json()["checks"]["engine"], "degraded");
    assert_eq!(ready.json()["engine"]["models_refused"], 1);
    until("a probe is answered", || {
        faulty.server.post(TEXT, &body).status() == 200
    });
    assert_eq!(open(), 0.0);
    let again = |line: &str| line.contains("answers again") && line.contains("mortise-demo");
    faulty.server.wait_for_log(again);
    events.wait_for("\"circuit\":\"closed\"");
    assert_eq!(faulty.server.get("/ready").json()["checks"]["engine"], "ok");
}

#[test]
fn without_its_listener_the_server_ends_and_says_why() {
    let mut faulty = Faulty::start();
    faulty.strike("listener", || ());
    let status = faulty.server.wait();
    assert_eq!(status.code(), Some(1));
    faulty
        .server
        .wait_for_log(|line| line.starts_with("mortise: the listener ended"));
}

#[test]
fn without_the_variable_nothing_is_injected() {
    let folder = tempfile::tempdir().expect("make a folder");
    let faulty = Faulty::start();
    assert!(
        faulty
            .server
            .log()
            .iter()
            .any(|line| line.contains("MORTISE_FAULTS is set"))
    );
    let server = Server::configured_with("", &[("SOMETHING_ELSE", folder.path())]);
    assert!(
        !server
            .log()
            .iter()
            .any(|line| line.contains("MORTISE_FAULTS"))
    );
    assert_eq!(server.get("/health").status(), 200);
}

/// Every task that the sources start as one that must go on has a test here.
#[test]
fn every_task_that_must_go_on_is_made_to_panic() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = include_str!("faults.rs");
    let mut found = 0;
    for file in sources(&crates) {
        let text = std::fs::read_to_string(file).expect("read the sources");
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for marker in ["supervise(\"", "must_go_on(\"", "fault_in!(\""] {
            for rest in text.split(marker).skip(1) {
                let name = rest.split('"').next().unwrap_or_default();
                assert!(own.contains(&format!("\"{name}\"")), "{name} has no test");
                found += 1;
            }
        }
    }
    assert!(found >= 17, "{found}");
}

/// The sources of all crates below a folder.
fn sources(crates: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    let mut folders: Vec<PathBuf> = entries(crates)
        .into_iter()
        .map(|folder| folder.join("src"))
        .filter(|folder| folder.is_dir())
        .collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "rs") => {
                    files.push(path);
                }
                false => {}
            }
        }
    }
    files
}
