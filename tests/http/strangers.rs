//! Behaviour that clients of other servers rely on: fields that they send, routes that they ask, lists that they see.

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{Server, model};

const TEXT: &str = "/v1/completions";

fn with(mut body: Value, more: &Value) -> Value {
    for (field, value) in more.as_object().expect("fields") {
        body[field] = value.clone();
    }
    body
}

fn ids(value: &Value) -> Vec<u64> {
    let ids = value.as_array().expect("a list of ids");
    ids.iter().filter_map(Value::as_u64).collect()
}

/// The ids in all chunks, one after the other.
fn streamed(events: &[Value]) -> Vec<u64> {
    let choices = events.iter().filter_map(|event| event["choices"].get(0));
    choices
        .flat_map(|choice| ids(&choice["token_ids"]))
        .collect()
}

#[test]
fn ids_of_all_tokens_are_returned_where_they_are_wanted() {
    let server = Server::start(&[]);
    let more = json!({"model": "mortise-demo", "return_token_ids": true, "temperature": 0});
    let asked = with(chat("What is 17 + 25?"), &more);
    let whole = server.post(CHAT, &asked).ok();
    let usage = |name: &str| whole["usage"][name].as_u64().expect("a number");
    let (prompt, made) = (
        ids(&whole["prompt_token_ids"]),
        ids(&whole["choices"][0]["token_ids"]),
    );
    assert_eq!(prompt.len() as u64, usage("prompt_tokens"));
    assert_eq!(made.len() as u64, usage("completion_tokens"));
    let rendered = server.post("/v1/chat/completions/render", &chat("What is 17 + 25?"));
    assert_eq!(prompt, ids(&rendered.ok()["prompt_token_ids"]));
    // The ids are those of the text: of the reasoning, of what is between, and of the answer.
    let text = server.post("/detokenize", &json!({"tokens": made})).ok()["prompt"].to_string();
    let answer = whole["choices"][0]["message"]["content"].as_str();
    assert!(text.contains(answer.expect("an answer")), "{text}");

    let events = server
        .post(CHAT, &with(asked.clone(), &json!({"stream": true})))
        .events();
    assert_eq!(ids(&events[0]["prompt_token_ids"]), prompt);
    assert!(events[1]["prompt_token_ids"].is_null());
    assert_eq!(streamed(&events), made);

    // A call has more tokens than text.
    let tool = json!({"type": "function", "function": {"name": "get_weather", "parameters":
        {"type": "object", "properties": {"location": {"type": "string"}}}}});
    let called = with(
        chat("What is the weather in Paris?"),
        &with(more.clone(), &json!({"tools": [tool]})),
    );
    let called = server.post(CHAT, &called).ok();
    let made = ids(&called["choices"][0]["token_ids"]).len() as u64;
    assert_eq!(called["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(Some(made), called["usage"]["completion_tokens"].as_u64());

    let plain = server.post(CHAT, &chat("Hi")).ok();
    assert!(plain["prompt_token_ids"].is_null() && plain["choices"][0]["token_ids"].is_null());
    let refused = server.post(CHAT, &with(asked, &json!({"server_tools": ["calculator"]})));
    assert_eq!(refused.json()["error"]["param"], "return_token_ids");
}

#[test]
fn ids_of_completions_stand_in_each_choice() {
    let server = Server::scripted("default = \"Hello there\"", "");
    let asked = json!({
        "model": "scripted", "prompt": [[97, 98], [99]], "n": 2, "max_tokens": 3, "return_token_ids": true,
    });
    let whole = server.post(TEXT, &asked).ok();
    let expected = [vec![97, 98], vec![97, 98], vec![99], vec![99]];
    for (choice, prompt) in whole["choices"]
        .as_array()
        .expect("four")
        .iter()
        .zip(expected)
    {
        assert_eq!(ids(&choice["prompt_token_ids"]), prompt);
        assert_eq!(ids(&choice["token_ids"]).len(), 3);
    }
    let one = with(asked, &json!({"prompt": [97, 98], "n": 1, "stream": true}));
    let events = server.post(TEXT, &one).events();
    assert_eq!(ids(&events[0]["choices"][0]["prompt_token_ids"]), [97, 98]);
    assert_eq!(streamed(&events), ids(&whole["choices"][0]["token_ids"]));
}

#[test]
fn feature_f3_anthropics_limit_is_cut_to_what_the_context_holds() {
    let script = "default = \"abcdefghij\"\nrepeat = 100\ncontext_length = 64";
    let server = Server::scripted(script, "");
    let asked = json!({
        "model": "scripted", "max_tokens": 4096, "messages": [{"role": "user", "content": "Hi"}],
    });
    let whole = server.post("/v1/messages", &asked).ok();
    assert_eq!(whole["stop_reason"], "model_context_window_exceeded");
    let events = server.post(
        "/v1/messages",
        &with(asked.clone(), &json!({"stream": true})),
    );
    assert!(
        events.text().contains("model_context_window_exceeded"),
        "{}",
        events.text()
    );
    let short = server.post(
        "/v1/messages",
        &with(asked.clone(), &json!({"max_tokens": 3})),
    );
    assert_eq!(short.ok()["stop_reason"], "max_tokens");
    // Elsewhere the caller's limit must fit.
    let refused = server.post(CHAT, &with(chat("Hi"), &json!({"max_tokens": 4096})));
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    let long = "x".repeat(100);
    let long = json!({"messages": [{"role": "user", "content": long}]});
    let refused = server.post("/v1/messages", &with(asked, &long));
    assert_eq!(refused.status(), 400);
}

#[test]
fn answers_of_other_servers_come_back_with_what_those_gave_them() {
    let server = Server::scripted("default = \"Hello\"", "");
    let conversation = |role: &str| {
        json!({"model": "scripted", "messages": [
            {"role": "user", "content": "Hi"},
            {"role": role, "content": "Hello", "provider_specific_fields": {"refusal": null}},
            {"role": "user", "content": "Bye"},
        ]})
    };
    let answered = server.post(CHAT, &conversation("assistant"));
    assert_eq!(
        answered.header("x-mortise-ignored"),
        Some("messages[1].provider_specific_fields")
    );
    assert_eq!(answered.status(), 200);
    // What a caller writes itself is not passed over.
    let refused = server.post(CHAT, &conversation("user")).json();
    let param = "messages[1].provider_specific_fields";
    assert_eq!(refused["error"]["param"], param);
}

#[test]
fn a_body_needs_no_type_unless_a_browser_sends_it() {
    let server = Server::scripted("default = \"Hello\"", "");
    let untyped = || {
        let mut request = Request::post(CHAT, &chat("Hi"));
        request.headers.clear();
        request
    };
    assert_eq!(server.send(&untyped()).status(), 200);
    for (name, value) in [
        ("origin", "https://example.com"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let refused = server.send(&untyped().header(name, value));
        assert_eq!(refused.status(), 415, "{name}: {value}");
    }
}

#[test]
fn routes_without_a_version_can_be_switched_off() {
    let server = Server::scripted("default = \"Hello\"", "");
    assert_eq!(server.post("/chat/completions", &chat("Hi")).status(), 200);
    assert_eq!(server.get("/models/scripted").status(), 200);
    let server = Server::scripted("default = \"Hello\"", "[openai]\nunversioned = false\n");
    let unknown = server.post("/chat/completions", &chat("Hi"));
    assert_eq!(unknown.json()["error"]["code"], "unknown_route");
    assert_eq!(server.get("/models").status(), 404);
    assert_eq!(server.post(CHAT, &chat("Hi")).status(), 200);
}

#[test]
fn a_model_is_told_of_as_by_llama_server() {
    let server = Server::configured("[limits]\nmax_batch = 3\n");
    let props = server.get("/props").ok();
    assert_eq!(props["total_slots"], 3);
    assert_eq!(props["model_alias"], "mortise-demo");
    assert_eq!(props["default_generation_settings"]["n_ctx"], 2048);
    assert!(
        props["chat_template"]
            .as_str()
            .is_some_and(|template| template.contains("im_start"))
    );
    let slots = server.get("/slots?fail_on_no_slot=1").ok();
    let slots = slots.as_array().expect("a list");
    assert_eq!(slots.len(), 3);
    for (id, slot) in slots.iter().enumerate() {
        assert_eq!(slot["id"], id);
        assert_eq!(slot["is_processing"], false);
    }
    let named = server.get("/props?model=mortise-demo");
    assert_eq!(named.ok(), props);
    let refused = server.get("/slots?models=x").json();
    assert_eq!(refused["error"]["param"], "models");
    // A model without slots is never busy.
    let scripted = Server::scripted("default = \"x\"", "");
    let none = scripted.get("/slots?fail_on_no_slot=1").ok();
    assert_eq!(none, json!([]));
}

/// Names in the lists of all dialects, and in the hint of a 404, for the holder of a key.
fn shown(server: &Server, key: &str) -> Vec<Value> {
    let get = |path: &str| Request::get(path).header("x-api-key", key);
    let names = |request: Request, list: &str, name: &str| {
        let body = server.send(&request).ok();
        let rows = body[list].as_array().expect("rows").iter();
        rows.map(|row| row[name].clone()).collect::<Value>()
    };
    let anthropic = get("/v1/models").header("anthropic-version", "2023-06-01");
    let unknown = with(chat("Hi"), &json!({"model": "a-third"}));
    let unknown = Request::post(CHAT, &unknown).header("x-api-key", key);
    let retrieved = get("/v1/models/a-third");
    let hint = |request: Request| server.send(&request).json()["error"]["message"].clone();
    vec![
        names(get("/v1/models"), "data", "id"),
        names(anthropic, "data", "id"),
        names(get("/api/tags"), "models", "name"),
        names(get("/api/ps"), "models", "name"),
        hint(unknown),
        hint(retrieved),
    ]
}

#[test]
fn feature_e5_lists_and_hints_show_a_key_only_what_it_may_use() {
    let path = model::byte_level();
    let entry = |name: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {path:?}\nbackend = \"scripted\"\n\
             [models.script]\ndefault = \"Hello\"\n"
        )
    };
    let keys = "[[auth.api_keys]]\nid = \"all\"\nkey = \"key-of-all-0123\"\nrequests_per_minute = 20\n\
                [[auth.api_keys]]\nid = \"one\"\nkey = \"key-of-one-0123\"\nmodels = [\"a-*\"]\n";
    let server = Server::configured(&[keys, &entry("a-first"), &entry("b-second")].concat());
    let hint = |names: &str| {
        json!(format!(
            "the model `a-third` does not exist; available: {names}"
        ))
    };
    let (both, one) = (json!(["a-first", "b-second"]), json!(["a-first"]));
    let (all, few) = (hint("a-first, b-second"), hint("a-first"));
    let expected = vec![one.clone(), one.clone(), one.clone(), one, few.clone(), few];
    assert_eq!(shown(&server, "key-of-one-0123"), expected);
    let expected = vec![
        both.clone(),
        both.clone(),
        both.clone(),
        both,
        all.clone(),
        all,
    ];
    assert_eq!(shown(&server, "key-of-all-0123"), expected);
    // To ask about each model took nothing: these were six requests, and this is the seventh.
    let list = Request::get("/v1/models").header("x-api-key", "key-of-all-0123");
    let left = server.send(&list);
    assert_eq!(left.header("x-ratelimit-remaining-requests"), Some("13"));
    let refused = Request::get("/v1/models/b-second").header("x-api-key", "key-of-one-0123");
    assert_eq!(server.send(&refused).status(), 403);
}

#[test]
fn feature_e3_the_input_of_a_response_is_counted() {
    let server = Server::start(&[]);
    let count = |body: &Value| server.post("/v1/responses/input_tokens", body).ok();
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    let asked = json!({"input": "Hi", "instructions": "Be brief.", "tools": [tool]});
    let counted = count(&asked);
    assert_eq!(counted["object"], "response.input_tokens");
    let made = server.post("/v1/responses", &asked).ok();
    assert_eq!(counted["input_tokens"], made["usage"]["input_tokens"]);
    let next = json!({"input": "And?", "previous_response_id": made["id"]});
    let counted = count(&next);
    let made = server.post("/v1/responses", &next).ok();
    assert_eq!(counted["input_tokens"], made["usage"]["input_tokens"]);
    let unknown = json!({"input": "And?", "previous_response_id": "resp_none"});
    let refused = server.post("/v1/responses/input_tokens", &unknown);
    assert_eq!(refused.status(), 404);
}

#[test]
fn a_prompt_is_repeated_and_nothing_generated() {
    let server = Server::scripted("default = \"Hello\"", "");
    let asked = json!({
        "model": "scripted", "prompt": ["Once", "Twice"], "n": 2, "max_tokens": 0, "echo": true,
    });
    let whole = server.post(TEXT, &asked).ok();
    let choices = whole["choices"].as_array().expect("choices").iter();
    let texts: Vec<&str> = choices
        .filter_map(|choice| choice["text"].as_str())
        .collect();
    assert_eq!(texts, ["Once", "Once", "Twice", "Twice"]);
    assert_eq!(whole["choices"][3]["finish_reason"], "length");
    assert_eq!(whole["usage"]["prompt_tokens"], 9);
    assert_eq!(whole["usage"]["completion_tokens"], 0);
    let more = json!({"stream": true, "n": 1, "prompt": "Once"});
    let events = server.post(TEXT, &with(asked.clone(), &more)).events();
    assert_eq!(events[0]["choices"][0]["text"], "Once");
    assert_eq!(events[1]["choices"][0]["finish_reason"], "length");
    // Without the prompt nothing would be left.
    let refused = server
        .post(TEXT, &with(asked, &json!({"echo": false})))
        .json();
    assert_eq!(refused["error"]["param"], "max_tokens");
}
