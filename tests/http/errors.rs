//! Every wrong thing gets an error in OpenAI's shape that says what is wrong and where.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::answers::{CHAT, chat};
use crate::support::Server;
use crate::support::client::{Request, Response};

const TEXT: &str = "/v1/completions";

/// Check the shape of an error; its message.
fn error(response: &Response, status: u16, code: &str, param: Option<&str>) -> String {
    assert_eq!(response.status(), status, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.header("x-request-id").is_some());
    let body = response.json();
    let error = body["error"].as_object().expect("an error object");
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(error.len(), 4, "{body}");
    assert_eq!(error["code"], code, "{body}");
    assert_eq!(error["param"].as_str(), param, "{body}");
    assert!(
        error["type"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("_error")),
        "{body}"
    );
    error["message"].as_str().expect("a message").to_owned()
}

fn with(field: &str, value: Value) -> Value {
    let mut request = chat("Hi");
    request[field] = value;
    request
}

#[test]
fn feature_f2_f4_f5_f6_x1_wrong_fields_are_named() {
    let mut server = Server::scripted("default = \"x\"", "");
    // What is within its range and cancels something else is honoured, and told.
    let mut cancelled = with("temperature", json!(1.5));
    cancelled["top_k"] = json!(1);
    let answer = server.post(CHAT, &cancelled);
    answer.ok();
    let advice = answer.header("x-mortise-advice");
    assert!(
        advice.is_some_and(|advice| advice.contains("top_k")),
        "{advice:?}"
    );
    let cases: &[(&str, Value, &str)] = &[
        ("temperature", json!(3), "temperature"),
        ("temperature", json!("hot"), "temperature"),
        ("top_p", json!(1.5), "top_p"),
        ("top_k", json!(-2), "top_k"),
        ("min_p", json!(2), "min_p"),
        ("n", json!(0), "n"),
        ("n", json!(1_000_000), "n"),
        ("n", json!(1.5), "n"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("max_tokens", json!(0), "max_tokens"),
        ("seed", json!(1.5), "seed"),
        ("fairness_key", json!(5), "fairness_key"),
        ("fairness_key", json!("  "), "fairness_key"),
        ("fairness_key", json!("k".repeat(129)), "fairness_key"),
        ("stop", json!(5), "stop"),
        ("stop", json!(["a", 5]), "stop[1]"),
        ("presence_penalty", json!(9), "presence_penalty"),
        ("frequency_penalty", json!(-9), "frequency_penalty"),
        ("repetition_penalty", json!(0), "repetition_penalty"),
        ("top_logprobs", json!(3), "top_logprobs"),
        ("logit_bias", json!({"x": 1}), "logit_bias.x"),
        ("logit_bias", json!([]), "logit_bias"),
        ("stream", json!("yes"), "stream"),
        (
            "stream_options",
            json!({"usage": true}),
            "stream_options.usage",
        ),
        ("messages", json!([]), "messages"),
        ("messages", json!("Hi"), "messages"),
        ("messages", json!([1]), "messages[0]"),
        (
            "messages",
            json!([{"role": "wizard", "content": "x"}]),
            "messages[0].role",
        ),
        ("messages", json!([{"content": "x"}]), "messages[0].role"),
        ("messages", json!([{"role": "user"}]), "messages[0].content"),
        (
            "messages",
            json!([{"role": "user", "content": 5}]),
            "messages[0].content",
        ),
        (
            "messages",
            json!([{"role": "user", "contents": "x"}]),
            "messages[0].contents",
        ),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            "messages[0].content[0].type",
        ),
        (
            "messages",
            json!([{"role": "tool", "content": "x"}]),
            "messages[0].tool_call_id",
        ),
        ("tools", json!([{"type": "function"}]), "tools[0].function"),
        (
            "tools",
            json!([{"type": "custom", "custom": {"name": "x"}}]),
            "tools[0].type",
        ),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "a b"}}]),
            "tools[0].function.name",
        ),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "a", "parameters": []}}]),
            "tools[0].function.parameters",
        ),
        ("tool_choice", json!("required"), "tool_choice"),
        ("tool_choice", json!("maybe"), "tool_choice"),
        (
            "tool_choice",
            json!({"type": "function", "function": {"name": "x"}}),
            "tool_choice",
        ),
        (
            "response_format",
            json!({"type": "yaml"}),
            "response_format.type",
        ),
        (
            "response_format",
            json!({"type": "json_schema"}),
            "response_format.json_schema",
        ),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": 5}}),
            "response_format.json_schema.schema",
        ),
        (
            "chat_template_kwargs",
            json!({"messages": []}),
            "chat_template_kwargs.messages",
        ),
        ("chat_template", json!("{{ 1 }}"), "chat_template"),
        ("reasoning_effort", json!("extreme"), "reasoning_effort"),
        ("audio", json!({"voice": "alloy"}), "audio"),
        ("modalities", json!(["audio"]), "modalities"),
        ("web_search_options", json!({}), "web_search_options"),
        ("service_tier", json!("priority"), "service_tier"),
        ("temprature", json!(1), "temprature"),
        ("frobnicate", json!(1), "frobnicate"),
    ];
    for (field, value, param) in cases {
        let response = server.post(CHAT, &with(field, value.clone()));
        assert_eq!(
            response.status(),
            400,
            "{field} = {value}: {}",
            response.text()
        );
        let found = response.json()["error"]["param"].clone();
        assert_eq!(found, *param, "{field} = {value}: {}", response.text());
        assert_eq!(response.json()["error"]["type"], "invalid_request_error");
    }
    server.assert_sound();
}

#[test]
fn the_other_route_is_as_strict() {
    let server = Server::scripted("default = \"x\"", "");
    let base = json!({"model": "scripted", "prompt": "x"});
    for (field, value, param) in [
        ("prompt", json!([]), "prompt"),
        ("prompt", json!(5), "prompt"),
        ("prompt", json!([1, "x"]), "prompt[1]"),
        ("prompt", json!([["x"]]), "prompt[0][0]"),
        ("prompt", json!(vec!["x"; 1000]), "prompt"),
        ("suffix", json!("x"), "suffix"),
        ("best_of", json!(1000), "best_of"),
        ("logprobs", json!(true), "logprobs"),
        ("max_tokens", json!(0), "max_tokens"),
        ("messages", json!([]), "messages"),
        ("promt", json!("x"), "promt"),
    ] {
        let mut request = base.clone();
        request[field] = value.clone();
        let response = server.post(TEXT, &request);
        assert_eq!(
            response.status(),
            400,
            "{field} = {value}: {}",
            response.text()
        );
        assert_eq!(
            response.json()["error"]["param"],
            param,
            "{field} = {value}"
        );
    }
}

#[test]
fn an_unknown_field_is_told_its_neighbour() {
    let server = Server::scripted("default = \"x\"", "");
    let response = server.post(CHAT, &with("max_token", json!(5)));
    let message = error(&response, 400, "unknown_parameter", Some("max_token"));
    assert!(message.contains("did you mean `max_tokens`?"), "{message}");
}

#[test]
fn unsupported_fields_can_be_left_out_of_account_and_are_named() {
    let server = Server::scripted("default = \"x\"", "[openai]\nunsupported = \"ignore\"");
    let mut request = with("audio", json!({"voice": "alloy"}));
    request["frobnicate"] = json!(1);
    request["max_tokens"] = json!(0);
    let response = server.post(CHAT, &request);
    response.ok();
    let ignored = response.header("x-mortise-ignored").expect("the header");
    for name in ["audio", "frobnicate", "max_tokens"] {
        assert!(ignored.contains(name), "{name} is not in {ignored}");
    }
    // What is wrong stays wrong.
    let response = server.post(CHAT, &with("temperature", json!(3)));
    error(&response, 400, "invalid_value", Some("temperature"));
}

#[test]
fn malformed_bodies_are_told_where() {
    let mut server = Server::scripted("default = \"x\"", "");
    for route in [CHAT, TEXT] {
        for (body, part) in [
            (&b""[..], "empty"),
            (b"{", "line 1 column 1"),
            (b"{\"model\": \"x\",\n}", "line 2"),
            (b"[]", "an array"),
            (b"null", "null"),
            (b"{\"model\": \"\xff\"}", "not UTF-8"),
            (b"{\"model\": \"a\", \"model\": \"b\"}", "twice"),
            (b"{\"model\": 1e999}", "out of range"),
        ] {
            let response = server.send(&Request::raw(route, body));
            let message = error(&response, 400, "invalid_json", None);
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        let bomb = format!("{{\"model\": {}", "[".repeat(500_000));
        let response = server.send(&Request::raw(route, bomb.as_bytes()));
        assert!(error(&response, 400, "invalid_json", None).contains("deep"));
    }
    server.assert_sound();
}

#[test]
fn bodies_have_bounds() {
    let mut server = Server::scripted("default = \"x\"", "[server]\nmax_body_bytes = 10000");
    for route in [CHAT, TEXT] {
        let large = Request::raw(route, &vec![b' '; 20_000]);
        error(&server.send(&large), 413, "body_too_large", None);
        // Announced only: nothing may wait for the bytes.
        let announced = Request::raw(route, b"{}").header("content-length", "10000000000");
        error(&server.send(&announced), 413, "body_too_large", None);
        // In chunks, without a length.
        let mut chunked = Vec::new();
        for _ in 0..30 {
            chunked.extend(b"400\r\n");
            chunked.extend([b' '; 0x400]);
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        let chunked = Request::raw(route, &chunked).header("transfer-encoding", "chunked");
        error(&server.send(&chunked), 413, "body_too_large", None);
    }
    server.assert_sound();
}

#[test]
fn slow_bodies_are_given_up() {
    let server = Server::scripted("default = \"x\"", "[server]\nbody_timeout_ms = 200");
    let slow = Request::raw(CHAT, b"{").header("content-length", "100");
    error(&server.send(&slow), 408, "request_timeout", None);
}

#[test]
fn routes_methods_types_and_hosts_are_checked() {
    let mut server = Server::scripted("default = \"x\"", "");
    error(&server.get("/v1/nothing"), 404, "unknown_route", None);
    error(&server.get("/nothing"), 404, "unknown_route", None);
    let response = server.get("/v1/completions");
    error(&response, 405, "method_not_allowed", None);
    assert_eq!(response.header("allow"), Some("POST"));
    let response = server.send(&Request::get("/v1/models").method("DELETE"));
    error(&response, 405, "method_not_allowed", None);
    assert_eq!(response.header("allow"), Some("GET,HEAD"));

    let body = chat("Hi");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = Request::post(CHAT, &body).header("content-type", content_type);
        error(
            &server.send(&request),
            415,
            "unsupported_content_type",
            None,
        );
    }
    let request =
        Request::post(CHAT, &body).header("content-type", "application/json; charset=utf-16");
    error(&server.send(&request), 415, "unsupported_charset", None);
    let request = Request::post(CHAT, &body).header("content-encoding", "gzip");
    error(
        &server.send(&request),
        415,
        "unsupported_content_encoding",
        None,
    );
    let request =
        Request::post(CHAT, &body).header("content-type", "Application/JSON; charset=\"UTF-8\"");
    server.send(&request).ok();

    let request = Request::post(CHAT, &body).header("host", "evil.example");
    error(&server.send(&request), 403, "host_not_allowed", None);
    error(
        &server.get(&format!("/{}", "x".repeat(9000))),
        414,
        "uri_too_long",
        None,
    );
    server.assert_sound();
}

#[test]
fn header_bombs_are_refused() {
    let mut server = Server::scripted("default = \"x\"", "");
    let large = Request::get("/health").header("x-large", &"x".repeat(200_000));
    error(&server.send(&large), 431, "headers_too_large", None);
    let mut many = Request::get("/health");
    many.headers
        .extend((0..1000).map(|index| (format!("x-{index}"), "x".to_owned())));
    error(&server.send(&many), 431, "headers_too_large", None);
    // Not far over the limit, the answer says what the limit is.
    let mut some = Request::get("/health");
    some.headers
        .extend((0..120).map(|index| (format!("x-{index}"), "x".to_owned())));
    let response = server.send(&some);
    let message = error(&response, 431, "headers_too_large", None);
    assert!(message.contains("the limits are 100"), "{message}");
    // What is no HTTP at all is told so, and so is what follows a request that was answered.
    let broken = Request::get("/health").method("<script>");
    error(&server.send(&broken), 400, "malformed_request", None);
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    let limit = Some(std::time::Duration::from_secs(60));
    stream.set_read_timeout(limit).expect("set a timeout");
    let good = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(good).expect("write");
    let mut first = vec![0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(first, b"HTTP/1.1 200");
    stream
        .write_all(b"GET /health HTTP/9.9\r\n\r\n")
        .expect("write");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the end");
    assert!(rest.contains("\"code\":\"malformed_request\""), "{rest}");
    server.assert_sound();
}

#[test]
fn feature_f1_x2_an_unknown_model_is_told_the_known_ones() {
    let server = Server::scripted("default = \"x\"", "[openai]\nany_model = false");
    let mut request = chat("Hi");
    request["model"] = json!("gpt-6");
    let response = server.post(CHAT, &request);
    let message = error(&response, 404, "model_not_found", Some("model"));
    assert!(
        message.contains("gpt-6") && message.contains("scripted"),
        "{message}"
    );
    error(
        &server.get("/v1/models/gpt-6"),
        404,
        "model_not_found",
        Some("model"),
    );
}

#[test]
fn a_prompt_beyond_the_context_is_refused() {
    let server = Server::scripted("default = \"x\"\ncontext_length = 100", "");
    let response = server.post(CHAT, &chat(&"word ".repeat(100)));
    assert_eq!(response.status(), 400);
    assert_eq!(response.json()["error"]["code"], "context_length_exceeded");
}

#[test]
fn keys_are_asked_for_and_never_logged() {
    let auth = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"s3cret-key\"\nrequests_per_minute = 2";
    let server = Server::scripted("default = \"x\"", auth);
    for request in [
        Request::post(CHAT, &chat("Hi")),
        Request::post(CHAT, &chat("Hi")).header("authorization", "Bearer wrong"),
        Request::get("/v1/models"),
        Request::get("/v1/models/scripted"),
    ] {
        let response = server.send(&request);
        assert_eq!(response.status(), 401, "{}", response.text());
        assert_eq!(response.json()["error"]["type"], "authentication_error");
    }
    assert_eq!(server.get("/health").status(), 200);
    let good = Request::post(CHAT, &chat("Hi")).header("authorization", "Bearer s3cret-key");
    server.send(&good).ok();
    server.send(&good).ok();
    let limited = server.send(&good);
    assert_eq!(limited.status(), 429, "{}", limited.text());
    assert!(limited.header("retry-after").is_some());
    let line = server.wait_for_log(|line| line.contains("status=429"));
    assert!(!server.log().join("\n").contains("s3cret-key"), "{line}");
    server.wait_for_log(|line| line.contains("status=200") && line.contains("alice"));
}

#[test]
fn feature_x3_images_and_recordings_are_refused_by_models_that_read_only_text() {
    let server = Server::start(&[]);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}});
    let audio = json!({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}});
    for part in [image, audio] {
        let content = json!([{"type": "text", "text": "What is this?"}, part]);
        let request = with("messages", json!([{"role": "user", "content": content}]));
        let refused = server.post(CHAT, &request);
        let param = Some("messages[0].content[1].type");
        error(&refused, 400, "modality_unsupported", param);
    }
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,aGk="});
    let request = json!({"model": "mortise-demo", "input": [{"role": "user", "content": [image]}]});
    let refused = server.post("/v1/responses", &request);
    error(
        &refused,
        400,
        "modality_unsupported",
        Some("input[0].content[0].type"),
    );
    // Anthropic's API has one type for whatever is wrong with a request.
    let source = json!({"type": "base64", "media_type": "image/png", "data": "aGk="});
    let content = json!([{"type": "image", "source": source}]);
    let request = json!({"model": "mortise-demo", "max_tokens": 5, "messages": [{"role": "user", "content": content}]});
    let refused = server.post("/v1/messages", &request);
    assert_eq!(refused.status(), 400, "{}", refused.text());
    assert_eq!(refused.json()["error"]["type"], "invalid_request_error");
    assert!(
        refused.text().contains("reads only text"),
        "{}",
        refused.text()
    );
}
