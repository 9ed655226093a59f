//! Responses and conversations: whole, streamed, continued, in the background.

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{Server, wait_for};

pub(crate) const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: &str = "/v1/conversations";

pub(crate) const SCRIPT: &str = r#"
default = "Hello there, wörld 👋."
lines = [
    { when = "sunny in Paris", say = "It is sunny." },
    { when = "weather", say = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>" },
    { when = "think", say = "<think>\nLet me see.\n</think>\n\nForty-two." },
    { when = "my name is Ada", say = "Hello Ada." },
]
"#;

pub(crate) fn ask(input: Value) -> Value {
    json!({"model": "scripted", "input": input})
}

pub(crate) fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

pub(crate) fn weather() -> Value {
    json!([{"type": "function", "name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }}])
}

pub(crate) fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().expect("items").iter();
    let messages = items.filter(|item| item["type"] == "message");
    let texts = messages.map(|item| item["content"][0]["text"].as_str().expect("a text"));
    texts.collect()
}

/// Ids and times differ from one answer to the next.
fn timeless(mut response: Value) -> Value {
    for field in ["id", "created_at", "completed_at"] {
        response[field] = Value::Null;
    }
    for item in response["output"].as_array_mut().expect("items") {
        item["id"] = Value::Null;
        if item.get("call_id").is_some() {
            item["call_id"] = Value::Null;
        }
    }
    response
}

#[test]
fn feature_e3_a_response_has_every_field() {
    let server = Server::scripted(SCRIPT, "");
    let response = server.post(RESPONSES, &ask(json!("Hi"))).ok();
    assert!(
        response["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("resp_"))
    );
    assert_eq!(response["object"], "response");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["model"], "scripted");
    assert_eq!(text_of(&response), "Hello there, wörld 👋.");
    // The required fields of the response object of the Open Responses specification.
    for field in [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "model",
        "previous_response_id",
        "instructions",
        "output",
        "error",
        "tools",
        "tool_choice",
        "truncation",
        "parallel_tool_calls",
        "text",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "temperature",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "background",
        "service_tier",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
    ] {
        assert!(
            response.get(field).is_some(),
            "{field} is missing in {response}"
        );
    }
    let usage = &response["usage"];
    let of = |field: &str| usage[field].as_u64().expect("a count");
    assert_eq!(of("output_tokens"), "Hello there, wörld 👋.".len() as u64);
    assert_eq!(of("total_tokens"), of("input_tokens") + of("output_tokens"));
    let cut = with(ask(json!("Hi")), "max_output_tokens", json!(5));
    let cut = server.post(RESPONSES, &cut).ok();
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(cut["incomplete_details"]["reason"], "max_output_tokens");
}

/// Rules of the event grammar; returns the response of the last event.
pub(crate) fn check_grammar(events: &[Value]) -> Value {
    let kind = |event: &Value| event["type"].as_str().expect("a type").to_owned();
    let mut texts: Vec<String> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
        let place = event["output_index"].as_u64().unwrap_or_default() as usize;
        match kind(event).as_str() {
            "response.output_item.added" => {
                assert_eq!(place, texts.len());
                assert_eq!(event["item"]["status"], "in_progress");
                texts.push(String::new());
            }
            name if name.ends_with(".delta") => {
                texts[place].push_str(event["delta"].as_str().expect("a delta"));
            }
            "response.output_text.done" | "response.reasoning_text.done" => {
                assert_eq!(event["text"], texts[place]);
            }
            "response.function_call_arguments.done" => assert_eq!(event["arguments"], texts[place]),
            _ => {}
        }
    }
    assert_eq!(kind(&events[0]), "response.created");
    let last = events.last().expect("a last event");
    let output = last["response"]["output"].as_array().expect("items");
    assert_eq!(output.len(), texts.len());
    let done = events
        .iter()
        .filter(|event| kind(event) == "response.output_item.done");
    assert!(
        done.map(|event| &event["item"]).eq(output),
        "items are told as they end"
    );
    last["response"].clone()
}

#[test]
fn feature_r5_a_stream_says_what_the_whole_response_says() {
    let server = Server::scripted(SCRIPT, "");
    for (input, items) in [
        ("Hi", vec!["message"]),
        ("think", vec!["reasoning", "message"]),
        ("weather", vec!["function_call"]),
    ] {
        let tools = if input == "weather" {
            weather()
        } else {
            json!([])
        };
        let body = with(ask(json!(input)), "tools", tools);
        let whole = server.post(RESPONSES, &body).ok();
        let streamed = server.post(RESPONSES, &with(body, "stream", json!(true)));
        let text = streamed.text();
        for line in text.lines().filter_map(|line| line.strip_prefix("event: ")) {
            assert!(
                text.contains(&format!("data: {{\"type\":\"{line}\"")),
                "{line}"
            );
        }
        let last = check_grammar(&streamed.events());
        assert_eq!(timeless(last), timeless(whole.clone()), "{input}");
        let kinds = whole["output"].as_array().expect("items").iter();
        assert!(
            kinds
                .map(|item| item["type"].as_str().expect("a type"))
                .eq(items)
        );
    }
}

#[test]
fn feature_f17_responses_are_kept_continued_and_deleted() {
    let server = Server::scripted(SCRIPT, "");
    let first = with(
        ask(json!("my name is Ada")),
        "metadata",
        json!({"turn": "1"}),
    );
    let first = server.post(RESPONSES, &first).ok();
    let id = first["id"].as_str().expect("an id");
    let path = format!("{RESPONSES}/{id}");
    assert_eq!(server.get(&path).ok(), first);
    let tools = with(ask(json!("weather")), "previous_response_id", json!(id));
    let second = server
        .post(RESPONSES, &with(tools, "tools", weather()))
        .ok();
    assert_eq!(second["previous_response_id"], id);
    let call = &second["output"][0];
    assert_eq!(call["type"], "function_call");
    assert_eq!(call["arguments"], "{\"city\": \"Paris\"}");
    // The whole chain is in the prompt: the output of a call of the second response joins it.
    let output = json!([{
        "type": "function_call_output", "call_id": call["call_id"], "output": "sunny in Paris",
    }]);
    let third = with(
        ask(output.clone()),
        "previous_response_id",
        second["id"].clone(),
    );
    let third = server.post(RESPONSES, &third).ok();
    assert_eq!(text_of(&third), "It is sunny.");
    let input = |response: &Value| response["usage"]["input_tokens"].as_u64().expect("a count");
    assert!(input(&third) > input(&first));
    // Without the chain there is no such call.
    let lone = server.post(RESPONSES, &ask(output));
    assert_eq!(lone.status(), 400);
    assert_eq!(lone.json()["error"]["param"], "input[0].call_id");

    let items = server.get(&format!("{path}/input_items")).ok();
    assert_eq!(items["data"][0]["content"][0]["text"], "my name is Ada");
    assert_eq!(items["has_more"], false);
    let gone = server.send(&Request::get(&path).method("DELETE")).ok();
    assert_eq!(
        gone,
        json!({"id": id, "object": "response", "deleted": true})
    );
    let absent = server.get(&path);
    assert_eq!(
        (absent.status(), &absent.json()["error"]["code"]),
        (404, &json!("not_found"))
    );
    let next = with(
        ask(json!("Hi")),
        "previous_response_id",
        second["id"].clone(),
    );
    let next = server.post(RESPONSES, &next);
    assert_eq!(next.status(), 404);
    assert_eq!(next.json()["error"]["code"], "previous_response_not_found");
    // What is not to be stored is not.
    let passing = server
        .post(RESPONSES, &with(ask(json!("Hi")), "store", json!(false)))
        .ok();
    let path = format!("{RESPONSES}/{}", passing["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path).status(), 404);
}

#[test]
fn feature_e3_conversations_gather_what_is_said() {
    let server = Server::scripted(SCRIPT, "");
    let body = json!({"metadata": {"topic": "t"}, "items": [{"role": "user", "content": "One"}]});
    let conversation = server.post(CONVERSATIONS, &body).ok();
    let id = conversation["id"].as_str().expect("an id").to_owned();
    let path = format!("{CONVERSATIONS}/{id}");
    assert_eq!(server.get(&path).ok(), conversation);
    let asked = with(ask(json!("think")), "conversation", json!(id));
    let response = server.post(RESPONSES, &asked).ok();
    assert_eq!(response["conversation"], json!({"id": id}));
    let list = |query: &str| server.get(&format!("{path}/items{query}")).ok();
    let all = list("?order=asc");
    let kinds: Vec<_> = all["data"].as_array().expect("items").iter().collect();
    let kinds: Vec<_> = kinds
        .iter()
        .map(|item| item["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(kinds, ["message", "message", "reasoning", "message"]);
    let page = list("?limit=1");
    assert_eq!(
        (&page["data"][0], &page["has_more"]),
        (&all["data"][3], &json!(true))
    );
    let after = page["last_id"].as_str().expect("an id");
    assert_eq!(
        list(&format!("?limit=1&after={after}"))["data"][0],
        all["data"][2]
    );
    let item = all["data"][0]["id"].as_str().expect("an id");
    assert_eq!(
        server.get(&format!("{path}/items/{item}")).ok(),
        all["data"][0]
    );
    let delete = |path: &str| server.send(&Request::get(path).method("DELETE"));
    assert_eq!(
        delete(&format!("{path}/items/{item}")).ok()["id"],
        json!(id)
    );
    assert_eq!(delete(&format!("{path}/items/{item}")).status(), 404);
    let more = json!({"items": [{"role": "user", "content": "Two"}]});
    let added = server.post(&format!("{path}/items"), &more).ok();
    assert_eq!(added["data"][0]["content"][0]["text"], "Two");
    let changed = server
        .post(&path, &json!({"metadata": {"topic": "u"}}))
        .ok();
    assert_eq!(changed["metadata"]["topic"], "u");
    assert_eq!(delete(&path).ok()["object"], "conversation.deleted");
    assert_eq!(server.get(&path).status(), 404);
    let orphan = server.post(
        RESPONSES,
        &with(ask(json!("Hi")), "conversation", json!(id)),
    );
    assert_eq!(
        (orphan.status(), &orphan.json()["error"]["param"]),
        (404, &json!("conversation"))
    );
}

#[test]
fn feature_e3_background_responses_go_on_without_their_caller() {
    let script = format!("{SCRIPT}\ntoken_delay_ms = 20\n");
    let server = Server::scripted(&script, "");
    let body = with(ask(json!("think")), "background", json!(true));
    let begun = server.post(RESPONSES, &body).ok();
    assert_eq!(begun["status"], "queued");
    let path = format!("{RESPONSES}/{}", begun["id"].as_str().expect("an id"));
    // Read while it is made, and again from some place.
    let live = server.get(&format!("{path}?stream=true"));
    let events = live.events();
    let last = check_grammar(&events);
    assert_eq!(last["status"], "completed");
    let made = wait_for(|| {
        let now = server.get(&path).ok();
        match now["status"] == "completed" {
            true => Ok(now),
            false => Err(now.to_string()),
        }
    });
    assert_eq!(made["output"], last["output"]);
    let rest = server
        .get(&format!("{path}?stream=true&starting_after=4"))
        .events();
    assert_eq!(rest, events[5..]);
    // Clients send the number with `stream=false`, too.
    let whole = server.get(&format!("{path}?stream=false&starting_after=4"));
    assert_eq!(whole.ok(), made);

    let long = server.post(RESPONSES, &body).ok();
    let path = format!("{RESPONSES}/{}", long["id"].as_str().expect("an id"));
    let cancelled = server.post(&format!("{path}/cancel"), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(server.get(&path).ok(), cancelled);
    let plain = server
        .post(RESPONSES, &with(ask(json!("Hi")), "stream", json!(false)))
        .ok();
    let path = format!(
        "{RESPONSES}/{}/cancel",
        plain["id"].as_str().expect("an id")
    );
    assert_eq!(server.post(&path, &json!({})).status(), 400);
}

#[test]
fn feature_r4_r6_timers_are_given_to_who_asks() {
    let server = Server::scripted(SCRIPT, "");
    let body = with(
        ask(json!("Hi")),
        "decoding",
        json!({"max_tokens": 64, "temperature": 0.1}),
    );
    let response = server.post(RESPONSES, &body).ok();
    let timers = &response["metrics"];
    let ms = |name: &str| {
        timers[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {timers}"))
    };
    assert!(ms("backend_inference_wall_ms") <= ms("engine_total_wall_ms"));
    assert!(ms("engine_total_wall_ms") <= ms("pool_total_wall_ms"));
    assert_eq!(
        timers["engine_output_tokens"],
        response["usage"]["output_tokens"]
    );
    assert_eq!(timers["engine_tokenize_ms"], Value::Null);
    let events = server
        .post(RESPONSES, &with(body, "stream", json!(true)))
        .events();
    assert_eq!(events[events.len() - 2]["type"], "response.metrics");
    let plain = server.post(RESPONSES, &ask(json!("Hi"))).ok();
    assert!(plain.get("metrics").is_none());
}

#[test]
fn tenants_see_nothing_of_each_other() {
    let keys = "[[auth.api_keys]]\nid = \"a\"\nkey = \"key-of-a-0123456789\"\ntenant = \"ta\"\n\
                [[auth.api_keys]]\nid = \"b\"\nkey = \"key-of-b-0123456789\"\ntenant = \"tb\"\n";
    let server = Server::scripted(SCRIPT, keys);
    let by = |request: Request, key: &str| {
        let key = format!("Bearer key-of-{key}-0123456789");
        server.send(&request.header("authorization", &key))
    };
    let response = by(Request::post(RESPONSES, &ask(json!("Hi"))), "a").ok();
    let id = response["id"].as_str().expect("an id");
    let path = format!("{RESPONSES}/{id}");
    assert_eq!(by(Request::get(&path), "a").ok()["id"], id);
    for request in [
        Request::get(&path),
        Request::get(&path).method("DELETE"),
        Request::get(&format!("{path}/input_items")),
        Request::post(&format!("{path}/cancel"), &json!({})),
        Request::post(
            RESPONSES,
            &with(ask(json!("Hi")), "previous_response_id", json!(id)),
        ),
    ] {
        assert_eq!(by(request, "b").status(), 404);
    }
    assert_eq!(server.get(&path).status(), 401);
}

#[test]
fn feature_e3_the_tokens_of_a_request_are_counted_without_an_answer() {
    let server = Server::start(&[]);
    let count = "/v1/responses/input_tokens";
    let asked = json!({"model": "mortise-demo", "input": "Hello!", "max_output_tokens": 2});
    let counted = server.post(count, &asked).ok();
    assert_eq!(counted["object"], "response.input_tokens");
    let first = server.post(RESPONSES, &asked).ok();
    assert_eq!(counted["input_tokens"], first["usage"]["input_tokens"]);
    let more = with(asked, "previous_response_id", first["id"].clone());
    let counted = server.post(count, &more).ok();
    let second = server.post(RESPONSES, &more).ok();
    assert_eq!(counted["input_tokens"], second["usage"]["input_tokens"]);
    assert!(counted["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    let refused = server.post(count, &with(more, "input", json!(7)));
    assert_eq!(refused.json()["error"]["param"], "input");
}

#[test]
fn feature_e3_a_compacted_conversation_is_continued_from_its_summary() {
    let server = Server::start(&[]);
    let compact = "/v1/responses/compact";
    let said = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "What is mortise?"},
        {"role": "assistant", "content": "A server for language models."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"role": "user", "content": [{"type": "input_text", "text": "And plugins?"}]},
    ]);
    let asked = json!({"model": "mortise-demo", "input": said, "instructions": "You help."});
    let compacted = server.post(compact, &asked).ok();
    assert_eq!(compacted["object"], "response.compaction");
    let output = compacted["output"].as_array().expect("items");
    let kept: Vec<(&str, &str)> = output
        .iter()
        .map(|item| {
            let text = item["content"][0]["text"].as_str().unwrap_or_default();
            (item["type"].as_str().expect("a type"), text)
        })
        .collect();
    let expected = [
        ("message", "Be brief."),
        ("message", "What is mortise?"),
        ("message", "And plugins?"),
        ("compaction", ""),
    ];
    assert_eq!(kept, expected);
    let usage = |answer: &Value, name: &str| answer["usage"][name].as_u64().expect("a count");
    assert!(usage(&compacted, "output_tokens") > 0);

    // The model sees what was kept, and the summary in the place of the rest.
    let count = |items: &[Value]| {
        let asked = json!({"model": "mortise-demo", "input": items});
        let counted = server.post("/v1/responses/input_tokens", &asked).ok();
        counted["input_tokens"].as_u64().expect("a count")
    };
    let messages = count(output.get(..3).expect("messages"));
    let summary = usage(&compacted, "output_tokens");
    let whole = count(output);
    assert!(
        whole > messages + summary / 2,
        "{whole}, {messages}, {summary}"
    );

    // It is continued, and compacted again into one item.
    let mut items = output.clone();
    items.push(json!({"role": "user", "content": "Go on."}));
    let next = json!({"model": "mortise-demo", "input": items, "max_output_tokens": 4});
    let next = server.post(RESPONSES, &next).ok();
    let again = json!({"model": "mortise-demo", "previous_response_id": next["id"]});
    let again = server.post(compact, &again).ok();
    let kinds = again["output"].as_array().expect("items").iter();
    let kinds: Vec<&Value> = kinds.map(|item| &item["type"]).collect();
    assert_eq!(
        kinds,
        ["message", "message", "message", "message", "compaction"]
    );

    // Only what this server made is opened.
    let forged = json!([{"type": "compaction", "encrypted_content": "gAAAAB"}]);
    let refused = server.post(
        RESPONSES,
        &json!({"model": "mortise-demo", "input": forged}),
    );
    assert_eq!(refused.status(), 400);
    assert_eq!(
        refused.json()["error"]["param"],
        "input[0].encrypted_content"
    );
    let refused = server.post(compact, &with(asked.clone(), "store", json!(true)));
    assert_eq!(refused.json()["error"]["param"], "store");
    let insists = json!({"context_compression": "enabled"});
    let refused = server.post(compact, &with(asked, "image", insists));
    assert_eq!(
        refused.json()["error"]["param"],
        "image.context_compression"
    );
    let refused = server.post(compact, &json!({"model": "mortise-demo"}));
    assert_eq!(refused.json()["error"]["param"], "input");
}
