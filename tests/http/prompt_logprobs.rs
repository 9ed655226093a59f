//! Log-probabilities of prompts: vLLM's `prompt_logprobs`, and `echo` with `logprobs`, by which evaluations rank texts.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;

const TEXT: &str = "/v1/completions";

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// A number in single precision, however many digits it was written with.
fn rounded(value: Value) -> Value {
    match value.as_f64() {
        Some(number) => json!(number as f32),
        None => value,
    }
}

/// Ids of a text, and of its greedy continuation with the log-probability of each token.
fn continued(server: &Server, text: &str, count: usize) -> (Vec<u64>, Vec<(u64, f64)>) {
    let asked = json!({
        "prompt": text, "max_tokens": count, "temperature": 0, "logprobs": 0, "return_token_ids": true,
    });
    let made = server.post(TEXT, &asked).ok();
    let choice = &made["choices"][0];
    let ids =
        |value: &Value| -> Vec<u64> { list(value).iter().filter_map(Value::as_u64).collect() };
    let made = ids(&choice["token_ids"]);
    let told = list(&choice["logprobs"]["token_logprobs"]).iter();
    let told = made.into_iter().zip(told.filter_map(Value::as_f64));
    (ids(&choice["prompt_token_ids"]), told.collect())
}

/// The request of lm-evaluation-harness for `local-completions` with ids: contexts with their continuations, one
/// token that it leaves out, and the columns from the length of the context on.
#[test]
fn feature_f12_texts_are_ranked_as_evaluations_ask() {
    let server = Server::start(&[]);
    let texts = ["mortise is", "a server that", "mortise is"];
    let known: Vec<_> = texts
        .iter()
        .zip([6, 3, 9])
        .map(|(text, count)| continued(&server, text, count))
        .collect();
    let prompts: Vec<Vec<u64>> = known
        .iter()
        .map(|(context, told)| {
            let behind = told.iter().map(|(id, _)| *id);
            context.iter().copied().chain(behind).collect()
        })
        .collect();
    let asked = json!({
        "model": "mortise-demo", "prompt": prompts, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true,
    });
    let scored = server.post(TEXT, &asked).ok();
    assert_eq!(scored["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let choices = list(&scored["choices"]);
    assert_eq!(choices.len(), 3);
    for ((choice, prompt), (context, told)) in choices.iter().zip(&prompts).zip(&known) {
        let columns = &choice["logprobs"];
        let own = list(&columns["token_logprobs"]);
        let top = list(&columns["top_logprobs"]);
        assert_eq!(own.len(), prompt.len() + 1, "the prompt and one token");
        assert_eq!((&own[0], &top[0]), (&Value::Null, &Value::Null));
        let behind = context.len()..prompt.len();
        for ((own, top), (_, told)) in own[behind.clone()].iter().zip(&top[behind]).zip(told) {
            // The same bits as when the tokens were generated.
            assert_eq!(own.as_f64(), Some(*told));
            let top = top.as_object().expect("an object").values();
            let likeliest = top.filter_map(Value::as_f64).fold(f64::MIN, f64::max);
            assert_eq!(likeliest, *told, "greedy tokens are the likeliest");
        }
        let text = choice["text"].as_str().expect("a text");
        let tokens = list(&columns["tokens"]).iter();
        let joined: String = tokens.filter_map(Value::as_str).collect();
        assert_eq!(joined, text);
        let offsets = list(&columns["text_offset"]).iter();
        let offsets: Vec<u64> = offsets.filter_map(Value::as_u64).collect();
        assert!(offsets[0] == 0 && offsets.is_sorted());
        assert!(offsets[prompt.len()] as usize <= text.chars().count());
    }
}

#[test]
fn a_prompt_is_scored_and_nothing_generated() {
    let server = Server::start(&[]);
    let asked = json!({
        "prompt": ["mortise is", "a server"], "n": 2, "max_tokens": 0, "logprobs": 2, "echo": true,
        "return_token_ids": true,
    });
    let made = server.post(TEXT, &asked).ok();
    let choices = list(&made["choices"]);
    assert_eq!(choices.len(), 4);
    assert_eq!(made["usage"]["completion_tokens"], 0);
    for (choice, text) in choices
        .iter()
        .zip(["mortise is", "mortise is", "a server", "a server"])
    {
        assert_eq!(choice["text"], text);
        assert_eq!(choice["finish_reason"], "length");
        let ids = list(&choice["prompt_token_ids"]).len();
        assert_eq!(list(&choice["logprobs"]["tokens"]).len(), ids);
        for top in &list(&choice["logprobs"]["top_logprobs"])[1..] {
            let count = top.as_object().expect("an object").len();
            assert!((2..=3).contains(&count), "{top}");
        }
    }
    let streamed = json!({
        "prompt": "mortise is", "max_tokens": 2, "logprobs": 2, "echo": true, "stream": true, "temperature": 0,
    });
    let events = server.post(TEXT, &streamed).events();
    let mut whole = streamed;
    whole["stream"] = json!(false);
    let whole = server.post(TEXT, &whole).ok();
    let texts = events
        .iter()
        .filter_map(|event| event["choices"][0]["text"].as_str());
    let text: String = texts.collect();
    assert_eq!(whole["choices"][0]["text"], text);
    for column in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let pieces = events.iter().filter_map(|event| {
            let column = &event["choices"][0]["logprobs"][column];
            column.as_array().cloned()
        });
        let joined: Vec<Value> = pieces.flatten().map(rounded).collect();
        let whole = list(&whole["choices"][0]["logprobs"][column]).iter();
        let whole: Vec<Value> = whole.cloned().map(rounded).collect();
        assert_eq!(whole, joined, "{column}");
    }
}

#[test]
fn prompt_logprobs_are_those_of_vllm() {
    let server = Server::start(&[]);
    let (ids, told) = continued(&server, "mortise is", 4);
    let mut prompt = ids.clone();
    prompt.extend(told.iter().map(|(id, _)| *id));
    let asked = json!({"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 2, "n": 2});
    let made = server.post(TEXT, &asked).ok();
    for choice in list(&made["choices"]) {
        let scores = list(&choice["prompt_logprobs"]);
        assert_eq!(scores.len(), prompt.len());
        assert_eq!(scores[0], Value::Null);
        assert_eq!(choice["logprobs"], Value::Null);
        for (score, (id, told)) in scores[ids.len()..].iter().zip(&told) {
            let own = &score[id.to_string()];
            assert_eq!(own["logprob"].as_f64(), Some(*told));
            assert_eq!(own["rank"], 1);
            assert!(own["decoded_token"].is_string());
        }
        for (score, id) in scores.iter().zip(&prompt).skip(1) {
            let all = score.as_object().expect("an object");
            assert!(all.contains_key(&id.to_string()));
            assert!((2..=3).contains(&all.len()));
            let mut ranks: Vec<u64> = all
                .values()
                .filter_map(|one| one["rank"].as_u64())
                .collect();
            ranks.sort_unstable();
            assert_eq!(ranks[..2], [1, 2]);
        }
    }
    let chat = json!({
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "prompt_logprobs": 0,
    });
    let made = server.post(CHAT, &chat).ok();
    let scores = list(&made["prompt_logprobs"]);
    assert_eq!(
        Some(scores.len() as u64),
        made["usage"]["prompt_tokens"].as_u64()
    );
    let one = |score: &Value| score.as_object().is_some_and(|all| all.len() == 1);
    assert!(scores[0].is_null() && scores[1..].iter().all(one));
    let without = server
        .post(TEXT, &json!({"prompt": "a", "max_tokens": 1}))
        .ok();
    assert!(without["choices"][0].get("prompt_logprobs").is_none());
}

#[test]
fn what_cannot_be_scored_is_refused_by_name() {
    let server = Server::start(&[]);
    let beams = json!({"prompt_logprobs": 1, "beam_size": 2});
    let repeated = json!({"echo": true, "logprobs": 1, "n": 2, "stream": true});
    let long = "word ".repeat(300);
    for (more, param) in [
        (json!({"prompt_logprobs": 21}), "prompt_logprobs"),
        (json!({"prompt_logprobs": -1}), "prompt_logprobs"),
        (
            json!({"prompt_logprobs": 1, "stream": true}),
            "prompt_logprobs",
        ),
        (beams, "prompt_logprobs"),
        (repeated, "n"),
        (json!({"echo": true, "prompt": [1, 2]}), "echo"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (
            json!({"prompt": vec![long; 8], "prompt_logprobs": 20, "n": 16}),
            "prompt_logprobs",
        ),
    ] {
        let mut body = json!({"prompt": "mortise is", "max_tokens": 2});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let refused = server.post(TEXT, &body);
        assert_eq!(refused.status(), 400, "{param}: {}", refused.text());
        assert_eq!(
            refused.json()["error"]["param"],
            param,
            "{}",
            refused.text()
        );
    }
    let scripted = Server::scripted("default = \"Hello\"", "");
    let asked = json!({"model": "scripted", "prompt": "Once", "prompt_logprobs": 1});
    let refused = scripted.post(TEXT, &asked);
    assert_eq!(refused.status(), 400);
    assert!(
        refused.text().contains("log-probabilities"),
        "{}",
        refused.text()
    );
}
