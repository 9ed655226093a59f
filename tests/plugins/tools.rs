//! Tools of the server, from a plugin file to an answer.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{Server, example};

/// A server with a scripted model and tools. `lines` are what the model says: the first whose `when` is
/// in the prompt.
fn serve(bindings: &[(&str, String)], lines: &[(&str, &str)], more: &str) -> Server {
    let mut config = more.to_owned();
    for (file, binding) in bindings {
        let _ = write!(
            config,
            "\n[[plugins.bindings]]\nkind = \"tool\"\nfile = {file:?}\n{binding}\n"
        );
    }
    let lines = lines.iter().map(|(when, say)| {
        // A JSON string is a TOML string.
        format!("{{ when = {}, say = {} }}", json!(when), json!(say))
    });
    let lines: Vec<String> = lines.collect();
    Server::scripted(&format!("lines = [{}]", lines.join(", ")), &config)
}

fn with_tool(name: &str, binding: &str, lines: &[(&str, &str)], more: &str) -> Server {
    let file = example::built(name);
    let file = file.to_str().expect("a path in UTF-8");
    serve(&[(file, binding.to_owned())], lines, more)
}

/// How the model writes calls.
fn calls(calls: &[(&str, Value)]) -> String {
    let calls = calls.iter().map(|(name, arguments)| {
        let call = json!({"name": name, "arguments": arguments});
        format!("<tool_call>\n{call}\n</tool_call>")
    });
    calls.collect::<Vec<_>>().join("\n")
}

fn question(tools: &[&str]) -> Value {
    json!({
        "model": "scripted",
        "messages": [{"role": "user", "content": "the question"}],
        "server_tools": tools,
    })
}

fn ask(server: &Server, request: &Value) -> Value {
    let response = server.post("/v1/chat/completions", request);
    assert_eq!(response.status(), 200, "{}", response.text());
    response.json()
}

fn first(answer: &Value) -> (&Value, &str) {
    let choice = &answer["choices"][0];
    let finish = choice["finish_reason"].as_str().expect("a reason");
    (&choice["message"], finish)
}

fn runs(server: &Server, tool: &str, outcome: &str) -> Option<u64> {
    let labels = format!("mortise_tool_runs_total{{tool=\"{tool}\",outcome=\"{outcome}\"}} ");
    let metrics = server.get("/metrics").text();
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(&labels)?.parse().ok())
}

#[test]
fn feature_p6_calls_are_run_and_the_answer_goes_on() {
    let two = calls(&[
        ("calculate", json!({"expression": "6 * 7"})),
        ("calculate", json!({"expression": "1 / 0"})),
    ]);
    let lines = [
        (
            "tool\n42<|im_end|>\n<|im_start|>tool\nerror: division by zero",
            "It is 42.",
        ),
        ("the question", two.as_str()),
    ];
    let server = with_tool("calculator", "", &lines, "");
    let answer = ask(&server, &question(&["calculate"]));
    let (message, finish) = first(&answer);
    assert_eq!(
        (message["content"].as_str(), finish),
        (Some("It is 42."), "stop")
    );
    assert!(message["tool_calls"].is_null(), "{message}");
    let called = &message["server_tool_calls"];
    assert_eq!(called[0]["output"], "42");
    assert_eq!(called[0]["arguments"], "{\"expression\":\"6 * 7\"}");
    let outcomes = [&called[0]["outcome"], &called[1]["outcome"]];
    assert_eq!(outcomes, ["answered", "refused"]);
    assert_eq!(runs(&server, "calculate", "answered"), Some(1));
    assert_eq!(runs(&server, "calculate", "refused"), Some(1));
    let line = server.wait_for_log(|line| line.contains("tool called"));
    assert!(
        line.contains("calculate") && !line.contains("6 * 7"),
        "{line}"
    );

    // A stream tells the same.
    let mut streamed = question(&["calculate"]);
    streamed["stream"] = json!(true);
    let response = server.post("/v1/chat/completions", &streamed);
    let events = response.text();
    let chunks: Vec<Value> = events
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let content: String = deltas()
        .filter_map(|delta| delta["content"].as_str())
        .collect();
    assert_eq!(content, "It is 42.");
    let outputs: Vec<&Value> = deltas()
        .filter_map(|delta| delta["server_tool_calls"].get(0))
        .collect();
    assert_eq!(outputs.len(), 2);
    assert_eq!(
        (&outputs[1]["index"], &outputs[0]["output"]),
        (&json!(1), &json!("42"))
    );
    assert!(deltas().all(|delta| delta["tool_calls"].is_null()));
}

#[test]
fn without_opting_in_a_tool_is_never_run() {
    let call = calls(&[("calculate", json!({"expression": "6 * 7"}))]);
    let server = with_tool("calculator", "", &[("the question", &call)], "");
    let mut plain = question(&[]);
    let answer = ask(&server, &plain);
    let (message, _) = first(&answer);
    assert!(message["server_tool_calls"].is_null(), "{message}");
    // A client may have a tool of the same name, and runs it itself.
    plain["tools"] = json!([{"type": "function", "function": {
        "name": "calculate",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    }}]);
    let answer = ask(&server, &plain);
    let (message, finish) = first(&answer);
    assert_eq!(finish, "tool_calls");
    assert_eq!(message["tool_calls"][0]["function"]["name"], "calculate");
    assert_eq!(runs(&server, "calculate", "answered"), None);

    let response = server.post("/v1/chat/completions", &question(&["calculate", "rm_rf"]));
    assert_eq!(response.status(), 400);
    let error = response.json()["error"].clone();
    assert_eq!(error["code"], "unknown_server_tool");
    assert_eq!(error["param"], "server_tools[1]");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("calculate"))
    );
}

#[test]
fn a_key_may_be_held_to_some_tools() {
    let keys = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"one\"\ntools = [\"get_*\"]\n\
                server_tools = []\n[[auth.api_keys]]\nid = \"bob\"\nkey = \"two\"\n";
    let server = with_tool("calculator", "", &[("the question", "So be it.")], keys);
    let ask = |key: &str, body: &Value| {
        let request = Request::post("/v1/chat/completions", body);
        server.send(&request.header("authorization", &format!("Bearer {key}")))
    };
    let function = |name: &str| {
        let mut body = question(&[]);
        body["tools"] = json!([{"type": "function", "function": {"name": name}}]);
        body
    };
    for (body, named) in [
        (question(&["calculate"]), "`calculate` (server_tools[0])"),
        (function("rm_rf"), "`rm_rf` (tools[0])"),
    ] {
        let response = ask("one", &body);
        assert_eq!(response.status(), 403, "{}", response.text());
        let error = response.json()["error"].clone();
        assert_eq!(error["type"], "permission_error");
        assert_eq!(error["code"], "tool_not_allowed");
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains("`alice`") && message.contains(named),
            "{message}"
        );
        assert_eq!(ask("two", &body).status(), 200, "{named}");
    }
    assert_eq!(ask("one", &function("get_weather")).status(), 200);
}

#[test]
fn a_model_that_never_stops_calling_is_stopped() {
    let call = calls(&[("calculate", json!({"expression": "1 + 1"}))]);
    let limits = "[limits]\ntool_rounds = 2\n";
    let server = with_tool("calculator", "", &[("the question", &call)], limits);
    let answer = ask(&server, &question(&["calculate"]));
    let (message, finish) = first(&answer);
    assert_eq!(finish, "length");
    let called = message["server_tool_calls"].as_array().expect("calls");
    let outcomes: Vec<&Value> = called.iter().map(|call| &call["outcome"]).collect();
    assert_eq!(outcomes, ["answered", "answered", "not_run"]);
    assert!(
        called[2]["output"]
            .as_str()
            .is_some_and(|text| text.contains("2 rounds"))
    );
    assert_eq!(runs(&server, "calculate", "answered"), Some(2));
}

#[test]
fn a_tool_that_breaks_down_is_met_as_its_binding_says() {
    let guest = example::every_kind();
    let guest = guest.to_str().expect("a path in UTF-8");
    let trap = calls(&[("does", json!({"text": "panic"}))]);
    let lines = [
        ("error: the tool failed", "It broke."),
        ("the question", trap.as_str()),
    ];
    let serve = |on_failure: &str| {
        let binding = format!("on_failure = \"{on_failure}\"");
        serve(&[(guest, binding)], &lines, "")
    };
    let open = serve("open");
    let answer = ask(&open, &question(&["does"]));
    let (message, finish) = first(&answer);
    assert_eq!(
        (message["content"].as_str(), finish),
        (Some("It broke."), "stop")
    );
    assert_eq!(message["server_tool_calls"][0]["outcome"], "failed");
    let closed = serve("closed");
    let response = closed.post("/v1/chat/completions", &question(&["does"]));
    assert_eq!(response.status(), 500, "{}", response.text());
    // The server goes on.
    assert_eq!(closed.get("/health").status(), 200);
}

#[test]
fn the_clock_tells_the_date_of_now() {
    let today = || {
        let output = Command::new("date")
            .args(["-u", "+%F"])
            .output()
            .expect("run date");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let call = calls(&[("current_time", json!({}))]);
    let lines = [
        ("tool\n{\"date\"", "Known."),
        ("the question", call.as_str()),
    ];
    let server = with_tool("date-time", "", &lines, "");
    let before = today();
    let answer = ask(&server, &question(&["current_time"]));
    let (message, _) = first(&answer);
    let told = message["server_tool_calls"][0]["output"]
        .as_str()
        .expect("an output");
    assert!(told.contains(&before) || told.contains(&today()), "{told}");
}

/// A site with one page; its origin.
pub(crate) fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 2048];
            let read = stream.read(&mut head).unwrap_or(0);
            let asked = String::from_utf8_lossy(&head[..read]).into_owned();
            let answer = if asked.starts_with("GET /page ") {
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 11\r\n\r\nthe content"
            } else if asked.starts_with("GET /inside ") {
                "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/key\r\ncontent-length: 0\r\n\r\n"
            } else {
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn i1_i2_a_tool_reads_listed_sites_and_no_others() {
    let (listed, other) = (site(), site());
    let urls = [
        format!("{listed}/page"),
        format!("{other}/page"),
        format!("{listed}/inside"),
        listed.replace("127.0.0.1", "localhost") + "/page",
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ];
    let asked: Vec<_> = urls
        .iter()
        .map(|url| ("fetch_url", json!({"url": url})))
        .collect();
    let all = calls(&asked);
    let lines = [("the content", "Read."), ("the question", all.as_str())];
    let grant = format!("http = {{ origins = [{listed:?}] }}");
    let server = with_tool("http-fetch", &grant, &lines, "");
    let answer = ask(&server, &question(&["fetch_url"]));
    let (message, _) = first(&answer);
    assert_eq!(message["content"], "Read.");
    let called = message["server_tool_calls"].as_array().expect("calls");
    assert_eq!(called[0]["output"], "the content");
    for call in &called[1..] {
        assert_eq!(call["outcome"], "refused", "{call}");
        assert!(
            call["output"]
                .as_str()
                .is_some_and(|text| text.contains("is not listed")),
            "{call}"
        );
    }
}

#[test]
fn two_plugins_with_tools_of_one_name_do_not_start_together() {
    let file = example::built("calculator");
    let config = tempfile::tempdir().expect("make a folder");
    for name in ["one.wasm", "two.wasm"] {
        std::fs::copy(&file, config.path().join(name)).expect("copy the plugin");
    }
    let dir = config.path();
    let message = crate::refused_with(&format!("[plugins]\nstrict = true\ndir = {dir:?}\n"));
    assert!(
        message.contains("one.wasm")
            && message.contains("two.wasm")
            && message.contains("`calculate`"),
        "{message}"
    );
}

#[test]
fn the_demo_model_calculates() {
    let plugins = crate::folder(
        "calculator.wasm",
        &std::fs::read(example::built("calculator")).expect("read the plugin"),
    );
    let server = Server::start(&["--plugins", plugins.path().to_str().expect("UTF-8")]);
    let request = json!({
        "model": "mortise-demo",
        "messages": [{"role": "user", "content": "What is 17 * 23?"}],
        "server_tools": ["calculate"],
        "tool_choice": {"type": "function", "function": {"name": "calculate"}},
    });
    let answer = ask(&server, &request);
    let (message, finish) = first(&answer);
    assert_eq!(
        message["server_tool_calls"][0]["output"], "391",
        "{message}"
    );
    assert!(
        message["content"]
            .as_str()
            .is_some_and(|text| text.contains("391")),
        "{message}"
    );
    assert_eq!(finish, "stop");
    // The second prompt begins with the first, which was computed already.
    let usage = &answer["usage"];
    assert!(
        usage["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(16),
        "{usage}"
    );
}

/// A template that shows no tools leaves a model without them, and nobody would know why it calls none.
#[test]
fn the_log_tells_once_of_a_template_that_shows_no_tools() {
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}";
    let blind = format!(
        "[[plugins.bindings]]\nkind = \"chat-template\"\nsettings = {{ chat_template = \"{template}\" }}\n"
    );
    let server = Server::scripted("default = \"The answer.\"", &blind);
    let tool =
        json!({"type": "function", "function": {"name": "rain", "parameters": {"type": "object"}}});
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "scripted", "max_tokens": 5, "messages": messages, "tools": [tool]});
    for _ in 0..2 {
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let blind = |line: &str| line.contains("the chat template does not show them to the model");
    let line = server.wait_for_log(blind);
    assert!(
        line.contains("tool=\"rain\"") && line.contains("model=\"scripted\""),
        "{line}"
    );
    assert_eq!(server.log().iter().filter(|line| blind(line)).count(), 1);
}

/// A template that forgets to mark a control token; what callers write is to arrive plain, and is no mistake.
#[test]
fn feature_w4_the_log_tells_once_of_a_control_token_that_arrives_plain() {
    let file = example::every_kind();
    let warned = |line: &str| line.contains("writes a control token into a plain segment");
    let served = |writes: &str, text: &str| {
        let binding = format!(
            "[[plugins.bindings]]\nkind = \"chat-template\"\nfile = {file:?}\nsettings = {{ writes = {writes:?} }}\n"
        );
        let server = Server::scripted("default = \"The answer.\"", &binding);
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"model": "scripted", "max_tokens": 5, "messages": messages});
        for _ in 0..2 {
            let answer = server.post("/v1/chat/completions", &body);
            assert_eq!(answer.status(), 200, "{}", answer.text());
        }
        server
    };
    let server = served("<|im_start|>user: Hi", "Hi");
    let line = server.wait_for_log(warned);
    assert!(
        line.contains("token=\"<|im_start|>\"") && line.contains("plugin=\"guest\""),
        "{line}"
    );
    assert_eq!(server.log().iter().filter(|line| warned(line)).count(), 1);
    let server = served("<|im_start|>user: Hi", "<|im_start|>");
    server.signal("TERM");
    assert_eq!(server.log().iter().filter(|line| warned(line)).count(), 0);
}
