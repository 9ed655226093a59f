//! Routes beside the dialects: tokens, prompts, parsing and sums.

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;
use crate::support::client::Request;

fn ids(body: &Value) -> Vec<u64> {
    let ids = body["tokens"].as_array().expect("a list of tokens");
    ids.iter().filter_map(Value::as_u64).collect()
}

#[test]
fn feature_e6_texts_become_tokens_and_tokens_texts() {
    let server = Server::start(&[]);
    let text = "What is mortise? <|im_end|>";
    for path in ["/tokenize", "/v1/tokenize"] {
        let asked = json!({"model": "mortise-demo", "prompt": text, "return_token_strs": true});
        let made = server.post(path, &asked).ok();
        assert_eq!(made["count"].as_u64(), Some(ids(&made).len() as u64));
        assert!(
            made["max_model_len"]
                .as_u64()
                .is_some_and(|length| length > 0)
        );
        let pieces = made["token_strs"].as_array().expect("texts");
        let joined: String = pieces.iter().filter_map(Value::as_str).collect();
        assert!(joined.contains("<|im_end|>"), "{joined}");
        // A control token in a text is the letters that it is.
        assert!(
            pieces.iter().all(|piece| piece != "<|im_end|>"),
            "{pieces:?}"
        );
        // One model needs no name.
        let back = server
            .post("/detokenize", &json!({"tokens": ids(&made)}))
            .ok();
        assert!(
            back["prompt"]
                .as_str()
                .is_some_and(|back| back.contains(text)),
            "{back}"
        );
    }
    let short = server
        .post(
            "/tokenize",
            &json!({"text": "x", "add_special_tokens": false}),
        )
        .ok();
    assert_eq!(ids(&short).len(), 1);
    for (path, body, param) in [
        ("/tokenize", json!({"prompt": 7}), "prompt"),
        ("/tokenize", json!({}), "prompt"),
        ("/detokenize", json!({"tokens": [4_000_000]}), "tokens[0]"),
        ("/parse", json!({"tools": []}), "text"),
    ] {
        let refused = server.post(path, &body);
        assert_eq!(refused.status(), 400, "{path}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], param, "{path}");
    }
}

#[test]
fn feature_e6_a_conversation_has_the_tokens_that_its_answer_is_charged() {
    let server = Server::start(&[]);
    let chat = json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 1});
    let used = server.post(CHAT, &chat).ok()["usage"]["prompt_tokens"].clone();
    let counted = server.post("/tokenize", &chat).ok();
    assert_eq!(counted["count"], used);
    let rendered = server.post("/v1/chat/completions/render", &chat).ok();
    assert_eq!(rendered["count"], used);
    assert_eq!(rendered["prompt_token_ids"], counted["tokens"]);
    let template = &rendered["template"];
    assert_eq!(template["plugin"], "chat-template", "{template}");
    assert!(
        template["version"].is_string() && template["microseconds"].as_u64() > Some(0),
        "{template}"
    );
    let prompt = rendered["prompt"].as_str().expect("a prompt");
    assert!(
        prompt.contains("Hello!") && prompt.contains("<|im_start|>"),
        "{prompt}"
    );
    let metric =
        "mortise_requests_total{route=\"/tokenize\",model=\"mortise-demo\",status=\"200\"}";
    assert!((server.metric(metric) - 1.0).abs() < f64::EPSILON);
}

#[test]
fn generated_text_is_parsed_as_an_answer_would_be() {
    let server = Server::start(&[]);
    let text = "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": \
                {\"a\": 1}}\n</tool_call>";
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    let parsed = server
        .post("/parse", &json!({"text": text, "tools": [tool]}))
        .ok();
    assert!(
        parsed["reasoning_content"]
            .as_str()
            .is_some_and(|text| text.contains("hm")),
        "{parsed}"
    );
    assert!(
        parsed["content"]
            .as_str()
            .is_some_and(|text| text.contains("I look.")),
        "{parsed}"
    );
    let call = &parsed["tool_calls"][0]["function"];
    assert_eq!(call["name"], "f", "{parsed}");
    let arguments = call["arguments"].as_str().expect("a text");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    assert_eq!(arguments, json!({"a": 1}));
}

#[test]
fn feature_e8_sums_of_requests_and_tokens_are_told_as_json() {
    let server = Server::start(&[]);
    let chat = json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 2});
    let mut prompt = 0;
    for _ in 0..3 {
        let usage = server.post(CHAT, &chat).ok()["usage"].clone();
        prompt += usage["prompt_tokens"].as_u64().expect("a number");
    }
    let sums = crate::support::wait_for(|| {
        // A request counts when its last byte is out.
        let sums = server.get("/v1/metrics").ok();
        match sums["total_requests"].as_u64() {
            Some(3) => Ok(sums),
            _ => Err(sums.to_string()),
        }
    });
    assert_eq!(sums["total_prompt_tokens"].as_u64(), Some(prompt));
    assert_eq!(sums["total_completion_tokens"], 6);
    assert!(sums["uptime_seconds"].is_u64());
    let model = &sums["models"]["mortise-demo"];
    assert_eq!(
        (&model["total_requests"], &model["total_completion_tokens"]),
        (&json!(3), &json!(6))
    );
    assert!(server.get("/version").ok()["version"].is_string());
}

#[test]
fn feature_e8_a_caller_is_told_its_own_sums_of_models_that_it_may_use() {
    let keys = "[[auth.api_keys]]\nid = \"a\"\nkey = \"key-a\"\ntenant = \"acme\"\n\
                [[auth.api_keys]]\nid = \"a2\"\nkey = \"key-a2\"\ntenant = \"acme\"\nmodels = [\"other\"]\n\
                [[auth.api_keys]]\nid = \"b\"\nkey = \"key-b\"\n";
    let server = Server::scripted("default = \"x\"", keys);
    let ask = |key: &str| {
        let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]});
        let request = Request::post(CHAT, &body).header("authorization", &format!("Bearer {key}"));
        request.send(server.address()).ok();
    };
    let sums = |key: &str| {
        let request = Request::get("/v1/metrics").header("authorization", &format!("Bearer {key}"));
        request.send(server.address()).ok()
    };
    for key in ["key-a", "key-a", "key-b"] {
        ask(key);
    }
    let told = crate::support::wait_for(|| {
        let (a, b) = (sums("key-a"), sums("key-b"));
        match (a["total_requests"].as_u64(), b["total_requests"].as_u64()) {
            (Some(2), Some(1)) => Ok((a, b)),
            _ => Err(format!("{a} {b}")),
        }
    });
    for (sums, requests) in [(&told.0, 2), (&told.1, 1)] {
        assert_eq!(sums["models"]["scripted"]["total_requests"], requests);
    }
    // Of the same tenant, and it may not use the model.
    let other = sums("key-a2");
    assert_eq!(
        (&other["total_requests"], &other["models"]),
        (&json!(0), &json!({}))
    );
    assert_eq!(server.get("/v1/metrics").status(), 401);
}

#[test]
fn routes_are_served_without_their_version_and_head_is_answered() {
    let server = Server::start(&[]);
    let chat = json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 1});
    assert!(server.post("/chat/completions", &chat).ok()["choices"].is_array());
    assert_eq!(server.get("/models").ok(), server.get("/v1/models").ok());
    let head = server.send(&Request::get("/v1/models").method("HEAD"));
    assert_eq!((head.status(), head.text().as_str()), (200, ""));
    let line = server.wait_for_log(|line| line.contains("HEAD"));
    assert!(!line.contains("cancelled"), "{line}");
}
