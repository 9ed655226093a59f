//! Loads by requests: on demand, within room, and by idleness.

use std::thread;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::until;
use crate::{Managed, asked, code, said, scripted};

fn ten(lifecycle: &str) -> Managed {
    let models: Vec<String> = (0..10)
        .map(|number| {
            scripted(
                &format!("m{number}"),
                &format!("default = \"answer {number}\""),
                "",
            )
        })
        .collect();
    Managed::start(&format!("[lifecycle]\n{lifecycle}\n{}", models.concat()))
}

#[test]
fn ten_models_share_the_room_of_three_and_no_request_fails() {
    let mut managed = ten("max_loaded_models = 3\nload_on_demand = true");
    let loaded = |managed: &Managed| {
        let names = (0..10).map(|number| format!("m{number}"));
        let loaded = names.filter(|name| managed.state(name) == "loaded");
        loaded.collect::<Vec<_>>()
    };
    // The first ones that have room.
    assert_eq!(loaded(&managed), ["m0", "m1", "m2"]);
    thread::scope(|scope| {
        for client in 0..8usize {
            let managed = &managed;
            scope.spawn(move || {
                for turn in 0..12usize {
                    let number = (client * 3 + turn * 7) % 10;
                    let answer = managed.chat(&format!("m{number}"));
                    assert_eq!(said(&answer), format!("answer {number}"));
                }
            });
        }
    });
    assert!(loaded(&managed).len() <= 3);
    // The least recently used one makes room.
    for name in ["m4", "m5", "m6", "m4", "m7"] {
        managed.chat(name).ok();
    }
    assert_eq!(loaded(&managed), ["m4", "m6", "m7"]);
    managed.server.assert_sound();
}

#[test]
fn a_storm_for_one_cold_model_loads_it_once() {
    let config = format!(
        "{}{}",
        scripted("warm", "default = \"w\"", ""),
        scripted(
            "cold",
            "default = \"c\"",
            "enabled = false\nload_on_demand = true"
        ),
    );
    let managed = Managed::start(&config);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert_eq!(said(&managed.chat("cold")), "c"));
        }
    });
    let log = managed.server.log();
    let loads = log
        .iter()
        .filter(|line| line.contains("model serves") && line.contains("cold"));
    assert_eq!(loads.count(), 1);
    assert_eq!(managed.row("cold")["usage_count"], 32);
}

#[test]
fn feature_m6_what_is_pinned_stays_and_who_finds_no_room_is_told() {
    let config = format!(
        "[lifecycle]\nmax_loaded_models = 1\nload_on_demand = true\n{}{}",
        scripted("pinned", "default = \"p\"", "pinned = true"),
        scripted("other", "default = \"o\"", ""),
    );
    let managed = Managed::start(&config);
    let refused = managed.chat("other");
    assert_eq!(code(&refused), (503, "insufficient_memory".to_owned()));
    assert!(refused.header("retry-after").is_some());
    let refused = managed.act("other", "load", "");
    assert_eq!(code(&refused), (503, "insufficient_memory".to_owned()));
    assert_eq!(said(&managed.chat("pinned")), "p");
}

/// The demo model under this name.
fn demo(name: &str, more: &str) -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/demo-model/model"
    );
    format!("[[models]]\nname = \"{name}\"\npath = {path:?}\n{more}\n")
}

#[test]
fn feature_l5_the_kv_cache_counts_before_a_load_and_after_it() {
    // Of weights of 5 MiB there would be room for many.
    let config = format!(
        "[engine]\nkv_cache_mib = 120\n[lifecycle]\nmemory_budget_mib = 320\n{}{}",
        demo("pinned", "pinned = true"),
        demo("other", "replica_max = 2\nenabled = false"),
    );
    let managed = Managed::start(&config);
    until("it is loaded", || managed.state("pinned") == "loaded");
    let row = managed.row("pinned");
    let mib = row["vram_estimate_mib"].as_u64().expect("a number");
    assert!((124..200).contains(&mib), "{mib} MiB with its cache of 120");

    let refused = managed.act("other", "load", r#"{"replicas": 2}"#);
    assert_eq!(code(&refused), (503, "insufficient_memory".to_owned()));
    let told = refused.json()["error"]["message"].to_string();
    let needed = told.split(' ').find_map(|word| word.parse::<u64>().ok());
    let needed = needed.expect("a number of MiB");
    assert!((240..260).contains(&needed), "{needed} MiB: {told}");
    // Each with less.
    managed
        .act(
            "other",
            "load",
            r#"{"replicas": 2, "kv_type": "q8_0", "max_context": 256}"#,
        )
        .ok();
    managed.act("other", "unload", "").ok();
    managed.act("other", "load", "").ok();
}

#[test]
fn engines_of_one_server_share_the_threads_that_compute() {
    let config = format!(
        "{}{}",
        demo("one", "replicas = 2\nreplica_max = 2"),
        demo("two", ""),
    );
    let managed = Managed::start(&config);
    for name in ["one", "two"] {
        until("it is loaded", || managed.state(name) == "loaded");
        managed.chat(name).ok();
    }
    let tasks = format!("/proc/{}/task", managed.server.pid());
    let threads = std::fs::read_dir(tasks).expect("threads").flatten();
    let names = threads.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let names: Vec<String> = names.collect();
    let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
    assert_eq!(count("mortise-engine"), 3, "{names:?}");
    // What computes while a model is loaded has the same ones.
    let processors = std::thread::available_parallelism().expect("a number");
    assert_eq!(count("mortise-compute"), processors.get() - 1, "{names:?}");
}

#[test]
fn feature_l7_a_model_that_nobody_uses_is_unloaded_and_comes_back() {
    let config = format!(
        "[lifecycle]\nidle_check_seconds = 1\nload_on_demand = true\n{}{}",
        scripted("brief", "default = \"b\"", "idle_timeout_seconds = 1"),
        scripted("steady", "default = \"s\"", ""),
    );
    let managed = Managed::start(&config);
    until("it is unloaded", || managed.state("brief") == "unloaded");
    assert_eq!(managed.state("steady"), "loaded");
    assert_eq!(said(&managed.chat("brief")), "b");
}

#[test]
fn feature_l7_callers_say_how_long_a_model_stays_where_they_may() {
    let config = format!(
        "[lifecycle]\nidle_check_seconds = 1\nload_on_demand = true\nkeep_alive = true\n{}{}",
        scripted("brief", "default = \"b\"", ""),
        scripted("kept", "default = \"k\"", "idle_timeout_seconds = 1"),
    );
    let managed = Managed::start(&config);
    let generate = |model: &str, keep_alive: Value| {
        let body =
            json!({"model": model, "prompt": "Hi", "stream": false, "keep_alive": keep_alive});
        managed.server.post("/api/generate", &body)
    };
    assert_eq!(generate("kept", json!("-1s")).ok()["response"], "k");
    for gone in [json!(0), json!("1ms")] {
        assert_eq!(generate("brief", gone).ok()["response"], "b");
        until("it is unloaded", || managed.state("brief") == "unloaded");
    }
    // A request that says only this: the model is not loaded to be let go.
    let bare = |keep_alive: Value| {
        let body = json!({"model": "brief", "keep_alive": keep_alive});
        managed.server.post("/api/generate", &body).ok()
    };
    assert_eq!(bare(json!(0))["done_reason"], "unload");
    assert_eq!(managed.state("brief"), "unloaded");
    assert_eq!(bare(json!("10m"))["done_reason"], "load");
    let ends = |name: &str| {
        let all = managed.server.get("/api/ps").ok();
        let models = all["models"].as_array().expect("models").iter();
        let row = models.clone().find(|row| row["name"] == name);
        row.map(|row| row["expires_at"].as_str().expect("a time").to_owned())
    };
    let brief = ends("brief").expect("it is loaded");
    let brief = OffsetDateTime::parse(&brief, &Rfc3339).expect("a time");
    let left = (brief - OffsetDateTime::now_utc()).whole_seconds();
    assert!((0..=600).contains(&left), "{left}");
    assert!(
        ends("kept")
            .expect("it is loaded")
            .starts_with("9999-12-31")
    );
    assert_eq!(bare(json!(0))["done_reason"], "unload");
    until("it is unloaded", || ends("brief").is_none());
    // Two looks at least have passed since.
    assert_eq!(managed.state("kept"), "loaded");
    let refused = generate("brief", json!("soon"));
    assert_eq!(refused.status(), 400);
    assert!(refused.text().contains("keep_alive"), "{}", refused.text());
}

/// Texts of the reasoning and of the content of a streamed answer, and its error.
fn streamed(managed: &Managed, model: &str) -> (u16, String, String, Option<Value>) {
    let mut body = asked(model);
    body["stream"] = json!(true);
    let answer = managed.server.post("/v1/chat/completions", &body);
    let (mut reasoning, mut content, mut error) = (String::new(), String::new(), None);
    for line in answer.text().lines() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
            continue;
        };
        let event: Value = serde_json::from_str(data).expect("JSON");
        let delta = &event["choices"][0]["delta"];
        reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        content += delta["content"].as_str().unwrap_or_default();
        error = error.or(event.get("error").cloned());
    }
    (answer.status(), reasoning, content, error)
}

#[test]
fn feature_b12_streams_tell_of_the_loads_that_they_wait_for_if_so_configured() {
    let models = scripted("one", "default = \"one\"", "")
        + &scripted("two", "default = \"two\"", "enabled = false")
        + "[[models]]\nname = \"broken\"\npath = \"/nowhere\"\nenabled = false\n";
    let lifecycle =
        "[lifecycle]\nload_on_demand = true\nmax_loaded_models = 1\nswap_notices = true\n";
    let managed = Managed::start(&format!("{lifecycle}{models}"));
    // Who need not wait hears nothing.
    let told = streamed(&managed, "one");
    assert_eq!(told, (200, String::new(), "one".to_owned(), None));
    let (status, reasoning, content, error) = streamed(&managed, "two");
    assert_eq!((status, content.as_str(), error), (200, "two", None));
    let expected = [
        "mortise: `two` is being loaded",
        "mortise: another model is unloaded",
        "mortise: `two` is ready",
    ];
    assert_eq!(reasoning.lines().collect::<Vec<_>>(), expected);
    // A whole answer has no place for it, and a refusal keeps its status.
    assert_eq!(said(&managed.chat("one")), "one");
    let unknown = streamed(&managed, "three");
    assert_eq!(unknown.0, 404);
    let (status, _, content, error) = streamed(&managed, "broken");
    assert!(status >= 400 || error.is_some(), "{status}");
    assert_eq!(content, "");
    let quiet = Managed::start(&format!(
        "{}{models}",
        lifecycle.replace("swap_notices = true\n", "")
    ));
    let told = streamed(&quiet, "two");
    assert_eq!(told, (200, String::new(), "two".to_owned(), None));
}
