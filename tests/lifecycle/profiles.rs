//! Models with settings of their own: several profiles of one model's files, and values for requests that say nothing.

use serde_json::{Value, json};

use crate::support::{Server, example};
use crate::{Managed, code, scripted};

/// A small model with a chat template, in one file.
fn tiny() -> String {
    let path = example::root().join("tests/gguf/data/tiny-chat.gguf");
    path.display().to_string()
}

/// A model of these files; `more` is further keys and tables.
fn profile(name: &str, more: &str) -> String {
    format!(
        "[[models]]\nname = \"{name}\"\npath = {:?}\n{more}\n",
        tiny()
    )
}

fn chat(server: &Server, model: &str, more: &Value) -> crate::Response {
    let mut body = json!({
        "model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
    });
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    server.post("/v1/chat/completions", &body)
}

/// The value of a series of `/metrics` for a model.
fn metric(server: &Server, name: &str, model: &str) -> f64 {
    let page = server.get("/metrics").text();
    let wanted = format!("{name}{{model=\"{model}\"");
    let line = page.lines().find(|line| line.starts_with(&wanted));
    let value = line.and_then(|line| line.rsplit_once(' '));
    let (_, value) = value.unwrap_or_else(|| panic!("{wanted} in {page}"));
    value.parse().expect("a number")
}

#[test]
fn feature_c6_c7_c8_k2_m4_q1_z11_profiles_of_one_model_have_engines_of_their_own() {
    let small = "enabled = true\nreplicas = 2\nreplica_max = 2\n[models.engine]\ndevice = \"cpu\"\nmax_context = 64\n\
                 kv_type = \"q8_0\"\nkv_cache_mib = 1\nmax_batch = 1\nprefix_cache = false\n";
    let large = "enabled = false\nload_on_demand = true\n[models.engine]\nmax_context = 256\n";
    let config = profile("tiny-small", small) + &profile("tiny-large", large);
    let mut managed = Managed::start(&config);
    let (one, other) = (managed.row("tiny-small"), managed.row("tiny-large"));
    assert_eq!(
        (&one["is_loaded"], &other["is_loaded"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(one["context_length"], 64);
    let expected = json!({
        "device": "cpu", "max_context": 64, "kv_type": "q8_0", "kv_cache_mib": 1, "max_batch": 1,
        "prefix_cache": false,
    });
    assert_eq!(one["definition"]["engine"], expected);
    // Each of two replicas answers one request at once.
    assert_eq!(one["configured_target_inflight"], 1);
    assert_eq!(one["effective_target_inflight"], 2);
    assert_eq!(other["configured_target_inflight"], Value::Null);
    assert_eq!(other["effective_target_inflight"], Value::Null);
    assert_eq!(other["definition"]["engine"]["kv_type"], Value::Null);
    // What is too long for one fits the other, which is loaded for it; no request is led elsewhere.
    let long = json!({"max_tokens": 100});
    let refused = chat(&managed.server, "tiny-small", &long);
    assert_eq!(code(&refused), (400, "context_length_exceeded".to_owned()));
    chat(&managed.server, "tiny-large", &long).ok();
    assert_eq!(managed.row("tiny-large")["context_length"], 256);
    assert_eq!(managed.row("tiny-large")["effective_target_inflight"], 32);
    // Caches of their own: of other sizes, and only one keeps what it has computed.
    let blocks = |model: &str| metric(&managed.server, "mortise_kv_blocks", model);
    assert!(blocks("tiny-small") < 2.0 * blocks("tiny-large"));
    for model in ["tiny-small", "tiny-large"] {
        let answers = [(); 2].map(|()| chat(&managed.server, model, &json!({})).ok());
        let cached = &answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert!(
            model == "tiny-large" || cached == 0 || cached.is_null(),
            "{cached}"
        );
    }
    // Settings of a load count before those of the file, and those of the file come back.
    managed.act("tiny-small", "unload", "").ok();
    let row = managed
        .act("tiny-small", "load", r#"{"max_context": 32}"#)
        .ok();
    assert_eq!(row["context_length"], 32);
    managed.act("tiny-small", "unload", "").ok();
    let row = managed
        .act("tiny-small", "load", r#"{"max_context": null}"#)
        .ok();
    assert_ne!(row["context_length"], 64, "null is the server's limit");
    managed.server.assert_sound();
}

#[test]
fn feature_l4_q2_a_row_tells_what_a_load_may_be_given() {
    let managed = Managed::start(&profile("tiny", "replica_max = 3\nreplicas = 2"));
    let row = managed.row("tiny");
    assert_eq!(
        (&row["replicas"], &row["loaded_replicas"]),
        (&json!(2), &json!(2))
    );
    let replicas = &row["load_constraints"]["replicas"];
    for (name, value) in [
        ("kind", json!("integer")),
        ("minimum", json!(1)),
        ("maximum", json!(3)),
        ("step", json!(1)),
        ("default", json!(2)),
        ("null_means", json!("1")),
    ] {
        assert_eq!(replicas[name], value, "{name}");
    }
    // What is recommended is allowed.
    let presets = row["load_recommendations"].as_array().expect("presets");
    assert!(!presets.is_empty());
    for preset in presets {
        assert!(preset["note"].is_string());
        for (setting, value) in preset["settings"].as_object().expect("settings") {
            let allowed = row["load_constraints"][setting]["allowed_values"].as_array();
            assert!(
                allowed.expect("values").contains(value),
                "{setting} = {value}"
            );
        }
    }
    let features = &row["features"];
    assert_eq!(features["modalities"], json!(["text"]));
    assert_eq!(features["multi_turn"], true);
    assert_eq!(
        features["response_formats"],
        json!(["text", "json_object", "json_schema"])
    );
    assert_eq!(row["load_override"], Value::Null);
    // Loaded models keep their size.
    let late = managed.act("tiny", "load", r#"{"replicas": 3}"#);
    assert_eq!(code(&late), (409, "model_loaded".to_owned()));
}

#[test]
fn feature_c5_c9_requests_that_say_nothing_have_the_values_of_the_operator() {
    let demo = example::root().join("examples/demo-model/model");
    let model = |name: &str, more: &str| {
        format!("[[models]]\nname = \"{name}\"\npath = {demo:?}\n{more}\n")
    };
    let quiet =
        "[models.defaults]\nmax_tokens = 2\ntemplate_arguments = { enable_thinking = false }\n";
    let config = format!(
        "[defaults]\nmax_tokens = 3\ntemperature = 0.0\n{}{}",
        model("plain", ""),
        model("quiet", quiet)
    );
    let server = Server::configured(&config);
    let ask = |model: &str, more: Value| {
        let mut body =
            json!({"model": model, "messages": [{"role": "user", "content": "Count to ten."}]});
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        server.post("/v1/chat/completions", &body).ok()["usage"].clone()
    };
    let tokens = |usage: &Value, name: &str| usage[name].as_u64().expect("a number");
    // The request counts before its model, the model before all, and all before the files.
    for (model, more, expected) in [
        ("plain", json!({}), 3),
        ("quiet", json!({}), 2),
        ("quiet", json!({"max_tokens": 1}), 1),
        ("plain", json!({"max_tokens": 1}), 1),
    ] {
        let usage = ask(model, more.clone());
        assert!(
            tokens(&usage, "completion_tokens") <= expected,
            "{model} {more}: {usage}"
        );
    }
    // Thinking is off for one of them, unless a request wants it.
    let prompt = |model: &str, more: Value| tokens(&ask(model, more), "prompt_tokens");
    let thinks = |on: bool| json!({"chat_template_kwargs": {"enable_thinking": on}});
    let (on, off) = (prompt("plain", json!({})), prompt("plain", thinks(false)));
    assert_ne!(on, off, "the template of the model has a switch");
    assert_eq!(prompt("quiet", json!({})), off);
    assert_eq!(prompt("quiet", thinks(true)), prompt("plain", thinks(true)));
}

#[test]
fn feature_z12_lists_tell_what_loaded_models_can_do() {
    let demo = example::root().join("examples/demo-model/model");
    let embeds = format!("[[models]]\nname = \"embeds\"\npath = {demo:?}\npooling = \"last\"\n");
    let remote = "[[models]]\nname = \"remote\"\n[models.upstream]\nurls = [\"http://127.0.0.1:9/v1\"]\n\
                  model = \"m\"\nhealth_check = \"config-only\"\n";
    let says = "default = \"Hello.\"";
    let config = scripted("chats", says, "")
        + &scripted("rests", says, "enabled = false")
        + &embeds
        + remote;
    let managed = Managed::start(&config);
    let list = managed.server.get("/v1/models").ok();
    let rows = list["data"].as_array().expect("models");
    let row = |name: &str| rows.iter().find(|row| row["id"] == name).expect("a row");
    for (name, capabilities, modalities, multi_turn) in [
        ("chats", json!(["generate"]), json!(["text"]), json!(true)),
        ("embeds", json!(["embed"]), json!(["text"]), json!(false)),
        (
            "remote",
            json!(["generate"]),
            json!(["text", "image", "audio"]),
            json!(true),
        ),
        ("rests", Value::Null, Value::Null, Value::Null),
    ] {
        let (listed, features) = (row(name), &row(name)["features"]);
        assert_eq!(listed["capabilities"], capabilities, "{name}");
        assert_eq!(features["modalities"], modalities, "{name}");
        assert_eq!(features["multi_turn"], multi_turn, "{name}");
        // The admin side says the same, and so does the model by itself.
        assert_eq!(&managed.row(name)["features"], features, "{name}");
        let alone = managed.server.get(&format!("/v1/models/{name}")).ok();
        assert_eq!(&alone["features"], features, "{name}");
    }
}
