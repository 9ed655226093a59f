//! Answers that were made before, for requests that are the same.

use serde_json::{Value, json};

use crate::retrieval::saying;
use crate::support::Server;
use crate::support::client::{Request, Response};

const CHAT: &str = "/v1/chat/completions";
const SCRIPT: &str = r#"
default = "A long answer of some words."
lines = [
    { when = "a call", say = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>" },
]
"#;

const KEYS: &str = "[[auth.api_keys]]\nid = \"a\"\nkey = \"key-of-one-012345\"\ntenant = \"acme\"\n\
                    [[auth.api_keys]]\nid = \"b\"\nkey = \"key-of-two-012345\"\ntenant = \"other\"\n";

fn ask(text: &str) -> Value {
    json!({"model": "scripted", "temperature": 0, "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn came(response: &Response) -> Option<String> {
    response.header("x-mortise-cache").map(str::to_owned)
}

fn figures(server: &Server) -> Value {
    server.get("/api/v1/llm/cache/stats").ok()["response_cache"].clone()
}

#[test]
fn feature_k3_the_same_request_has_the_same_answer() {
    let server = Server::scripted(SCRIPT, "[[response_cache.rules]]\n");
    let first = server.post(CHAT, &ask("Hi"));
    assert_eq!(came(&first).as_deref(), Some("miss"));
    let again = server.post(CHAT, &ask("Hi"));
    assert_eq!(came(&again).as_deref(), Some("hit"));
    let (first, again) = (first.ok(), again.ok());
    assert_eq!(first["choices"], again["choices"]);
    let usage = |answer: &Value, name: &str| answer["usage"][name].clone();
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(usage(&first, name), usage(&again, name));
    }
    let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert_eq!(*cached, usage(&again, "prompt_tokens"));
    // A stream has the same text, in pieces.
    let streamed = server.post(CHAT, &with(ask("Hi"), "stream", json!(true)));
    assert_eq!(came(&streamed).as_deref(), Some("hit"));
    let text = streamed.text();
    let pieces = text.lines().filter_map(|line| {
        let chunk: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        let piece = chunk["choices"][0]["delta"]["content"].as_str()?;
        (!piece.is_empty()).then(|| piece.to_owned())
    });
    let pieces: Vec<String> = pieces.collect();
    assert!(pieces.len() > 1);
    assert_eq!(pieces.concat(), "A long answer of some words.");
    // Another prompt, another parameter and another route are other requests.
    assert_eq!(
        came(&server.post(CHAT, &ask("Hi!"))).as_deref(),
        Some("miss")
    );
    let other = with(ask("Hi"), "max_tokens", json!(200));
    assert_eq!(came(&server.post(CHAT, &other)).as_deref(), Some("miss"));
    let figures = figures(&server);
    assert_eq!(
        (&figures["hits"], &figures["misses"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(figures["total_entries"], 3);
    assert!(figures["memory_used_mb"].as_f64() > Some(0.0), "{figures}");
}

#[test]
fn feature_k3_nothing_is_kept_without_a_rule_and_rules_say_whose() {
    let server = Server::scripted(SCRIPT, "");
    for _ in 0..2 {
        assert_eq!(came(&server.post(CHAT, &ask("Hi"))), None);
    }
    assert_eq!(figures(&server)["misses"], 0);
    let rule =
        "[[response_cache.rules]]\ntenants = [\"acme\"]\nroutes = [\"/v1/chat/completions\"]\n";
    let server = Server::scripted(SCRIPT, &format!("{rule}{KEYS}"));
    let post = |key: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer key-of-{key}-012345");
        came(&server.send(&Request::post(path, body).header("authorization", &bearer)))
    };
    assert_eq!(post("one", CHAT, &ask("Hi")).as_deref(), Some("miss"));
    assert_eq!(post("one", CHAT, &ask("Hi")).as_deref(), Some("hit"));
    assert_eq!(post("two", CHAT, &ask("Hi")), None);
    let text = json!({"model": "scripted", "prompt": "Hi", "temperature": 0});
    assert_eq!(post("one", "/v1/completions", &text), None);
}

#[test]
fn feature_k3_one_tenant_never_has_the_answer_of_another() {
    let server = Server::scripted(SCRIPT, &format!("[[response_cache.rules]]\n{KEYS}"));
    let post = |key: &str| {
        let bearer = format!("Bearer key-of-{key}-012345");
        came(&server.send(&Request::post(CHAT, &ask("Hi")).header("authorization", &bearer)))
    };
    let all: Vec<_> = ["one", "two", "one", "two"].into_iter().map(post).collect();
    let words: Vec<&str> = all.iter().flatten().map(String::as_str).collect();
    assert_eq!(words, ["miss", "miss", "hit", "hit"]);
}

#[test]
fn feature_k3_drawn_cut_and_unwanted_answers_are_not_kept() {
    let server = Server::scripted(SCRIPT, "[[response_cache.rules]]\n");
    let twice = |body: &Value| {
        server.post(CHAT, body).ok();
        came(&server.post(CHAT, body))
    };
    // Drawn at random: it is not even looked up.
    assert_eq!(twice(&with(ask("Hi"), "temperature", json!(1))), None);
    let seeded = with(with(ask("Hi"), "temperature", json!(1)), "seed", json!(7));
    assert_eq!(twice(&seeded).as_deref(), Some("hit"));
    // Cut by its limit.
    assert_eq!(
        twice(&with(ask("Hi"), "max_tokens", json!(2))).as_deref(),
        Some("miss")
    );
    // Calls of the caller's own functions are an answer like any other.
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    assert_eq!(
        twice(&with(ask("a call"), "tools", tools)).as_deref(),
        Some("hit")
    );
    let controlled = |value: &str| {
        let request = Request::post(CHAT, &ask("other")).header("cache-control", value);
        came(&server.send(&request))
    };
    for _ in 0..2 {
        assert_eq!(controlled("no-store").as_deref(), Some("miss"));
    }
    assert_eq!(controlled("no-cache").as_deref(), Some("miss"));
    assert_eq!(controlled("max-age=60").as_deref(), Some("hit"));
    assert_eq!(controlled("no-cache").as_deref(), Some("miss"));
    // With a rule that asks for it, what was drawn is kept too.
    let server = Server::scripted(SCRIPT, "[[response_cache.rules]]\nsampled = true\n");
    let drawn = with(ask("Hi"), "temperature", json!(1));
    server.post(CHAT, &drawn).ok();
    assert_eq!(came(&server.post(CHAT, &drawn)).as_deref(), Some("hit"));
}

#[test]
fn feature_k3_a_question_that_is_like_another_has_its_answer() {
    let rule = |least: &str| {
        format!("[[response_cache.rules]]\nsimilarity = {least}\nembedding_model = \"embeds\"\n")
    };
    let asked = |server: &Server, system: &str, text: &str| {
        let body = json!({"model": "scripted", "temperature": 0, "messages": [
            {"role": "system", "content": system}, {"role": "user", "content": text}]});
        came(&server.post(CHAT, &body))
    };
    let (one, other) = (
        "When does the agreement end?",
        "When does the agreement end??",
    );
    let server = saying(SCRIPT, &rule("0.05"));
    assert_eq!(asked(&server, "s", one).as_deref(), Some("miss"));
    assert_eq!(asked(&server, "s", other).as_deref(), Some("hit"));
    // All but the question must be the same.
    assert_eq!(asked(&server, "t", other).as_deref(), Some("miss"));
    // The threshold decides.
    let server = saying(SCRIPT, &rule("1.0"));
    assert_eq!(asked(&server, "s", one).as_deref(), Some("miss"));
    assert_eq!(
        asked(&server, "s", "Bananas are yellow, he said.").as_deref(),
        Some("miss")
    );
}

#[test]
fn feature_k5_operators_clear_the_answers() {
    let admin = "[[response_cache.rules]]\n[admin]\nport = 0\nkey = \"0123456789abcdef\"\nllm_routes = true\n";
    let server = Server::scripted(SCRIPT, admin);
    let ask = json!({"prompt": "Hi", "model": "scripted", "temperature": 0});
    let hit = || server.post("/api/v1/llm/inference", &ask).ok()["cache_hit"].clone();
    assert_eq!((hit(), hit()), (json!(false), json!(true)));
    let clear = |what: &str| {
        let request = Request::post("/api/v1/llm/cache/clear", &json!({"cache_type": what}));
        server
            .send(&request.header("x-admin-token", "0123456789abcdef"))
            .ok()
    };
    assert_eq!(clear("prefix")["cleared"], "prefix");
    assert_eq!(hit(), true);
    let cleared = clear("response");
    assert_eq!(cleared["entries_removed"], 1);
    assert!(cleared["memory_freed_mb"].as_f64() > Some(0.0), "{cleared}");
    assert_eq!(figures(&server)["total_entries"], 0);
    assert_eq!(hit(), false);
}
