//! `mortise health`: its exit status, over HTTP, TLS and a socket, and where container files use it.

use std::path::Path;

use serde_json::Value;

use crate::commands::{mortise, printed};
use crate::support::Server;
use crate::tls::{Authority, secured};

/// The report of a healthy server.
fn report(arguments: &[&str]) -> Value {
    let all = [&["health", "--json"][..], arguments].concat();
    serde_json::from_str(&printed(&all, "")).expect("JSON")
}

/// Message of a command that must end with 1.
fn refused(arguments: &[&str]) -> String {
    let output = mortise(&[&["health"][..], arguments].concat(), "");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    told
}

#[test]
fn a_healthy_server_is_status_0() {
    let server = Server::start(&[]);
    let url = server.url("");
    for address in [&url[..], &server.url("/v1"), &server.url("/")] {
        assert_eq!(report(&["--url", address])["status"], "ok", "{address}");
    }
    let ready = report(&["--url", &url, "--ready"]);
    assert_eq!(ready["status"], "ready");
    assert_eq!(ready["checks"]["models"], "ok");
    let line = printed(&["health", "--ready", "--url", &url], "");
    assert!(line.starts_with("ready  engine ok  models ok"), "{line}");
    // Keys of callers are not asked for.
    let keyed = Server::start(&["--api-key", "the-key"]);
    report(&["--url", &keyed.url(""), "--ready"]);
}

#[test]
fn a_server_that_is_not_ready_is_status_1_and_the_part_is_named() {
    let folder = tempfile::tempdir().expect("make a folder");
    let store = folder.path().join("state.db");
    let config = format!(
        "[store]\npath = {store:?}\n[health]\nmin_free_mib = 1000000000\nrequired = [\"disk\"]\n"
    );
    let server = Server::configured(&config);
    let url = server.url("");
    crate::support::until("the disk is looked at", || {
        server.get("/ready").status() == 503
    });
    assert_eq!(report(&["--url", &url])["status"], "ok");
    let told = refused(&["--url", &url, "--ready"]);
    assert!(
        told.contains("503: disk has failed") && told.contains("the server's log says why"),
        "{told}"
    );
    // The report is printed all the same.
    let output = mortise(&["health", "--ready", "--json", "--url", &url], "");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["checks"]["disk"], "failed");
}

#[test]
fn a_server_that_does_not_answer_is_status_1() {
    let told = refused(&["--url", "http://127.0.0.1:1"]);
    assert!(
        told.contains("does not answer") && told.contains("`mortise serve` starts a server"),
        "{told}"
    );
    let told = refused(&["--socket", "/nowhere/mortise.sock"]);
    assert!(
        told.contains("`/nowhere/mortise.sock` does not answer"),
        "{told}"
    );
    // One that takes the connection and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let told = refused(&["--url", &url, "--timeout", "1"]);
    assert!(told.contains("does not answer"), "{told}");
}

#[test]
fn health_is_asked_over_tls_of_a_private_authority() {
    let (server, authority) = secured("", "default = \"Hi.\"\n");
    let url = format!("https://{}", server.address());
    let ca = authority.file("ca.pem");
    let ca = ca.to_str().expect("UTF-8");
    assert_eq!(report(&["--url", &url, "--ca", ca])["status"], "ok");
    // Another authority is not believed, nor are the public ones of use.
    let stranger = Authority::new();
    let stranger = stranger.file("ca.pem");
    let told = refused(&["--url", &url, "--ca", stranger.to_str().expect("UTF-8")]);
    assert!(
        told.contains("does not answer") && told.contains("--ca"),
        "{told}"
    );
    assert!(refused(&["--url", &url]).contains("does not answer"));
}

#[test]
fn health_is_asked_over_a_socket() {
    let folder = tempfile::tempdir().expect("make a folder");
    let socket = folder.path().join("mortise.sock");
    let mut server = Server::configured(&format!("[server]\nsocket = {socket:?}\n"));
    let socket = socket.to_str().expect("UTF-8");
    assert_eq!(report(&["--socket", socket, "--ready"])["status"], "ready");
    // A server that is stopped answers no more.
    server.signal("STOP");
    let told = refused(&["--socket", socket, "--timeout", "1"]);
    assert!(told.contains("does not answer"), "{told}");
    server.signal("CONT");
    server.assert_sound();
}

#[test]
fn feature_z15_containers_ask_for_health_by_the_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file");
    let file = text("packaging/Containerfile");
    let image = file.lines().find(|line| line.starts_with("HEALTHCHECK "));
    let image = image.and_then(|line| line.split(" CMD ").nth(1));
    let compose = text("examples/deployment/compose.yaml");
    let own = compose.split("\n  mortise:\n").nth(1).expect("the service");
    let own = own.split("\n  postgres:\n").next().unwrap_or_default();
    let own = own
        .lines()
        .find_map(|line| line.trim().strip_prefix("test: "));
    let server = Server::start(&[]);
    let url = server.url("");
    for (command, words) in [(image, 0), (own, 1)] {
        let words_of: Vec<String> =
            serde_json::from_str(command.expect("a check")).expect("a list of words");
        let words: Vec<&str> = words_of[words..].iter().map(String::as_str).collect();
        assert_eq!(words[..2], ["mortise", "health"]);
        printed(&[&words[1..], &["--url", &url]].concat(), "");
    }
}
