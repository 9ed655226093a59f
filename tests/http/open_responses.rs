//! Clauses of the Open Responses specification (2026-04-24), each named by a test. `tests/OPEN_RESPONSES.md` lists them all,
//! with those that other tests hold.

use serde_json::{Value, json};

use crate::responses::{RESPONSES, SCRIPT, ask, check_grammar, text_of, weather, with};
use crate::retrieval::saying;
use crate::sockets::{Socket, last_of};
use crate::support::Server;

fn streamed(server: &Server, body: Value) -> Vec<Value> {
    server
        .post(RESPONSES, &with(body, "stream", json!(true)))
        .events()
}

#[test]
fn feature_e3_or_http_bodies_and_event_streams() {
    let server = Server::scripted(SCRIPT, "");
    let whole = server.post(RESPONSES, &ask(json!("Hi")));
    assert_eq!(whole.header("content-type"), Some("application/json"));
    let stream = server.post(RESPONSES, &with(ask(json!("Hi")), "stream", json!(true)));
    let kind = stream.header("content-type").expect("a content type");
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    let text = stream.text();
    let events: Vec<&str> = text.split("\n\n").filter(|one| !one.is_empty()).collect();
    let (done, events) = events.split_last().expect("events");
    assert_eq!(*done, "data: [DONE]");
    for event in events {
        assert!(
            !event.lines().any(|line| line.starts_with("id:")),
            "{event}"
        );
        let name = event.lines().find_map(|line| line.strip_prefix("event: "));
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        let data: Value = serde_json::from_str(data.expect("data")).expect("JSON");
        assert_eq!(data["type"].as_str(), name, "{event}");
    }
    // A text is a message of the user.
    let items = json!([{"type": "message", "role": "user", "content": "Hi"}]);
    let same = server.post(RESPONSES, &ask(items)).ok();
    assert_eq!(same["usage"], whole.ok()["usage"]);
}

#[test]
fn feature_e3_or_items_have_id_type_and_status_and_end_once() {
    let server = Server::scripted(SCRIPT, "");
    let called = with(ask(json!("weather")), "tools", weather());
    let cut = with(ask(json!("Hi")), "max_output_tokens", json!(5));
    let cut_call = with(called.clone(), "max_output_tokens", json!(30));
    let cases = [
        (ask(json!("think")), "completed"),
        (called, "completed"),
        (cut, "incomplete"),
        (cut_call, "incomplete"),
    ];
    for (body, status) in cases {
        let events = streamed(&server, body);
        let last = check_grammar(&events);
        assert_eq!(last["status"], status, "{last}");
        let output = last["output"].as_array().expect("items");
        for (at, item) in output.iter().enumerate() {
            for field in ["id", "type", "status"] {
                assert!(item[field].is_string(), "{field} of {item}");
            }
            // Only the last item may be incomplete, and only where the response is.
            let may = status == "incomplete" && at + 1 == output.len();
            assert!(may || item["status"] == "completed", "{last}");
        }
        check_parts(&events);
    }
}

/// The events of each item come in the order of the specification.
fn check_parts(events: &[Value]) {
    let of = |at: u64| {
        let of_item = events
            .iter()
            .filter(move |event| event["output_index"] == at);
        of_item.map(|event| event["type"].as_str().expect("a type"))
    };
    let items = events
        .iter()
        .filter_map(|event| event["output_index"].as_u64());
    for at in 0..=items.max().expect("items") {
        let mut kinds: Vec<&str> = of(at).collect();
        kinds.dedup();
        let added = events.iter().find(|event| {
            event["type"] == "response.output_item.added" && event["output_index"] == at
        });
        let item = &added.expect("the event of an item")["item"];
        let expected: &[&str] = match item["type"].as_str() {
            Some("message") => {
                assert_eq!(item["role"], "assistant");
                &[
                    "added",
                    "content_part.added",
                    "output_text.delta",
                    "output_text.done",
                    "content_part.done",
                    "done",
                ]
            }
            Some("reasoning") => &[
                "added",
                "content_part.added",
                "reasoning_text.delta",
                "reasoning_text.done",
                "content_part.done",
                "done",
            ],
            _ => {
                assert!(item["name"].is_string() && item["call_id"].is_string());
                &[
                    "added",
                    "function_call_arguments.delta",
                    "function_call_arguments.done",
                    "done",
                ]
            }
        };
        let name = |kind: &str| match kind {
            "added" | "done" => format!("response.output_item.{kind}"),
            kind => format!("response.{kind}"),
        };
        assert_eq!(
            kinds,
            expected.iter().map(|kind| name(kind)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn feature_e3_or_errors_have_type_code_param_and_message() {
    let server = saying(SCRIPT, "");
    let of = |body: &Value, status: u16| {
        let answer = server.post(RESPONSES, body);
        assert_eq!(answer.status(), status, "{}", answer.text());
        let error = answer.json()["error"].clone();
        assert!(
            error["message"].is_string() && error["type"].is_string(),
            "{error}"
        );
        error
    };
    let unknown = of(&with(ask(json!("Hi")), "model", json!("fake-model")), 404);
    assert_eq!(
        (&unknown["code"], &unknown["param"]),
        (&json!("model_not_found"), &json!("model"))
    );
    assert_eq!(of(&ask(json!(7)), 400)["param"], "input");
    let gone = with(ask(json!("Hi")), "previous_response_id", json!("resp_gone"));
    assert_eq!(of(&gone, 404)["code"], "previous_response_not_found");
    // What is optional and not there is refused by name.
    let file = json!([{"role": "user", "content": [{"type": "input_file", "file_id": "file-a"}]}]);
    assert_eq!(of(&ask(file), 400)["param"], "input[0].content[0].type");
    let search = json!([{"type": "web_search", "external_web_access": false}]);
    assert_eq!(
        of(&with(ask(json!("Hi")), "tools", search), 400)["param"],
        "tools[0].type"
    );
    let slug = json!([{"type": "acme:telemetry_chunk", "id": "tc_1", "status": "completed"}]);
    assert_eq!(of(&ask(slug), 400)["param"], "input[0].type");
    let tier = with(ask(json!("Hi")), "service_tier", json!("priority"));
    assert_eq!(of(&tier, 400)["param"], "service_tier");
}

#[test]
fn feature_e3_or_an_error_in_mid_stream_ends_with_response_failed() {
    // What the model says begins as the schema has it, and then breaks it.
    let server = Server::scripted("default = '{\"a\": \"xyz\"}'", "");
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["xa"]}},
        "required": ["a"], "additionalProperties": false});
    let format = json!({"format": {"type": "json_schema", "name": "a", "schema": schema}});
    let events = streamed(&server, with(ask(json!("Hi")), "text", format));
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    assert!(deltas.count() > 0, "{events:?}");
    let last = events.last().expect("a last event");
    assert_eq!(last["type"], "response.failed");
    let response = &last["response"];
    assert_eq!(response["status"], "failed");
    assert!(response["error"]["code"].is_string() && response["error"]["message"].is_string());
}

#[test]
fn feature_e3_or_sealed_reasoning_goes_back() {
    let server = Server::scripted(SCRIPT, "");
    let include = json!(["reasoning.encrypted_content"]);
    let first = with(ask(json!("think")), "include", include);
    let first = server.post(RESPONSES, &first).ok();
    let reasoning = &first["output"][0];
    assert_eq!(reasoning["type"], "reasoning");
    assert!(reasoning["encrypted_content"].is_string(), "{first}");
    // A caller who keeps the conversation sends it back without the text.
    let mut sealed = reasoning.clone();
    sealed["content"] = Value::Null;
    let back = |reasoning: Value| {
        let question = json!({"role": "user", "content": "think"});
        let call =
            json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"});
        let result = json!({"type": "function_call_output", "call_id": "c1", "output": "1"});
        let items = json!([question, reasoning, call, result]);
        let answer = server.post(RESPONSES, &ask(items)).ok();
        answer["usage"]["input_tokens"].as_u64().expect("a count")
    };
    assert_eq!(back(sealed), back(reasoning.clone()));
}

#[test]
fn feature_e3_or_tool_choice_and_allowed_tools_are_held() {
    let server = Server::scripted(SCRIPT, "");
    let mut tools = weather();
    let list = tools.as_array_mut().expect("a list");
    list.push(json!({"type": "function", "name": "send_email", "parameters": {"type": "object"}}));
    let choose = |choice: Value| {
        let body = with(ask(json!("weather")), "tools", tools.clone());
        with(body, "tool_choice", choice)
    };
    let kinds = |response: &Value| {
        let items = response["output"].as_array().expect("items").iter();
        items
            .map(|item| item["type"].as_str().expect("a type").to_owned())
            .collect::<Vec<_>>()
    };
    let allowed = |name: &str| json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name}]});
    // The model asks for `get_weather`.
    let free = server.post(RESPONSES, &choose(json!("auto"))).ok();
    assert_eq!(kinds(&free), ["function_call"]);
    serde_json::from_str::<Value>(free["output"][0]["arguments"].as_str().expect("a text"))
        .expect("JSON");
    let named = server.post(RESPONSES, &choose(allowed("get_weather"))).ok();
    assert_eq!(named["output"][0]["name"], "get_weather");
    assert_eq!(
        named["tools"].as_array().map(Vec::len),
        Some(2),
        "all are shown to the model"
    );
    for choice in [json!("none"), allowed("send_email")] {
        let answer = server.post(RESPONSES, &choose(choice.clone())).ok();
        let called = answer["output"].as_array().expect("items").iter();
        let mut called = called.filter(|item| item["type"] == "function_call");
        assert!(
            called.all(|item| item["name"] == "send_email"),
            "{choice}: {answer}"
        );
    }
    // Its result goes back under the id of the call.
    let call = &free["output"][0];
    let result = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny in Paris"}]);
    let body = with(ask(result), "previous_response_id", free["id"].clone());
    assert_eq!(text_of(&server.post(RESPONSES, &body).ok()), "It is sunny.");
}

#[test]
fn feature_e3_or_context_keeps_its_order_and_is_never_cut_unasked() {
    let server = Server::scripted(&format!("context_length = 400\n{SCRIPT}"), "");
    let first = server.post(RESPONSES, &ask(json!("my name is Ada"))).ok();
    let next = with(
        ask(json!("Hi")),
        "previous_response_id",
        first["id"].clone(),
    );
    let next = server.post(RESPONSES, &next).ok();
    // The same as the items in the order input, output, input.
    let items = json!([
        {"role": "user", "content": "my name is Ada"},
        first["output"][0],
        {"role": "user", "content": "Hi"},
    ]);
    let same = server.post(RESPONSES, &ask(items)).ok();
    assert_eq!(next["usage"]["input_tokens"], same["usage"]["input_tokens"]);
    let labelled = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Looking.", "phase": "commentary"},
        {"role": "assistant", "content": "Hello.", "phase": "final_answer"},
        {"role": "user", "content": "Hi"},
    ]);
    let answered = server.post(RESPONSES, &ask(labelled)).ok();
    let path = format!(
        "{RESPONSES}/{}/input_items?order=asc",
        answered["id"].as_str().expect("an id")
    );
    assert_eq!(server.get(&path).ok()["data"][1]["phase"], "commentary");
    let wrong = json!([{"role": "user", "content": "Hi", "phase": "loud"}]);
    assert_eq!(
        server.post(RESPONSES, &ask(wrong)).json()["error"]["param"],
        "input[0].phase"
    );
    let turns = (0..12)
        .map(|turn| json!({"role": "user", "content": format!("{turn} {}", "long ".repeat(8))}));
    let long = ask(json!(turns.collect::<Vec<_>>()));
    let refused = server.post(
        RESPONSES,
        &with(long.clone(), "truncation", json!("disabled")),
    );
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    let long = with(long, "max_output_tokens", json!(8));
    server
        .post(RESPONSES, &with(long, "truncation", json!("auto")))
        .ok();
    // A conversation that the server keeps is named in the response.
    let conversation = server.post("/v1/conversations", &json!({})).ok();
    let joined = with(ask(json!("Hi")), "conversation", conversation["id"].clone());
    assert_eq!(
        server.post(RESPONSES, &joined).ok()["conversation"]["id"],
        conversation["id"]
    );
    let without = json!({"input": "Hi"});
    let refused = server.post("/v1/responses/compact", &without);
    assert_eq!(
        (refused.status(), &refused.json()["error"]["param"]),
        (400, &json!("model"))
    );
}

#[test]
fn feature_e3_or_socket_turns_are_sequential_and_chains_begin_anew() {
    let server = Server::scripted(SCRIPT, "");
    let (_, mut socket) = Socket::open(&server, RESPONSES, "");
    let create = |input: Value, previous: &Value| {
        json!({"type": "response.create", "model": "scripted", "input": input, "store": false,
               "previous_response_id": previous})
    };
    // Sent at once, answered one after the other.
    for input in ["Hi", "think", "my name is Ada"] {
        socket.ask(&create(json!(input), &Value::Null));
    }
    let mut texts = Vec::new();
    for _ in 0..3 {
        let mut events = vec![socket.json()];
        while events.last().expect("an event")["type"] != "response.completed" {
            events.push(socket.json());
        }
        texts.push(text_of(&check_grammar(&events)));
    }
    assert_eq!(
        texts,
        ["Hello there, wörld 👋.", "Forty-two.", "Hello Ada."]
    );
    // A client that lost its connection begins a chain anew with all of its items.
    let kept = last_of_turn(&mut socket, &create(json!("Hi"), &Value::Null));
    let (_, mut again) = Socket::open(&server, RESPONSES, "");
    again.ask(&create(json!("Hi"), &kept["id"]));
    let error = last_of(&mut again);
    assert_eq!(
        error["error"]["code"], "previous_response_not_found",
        "{error}"
    );
    for field in ["type", "code", "message", "param"] {
        assert!(error["error"].get(field).is_some(), "{field} of {error}");
    }
    let items = json!([{"role": "user", "content": "Hi"}, kept["output"][0], {"role": "user", "content": "think"}]);
    let recovered = last_of_turn(&mut again, &create(items, &Value::Null));
    assert_eq!(text_of(&recovered), "Forty-two.");
    // Compacted items begin a chain, which is continued.
    let compacted = json!({"model": "scripted", "input": [{"role": "user", "content": "Hi"}, kept["output"][0]]});
    let compacted = server.post("/v1/responses/compact", &compacted).ok();
    let mut items = compacted["output"].as_array().expect("items").clone();
    items.push(json!({"role": "user", "content": "my name is Ada"}));
    let begun = last_of_turn(&mut again, &create(json!(items), &Value::Null));
    let went_on = last_of_turn(&mut again, &create(json!("think"), &begun["id"]));
    assert_eq!(text_of(&begun), "Hello Ada.");
    assert_eq!(text_of(&went_on), "Forty-two.");
}

fn last_of_turn(socket: &mut Socket, ask: &Value) -> Value {
    socket.ask(ask);
    let last = last_of(socket);
    assert_eq!(last["type"], "response.completed", "{last}");
    last["response"].clone()
}

#[test]
fn feature_e3_or_socket_has_a_longest_time() {
    let server = Server::scripted(SCRIPT, "[server]\nmax_websocket_seconds = 1\n");
    let (_, mut socket) = Socket::open(&server, RESPONSES, "");
    let create = json!({"type": "response.create", "model": "scripted", "input": "Hi"});
    std::thread::sleep(std::time::Duration::from_millis(1100));
    socket.ask(&create);
    let error = socket.json();
    assert_eq!(
        error["error"]["code"], "websocket_connection_limit_reached",
        "{error}"
    );
    assert_eq!(socket.next().0, 8, "it is closed");
}
