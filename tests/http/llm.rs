//! The dialect `/api/v1/llm`: its shapes, its errors, and who may do what.

use std::process::Command;

use serde_json::{Value, json};

use crate::retrieval::store_of;
use crate::support::client::{Request, Response};
use crate::support::{Server, example, have, wait_for};

const INFERENCE: &str = "/api/v1/llm/inference";
const KEY: &str = "an admin key of the tests";

const SCRIPT: &str = r#"
default = "Hello there, wörld 👋."
lines = [
    { when = "think", say = "<think>\nLet me see.\n</think>\n\nForty-two." },
]
"#;

/// A scripted model, and the demo model's files as one that makes vectors.
fn server(more: &str) -> Server {
    let demo = example::root().join("examples/demo-model/model");
    let demo = demo.to_str().expect("a path in UTF-8");
    let embeds = format!("[[models]]\nname = \"embeds\"\npath = '{demo}'\npooling = \"last\"\n");
    Server::scripted(SCRIPT, &format!("{more}\n{embeds}"))
}

fn code(response: &Response) -> (u16, String) {
    let body = response.json();
    let code = body["error"]["code"].as_str().expect("a code");
    (response.status(), code.to_owned())
}

fn keys(value: &Value) -> Vec<&str> {
    let members = value.as_object().expect("an object");
    members.keys().map(String::as_str).collect()
}

#[test]
fn feature_e17_r7_a_prompt_is_answered_in_the_apis_shape() {
    let server = server("");
    let body = json!({"prompt": "Hi", "model": "scripted", "max_tokens": 100, "temperature": 0.7,
        "top_p": 0.9, "top_k": 40, "stop_sequences": ["\n\n", "END"], "stream": false});
    let answer = server.post(INFERENCE, &body).ok();
    let expected = [
        "text",
        "tokens_generated",
        "inference_time_ms",
        "model_used",
        "lora_used",
        "cache_hit",
        "finish_reason",
    ];
    assert_eq!(keys(&answer), expected);
    assert_eq!(answer["text"], "Hello there, wörld 👋.");
    assert_eq!(
        (&answer["model_used"], &answer["cache_hit"]),
        (&json!("scripted"), &json!(false))
    );
    assert_eq!(answer["finish_reason"], "stop");
    assert!(answer["tokens_generated"].as_u64() > Some(1), "{answer}");
    // The only model that generates need not be named, and reasoning is no part of the text.
    let answer = server.post(INFERENCE, &json!({"prompt": "think"})).ok();
    assert_eq!(answer["text"], "Forty-two.");
    let short = server
        .post(INFERENCE, &json!({"prompt": "Hi", "max_tokens": 2}))
        .ok();
    assert_eq!(
        (&short["finish_reason"], &short["tokens_generated"]),
        (&json!("length"), &json!(2))
    );
}

#[test]
fn feature_r8_a_stream_is_numbered_pieces_and_a_last_event_without_a_mark() {
    let server = server("");
    let body = json!({"prompt": "Hi", "model": "scripted", "stream": true, "max_tokens": 1024});
    let response = server.post(INFERENCE, &body);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    assert!(!response.text().contains("[DONE]"), "{}", response.text());
    let text = response.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    let (last, pieces) = events.split_last().expect("events");
    assert!(pieces.len() > 1, "{pieces:?}");
    let mut text = String::new();
    for (index, piece) in pieces.iter().enumerate() {
        assert_eq!(keys(piece), ["token", "index"]);
        assert_eq!(piece["index"], index);
        text.push_str(piece["token"].as_str().expect("a text"));
    }
    assert_eq!(text, "Hello there, wörld 👋.");
    assert_eq!(
        keys(last),
        ["done", "tokens_generated", "inference_time_ms"]
    );
    assert_eq!(last["done"], true);
}

#[test]
fn feature_x5_errors_have_the_apis_codes() {
    let server = server("");
    let of = |body: Value| server.post(INFERENCE, &body);
    let named = |name: &str| json!({"prompt": "p", "model": name});
    // A name of nobody means the only model, where there is one; here are two.
    let missing = of(named("absent"));
    assert_eq!(code(&missing), (404, "MODEL_NOT_FOUND".to_owned()));
    let details = &missing.json()["error"]["details"];
    assert_eq!(details["available_models"], json!(["embeds", "scripted"]));
    let mut adapted = named("scripted");
    adapted["lora_adapter"] = json!("legal-qa");
    assert_eq!(code(&of(adapted)), (404, "LORA_NOT_FOUND".to_owned()));
    let mut hot = named("scripted");
    hot["temperature"] = json!(7);
    let refused = of(hot);
    assert_eq!(code(&refused), (400, "INVALID_PARAMETERS".to_owned()));
    assert_eq!(refused.json()["error"]["details"]["param"], "temperature");
    let mut stops = named("scripted");
    stops["stop_sequences"] = json!(["", "a"]);
    let refused = of(stops);
    assert_eq!(code(&refused), (400, "INVALID_PARAMETERS".to_owned()));
    assert!(
        refused.text().contains("`stop_sequences[0]`"),
        "{}",
        refused.text()
    );
    let torn =
        server.send(&Request::raw(INFERENCE, b"{").header("content-type", "application/json"));
    assert_eq!(code(&torn), (400, "INVALID_REQUEST".to_owned()));
    assert_eq!(server.get("/api/v1/llm/absent").status(), 404);
    let keyed = Server::scripted(
        SCRIPT,
        "[[auth.api_keys]]\nid = \"one\"\nkey = \"key-of-one-0123456789\"\n",
    );
    assert_eq!(
        code(&keyed.post(INFERENCE, &named("scripted"))),
        (401, "UNAUTHORIZED".to_owned())
    );
}

#[test]
fn feature_e19_a_text_is_embedded() {
    let server = server("");
    let body = json!({"text": "Sample text", "model": "embeds", "normalize": true});
    let made = server.post("/api/v1/llm/embed", &body).ok();
    assert_eq!(
        keys(&made),
        ["embedding", "dimension", "model_used", "inference_time_ms"]
    );
    let vector = made["embedding"].as_array().expect("numbers");
    assert_eq!(made["dimension"], vector.len());
    let square = |number: &Value| number.as_f64().map(|number| number * number);
    let length: f64 = vector.iter().filter_map(square).sum();
    assert!((length - 1.0).abs() < 1e-3, "{length}");
    let same = json!({"model": "embeds", "input": "Sample text"});
    let same = server.post("/v1/embeddings", &same).ok();
    assert_eq!(same["data"][0]["embedding"], made["embedding"]);
    let raw = json!({"text": "a", "model": "embeds", "normalize": false});
    let refused = server.post("/api/v1/llm/embed", &raw);
    assert_eq!(code(&refused), (400, "INVALID_PARAMETERS".to_owned()));
}

#[test]
fn feature_e20_l9_models_are_listed_and_described() {
    let server = server("");
    let list = server.get("/api/v1/llm/models").ok();
    let rows = list["models"].as_array().expect("rows");
    let row = |name: &str| {
        let found = rows.iter().find(|row| row["model_id"] == name);
        found.expect("a row")
    };
    let embeds = row("embeds");
    assert_eq!(
        (&embeds["status"], &embeds["format"]),
        (&json!("loaded"), &json!("safetensors"))
    );
    assert!(embeds["size_bytes"].as_u64() > Some(100_000), "{embeds}");
    // Where files lie is for operators.
    assert!(embeds.get("path").is_none());
    let detail = server.get("/api/v1/llm/models/embeds").ok();
    let config = example::root().join("examples/demo-model/model/config.json");
    let config = std::fs::read_to_string(config).expect("the model's configuration");
    let config: Value = serde_json::from_str(&config).expect("JSON");
    for (name, key) in [
        ("n_layers", "num_hidden_layers"),
        ("n_heads", "num_attention_heads"),
        ("n_embd", "hidden_size"),
        ("n_vocab", "vocab_size"),
    ] {
        assert_eq!(detail[name], config[key], "{name}");
    }
    assert_eq!(
        (&detail["pinned"], &detail["gpu_layers"]),
        (&json!(false), &json!(0))
    );
    assert!(detail["context_length"].as_u64() > Some(100), "{detail}");
    let missing = server.get("/api/v1/llm/models/absent");
    assert_eq!(code(&missing), (404, "MODEL_NOT_FOUND".to_owned()));
}

#[test]
fn feature_e21_only_operators_load_models_and_clear_caches() {
    let admin = format!("[admin]\nport = 0\nkey = \"{KEY}\"\n");
    let closed = server(&admin);
    let load = Request::post("/api/v1/llm/models/load", &json!({"model_id": "scripted"}));
    let bearer = format!("Bearer {KEY}");
    let refused = closed.send(&load.clone().header("authorization", &bearer));
    assert_eq!(code(&refused), (403, "ADMIN_ONLY".to_owned()));
    let open = server(&format!("{admin}llm_routes = true\n"));
    for path in ["models/load", "models/unload", "cache/clear"] {
        let request = Request::post(&format!("/api/v1/llm/{path}"), &json!({}));
        assert_eq!(
            code(&open.send(&request)),
            (401, "UNAUTHORIZED".to_owned()),
            "{path}"
        );
        let wrong = request.header("authorization", "Bearer sk-one");
        assert_eq!(code(&open.send(&wrong)).0, 401, "{path}");
    }
    let known = |path: &str, body: Value| {
        let request = Request::post(&format!("/api/v1/llm/{path}"), &body);
        open.send(&request.header("x-admin-token", KEY))
    };
    let freed = known("models/unload", json!({"model_id": "scripted"})).ok();
    assert_eq!(keys(&freed), ["model_id", "status", "memory_freed_mb"]);
    assert_eq!(freed["status"], "unloaded");
    let listed = open.get("/api/v1/llm/models/scripted").ok();
    assert_eq!(listed["status"], "available");
    let gone = open.post(INFERENCE, &json!({"prompt": "Hi", "model": "scripted"}));
    assert_eq!(code(&gone), (409, "MODEL_NOT_LOADED".to_owned()));
    let loaded = known("models/load", json!({"model_id": "scripted", "pin": false})).ok();
    assert_eq!(
        keys(&loaded),
        ["model_id", "status", "load_time_ms", "memory_used_mb"]
    );
    assert_eq!(loaded["status"], "loaded");
    open.post(INFERENCE, &json!({"prompt": "Hi", "model": "scripted"}))
        .ok();
}

#[test]
fn feature_l8_settings_of_a_load_are_had_or_refused_by_name() {
    let server = server(&format!(
        "[admin]\nport = 0\nkey = \"{KEY}\"\nllm_routes = true\n"
    ));
    let load = |body: Value| {
        let request = Request::post("/api/v1/llm/models/load", &body);
        server.send(&request.header("x-admin-token", KEY))
    };
    for (options, name) in [
        (json!({"n_batch": 512}), "options.n_batch"),
        (json!({"n_threads": 8}), "options.n_threads"),
        (json!({"use_mlock": true}), "options.use_mlock"),
        (json!({"use_mmap": false}), "options.use_mmap"),
        (json!({"n_gpu_layers": 32}), "options.n_gpu_layers"),
    ] {
        let refused = load(json!({"model_id": "embeds", "options": options}));
        assert_eq!(code(&refused), (400, "INVALID_PARAMETERS".to_owned()));
        assert_eq!(refused.json()["error"]["details"]["param"], name);
    }
    let elsewhere = load(json!({"model_id": "embeds", "path": "/etc/passwd"}));
    assert_eq!(elsewhere.json()["error"]["details"]["param"], "path");
    let late = load(json!({"model_id": "embeds", "pin": true}));
    assert_eq!(code(&late), (409, "MODEL_LOADED".to_owned()));
    assert_eq!(
        code(&load(json!({"model_id": "none"}))),
        (404, "MODEL_NOT_FOUND".to_owned())
    );
    let unload = Request::post("/api/v1/llm/models/unload", &json!({"model_id": "embeds"}));
    server.send(&unload.header("x-admin-token", KEY)).ok();
    let options = json!({"n_gpu_layers": 0, "n_ctx": 64, "use_mmap": true, "use_mlock": false});
    load(json!({"model_id": "embeds", "options": options})).ok();
    let detail = server.get("/api/v1/llm/models/embeds").ok();
    assert_eq!(detail["context_length"], 64);
    // M6: pinned until it is unloaded.
    assert_eq!(detail["pinned"], false);
    let unload = || Request::post("/api/v1/llm/models/unload", &json!({"model_id": "embeds"}));
    server.send(&unload().header("x-admin-token", KEY)).ok();
    load(json!({"model_id": "embeds", "pin": true})).ok();
    let pinned = || server.get("/api/v1/llm/models/embeds").ok()["pinned"].clone();
    assert_eq!(pinned(), true);
    load(json!({"model_id": "embeds", "pin": true})).ok();
    server.send(&unload().header("x-admin-token", KEY)).ok();
    assert_eq!(pinned(), false);
}

#[test]
fn feature_e23_o2_o3_figures_are_those_of_the_requests() {
    let server = server(&format!(
        "[admin]\nport = 0\nkey = \"{KEY}\"\nllm_routes = true\n"
    ));
    for _ in 0..3 {
        server
            .post(INFERENCE, &json!({"prompt": "Hi", "model": "scripted"}))
            .ok();
    }
    server.post(INFERENCE, &json!({"prompt": "Hi", "model": "absent"}));
    let stats = server.get("/api/v1/llm/stats").ok();
    let count = |name: &str| stats[name].as_u64();
    assert_eq!(
        (count("total_requests"), count("successful_requests")),
        (Some(4), Some(3))
    );
    assert_eq!(
        (count("failed_requests"), count("active_requests")),
        (Some(1), Some(0))
    );
    assert_eq!(stats["models"]["loaded"], 2);
    assert_eq!(
        stats["workers"],
        json!({"total": 2, "busy": 0, "idle": 2, "utilization": 0.0})
    );
    assert!(stats["latency"]["p50_ms"].as_f64() > Some(0.0), "{stats}");
    assert!(
        stats["throughput"]["tokens_per_second"].as_f64() > Some(0.0),
        "{stats}"
    );
    // The same number as Prometheus reads.
    let counted =
        server.metric("mortise_requests_total{route=\"/api/v1/llm/inference\",model=\"scripted\"");
    assert!((counted - 3.0).abs() < 0.1, "{counted}");
    let workers = server.get("/api/v1/llm/workers").ok();
    let worker = &workers["workers"][1];
    assert_eq!(
        (&worker["model_id"], &worker["status"]),
        (&json!("scripted"), &json!("idle"))
    );
    assert_eq!(worker["requests_processed"], 3);
    assert!(worker.get("current_request_id").is_none());
    let health = server.get("/api/v1/llm/health").ok();
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["checks"]["models_loaded"], true);
    for name in ["scripted", "embeds"] {
        let unload = Request::post("/api/v1/llm/models/unload", &json!({"model_id": name}));
        server.send(&unload.header("x-admin-token", KEY)).ok();
    }
    let health = server.get("/api/v1/llm/health");
    assert_eq!(
        (health.status(), &health.json()["status"]),
        (503, &json!("unhealthy"))
    );
}

#[test]
fn feature_k4_k5_prefixes_are_counted_and_cleared() {
    let admin = format!("[admin]\nport = 0\nkey = \"{KEY}\"\nllm_routes = true\n");
    let server = Server::configured(&admin);
    let ask = || {
        let prompt =
            "What is mortise, and what can it do for those who run it on their own machines?";
        let body = json!({"prompt": prompt, "max_tokens": 1});
        server.post(INFERENCE, &body).ok();
    };
    let caches = || server.get("/api/v1/llm/cache/stats").ok();
    ask();
    ask();
    // The engine tells its figures after the step, when the answer may have left.
    let before = wait_for(|| {
        let now = caches();
        let pool = &now["kv_cache_buffer_pool"];
        let told = pool["buffer_reuse_count"].as_u64() > Some(0) && pool["active_buffers"] == 0;
        if told { Ok(now) } else { Err(now.to_string()) }
    });
    let prefix = &before["prefix_cache"];
    assert_eq!((&prefix["hits"], &prefix["misses"]), (&json!(1), &json!(1)));
    assert_eq!(prefix["hit_rate"], 0.5);
    assert!(
        prefix["avg_tokens_saved"].as_f64() >= Some(16.0),
        "{prefix}"
    );
    assert!(prefix["total_entries"].as_u64() > Some(0), "{prefix}");
    assert!(prefix["memory_used_mb"].as_f64() > Some(0.0), "{prefix}");
    assert_eq!(before["model_metadata_cache"]["total_entries"], 1);
    let clear = |kind: &str| {
        let request = Request::post("/api/v1/llm/cache/clear", &json!({"cache_type": kind}));
        server.send(&request.header("x-admin-token", KEY))
    };
    let cleared = clear("prefix").ok();
    assert_eq!(cleared["cleared"], "prefix");
    assert_eq!(cleared["entries_removed"], prefix["total_entries"]);
    assert_eq!(cleared["memory_freed_mb"], prefix["memory_used_mb"]);
    // The cache is empty: the same prompt is computed anew.
    ask();
    let after = caches();
    assert_eq!(
        (
            &after["prefix_cache"]["hits"],
            &after["prefix_cache"]["misses"]
        ),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        code(&clear("tokens")),
        (400, "INVALID_PARAMETERS".to_owned())
    );
}

/// The examples of the API's own description, by a client in two languages.
#[test]
fn feature_e25_clients_do_the_examples_of_the_description() {
    let server = server(&format!(
        "[admin]\nport = 0\nkey = \"{KEY}\"\nllm_routes = true\n"
    ));
    let clause = "Clause 3.4: the price is fixed for a year.";
    let collection = store_of(&server, "legal.txt", clause);
    for (program, file) in [("python3", "llm_api.py"), ("node", "llm_api.mjs")] {
        if !have(&[program]) {
            continue;
        }
        let client = example::root().join("examples/clients").join(file);
        let run = Command::new(program)
            .arg(client)
            .args([
                server.url(""),
                "scripted".to_owned(),
                "embeds".to_owned(),
                KEY.to_owned(),
                collection.clone(),
            ])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("start the client");
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        let problem = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{file}: {said}\n{problem}");
        for part in [
            "Hello there, wörld",
            "dimension",
            "healthy",
            "MODEL_NOT_FOUND",
            "legal.txt",
            "cleared prefix",
        ] {
            assert!(said.contains(part), "{file} lacks {part}: {said}");
        }
    }
}
