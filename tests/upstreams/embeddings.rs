//! Models that make embeddings elsewhere: a second mortise, and servers that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::hostile::beside_a_bystander;
use crate::support::client::Request;
use crate::support::upstream::{Asked, FakeUpstream};
use crate::support::{Server, example, until};
use crate::{BYSTANDER, CHAT, chat, remote};

const EMBEDDINGS: &str = "/v1/embeddings";

/// Keys of an upstream that makes embeddings.
const EMBEDS: &str = "capability = \"embed\"\n";

/// A mortise with the demo model's files as a model that makes embeddings of up to 64 tokens.
fn second() -> Server {
    let demo = example::root().join("examples/demo-model/model");
    let demo = demo.to_str().expect("a path in UTF-8");
    Server::configured(&format!(
        "[[models]]\nname = \"embeds\"\npath = '{demo}'\npooling = \"last\"\n\
         prompts = {{ query = \"Find: \", odd = \"Odd: \" }}\nengine = {{ max_context = 64 }}\n"
    ))
}

/// A server whose model `remote` is the embedding model of another mortise.
fn in_front(second: &Server) -> Server {
    Server::configured(&format!(
        "[[models]]\nname = \"remote\"\n[models.upstream]\nurls = [{:?}]\nmodel = \"embeds\"\napi = \"mortise\"\n{EMBEDS}",
        second.url("/v1")
    ))
}

fn wanted(input: Value) -> Value {
    json!({"model": "remote", "input": input})
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

/// Answer with JSON.
fn answer(asked: &mut Asked, status: u16, body: &Value) {
    asked.answer(
        status,
        "content-type: application/json\r\n",
        &body.to_string(),
    );
}

/// Answer with a vector for each input, whose angle tells its length, in the reverse order.
fn embed(asked: &mut Asked) {
    let body = asked.request.json();
    let inputs = body["input"].as_array().expect("inputs");
    let rows = inputs.iter().enumerate().rev().map(
        |(index, input)| json!({"object": "embedding", "index": index, "embedding": vector(input)}),
    );
    let tokens = inputs.len();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let body =
        json!({"object": "list", "data": rows.collect::<Vec<_>>(), "model": "m", "usage": usage});
    answer(asked, 200, &body);
}

fn vector(input: &Value) -> [f64; 3] {
    let length = match input {
        Value::String(text) => text.len(),
        other => other.as_array().map_or(0, Vec::len),
    };
    let angle = length as f64 / 100.0;
    [angle.cos(), angle.sin(), 0.0]
}

fn numbers(vector: &Value) -> Vec<f32> {
    let numbers = vector.as_array().expect("a vector").iter();
    numbers
        .map(|number| number.as_f64().expect("a number") as f32)
        .collect()
}

#[test]
fn feature_e4_models_elsewhere_make_vectors_as_they_do_there() {
    let (there, text) = (second(), "The wind.");
    let here = in_front(&there);
    let direct =
        |body: &Value| there.post(EMBEDDINGS, &with(body.clone(), json!({"model": "embeds"})));
    let tokens = json!({"model": "embeds", "prompt": text});
    let tokens = there.post("/tokenize", &tokens).ok()["tokens"].clone();
    for body in [
        wanted(json!(text)),
        wanted(json!(["Rain.", text, tokens, "Snow."])),
        wanted(tokens.clone()),
        with(wanted(json!(text)), json!({"encoding_format": "base64"})),
        with(wanted(json!([text])), json!({"dimensions": 16})),
        with(wanted(json!(text)), json!({"input_type": "query"})),
        with(wanted(json!(text)), json!({"prompt_name": "odd"})),
    ] {
        let (mut got, same) = (here.post(EMBEDDINGS, &body).ok(), direct(&body).ok());
        assert_eq!(got["model"], "remote");
        got["model"] = json!("embeds");
        assert_eq!(got, same, "{body}");
    }
    // What the server there refuses reads as there, and what this one can tell is refused here.
    for (body, param) in [
        (
            with(wanted(json!(text)), json!({"prompt_name": "none"})),
            Value::Null,
        ),
        (
            with(wanted(json!(text)), json!({"dimensions": 100_000})),
            json!("dimensions"),
        ),
        (wanted(json!([])), json!("input")),
        (wanted(json!([[]])), json!("input[0]")),
    ] {
        let refused = here.post(EMBEDDINGS, &body);
        let told = refused.text();
        assert_eq!(refused.status(), 400, "{told}");
        assert_eq!(refused.json()["error"]["param"], param, "{told}");
    }
    let long = wanted(json!("wind ".repeat(200)));
    let refused = here.post(EMBEDDINGS, &long);
    assert_eq!(refused.status(), 400, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    // Unless it may be cut.
    let cut = with(long.clone(), json!({"truncate_prompt_tokens": -1}));
    assert_eq!(
        here.post(EMBEDDINGS, &cut).ok()["usage"]["prompt_tokens"],
        64
    );
    let some = with(long, json!({"truncate_prompt_tokens": 5}));
    assert_eq!(here.post(EMBEDDINGS, &some).status(), 400);
}

#[test]
fn feature_e19_models_elsewhere_make_vectors_in_every_dialect() {
    let (there, text) = (second(), "The wind.");
    let here = in_front(&there);
    let one = here.post(EMBEDDINGS, &wanted(json!(text))).ok();
    let whole = numbers(&one["data"][0]["embedding"]);
    let llm = here.post("/api/v1/llm/embed", &json!({"text": text})).ok();
    assert_eq!(
        (&llm["model_used"], &llm["dimension"]),
        (&json!("remote"), &json!(whole.len()))
    );
    assert_eq!(numbers(&llm["embedding"]), whole);
    let ollama = here
        .post("/api/embed", &wanted(json!([text, "wind ".repeat(200)])))
        .ok();
    assert_eq!(numbers(&ollama["embeddings"][0]), whole);
    let older = json!({"model": "remote", "prompt": text});
    assert_eq!(
        numbers(&here.post("/api/embeddings", &older).ok()["embedding"]),
        whole
    );
    let tei = here
        .post("/embed", &json!({"model": "remote", "inputs": text}))
        .ok();
    assert_eq!(numbers(&tei[0]), whole);
    // Scores are cosines, of questions and of documents each behind its own instruction.
    let ranked =
        json!({"model": "remote", "query": "wind", "documents": ["A zebra.", "The wind."]});
    let direct = with(ranked.clone(), json!({"model": "embeds"}));
    let scores = |server: &Server, body| server.post("/v1/rerank", body).ok()["results"].clone();
    assert_eq!(scores(&here, &ranked), scores(&there, &direct));
    // Lists tell what it does, and it generates nothing.
    let listed = here.get("/v1/models").ok();
    assert_eq!(listed["data"][0]["capabilities"], json!(["embed"]));
    let refused = here.post(CHAT, &chat("remote", "Hi"));
    assert_eq!(refused.status(), 400, "{}", refused.text());
    let tokens = here.metric("mortise_tokens_input_total{");
    assert!(tokens > 0.0, "{tokens} tokens");
}

#[test]
fn remote_the_command_line_finds_models_that_make_embeddings() {
    let there = second();
    let here = Server::start(&["--upstream", &there.url("/v1")]);
    let body = json!({"model": "embeds", "input": "The wind."});
    assert_eq!(
        here.post(EMBEDDINGS, &body).ok(),
        there.post(EMBEDDINGS, &body).ok()
    );
}

#[test]
fn remote_long_lists_are_sent_in_parts_and_keep_their_order() {
    let upstream = FakeUpstream::start(|mut asked| embed(&mut asked));
    let more = format!("{EMBEDS}embedding_batch = 2\napi = \"vllm\"\n");
    let server = Server::configured(&remote(&[upstream.url()], &more));
    let inputs = json!(["a", "bb", "ccc", [7, 8, 9, 10], "ddddd"]);
    let made = server.post(EMBEDDINGS, &wanted(inputs.clone())).ok();
    for (index, input) in inputs.as_array().expect("inputs").iter().enumerate() {
        let row = &made["data"][index];
        assert_eq!(row["index"], index);
        let right = vector(input).map(|number| number as f32);
        assert_eq!(numbers(&row["embedding"]), right, "{input}");
    }
    assert_eq!(
        made["usage"],
        json!({"prompt_tokens": 5, "total_tokens": 5})
    );
    let sent: Vec<Value> = upstream.received().iter().map(|one| one.json()).collect();
    let parts: Vec<&Value> = sent.iter().map(|body| &body["input"]).collect();
    assert_eq!(
        parts,
        [
            &json!(["a", "bb"]),
            &json!(["ccc"]),
            &json!([[7, 8, 9, 10]]),
            &json!(["ddddd"])
        ]
    );
    assert_eq!(
        sent[0],
        json!({"model": "m", "input": ["a", "bb"], "encoding_format": "base64"})
    );
    let request = &upstream.received()[0];
    assert_eq!(request.line, "POST /v1/embeddings HTTP/1.1");
    assert_eq!(request.header("accept"), Some("application/json"));
}

#[test]
fn remote_instructions_of_the_operator_stand_before_texts() {
    let upstream = FakeUpstream::start(|mut asked| embed(&mut asked));
    let table = remote(&[upstream.url()], EMBEDS);
    let prompts = "prompts = { query = \"query: \", passage = \"passage: \" }\ndefault_prompt = \"passage\"\n";
    let server = Server::configured(
        &table.replace("[models.upstream]", &format!("{prompts}[models.upstream]")),
    );
    for (more, sent) in [
        (json!({}), "passage: x"),
        (json!({"input_type": "query"}), "query: x"),
        (json!({"prompt_name": "query"}), "query: x"),
    ] {
        server
            .post(EMBEDDINGS, &with(wanted(json!("x")), more))
            .ok();
        let body = upstream.received().pop().expect("a request").json();
        assert_eq!(
            body,
            json!({"model": "m", "input": [sent], "encoding_format": "float"})
        );
    }
    let unknown = with(wanted(json!("x")), json!({"prompt_name": "none"}));
    assert_eq!(
        server.post(EMBEDDINGS, &unknown).json()["error"]["param"],
        "prompt_name"
    );
}

#[test]
fn remote_vectors_are_asked_for_again_where_an_upstream_fails() {
    let well = FakeUpstream::start(|mut asked| embed(&mut asked));
    // Twice the same vector costs nobody anything: all that may have been computed in part is asked for again.
    let failures: [fn(&mut Asked); 4] = [
        |asked| answer(asked, 500, &json!({})),
        |asked| answer(asked, 503, &json!({})),
        |_| {},
        |asked| {
            asked.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"da");
        },
    ];
    for fails in failures {
        let ill = FakeUpstream::start(move |mut asked| fails(&mut asked));
        let server = Server::configured(&remote(&[ill.url(), well.url()], EMBEDS));
        for _ in 0..4 {
            server.post(EMBEDDINGS, &wanted(json!("x"))).ok();
        }
        assert!(!ill.received().is_empty());
    }
    // Not what is the request's fault, and not by an upstream that keeps it waiting.
    let refuses = FakeUpstream::start(|mut asked| {
        answer(
            &mut asked,
            400,
            &json!({"error": {"message": "dimensions are odd"}}),
        );
    });
    let server = Server::configured(&remote(
        &[refuses.url()],
        &format!("{EMBEDS}max_retries = 3\n"),
    ));
    let refused = server.post(EMBEDDINGS, &wanted(json!("x")));
    assert_eq!(refused.status(), 400);
    assert!(
        refused.text().contains("dimensions are odd"),
        "{}",
        refused.text()
    );
    assert_eq!(refuses.received().len(), 1);
}

#[test]
fn remote_upstreams_that_fail_to_embed_are_left_alone_until_they_recover() {
    let well = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&well);
    let upstream = FakeUpstream::start(move |mut asked| match now.load(SeqCst) {
        true => embed(&mut asked),
        false => answer(&mut asked, 500, &json!({})),
    });
    let server = Server::configured(&remote(&[upstream.url()], EMBEDS));
    let status = || server.post(EMBEDDINGS, &wanted(json!("x"))).status();
    assert_eq!(status(), 502);
    until("a pause", || status() == 503);
    assert_eq!(server.metric("mortise_engine_circuit_open{"), 1.0);
    well.store(true, SeqCst);
    until("vectors", || status() == 200);
    assert_eq!(server.metric("mortise_engine_circuit_open{"), 0.0);
}

#[test]
fn remote_requests_for_vectors_have_slots_and_are_cancelled_with_their_caller() {
    let closed = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&closed);
    let upstream = FakeUpstream::start(move |mut asked| {
        asked.wait_for_close();
        count.fetch_add(1, SeqCst);
    });
    let more = format!("{EMBEDS}max_requests = 1\n");
    let server = Server::configured(&(remote(&[upstream.url()], &more) + BYSTANDER));
    let held = Request::post(EMBEDDINGS, &wanted(json!("x"))).begin(server.address());
    until("a request there", || upstream.received().len() == 1);
    let full = server.post(EMBEDDINGS, &wanted(json!("x")));
    assert_eq!(
        (full.status(), &full.json()["error"]["code"]),
        (429, &json!("queue_full"))
    );
    drop(held);
    until("its end there", || closed.load(SeqCst) == 1);
    until("a free slot", || {
        server.metric("mortise_batch_size_decode{model=\"remote\"}") == 0.0
    });
}

#[test]
fn remote_consent_is_asked_for_vectors_too() {
    let upstream = FakeUpstream::start(|mut asked| embed(&mut asked));
    let more = format!("{EMBEDS}require_allow_remote = true\n");
    let server = Server::configured(&remote(&[upstream.url()], &more));
    for (path, body) in [
        (EMBEDDINGS, wanted(json!("x"))),
        ("/api/embed", wanted(json!("x"))),
        ("/api/v1/llm/embed", json!({"text": "x", "model": "remote"})),
    ] {
        let refused = server.post(path, &body);
        assert_eq!(refused.status(), 400, "{path}: {}", refused.text());
        assert!(
            refused.text().contains("allow_remote"),
            "{path}: {}",
            refused.text()
        );
    }
    assert!(upstream.received().is_empty());
    let allowed = with(wanted(json!("x")), json!({"allow_remote": true}));
    server.post(EMBEDDINGS, &allowed).ok();
}

type Misbehave = fn(&mut Asked);

fn rows(asked: &mut Asked, rows: Value) {
    answer(asked, 200, &json!({"data": rows}));
}

/// Ways to answer two texts wrongly, with words of the message.
const WRONG: &[(&str, Misbehave, &str)] = &[
    (
        "nothing",
        |asked| rows(asked, json!([])),
        "2 texts with 0 vectors",
    ),
    (
        "too few",
        |asked| rows(asked, json!([{"index": 0, "embedding": [1.0]}])),
        "2 texts with 1 vectors",
    ),
    (
        "too many",
        |asked| {
            let row = json!({"index": 0, "embedding": [1.0]});
            rows(asked, Value::from(vec![row; 5000]));
        },
        "2 texts with 5000 vectors",
    ),
    (
        "an index twice",
        |asked| {
            rows(
                asked,
                json!([{"index": 1, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]),
            )
        },
        "the index 1 twice",
    ),
    (
        "an index beyond",
        |asked| {
            rows(
                asked,
                json!([{"index": 0, "embedding": [1.0]}, {"index": 9, "embedding": [1.0]}]),
            )
        },
        "the index 9",
    ),
    (
        "no index",
        |asked| rows(asked, json!([{"embedding": [1.0]}, {"embedding": [1.0]}])),
        "cannot be read",
    ),
    (
        "other dimensions",
        |asked| {
            rows(
                asked,
                json!([{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]),
            )
        },
        "of 1 and of 2 numbers",
    ),
    (
        "strings",
        |asked| {
            rows(
                asked,
                json!([{"index": 0, "embedding": ["1.0"]}, {"index": 1, "embedding": [1.0]}]),
            )
        },
        "cannot be read",
    ),
    (
        "nulls",
        |asked| {
            rows(
                asked,
                json!([{"index": 0, "embedding": [null]}, {"index": 1, "embedding": [1.0]}]),
            )
        },
        "cannot be read",
    ),
    (
        "not a number",
        |asked| {
            let body = "{\"data\": [{\"index\": 0, \"embedding\": [NaN]}]}";
            asked.answer(200, "content-type: application/json\r\n", body);
        },
        "cannot be read",
    ),
    (
        "not a number in base64",
        |asked| {
            let vector = STANDARD.encode(f32::NAN.to_le_bytes());
            rows(
                asked,
                json!([{"index": 0, "embedding": vector}, {"index": 1, "embedding": vector}]),
            );
        },
        "not finite",
    ),
    (
        "a vector without end",
        |asked| {
            asked.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
            asked.chunk("{\"data\": [{\"index\": 0, \"embedding\": [0.5");
            while asked.chunk(&", 0.5".repeat(10_000)) {}
        },
        "with more than",
    ),
    (
        "deep",
        |asked| {
            let body = "[".repeat(100_000);
            asked.answer(200, "content-type: application/json\r\n", &body);
        },
        "cannot be read",
    ),
    (
        "no JSON",
        |asked| asked.answer(200, "content-type: text/html\r\n", "<html>"),
        "text/html",
    ),
    (
        "compressed",
        |asked| {
            let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
            asked.answer(200, headers, "x");
        },
        "gzip",
    ),
    (
        "stalls in the middle",
        |asked| {
            asked.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"da");
            asked.wait_for_close();
        },
        "sent nothing for",
    ),
    ("stalls", Asked::wait_for_close, "did not answer within"),
    ("a stream", |asked| asked.say("Hello"), "text/event-stream"),
];

#[test]
fn remote_vectors_that_are_wrong_are_errors_of_the_upstream() {
    let upstream = FakeUpstream::start(|mut asked| {
        let number = asked.request.json()["input"][0].as_str().map(str::to_owned);
        let number = number.and_then(|text| text.parse::<usize>().ok());
        WRONG[number.expect("a number")].1(&mut asked);
    });
    let limits = format!(
        "{EMBEDS}first_byte_timeout_ms = 2000\nchunk_timeout_ms = 2000\nconnect_timeout_ms = 2000\n"
    );
    // A server of its own for a few: the breaker of another would be open.
    for (group, ways) in WRONG.chunks(2).enumerate() {
        let mut server = Server::configured(&(remote(&[upstream.url()], &limits) + BYSTANDER));
        beside_a_bystander(&server, || {
            for (at, (name, _, words)) in ways.iter().enumerate() {
                let inputs = json!([(2 * group + at).to_string(), "y"]);
                let failed = server.post(EMBEDDINGS, &wanted(inputs.clone()));
                let told = failed.text();
                assert_eq!(failed.status(), 502, "{name}: {told}");
                let error = &failed.json()["error"];
                assert_eq!(error["code"], "upstream_error", "{name}: {told}");
                let message = error["message"].as_str().unwrap_or_default();
                assert!(
                    message.contains(words) && message.len() < 1200,
                    "{name}: {told}"
                );
                // In the shape of each dialect.
                let failed = server.post("/api/embed", &wanted(inputs));
                let told = failed.text();
                assert_eq!(failed.status(), 502, "{name}: {told}");
                let message = failed.json()["error"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                assert!(message.contains(words), "{name}: {told}");
            }
        });
        server.assert_sound();
    }
}
