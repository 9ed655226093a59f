//! Refusals before anything is sent.

use serde_json::json;

use crate::support::client::Request;
use crate::support::upstream::FakeUpstream;
use crate::{CHAT, chat, content, in_front_of};

#[test]
fn feature_b14_requests_say_that_they_may_leave() {
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello"));
    let server = in_front_of(&upstream, "require_allow_remote = true");
    let mut body = chat("remote", "Hi");
    for consent in [None, Some(false)] {
        if let Some(consent) = consent {
            body["allow_remote"] = json!(consent);
        }
        let refused = server.post(CHAT, &body);
        assert_eq!(refused.status(), 400, "{}", refused.text());
        assert_eq!(refused.json()["error"]["param"], "allow_remote");
    }
    assert!(upstream.received().is_empty());
    body["allow_remote"] = json!(true);
    assert_eq!(content(&server.post(CHAT, &body).ok()), "Hello");
    // Every dialect can give it.
    let user = json!([{"role": "user", "content": "Hi"}]);
    for (path, mut body) in [
        ("/v1/responses", json!({"input": "Hi"})),
        ("/v1/messages", json!({"messages": user, "max_tokens": 8})),
        ("/api/chat", json!({"messages": user, "stream": false})),
        ("/api/v1/llm/inference", json!({"prompt": "Hi"})),
    ] {
        body["model"] = json!("remote");
        let refused = server.post(path, &body);
        assert_eq!(refused.status(), 400, "{path}: {}", refused.text());
        assert!(
            refused.text().contains("`allow_remote`"),
            "{path}: {}",
            refused.text()
        );
        body["allow_remote"] = json!(true);
        let answer = server.post(path, &body);
        assert!(
            answer.ok().to_string().contains("Hello"),
            "{path}: {}",
            answer.text()
        );
    }
    // Models that run here need none, and do not mind it.
    let mut here = chat("bystander", "Hi");
    server.post(CHAT, &here).ok();
    here["allow_remote"] = json!(false);
    server.post(CHAT, &here).ok();
}

#[test]
fn remote_settings_that_the_upstream_lacks_are_refused_by_name() {
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello"));
    let server = in_front_of(&upstream, "");
    for (field, value) in [
        ("top_k", json!(5)),
        ("min_p", json!(0.5)),
        ("repetition_penalty", json!(1.5)),
        ("guided_regex", json!("a+")),
        ("chat_template_kwargs", json!({"x": 1})),
        ("continue_final_message", json!(true)),
        ("add_generation_prompt", json!(false)),
        ("logit_bias", json!({"1": 2})),
        ("beam_size", json!(2)),
    ] {
        let mut body = chat("remote", "Hi");
        body["messages"] = json!([{"role": "assistant", "content": "Hi"}]);
        body[field] = value;
        let refused = server.post(CHAT, &body);
        assert_eq!(refused.status(), 400, "{field}: {}", refused.text());
        let field = field.replace("guided_", "");
        assert!(
            refused.text().contains(&field),
            "{field}: {}",
            refused.text()
        );
    }
    let completion = json!({"model": "remote", "prompt": "Hi"});
    assert_eq!(server.post("/v1/completions", &completion).status(), 400);
    assert!(upstream.received().is_empty());
    // A family that has the fields is sent them.
    let vllm = in_front_of(&upstream, "api = \"vllm\"");
    let mut body = chat("remote", "Hi");
    body["top_k"] = json!(5);
    vllm.post(CHAT, &body).ok();
    assert_eq!(upstream.received()[0].json()["top_k"], 5);
}

#[test]
fn feature_x6_bad_requests_are_answered_here() {
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello"));
    let server = in_front_of(&upstream, "");
    let status = |request: &Request| server.send(request).status();
    assert_eq!(status(&Request::raw(CHAT, b"{\"model\":")), 400);
    assert_eq!(status(&Request::raw(CHAT, b"{\"messages\":[]}")), 400);
    assert_eq!(status(&Request::post("/v1/nothing", &json!({}))), 404);
    assert_eq!(status(&Request::post(CHAT, &chat("unknown", "Hi"))), 404);
    assert!(upstream.received().is_empty());
}
