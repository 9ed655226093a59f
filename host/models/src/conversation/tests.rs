use serde_json::{Map, Value, json};

use super::template_json;
use super::*;
use crate::limits::{MAX_JSON_DEPTH, MAX_MESSAGES, MAX_TOOL_NAME_BYTES, MAX_TOOLS};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: "{}".to_owned(),
        ..ToolCall::default()
    }
}

fn calls(ids: &[&str]) -> Message {
    Message {
        role: Role::Assistant {
            reasoning: None,
            calls: ids.iter().map(|id| call(id)).collect(),
        },
        content: Vec::new(),
        name: None,
    }
}

fn result(id: &str) -> Message {
    let call_id = id.to_owned();
    Message::text(Role::Tool { call_id }, "x")
}

#[test]
fn results_follow_the_calls_that_they_answer() {
    let user = || Message::text(Role::User, "hi");
    let good = [
        vec![user()],
        vec![user(), calls(&["a", "b"]), result("b"), result("a")],
        vec![calls(&["a"]), user(), result("a"), result("a")],
        // Calls may stay without a result.
        vec![calls(&["a"]), user()],
    ];
    for messages in good {
        assert!(Conversation::new(messages.clone()).is_ok(), "{messages:?}");
    }
    for (messages, at) in [
        (vec![result("a")], 0),
        (vec![user(), result("a"), calls(&["a"])], 1),
        (vec![calls(&["a"]), result("b")], 1),
    ] {
        let error = Conversation::new(messages).expect_err("a refusal");
        assert!(
            matches!(error, ConversationError::UnknownCall { message, .. } if message == at),
            "{error:?}"
        );
    }
}

#[test]
fn conversations_have_bounds() {
    let of = |count| Conversation::new(vec![Message::text(Role::User, ""); count]);
    assert_eq!(of(0), Err(ConversationError::Empty));
    assert!(of(MAX_MESSAGES).is_ok());
    let count = MAX_MESSAGES + 1;
    assert_eq!(of(count), Err(ConversationError::TooMany { count }));
}

#[test]
fn tool_names_have_an_alphabet() {
    let longest = "x".repeat(MAX_TOOL_NAME_BYTES);
    for name in ["a", "B-_9", &longest] {
        assert!(ToolName::new(name).is_ok(), "{name}");
    }
    for name in ["", "a b", "é", "a.b", "a\n", &format!("{longest}x")] {
        assert!(ToolName::new(name).is_err(), "{name}");
    }
}

#[test]
fn tools_have_distinct_names_and_a_bound() {
    let named = |at: usize| ToolDeclaration::new(ToolName::new(format!("t{at}")).expect("a name"));
    assert!(ToolDeclarations::new((0..MAX_TOOLS).map(named).collect()).is_ok());
    let many = ToolDeclarations::new((0..=MAX_TOOLS).map(named).collect());
    let count = MAX_TOOLS + 1;
    assert_eq!(many, Err(ToolsError::TooMany { count }));
    let twice = ToolDeclarations::new(vec![named(1), named(2), named(1)]);
    assert!(
        matches!(twice, Err(ToolsError::Duplicate { index: 2, .. })),
        "{twice:?}"
    );
}

#[test]
fn json_objects_have_a_depth() {
    let nested = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
    assert!(JsonObject::new(object(nested(MAX_JSON_DEPTH))).is_ok());
    assert_eq!(
        JsonObject::new(object(nested(MAX_JSON_DEPTH + 1))),
        Err(TooDeep)
    );
    // No stack is needed to find that out.
    assert_eq!(JsonObject::new(object(nested(1_000))), Err(TooDeep));
}

#[test]
fn template_arguments_never_replace_the_servers() {
    let arguments = |name: &str| TemplateArguments::new(object(json!({name: true})));
    assert!(arguments("enable_thinking").is_ok());
    for name in ["messages", "tools", "chat_template", "bos_token"] {
        assert_eq!(arguments(name).expect_err("a refusal").name, name);
    }
}

#[test]
fn messages_are_written_as_templates_know_them() {
    let mut assistant = calls(&["1"]);
    if let Role::Assistant { reasoning, .. } = &mut assistant.role {
        *reasoning = Some("hm".to_owned());
    }
    let mut user = Message::text(Role::User, "a");
    user.content.push("b".into());
    user.name = Some("ann".to_owned());
    let origin = PartOrigin::default();
    let (bytes, format) = (vec![1], "wav".to_owned());
    let recording = ContentPart::Audio(Audio {
        bytes,
        format,
        origin,
    });
    let mut spoken = Message::text(Role::User, "c");
    spoken.content.push(recording);
    let conversation = Conversation::new(vec![
        Message::text(Role::Developer, "be brief"),
        user,
        assistant,
        result("1"),
        spoken,
    ]);
    let written = template_json::messages(&conversation.expect("a conversation")).expect("JSON");
    let expected = concat!(
        r#"[{"role":"system","content":"be brief"},"#,
        r#"{"role":"user","content":"a\nb","name":"ann"},"#,
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","#,
        r#""function":{"name":"f","arguments":"{}"}}],"reasoning_content":"hm"},"#,
        r#"{"role":"tool","content":"x","tool_call_id":"1"},"#,
        r#"{"role":"user","content":[{"type":"text","text":"c"},{"type":"audio"}]}]"#,
    );
    assert_eq!(written, expected);
}

#[test]
fn tools_are_written_in_the_order_of_their_keys() {
    let name = || ToolName::new("f").expect("a name");
    let schema = JsonObject::new(object(json!({"type": "object"}))).expect("shallow");
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    let plain = ToolDeclaration {
        parameters: Some(schema.clone()),
        ..ToolDeclaration::new(name())
    };
    let ordered = ToolDeclaration {
        order: KeyOrder::new(
            keys(&["function", "type"]),
            keys(&["strict", "description", "name"]),
        ),
        strict: Some(true),
        ..plain.clone()
    };
    let written = |tool: &ToolDeclaration| template_json::tools([tool].into_iter()).expect("JSON");
    assert_eq!(
        written(&plain),
        r#"[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#
    );
    assert_eq!(
        written(&ordered),
        concat!(
            r#"[{"function":{"strict":true,"description":null,"name":"f","#,
            r#""parameters":{"type":"object"}},"type":"function"}]"#
        )
    );
}
