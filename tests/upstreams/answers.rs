//! Answers of a second mortise, which are to be the same as if that were asked directly; with tools,
//! policies, limits and usage of the first.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use crate::support::client::{Request, events};
use crate::support::upstream::FakeUpstream;
use crate::support::{Server, example};
use crate::{CHAT, chat, content, in_front_of, remote, streamed};

/// A server with a model `m` that says these lines.
fn speaker(lines: &[(&str, &str)]) -> Server {
    let lines = lines
        .iter()
        .map(|(when, say)| format!("{{ when = {}, say = {} }}", json!(when), json!(say)));
    let lines: Vec<String> = lines.collect();
    Server::configured(&format!(
        "[[models]]\nname = \"m\"\nbackend = \"scripted\"\n[models.script]\nkind = \"conversation\"\n\
         default = \"<think>let me see</think>Grüße an alle\"\nlines = [{}]\n",
        lines.join(", ")
    ))
}

fn behind(speaker: &Server, more: &str) -> Server {
    let table = remote(&[speaker.url("/v1")], "api = \"mortise\"");
    Server::configured(&(more.to_owned() + &table))
}

/// Choices and usage of a stream's events, without the names that differ between servers.
fn told(server: &Server, body: &Value) -> Vec<Value> {
    let events = server.post(CHAT, body).events();
    let parts = events.into_iter().map(
        |mut event| json!({"choices": event["choices"].take(), "usage": event["usage"].take()}),
    );
    parts.collect()
}

#[test]
fn feature_b13_answers_are_those_of_the_upstream() {
    let call = "<call>look_up {\"name\": \"a b\"}</call>";
    let speaker = speaker(&[("call", call)]);
    let server = behind(&speaker, "");
    let tools = json!([{"type": "function", "function": {"name": "look_up"}}]);
    for (text, limit) in [("Hi", 100), ("call", 100), ("Hi", 4)] {
        let mut body = chat("m", text);
        body["tools"] = tools.clone();
        body["max_tokens"] = json!(limit);
        let direct = speaker.post(CHAT, &body).ok();
        let relayed = server.post(CHAT, &body).ok();
        assert_eq!(relayed["choices"], direct["choices"]);
        assert_eq!(relayed["usage"], direct["usage"]);
        assert_eq!(relayed["model"], "remote");
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true, "include_obfuscation": false});
        assert_eq!(told(&server, &body), told(&speaker, &body));
    }
    assert!(server.metric("mortise_tokens_output_total") >= 1.0);
}

#[test]
fn remote_t7_tools_of_the_server_run_for_remote_models() {
    let call = "<call>calculate {\"expression\": \"6 * 7\"}</call>";
    let speaker = speaker(&[("\n42\n", "It is 42."), ("the question", call)]);
    let file = example::built("calculator");
    let mut config = String::new();
    let _ = write!(
        config,
        "[[plugins.bindings]]\nkind = \"tool\"\nfile = {file:?}\n"
    );
    let server = behind(&speaker, &config);
    let mut body = chat("remote", "the question");
    body["server_tools"] = json!(["calculate"]);
    let answer = server.post(CHAT, &body).ok();
    assert_eq!(content(&answer), "It is 42.");
    let called = &answer["choices"][0]["message"]["server_tool_calls"];
    assert_eq!(called[0]["output"], "42");
    assert!(
        answer["usage"]["prompt_tokens"].as_u64() > Some(4),
        "both rounds count"
    );
}

#[test]
fn remote_calls_whose_arguments_are_of_no_use_are_content() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
    for (written, called) in [
        ("{\"a\":1}", Some("{\"a\":1}")),
        ("{\"a\":\"x\ny\",}", Some("{\"a\":\"x\\u000ay\"}")),
        ("", Some("{}")),
        ("{\"a\":NaN}", None),
        ("{\"a\":1e9999}", None),
        ("{\"a\":\"\\ud800\"}", None),
        ("{\"a\":\"unterminated", None),
        (&deep, None),
    ] {
        let text = written.to_owned();
        let upstream = FakeUpstream::start(move |mut asked| {
            asked.begin();
            let (begun, rest) = text.split_at(text.len() / 2);
            for (name, arguments) in [(Some("f"), begun), (None, rest)] {
                let function = json!({"name": name, "arguments": arguments});
                asked
                    .delta(&json!({"tool_calls": [{"index": 0, "id": "c", "function": function}]}));
            }
            asked.finish("tool_calls");
        });
        let server = in_front_of(&upstream, "");
        let mut body = chat("remote", "Hi");
        body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
        let choice = server.post(CHAT, &body).ok()["choices"][0].clone();
        let function = &choice["message"]["tool_calls"][0]["function"];
        match called {
            Some(arguments) => {
                assert_eq!(function["arguments"], arguments, "{written}: {choice}");
                assert_eq!(choice["finish_reason"], "tool_calls", "{written}");
            }
            None => {
                let content = choice["message"]["content"].as_str().expect("a text");
                let names_it = content.contains("`f`") && content.contains(written);
                assert!(names_it, "{written}: {choice}");
                assert!(function.is_null(), "{written}: {choice}");
                assert_eq!(choice["finish_reason"], "stop", "{written}");
            }
        }
    }
}

#[test]
fn remote_calls_of_tools_that_the_request_does_not_allow_are_content() {
    let upstream = FakeUpstream::start(|mut asked| {
        asked.begin();
        let function = json!({"name": "wipe", "arguments": "{\"all\":true}"});
        asked.delta(&json!({"tool_calls": [{"index": 0, "id": "c", "function": function}]}));
        asked.finish("tool_calls");
    });
    let server = in_front_of(&upstream, "");
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let forced = json!({"type": "function", "function": {"name": "f"}});
    for (tools, choice, called) in [
        (json!([]), json!(null), false),
        (json!([tool("f")]), json!("auto"), false),
        (json!([tool("wipe")]), json!("none"), false),
        (json!([tool("f"), tool("wipe")]), forced, false),
        (json!([tool("f"), tool("wipe")]), json!("auto"), true),
    ] {
        let mut body = chat("remote", "Hi");
        if tools != json!([]) {
            body["tools"] = tools.clone();
            body["tool_choice"] = choice.clone();
        }
        let whole = server.post(CHAT, &body).ok()["choices"][0].clone();
        body["stream"] = json!(true);
        let streamed = server.post(CHAT, &body).text();
        assert_eq!(streamed.contains("tool_calls"), called, "{streamed}");
        let message = &whole["message"];
        assert_eq!(message["tool_calls"].is_array(), called, "{whole}");
        if !called {
            let text = message["content"].as_str().expect("a text");
            assert!(
                text.contains("`wipe`") && text.contains("{\"all\":true}"),
                "{whole}"
            );
            assert_eq!(whole["finish_reason"], "stop", "{tools} {choice}");
            assert!(streamed.contains("`wipe`"), "{streamed}");
        }
    }
}

#[test]
fn remote_policies_limits_and_usage_are_those_of_this_server() {
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello"));
    let auth = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\nmax_tokens = 5\n\
                requests_per_minute = 2\nmodels = [\"remote\"]\n";
    let server = Server::configured(&(auth.to_owned() + &remote(&[upstream.url()], "")));
    let body = chat("remote", "Hi");
    assert_eq!(server.post(CHAT, &body).status(), 401);
    let send = |body: &Value| {
        server.send(&Request::post(CHAT, body).header("authorization", "Bearer alices-key"))
    };
    let answer = send(&body).ok();
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    let mut greedy = body.clone();
    greedy["max_tokens"] = json!(5);
    send(&greedy).ok();
    assert_eq!(send(&body).status(), 429);
    let received = upstream.received();
    assert_eq!(received.len(), 2, "refused requests never leave");
    for request in received {
        assert_eq!(
            request.json()["max_tokens"],
            5,
            "the policy's limit goes along"
        );
    }
}

#[test]
fn feature_b6_streams_are_relayed_as_they_come() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = FakeUpstream::start(move |mut asked| {
        asked.begin();
        for word in ["one", " two", " three"] {
            asked.delta(&json!({"content": word}));
            // The next is held back until this one has been read at the far end.
            wait.lock().expect("the gate").recv().expect("a go");
        }
        asked.finish("stop");
    });
    let server = in_front_of(&upstream, "");
    let mut stream = Request::post(CHAT, &streamed("remote", "Hi")).begin(server.address());
    assert_eq!(stream.head().status, 200);
    let mut text = String::new();
    let mut words = Vec::new();
    while let Some(chunk) = stream.chunk() {
        text.push_str(&String::from_utf8(chunk).expect("UTF-8"));
        let found: Vec<String> = events(&text)
            .iter()
            .filter_map(|event| {
                let word = event["choices"][0]["delta"]["content"].as_str()?;
                (!word.is_empty()).then(|| word.to_owned())
            })
            .collect();
        if found.len() > words.len() {
            assert_eq!(found.len(), words.len() + 1, "one at a time");
            words = found;
            go.send(()).expect("the upstream waits");
        }
    }
    assert_eq!(words, ["one", " two", " three"]);
}

#[test]
fn remote_clients_that_go_away_free_the_upstream() {
    let (told, closed) = channel::<()>();
    let told = Mutex::new(told);
    let upstream = FakeUpstream::start(move |mut asked| {
        let body = asked.request.json();
        if body["messages"][0]["content"] == "stream" {
            asked.begin();
            asked.delta(&json!({"content": "Hello"}));
        }
        asked.wait_for_close();
        told.lock()
            .expect("a sender")
            .send(())
            .expect("the test waits");
    });
    let server = in_front_of(&upstream, "max_requests = 1");
    // One that has read a part, and one to whom nothing was sent yet.
    let mut stream = Request::post(CHAT, &streamed("remote", "stream")).begin(server.address());
    assert_eq!(stream.head().status, 200);
    let mut text = String::new();
    while !text.contains("Hello") {
        let chunk = stream.chunk().expect("a chunk");
        text.push_str(&String::from_utf8(chunk).expect("UTF-8"));
    }
    drop(stream);
    closed
        .recv_timeout(crate::support::PATIENCE)
        .expect("the connection is closed");
    crate::support::until("a free place", || {
        server.metric("mortise_batch_size_decode{model=\"remote\"}") < 1.0
    });
    let waiting = Request::post(CHAT, &chat("remote", "silence")).begin(server.address());
    crate::support::until("the second request", || upstream.received().len() == 2);
    let busy = server.post(CHAT, &chat("remote", "silence"));
    assert_eq!(
        (busy.status(), &busy.json()["error"]["code"]),
        (429, &json!("queue_full"))
    );
    drop(waiting);
    closed
        .recv_timeout(crate::support::PATIENCE)
        .expect("the connection is closed");
}

#[test]
fn a_tenant_leaves_places_of_an_upstream_to_others() {
    let upstream = FakeUpstream::start(|mut asked| {
        match asked.request.json()["messages"][0]["content"] == "hang" {
            true => asked.wait_for_close(),
            false => asked.say("Hello"),
        }
    });
    let keys = "[[auth.api_keys]]\nid = \"flood\"\nkey = \"flood-key\"\ntenant = \"flood\"\n\
                [[auth.api_keys]]\nid = \"late\"\nkey = \"late-key\"\ntenant = \"late\"\n";
    let server = in_front_of(&upstream, &format!("max_requests = 6\n{keys}"));
    let by = |key: &str, text: &str| {
        Request::post(CHAT, &chat("remote", text)).header("authorization", &format!("Bearer {key}"))
    };
    let hanging = [(); 3].map(|()| by("flood-key", "hang").begin(server.address()));
    crate::support::until("the requests", || upstream.received().len() == 3);
    let refused = server.send(&by("flood-key", "Hi"));
    assert_eq!(
        (refused.status(), &refused.json()["error"]["code"]),
        (429, &json!("tenant_queue_full"))
    );
    for _ in 0..4 {
        assert_eq!(content(&server.send(&by("late-key", "Hi")).ok()), "Hello");
    }
    drop(hanging);
    crate::support::until("free places", || {
        server.metric("mortise_batch_size_decode{model=\"remote\"}") < 1.0
    });
    assert_eq!(content(&server.send(&by("flood-key", "Hi")).ok()), "Hello");
}
