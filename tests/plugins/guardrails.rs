//! Guardrails, from a plugin file to the end of an answer.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};
use crate::support::example::{built, every_kind};

const CHAT: &str = "/v1/chat/completions";

/// A server whose scripted model says `say`, with a guardrail in this file.
fn serve(file: &std::path::Path, binding: &str, say: &str) -> Server {
    Server::scripted(
        &format!("default = {}", json!(say)),
        &format!(
            "[[plugins.bindings]]\nkind = \"guardrail\"\nfile = {file:?}\nbreaker = {{ failures = 0 }}\n{binding}\n"
        ),
    )
}

/// A server with the example guardrail that looks for words.
fn words(binding: &str, say: &str) -> Server {
    serve(&built("banned-words"), binding, say)
}

/// A server with the guest whose verdict is the one that the text asks for.
fn guest(binding: &str, say: &str) -> Server {
    serve(every_kind(), binding, say)
}

fn body(more: &Value) -> Value {
    let mut body = json!({
        "model": "scripted",
        "messages": [{"role": "user", "content": "the question"}],
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

fn ask(server: &Server, more: &Value) -> Response {
    server.post(CHAT, &body(more))
}

/// Content and finish reason of a choice.
fn said(answer: &Value) -> (String, String) {
    let choice = &answer["choices"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        text(&choice["message"]["content"]),
        text(&choice["finish_reason"]),
    )
}

/// Content and finish reason of a streamed choice.
fn streamed(server: &Server) -> (String, String) {
    let response = ask(server, &json!({"stream": true}));
    let (mut content, mut reason) = (String::new(), String::new());
    for event in response.events() {
        let choice = &event["choices"][0];
        content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        reason.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    (content, reason)
}

#[test]
fn feature_w6_text_that_is_held_back_never_goes_out_before_its_verdict() {
    let server = words(
        "mode = \"hold\"\nhold_tokens = 16\nevery_tokens = 1",
        "The secret is Swordfish, as they say.",
    );
    let (content, reason) = streamed(&server);
    assert_eq!(reason, "content_filter");
    assert!(
        "The secret is ".starts_with(content.trim_end()),
        "{content}"
    );
    assert!(!content.to_lowercase().contains("sword"), "{content}");
    let whole = ask(&server, &json!({})).ok();
    assert_eq!(
        said(&whole),
        (content, reason),
        "streamed and whole are alike"
    );
    let refusals =
        "mortise_guardrail_refusals_total{guardrail=\"banned_words\",refused=\"output\"}";
    assert_eq!(server.metric(refusals), 2.0);
    server
        .wait_for_log(|line| line.contains("a guardrail ended a choice") && line.contains("word"));
}

#[test]
fn feature_w6_held_text_is_mended() {
    let server = words(
        "mode = \"hold\"\nevery_tokens = 1\nsettings = { words = [\"swordfish\"], replace_with = \"***\" }",
        "It is Swordfish and swordfish, no swordplay.",
    );
    let expected = "It is *** and ***, no swordplay.".to_owned();
    let whole = ask(&server, &json!({})).ok();
    assert_eq!(said(&whole), (expected.clone(), "stop".to_owned()));
    assert_eq!(streamed(&server), (expected, "stop".to_owned()));
}

#[test]
fn feature_w6_an_observer_ends_a_choice_and_lets_others_be() {
    let server = words("every_tokens = 1", "It is Swordfish.");
    let (content, reason) = streamed(&server);
    assert_eq!(reason, "content_filter");
    assert!("It is Swordfish.".starts_with(&content), "{content}");
    let server = words("", "Nothing of the kind.");
    let whole = ask(&server, &json!({"n": 2})).ok();
    for choice in whole["choices"].as_array().expect("choices") {
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!(choice["message"]["content"], "Nothing of the kind.");
    }
}

#[test]
fn feature_w6_each_choice_has_a_session_and_each_dialect_an_end() {
    let server = words("mode = \"hold\"", "It is Swordfish.");
    let whole = ask(&server, &json!({"n": 3})).ok();
    for choice in whole["choices"].as_array().expect("choices") {
        assert_eq!(choice["finish_reason"], "content_filter", "{choice}");
    }
    let message = json!({
        "model": "scripted", "max_tokens": 50,
        "messages": [{"role": "user", "content": "the question"}],
    });
    let response = server.post("/v1/messages", &message);
    assert_eq!(response.ok()["stop_reason"], "refusal");
    let response = server.post(
        "/v1/responses",
        &json!({"model": "scripted", "input": "Hi"}),
    );
    let answer = response.ok();
    assert_eq!(answer["status"], "incomplete");
    assert_eq!(answer["incomplete_details"]["reason"], "content_filter");
    let text = server.post(
        "/v1/completions",
        &json!({"model": "scripted", "prompt": "Hi"}),
    );
    assert_eq!(text.ok()["choices"][0]["finish_reason"], "content_filter");
}

#[test]
fn feature_w6_what_is_asked_is_looked_at_before_the_model_sees_it() {
    let server = words("", "Well.");
    let asked = json!({"messages": [{"role": "user", "content": "Is it swordfish?"}]});
    let refused = ask(&server, &asked);
    assert_eq!(refused.status(), 400, "{}", refused.text());
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "content_filter");
    assert_eq!(
        error["message"],
        "the conversation has a word that may not be used"
    );
    let prompt = json!({"model": "scripted", "prompt": "swordfish"});
    assert_eq!(server.post("/v1/completions", &prompt).status(), 400);
    let tokens = server.post(
        "/v1/completions",
        &json!({"model": "scripted", "prompt": [1, 2]}),
    );
    assert_eq!(tokens.status(), 400);
    assert!(
        tokens.text().contains("text, not tokens"),
        "{}",
        tokens.text()
    );
    assert_eq!(ask(&server, &json!({})).status(), 200);
}

#[test]
fn feature_w6_a_guardrail_that_breaks_down_fails_its_answer_or_is_passed_over() {
    let endless = "deadline_ms = 100\nsettings = { watch = \"loop\" }";
    for (hostile, mode) in [
        ("settings = { watch = \"panic\" }", "observe"),
        ("settings = { watch = \"panic\" }", "hold"),
        (endless, "hold"),
        ("settings = { \"close-watch\" = \"panic\" }", "observe"),
    ] {
        for (policy, status) in [("closed", 500), ("open", 200)] {
            let binding = format!("mode = {mode:?}\non_failure = {policy:?}\n{hostile}");
            let server = guest(&binding, "The answer.");
            let answer = ask(&server, &json!({}));
            assert_eq!(answer.status(), status, "{binding}: {}", answer.text());
            if status == 200 {
                assert_eq!(said(&answer.json()).0, "The answer.", "{binding}");
            }
            assert!(!answer.text().contains("the guest gives up"));
        }
    }
}

#[test]
fn feature_w6_verdicts_that_make_no_sense_fail_the_answer() {
    for (mode, say) in [
        ("observe", "replace! what is out"),
        ("hold", "label! no code"),
        ("hold", "bloat! no end"),
    ] {
        let binding = format!("mode = {mode:?}\nevery_tokens = 32");
        let answer = ask(&guest(&binding, say), &json!({}));
        assert_eq!(answer.status(), 500, "{mode} {say}: {}", answer.text());
    }
    // Whoever never decides holds no more than the binding allows, and all of it goes out.
    let server = guest(
        "mode = \"hold\"\nhold_tokens = 32\nevery_tokens = 16",
        "undecided! undecided! undecided! undecided!",
    );
    let expected = "undecided! undecided! undecided! undecided!".to_owned();
    assert_eq!(streamed(&server), (expected, "stop".to_owned()));
}

/// A server whose policy asks for the change that the header names.
fn rewriting(granted: &str) -> Server {
    let file = every_kind();
    let other = crate::support::model::byte_level();
    let script = format!(
        "default = \"one two three four five six\"\nlines = [{{ when = \"Be brief\", say = \"Brief.\" }}]\n\
         [[models]]\nname = \"other\"\npath = {other:?}\nbackend = \"scripted\"\n\
         [models.script]\ndefault = \"Another.\""
    );
    Server::scripted(
        &script,
        &format!(
            "[[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\nheaders = [\"*\"]\nrewrite = {granted}\n"
        ),
    )
}

fn ask_for(server: &Server, rewrite: &str, more: &Value) -> Response {
    let request = Request::post(CHAT, &body(more)).header("x-ask", &format!("rewrite:{rewrite}"));
    server.send(&request)
}

#[test]
fn feature_w7_a_policy_changes_what_its_operator_lets_it() {
    let all = "[\"system\", \"max_tokens\", \"model\", \"temperature\"]";
    let server = rewriting(all);
    let brief = ask_for(&server, "system=Be brief", &json!({})).ok();
    assert_eq!(said(&brief).0, "Brief.");
    let own = json!({"messages": [
        {"role": "system", "content": "Talk."}, {"role": "user", "content": "Hi"}]});
    for (rewrite, brief) in [("system", false), ("before", true), ("instead", true)] {
        let answer = ask_for(&server, &format!("{rewrite}=Be brief"), &own).ok();
        assert_eq!(said(&answer).0 == "Brief.", brief, "{rewrite}");
    }
    let short = ask_for(&server, "max_tokens=2", &json!({})).ok();
    assert_eq!(said(&short).1, "length");
    assert_eq!(short["usage"]["completion_tokens"], 2);
    let asked = ask_for(&server, "max_tokens=2", &json!({"max_tokens": 4})).ok();
    assert_eq!(
        asked["usage"]["completion_tokens"], 4,
        "the caller said how many"
    );
    server.wait_for_log(|line| line.contains("rewrites") && line.contains("max_tokens"));
    let other = ask_for(&server, "model=other", &json!({})).ok();
    assert_eq!(other["model"], "other");
    assert_eq!(said(&other).0, "Another.");
    let missing = ask_for(&server, "model=no-such", &json!({}));
    assert_eq!(missing.status(), 404, "{}", missing.text());
}

#[test]
fn feature_w7_a_change_that_was_not_granted_is_the_plugins_fault() {
    let server = rewriting("[\"max_tokens\"]");
    assert_eq!(ask_for(&server, "max_tokens=2", &json!({})).status(), 200);
    for rewrite in ["model=other", "system=x", "temperature=0.1", "max_tokens=0"] {
        let answer = ask_for(&server, rewrite, &json!({}));
        assert_eq!(answer.status(), 500, "{rewrite}: {}", answer.text());
    }
    let twice = ask_for(&server, "max_tokens=2,max_tokens=3", &json!({}));
    assert_eq!(twice.status(), 500);
}

/// The embedded policy, which was asked first, is asked again about the model that a later one chose.
#[test]
fn feature_w7_a_chosen_model_is_put_before_the_other_policies() {
    let file = every_kind();
    let other = crate::support::model::byte_level();
    let script = format!(
        "default = \"One.\"\n[[models]]\nname = \"other\"\npath = {other:?}\nbackend = \"scripted\"\n\
         [models.script]\ndefault = \"Another.\""
    );
    let config = format!(
        "[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\ntenant = \"acme\"\nmodels = [\"scripted\"]\n\
         [[auth.api_keys]]\nid = \"bob\"\nkey = \"bobs-key\"\ntenant = \"acme\"\n\
         [[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\nheaders = [\"x-ask\"]\n\
         rewrite = [\"model\"]\ntenants = [\"acme\"]\n"
    );
    let server = Server::scripted(&script, &config);
    let asked = |key: &str, rewrite: &str| {
        let request = Request::post(CHAT, &body(&json!({})))
            .header("authorization", &format!("Bearer {key}"))
            .header("x-ask", rewrite);
        server.send(&request)
    };
    assert_eq!(asked("alices-key", "someone").ok()["model"], "scripted");
    assert_eq!(
        asked("bobs-key", "rewrite:model=other").ok()["model"],
        "other"
    );
    let denied = asked("alices-key", "rewrite:model=other");
    assert_eq!(denied.status(), 403, "{}", denied.text());
}
