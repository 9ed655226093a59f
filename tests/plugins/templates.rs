//! Chat templates that requests choose by name, those of the model's own files, and those of models without one.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Server, model};

const RENDER: &str = "/v1/chat/completions/render";

/// A copy of the byte-level model whose `tokenizer_config.json` has these chat templates.
fn with_templates(folder: &Path, templates: Value) {
    std::fs::create_dir_all(folder).expect("a folder");
    let from = model::byte_level();
    std::fs::copy(from.join("tokenizer.json"), folder.join("tokenizer.json")).expect("a copy");
    let config = json!({"eos_token": "<|im_end|>", "chat_template": templates});
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).expect("written");
}

fn server(folder: &Path) -> Server {
    let named = json!([
        {"name": "default", "template": "default: {{ messages[0].content }}"},
        {"name": "tool_use", "template": "tools: {{ tools[0].function.name }} {{ messages[0].content }}"},
        {"name": "rag", "template": "rag: {{ documents[0].text }} {{ messages[0].content }}"},
    ]);
    with_templates(&folder.join("named"), named);
    with_templates(&folder.join("bare"), Value::Null);
    let file = folder.join("filed.jinja");
    std::fs::write(&file, "filed: {{ messages[0].content }}").expect("written");
    let model = |name: &str| {
        let path = folder.join(name);
        format!(
            "[[models]]\nname = {name:?}\npath = {path:?}\nbackend = \"scripted\"\n[models.script]\ndefault = \"Yes.\"\n"
        )
    };
    Server::configured(&format!(
        "[[plugins.bindings]]\nkind = \"chat-template\"\nmodels = [\"named\"]\n\
         [plugins.bindings.templates]\nfiled = {{ file = {file:?} }}\ndocs = {{ own = \"rag\" }}\n\
         said = {{ text = \"said: {{{{ messages[0].content }}}}\" }}\ngone = {{ own = \"none\" }}\n{}{}",
        model("named"),
        model("bare")
    ))
}

fn body(model: &str, more: Value) -> Value {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn feature_p1_requests_choose_templates_of_the_operators_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server(folder.path());
    let rendered = |more: Value| server.post(RENDER, &body("named", more)).ok()["prompt"].clone();
    let tools = json!([{"type": "function", "function": {"name": "now"}}]);
    assert_eq!(rendered(json!({})), "default: Hi");
    assert_eq!(rendered(json!({"tools": tools})), "tools: now Hi");
    assert_eq!(
        rendered(json!({"chat_template": "said", "tools": tools})),
        "said: Hi"
    );
    assert_eq!(rendered(json!({"chat_template": "filed"})), "filed: Hi");
    let documents = json!([{"text": "Ulm."}]);
    assert_eq!(
        rendered(json!({"chat_template": "docs", "documents": documents})),
        "rag: Ulm. Hi"
    );
    // What is not listed is refused by name, the model's own templates and Jinja among it, in every dialect.
    server.wait_for_log(|line| {
        line.contains("template=\"gone\"") && line.contains("none of that name")
    });
    for name in [
        "rag",
        "default",
        "gone",
        "{{ messages }}",
        "/etc/passwd",
        "",
    ] {
        let field = json!({"chat_template": name});
        let response = json!({"model": "named", "input": "Hi", "chat_template": name});
        let mut message = body("named", field.clone());
        message["max_tokens"] = json!(9);
        for (route, body) in [
            ("/v1/chat/completions", body("named", field)),
            ("/v1/responses", response),
            ("/v1/messages", message),
        ] {
            let answer = server.post(route, &body);
            assert_eq!(answer.status(), 400, "{route} {name}: {}", answer.text());
            let said = answer.text();
            assert!(
                said.contains("`docs`, `filed`, `said`") && said.contains("chat_template"),
                "{said}"
            );
        }
    }
    let other = server.post(RENDER, &body("bare", json!({"chat_template": "said"})));
    assert_eq!(other.status(), 400, "{}", other.text());
    assert_eq!(other.json()["error"]["param"], "chat_template");
}

#[test]
fn feature_p1_all_dialects_choose_templates() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server(folder.path());
    let chosen = |name: &str| json!({"chat_template": name});
    let counted = |body: Value| {
        let used =
            server.post("/v1/chat/completions", &body).ok()["usage"]["prompt_tokens"].clone();
        used.as_u64().expect("a number")
    };
    // A byte is a token.
    let expected = "said: Hi".len() as u64;
    assert_eq!(counted(body("named", chosen("said"))), expected);
    let response = json!({"model": "named", "input": "Hi", "chat_template": "said"});
    let response = server.post("/v1/responses", &response).ok();
    assert_eq!(response["usage"]["input_tokens"], expected, "{response}");
    let mut message = body("named", chosen("said"));
    message["max_tokens"] = json!(9);
    let message = server.post("/v1/messages", &message).ok();
    assert_eq!(message["usage"]["input_tokens"], expected, "{message}");
    let generate = json!({"model": "named", "prompt": "Hi", "template": "said", "stream": false});
    let generated = server.post("/api/generate", &generate).ok();
    assert_eq!(generated["prompt_eval_count"], expected, "{generated}");
    let unknown = json!({"model": "named", "prompt": "Hi", "template": "{{ .Prompt }}"});
    let refused = server.post("/api/generate", &unknown);
    assert_eq!(refused.status(), 400, "{}", refused.text());
    assert!(refused.text().contains("`template`"), "{}", refused.text());
}

/// A model whose files have no chat template: its tokens tell a format, and tools and thinking are said in the system's turn.
#[test]
fn feature_p2_p3_a_model_without_a_template_is_spoken_to_by_its_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server(folder.path());
    server.wait_for_log(|line| {
        line.contains("no chat template") && line.contains("format=\"chatml\"")
    });
    let rendered = |more: Value| {
        let answer = server.post(RENDER, &body("bare", more)).ok();
        answer["prompt"].as_str().expect("a prompt").to_owned()
    };
    let plain = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(rendered(json!({})), plain);
    let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
    let system = "<|im_start|>system\n/no_think<|im_end|>\n";
    assert_eq!(rendered(off.clone()), format!("{system}{plain}"));
    assert_eq!(
        rendered(json!({"reasoning_effort": "none"})),
        format!("{system}{plain}")
    );
    let mut led = off;
    led["messages"] =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let system = "<|im_start|>system\nBe brief. /no_think<|im_end|>\n";
    assert_eq!(rendered(led), format!("{system}{plain}"));

    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool =
        json!({"name": "weather", "description": "Tells the weather.", "parameters": parameters});
    let prompt = rendered(json!({"tools": [{"type": "function", "function": tool}]}));
    let system = prompt.split("<|im_end|>").next().expect("a system turn");
    for told in [
        "weather",
        "Tells the weather.",
        "\"city\"",
        "<tool_call>\n{\"name\": NAME",
    ] {
        assert!(system.contains(told), "{told}: {system}");
    }
}
