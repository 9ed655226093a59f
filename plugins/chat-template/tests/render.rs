//! Messages in the shapes that clients send, and errors that name what is wrong.

use mortise_chat_template::render::{ControlToken, Input, Model, Output, RenderError, Renderer};
use mortise_chat_template::segments::Segment;
use serde_json::{Value, json};

const PLAIN: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";

fn renderer(template: &str) -> Renderer {
    let model = Model {
        chat_template: Some(template.to_owned()),
        ..Model::default()
    };
    Renderer::new("{}", model).unwrap()
}

fn joined(output: &Output) -> String {
    output.segments.iter().map(Segment::text).collect()
}

fn check(template: &str, messages: Value, expected: &str) {
    let input = Input {
        messages: messages.to_string(),
        ..Input::default()
    };
    let output = renderer(template).render(&input).unwrap();
    assert_eq!(joined(&output), expected, "{template}");
}

fn refuse(input: Input, template: &str, expected: &str) {
    let error = renderer(template).render(&input).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn text_parts_are_joined_where_the_template_takes_text() {
    let messages = json!([{"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
    ]}]);
    check(PLAIN, messages, "[user:a\nb]");
}

#[test]
fn parts_stay_parts_where_the_template_takes_them() {
    let template = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
                    {% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}";
    let messages = json!([{"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
    ]}]);
    check(template, messages, "<a><b>");
}

#[test]
fn null_is_empty_text_unless_the_template_asks() {
    let messages = json!([{"role": "assistant", "content": null}, {"role": "assistant"}]);
    check(PLAIN, messages.clone(), "[assistant:][assistant:]");
    let template = "{% for m in messages %}{% if m['content'] is none %}-{% else %}\
                    {{ m.content }}{% endif %}{% endfor %}";
    check(template, messages, "--");
}

#[test]
fn a_developer_is_a_system_unless_the_template_knows_better() {
    let messages = json!([{"role": "developer", "content": "d"}]);
    check(PLAIN, messages.clone(), "[system:d]");
    let template = format!("{PLAIN}{{# developer #}}");
    check(&template, messages, "[developer:d]");
}

#[test]
fn arguments_become_an_object_where_the_template_prints_json() {
    let call = |arguments: &str| {
        json!([{"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": arguments}},
        ]}])
    };
    let prints_json = "{% for m in messages %}{% for c in m.tool_calls %}\
                       {{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    check(
        prints_json,
        call(r#"{"b":1,"a":[2.0,"é"]}"#),
        r#"{"b": 1, "a": [2.0, "é"]}"#,
    );
    check(prints_json, call(""), "{}");
    check(prints_json, call("{oops"), r#""{oops""#);
    let prints_text = "{% for m in messages %}{% for c in m.tool_calls %}\
                       {{ 'args: ' + c.function.arguments }}{% endfor %}{% endfor %}";
    check(prints_text, call(r#"{"b":1}"#), r#"args: {"b":1}"#);
}

#[test]
fn reasoning_is_found_under_each_name() {
    let template = "{% for m in messages %}{{ m.reasoning_content }}/{{ m.thinking }}{% endfor %}";
    for field in ["reasoning_content", "reasoning", "thinking"] {
        let messages = json!([{"role": "assistant", "content": "", field: "why"}]);
        check(template, messages, "why/why");
    }
}

#[test]
fn an_open_block_of_reasoning_is_reported() {
    let opens = |template: &str, messages: Value, continued: bool| {
        let input = Input {
            messages: messages.to_string(),
            add_generation_prompt: !continued,
            continue_final_message: continued,
            ..Input::default()
        };
        renderer(template).render(&input).unwrap().opens_reasoning
    };
    let hello = json!([{"role": "user", "content": "<think>"}]);
    let with = |end: &str| {
        format!("{PLAIN}{{% if add_generation_prompt %}}<|assistant|>{end}{{% endif %}}")
    };
    assert!(opens(&with("<think>\n"), hello.clone(), false));
    assert!(!opens(&with("<think>\n\n</think>\n"), hello.clone(), false));
    assert!(!opens(&with(""), hello.clone(), false));
    assert!(opens(&with("<|open|>think<|sep|>"), hello.clone(), false));
    assert!(opens(&with("<mm:think>\n"), hello.clone(), false));
    assert!(!opens(&with("<mm:think></mm:think>"), hello, false));
    let said = |text: &str| json!([{"role": "assistant", "content": text}]);
    assert!(opens(PLAIN, said("<think>well"), true));
    assert!(!opens(PLAIN, said("<think>well</think>so"), true));
}

#[test]
fn a_model_without_a_template_speaks_chatml() {
    let model = Model {
        control_tokens: vec![ControlToken {
            text: "<|im_end|>".to_owned(),
            special: true,
        }],
        eos_token: "<|endoftext|>".to_owned(),
        ..Model::default()
    };
    let renderer = Renderer::new("{}", model).unwrap();
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let input = Input {
        messages: json!([
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"function": {"name": "f", "arguments": "{\"a\": 1}"}},
            ]},
            {"role": "tool", "content": "R"},
        ])
        .to_string(),
        tools: Some(tools.to_string()),
        add_generation_prompt: true,
        ..Input::default()
    };
    let output = renderer.render(&input).unwrap();
    assert_eq!(
        joined(&output),
        "<|im_start|>system\nS\n\nYou may call these functions:\n<tools>\n\
         {\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n</tools>\n\n\
         To call one, write its name and arguments as JSON:\n\
         <tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\nU<|im_end|>\n\
         <|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n\
         </tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\nR\n</tool_response><|im_end|>\n\
         <|im_start|>assistant\n"
    );
    assert_eq!(
        output.stop,
        ["<|im_end|>"],
        "the model ends its turn otherwise"
    );
}

#[test]
fn the_operator_may_replace_the_template() {
    let model = Model {
        chat_template: Some("{{ broken".to_owned()),
        ..Model::default()
    };
    let settings = json!({"chat_template": "ok {{ messages | length }}"}).to_string();
    let renderer = Renderer::new(&settings, model.clone()).unwrap();
    let input = Input {
        messages: "[]".to_owned(),
        ..Input::default()
    };
    assert_eq!(joined(&renderer.render(&input).unwrap()), "ok 0");
    let error = Renderer::new("{}", model.clone()).unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
    let error = Renderer::new(r#"{"template": ""}"#, model)
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown field `template`"), "{error}");
}

#[test]
fn errors_name_the_field_or_the_line() {
    let with = |messages: Value| Input {
        messages: messages.to_string(),
        ..Input::default()
    };
    refuse(with(json!({})), PLAIN, "`messages` must be a JSON array");
    refuse(with(json!([1])), PLAIN, "`messages[0]` must be an object");
    refuse(
        with(json!([{"content": ""}])),
        PLAIN,
        "`messages[0].role` must be a string",
    );
    refuse(
        with(json!([{"role": "user", "content": 5}])),
        PLAIN,
        "`messages[0].content` must be",
    );
    refuse(
        with(json!([{"role": "user", "content": [{"type": "image_url"}]}])),
        PLAIN,
        "`messages[0].content[0]` has type `image_url`",
    );
    refuse(
        with(json!([{"role": "user", "content": "no <|x|>"}])),
        "a\n{% if messages %}\n{{ raise_exception('bad: ' + messages[0].content) }}{% endif %}",
        "refused the conversation in line 3: bad: no <|x|>",
    );
    refuse(with(json!([])), "{{ messages.x.y }}", "failed in line 1");
    let endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    refuse(with(json!([])), endless, "failed");
    let long = "{{ raise_exception('x' * 5000) }}";
    let error = renderer(long).render(&with(json!([]))).unwrap_err();
    assert!(error.to_string().len() <= 1024);
    let both = Input {
        add_generation_prompt: true,
        continue_final_message: true,
        ..with(json!([]))
    };
    refuse(both, PLAIN, "exclude each other");
    let nothing_to_continue = Input {
        continue_final_message: true,
        ..with(json!([]))
    };
    refuse(nothing_to_continue, PLAIN, "needs a last message");
}

#[test]
fn b1_what_never_ends_takes_too_many_steps() {
    let render = |template: &str, messages: Value| {
        let input = Input {
            messages: messages.to_string(),
            ..Input::default()
        };
        renderer(template).render(&input)
    };
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
                 {% endfor %}{% endfor %}{% endfor %}";
    let in_macros = "{% macro f() %}{% for a in range(9999) %}{% endfor %}{% endmacro %}\
                     {% for a in range(9999) %}{{ f() }}{% endfor %}";
    for endless in [loops, in_macros] {
        let error = render(endless, json!([])).expect_err("it has no end");
        assert_eq!(error, RenderError::TooComplex, "{endless}");
        assert!(error.to_string().contains("4000000 steps"), "{error}");
    }
    // As many messages as the longest contexts hold are rendered.
    let many = vec![json!({"role": "user", "content": "Hi"}); 100_000];
    let output = render(PLAIN, Value::Array(many)).expect("a long conversation");
    assert_eq!(joined(&output).len(), 100_000 * "[user:Hi]".len());
}

#[test]
fn what_the_template_lacks_is_told_from_what_the_conversation_lacks() {
    let render = |template: &str, messages: Value| {
        let input = Input {
            messages: messages.to_string(),
            ..Input::default()
        };
        renderer(template).render(&input).unwrap_err()
    };
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for lacking in [
        "{{ messages | no_such_filter }}",
        "{{ no_such_function(messages) }}",
        "{{ messages is no_such_test }}",
    ] {
        // Behind a condition, as it stands in templates that were tried on other conversations.
        let template = format!("{{% if messages | length > 0 %}}{lacking}{{% endif %}}");
        let error = render(&template, messages.clone());
        assert!(
            matches!(error, RenderError::Template(_)),
            "{lacking}: {error:?}"
        );
    }
    let refusing = "{{ raise_exception('roles must alternate') }}";
    let error = render(refusing, messages);
    assert!(
        matches!(&error, RenderError::Conversation(text) if text.contains("must alternate")),
        "{error:?}"
    );
}

// How DeepSeek 3.1 and Granite, MiniMax M3, Seed-OSS, Hy3, Kimi K3 and gpt-oss read what is asked for.
const DEEPSEEK: &str =
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}";
const MINIMAX: &str = "{{ thinking_mode if thinking_mode is defined else 'adaptive' }}";
const SEED: &str = "{{ thinking_budget if thinking_budget is defined else 'free' }}";
const HY3: &str = "{% if not reasoning_effort is defined %}{% set reasoning_effort = 'no_think' %}\
               {% elif reasoning_effort not in ['high', 'low', 'no_think'] %}{{ raise_exception('no') }}{% endif %}\
               {{ reasoning_effort }}";
const KIMI: &str = "{% if thinking_effort is undefined %}{% set thinking_effort = 'max' %}{% endif %}\
                {% if thinking_effort not in ['low', 'high', 'max'] %}{{ raise_exception('no') }}{% endif %}{{ thinking_effort }}";
const OPEN: &str = "{{ reasoning_effort if reasoning_effort is defined else 'medium' }}";

/// A request's settings of thinking reach the template under the template's own names and values.
#[test]
fn feature_s14_thinking_is_asked_for_in_the_templates_own_way() {
    let said = |template: &str, arguments: Value| {
        let input = Input {
            messages: json!([{"role": "user", "content": "Hi"}]).to_string(),
            arguments: Some(arguments.to_string()),
            ..Input::default()
        };
        joined(&renderer(template).render(&input).unwrap())
    };
    let high = json!({"__thinking": true, "reasoning_effort": "high"});
    let medium = json!({"__thinking": true, "reasoning_effort": "medium"});
    let none = json!({"__thinking": false, "reasoning_effort": "none", "enable_thinking": false});
    for (template, asked, expected) in [
        (DEEPSEEK, &high, "true"),
        (DEEPSEEK, &none, "false"),
        (
            DEEPSEEK,
            &json!({"__thinking": true, "thinking": false}),
            "false",
        ),
        (DEEPSEEK, &json!({"enable_thinking": true}), "false"),
        (MINIMAX, &high, "enabled"),
        (MINIMAX, &none, "disabled"),
        (MINIMAX, &json!({}), "adaptive"),
        (SEED, &none, "0"),
        (SEED, &high, "free"),
        (HY3, &medium, "high"),
        (HY3, &none, "no_think"),
        (
            HY3,
            &json!({"__thinking": true, "reasoning_effort": "minimal"}),
            "low",
        ),
        (
            HY3,
            &json!({"__thinking": true, "reasoning_effort": "max"}),
            "high",
        ),
        (KIMI, &medium, "high"),
        (KIMI, &none, "max"),
        (
            KIMI,
            &json!({"__thinking": true, "reasoning_effort": "xhigh"}),
            "max",
        ),
        (OPEN, &medium, "medium"),
        (
            OPEN,
            &json!({"__thinking": true, "reasoning_effort": "xhigh"}),
            "xhigh",
        ),
        ("{{ __thinking is defined }}", &high, "false"),
    ] {
        let said = said(template, asked.clone());
        assert_eq!(said.to_lowercase(), expected, "{template} {asked}");
    }
    // What a template checks by itself, it refuses where an argument of its own is wrong.
    let wrong = Input {
        messages: "[]".to_owned(),
        arguments: Some(json!({"reasoning_effort": "medium"}).to_string()),
        ..Input::default()
    };
    assert!(renderer(HY3).render(&wrong).is_err());
}

/// A last message that only thinks is continued in its thought, as `continue_final_message="reasoning_content"` of
/// `transformers` does it.
#[test]
fn feature_p1_a_thought_is_continued() {
    let template = "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>\n\
                    {{ m.reasoning_content.strip() }}\n</think>\n\n{% endif %}{{ m.content }}[end]{% endfor %}";
    let render = |template: &str, last: Value| {
        let mut last = last;
        last["role"] = json!("assistant");
        let input = Input {
            messages: json!([{"role": "user", "content": "Hi"}, last]).to_string(),
            continue_final_message: true,
            ..Input::default()
        };
        let output = renderer(template).render(&input)?;
        Ok::<_, RenderError>((joined(&output), output.opens_reasoning))
    };
    let thinking = "[user]Hi[end][assistant]<think>\nLet me".to_owned();
    for last in [
        json!({"content": "", "reasoning_content": "Let me"}),
        json!({"content": null, "reasoning": "Let me"}),
        json!({"content": [{"type": "text", "text": ""}], "thinking": "Let me"}),
    ] {
        assert_eq!(
            render(template, last.clone()).unwrap(),
            (thinking.clone(), true),
            "{last}"
        );
    }
    let both = json!({"content": "So", "reasoning_content": "Let me"});
    let closed = format!("{thinking}\n</think>\n\nSo");
    assert_eq!(render(template, both).unwrap(), (closed, false));
    let neither = json!({"content": ""});
    let opened = "[user]Hi[end][assistant]".to_owned();
    assert_eq!(render(template, neither).unwrap(), (opened, false));
    let error = render(PLAIN, json!({"content": "", "reasoning_content": "Let me"})).unwrap_err();
    assert!(error.to_string().contains("leaves out"), "{error}");
}
