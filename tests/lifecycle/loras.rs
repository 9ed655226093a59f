//! LoRA adapters of a model that computes: configured, loaded and unloaded while it serves, chosen by requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Request, Response};
use crate::support::example;
use crate::support::gguf_file::{F32, GgufFile, f32, text};
use crate::{KEY, Managed, code, scripted};

/// Sides of the matrices that the adapters change, in each of two layers.
const MATRICES: [(&str, u64, u64); 3] = [
    ("attn_q", 64, 64),
    ("attn_output", 64, 64),
    ("ffn_down", 64, 128),
];
const RANK: u64 = 4;

/// Write an adapter of the model `tiny` with random numbers.
fn write(path: &Path, seed: u32) {
    let mut state = seed;
    let mut numbers = |count: u64| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..count).flat_map(|_| next().to_le_bytes()).collect()
    };
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("qwen2"));
    file.entry("general.type", text("adapter"));
    file.entry("adapter.type", text("lora"));
    file.entry("adapter.lora.alpha", f32(8.0));
    for layer in 0..2 {
        for (matrix, outputs, inputs) in MATRICES {
            let name = format!("blk.{layer}.{matrix}.weight");
            let narrow = numbers(RANK * inputs);
            file.tensor(&format!("{name}.lora_a"), &[RANK, inputs], F32, narrow);
            let wide = numbers(outputs * RANK);
            file.tensor(&format!("{name}.lora_b"), &[outputs, RANK], F32, wide);
        }
    }
    fs::write(path, file.bytes()).expect("write an adapter");
}

/// A server with the model `tiny`, its adapter `polite`, and the file of another adapter.
pub(crate) struct Adapted {
    pub(crate) managed: Managed,
    folder: TempDir,
}

impl Adapted {
    fn start(more: &str) -> Self {
        Self::start_with(more, "")
    }

    /// With more lines in the table of the model.
    pub(crate) fn start_with(more: &str, of_model: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write(&folder.path().join("polite.gguf"), 1);
        write(&folder.path().join("terse.gguf"), 2);
        let model = example::root().join("tests/gguf/data/tiny-chat.gguf");
        let polite = folder.path().join("polite.gguf");
        let config = format!(
            "{more}\n[[models]]\nname = \"tiny\"\naliases = [\"small\"]\npath = {model:?}\n\
             loras = [{{ name = \"polite\", path = {polite:?} }}]\n{of_model}\n"
        ) + &scripted("other", "default = \"Hello.\"", "");
        Self {
            managed: Managed::start(&config),
            folder,
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn load(&self, name: &str, more: &Value) -> Response {
        let mut body = json!({"lora_id": name, "base_model": "tiny"});
        for (field, value) in more.as_object().expect("fields") {
            body[field] = value.clone();
        }
        self.managed
            .ask(Request::post("/v1/admin/loras/load", &body))
    }

    fn unload(&self, name: &str) -> Response {
        let body = json!({"lora_id": name, "base_model": "tiny"});
        let request = Request::post("/v1/admin/loras/unload", &body);
        self.managed.ask(request)
    }

    fn show(&self, name: &str) -> Value {
        let path = format!("/v1/admin/loras/{name}?base_model=tiny");
        self.managed.ask(Request::get(&path)).ok()
    }

    pub(crate) fn ask(&self, model: &str, adapter: Option<&str>) -> Response {
        let messages = json!([{"role": "user", "content": "Say something."}]);
        let mut body = json!({
            "model": model, "messages": messages, "max_tokens": 12, "temperature": 0, "ignore_eos": true,
        });
        if let Some(adapter) = adapter {
            body["lora_adapter"] = json!(adapter);
        }
        self.managed.server.post("/v1/chat/completions", &body)
    }

    pub(crate) fn answer(&self, model: &str, adapter: Option<&str>) -> (String, Value) {
        let answer = self.ask(model, adapter).ok();
        let model = answer["model"].as_str().expect("a name").to_owned();
        (model, answer["choices"][0]["message"]["content"].clone())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let models = Request::get("/v1/models").send(self.managed.server.address());
        let models = models.ok();
        let models = models["data"].as_array().expect("models").iter();
        models
            .map(|model| model["id"].as_str().expect("an id").to_owned())
            .collect()
    }
}

/// The vector of a text, and the model that made it.
fn vector(adapted: &Adapted, model: &str, text: &str) -> (String, Vec<f64>) {
    let body = json!({"model": model, "input": text});
    let answer = adapted.managed.server.post("/v1/embeddings", &body).ok();
    let numbers = answer["data"][0]["embedding"].as_array().expect("a vector");
    let numbers = numbers
        .iter()
        .map(|number| number.as_f64().expect("a number"));
    let model = answer["model"].as_str().expect("a name").to_owned();
    (model, numbers.collect())
}

#[test]
fn feature_a4_embedding_models_have_adapters_too() {
    let adapted = Adapted::start_with("", "pooling = \"last\"");
    assert_eq!(adapted.names(), ["tiny", "small", "other", "tiny:polite"]);
    let (name, plain) = vector(&adapted, "tiny", "Some words.");
    assert_eq!(name, "tiny");
    let (name, polite) = vector(&adapted, "small:polite", "Some words.");
    assert_eq!(name, "tiny:polite");
    assert_ne!(polite, plain);
    // Kept vectors are those of the same adapter.
    for _ in 0..2 {
        assert_eq!(vector(&adapted, "tiny:polite", "Some words.").1, polite);
        assert_eq!(vector(&adapted, "tiny", "Some words.").1, plain);
    }
    let absent = adapted.managed.server.post(
        "/v1/embeddings",
        &json!({"model": "tiny:terse", "input": "x"}),
    );
    assert_eq!(code(&absent), (404, "lora_not_found".to_owned()));
    adapted
        .load("terse", &json!({"path": adapted.file("terse.gguf")}))
        .ok();
    let terse = vector(&adapted, "tiny:terse", "Some words.").1;
    assert_ne!(terse, plain);
    assert_ne!(terse, polite);
    // Another file under the same name makes other vectors, whatever was kept.
    adapted.unload("polite").ok();
    let refused = json!({"model": "tiny:polite", "input": "Some words."});
    let refused = adapted.managed.server.post("/v1/embeddings", &refused);
    assert_eq!(code(&refused), (404, "lora_not_found".to_owned()));
    let path = adapted.file("terse.gguf");
    adapted.load("polite", &json!({"path": path})).ok();
    assert_eq!(vector(&adapted, "tiny:polite", "Some words.").1, terse);
    // A vector store keeps the name of both.
    let body = json!({"name": "s", "embedding_model": "small:polite"});
    let store = adapted.managed.server.post("/v1/vector_stores", &body).ok();
    assert_eq!(store["embedding_model"], "tiny:polite");
    // Chosen by name, and text is generated by none of them.
    let body = json!({"model": "tiny:polite", "prompt": "x"});
    let refused = adapted.managed.server.post("/v1/completions", &body);
    assert_eq!(refused.status(), 400, "{}", refused.json());
}

#[test]
fn feature_a4_requests_choose_an_adapter_by_name_or_by_field() {
    let adapted = Adapted::start("");
    let (name, plain) = adapted.answer("tiny", None);
    assert_eq!(name, "tiny");
    let (name, polite) = adapted.answer("tiny:polite", None);
    assert_eq!(name, "tiny:polite");
    assert_ne!(polite, plain);
    let same = ("tiny:polite".to_owned(), polite);
    for (model, adapter) in [
        ("tiny", Some("polite")),
        ("small", Some("polite")),
        ("small:polite", None),
        ("tiny:polite", Some("polite")),
    ] {
        assert_eq!(adapted.answer(model, adapter), same, "{model}, {adapter:?}");
    }
    assert_eq!(
        adapted.answer("tiny", None).1,
        plain,
        "the base is as it was"
    );
    for (model, adapter, expected) in [
        ("tiny:absent", None, (404, "lora_not_found")),
        ("tiny", Some("absent"), (404, "lora_not_found")),
        ("tiny:polite", Some("terse"), (400, "invalid_value")),
        ("other", Some("polite"), (404, "lora_not_found")),
        ("absent", Some("polite"), (404, "model_not_found")),
    ] {
        let response = adapted.ask(model, adapter);
        let (status, found) = code(&response);
        assert_eq!((status, &*found), expected, "{model}, {adapter:?}");
    }
    let text = adapted.ask("tiny:absent", None).text();
    assert!(text.contains("loaded: polite"), "{text}");
}

#[test]
fn feature_e5_adapters_are_listed_with_their_model() {
    let adapted = Adapted::start("");
    assert_eq!(adapted.names(), ["tiny", "small", "other", "tiny:polite"]);
    let address = adapted.managed.server.address();
    for id in ["tiny:polite", "small:polite"] {
        let row = Request::get(&format!("/v1/models/{id}")).send(address).ok();
        assert_eq!(
            (&row["id"], &row["parent"]),
            (&json!("tiny:polite"), &json!("tiny"))
        );
    }
    let row = Request::get("/v1/models/tiny").send(address).ok();
    assert_eq!(row["parent"], Value::Null);
    let absent = Request::get("/v1/models/tiny:absent").send(address);
    assert_eq!(code(&absent), (404, "lora_not_found".to_owned()));
}

#[test]
fn feature_a4_the_native_dialect_generates_with_a_loaded_adapter() {
    let adapted = Adapted::start("");
    let ask = |adapter: Value| {
        let body = json!({
            "prompt": "Say something.", "model": "tiny", "max_tokens": 12, "temperature": 0,
            "lora_adapter": adapter,
        });
        let server = &adapted.managed.server;
        server.post("/api/v1/llm/inference", &body)
    };
    let (plain, polite) = (ask(Value::Null).ok(), ask(json!("polite")).ok());
    assert_eq!(plain["lora_used"], Value::Null);
    assert_eq!(polite["lora_used"], "polite");
    assert_ne!(plain["text"], polite["text"]);
    assert_eq!(adapted.show("polite")["usage_count"], 1);
    let terse = json!({"path": adapted.file("terse.gguf")});
    adapted.load("terse", &terse).ok();
    let loaded = ask(json!("terse")).ok();
    assert_eq!(loaded["lora_used"], "terse");
    assert!(loaded["text"] != plain["text"] && loaded["text"] != polite["text"]);
    adapted.unload("terse").ok();
    let refused = ask(json!("terse"));
    assert_eq!(code(&refused), (404, "LORA_NOT_FOUND".to_owned()));
}

#[test]
fn feature_a3_e22_adapters_come_and_go_while_their_model_serves() {
    let adapted = Adapted::start("");
    let polite = adapted.show("polite");
    assert_eq!(polite["status"], "loaded");
    assert_eq!(
        (&polite["rank"], &polite["alpha"]),
        (&json!(4), &json!(8.0))
    );
    assert_eq!(
        polite["target_modules"],
        json!(["down_proj", "o_proj", "q_proj"])
    );
    assert_eq!(
        (&polite["slot"], &polite["usage_count"]),
        (&json!(0), &json!(0))
    );
    let before = adapted.managed.row("tiny")["vram_estimate_mib"].clone();

    let terse = json!({"path": adapted.file("terse.gguf")});
    let loaded = adapted.load("terse", &terse).ok();
    assert_eq!(
        (&loaded["status"], &loaded["slot"]),
        (&json!("loaded"), &json!(1))
    );
    assert!(loaded["load_time_ms"].is_u64());
    assert_eq!(
        adapted.load("terse", &terse).ok(),
        loaded,
        "it is there already"
    );
    let (name, answer) = adapted.answer("tiny", Some("terse"));
    assert_eq!(name, "tiny:terse");
    assert_ne!(answer, adapted.answer("tiny:polite", None).1);
    assert_ne!(answer, adapted.answer("tiny", None).1);
    assert_eq!(adapted.show("terse")["usage_count"], 1);

    // Twice as strong is another adapter.
    let strong = json!({"path": adapted.file("terse.gguf"), "scale": 2.0});
    assert_eq!(
        code(&adapted.load("terse", &strong)),
        (409, "lora_loaded".to_owned())
    );
    assert_eq!(adapted.unload("terse").ok()["slot_freed"], 1);
    assert_eq!(
        code(&adapted.ask("tiny:terse", None)),
        (404, "lora_not_found".to_owned())
    );
    assert_eq!(
        code(&adapted.unload("terse")),
        (404, "lora_not_found".to_owned())
    );
    assert_eq!(adapted.load("terse", &strong).ok()["slot"], 1);
    assert_ne!(adapted.answer("tiny:terse", None).1, answer);
    assert_eq!(adapted.unload("terse").ok()["status"], "unloaded");
    // Its path is known.
    assert_eq!(adapted.load("terse", &json!({})).ok()["slot"], 1);

    let list = |query: &str| {
        let list = adapted
            .managed
            .ask(Request::get(&format!("/v1/admin/loras{query}")))
            .ok();
        let list = list["loras"].as_array().expect("adapters").iter();
        list.map(|lora| lora["lora_id"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(list(""), ["polite", "terse"]);
    adapted.unload("polite").ok();
    assert_eq!(list("?model=tiny&status=loaded"), ["terse"]);
    assert_eq!(list("?status=available"), ["polite"]);
    assert_eq!(list("?model=other"), [""; 0]);
    assert_eq!(adapted.names(), ["tiny", "small", "other", "tiny:terse"]);

    // The next load of the model has those of the configuration.
    adapted.managed.act("tiny", "unload", "").ok();
    assert_eq!(adapted.names(), ["tiny", "small", "other", "tiny:polite"]);
    assert_eq!(
        code(&adapted.load("terse", &terse)),
        (409, "model_not_loaded".to_owned())
    );
    adapted.managed.act("tiny", "load", "").ok();
    assert_eq!(list(""), ["polite"]);
    assert_eq!(adapted.managed.row("tiny")["vram_estimate_mib"], before);
    assert_eq!(adapted.answer("tiny:polite", None).0, "tiny:polite");
}

#[test]
fn feature_e22_a1_a2_the_native_dialect_lists_loads_and_unloads_adapters() {
    let adapted = Adapted::start("llm_routes = true\n");
    let address = adapted.managed.server.address();
    let get = |path: &str| Request::get(&format!("/api/v1/llm/loras{path}")).send(address);
    let post = |path: &str, body: &Value| {
        let request = Request::post(&format!("/api/v1/llm/loras/{path}"), body);
        request.header("x-admin-token", crate::KEY).send(address)
    };
    let listed = |query: &str| {
        let list = get(query).ok()["loras"].clone();
        let list = list.as_array().expect("adapters").iter();
        list.map(|lora| lora["lora_id"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(""), ["polite"]);
    let path = adapted.file("terse.gguf");
    let terse = json!({"lora_id": "terse", "base_model": "tiny", "path": path});
    let keyless = Request::post("/api/v1/llm/loras/load", &terse).send(address);
    assert_eq!(code(&keyless), (401, "UNAUTHORIZED".to_owned()));
    let loaded = post("load", &terse).ok();
    assert_eq!(
        (&loaded["status"], &loaded["slot"], &loaded["base_model"]),
        (&json!("loaded"), &json!(1), &json!("tiny"))
    );
    assert!(loaded["load_time_ms"].is_u64());
    assert_eq!(listed("?model=tiny&status=loaded"), ["polite", "terse"]);
    assert_eq!(listed("?model=other"), [""; 0]);
    adapted.answer("tiny:terse", None);
    let row = get("/terse?base_model=tiny").ok();
    assert_eq!((&row["rank"], &row["usage_count"]), (&json!(4), &json!(1)));
    let modules = json!(["down_proj", "o_proj", "q_proj"]);
    assert_eq!(
        (&row["target_modules"], &row["slot"]),
        (&modules, &json!(1))
    );
    assert!(row["loaded_timestamp"].is_string() && row["last_used"].is_string());
    assert_eq!(row["path"], Value::Null, "paths are for operators");
    let named = json!({"lora_id": "terse", "base_model": "tiny"});
    let freed = post("unload", &named).ok();
    assert_eq!(
        freed,
        json!({"lora_id": "terse", "status": "unloaded", "slot_freed": 1})
    );
    assert_eq!(listed("?status=available"), ["terse"]);
    assert_eq!(post("load", &named).ok()["slot"], 1, "its path is known");
    for (response, expected) in [
        (get("/absent"), (404, "LORA_NOT_FOUND")),
        (get("?model=absent"), (404, "MODEL_NOT_FOUND")),
        (get("?status=old"), (400, "INVALID_PARAMETERS")),
        (get("?state=loaded"), (400, "INVALID_PARAMETERS")),
        (
            post(
                "unload",
                &json!({"lora_id": "absent", "base_model": "tiny"}),
            ),
            (404, "LORA_NOT_FOUND"),
        ),
        (
            post(
                "load",
                &json!({"lora_id": "a", "base_model": "absent", "path": path}),
            ),
            (404, "MODEL_NOT_FOUND"),
        ),
        (
            post("load", &json!({"lora_id": "a", "base_model": "tiny"})),
            (400, "INVALID_PARAMETERS"),
        ),
        (
            post(
                "load",
                &json!({"lora_id": "a", "base_model": "tiny", "path": "/absent"}),
            ),
            (422, "MODEL_LOAD_FAILED"),
        ),
    ] {
        let (status, found) = code(&response);
        assert_eq!((status, &*found), expected, "{}", response.text());
    }
}

#[test]
fn feature_a1_what_is_no_adapter_is_refused_and_costs_nothing() {
    let adapted = Adapted::start("");
    let model = example::root().join("tests/gguf/data/tiny-chat.gguf");
    let nan = adapted.file("nan.gguf");
    let mut bytes = fs::read(adapted.file("terse.gguf")).expect("an adapter");
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&nan, &bytes).expect("write");
    let cut = adapted.file("cut.gguf");
    fs::write(&cut, &bytes[..end - 1000]).expect("write");
    for (name, more, expected) in [
        ("x", json!({"path": "/nowhere"}), (422, "lora_load_failed")),
        ("x", json!({"path": model}), (422, "lora_load_failed")),
        ("x", json!({"path": nan}), (422, "lora_load_failed")),
        ("x", json!({"path": cut}), (422, "lora_load_failed")),
        (
            "x",
            json!({"path": adapted.file("terse.gguf"), "scale": 1e9}),
            (422, "lora_load_failed"),
        ),
        ("y", json!({}), (422, "invalid_load_request")),
        ("a:b", json!({"path": model}), (422, "invalid_load_request")),
        ("", json!({"path": model}), (422, "invalid_load_request")),
        (
            "x",
            json!({"path": model, "base_model": "absent"}),
            (404, "unknown_model"),
        ),
        (
            "x",
            json!({"path": model, "base_model": "other"}),
            (409, "lora_not_supported"),
        ),
        ("x", json!({"pfad": model}), (422, "invalid_load_request")),
    ] {
        let (status, found) = code(&adapted.load(name, &more));
        assert_eq!((status, &*found), expected, "{name}, {more}");
    }
    let failed = adapted.show("x");
    assert_eq!(failed["status"], "available");
    assert!(failed["last_error"].as_str().is_some());
    assert_eq!(
        code(&adapted.ask("tiny:x", None)),
        (404, "lora_not_found".to_owned())
    );
    adapted.answer("tiny:polite", None);
}

#[test]
fn feature_a2_an_adapter_in_use_is_unloaded_when_its_requests_have_ended() {
    let adapted = Adapted::start("");
    // More than the sockets hold: the answer goes on until somebody reads it, or goes away.
    let body = json!({
        "model": "tiny:polite", "messages": [{"role": "user", "content": "Go on."}],
        "max_tokens": 400, "ignore_eos": true, "n": 16, "stream": true, "logprobs": true,
        "top_logprobs": 20,
    });
    let mut stream =
        Request::post("/v1/chat/completions", &body).begin(adapted.managed.server.address());
    assert_eq!(stream.head().status, 200);
    stream.chunk().expect("the answer begins");
    std::thread::scope(|scope| {
        let unload = scope.spawn(|| adapted.unload("polite"));
        while adapted.show("polite")["status"] != "unloading" {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(
            code(&adapted.ask("tiny:polite", None)),
            (404, "lora_not_found".to_owned())
        );
        assert_eq!(
            code(&adapted.load("polite", &json!({}))),
            (409, "lora_unloading".to_owned())
        );
        assert_eq!(
            code(&adapted.unload("polite")),
            (409, "lora_unloading".to_owned())
        );
        adapted.answer("tiny", None);
        assert!(!unload.is_finished());
        drop(stream);
        let unloaded = unload.join().expect("the unload").ok();
        assert_eq!(unloaded["slot_freed"], 0);
    });
    assert_eq!(adapted.show("polite")["status"], "available");
    assert_eq!(adapted.load("polite", &json!({})).ok()["slot"], 0);
}

#[test]
fn feature_e5_keys_are_good_for_the_adapters_that_they_name() {
    let auth = "[[auth.api_keys]]\nid = \"one\"\nkey = \"key-of-one-0123\"\nmodels = [\"tiny\"]\n\
                [[auth.api_keys]]\nid = \"two\"\nkey = \"key-of-two-0123\"\nmodels = [\"*:polite\"]\n";
    let adapted = Adapted::start(auth);
    let ask = |key: &str, model: &str| {
        let body = json!({
            "model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
        });
        let key = format!("Bearer {key}");
        let request = Request::post("/v1/chat/completions", &body).header("authorization", &key);
        request.send(adapted.managed.server.address()).status()
    };
    let of_one = ["tiny", "tiny:polite"].map(|model| ask("key-of-one-0123", model));
    assert_eq!(of_one, [200, 403]);
    let of_two = ["tiny", "tiny:polite"].map(|model| ask("key-of-two-0123", model));
    assert_eq!(of_two, [403, 200]);
    let models = Request::get("/v1/models").header("authorization", "Bearer key-of-two-0123");
    let models = models.send(adapted.managed.server.address()).ok();
    let ids = models["data"].as_array().expect("models").iter();
    let ids: Vec<&Value> = ids.map(|model| &model["id"]).collect();
    assert_eq!(ids, ["tiny:polite"]);
}

#[test]
fn feature_z13_events_tell_of_adapters() {
    let adapted = Adapted::start("");
    let key = format!("Bearer {KEY}");
    let followed = Request::get("/v1/admin/events?topics=loras").header("authorization", &key);
    let mut events = followed.begin(&adapted.managed.admin);
    assert_eq!(events.head().status, 200);
    // Each event of the topic is all adapters.
    let mut wait_for = |so: &dyn Fn(&str) -> bool| {
        loop {
            let chunk = events.chunk().expect("the stream goes on");
            let event = String::from_utf8_lossy(&chunk).into_owned();
            if event.contains("\"loras\":[") && so(&event) {
                return;
            }
        }
    };
    let has = |event: &str, name: &str| event.contains(&format!("\"lora_id\":\"{name}\""));
    wait_for(&|event| has(event, "polite") && !has(event, "terse"));
    let terse = adapted.folder.path().join("terse.gguf");
    let body = json!({"lora_id": "terse", "base_model": "tiny", "path": terse});
    let load = Request::post("/v1/admin/loras/load", &body);
    adapted.managed.ask(load).ok();
    wait_for(&|event| has(event, "polite") && has(event, "terse"));
    // It goes with its model; that of the configuration is there for the next load.
    adapted.managed.act("tiny", "unload", "").ok();
    wait_for(&|event| has(event, "polite") && !has(event, "terse"));
}
