use mortise_models::conversation::{
    ContentPart, Conversation, Image, ImageSource, Message, PartOrigin, Role, TemplateArguments,
    ToolCall, ToolName,
};

use super::*;

const APIS: [UpstreamApi; 4] = [
    UpstreamApi::Openai,
    UpstreamApi::Vllm,
    UpstreamApi::LlamaServer,
    UpstreamApi::Mortise,
];

fn config(api: UpstreamApi) -> UpstreamConfig {
    let urls = vec!["http://127.0.0.1:1/v1".parse().expect("a base URL")];
    UpstreamConfig {
        api,
        ..UpstreamConfig::new(urls, "theirs")
    }
}

fn request(messages: Vec<Message>) -> ConversationRequest {
    ConversationRequest {
        request_id: "r".to_owned(),
        share: mortise_engine::Share::default(),
        conversation: Conversation::new(messages).expect("a conversation"),
        arguments: TemplateArguments::default(),
        continue_final_message: false,
        tools: Vec::new(),
        tool_use: ToolUse::Auto,
        parallel_tool_calls: true,
        format: None,
        max_tokens: 77,
        max_tokens_given: true,
        stop: Vec::new(),
        sampling: RequestedSampling::default(),
        logprobs: None,
    }
}

fn hello() -> ConversationRequest {
    request(vec![Message::text(Role::User, "Hi")])
}

fn body_of(request: &ConversationRequest, config: &UpstreamConfig) -> Value {
    let body = request_body(request, config).expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

fn refusal(request: &ConversationRequest, api: UpstreamApi) -> String {
    let refused = request_body(request, &config(api)).expect_err("a refusal");
    refused.to_string()
}

#[test]
fn a_plain_request_has_no_field_that_nobody_asked_for() {
    for api in APIS {
        let body = body_of(&hello(), &config(api));
        let expected = json!({
            "model": "theirs",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 77,
        });
        assert_eq!(body, expected, "{api:?}");
    }
    let newer = UpstreamConfig {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        ..config(UpstreamApi::Openai)
    };
    let body = body_of(&hello(), &newer);
    assert_eq!(body["max_completion_tokens"], 77);
    assert!(body.get("max_tokens").is_none());
    let unlimited = ConversationRequest {
        max_tokens_given: false,
        ..hello()
    };
    let body = body_of(&unlimited, &config(UpstreamApi::Vllm));
    assert!(body.get("max_tokens").is_none());
}

#[test]
fn sampling_has_the_names_of_each_family() {
    let mut request = hello();
    request.sampling = RequestedSampling {
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(0),
        min_p: Some(0.1),
        seed: Some(-1),
        repetition_penalty: Some(1.1),
        frequency_penalty: Some(0.2),
        presence_penalty: Some(0.3),
    };
    request.stop = vec!["END".to_owned()];
    request.logprobs = Some(2);
    let vllm = body_of(&request, &config(UpstreamApi::Vllm));
    assert_eq!((&vllm["top_k"], &vllm["seed"]), (&json!(-1), &json!(-1)));
    assert_eq!(vllm["repetition_penalty"], 1.1);
    let llama = body_of(&request, &config(UpstreamApi::LlamaServer));
    assert_eq!(
        (&llama["top_k"], &llama["repeat_penalty"]),
        (&json!(0), &json!(1.1))
    );
    assert_eq!(llama["seed"], u32::MAX - 1);
    for body in [vllm, llama] {
        for (field, value) in [
            ("temperature", json!(0.5)),
            ("top_p", json!(0.9)),
            ("min_p", json!(0.1)),
            ("frequency_penalty", json!(0.2)),
            ("presence_penalty", json!(0.3)),
            ("stop", json!(["END"])),
            ("logprobs", json!(true)),
            ("top_logprobs", json!(2)),
        ] {
            assert_eq!(body[field], value, "{field}");
        }
    }
}

#[test]
fn what_cannot_be_said_is_refused_by_name() {
    let sampled = |sampling| ConversationRequest {
        sampling,
        ..hello()
    };
    let formed = |format| ConversationRequest {
        format: Some(format),
        ..hello()
    };
    let given = |name: &str| {
        let arguments = [(name.to_owned(), json!(true))].into_iter().collect();
        let arguments = TemplateArguments::new(arguments).expect("arguments");
        ConversationRequest {
            arguments,
            ..hello()
        }
    };
    let none = RequestedSampling::default;
    let openai = UpstreamApi::Openai;
    let llama = UpstreamApi::LlamaServer;
    let regex = || formed(OutputFormat::Regex("a".to_owned()));
    let lark = || formed(OutputFormat::Lark("start: \"a\"".to_owned()));
    let continued = ConversationRequest {
        continue_final_message: true,
        ..hello()
    };
    for (request, api, field) in [
        (
            sampled(RequestedSampling {
                top_k: Some(5),
                ..none()
            }),
            openai,
            "top_k",
        ),
        (
            sampled(RequestedSampling {
                min_p: Some(0.5),
                ..none()
            }),
            openai,
            "min_p",
        ),
        (
            sampled(RequestedSampling {
                repetition_penalty: Some(1.5),
                ..none()
            }),
            openai,
            "repetition_penalty",
        ),
        (regex(), openai, "structured_outputs.regex"),
        (lark(), openai, "structured_outputs.grammar"),
        (regex(), llama, "structured_outputs.regex"),
        (lark(), llama, "structured_outputs.grammar"),
        (continued, openai, "continue_final_message"),
        (
            given("enable_thinking"),
            openai,
            "chat_template_kwargs.enable_thinking",
        ),
        (given("documents"), openai, "chat_template_kwargs.documents"),
    ] {
        let refused = refusal(&request, api);
        assert!(refused.starts_with(&format!("`{field}` ")), "{refused}");
    }
    // What changes nothing needs no field.
    let neutral = RequestedSampling {
        top_k: Some(0),
        min_p: Some(0.0),
        repetition_penalty: Some(1.0),
        ..none()
    };
    let body = body_of(&sampled(neutral), &config(openai));
    assert!(body.get("top_k").is_none() && body.get("repetition_penalty").is_none());
}

#[test]
fn formats_have_the_form_of_each_family() {
    let formed = |format| ConversationRequest {
        format: Some(format),
        ..hello()
    };
    let schema = formed(OutputFormat::JsonSchema(
        "{\"type\":\"integer\"}".to_owned(),
    ));
    for api in APIS {
        let format = &body_of(&schema, &config(api))["response_format"];
        assert_eq!(format["type"], "json_schema");
        assert_eq!(format["json_schema"]["schema"], json!({"type": "integer"}));
        let object = body_of(&formed(OutputFormat::JsonObject), &config(api));
        assert_eq!(object["response_format"], json!({"type": "json_object"}));
    }
    for api in [UpstreamApi::Vllm, UpstreamApi::Mortise] {
        let regex = body_of(&formed(OutputFormat::Regex("a+".to_owned())), &config(api));
        assert_eq!(regex["structured_outputs"], json!({"regex": "a+"}));
        let lark = body_of(
            &formed(OutputFormat::Lark("start: \"a\"".to_owned())),
            &config(api),
        );
        assert_eq!(
            lark["structured_outputs"],
            json!({"grammar": "start: \"a\""})
        );
    }
}

#[test]
fn thinking_is_said_in_each_familys_words() {
    let thinking = |api, thinking| UpstreamConfig {
        thinking,
        ..config(api)
    };
    let off = body_of(&hello(), &thinking(UpstreamApi::Openai, Some(false)));
    assert_eq!(off["thinking"], json!({"type": "disabled"}));
    let on = body_of(&hello(), &thinking(UpstreamApi::Vllm, Some(true)));
    assert_eq!(on["chat_template_kwargs"], json!({"enable_thinking": true}));
    // A request's own word counts more.
    let members = json!({"reasoning_effort": "none", "enable_thinking": false});
    let Value::Object(members) = members else {
        panic!("an object");
    };
    let arguments = TemplateArguments::new(members).expect("arguments");
    let request = ConversationRequest {
        arguments,
        ..hello()
    };
    let vllm = body_of(&request, &thinking(UpstreamApi::Vllm, Some(true)));
    assert_eq!(vllm["chat_template_kwargs"]["enable_thinking"], false);
    assert_eq!(vllm["reasoning_effort"], "none");
    let openai = body_of(&request, &thinking(UpstreamApi::Openai, Some(true)));
    assert_eq!(openai["reasoning_effort"], "none");
    assert!(openai.get("thinking").is_none() && openai.get("chat_template_kwargs").is_none());
}

#[test]
fn conversations_are_written_whole() {
    let call = ToolCall {
        id: "c1".to_owned(),
        name: "f".to_owned(),
        arguments: "{}".to_owned(),
        ..ToolCall::default()
    };
    let assistant = Message {
        role: Role::Assistant {
            reasoning: Some("hm".to_owned()),
            calls: vec![call],
        },
        content: Vec::new(),
        name: None,
    };
    let result = Role::Tool {
        call_id: "c1".to_owned(),
    };
    let mut request = request(vec![
        Message::text(Role::Developer, "be brief"),
        Message::text(Role::User, "Hi"),
        assistant,
        Message::text(result, "42"),
    ]);
    request.tools = vec![ToolDeclaration::new(ToolName::new("f").expect("a name"))];
    request.tool_use = ToolUse::Named("f".to_owned());
    request.parallel_tool_calls = false;
    let body = body_of(&request, &config(UpstreamApi::Vllm));
    let function = json!({"name": "f", "arguments": "{}"});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "reasoning_content": "hm",
             "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ])
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "function", "function": {"name": "f"}})
    );
    assert_eq!(body["parallel_tool_calls"], false);
    assert_eq!(body["tools"][0]["function"]["name"], "f");
    let openai = body_of(&request, &config(UpstreamApi::Openai));
    assert_eq!(openai["messages"][0]["role"], "developer");
    assert!(openai["messages"][2].get("reasoning_content").is_none());
}

#[test]
fn images_are_sent_and_their_addresses_only_where_allowed() {
    let image = |source| {
        let origin = PartOrigin {
            path: "messages[0].content[1]".to_owned(),
            kind: "image_url".to_owned(),
        };
        let detail = None;
        let mut message = Message::text(Role::User, "Look");
        message.content.push(ContentPart::Image(Image {
            source,
            detail,
            origin,
        }));
        request(vec![message])
    };
    let bytes = image(ImageSource::Bytes {
        media_type: "image/png".to_owned(),
        bytes: vec![1, 2, 3],
    });
    let body = body_of(&bytes, &config(UpstreamApi::Openai));
    let part = &body["messages"][0]["content"][1];
    assert_eq!(part["image_url"]["url"], "data:image/png;base64,AQID");
    let address = image(ImageSource::Url("http://10.0.0.1/secret".to_owned()));
    let refused = refusal(&address, UpstreamApi::Openai);
    assert!(
        refused.starts_with("`messages[0].content[1]` "),
        "{refused}"
    );
    let allowed = UpstreamConfig {
        forward_image_urls: true,
        ..config(UpstreamApi::Openai)
    };
    let body = body_of(&address, &allowed);
    let url = &body["messages"][0]["content"][1]["image_url"]["url"];
    assert_eq!(url, "http://10.0.0.1/secret");
}
