//! Keys of callers are taken first and on their own at a reload: what is wrong with the rest keeps none in force.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::client::Request;
use crate::support::{Server, model, until};

const ADMIN_KEY: &str = "an-admin-key-of-some-length";

/// A key of callers, as the settings have it.
fn key(name: &str) -> String {
    format!("[[auth.api_keys]]\nid = {name:?}\nkey = \"key-{name}\"\n")
}

/// A scripted model that says this.
fn scripted(said: &str) -> String {
    format!(
        "[[models]]\nname = \"scripted\"\npath = {:?}\nbackend = \"scripted\"\n[models.script]\ndefault = {said:?}\n",
        model::byte_level()
    )
}

/// A template that a file has.
fn template(file: &Path) -> String {
    format!(
        "[[plugins.bindings]]\nkind = \"chat-template\"\n[plugins.bindings.templates]\nfiled = {{ file = {file:?} }}\n"
    )
}

fn policy(file: &Path) -> String {
    format!("[[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\n")
}

struct Keyed(Server);

impl Keyed {
    fn start(config: &str) -> Self {
        let admin = format!("[admin]\nport = 0\nkey = {ADMIN_KEY:?}\n");
        Self(Server::configured(&format!("{admin}{config}")))
    }

    fn configure(&self, config: &str) {
        let admin = format!("[admin]\nport = 0\nkey = {ADMIN_KEY:?}\n");
        self.0.configure(&format!("{admin}{config}"));
    }

    /// Status of a request with a key, or without any.
    fn status(&self, key: Option<&str>) -> u16 {
        let request = Request::get("/v1/models");
        let request = match key {
            Some(key) => request.header("authorization", &format!("Bearer key-{key}")),
            None => request,
        };
        self.0.send(&request).status()
    }

    fn hang_up(&self, key: &str, status: u16) {
        self.0.signal("HUP");
        until(&format!("the key {key} has status {status}"), || {
            self.status(Some(key)) == status
        });
    }

    /// State of the last reload, as `/ready` tells it.
    fn reload(&self) -> Value {
        self.0.get("/ready").json()["plugins"]["reload"].clone()
    }

    /// Error of the last reload, as the admin side tells it.
    fn error(&self) -> String {
        let line = self
            .0
            .wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line.split_once("http://").expect("an address");
        let request = Request::get("/v1/admin/plugins");
        let request = request.header("authorization", &format!("Bearer {ADMIN_KEY}"));
        let status = request.send(address.trim_end_matches(['"', '}'])).ok();
        status["error"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_fifo_as_a_template_keeps_no_key_in_force_and_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("filed.jinja");
    std::fs::write(&file, "{{ messages[0].content }}").expect("written");
    let rest = format!("{}{}", template(&file), scripted("Yes."));
    let keyed = Keyed::start(&format!("{rest}{}{}", key("stays"), key("goes")));
    assert_eq!(keyed.status(Some("goes")), 200);
    std::fs::remove_file(&file).expect("removed");
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("run mkfifo").success());
    keyed.configure(&format!("{rest}{}", key("stays")));
    keyed.hang_up("goes", 401);
    assert_eq!(keyed.status(Some("stays")), 200);
    until("the reload has failed", || keyed.reload() == "failed");
    let error = keyed.error();
    assert!(
        error.contains("filed.jinja") && error.contains("a FIFO, not a regular file"),
        "{error}"
    );
    // The turn was given back.
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, "{{ messages[0].content }}").expect("written");
    keyed.configure(&format!("{rest}{}{}", key("stays"), key("new")));
    keyed.hang_up("new", 200);
    keyed
        .0
        .wait_for_log(|line| line.contains("settings were read again"));
    assert_eq!(keyed.reload(), Value::Null);
}

#[test]
fn plugins_that_fail_and_models_in_use_keep_no_key_in_force() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("absent.wasm");
    let yes = scripted("Yes.");
    let keyed = Keyed::start(&format!("{yes}{}{}", key("stays"), key("first")));
    keyed.configure(&format!("{yes}{}{}", policy(&absent), key("stays")));
    keyed.hang_up("first", 401);
    until("the reload has failed", || keyed.reload() == "failed");
    assert!(keyed.error().contains("absent.wasm"), "{}", keyed.error());
    // An unknown key elsewhere, and a key that is another now.
    let other = "[[auth.api_keys]]\nid = \"stays\"\nkey = \"key-other\"\n";
    keyed.configure(&format!("[server]\nprot = 1\n{yes}{other}"));
    keyed.hang_up("stays", 401);
    assert_eq!(keyed.status(Some("other")), 200);
    // A loaded model would have to be another.
    keyed.configure(&format!("{}{}", scripted("No."), key("last")));
    keyed.hang_up("last", 200);
    assert_eq!(keyed.status(Some("other")), 401);
    keyed
        .0
        .wait_for_log(|line| line.contains("nothing was changed but who may call"));
}

#[test]
fn without_its_last_key_the_server_is_not_open_before_the_rest_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("absent.wasm");
    let yes = scripted("Yes.");
    let keyed = Keyed::start(&format!("{yes}{}", key("only")));
    keyed.configure(&format!("{yes}{}", policy(&absent)));
    keyed.0.signal("HUP");
    until("the reload has failed", || keyed.reload() == "failed");
    assert_eq!((keyed.status(Some("only")), keyed.status(None)), (200, 401));
    keyed.configure(&yes);
    keyed.0.signal("HUP");
    until("anybody is served", || keyed.status(None) == 200);
}
