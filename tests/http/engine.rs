//! Engine behaviour that shows on the wire, with the embedded model.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::client::{Request, Stream};
use crate::support::{Server, until};

/// A chat that begins with a long message.
fn chat(beginning: &str, end: &str) -> Value {
    let text = format!("{}{end}", beginning.repeat(20));
    json!({
        "model": "mortise-demo",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 4,
        "temperature": 0,
    })
}

fn ask(server: &Server, key: &str, request: &Value) -> Value {
    let authorization = format!("Bearer {key}");
    let request = Request::post(CHAT, request).header("authorization", &authorization);
    let response = server.send(&request);
    assert_eq!(response.status(), 200, "{}", response.text());
    response.json()
}

fn cached(answer: &Value) -> u64 {
    let usage = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    usage.as_u64().expect("a number of cached tokens")
}

const KEYS: &str = "
[[auth.api_keys]]
id = \"a\"
key = \"one\"
tenant = \"red\"
[[auth.api_keys]]
id = \"b\"
key = \"two\"
tenant = \"red\"
[[auth.api_keys]]
id = \"c\"
key = \"three\"
tenant = \"blue\"
";

/// Security case H2: what one tenant has cached does not show in another's usage.
#[test]
fn h2_cached_tokens_are_counted_and_reveal_nothing_of_other_tenants() {
    let server = Server::configured(KEYS);
    let (first, second) = (
        chat("What is 2 plus 3? ", "a"),
        chat("What is 2 plus 3? ", "b"),
    );
    let cold = ask(&server, "one", &first);
    assert_eq!(cached(&cold), 0);
    let prompt = cold["usage"]["prompt_tokens"].as_u64().expect("a number");
    assert_eq!(
        cached(&ask(&server, "three", &first)),
        0,
        "another tenant's"
    );
    let warm = ask(&server, "two", &second);
    assert!(cached(&warm) >= prompt / 2, "{warm}");
    assert_eq!(cached(&warm) % 16, 0, "whole blocks");
    let same = ask(&server, "one", &first);
    assert_eq!(same["choices"], cold["choices"], "a hit changes nothing");
    assert!(cached(&same) > 0 && cached(&same) < prompt);
    let counter = |name: &str| server.metric(name) as u64;
    let hits = counter("mortise_prefix_hit_tokens_total");
    assert_eq!(hits, cached(&warm) + cached(&same));
    assert!(counter("mortise_prefix_queried_tokens_total") >= 4 * (prompt - 2));
}

#[test]
fn an_operator_may_let_tenants_share() {
    let sharing = format!("[engine]\nshare_prefixes_between_tenants = true\n{KEYS}");
    let server = Server::configured(&sharing);
    let request = chat("What is 2 plus 3? ", "a");
    assert_eq!(cached(&ask(&server, "one", &request)), 0);
    assert!(cached(&ask(&server, "three", &request)) > 0);
}

#[test]
fn choices_compute_their_prompt_once() {
    let server = Server::configured("");
    let mut request = chat("What is 2 plus 3? ", "a");
    request["n"] = json!(4);
    let response = server.post(CHAT, &request);
    let answer = response.json();
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 4);
    assert!(
        choices
            .iter()
            .all(|choice| choice["message"] == choices[0]["message"])
    );
    assert_eq!(
        cached(&answer),
        0,
        "the prompt counts once, and was computed"
    );
    let prompt = answer["usage"]["prompt_tokens"].as_u64().expect("a number");
    let computed = server.metric("mortise_engine_prefill_tokens_total") as u64;
    assert!(
        (prompt..=prompt + 3 * 16).contains(&computed),
        "{computed} tokens were computed for a prompt of {prompt}"
    );
}

#[test]
fn feature_t9_requests_that_wait_are_told_their_place() {
    let server = Server::configured("[limits]\nmax_batch = 1\n");
    let long = json!({
        "model": "mortise-demo", "messages": [{"role": "user", "content": "Hi"}],
        "stream": true, "max_tokens": 1900, "ignore_eos": true, "temperature": 0,
    });
    let long = Request::post("/v1/chat/completions", &long);
    let place = |stream: &mut Stream| {
        let headers = stream.head().headers;
        let place = headers
            .into_iter()
            .find(|(name, _)| name == "x-queue-position");
        place.map(|(_, place)| place)
    };
    let mut streams = vec![long.begin(server.address())];
    assert_eq!(place(&mut streams[0]), None);
    until("it runs", || {
        server.metric("mortise_batch_size_decode{") == 1.0
    });
    for expected in ["1", "2"] {
        let mut waiting = long.begin(server.address());
        assert_eq!(place(&mut waiting).as_deref(), Some(expected));
        streams.push(waiting);
    }
}

#[test]
fn feature_c2_a_full_queue_says_so_and_when_to_come_back() {
    for limit in ["max_queue = 2", "max_queued_tokens = 100"] {
        let server = Server::configured(&format!("[limits]\nmax_batch = 1\n{limit}\n"));
        let mut request = chat("What is 2 plus 3? ", "a");
        // At once: one may run and two may wait.
        request["n"] = json!(8);
        let response = server.post(CHAT, &request);
        assert_eq!(response.status(), 429, "{}", response.text());
        let retry = response.header("retry-after").expect("a time to wait");
        assert!(retry.parse::<u32>().is_ok_and(|seconds| seconds >= 1));
        let error = &response.json()["error"];
        assert_eq!(error["code"], "queue_full");
        assert_eq!(error["type"], "rate_limit_error");
        // What was submitted of it goes with the next step, and then a smaller one goes through.
        request["n"] = json!(1);
        until("no place is lost", || {
            server.post(CHAT, &request).status() == 200
        });
    }
}

/// A draft model changes how fast an answer comes, and nothing else; constrained answers too.
#[test]
fn a_draft_model_guesses_and_changes_nothing() {
    let models =
        "[[models]]\nname = \"large\"\ndraft_model = \"small\"\n[[models]]\nname = \"small\"\n";
    let drafted = format!("[engine]\nspeculation = \"draft-model\"\ndraft_tokens = 6\n{models}");
    let drafted = Server::configured(&drafted);
    let plain = Server::configured("[[models]]\nname = \"large\"\n");
    let mut free = chat("What is 2 plus 3? ", "a");
    free["model"] = json!("large");
    free["max_tokens"] = json!(60);
    let mut sampled = free.clone();
    sampled["temperature"] = json!(1.0);
    sampled["seed"] = json!(11);
    let mut constrained = free.clone();
    constrained["response_format"] = json!({"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "object", "properties": {"answer": {"type": "string"}},
        "required": ["answer"], "additionalProperties": false},
    }});
    for request in [free, sampled, constrained] {
        let answer = |server: &Server| server.post(CHAT, &request).ok()["choices"].clone();
        assert_eq!(answer(&drafted), answer(&plain));
    }
    let guesses = |what: &str| {
        let labels = "{model=\"large\",method=\"draft-model\"}";
        drafted.metric(&format!("mortise_speculation_{what}_tokens_total{labels} "))
    };
    assert!(guesses("accepted") > 0.0);
    assert!(guesses("accepted") <= guesses("drafted"));
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused() {
    let other = crate::support::model::byte_level();
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    let config =
        format!("[engine]\nspeculation = \"draft-model\"\n[[models]]\ndraft_model = {other:?}\n");
    std::fs::write(&path, config).expect("write the configuration");
    let output = std::process::Command::new(crate::support::binary())
        .args(["serve", "--port", "0", "--config"])
        .arg(&path)
        .output()
        .expect("run mortise");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains("vocabularies differ") && message.contains("draft model"),
        "{message}"
    );
}
