//! Cost of a prompt before there is a sequence: processor time and memory of the server's process,
//! while another tenant is served.

use std::cell::Cell;

use serde_json::json;

use crate::support::Server;
use crate::support::bystander::{Bystander, Caller, Case, Expected};
use crate::support::client::Request;
use crate::support::until;

const KEYS: &str = "
[[auth.api_keys]]
id = \"bystander\"
key = \"bystander-key\"
tenant = \"bystander\"
[[auth.api_keys]]
id = \"attacker\"
key = \"attacker-key\"
tenant = \"attacker\"
";

/// Beside the demo model, one that takes prompts of a megabyte.
const LARGE: &str = "
[[models]]
[[models]]
name = \"large\"
backend = \"scripted\"
path = ";

fn complete(model: &str, prompt: &str) -> Request {
    let body = json!({"model": model, "prompt": prompt, "max_tokens": 1});
    Request::post("/v1/completions", &body).header("authorization", "Bearer attacker-key")
}

fn chat(model: &str, content: &str) -> Request {
    let body = json!({
        "model": model, "max_tokens": 1, "messages": [{"role": "user", "content": content}],
    });
    Request::post("/v1/chat/completions", &body).header("authorization", "Bearer attacker-key")
}

/// Processor time of a process so far, in hundredths of a second.
fn processor_time(server: &Server) -> u64 {
    let path = format!("/proc/{}/stat", server.pid());
    let stat = std::fs::read_to_string(path).expect("its figures");
    // Behind the name, which may hold anything, times are the 12th and 13th.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let time = |at: usize| fields.split(' ').nth(at)?.parse::<u64>().ok();
    time(11)
        .zip(time(12))
        .map(|(user, system)| user + system)
        .expect("two times")
}

/// Runs of what patterns walk along, and text in which nothing is a word.
const UNITS: [&str; 8] = [" ", "\t", "\n ", "a", "0", "!", "é", "\\x "];

#[test]
fn prompts_that_cannot_fit_cost_next_to_nothing() {
    let mut server = Server::configured(KEYS);
    // A prompt that fits, to compare with: ten thousand times as many bytes may not cost more than
    // some hundred times as much.
    let fits = |server: &Server| {
        let before = processor_time(server);
        for _ in 0..20 {
            server
                .send(&complete("mortise-demo", "Once upon a time"))
                .ok();
        }
        processor_time(server) - before
    };
    fits(&server);
    let quiet = fits(&server).max(1);
    let caller = Caller {
        model: "mortise-demo",
        key: Some("bystander-key"),
    };
    let before = processor_time(&server);
    for unit in UNITS {
        for bytes in [64 << 10, 1 << 20] {
            let request = complete("mortise-demo", &unit.repeat(bytes / unit.len()));
            let response = server.send(&request);
            assert_eq!(response.status(), 400, "{unit:?}: {}", response.text());
            let error = &response.json()["error"];
            assert_eq!(error["code"], "context_length_exceeded");
            let message = error["message"].as_str().expect("a message");
            assert!(message.contains("has at least "), "{message}");
        }
    }
    let spent = processor_time(&server) - before;
    println!(
        "{} hundredths of a second, {quiet} for twenty that fit",
        spent
    );
    assert!(spent <= 100 * quiet + 200, "{spent} against {quiet}");
    let mut bystander = Bystander::new(&mut server, caller);
    let case = Case {
        id: "B9",
        what: "prompts of 64 KiB and 1 MiB that cannot fit",
        ..Case::refused(400, "context_length_exceeded")
    };
    bystander.endures(&case, |server| {
        let texts = UNITS.map(|unit| unit.repeat((1 << 20) / unit.len()));
        let small = UNITS.map(|unit| unit.repeat((64 << 10) / unit.len()));
        let mut requests: Vec<Request> = texts
            .iter()
            .map(|text| complete("mortise-demo", text))
            .collect();
        requests.extend(small.iter().map(|text| chat("mortise-demo", text)));
        requests
            .iter()
            .map(|request| server.send(request))
            .collect()
    });
}

#[test]
fn nobody_waits_behind_anothers_megabytes() {
    let folder = crate::support::model::byte_level();
    let mut server = Server::configured(&format!(
        "{KEYS}{LARGE}{folder:?}\n[models.script]\ndefault = \"Yes.\"\ncontext_length = 4000000\n"
    ));
    let megabyte = |unit: &str| unit.repeat((1 << 20) / unit.len());
    let caller = Caller {
        model: "mortise-demo",
        key: Some("bystander-key"),
    };
    let mut bystander = Bystander::new(&mut server, caller);
    let long = Case {
        id: "B10",
        what: "prompts of a megabyte that are encoded to their end",
        ..Case::with(Expected::Answer)
    };
    bystander.endures(&long, |server| {
        let requests = [" ", "a", "\n", "word "].map(|unit| complete("large", &megabyte(unit)));
        server.send_together(&requests)
    });
    let left = Case {
        id: "B11",
        what: "clients that send a megabyte and leave",
        ..Case::with(Expected::Anything)
    };
    bystander.endures(&left, |server| {
        for unit in [" ", "a", "\n", "word ", "é", "0", "a b", "!?"] {
            drop(complete("large", &megabyte(unit)).begin(server.address()));
        }
        // What they asked for ends, although nobody hears of it.
        let last = Cell::new(processor_time(server));
        until("the server is idle but for the bystander", || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            let now = processor_time(server);
            last.replace(now) + 50 > now
        });
        Vec::new()
    });
}
