use serde_json::{Map, Value, json};

use super::request::parse;
use crate::ids::Ids;
use crate::unsupported::Unsupported;

fn read(body: Value) -> Result<super::request::ResponseCall, (String, Option<String>)> {
    let Value::Object(object) = body else {
        panic!("a body is an object");
    };
    parse(object, Unsupported::Refuse, &mut Ids::default())
        .map_err(|problem| (problem.text().to_owned(), problem.param))
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"model": "m", "input": "Hi"});
    body[field] = value;
    body
}

#[test]
fn feature_r2_mistakes_are_told_by_their_path() {
    let item = |item: Value| with("input", json!([{"role": "user", "content": "Hi"}, item]));
    for (body, param) in [
        (json!({"model": "m"}), "input"),
        (with("input", json!(7)), "input"),
        (
            item(json!({"role": "robot", "content": "x"})),
            "input[1].role",
        ),
        (item(json!({"role": "user"})), "input[1].content"),
        (item(json!({"type": "web_search_call"})), "input[1].type"),
        (
            item(json!({"role": "user", "content": [{"type": "input_text"}]})),
            "input[1].content[0].text",
        ),
        (
            item(json!({"role": "user", "content": [{"type": "input_file"}]})),
            "input[1].content[0].type",
        ),
        (
            item(json!({"type": "function_call", "name": "f", "arguments": "{}"})),
            "input[1].call_id",
        ),
        (
            item(json!({"type": "function_call_output", "call_id": "c"})),
            "input[1].output",
        ),
        (
            with("tools", json!([{"type": "web_search"}])),
            "tools[0].type",
        ),
        (
            with("tools", json!([{"type": "function", "name": "a b"}])),
            "tools[0].name",
        ),
        (
            with("tools", json!([{"type": "mcp", "server_label": "x"}])),
            "tools[0].server_label",
        ),
        (with("tool_choice", json!("required")), "tool_choice"),
        (
            with("tool_choice", json!({"type": "function", "name": "f"})),
            "tool_choice",
        ),
        (with("include", json!(["everything"])), "include[0]"),
        (with("truncation", json!("some")), "truncation"),
        (
            with("text", json!({"format": {"type": "xml"}})),
            "text.format.type",
        ),
        (
            with(
                "text",
                json!({"format": {"type": "json_schema", "name": "n"}}),
            ),
            "text.format.schema",
        ),
        (
            with("background", json!(true))
                .as_object()
                .map(|body| {
                    let mut body = body.clone();
                    body.insert("store".to_owned(), json!(false));
                    Value::Object(body)
                })
                .expect("an object"),
            "background",
        ),
        (with("messages", json!([])), "messages"),
        (with("source_lang_code", json!("de")), "target_lang_code"),
        (with("max_output_tokens", json!(0)), "max_output_tokens"),
        (
            with("decoding", json!({"max_tokens": 0})),
            "decoding.max_tokens",
        ),
        (with("prompt", json!({"id": "p"})), "prompt"),
        (with("steam", json!(true)), "steam"),
        (
            with("reasoning", json!({"effort": "huge"})),
            "reasoning.effort",
        ),
        (with("service_tier", json!("priority")), "service_tier"),
    ] {
        let shown = body.to_string();
        let (message, found) = read(body).expect_err(&shown);
        assert_eq!(found.as_deref(), Some(param), "{shown}: {message}");
        assert!(message.contains(param) || param == "messages", "{message}");
    }
}

#[test]
fn every_field_of_the_response_is_there_whatever_was_asked() {
    let call = read(json!({"model": "m", "input": "Hi"})).expect("valid");
    let keys: Vec<&str> = call.echo.keys().map(String::as_str).collect();
    for key in [
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "truncation",
        "user",
        "metadata",
    ] {
        assert!(keys.contains(&key), "{key} is missing");
    }
    assert!(call.store && !call.background);
}

#[test]
fn feature_r1_r3_further_fields_become_fields_of_the_request() {
    let mut body = Map::new();
    let all = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "decoding": {"beam_size": 1, "top_k": 4, "top_p": 0.5, "temperature": 0.1,
            "repetition_penalty": 1.2, "max_tokens": 9, "stop": ["END"]},
        "allow_remote": true, "fairness_key": "k", "thinking": "disabled",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    });
    body.extend(all.as_object().cloned().expect("an object"));
    let call = read(Value::Object(body)).expect("valid");
    let fields = &call.fields;
    assert_eq!((fields.top_k, fields.top_p), (Some(4), Some(0.5)));
    assert_eq!(
        (fields.temperature, fields.max_tokens),
        (Some(0.1), Some(9))
    );
    assert_eq!(fields.repetition_penalty, Some(1.2));
    assert_eq!(fields.stop, ["END"]);
    assert!(fields.allow_remote && fields.constraint.is_some() && call.shape.metrics);
    assert_eq!(fields.fairness_key.as_deref(), Some("k"));
    assert_eq!(call.arguments.members()["enable_thinking"], false);
    assert_eq!(call.input.len(), 1);
}
