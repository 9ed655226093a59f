use mortise_plugin::{GrammarSource, ToolChoice};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::Request;
use crate::{Prompt, RequestFields, ServiceError};

fn chat(messages: Value) -> RequestFields {
    let Value::Array(messages) = messages else {
        panic!("a list");
    };
    RequestFields {
        prompt: Prompt::Chat {
            messages,
            template_arguments: Map::new(),
            add_generation_prompt: true,
            continue_final_message: false,
        },
        ..RequestFields::default()
    }
}

fn good() -> RequestFields {
    chat(json!([{"role": "user", "content": "hi"}]))
}

fn with(change: impl FnOnce(&mut RequestFields)) -> RequestFields {
    let mut fields = good();
    change(&mut fields);
    fields
}

/// `Ok` or the field that is refused.
fn check(fields: RequestFields, expected: Result<(), &str>) {
    let shown = format!("{fields:?}");
    match (Request::check(fields), expected) {
        (Ok(_), Ok(())) => {}
        (Err(ServiceError::Invalid { param, message, .. }), Err(expected)) => {
            assert_eq!(param.as_deref(), Some(expected), "{message}: {shown}");
            assert!(!message.is_empty());
        }
        (result, expected) => panic!("{result:?} and not {expected:?}: {shown}"),
    }
}

#[test]
fn numbers_have_bounds() {
    check(good(), Ok(()));
    for (n, expected) in [(1, Ok(())), (128, Ok(())), (0, Err("n")), (129, Err("n"))] {
        check(with(|f| f.n = Some(n)), expected);
    }
    check(with(|f| f.max_tokens = Some(0)), Err("max_tokens"));
    check(with(|f| f.max_tokens = Some(u32::MAX)), Ok(()));
    check(with(|f| f.logprobs = Some(20)), Ok(()));
    check(with(|f| f.logprobs = Some(21)), Err("top_logprobs"));
    for bad in [f64::NAN, f64::INFINITY, -0.1, 2.1, 1e308] {
        check(with(|f| f.temperature = Some(bad)), Err("temperature"));
    }
    for bad in [f64::NAN, 0.0, -1.0, 1.01] {
        check(with(|f| f.top_p = Some(bad)), Err("top_p"));
    }
    for bad in [f64::NAN, -0.1, 1.1] {
        check(with(|f| f.min_p = Some(bad)), Err("min_p"));
    }
    for bad in [f64::NAN, 0.0, 4.1] {
        check(
            with(|f| f.repetition_penalty = Some(bad)),
            Err("repetition_penalty"),
        );
    }
    for bad in [f64::NAN, -2.1, 2.1] {
        check(
            with(|f| f.frequency_penalty = Some(bad)),
            Err("frequency_penalty"),
        );
        check(
            with(|f| f.presence_penalty = Some(bad)),
            Err("presence_penalty"),
        );
    }
    for bad in [f64::NAN, f64::INFINITY, -100.1, 100.1] {
        check(
            with(|f| f.logit_bias = vec![(1, 0.0), (7, bad)]),
            Err("logit_bias.7"),
        );
    }
    check(
        with(|f| f.logit_bias = vec![(1, 0.0); 1025]),
        Err("logit_bias"),
    );
}

#[test]
fn stop_strings_have_bounds() {
    let stop = |stops: &[&str]| with(|f| f.stop = stops.iter().map(|&s| s.to_owned()).collect());
    check(stop(&["a"; 16]), Ok(()));
    check(stop(&["a"; 17]), Err("stop"));
    check(stop(&["a", ""]), Err("stop[1]"));
    check(stop(&[&"x".repeat(1024)]), Ok(()));
    check(stop(&[&"x".repeat(1025)]), Err("stop[0]"));
    check(stop(&[&"x".repeat(1000); 5]), Err("stop"));
}

#[test]
fn messages_have_a_shape() {
    let refused = |message: Value, expected: &str| {
        check(
            chat(json!([{"role": "user", "content": "hi"}, message])),
            Err(expected),
        );
    };
    check(chat(json!([])), Err("messages"));
    refused(json!("hi"), "messages[1]");
    refused(json!({"content": "x"}), "messages[1].role");
    refused(json!({"role": 7, "content": "x"}), "messages[1].role");
    refused(json!({"role": "owner", "content": "x"}), "messages[1].role");
    refused(json!({"role": "user"}), "messages[1].content");
    refused(
        json!({"role": "user", "content": null}),
        "messages[1].content",
    );
    refused(json!({"role": "user", "content": 7}), "messages[1].content");
    refused(
        json!({"role": "user", "content": "x", "name": 7}),
        "messages[1].name",
    );
    refused(
        json!({"role": "user", "content": ["x"]}),
        "messages[1].content[0]",
    );
    refused(
        json!({"role": "user", "content": [{}]}),
        "messages[1].content[0].type",
    );
    refused(
        json!({"role": "user", "content": [{"type": "text"}]}),
        "messages[1].content[0].text",
    );
    let image = json!([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]);
    refused(
        json!({"role": "user", "content": image}),
        "messages[1].content[1].type",
    );
    refused(
        json!({"role": "tool", "content": "x"}),
        "messages[1].tool_call_id",
    );
    refused(
        json!({"role": "function", "content": "x"}),
        "messages[1].name",
    );
    let calls = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    refused(calls(json!(7)), "messages[1].tool_calls");
    refused(calls(json!([7])), "messages[1].tool_calls[0]");
    refused(
        calls(json!([{"type": "function"}])),
        "messages[1].tool_calls[0].id",
    );
    refused(
        calls(json!([{"id": "1"}])),
        "messages[1].tool_calls[0].type",
    );
    refused(
        calls(json!([{"id": "1", "type": "x"}])),
        "messages[1].tool_calls[0].type",
    );
    refused(
        calls(json!([{"id": "1", "type": "function"}])),
        "messages[1].tool_calls[0].function",
    );
    let function =
        json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]);
    refused(
        calls(function),
        "messages[1].tool_calls[0].function.arguments",
    );
}

#[test]
fn good_messages_pass() {
    let function = json!({"name": "f", "arguments": "{}"});
    check(
        chat(json!([
            {"role": "developer", "content": "x", "name": "dev"},
            {"role": "system", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": function}]},
            {"role": "tool", "content": "x", "tool_call_id": "1"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "refusal": null},
            {"role": "assistant", "function_call": function},
            {"role": "function", "name": "f", "content": null},
            {"role": "assistant"},
        ])),
        Ok(()),
    );
}

#[test]
fn json_has_a_depth() {
    let nested = |depth: usize| (1..depth).fold(json!([]), |inner, _| json!([inner]));
    check(
        chat(json!([{"role": "user", "content": "x", "more": nested(127)}])),
        Ok(()),
    );
    let deep = chat(json!([{"role": "user", "content": "x", "more": nested(128)}]));
    check(deep, Err("messages[0]"));
    let tool = |value: Value| {
        let function = json!({"name": "f", "parameters": {"x": value}});
        with(|f| f.tools = vec![json!({"type": "function", "function": function})])
    };
    check(tool(nested(120)), Ok(()));
    check(tool(nested(200)), Err("tools[0]"));
}

#[test]
fn tools_have_a_shape() {
    let tools = |tools: Value| with(|f| f.tools = tools.as_array().expect("a list").clone());
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    check(tools(json!([named("a"), named("B-_9")])), Ok(()));
    check(
        tools(json!([named("a"), named("a")])),
        Err("tools[1].function.name"),
    );
    check(tools(json!([named(&"x".repeat(64))])), Ok(()));
    for name in ["", "a b", "é", "a.b", &"x".repeat(65)] {
        check(tools(json!([named(name)])), Err("tools[0].function.name"));
    }
    check(tools(json!([7])), Err("tools[0]"));
    check(
        tools(json!([{"function": {"name": "a"}}])),
        Err("tools[0].type"),
    );
    check(tools(json!([{"type": "custom"}])), Err("tools[0].type"));
    check(
        tools(json!([{"type": "function"}])),
        Err("tools[0].function"),
    );
    let part = |key: &str, value: Value| {
        let mut tool = named("a");
        tool["function"][key] = value;
        tools(json!([tool]))
    };
    check(
        part("parameters", json!("x")),
        Err("tools[0].function.parameters"),
    );
    check(part("parameters", json!(null)), Ok(()));
    check(
        part("description", json!(7)),
        Err("tools[0].function.description"),
    );
    check(
        part("strict", json!("yes")),
        Err("tools[0].function.strict"),
    );
    check(part("strict", json!(true)), Ok(()));
}

#[test]
fn tool_choice_needs_tools() {
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let choose = |choice: ToolChoice, tools: &[Value]| {
        with(|f| (f.tool_choice, f.tools) = (Some(choice), tools.to_vec()))
    };
    check(choose(ToolChoice::Required, &[]), Err("tool_choice"));
    check(
        choose(ToolChoice::Required, std::slice::from_ref(&tool)),
        Ok(()),
    );
    check(
        choose(
            ToolChoice::Named("f".to_owned()),
            std::slice::from_ref(&tool),
        ),
        Ok(()),
    );
    check(
        choose(
            ToolChoice::Named("g".to_owned()),
            std::slice::from_ref(&tool),
        ),
        Err("tool_choice"),
    );
    check(choose(ToolChoice::Auto, &[]), Ok(()));
    let choice = |fields| Request::check(fields).expect("good").tool_choice();
    assert_eq!(choice(good()), ToolChoice::None);
    assert_eq!(choice(with(|f| f.tools = vec![tool])), ToolChoice::Auto);
}

#[test]
fn template_arguments_never_replace_the_servers() {
    let arguments = |name: &str| {
        let mut fields = good();
        if let Prompt::Chat {
            template_arguments, ..
        } = &mut fields.prompt
        {
            template_arguments.insert(name.to_owned(), json!(true));
        }
        fields
    };
    check(arguments("enable_thinking"), Ok(()));
    for name in [
        "messages",
        "tools",
        "chat_template",
        "bos_token",
        "add_generation_prompt",
    ] {
        check(
            arguments(name),
            Err(&format!("chat_template_kwargs.{name}")),
        );
    }
}

#[test]
fn a_final_message_can_be_continued() {
    let continued = |last: &str, open: bool| {
        let mut fields = chat(json!([{"role": last, "content": "x"}]));
        if let Prompt::Chat {
            add_generation_prompt,
            continue_final_message,
            ..
        } = &mut fields.prompt
        {
            (*add_generation_prompt, *continue_final_message) = (open, true);
        }
        fields
    };
    check(continued("assistant", false), Ok(()));
    check(continued("user", false), Err("continue_final_message"));
    check(continued("assistant", true), Err("continue_final_message"));
}

#[test]
fn grammars_have_bounds() {
    let grammar = |source| with(|f| f.grammar = Some(source));
    let schema = |text: &str| grammar(GrammarSource::JsonSchema(text.to_owned()));
    check(grammar(GrammarSource::JsonObject), Ok(()));
    check(schema("{}"), Ok(()));
    check(schema("true"), Ok(()));
    check(schema("7"), Err("response_format"));
    check(schema("{"), Err("response_format"));
    check(
        grammar(GrammarSource::Regex("x".repeat((1 << 20) + 1))),
        Err("response_format"),
    );
}

#[test]
fn empty_token_prompts_are_refused() {
    check(
        with(|f| f.prompt = Prompt::Tokens(Vec::new())),
        Err("prompt"),
    );
    check(with(|f| f.prompt = Prompt::Tokens(vec![1])), Ok(()));
    check(with(|f| f.prompt = Prompt::Text(String::new())), Ok(()));
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        "[a-z]{0,3}",
        Just("role".to_owned()),
        Just("function".to_owned())
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("role"),
        Just("content"),
        Just("type"),
        Just("text"),
        Just("tool_calls"),
        Just("name"),
        Just("function"),
        Just("id"),
        Just("arguments"),
        Just("parameters"),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..4).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_comes_is_answered(
        messages in proptest::collection::vec(any_json(), 0..3),
        tools in proptest::collection::vec(any_json(), 0..3),
    ) {
        let mut fields = chat(Value::from(messages));
        fields.tools = tools;
        if let Err(error) = Request::check(fields) {
            let named = matches!(&error, ServiceError::Invalid { param: Some(p), .. }
                if p.starts_with("messages") || p.starts_with("tools"));
            prop_assert!(named, "{:?}", error);
        }
    }
}
