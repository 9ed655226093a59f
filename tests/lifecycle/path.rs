//! The path of an operator in `docs/library.md`, command by command.

use std::fs;
use std::process::{Command, Output};

use serde_json::json;

use crate::hub::FakeHub;
use crate::library::{answers, library, tiny};
use crate::support::client::Request;
use crate::support::{binary, example, have};
use crate::{KEY, Managed};

/// Commands of the page, those that go on over several lines as one.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(example::root().join("docs/library.md")).expect("the page");
    let (_, section) = page.split_once("## An operator's path").expect("a section");
    let (_, block) = section.split_once("```sh\n").expect("commands");
    let (block, _) = block.split_once("```").expect("an end");
    let block = block.replace("\\\n", " ");
    block.lines().map(str::to_owned).collect()
}

fn run(managed: &Managed, command: &str) -> Output {
    let program = binary().display().to_string();
    let command = command
        .replace("mortise models", &format!("{program} models"))
        .replace("127.0.0.1:9000", &managed.admin)
        .replace(
            "--config mortise.toml",
            "--admin-url $ADMIN --admin-key-env MORTISE_ADMIN_KEY",
        );
    Command::new("sh")
        .args(["-c", &command])
        .env("ADMIN", format!("http://{}", managed.admin))
        .env("MORTISE_ADMIN_KEY", KEY)
        .output()
        .expect("run the command")
}

#[test]
fn feature_l12_an_operators_path_from_an_empty_configuration() {
    if !have(&["curl"]) {
        return;
    }
    let hub = FakeHub::start(&[("tiny.gguf", tiny())]);
    let folder = tempfile::tempdir().expect("a folder");
    let managed = Managed::with(&library(folder.path(), ""), &hub.variables());
    let commands = commands();
    assert!(commands.len() >= 9, "{commands:?}");
    let alias = || managed.ask(Request::get("/v1/admin/aliases/prod"));
    let mut canaries = 0;
    for command in &commands {
        let output = run(&managed, command);
        assert!(output.status.success(), "{command}: {output:?}");
        if command.contains("canary") {
            let canary = &alias().ok()["canary"];
            let meant = ["target", "percent"].map(|field| canary[field].clone());
            assert_eq!(meant, [json!("lab/second"), json!(10.0)]);
            assert_eq!(answers(&managed, "prod"), 200);
            canaries += 1;
        }
        if command.contains("rollback") {
            assert_eq!(alias().ok()["canary"], json!(null));
            assert_eq!(answers(&managed, "prod"), 200);
        }
    }
    assert_eq!(canaries, 1);
    let list = managed.server.get("/v1/models").ok();
    let models = list["data"].as_array().expect("a list").iter();
    let names: Vec<&str> = models.filter_map(|model| model["id"].as_str()).collect();
    assert!(
        names.contains(&"lab/first") && !names.contains(&"lab/second"),
        "{names:?}"
    );
    assert_eq!(managed.state("lab%2Ffirst"), "loaded");
}
