//! The project's threat list, sections B (chat templates), C (grammars), D (parsers) and J (plugins),
//! over HTTP, while somebody else is served. What is judged stands in `tests/support/bystander.rs`; the
//! rest of section J is in `host/plugin/tests`, where guests can be forged.

mod constraints;
mod grammars;
mod guests;
mod unsuspended;

use serde_json::{Value, json};

use crate::refused;
use crate::support::Server;
use crate::support::bystander::{Bystander, Caller, Case, Expected};
use crate::support::client::{Request, Response};
use crate::support::example::every_kind as guest;

const CHAT: &str = "/v1/chat/completions";

/// Caller that is served during the attacks.
const BYSTANDER: Caller<'static> = Caller {
    model: "mortise-demo",
    key: None,
};

/// A server with the demo model for the bystander, and models that say what they are told, each with
/// its script and bindings of its own.
fn server(targets: &[Target]) -> Server {
    let mut config = String::from("[plugins]\nwatch_ms = 0\n[[models]]\nname = \"mortise-demo\"\n");
    let path = crate::support::model::byte_level();
    for Target { name, script, .. } in targets {
        if script.is_empty() {
            config.push_str(&format!("[[models]]\nname = {name:?}\n"));
            continue;
        }
        config.push_str(&format!(
            "[[models]]\nname = {name:?}\npath = {path:?}\nbackend = \"scripted\"\n[models.script]\n{script}\n"
        ));
    }
    for Target { name, bindings, .. } in targets {
        for (kind, more) in bindings {
            config.push_str(&format!(
                "[[plugins.bindings]]\nkind = {kind:?}\nmodels = [{name:?}]\nbreaker = {{ failures = 0 }}\n{more}\n"
            ));
        }
    }
    Server::configured(&config)
}

/// A model to attack.
struct Target {
    name: String,
    script: String,
    bindings: Vec<(&'static str, String)>,
}

impl Target {
    /// The demo model itself, under another name.
    fn computing(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            script: String::new(),
            bindings: Vec::new(),
        }
    }

    fn saying(name: &str, text: &str) -> Self {
        Self {
            name: name.to_owned(),
            script: format!("default = {}", Value::from(text)),
            bindings: Vec::new(),
        }
    }

    fn bound(mut self, kind: &'static str, more: String) -> Self {
        self.bindings.push((kind, more));
        self
    }

    /// Serve the model with this Jinja template.
    fn template(self, source: &str) -> Self {
        let settings = format!(
            "deadline_ms = 500\nsettings = {{ chat_template = {} }}",
            Value::from(source)
        );
        self.bound("chat-template", settings)
    }
}

fn ask(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 200})
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn case(id: &'static str, what: &'static str, expected: Expected<'static>) -> Case<'static> {
    Case {
        id,
        what,
        ..Case::with(expected)
    }
}

/// A template that does this when it is asked to, and nothing else: it is prepared without harm.
fn when_asked(does: &str) -> String {
    format!(
        "{{% if messages[0].content == 'boom' %}}{does}{{% endif %}}{{{{ messages[0].content }}}}"
    )
}

#[test]
fn b1_b2_b4_template_bombs_cost_their_own_request() {
    let bombs = [
        (
            case(
                "B1",
                "three nested loops",
                Expected::Refusal(400, "too_complex"),
            ),
            "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
             {% endfor %}{% endfor %}{% endfor %}",
        ),
        (
            case(
                "B2",
                "a text doubled forty times",
                Expected::Refusal(400, "too_complex"),
            ),
            "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(40) %}\
             {% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        ),
        (
            case(
                "B4",
                "a macro that calls itself",
                Expected::Either(&[(400, "invalid_value"), (400, "too_complex")]),
            ),
            "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        ),
    ];
    let targets: Vec<Target> = bombs
        .iter()
        .map(|(case, bomb)| Target::saying(case.id, "fine").template(&when_asked(bomb)))
        .collect();
    let mut server = server(&targets);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    for (case, _) in &bombs {
        bystander.endures(case, |server| {
            let requests = vec![Request::post(CHAT, &ask(case.id, "boom")); 2];
            server.send_together(&requests)
        });
        let harmless = Case {
            what: "the next request",
            expected: Expected::Answer,
            ..*case
        };
        bystander.endures(&harmless, |server| {
            vec![server.post(CHAT, &ask(case.id, "Hi"))]
        });
    }
}

/// Attribution of a bomb to the caller does not depend on the bound that ends it: the counted steps, or a deadline that
/// a slow machine meets before them.
#[test]
fn b1_a_bomb_that_meets_its_deadline_first_is_the_callers_fault_too() {
    let bomb = when_asked(
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
         {% endfor %}{% endfor %}{% endfor %}",
    );
    // A rendering of `Hi` takes a fraction of a millisecond, and the bomb's steps a tenth of a second.
    let short = format!(
        "deadline_ms = 20\nbreaker = {{ failures = 2 }}\nsettings = {{ chat_template = {} }}",
        Value::from(bomb)
    );
    let config = format!(
        "[plugins]\nwatch_ms = 0\n[[models]]\nname = \"mortise-demo\"\n\
         [[plugins.bindings]]\nkind = \"chat-template\"\nmodels = [\"mortise-demo\"]\n{short}\n"
    );
    let server = Server::configured(&config);
    for _ in 0..6 {
        let answer = server.post(CHAT, &ask(BYSTANDER.model, "boom"));
        assert_eq!(answer.status(), 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "too_complex");
        // Nobody else is turned away.
        server.post(CHAT, &ask(BYSTANDER.model, "Hi")).ok();
    }
}

#[test]
fn b4_templates_nested_too_deep_keep_the_server_from_starting() {
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    for source in [
        format!(
            "{}x{}",
            "{% if true %}".repeat(20_000),
            "{% endif %}".repeat(20_000)
        ),
        format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000)),
    ] {
        let config = format!(
            "[[plugins.bindings]]\nkind = \"chat-template\"\nsettings = {{ chat_template = {} }}\n",
            Value::from(source)
        );
        std::fs::write(&path, config).expect("write the configuration");
        let message = refused(&["--config", path.to_str().expect("UTF-8")]);
        assert!(message.contains("chat-template"), "{message}");
        assert!(!message.contains("SIG"), "{message}");
    }
}

#[test]
fn b5_templates_find_no_way_out() {
    let escapes = [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('cat /etc/passwd').read() }}",
        "{{ lipsum.__globals__['os'].environ }}",
        "{{ self._TemplateReference__context }}",
        "{{ ''|attr('__class__')|attr('__base__') }}",
    ];
    // There is no statement that reads another file.
    for reads in [
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as p %}{{ p }}",
        "{% extends '/etc/passwd' %}",
    ] {
        let config = format!(
            "[[plugins.bindings]]\nkind = \"chat-template\"\nsettings = {{ chat_template = {} }}\n",
            Value::from(when_asked(reads))
        );
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), config).expect("write the configuration");
        let message = refused(&["--config", file.path().to_str().expect("UTF-8")]);
        assert!(message.contains("unknown statement"), "{message}");
        assert!(!message.contains("root:"), "{message}");
    }
    let names: Vec<String> = (0..escapes.len())
        .map(|index| format!("b5-{index}"))
        .collect();
    // A model that repeats what its prompt holds of the file would give it away.
    let targets: Vec<Target> = names
        .iter()
        .zip(escapes)
        .map(|(name, escape)| Target {
            script: "lines = [{ when = \"root:\", say = \"LEAKED\" }, { when = \"PATH\", say = \"LEAKED\" }]\n\
                     default = \"fine\""
                .to_owned(),
            ..Target::saying(name, "").template(&when_asked(escape))
        })
        .collect();
    let mut server = server(&targets);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let expected = Expected::Either(&[(400, "invalid_value"), (400, "unsupported_value")]);
    let case = Case {
        canary: Some("root:x"),
        ..case("B5", "escapes known from elsewhere", expected)
    };
    bystander.endures(&case, |server| {
        let answers: Vec<Response> = names
            .iter()
            .map(|name| server.post(CHAT, &ask(name, "boom")))
            .collect();
        for answer in &answers {
            assert!(!answer.text().contains("LEAKED"), "{}", answer.text());
        }
        answers
    });
}

#[test]
fn b6_requests_bring_no_template_of_their_own() {
    let mut server = server(&[Target::saying("target", "fine")]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let evil = "{{ 'pwned' }}";
    let plain = ask("target", "Hi");
    let refusals = case("B6", "templates in requests", Expected::Anything);
    bystander.endures(&refusals, |server| {
        let field = with(plain.clone(), "chat_template", json!(evil));
        let text = json!({"model": "target", "prompt": "Hi", "chat_template": evil});
        let answers = vec![
            server.post(CHAT, &field),
            server.post("/v1/completions", &text),
        ];
        for answer in &answers {
            assert_eq!(answer.status(), 400, "{}", answer.text());
            assert_eq!(answer.json()["error"]["param"], "chat_template");
        }
        answers
    });
    let tokens = |server: &Server, body: &Value| {
        server.post(CHAT, body).ok()["usage"]["prompt_tokens"].clone()
    };
    let usual = tokens(bystander.server(), &plain);
    let arguments = json!({
        "chat_template": evil, "messages": [], "tools": [{"name": "x"}], "bos_token": "<|im_start|>",
        "eos_token": "", "add_generation_prompt": false, "tokenize": true,
    });
    for (name, value) in arguments.as_object().expect("arguments") {
        let body = with(plain.clone(), "chat_template_kwargs", json!({name: value}));
        let answer = bystander.server().post(CHAT, &body);
        match answer.status() {
            200 => assert_eq!(answer.json()["usage"]["prompt_tokens"], usual, "{name}"),
            status => assert_eq!(status, 400, "{name}: {}", answer.text()),
        }
    }
}

#[test]
fn b8_a_template_learns_the_day_and_no_time() {
    let script = "lines = [{ when = \"at 00:00:00\", say = \"midnight\" }]\ndefault = \"a time\"";
    let target = |name: &str, does: &str| Target {
        script: script.to_owned(),
        ..Target::saying(name, "").template(&when_asked(does))
    };
    // What could tell apart two requests of a day, or measure something between two calls.
    let finest = "{{ strftime_now('%Y-%m-%d at %H:%M:%S') }}";
    let others = [
        "{{ now() }}",
        "{{ time() }}",
        "{{ datetime.now() }}",
        "{{ strftime_now.now() }}",
    ];
    let names: Vec<String> = (0..others.len())
        .map(|index| format!("b8-{index}"))
        .collect();
    let mut targets = vec![target("b8", finest)];
    targets.extend(
        names
            .iter()
            .zip(others)
            .map(|(name, does)| target(name, does)),
    );
    let mut server = server(&targets);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let day = case("B8", "the time of day", Expected::Answer);
    bystander.endures(&day, |server| {
        let answers: Vec<Response> = (0..3)
            .map(|_| server.post(CHAT, &ask("b8", "boom")))
            .collect();
        for answer in &answers {
            assert_eq!(
                answer.json()["choices"][0]["message"]["content"],
                "midnight"
            );
        }
        answers
    });
    let refused = Expected::Either(&[(400, "unsupported_value"), (400, "invalid_value")]);
    let none = case("B8", "clocks that are not there", refused);
    bystander.endures(&none, |server| {
        let asked = names
            .iter()
            .map(|name| server.post(CHAT, &ask(name, "boom")));
        asked.collect()
    });
    // A caller sets no other day.
    let server = bystander.server();
    let usual = server.post(CHAT, &ask("b8", "boom")).ok()["usage"]["prompt_tokens"].clone();
    for name in ["__today", "today"] {
        let shadow = json!({name: "1999-01-01T12:34:56"});
        let body = with(ask("b8", "boom"), "chat_template_kwargs", shadow);
        assert_eq!(
            server.post(CHAT, &body).ok()["usage"]["prompt_tokens"],
            usual,
            "{name}"
        );
    }
    let shadow = json!({"strftime_now": "12:34:56"});
    let body = with(ask("b8", "boom"), "chat_template_kwargs", shadow);
    assert_eq!(server.post(CHAT, &body).status(), 400);
}

#[test]
fn b9_what_a_template_raises_is_cut_and_escaped() {
    let mut server = server(&[Target::saying("target", "fine")
        .template(&when_asked("{{ raise_exception(messages[1].content) }}"))]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let long = format!("\u{1b}[31m\r\n{}", "raised".repeat(100_000));
    let body = json!({"model": "target", "messages": [
        {"role": "user", "content": "boom"}, {"role": "user", "content": long},
    ]});
    let case = case(
        "B9",
        "a message of 600 kB with control characters",
        Expected::Refusal(400, "invalid_value"),
    );
    bystander.endures(&case, |server| vec![server.post(CHAT, &body)]);
    let answer = bystander.server().post(CHAT, &body);
    let message = answer.json()["error"]["message"]
        .as_str()
        .expect("a message")
        .len();
    assert!((100..=1200).contains(&message), "{message} bytes");
    let log = bystander.server().log();
    let raw = log
        .iter()
        .find(|line| line.contains('\u{1b}') || line.len() > 4096);
    assert!(raw.is_none(), "{raw:?}");
}

const TOOLS: &str =
    r#"[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]"#;

fn tools() -> Value {
    serde_json::from_str(TOOLS).expect("tools")
}

#[test]
fn d1_d5_d7_what_a_model_writes_is_data() {
    let call = |name: &str, arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    let code = r#"{"a": "__import__('os').system('touch /tmp/pwned')", "b": [1, {"c": null}]}"#;
    let targets = [
        Target::saying("d1", &call("f", code)),
        Target::saying(
            "d1-text",
            "<tool_call>\n__import__('os').system('x')\n</tool_call>",
        ),
        Target::saying("d5", &call("g", "{}")),
        Target::saying("d7-open", "<think>\nI go on and on"),
        Target::saying("d7-quoted", &call("f", r#"{"a": "</tool_call> </think>"}"#)),
        Target::saying("d7-twice", "<think>\none <think> two\n</think>\n\nDone."),
    ];
    let mut server = server(&targets);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let case = case(
        "D1",
        "code, calls of nothing, open blocks",
        Expected::Answer,
    );
    let request = |name: &str| with(ask(name, "Hi"), "tools", tools());
    bystander.endures(&case, |server| {
        let names = targets.iter().map(|target| target.name.as_str());
        names
            .map(|name| server.post(CHAT, &request(name)))
            .collect()
    });
    let server = bystander.server();
    let message = |body: &Value| server.post(CHAT, body).ok()["choices"][0]["message"].clone();
    let said = message(&request("d1"));
    let arguments = said["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .expect("arguments");
    let [told, meant]: [Value; 2] =
        [arguments, code].map(|text| serde_json::from_str(text).expect("JSON"));
    assert_eq!(told, meant, "D1: code is a text like any other");
    for said in [
        message(&request("d1-text")),
        message(&request("d5")),
        message(&with(request("d1"), "tool_choice", json!("none"))),
    ] {
        assert!(said["tool_calls"].is_null(), "D5: {said}");
        assert!(
            said["content"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{said}"
        );
    }
    let quoted = message(&request("d7-quoted"));
    let arguments = quoted["tool_calls"][0]["function"]["arguments"].as_str();
    assert!(
        arguments.is_some_and(|text| text.contains("</tool_call> </think>")),
        "D7: {quoted}"
    );
    let open = message(&request("d7-open"));
    assert!(
        open["content"].as_str().unwrap_or_default().is_empty(),
        "D7: {open}"
    );
    let twice = message(&request("d7-twice"));
    assert_eq!(
        twice["content"].as_str().map(str::trim),
        Some("Done."),
        "D7: {twice}"
    );
}

#[test]
fn d6_a_parser_that_traps_ends_its_stream_with_an_error_event() {
    let file = guest();
    let trap = format!("file = {file:?}\nsettings = {{ close = \"panic\" }}");
    let mut server =
        server(&[Target::saying("target", "The answer.").bound("output-parser", trap)]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let body = with(ask("target", "Hi"), "stream", json!(true));
    let case = case("D6", "a trap in mid-stream", Expected::Anything);
    bystander.endures(&case, |server| vec![server.post(CHAT, &body)]);
    let answer = bystander.server().post(CHAT, &body);
    assert_eq!(answer.status(), 200, "the head was out");
    let events = crate::support::client::events(&answer.text());
    let said: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert!(said.starts_with('T'), "what was sent stays: {said}");
    let error = events.iter().find(|event| event.get("error").is_some());
    assert_eq!(
        error.expect("an error event")["error"]["code"],
        "plugin_trap"
    );
}
