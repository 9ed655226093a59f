//! Unload while requests are under way.

use std::thread;

use serde_json::json;

use crate::support::client::Request;
use crate::support::{Server, until, wait_for};
use crate::{Managed, asked, code, scripted};

#[test]
fn feature_l6_running_answers_end_and_new_requests_are_refused() {
    let slow = "default = \"abcdefghij\"\ntoken_delay_ms = 5\nrepeat = 40";
    let managed = Managed::start(&format!(
        "{}{}",
        scripted("slow", slow, ""),
        scripted("other", "default = \"o\"", "")
    ));
    let mut request = asked("slow");
    request["stream"] = json!(true);
    let mut stream =
        Request::post("/v1/chat/completions", &request).begin(managed.server.address());
    assert_eq!(stream.head().status, 200);
    thread::scope(|scope| {
        let unloading = scope.spawn(|| managed.act("slow", "unload", ""));
        until("it is being unloaded", || {
            managed.state("slow") == "unloading"
        });
        let refused = managed.chat("slow");
        assert_eq!(code(&refused), (409, "model_unloading".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("1"));
        let refused = managed.act("slow", "load", "");
        assert_eq!(code(&refused), (409, "model_unloading".to_owned()));
        managed.chat("other").ok();
        let mut text = String::new();
        while let Some(chunk) = stream.chunk() {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        assert!(text.contains("\"finish_reason\":\"stop\""), "{text}");
        assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
        let row = unloading.join().expect("joins").ok();
        assert_eq!(row["runtime_state"], "unloaded");
    });
}

#[test]
fn feature_l6_queued_requests_are_told_that_the_model_is_unloaded() {
    // One sequence at a time: of eight choices, seven wait.
    let managed = Managed::start("[limits]\nmax_batch = 1\n[[models]]\nname = \"m\"\n");
    let mut request = asked("m");
    request["n"] = json!(8);
    request["max_tokens"] = json!(1000);
    // Answers that are long, whatever the model would say.
    request["response_format"] = json!({"type": "json_schema", "json_schema": {
        "name": "long", "schema": {"type": "string", "minLength": 600},
    }});
    let asked = Request::post("/v1/chat/completions", &request);
    // On a busy machine the answer may be complete before the unload begins: then once more.
    let told = wait_for(|| {
        let before = managed.act("m", "load", "").ok()["usage_count"].as_u64();
        let answer = asked.begin(managed.server.address());
        until("some choices wait, or all are done", || {
            let row = managed.row("m");
            row["queue_depth"].as_u64() > Some(0) || row["usage_count"].as_u64() > before
        });
        let row = managed.act("m", "unload", "").ok();
        assert_eq!(row["runtime_state"], "unloaded");
        let answer = answer.response();
        match answer.status() {
            200 => Err("no choice was queued".to_owned()),
            _ => Ok(code(&answer)),
        }
    });
    assert_eq!(told, (409, "model_unloading".to_owned()));
}

#[test]
#[cfg(target_os = "linux")]
fn feature_l6_a_hundred_loads_leave_no_thread_and_no_descriptor_behind() {
    let managed =
        Managed::start("[[models]]\nname = \"m\"\n[[models]]\nname = \"n\"\nenabled = false\n");
    let counts = |server: &Server| {
        let count = |what: &str| {
            let folder = format!("/proc/{}/{what}", server.pid());
            std::fs::read_dir(folder).expect("read /proc").count()
        };
        (count("task"), count("fd"))
    };
    let cycle = || {
        managed.act("n", "load", "").ok();
        managed.chat("n").ok();
        managed.act("n", "unload", "").ok();
    };
    // Threads that may block are kept for a while; a few cycles start them all.
    (0..10).for_each(|_| cycle());
    let before = counts(&managed.server);
    (0..100).for_each(|_| cycle());
    // Threads that may block come and go; a leak would leave one or more a cycle.
    until("threads and descriptors are as many as before", || {
        let after = counts(&managed.server);
        after.0 <= before.0 + 8 && after.1 <= before.1 + 8
    });
    managed.chat("m").ok();
}
