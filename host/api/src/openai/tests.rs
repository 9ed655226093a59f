//! Any JSON as a request, and conversations there and back.

use mortise_http::Problem;
use mortise_service::{
    ContentPart, Conversation, KeyOrder, Message, Prompt, Request, Role, ToolCall, template_json,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{chat, completions};
use crate::problem::problem_of;
use crate::unsupported::Unsupported;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn parse_chat(body: &Value, mode: Unsupported) -> Result<Request, Problem> {
    let call = chat::parse(object(body.clone()), mode)?;
    Request::check(call.fields).map_err(problem_of)
}

/// The value at a path as errors write it; the keys of these tests have neither dots nor brackets.
fn at<'a>(body: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path
        .split(['.', '['])
        .map(|step| step.trim_end_matches(']'));
    steps.try_fold(body, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        object => object.get(step),
    })
}

/// Whether an error names a field that the body has, or one that it lacks in an object that it has.
fn names_a_field(body: &Value, error: &Problem) -> bool {
    let Some(path) = &error.param else {
        return false;
    };
    let parent = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
    let has_parent = parent.is_empty() || at(body, parent).is_some();
    let required = error.message.contains("is required") && has_parent;
    // vLLM's callers give the size of a search by other fields.
    let searched = path == "beam_size" && body.get("use_beam_search").is_some();
    at(body, path).is_some() || required || searched
}

fn word() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "user",
        "assistant",
        "tool",
        "function",
        "developer",
        "text",
        "image_url",
        "input_audio",
        "auto",
        "required",
        "none",
        "json_schema",
        "json_object",
        "allowed_tools",
        "low",
        "f",
        "",
    ];
    prop_oneof![4 => proptest::sample::select(WORDS).prop_map(str::to_owned), 1 => "[a-z\"\u{0}é]{0,4}"]
}

fn key() -> impl Strategy<Value = String> {
    const KEYS: &[&str] = &[
        "model",
        "messages",
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "tool_call_id",
        "id",
        "function",
        "name",
        "arguments",
        "tools",
        "functions",
        "function_call",
        "tool_choice",
        "parameters",
        "strict",
        "allowed_tools",
        "mode",
        "response_format",
        "json_schema",
        "schema",
        "guided_choice",
        "structured_outputs",
        "stop",
        "logit_bias",
        "n",
        "max_tokens",
        "seed",
        "stream",
        "stream_options",
        "include_usage",
        "image_url",
        "url",
        "input_audio",
        "data",
        "format",
        "reasoning_effort",
        "chat_template_kwargs",
        "server_tools",
        "top_logprobs",
        "logprobs",
        "beam_size",
        "use_beam_search",
        "continue_final_message",
        "prefix",
        "audio",
        "prompt",
        "echo",
        "best_of",
        "suffix",
        "modalities",
        "early_stopping",
        "top_k",
        "other",
    ];
    proptest::sample::select(KEYS).prop_map(str::to_owned)
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..30).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let objects = proptest::collection::vec((key(), inner.clone()), 0..6);
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            objects.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A body that is good but for some fields.
fn any_body(good: Value) -> impl Strategy<Value = Value> {
    let fields = proptest::collection::vec((key(), any_json()), 0..4);
    fields.prop_map(move |fields| {
        let mut body = object(good.clone());
        body.extend(fields);
        Value::Object(body)
    })
}

/// A field of a message, mostly of a type that it may have.
fn any_message() -> impl Strategy<Value = Value> {
    let call = (word(), word()).prop_map(|(id, name)| {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
    });
    let calls = proptest::collection::vec(prop_oneof![9 => call, 1 => any_json()], 0..3);
    let part = (word(), any_json()).prop_map(|(kind, value)| json!({"type": kind, "text": value}));
    let content = prop_oneof![
        word().prop_map(Value::from),
        proptest::collection::vec(part, 0..3).prop_map(Value::from),
        any_json(),
    ];
    (
        word(),
        content,
        proptest::option::of(calls),
        proptest::option::of(word()),
    )
        .prop_map(|(role, content, calls, id)| {
            let mut message = Map::new();
            message.insert("role".to_owned(), json!(role));
            message.insert("content".to_owned(), content);
            message.extend(calls.map(|calls| ("tool_calls".to_owned(), json!(calls))));
            message.extend(id.map(|id| ("tool_call_id".to_owned(), json!(id))));
            Value::Object(message)
        })
}

proptest! {
    #[test]
    fn any_chat_body_is_answered_by_a_request_or_the_path_of_a_field(
        body in any_body(json!({
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        })),
    ) {
        if let Err(error) = parse_chat(&body, Unsupported::Refuse) {
            prop_assert!(names_a_field(&body, &error), "{:?} of {}", error, body);
        }
        // What is left out of account cannot make a request worse.
        if parse_chat(&body, Unsupported::Refuse).is_ok() {
            prop_assert!(parse_chat(&body, Unsupported::Ignore).is_ok(), "{}", body);
        }
    }

    #[test]
    fn any_messages_are_answered_by_a_request_or_the_path_of_a_field(
        messages in proptest::collection::vec(any_message(), 0..4),
    ) {
        let body = json!({"model": "m", "messages": messages});
        if let Err(error) = parse_chat(&body, Unsupported::Refuse) {
            prop_assert!(names_a_field(&body, &error), "{:?} of {}", error, body);
        }
    }

    #[test]
    fn any_completion_body_is_answered_by_requests_or_the_path_of_a_field(
        body in any_body(json!({"model": "m", "prompt": "hi"})),
    ) {
        match completions::parse(object(body.clone()), Unsupported::Refuse) {
            Ok(call) => for fields in call.requests {
                if let Err(error) = Request::check(fields) {
                    let error = problem_of(error);
                    prop_assert!(names_a_field(&body, &error), "{:?} of {}", error, body);
                }
            },
            Err(error) => {
                prop_assert!(names_a_field(&body, &error), "{:?} of {}", error, body);
            }
        }
    }

    #[test]
    fn conversations_survive_the_way_to_a_template_and_back(conversation in any_conversation()) {
        let written = template_json::messages(&conversation).expect("JSON");
        let messages: Value = serde_json::from_str(&written).expect("JSON");
        let body = json!({"model": "m", "messages": messages});
        let call = chat::parse(object(body), Unsupported::Refuse);
        let call = call.unwrap_or_else(|error| panic!("{error:?} of {written}"));
        let Prompt::Chat(read) = call.fields.prompt else {
            panic!("{written} is no chat");
        };
        prop_assert_eq!(plain(&read.conversation), plain(&conversation), "{}", written);
        // Once more, and not a byte differs.
        prop_assert_eq!(template_json::messages(&read.conversation).expect("JSON"), written);
    }
}

/// Conversations whose results follow their calls.
fn any_conversation() -> impl Strategy<Value = Conversation> {
    let text = || "[a-z <>|\\n\"é]{0,8}";
    let plain = (0..3_u8, proptest::collection::vec(text(), 1..3)).prop_map(|(role, texts)| {
        let role = match role {
            0 => Role::System,
            1 => Role::Developer,
            _ => Role::User,
        };
        let content = texts.into_iter().map(ContentPart::Text).collect();
        let name = None;
        vec![Message {
            role,
            content,
            name,
        }]
    });
    let reasoning = proptest::option::of(text());
    let names = proptest::collection::vec((text(), text(), any::<bool>()), 0..3);
    let turn = (reasoning, names, text(), any::<prop::sample::Index>());
    let turn = turn.prop_map(|(reasoning, names, said, turn)| {
        let calls: Vec<ToolCall> = names
            .into_iter()
            .enumerate()
            .map(|(at, (name, arguments, reversed))| ToolCall {
                id: format!("{}-{at}", turn.index(1 << 20)),
                name,
                arguments,
                order: order(reversed),
            })
            .collect();
        let results = calls.iter().rev().map(|call| {
            let call_id = call.id.clone();
            let mut result = Message::text(Role::Tool { call_id }, said.clone());
            result.name = Some(call.name.clone());
            result
        });
        let results: Vec<Message> = results.collect();
        let content = vec![ContentPart::Text(said)];
        let role = Role::Assistant { reasoning, calls };
        let name = None;
        let assistant = Message {
            role,
            content,
            name,
        };
        std::iter::once(assistant).chain(results).collect()
    });
    let turns = proptest::collection::vec(prop_oneof![plain, turn], 1..5);
    turns.prop_map(|turns| {
        Conversation::new(turns.into_iter().flatten().collect()).expect("a conversation")
    })
}

fn order(reversed: bool) -> KeyOrder {
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    match reversed {
        true => KeyOrder::new(
            keys(&["function", "type", "id"]),
            keys(&["arguments", "name"]),
        ),
        false => KeyOrder::new(
            keys(&["id", "type", "function"]),
            keys(&["name", "arguments"]),
        ),
    }
}

/// The messages as they come back: one text each, and one role for instructions.
fn plain(conversation: &Conversation) -> Vec<Message> {
    let messages = conversation.messages().iter().cloned();
    let messages = messages.map(|mut message| {
        let texts = message.content.iter().map(|part| match part {
            ContentPart::Text(text) => text.as_str(),
            other => panic!("{other:?} is no text"),
        });
        message.content = vec![ContentPart::Text(texts.collect::<Vec<_>>().join("\n"))];
        if message.role == Role::Developer {
            message.role = Role::System;
        }
        message
    });
    messages.collect()
}

#[test]
fn tools_reach_templates_with_their_keys_in_the_order_of_the_caller() {
    let tools = r#"[{"function":{"strict":true,"name":"f","description":null,"parameters":{"z":1,"a":[2]}},"type":"function"}]"#;
    let body = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": serde_json::from_str::<Value>(tools).expect("JSON"),
    });
    let call = chat::parse(object(body), Unsupported::Refuse).expect("a good request");
    let written = template_json::tools(call.fields.tools.declarations().iter());
    assert_eq!(written.expect("JSON"), tools);
}

#[test]
fn results_before_their_calls_are_refused() {
    let refused = |messages: Value| {
        let body = json!({"model": "m", "messages": messages});
        let error = parse_chat(&body, Unsupported::Refuse).expect_err("a refusal");
        (error.param.unwrap_or_default(), error.code)
    };
    let invalid = |path: &str| (path.to_owned(), "invalid_value".to_owned());
    let result = json!({"role": "tool", "tool_call_id": "1", "content": "x"});
    assert_eq!(
        refused(json!([result])),
        invalid("messages[0].tool_call_id")
    );
    let older = json!({"role": "function", "name": "f", "content": "x"});
    assert_eq!(refused(json!([older])), invalid("messages[0]"));
}

#[test]
fn unknown_members_are_told_their_neighbours() {
    let with = |field: &str, value: Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body[field] = value;
        let error = parse_chat(&body, Unsupported::Refuse).expect_err("a refusal");
        assert_eq!(error.code, "unknown_parameter");
        error.message.into_string()
    };
    let function = json!({"name": "f", "parameter": {}});
    for (field, value, hint) in [
        ("temprature", json!(1), "`temperature`"),
        (
            "stream_options",
            json!({"include_usag": true}),
            "`stream_options.include_usage`",
        ),
        (
            "messages",
            json!([{"role": "user", "content": "", "nam": "x"}]),
            "`messages[0].name`",
        ),
        (
            "tools",
            json!([{"type": "function", "function": function}]),
            "`tools[0].function.parameters`",
        ),
    ] {
        let message = with(field, value);
        assert!(
            message.contains(&format!("did you mean {hint}?")),
            "{message}"
        );
    }
    // Null is as good as absent.
    let body = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "hi", "other": null}],
        "other": null,
        "stream_options": {"other": null},
    });
    assert!(parse_chat(&body, Unsupported::Refuse).is_ok());
}
