//! Traces: the spans of requests as a collector gets them, and collectors that are slow, dead or talk nonsense.

use std::net::TcpListener;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::upstream::FakeUpstream;
use crate::support::{Server, until, wait_for};

/// A text that must be in no span.
const SECRET: &str = "xylophone";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

const SCRIPT: &str = r#"
default = "The xylophone answers with a few words."
token_delay_ms = 1
lines = [
    { when = "weather", say = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>" },
    { when = "long", say = "on and on and on and on and on and on and on and on and on and on and on and on" },
]
"#;

/// A collector that takes all.
struct Collector(FakeUpstream);

impl Collector {
    fn start() -> Self {
        Self(FakeUpstream::start(|mut asked| asked.answer(200, "", "")))
    }

    fn table(&self) -> String {
        table(self.0.address(), "")
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Span> {
        let received = self.0.received();
        let requests = received.iter().map(|received| {
            let kind = received.header("content-type");
            match kind {
                Some("application/json") => {
                    serde_json::from_slice(&received.body).expect("OTLP in JSON")
                }
                _ => ExportTraceServiceRequest::decode(&received.body[..]).expect("OTLP"),
            }
        });
        let resources = requests
            .flat_map(|request: ExportTraceServiceRequest| request.resource_spans.into_iter());
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// The spans of the trace whose root has this name, when the root is there.
    fn trace(&self, root: &str) -> Trace {
        wait_for(|| {
            let spans = self.spans();
            let found = spans.iter().find(|span| span.name == root);
            let found = found.ok_or_else(|| format!("no span {root} in {spans:?}"))?;
            let id = found.trace_id.clone();
            let of_trace = spans.into_iter().filter(|span| span.trace_id == id);
            Ok(Trace(of_trace.collect()))
        })
    }
}

/// The spans of one trace.
struct Trace(Vec<Span>);

impl Trace {
    fn span(&self, name: &str) -> &Span {
        let found = self.0.iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no span {name} in {:?}", self.names()))
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|span| span.name.as_str()).collect()
    }

    /// Names of the parts of a span, in their order.
    fn parts(&self, name: &str) -> Vec<&str> {
        let id = &self.span(name).span_id;
        let mut parts: Vec<&Span> = self.0.iter().filter(|s| s.parent_span_id == *id).collect();
        parts.sort_by_key(|span| (span.start_time_unix_nano, span.end_time_unix_nano));
        parts.iter().map(|span| span.name.as_str()).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An attribute of a span.
fn attribute(span: &Span, name: &str) -> Value {
    let found = span.attributes.iter().find(|pair| pair.key == name);
    match found.and_then(|pair| pair.value.clone()?.value) {
        None => Value::Null,
        Some(AnyValue::StringValue(text)) => text.into(),
        Some(AnyValue::IntValue(number)) => number.into(),
        Some(AnyValue::DoubleValue(number)) => number.into(),
        Some(AnyValue::BoolValue(flag)) => flag.into(),
        Some(AnyValue::ArrayValue(array)) => {
            let texts = array.values.into_iter().map(|each| match each.value {
                Some(AnyValue::StringValue(text)) => Value::from(text),
                other => panic!("{other:?}"),
            });
            texts.collect()
        }
        other => panic!("{other:?}"),
    }
}

fn is_error(span: &Span) -> bool {
    let code = span.status.as_ref().map(|status| status.code);
    code == Some(StatusCode::Error as i32)
}

fn table(address: &str, more: &str) -> String {
    format!("[traces]\nendpoint = \"http://{address}/v1/traces\"\n{more}\n")
}

fn traced(body: &Value) -> Request {
    let parent = format!("00-{TRACE}-{PARENT}-01");
    Request::post(CHAT, body).header("traceparent", &parent)
}

fn with_tool(text: &str) -> Value {
    let mut body = chat(text);
    body["tools"] = json!([{"type": "function", "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }}]);
    body["max_tokens"] = json!(200);
    body
}

const ROOT: &str = "POST /v1/chat/completions";
const ANSWER: &str = "chat scripted";

#[test]
fn feature_o6_a_chat_with_a_tool_call_is_a_tree_of_spans() {
    let collector = Collector::start();
    let server = Server::scripted(SCRIPT, &collector.table());
    let body = with_tool(&format!("{SECRET} weather"));
    let answer = server.send(&traced(&body)).ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let trace = collector.trace(ROOT);
    let root = trace.span(ROOT);
    assert_eq!(
        (hex(&root.trace_id), hex(&root.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(root.kind, SpanKind::Server as i32);
    assert_eq!(attribute(root, "http.response.status_code"), 200);
    assert_eq!(trace.parts(ROOT), [ANSWER]);
    let own = trace.span(ANSWER);
    for (name, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.request.model", json!("scripted")),
        ("gen_ai.response.model", json!("scripted")),
        ("gen_ai.request.max_tokens", json!(200)),
        (
            "gen_ai.usage.input_tokens",
            answer["usage"]["prompt_tokens"].clone(),
        ),
        (
            "gen_ai.usage.output_tokens",
            answer["usage"]["completion_tokens"].clone(),
        ),
        ("gen_ai.response.finish_reasons", json!(["tool_calls"])),
    ] {
        assert_eq!(attribute(own, name), value, "{name}");
    }
    let parts = trace.parts(ANSWER);
    let begin = ["policy", "model", "template", "tokenize", "parser", "queue"];
    for part in begin.iter().chain(&["prefill", "decode"]) {
        assert!(parts.contains(part), "{part} is not in {parts:?}");
    }
    for span in &trace.0 {
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano,
            "{span:?}"
        );
        assert!(
            root.start_time_unix_nano <= span.start_time_unix_nano,
            "{span:?}"
        );
    }
    let line = server.wait_for_log(|line| line.contains(TRACE));
    assert!(line.contains("trace_id"), "{line}");
    let sent = format!("{:?}", collector.spans());
    assert!(!sent.contains(SECRET) && !sent.contains("Paris"), "{sent}");
    until("the spans are counted", || {
        server.metric("mortise_trace_spans_exported_total") >= 8.0
    });
}

#[test]
fn feature_o6_streams_refusals_and_cancelled_answers_say_how_they_ended() {
    let collector = Collector::start();
    let server = Server::scripted(SCRIPT, &collector.table());
    let mut streamed = chat("Hi");
    streamed["stream"] = json!(true);
    server.send(&Request::post(CHAT, &streamed)).events();
    let trace = collector.trace(ROOT);
    let reasons = attribute(trace.span(ANSWER), "gen_ai.response.finish_reasons");
    assert_eq!(reasons, json!(["stop"]));
    // The root lasts until the last byte.
    let (root, decode) = (trace.span(ROOT), trace.span("decode"));
    assert!(root.end_time_unix_nano >= decode.end_time_unix_nano);

    let refused = Request::post(
        "/v1/completions",
        &json!({"model": "scripted", "prompt": ""}),
    );
    assert_eq!(server.send(&refused).status(), 400);
    let trace = collector.trace("POST /v1/completions");
    let root = trace.span("POST /v1/completions");
    assert_eq!(attribute(root, "http.response.status_code"), 400);
    assert_eq!(attribute(root, "error.type"), "invalid_value");
    assert!(!is_error(root), "a client's error is none of the server");

    let other = Request::post(
        "/v1/messages",
        &json!({
            "model": "scripted", "max_tokens": 5000, "stream": true,
            "messages": [{"role": "user", "content": "long"}],
        }),
    );
    let slow = SCRIPT.replace("delay_ms = 1", "delay_ms = 50");
    let server = Server::scripted(&slow, &collector.table());
    let mut stream = other.begin(server.address());
    stream.head();
    stream.chunk().expect("it has begun");
    drop(stream);
    let trace = collector.trace("POST /v1/messages");
    let root = trace.span("POST /v1/messages");
    assert_eq!(attribute(root, "mortise.finish"), "cancelled");
    let answer = trace.span(ANSWER);
    assert_eq!(attribute(answer, "error.type"), "cancelled");
}

#[test]
fn feature_o6_the_store_is_part_of_a_trace_and_probes_are_none() {
    let collector = Collector::start();
    let server = Server::scripted(SCRIPT, &collector.table());
    for path in ["/health", "/ready", "/metrics"] {
        server.get(path);
    }
    let body = json!({"model": "scripted", "input": "Hi"});
    server.post("/v1/responses", &body).ok();
    let trace = collector.trace("POST /v1/responses");
    assert!(trace.names().contains(&"store"), "{:?}", trace.names());
    let names: Vec<String> = collector
        .spans()
        .into_iter()
        .map(|span| span.name)
        .collect();
    assert!(
        !names.iter().any(|name| name.starts_with("GET")),
        "{names:?}"
    );
}

#[test]
fn feature_o6_another_server_gets_the_context_of_its_part() {
    let collector = Collector::start();
    let upstream = FakeUpstream::start(|mut asked| asked.say("Hello."));
    let remote = format!(
        "[[models]]\nname = \"remote\"\n[models.upstream]\nurls = [{:?}]\nmodel = \"m\"\n\
         health_check = \"config-only\"\n",
        upstream.url()
    );
    let server = Server::configured(&format!("{}{remote}", collector.table()));
    let mut body = chat("Hi");
    body["model"] = json!("remote");
    let request = traced(&body).header("tracestate", "vendor=1");
    server.send(&request).ok();
    let trace = collector.trace(ROOT);
    let span = trace.span("upstream");
    assert_eq!(span.kind, SpanKind::Client as i32);
    assert_eq!(attribute(span, "server.address"), "127.0.0.1");
    assert_eq!(attribute(span, "http.response.status_code"), 200);
    assert!(trace.parts("chat remote").contains(&"upstream"));
    let asked = &upstream.received()[0];
    let expected = format!("00-{TRACE}-{}-01", hex(&span.span_id));
    assert_eq!(asked.header("traceparent"), Some(expected.as_str()));
    assert_eq!(asked.header("tracestate"), Some("vendor=1"));

    // Without a collector the caller's own context goes on.
    let server = Server::configured(&remote);
    server.send(&request).ok();
    let asked = &upstream.received()[1];
    let parent = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(asked.header("traceparent"), Some(parent.as_str()));
}

#[test]
fn feature_o6_sampling_takes_a_part_or_what_the_caller_records() {
    let collector = Collector::start();
    let own = format!("{}sample_ratio = 0.0\n", collector.table());
    let server = Server::scripted(SCRIPT, &own);
    server.post(CHAT, &chat("Hi")).ok();
    let parent = format!("00-{TRACE}-{PARENT}-00");
    let request = Request::post(CHAT, &chat("Hi")).header("traceparent", &parent);
    server.send(&request).ok();
    server.send(&traced(&chat("Hi"))).ok();
    let trace = collector.trace(ROOT);
    assert_eq!(hex(&trace.span(ROOT).trace_id), TRACE);
    assert_eq!(collector.spans().len(), trace.0.len());
}

#[test]
fn feature_o6_json_and_headers_reach_the_collector_and_the_end_is_flushed() {
    let collector = Collector::start();
    let more = "protocol = \"http/json\"\nheaders = { authorization = \"Bearer collector\" }\n";
    let own = table(collector.0.address(), more);
    let mut server = Server::scripted(SCRIPT, &own);
    server.send(&traced(&chat("Hi"))).ok();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    // The process has ended: nothing more comes.
    let spans = collector.spans();
    assert!(spans.iter().any(|span| span.name == ROOT), "{spans:?}");
    let asked = &collector.0.received()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer collector"));
    assert!(asked.line.starts_with("POST /v1/traces "), "{}", asked.line);
    let log = server.log().join("\n");
    assert!(!log.contains("Bearer collector"), "{log}");
}

#[test]
fn feature_o6_a_collector_that_is_no_good_costs_requests_nothing() {
    let dead = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = dead.local_addr().expect("an address").to_string();
    drop(dead);
    // Connections are taken by the system, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("listen");
    let silent_address = silent.local_addr().expect("an address").to_string();
    let refusing = FakeUpstream::start(|mut asked| asked.answer(400, "", "no"));
    let babbling = FakeUpstream::start(|mut asked| {
        asked.write("HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n");
        while asked.write([0xff; 4096]) {}
    });
    let garbage = FakeUpstream::start(|mut asked| {
        asked.write("!?\r\n\r\n");
    });
    for (address, counter) in [
        (address.as_str(), "dropped_total{reason=\"not_taken\"}"),
        (&silent_address, "dropped_total{reason=\"queue_full\"}"),
        (refusing.address(), "dropped_total{reason=\"not_taken\"}"),
        (babbling.address(), "exported_total"),
        (garbage.address(), "dropped_total{reason=\"not_taken\"}"),
    ] {
        let own = table(address, "timeout_ms = 500\nqueue = 4\n");
        let mut server = Server::scripted(SCRIPT, &own);
        until(counter, || {
            server.post(CHAT, &chat("Hi")).ok();
            server.metric(&format!("mortise_trace_spans_{counter}")) > 0.0
        });
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{address}");
    }
}
