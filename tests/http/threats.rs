//! Cases of the project's threat list that concern the engine, over HTTP, while a second tenant is
//! served: sections F (parameters), H (isolation of tenants) and L (overload), and clients that
//! vanish (E6). What is judged stands in `tests/support/bystander.rs`. The engine's own tests look at
//! the same cases from within, by what is computed.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::bystander::{Bystander, Caller, Case, Expected};
use crate::support::client::{Request, Response};
use crate::support::{Server, until};

const TEXT: &str = "/v1/completions";

/// Two tenants at one small engine.
const CONFIG: &str = "
[limits]
max_batch = 4
max_queue = 16
[engine]
kv_cache_mib = 4
[[auth.api_keys]]
id = \"bystander\"
key = \"bystander-key\"
tenant = \"bystander\"
[[auth.api_keys]]
id = \"attacker\"
key = \"attacker-key\"
tenant = \"attacker\"
";

const BYSTANDER: Caller<'static> = Caller {
    model: "mortise-demo",
    key: Some("bystander-key"),
};

fn attack(body: &Value) -> Request {
    Request::post(TEXT, body).header("authorization", "Bearer attacker-key")
}

fn text(prompt: impl Into<Value>, max_tokens: u32) -> Value {
    json!({
        "model": "mortise-demo", "prompt": prompt.into(), "max_tokens": max_tokens, "temperature": 0,
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = text("x", 2);
    body[field] = value;
    body
}

/// The engine holds nothing of anybody's.
fn until_idle(server: &Server) {
    let gauges = ["batch_size_decode{", "queue_depth{", "kv_blocks_used{"];
    let gauges = gauges.map(|name| format!("mortise_{name}"));
    until("nothing is left behind", || {
        gauges.iter().all(|gauge| server.metric(gauge) == 0.0)
    });
}

/// Addresses that a request names are never fetched (I1, I4): this model sees text only.
#[test]
fn i1_i4_addresses_in_requests_are_refused_and_never_asked() {
    let inside = TcpListener::bind("127.0.0.1:0").expect("a port");
    inside.set_nonblocking(true).expect("set");
    let port = inside.local_addr().expect("an address").port();
    let hosts = [
        "127.0.0.1",
        "[::1]",
        "0.0.0.0",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "localhost",
        "169.254.169.254",
        "10.0.0.1",
    ];
    let mut urls: Vec<String> = hosts
        .iter()
        .map(|host| format!("http://{host}:{port}/a.png"))
        .collect();
    urls.extend(
        [
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "unix:/run/docker.sock",
        ]
        .map(str::to_owned),
    );
    urls.push(format!("data:image/png;base64,{}", "A".repeat(1 << 20)));
    let parts = |url: &String| {
        [
            json!({"type": "image_url", "image_url": {"url": url}}),
            json!({"type": "input_audio", "input_audio": {"data": url, "format": "wav"}}),
            json!({"type": "video_url", "video_url": {"url": url}}),
            json!({"type": "file", "file": {"file_data": url}}),
        ]
    };
    let mut contents: Vec<Value> = urls
        .iter()
        .flat_map(parts)
        .map(|part| json!([part]))
        .collect();
    // A thousand in one request.
    contents.push(Value::Array(vec![parts(&urls[0])[0].clone(); 1000]));
    let mut server = Server::configured(CONFIG);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let case = Case {
        id: "I1",
        what: "addresses of media",
        ..Case::with(Expected::Anything)
    };
    bystander.endures(&case, |server| {
        let answers = contents.iter().map(|content| {
            let messages = json!([{"role": "user", "content": content}]);
            let body = json!({"model": "mortise-demo", "messages": messages});
            let request = Request::post("/v1/chat/completions", &body);
            server.send(&request.header("authorization", "Bearer attacker-key"))
        });
        let answers: Vec<Response> = answers.collect();
        for (answer, content) in answers.iter().zip(&contents) {
            assert_eq!(answer.status(), 400, "{}", answer.text());
            // An address is no recording in base64, which is found out first.
            let field = match content[0]["type"].as_str() {
                Some("input_audio") => "input_audio.data",
                _ => "type",
            };
            let path = format!("messages[0].content[0].{field}");
            assert_eq!(answer.json()["error"]["param"], path);
        }
        answers
    });
    let asked = inside.accept().map(drop);
    let kind = asked.expect_err("nobody has connected").kind();
    assert_eq!(kind, std::io::ErrorKind::WouldBlock);
}

/// Numbers, tokens and stops that are none (F4, F5, F6), one request each.
#[test]
fn f4_f5_f6_parameters_out_of_bounds_are_refused_by_name() {
    let mut server = Server::configured(CONFIG);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let table: &[(&str, &str, Value, &str)] = &[
        ("F4", "max_tokens", json!(-1), "invalid_value"),
        ("F4", "max_tokens", json!(0), "unsupported_parameter"),
        (
            "F4",
            "max_tokens",
            json!(9_223_372_036_854_775_808_u64),
            "invalid_value",
        ),
        ("F4", "max_tokens", json!(1.5), "invalid_value"),
        ("F4", "max_tokens", json!("5"), "invalid_type"),
        (
            "F4",
            "max_tokens",
            json!(u32::MAX),
            "context_length_exceeded",
        ),
        ("F4", "n", json!(16_385), "invalid_value"),
        ("F4", "n", json!(1_000_000_000), "invalid_value"),
        ("F4", "temperature", json!("NaN"), "invalid_type"),
        ("F4", "temperature", json!(1e308), "invalid_value"),
        ("F4", "temperature", json!(-1), "invalid_value"),
        ("F4", "top_p", json!(0), "invalid_value"),
        ("F4", "logprobs", json!(1_000_000), "invalid_value"),
        (
            "F4",
            "seed",
            json!(18_446_744_073_709_551_615_u64),
            "invalid_value",
        ),
        ("F5", "prompt", json!([70_000]), "invalid_value"),
        ("F5", "prompt", json!([-1]), "invalid_type"),
        ("F5", "prompt", json!([4_294_967_296_u64]), "invalid_type"),
        ("F5", "prompt", json!([]), "invalid_value"),
        ("F5", "prompt", json!([[[1]]]), "invalid_type"),
        ("F5", "logit_bias", json!({"70000": 1}), "invalid_value"),
        ("F5", "logit_bias", json!({"1": 1e300}), "invalid_value"),
        ("F5", "stop_token_ids", json!([70_000]), "invalid_value"),
        ("F5", "stop_token_ids", json!(vec![1; 65]), "invalid_value"),
        ("F5", "stop_token_ids", json!([-1]), "invalid_type"),
        ("F6", "bad_words", json!(vec!["x"; 65]), "invalid_value"),
        ("F6", "bad_words", json!(["x".repeat(257)]), "invalid_value"),
        ("F6", "stop", json!([""]), "invalid_value"),
        ("F6", "stop", json!(vec!["x"; 10_000]), "invalid_value"),
        ("F6", "stop", json!("x".repeat(1_000_000)), "invalid_value"),
    ];
    for (id, field, value, code) in table {
        let case = Case {
            id,
            what: field,
            ..Case::refused(400, code)
        };
        bystander.endures(&case, |server| {
            vec![server.send(&attack(&with(field, value.clone())))]
        });
    }
}

/// Canaries of 24 requests at once: each gets what it gets alone, and sees nobody else's.
#[test]
fn h7_requests_in_one_batch_do_not_mix() {
    let mut server = Server::configured(CONFIG);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let request = |n: usize| attack(&text(format!("My secret word is canary{n}. My"), 24));
    let answer = |response: &Response| response.ok()["choices"][0]["text"].clone();
    let alone: Vec<Value> = (0..6)
        .map(|n| answer(&bystander.server().send(&request(n))))
        .collect();
    let case = Case {
        id: "H7",
        what: "24 requests with canaries",
        canary: Some("canary"),
        ..Case::with(Expected::Answer)
    };
    bystander.endures(&case, |server| {
        let mut all = Vec::new();
        // No more at once than one tenant may have.
        for _ in 0..4 {
            let requests: Vec<Request> = (0..6).map(request).collect();
            let responses = server.send_together(&requests);
            for (n, response) in responses.iter().enumerate() {
                let found = answer(response);
                assert_eq!(found, alone[n], "alone and among others");
                let foreign = (0..6).filter(|other| *other != n);
                let text = found.as_str().expect("a text");
                assert!(
                    !foreign
                        .clone()
                        .any(|n| text.contains(&format!("canary{n}")))
                );
            }
            all.extend(responses);
        }
        all
    });
}

/// More than the queue holds, all the time (L1), by one tenant (L2): what is too much is refused and
/// told when to come back; what is accepted is answered; afterwards it is as before (L5).
#[test]
fn l1_l2_l5_a_flood_is_refused_and_leaves_room_to_others() {
    let mut server = Server::configured(CONFIG);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let refusals = [(429, "tenant_queue_full"), (429, "queue_full")];
    let case = Case {
        id: "L1",
        what: "more than the queue holds, all the time",
        ..Case::with(Expected::Either(&refusals))
    };
    bystander.endures(&case, |server| {
        // More at once than there are places, each followed by the next.
        let one_after_the_other = |client: usize| -> Vec<Response> {
            let request = |n| attack(&text(format!("Request {n} of client {client}"), 100));
            (0..6).map(|n| server.send(&request(n))).collect()
        };
        let responses: Vec<Response> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..32)
                .map(|client| scope.spawn(move || one_after_the_other(client)))
                .collect();
            let ended = clients
                .into_iter()
                .map(|client| client.join().expect("a client"));
            ended.flatten().collect()
        });
        let (answered, refused): (Vec<_>, Vec<_>) = responses
            .iter()
            .partition(|response| response.status() == 200);
        assert!(answered.len() >= 8, "{} were answered", answered.len());
        assert!(!refused.is_empty());
        for response in refused {
            let retry = response.header("retry-after");
            let retry = retry.unwrap_or_else(|| panic!("no time to wait: {}", response.text()));
            let seconds: u32 = retry.parse().expect("a number of seconds");
            assert!((1..=60).contains(&seconds));
            assert_eq!(response.json()["error"]["type"], "rate_limit_error");
        }
        responses
    });
    until_idle(bystander.server());
    let quiet = Case {
        id: "L5",
        what: "afterwards",
        ..Case::with(Expected::Answer)
    };
    bystander.endures(&quiet, |server| vec![server.send(&attack(&text("x", 4)))]);
}

/// Prompts as long as the context, and beyond (L3), in a cache that holds less than two of them.
#[test]
fn l3_prompts_as_long_as_the_context_are_served_or_refused() {
    let mut server = Server::configured(CONFIG);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let longest = |n: u32| -> Value {
        let tokens: Vec<u32> = (0..480).map(|at| 300 + (at * (n + 1)) % 200).collect();
        text(tokens, 8)
    };
    let case = Case {
        id: "L3",
        what: "the longest prompts in a row",
        ..Case::with(Expected::Answer)
    };
    bystander.endures(&case, |server| {
        let requests: Vec<Request> = (0..6).map(|n| attack(&longest(n))).collect();
        server.send_together(&requests)
    });
    until_idle(bystander.server());
    let case = Case {
        id: "L3",
        what: "a prompt beyond the context",
        ..Case::refused(400, "context_length_exceeded")
    };
    bystander.endures(&case, |server| {
        let response = server.send(&attack(&text(vec![300; 100_000], 8)));
        assert_eq!(response.json()["error"]["param"], "prompt");
        vec![response]
    });
}

/// Clients that leave after the request, after the first chunk, in between (E6).
#[test]
fn e6_clients_that_vanish_leave_nothing_behind() {
    let mut server = Server::configured(CONFIG);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let case = Case {
        id: "E6",
        what: "200 clients that vanish",
        ..Case::with(Expected::Anything)
    };
    bystander.endures(&case, |server| {
        for n in 0..200 {
            let mut body = text(format!("Client {n} asks"), 400);
            body["stream"] = json!(n % 3 > 0);
            let mut stream = attack(&body).begin(server.address());
            if n % 3 == 2 && stream.head().status == 200 {
                stream.chunk();
            }
        }
        Vec::new()
    });
    until_idle(bystander.server());
}
