//! Orphans: none survives the server, however it ends.

use mortise_test_support as support;
use support::client::Request;
use support::until;

use super::{Parent, Script, asked, code, lives, said};

const FORKS: [&str; 4] = ["--pid", "FOLDER/pid", "--fork", "FOLDER/worker"];

/// The processes of a model that has served: it, a worker of its group, and one that left the group.
fn served(parent: &Parent) -> [u32; 3] {
    assert_eq!(said(&parent.chat("child", "Hi")), "child");
    let all = ["pid", "worker0", "worker1"].map(|file| parent.number(file));
    assert!(all.iter().all(|pid| lives(*pid)), "{all:?}");
    all
}

#[test]
fn feature_b3_no_process_survives_a_server_that_is_killed() {
    let Some(mut parent) = Parent::start(&[Script::new("child", &FORKS)], "") else {
        return;
    };
    let all = served(&parent);
    parent.server.signal("KILL");
    parent.server.wait();
    until("no process is left", || !all.iter().any(|pid| lives(*pid)));
}

#[test]
fn feature_c14_processes_are_ended_before_a_server_that_is_stopped() {
    let Some(mut parent) = Parent::start(&[Script::new("child", &FORKS)], "") else {
        return;
    };
    let all = served(&parent);
    parent.server.signal("TERM");
    assert!(parent.server.wait().success());
    assert!(!all.iter().any(|pid| lives(*pid)), "{all:?}");
}

#[test]
fn feature_c14_a_process_that_is_not_ready_yet_is_ended_with_its_server() {
    let never = ["--pid", "FOLDER/pid", "--never", "1"];
    let drain = "[server]\ndrain_seconds = 1\n";
    let Some(mut parent) = Parent::start(&[Script::new("child", &never)], drain) else {
        return;
    };
    let body = asked("child", "Hi");
    let waits = Request::post("/v1/chat/completions", &body).begin(parent.server.address());
    let pid = parent.number("pid");
    assert_eq!(parent.state("child"), "loading");
    // It is about to be loaded: an unload comes too early.
    let refused = parent.act("child", "unload");
    assert_eq!(code(&refused), (409, "model_loading".to_owned()));
    parent.server.signal("TERM");
    assert_eq!(waits.response().status(), 503);
    assert!(parent.server.wait().success());
    until("the process is gone", || !lives(pid));
}

#[test]
fn feature_b3_a_process_dies_with_its_guard() {
    let Some(parent) = Parent::start(&[Script::new("child", &FORKS)], "") else {
        return;
    };
    let [pid, in_group, _] = served(&parent);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, rest) = stat.rsplit_once(") ").expect("a state");
    let guard = rest.split(' ').nth(1).expect("a parent");
    super::kill(guard.parse().expect("a number"));
    until("the model has failed", || parent.state("child") == "failed");
    until("its process and its group are gone", || {
        !lives(pid) && !lives(in_group)
    });
    let row = parent.row("child");
    let error = row["last_error"].as_str().expect("an error");
    assert!(error.contains("guard"), "{error}");
    // The worker that left the group before is nobody's any more.
    super::kill(parent.number("worker1"));
}
