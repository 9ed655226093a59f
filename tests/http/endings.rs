//! Fields that say where an answer ends and what it must not have, on the routes of OpenAI.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;

const COMPLETIONS: &str = "/v1/completions";

fn completion(server: &Server, more: Value) -> Value {
    let mut body = json!({"prompt": "mortise is", "max_tokens": 12, "temperature": 0});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    server.post(COMPLETIONS, &body).ok()
}

fn text(body: &Value) -> &str {
    body["choices"][0]["text"].as_str().expect("a text")
}

fn tokens(server: &Server, text: &str) -> Vec<Value> {
    let asked = json!({"prompt": text, "add_special_tokens": false});
    let made = server.post("/tokenize", &asked).ok();
    made["tokens"].as_array().expect("a list").clone()
}

#[test]
fn feature_f8_answers_end_at_the_callers_own_tokens_and_strings() {
    let server = Server::start(&[]);
    let whole = completion(&server, json!({}));
    let word = text(&whole).split(' ').rfind(|word| word.len() > 3);
    let word = word.expect("a word").trim_end_matches(['.', ',']);
    let before = text(&whole).find(word).expect("it is there");
    let stopped = completion(&server, json!({"stop": word}));
    assert_eq!(text(&stopped), &text(&whole)[..before]);
    let included = completion(
        &server,
        json!({"stop": word, "include_stop_str_in_output": true}),
    );
    assert_eq!(text(&included), &text(&whole)[..before + word.len()]);
    let ids = tokens(&server, text(&whole));
    let first = |at: &usize| !ids[..*at].contains(&ids[*at]);
    let at = (1..ids.len()).find(first).expect("a token that is new");
    let by_token = completion(&server, json!({"stop_token_ids": [ids[at]]}));
    assert_eq!(by_token["usage"]["completion_tokens"], at, "{by_token}");
    assert_eq!(by_token["choices"][0]["finish_reason"], "stop");
    let later = completion(
        &server,
        json!({"stop_token_ids": [ids[at]], "min_tokens": 5}),
    );
    let count = later["usage"]["completion_tokens"]
        .as_u64()
        .expect("a number");
    assert!(count >= 5, "{later}");
}

#[test]
fn feature_f8_the_models_end_can_be_passed_over() {
    let server = Server::start(&[]);
    let chat = |more: Value| {
        let mut body = json!({
            "messages": [{"role": "user", "content": "Hello!"}],
            "temperature": 0,
            "max_tokens": 120,
        });
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        server.post(CHAT, &body).ok()
    };
    let own = chat(json!({}));
    assert_eq!(own["choices"][0]["finish_reason"], "stop", "{own}");
    let longer = chat(json!({"ignore_eos": true}));
    assert_eq!(longer["choices"][0]["finish_reason"], "length");
    assert_eq!(longer["usage"]["completion_tokens"], 120);
    let least = chat(json!({"min_tokens": 120}));
    assert_eq!(least["usage"]["completion_tokens"], 120);
}

#[test]
fn feature_f8_forbidden_words_do_not_come() {
    let server = Server::start(&[]);
    let whole = completion(&server, json!({}));
    let word = text(&whole).split(' ').rfind(|word| word.len() > 3);
    let word = word.expect("a word").trim_end_matches(['.', ',']);
    let without = completion(&server, json!({"bad_words": [word]}));
    assert!(
        !text(&without).contains(&format!(" {word}")),
        "{word}: {without}"
    );
    assert_ne!(text(&without), text(&whole));
}

#[test]
fn prompts_are_cut_from_their_beginning() {
    let server = Server::start(&[]);
    let cut = completion(&server, json!({"truncate_prompt_tokens": 1}));
    assert_eq!(cut["usage"]["prompt_tokens"], 1);
    let long = "word ".repeat(20_000);
    let fits = completion(
        &server,
        json!({"prompt": long, "truncate_prompt_tokens": -1}),
    );
    let used = &fits["usage"]["prompt_tokens"];
    let room = server.post("/tokenize", &json!({"prompt": "x"})).ok()["max_model_len"].clone();
    assert_eq!(used.as_u64().map(|used| used + 12), room.as_u64());
}

#[test]
fn what_cannot_hold_together_is_refused_by_name() {
    let server = Server::start(&[]);
    for (more, param) in [
        (json!({"min_tokens": 13}), "min_tokens"),
        (json!({"stop_token_ids": [4_000_000]}), "stop_token_ids[0]"),
        (json!({"bad_words": [" "]}), "bad_words[0]"),
        (
            json!({"truncate_prompt_tokens": 0}),
            "truncate_prompt_tokens",
        ),
        (json!({"priority": -1}), "priority"),
        (
            json!({"ignore_eos": true, "response_format": {"type": "json_object"}}),
            "ignore_eos",
        ),
    ] {
        let mut body = json!({"prompt": "mortise is", "max_tokens": 12});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let refused = server.post(COMPLETIONS, &body);
        assert_eq!(refused.status(), 400, "{more}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], param, "{more}");
    }
    let later = completion(&server, json!({"priority": 3}));
    assert!(!text(&later).is_empty());
}

#[test]
fn feature_f12_log_probabilities_cover_reasoning_and_the_chosen_token() {
    let server = Server::start(&[]);
    let chat = json!({
        "messages": [{"role": "user", "content": "What is 17 + 25?"}],
        "max_tokens": 6,
        "logprobs": true,
        "temperature": 0,
    });
    let answer = server.post(CHAT, &chat).ok();
    let choice = &answer["choices"][0];
    assert!(
        choice["message"]["reasoning_content"].is_string(),
        "{answer}"
    );
    let covered = choice["logprobs"]["content"].as_array().expect("a list");
    assert!(!covered.is_empty(), "{answer}");
    let made = completion(&server, json!({"logprobs": 0, "max_tokens": 3}));
    let columns = &made["choices"][0]["logprobs"];
    for index in 0..3 {
        let token = columns["tokens"][index].as_str().expect("a token");
        let likeliest = columns["top_logprobs"][index]
            .as_object()
            .expect("an object");
        assert_eq!(likeliest.keys().collect::<Vec<_>>(), [token]);
    }
}

#[test]
fn usage_is_reported_throughout_a_stream() {
    let server = Server::start(&[]);
    let mut body = json!({
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_tokens": 5,
        "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
    });
    let events = server.post(CHAT, &body).events();
    let counts: Vec<u64> = events
        .iter()
        .filter_map(|event| event["usage"]["completion_tokens"].as_u64())
        .collect();
    assert_eq!(counts.len(), events.len(), "every chunk has it");
    assert!(
        counts.is_sorted() && counts.last() == Some(&5),
        "{counts:?}"
    );
    body["stream_options"] = json!({"include_usage": true});
    let events = server.post(CHAT, &body).events();
    let reported = events.iter().filter(|event| event["usage"].is_object());
    assert_eq!(reported.count(), 1);
}

#[test]
fn feature_f14_x2_schemas_have_names_of_words_and_formats_of_others() {
    let server = Server::start(&[]);
    let schema = json!({
        "type": "object",
        "properties": {"id": {"type": "string", "format": "sha256", "maxLength": 4}},
        "required": ["id"],
        "additionalProperties": false,
    });
    let body = json!({
        "messages": [{"role": "user", "content": "Hello!"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "Summary bullets", "schema": schema},
        },
        "max_tokens": 60,
    });
    let answer = server.post(CHAT, &body).ok();
    let content = answer["choices"][0]["message"]["content"].as_str();
    let content: Value = serde_json::from_str(content.expect("content")).expect("JSON");
    assert!(content["id"].is_string());
    let mut broken = body;
    broken["response_format"]["json_schema"]["schema"] = json!({"type": "strange"});
    let refused = server.post(CHAT, &broken);
    let code = &refused.json()["error"]["code"];
    assert_eq!((refused.status(), code), (422, &json!("invalid_schema")));
    let message = refused.json()["error"]["message"]
        .as_str()
        .expect("a text")
        .to_owned();
    for internal in ["plugin", "compile", "grammar."] {
        assert!(!message.contains(internal), "{message}");
    }
}
