//! `mortise serve --upstream URL`: in front of a server that runs already, by one command.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;

use crate::support::upstream::FakeUpstream;
use crate::support::{Server, binary};
use crate::{CHAT, chat, content};

#[test]
fn remote_one_command_stands_in_front_of_a_running_server() {
    let speaker = Server::configured(
        "[[models]]\nname = \"one\"\nbackend = \"scripted\"\n[models.script]\n\
         kind = \"conversation\"\ndefault = \"I am one.\"\n\
         [[models]]\nname = \"two\"\nbackend = \"scripted\"\n[models.script]\n\
         kind = \"conversation\"\ndefault = \"I am two.\"\n",
    );
    let server = Server::start(&["--upstream", &speaker.url("/v1")]);
    let list = server.get("/v1/models").ok();
    let ids: Vec<_> = list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(ids, ["one", "two"]);
    assert_eq!(list["data"][0]["max_model_len"], 32_768);
    for (model, answer) in [("one", "I am one."), ("two", "I am two.")] {
        assert_eq!(content(&server.post(CHAT, &chat(model, "Hi")).ok()), answer);
    }
}

#[test]
fn remote_the_family_of_servers_is_told_by_the_list() {
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello"));
    let arguments = [
        "--upstream",
        &upstream.url(),
        "--upstream-key-env",
        "CARGO_PKG_NAME",
    ];
    let server = Server::start(&arguments);
    let mut body = chat("m", "Hi");
    body["top_k"] = json!(0);
    server.post(CHAT, &body).ok();
    let received = upstream.received().pop().expect("a request");
    assert_eq!(received.json()["top_k"], -1, "as vLLM has it");
    assert_eq!(received.header("authorization"), Some("Bearer mortise"));
}

#[test]
fn remote_the_next_upstream_is_asked_for_the_list_and_aliases_of_the_file_go_along() {
    let speaker = Server::configured(
        "[[models]]\nname = \"one\"\nbackend = \"scripted\"\n[models.script]\n\
         kind = \"conversation\"\ndefault = \"I am one.\"\n",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mortise.toml");
    let text = "[[models]]\nname = \"here\"\n[[aliases]]\nname = \"prod\"\ntarget = \"one\"\n\
                [[aliases]]\nname = \"other\"\ntarget = \"here\"\n";
    std::fs::write(&file, text).expect("written");
    // Nothing listens on port 9.
    let dead = "http://127.0.0.1:9/v1";
    let server = Server::start(&[
        "--upstream",
        dead,
        "--upstream",
        &speaker.url("/v1"),
        "--config",
        file.to_str().expect("UTF-8"),
    ]);
    for told in [dead, "`[[models]]` of the files are not served", "`other`"] {
        server.wait_for_log(|line| line.contains("WARN") && line.contains(told));
    }
    let answer = server.post(CHAT, &chat("prod", "Hi")).ok();
    assert_eq!(content(&answer), "I am one.");
    assert_eq!(server.post(CHAT, &chat("other", "Hi")).status(), 404);
}

#[test]
fn remote_an_upstream_that_is_not_there_is_said_so() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let serve = |url: &str| {
        let output = Command::new(binary())
            .args(["serve", "--port", "0", "--upstream", url])
            .output()
            .expect("run mortise");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let (code, told) = serve(&format!("http://{address}/v1"));
    assert_eq!(code, Some(1));
    assert!(
        told.contains("is it running?") && told.contains(&address.to_string()),
        "{told}"
    );
    let (code, told) = serve("http://me:s3cret@127.0.0.1/v1");
    assert_eq!(code, Some(2));
    assert!(
        told.contains("--upstream") && !told.contains("s3cret"),
        "{told}"
    );
}
