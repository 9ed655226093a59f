//! The start of a server with several models.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use crate::support::client::Request;
use crate::support::{binary, until};
use crate::{KEY, Managed, asked, code, said, scripted};

const BAD: &str = "[[models]]\nname = \"bad\"\npath = \"/no/such/folder\"\n";

#[test]
fn one_bad_model_is_failed_and_the_others_serve() {
    let managed = Managed::start(&format!("{BAD}{}", scripted("good", "default = \"g\"", "")));
    assert_eq!(said(&managed.chat("good")), "g");
    let refused = managed.chat("bad");
    assert_eq!(code(&refused), (409, "model_failed".to_owned()));
    assert!(
        !refused.text().contains("/no/such/folder"),
        "paths are for operators"
    );
    let row = managed.row("bad");
    assert_eq!(row["runtime_state"], "failed");
    let error = row["last_error"].as_str().expect("a reason");
    assert!(error.contains("/no/such/folder"), "{error}");
    let ready = managed.server.get("/ready").ok();
    assert_eq!(ready["models"]["failed"], 1);
    assert_eq!(ready["checks"]["models"], "degraded");
    let again = managed.act("bad", "load", "");
    assert_eq!(code(&again), (500, "model_load_failed".to_owned()));
    assert_eq!(
        managed.act("bad", "unload", "").ok()["runtime_state"],
        "unloaded"
    );
    assert_eq!(managed.row("bad")["last_error"], serde_json::Value::Null);
}

/// Exit code and log of a server that is not to start.
fn refused(config: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    std::fs::write(&path, config).expect("write the configuration");
    let output = Command::new(binary())
        .args(["serve", "--port", "0", "--config"])
        .arg(&path)
        .args(arguments)
        .output()
        .expect("run mortise");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), log)
}

#[test]
fn strict_servers_and_those_without_any_model_do_not_start() {
    let both = format!("{BAD}{}", scripted("good", "default = \"g\"", ""));
    let strict = format!("[lifecycle]\nstrict = true\n{both}");
    for (config, arguments) in [
        (&strict, &[][..]),
        (&both, &["--strict"]),
        (&BAD.to_owned(), &[]),
    ] {
        let (exit, log) = refused(config, arguments);
        assert_eq!(exit, Some(1), "{log}");
        assert!(log.contains("/no/such/folder"), "{log}");
    }
}

#[test]
fn two_models_of_one_name_are_refused_before_anything_is_loaded() {
    let twice = scripted("same", "default = \"g\"", "");
    let (exit, log) = refused(&format!("{twice}{twice}"), &[]);
    assert_eq!(exit, Some(2), "{log}");
    assert!(log.contains("`same` stands for both"), "{log}");
}

/// A server whose only model is being loaded for as long as it lives: its hub takes the question and never answers.
struct Starting {
    child: std::process::Child,
    address: String,
    _hub: TcpListener,
    _folder: tempfile::TempDir,
}

impl Starting {
    fn begin() -> Self {
        use std::io::{BufRead as _, BufReader};
        let hub = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let endpoint = format!("http://{}", hub.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("make a folder");
        let config = "[[models]]\nname = \"secret-name\"\nhf = \"secret/model\"\n";
        let path = folder.path().join("mortise.toml");
        std::fs::write(&path, config).expect("write the configuration");
        let mut child = Command::new(binary())
            .args(["serve", "--port", "0", "--config"])
            .arg(&path)
            .env("HF_ENDPOINT", endpoint)
            .env("HF_HUB_CACHE", folder.path())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("start mortise");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = lines
            .map_while(Result::ok)
            .find(|line| line.contains("loading models"))
            .expect("the address is told");
        let (_, address) = line.split_once("address=").expect("an address");
        let address = address.split(' ').next().expect("an address").to_owned();
        Self {
            child,
            address,
            _hub: hub,
            _folder: folder,
        }
    }

    fn get(&self, path: &str) -> crate::support::client::Response {
        Request::get(path).send(&self.address)
    }

    /// SIGTERM ends it properly.
    fn end(mut self) {
        let killed = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(killed.expect("run kill").success());
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn health_is_told_from_the_first_moment() {
    let starting = Starting::begin();
    assert_eq!(starting.get("/health").status(), 200);
    let ready = starting.get("/ready");
    assert_eq!(ready.status(), 503);
    assert_eq!(ready.json()["status"], "starting");
    until("the model is being loaded", || {
        starting.get("/ready").json()["models"][0]["state"] == "loading"
    });
    let ready = starting.get("/ready");
    assert!(
        !ready.text().contains("secret"),
        "names are for callers with a key"
    );
    let models = starting.get("/v1/models");
    assert_eq!(code(&models), (503, "server_starting".to_owned()));
    let message = starting.get("/v1/messages");
    assert_eq!(message.status(), 529, "{}", message.text());
    assert_eq!(message.json()["error"]["type"], "overloaded_error");
    starting.end();
}

/// Names of the members of a value, at every depth.
fn shape(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        serde_json::Value::Array(items) => items.iter().map(shape).collect(),
        _ => "value".into(),
    }
}

#[test]
fn while_models_load_every_route_refuses_in_the_shape_of_its_dialect() {
    let managed = Managed::start(&scripted("near", "default = \"n\"", ""));
    let contract = managed.server.get("/openapi.json").ok();
    let routes = contract["paths"].as_object().expect("routes");
    let starting = Starting::begin();
    let mut compared = 0;
    for route in routes.keys() {
        let path = route.replace(['{', '}'], "");
        let ask = |address: &str| Request::get(&path).method("PATCH").send(address);
        let running = ask(managed.server.address());
        if running.status() != 405 {
            continue;
        }
        let early = ask(&starting.address);
        assert!(early.status() >= 400, "{route}: {}", early.text());
        assert!(early.header("x-request-id").is_some(), "{route}");
        let (mut early, running) = (early.json(), running.json());
        // Told where it helps to come back, which it does not where the method is wrong.
        if let Some(error) = early["error"].as_object_mut() {
            error.remove("retry_after_seconds");
        }
        assert_eq!(shape(&early), shape(&running), "{route}: {early} {running}");
        compared += 1;
    }
    assert!(compared > 30, "{compared} of {} routes", routes.len());
    starting.end();
}

#[test]
fn a_load_goes_on_when_the_caller_that_asked_for_it_leaves() {
    // A hub that answers, and refuses, when it is told to.
    let hub = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let endpoint = format!("http://{}", hub.local_addr().expect("an address"));
    let (answer, told) = mpsc::channel::<()>();
    thread::spawn(move || {
        let _ = told.recv();
        for connection in hub.incoming() {
            let mut connection = connection.expect("a connection");
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(
                b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            );
        }
    });
    let folder = tempfile::tempdir().expect("make a folder");
    let far = "[[models]]\nname = \"far\"\nhf = \"lab/far\"\nenabled = false\n";
    let config = format!("{far}{}", scripted("near", "default = \"n\"", ""));
    let variables = [
        ("HF_ENDPOINT", Path::new(&endpoint)),
        ("HF_HUB_CACHE", folder.path()),
    ];
    let managed = Managed::with(&config, &variables);
    let load = Request::raw("/v1/admin/models/far/load", b"")
        .header("authorization", &format!("Bearer {KEY}"))
        .begin(&managed.admin);
    until("the model is being loaded", || {
        managed.state("far") == "loading"
    });
    drop(load);
    // The server has seen the end of that connection when it has answered on later ones.
    for _ in 0..10 {
        assert_eq!(said(&managed.chat("near")), "n");
        assert_eq!(managed.state("far"), "loading");
    }
    answer.send(()).expect("the hub waits");
    until("the load has come to its end", || {
        managed.state("far") == "failed"
    });
    let row = managed.row("far");
    assert!(row["last_error"].is_string(), "{row}");
}

/// A hub that takes questions and never answers, and a server whose model `far` is to come from it.
fn waiting(folder: &Path, more: &str) -> (TcpListener, Managed) {
    let hub = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let endpoint = format!("http://{}", hub.local_addr().expect("an address"));
    let far = "[[models]]\nname = \"far\"\nhf = \"lab/far\"\nenabled = false\n";
    let config = format!(
        "[lifecycle]\nload_on_demand = true\n{more}\n{far}{}",
        scripted("near", "default = \"n\"", "")
    );
    let variables = [
        ("HF_ENDPOINT", Path::new(&endpoint)),
        ("HF_HUB_CACHE", folder),
    ];
    (hub, Managed::with(&config, &variables))
}

#[test]
fn a_request_waits_for_a_load_within_its_own_time_and_others_are_served() {
    let folder = tempfile::tempdir().expect("make a folder");
    let (_hub, managed) = waiting(folder.path(), "");
    let ask = Request::post("/v1/chat/completions", &asked("far"));
    let late = managed.server.send(&ask.header("x-request-timeout", "0.3"));
    assert_eq!(code(&late), (408, "request_timeout".to_owned()));
    // The load goes on, and holds up nobody.
    assert_eq!(managed.state("far"), "loading");
    assert_eq!(said(&managed.chat("near")), "n");
}

#[test]
fn a_server_that_is_stopped_during_a_load_ends_and_tells_who_waits() {
    let folder = tempfile::tempdir().expect("make a folder");
    let (_hub, mut managed) = waiting(folder.path(), "[server]\ndrain_seconds = 5\n");
    let load = Request::raw("/v1/admin/models/far/load", b"")
        .header("authorization", &format!("Bearer {KEY}"))
        .begin(&managed.admin);
    until("the model is being loaded", || {
        managed.state("far") == "loading"
    });
    let asked =
        Request::post("/v1/chat/completions", &asked("far")).begin(managed.server.address());
    until("the request waits", || {
        managed.row("far")["inflight_requests"] == 1
    });
    managed.server.signal("TERM");
    let asked = asked.response();
    assert_eq!(code(&asked), (503, "server_stopping".to_owned()));
    assert_eq!(code(&load.response()), (503, "stopping".to_owned()));
    assert!(managed.server.wait().success());
}
