//! More continuations than are given: `best_of` and beam search, with the embedded model.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;

const TEXT: &str = "/v1/completions";

fn text(more: &Value) -> Value {
    let mut request = json!({
        "model": "mortise-demo", "prompt": "What is 2 plus", "max_tokens": 12, "seed": 5,
    });
    for (field, value) in more.as_object().expect("fields") {
        request[field] = value.clone();
    }
    request
}

fn choices(answer: &Value) -> Vec<Value> {
    answer["choices"].as_array().expect("choices").clone()
}

fn tokens(answer: &Value) -> u64 {
    let tokens = &answer["usage"]["completion_tokens"];
    tokens.as_u64().expect("a number of tokens")
}

fn mean_logprob(choice: &Value) -> f64 {
    let logprobs = choice["logprobs"]["token_logprobs"]
        .as_array()
        .expect("log-probabilities");
    let sum: f64 = logprobs.iter().filter_map(Value::as_f64).sum();
    sum / logprobs.len() as f64
}

#[test]
fn the_best_of_several_are_those_with_the_highest_mean_log_probability() {
    let server = Server::configured("");
    let all = server
        .post(
            TEXT,
            &text(&json!({"n": 6, "logprobs": 0, "temperature": 1})),
        )
        .ok();
    let mut ranked = choices(&all);
    ranked.sort_by(|one, other| mean_logprob(other).total_cmp(&mean_logprob(one)));
    assert_ne!(
        ranked[0]["text"], ranked[5]["text"],
        "there is something to choose from"
    );
    let two = json!({"n": 2, "best_of": 6, "logprobs": 0, "temperature": 1});
    let best = server.post(TEXT, &text(&two)).ok();
    let found = choices(&best);
    assert_eq!(found.len(), 2);
    for (index, (choice, expected)) in found.iter().zip(&ranked).enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["text"], expected["text"]);
        assert_eq!(choice["logprobs"], expected["logprobs"]);
        assert_eq!(choice["finish_reason"], expected["finish_reason"]);
    }
    assert_eq!(tokens(&best), tokens(&all), "all of them were generated");
    // Nobody asked for the log-probabilities by which they were ranked.
    let plain = server
        .post(TEXT, &text(&json!({"best_of": 6, "temperature": 1})))
        .ok();
    assert_eq!(choices(&plain)[0]["text"], ranked[0]["text"]);
    assert_eq!(choices(&plain)[0]["logprobs"], Value::Null);
    // As many as there are need no ranking, and may be streamed.
    let mut all = text(&json!({"n": 2, "best_of": 2, "stream": true}));
    server.post(TEXT, &all).events();
    all["best_of"] = json!(3);
    assert_eq!(server.post(TEXT, &all).json()["error"]["param"], "stream");
}

#[test]
fn feature_f7_a_search_gives_its_best_beams_on_both_routes() {
    let server = Server::configured("");
    let search = json!({"n": 3, "beam_size": 4, "length_penalty": 0.5, "early_stopping": "never"});
    let found = server.post(TEXT, &text(&search)).ok();
    assert_eq!(choices(&found).len(), 3);
    let texts: Vec<Value> = choices(&found)
        .iter()
        .map(|choice| choice["text"].clone())
        .collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2]);
    // vLLM's way to say it; the same search again, whose prompt is in the cache.
    let other = json!({
        "n": 3, "use_beam_search": true, "beam_size": 4, "length_penalty": 0.5,
        "early_stopping": "never", "temperature": 0,
    });
    assert_eq!(
        choices(&server.post(TEXT, &text(&other)).ok()),
        choices(&found)
    );
    // One beam is the greedy continuation.
    let greedy = server.post(TEXT, &text(&json!({"temperature": 0}))).ok();
    let single = server
        .post(TEXT, &text(&json!({"use_beam_search": true})))
        .ok();
    assert_eq!(choices(&single)[0]["text"], choices(&greedy)[0]["text"]);

    let chat = json!({
        "model": "mortise-demo", "messages": [{"role": "user", "content": "What is mortise?"}],
        "max_tokens": 20, "beam_size": 3, "n": 2,
    });
    let answer = server.post(CHAT, &chat).ok();
    assert_eq!(choices(&answer).len(), 2);
    assert!(
        choices(&answer)[0]["message"]["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
}

#[test]
fn what_does_not_go_together_is_named() {
    let server = Server::configured("");
    let tool = json!([{"type": "function", "function": {"name": "f"}}]);
    for (param, more) in [
        ("best_of", json!({"n": 3, "best_of": 2})),
        ("best_of", json!({"best_of": 17})),
        ("best_of", json!({"best_of": "two"})),
        ("beam_size", json!({"beam_size": 17})),
        ("beam_size", json!({"beam_size": 0})),
        (
            "beam_size",
            json!({"beam_size": 4, "use_beam_search": false}),
        ),
        ("n", json!({"beam_size": 2, "n": 3})),
        ("length_penalty", json!({"length_penalty": 2})),
        (
            "length_penalty",
            json!({"beam_size": 2, "length_penalty": 11}),
        ),
        ("early_stopping", json!({"early_stopping": true})),
        (
            "early_stopping",
            json!({"beam_size": 2, "early_stopping": "soon"}),
        ),
        ("stream", json!({"beam_size": 2, "stream": true})),
        ("best_of", json!({"beam_size": 2, "best_of": 2})),
        ("logprobs", json!({"beam_size": 2, "logprobs": 1})),
        ("temperature", json!({"beam_size": 2, "temperature": 0.5})),
        ("top_p", json!({"beam_size": 2, "top_p": 0.5})),
        ("top_k", json!({"beam_size": 2, "top_k": 5})),
        ("min_p", json!({"beam_size": 2, "min_p": 0.5})),
        (
            "repetition_penalty",
            json!({"beam_size": 2, "repetition_penalty": 1.5}),
        ),
        (
            "frequency_penalty",
            json!({"beam_size": 2, "frequency_penalty": 1}),
        ),
        (
            "presence_penalty",
            json!({"beam_size": 2, "presence_penalty": 1}),
        ),
        (
            "logit_bias",
            json!({"beam_size": 2, "logit_bias": {"5": 1}}),
        ),
        ("stop", json!({"beam_size": 2, "stop": "x"})),
        (
            "response_format",
            json!({"beam_size": 2, "guided_regex": "a+"}),
        ),
    ] {
        let response = server.post(TEXT, &text(&more));
        assert_eq!(response.status(), 400, "{more}: {}", response.text());
        assert_eq!(response.json()["error"]["param"], param, "{more}");
    }
    let mut chat = json!({
        "model": "mortise-demo", "messages": [{"role": "user", "content": "Hi"}], "beam_size": 2,
    });
    chat["tools"] = tool;
    assert_eq!(server.post(CHAT, &chat).json()["error"]["param"], "tools");
    let scripted = Server::scripted("default = \"x\"", "");
    let search = json!({"model": "scripted", "prompt": "x", "beam_size": 2});
    assert_eq!(scripted.post(TEXT, &search).status(), 400);
}
