//! Crashes: of what was asked, and of nothing else.

use mortise_test_support as support;
use support::until;

use serde_json::json;

use super::{Parent, Script, code, kill, lives, said};
use crate::support::client::Request;

#[test]
fn feature_b7_a_crash_fails_its_requests_and_marks_its_model_and_nothing_else() {
    let crashes = ["--pid", "FOLDER/pid"];
    let models = [
        Script {
            child: "group = \"all\"",
            ..Script::new("crashes", &crashes)
        },
        Script {
            child: "group = \"all\"",
            ..Script::new("stays", &["--say", "still here"])
        },
    ];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    assert_eq!(said(&parent.chat("stays", "Hi")), "still here");
    let response = parent.chat("crashes", "die");
    assert_eq!(code(&response), (502, "upstream_error".to_owned()));
    let message = response.json()["error"]["message"].to_string();
    assert!(message.contains("exit status: 3"), "{message}");
    assert!(!message.contains("something went wrong"), "{message}");
    until("the model has failed", || {
        parent.state("crashes") == "failed"
    });
    let row = parent.row("crashes");
    let error = row["last_error"].as_str().expect("an error");
    for part in ["exit status: 3", "something went wrong inside"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // It is not loaded by requests any more, until an operator does.
    let response = parent.chat("crashes", "Hi");
    assert_eq!(code(&response), (409, "model_failed".to_owned()));
    assert_eq!(said(&parent.chat("stays", "Hi")), "still here");
    parent.act("crashes", "load").ok();
    assert_eq!(said(&parent.chat("crashes", "Hi")), "child");
    kill(parent.number("pid"));
    until("the signal is told", || {
        let row = parent.row("crashes");
        let error = row["last_error"].as_str().unwrap_or_default();
        error.contains("signal: 9")
    });
}

#[test]
fn feature_b7_a_crashed_process_is_restarted_where_it_is_configured() {
    let pid = ["--pid", "FOLDER/pid"];
    let models = [Script {
        child: "restart = 2\nrestart_pause_ms = 10",
        ..Script::new("again", &pid)
    }];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    assert_eq!(said(&parent.chat("again", "Hi")), "child");
    for _ in 0..2 {
        let before = parent.number("pid");
        kill(before);
        until("another process serves", || {
            parent.state("again") == "loaded" && parent.number("pid") != before
        });
        assert_eq!(said(&parent.chat("again", "Hi")), "child");
    }
    let last = parent.number("pid");
    kill(last);
    until("two restarts are all", || parent.state("again") == "failed");
    assert!(!lives(last));
}

#[test]
fn feature_b7_m6_a_restart_keeps_the_settings_of_the_load() {
    let models = [Script {
        child: "restart = 2\nrestart_pause_ms = 10",
        ..Script::new("again", &["--pid", "FOLDER/pid"])
    }];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    parent.act("again", "unload").ok();
    let pinned = Request::post("/v1/admin/models/again/load", &json!({"pinned": true}));
    parent.ask(pinned).ok();
    let before = parent.number("pid");
    kill(before);
    until("another process serves", || {
        parent.state("again") == "loaded" && parent.number("pid") != before
    });
    let row = parent.row("again");
    assert_eq!(row["pinned"], true);
    assert_eq!(row["load_override"], json!({"pinned": true}));
}
