//! Settings of a load: each takes effect, lives until the unload, and leaves the file alone; null is the default of the
//! table in the documentation, and absent is what is configured.

use serde_json::{Value, json};

use crate::support::example;
use crate::{ADMIN, Managed, code};

/// A server with the demo model as `m`, and how to load it.
struct Loads {
    managed: Managed,
    config: String,
}

/// Configuration of the demo model, with further lines.
fn demo(name: &str, more: &str) -> String {
    let path = example::root().join("examples/demo-model/model");
    format!("[[models]]\nname = \"{name}\"\npath = {path:?}\n{more}\n")
}

impl Loads {
    /// A server with these models, of which `m` is loaded and unloaded here.
    fn of(config: &str) -> Self {
        Self {
            managed: Managed::start(config),
            config: format!("{ADMIN}{config}"),
        }
    }

    /// Load `m` anew with these settings, and look at it.
    fn with<T>(&self, settings: &str, look: impl FnOnce(&Self, &Value) -> T) -> T {
        let row = self.managed.act("m", "load", settings).ok();
        let sent: Value = match settings {
            "" => Value::Null,
            settings => serde_json::from_str(settings).expect("JSON"),
        };
        assert_eq!(row["load_override"], sent);
        let seen = look(self, &row);
        let row = self.managed.act("m", "unload", "").ok();
        assert_eq!(row["load_override"], Value::Null, "forgotten");
        assert_eq!(self.managed.server.configuration(), self.config);
        seen
    }

    fn refused(&self, settings: &str) -> String {
        let refused = self.managed.act("m", "load", settings);
        let expected = (400, "invalid_load_request".to_owned());
        assert_eq!(code(&refused), expected, "{settings}");
        assert_eq!(self.managed.state("m"), "unloaded");
        refused.text()
    }

    fn blocks(&self) -> f64 {
        self.managed.server.metric("mortise_kv_blocks{model=\"m\"")
    }

    fn ask(&self, model: &str, more: &Value) -> crate::Response {
        let mut body = json!({
            "model": model, "messages": [{"role": "user", "content": "What is 2 plus 3?"}],
            "temperature": 0, "max_tokens": 24, "logprobs": true, "top_logprobs": 3,
        });
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        self.managed.server.post("/v1/chat/completions", &body)
    }

    /// Tokens of an answer with their probabilities, which tell one set of weights from another.
    fn answer(&self, model: &str) -> Value {
        self.ask(model, &json!({})).ok()["choices"].clone()
    }
}

#[test]
fn feature_l3_the_context_of_a_load_bounds_requests() {
    let loads = Loads::of(&demo(
        "m",
        "enabled = false\n[models.engine]\nmax_context = 64\n",
    ));
    let long = json!({"max_tokens": 100});
    let fits = |loads: &Loads, row: &Value, context: u64| {
        assert_eq!(row["context_length"], context);
        let answer = loads.ask("m", &long);
        match context < 100 {
            true => assert_eq!(code(&answer), (400, "context_length_exceeded".to_owned())),
            false => assert_eq!(answer.status(), 200, "{}", answer.text()),
        }
    };
    loads.with("", |loads, row| fits(loads, row, 64));
    loads.with(r#"{"max_context": 32}"#, |loads, row| fits(loads, row, 32));
    loads.with(r#"{"max_context": 512}"#, |loads, row| {
        fits(loads, row, 512)
    });
    // The model's own is 2048, and the server's limit 4096.
    loads.with(r#"{"max_context": null}"#, |loads, row| {
        fits(loads, row, 2048)
    });
    loads.with("", |loads, row| fits(loads, row, 64));
    loads.refused(r#"{"max_context": 0}"#);
}

#[test]
fn feature_l3_the_type_of_the_cache_of_a_load_decides_on_its_blocks() {
    let own = "enabled = false\n[models.engine]\nkv_cache_mib = 4\nkv_type = \"q8_0\"\n";
    let loads = Loads::of(&demo("m", own));
    let blocks = |settings: &str| loads.with(settings, |loads, _| loads.blocks());
    let (configured, null) = (blocks(""), blocks(r#"{"kv_type": null}"#));
    let [f32, f16, bf16, q8_0] =
        ["f32", "f16", "bf16", "q8_0"].map(|kind| blocks(&format!(r#"{{"kv_type": "{kind}"}}"#)));
    assert_eq!((configured, null), (q8_0, f32));
    assert!(
        (2.0 * f32..=2.0 * f32 + 1.0).contains(&bf16),
        "{f32} {bf16}"
    );
    assert_eq!(f16, bf16);
    assert!(q8_0 > 3.0 * f32, "{f32} {q8_0}");
    assert_eq!(
        blocks(r#"{"replicas": null}"#),
        q8_0,
        "what is absent stays"
    );
}

#[test]
fn feature_l3_weights_of_a_load_are_quantised_and_the_files_are_not() {
    let config = demo("m", "enabled = false\nquantize = \"q8_0\"\n")
        + &demo("plain", "")
        + &demo("coarse", "quantize = \"q4_k\"\n");
    let loads = Loads::of(&config);
    let answer = |settings: &str| loads.with(settings, |loads, _| loads.answer("m"));
    let (plain, coarse) = (loads.answer("plain"), loads.answer("coarse"));
    let configured = answer("");
    assert_ne!(plain, coarse);
    assert!(configured != plain && configured != coarse);
    assert_eq!(answer(r#"{"quantize": "q4_k"}"#), coarse);
    assert_eq!(answer(r#"{"quantize": null}"#), plain);
    assert_eq!(answer(r#"{"max_context": 512}"#), configured);
    assert_eq!(answer(""), configured);
    assert_eq!(
        loads.answer("plain"),
        plain,
        "shared weights are not changed"
    );
}

#[test]
fn feature_l3_the_device_of_a_load_is_the_one_that_is_asked_for() {
    let loads = Loads::of(&demo(
        "m",
        "enabled = false\n[models.engine]\ndevice = \"cpu\"\n",
    ));
    let configured = loads.with("", |loads, _| loads.answer("m"));
    let cpu = loads.with(r#"{"device": "cpu"}"#, |loads, _| loads.answer("m"));
    assert_eq!(cpu, configured);
    loads.with(r#"{"device": null}"#, |_, row| {
        assert_eq!(row["is_loaded"], true)
    });
    // No machine has so many, so that the load fails if it is tried there, and nowhere else.
    let far = loads.managed.act("m", "load", r#"{"device": "cuda:63"}"#);
    assert_eq!(code(&far), (500, "model_load_failed".to_owned()));
    let row = loads.managed.row("m");
    assert_eq!(
        (&row["runtime_state"], &row["load_override"]),
        (&json!("failed"), &Value::Null)
    );
    let error = row["last_error"].as_str().expect("a reason").to_lowercase();
    assert!(error.contains("cuda") || error.contains("gpu"), "{error}");
    // A failed model is loaded with other settings.
    assert_eq!(loads.with("", |loads, _| loads.answer("m")), configured);
}

#[test]
fn feature_l3_q2_replicas_of_a_load_answer_side_by_side() {
    let own = "enabled = false\nreplicas = 2\nreplica_max = 3\n[models.engine]\nmax_batch = 2\n";
    let loads = Loads::of(&demo("m", own));
    for (settings, replicas) in [
        ("", 2),
        (r#"{"replicas": 3}"#, 3),
        (r#"{"replicas": null}"#, 1),
        (r#"{"max_context": 512}"#, 2),
    ] {
        loads.with(settings, |loads, row| {
            assert_eq!(row["loaded_replicas"], replicas, "{settings}");
            assert_eq!(row["effective_target_inflight"], 2 * replicas, "{settings}");
            loads.answer("m");
        });
    }
    loads.refused(r#"{"replicas": 4}"#);
}

#[test]
fn feature_l3_the_draft_model_of_a_load_guesses() {
    let config = "[engine]\nspeculation = \"draft-model\"\ndraft_tokens = 6\n".to_owned()
        + &demo("m", "enabled = false\ndraft_model = \"small\"\n")
        + &demo("small", "enabled = false\n")
        + &demo("other", "enabled = false\n");
    let loads = Loads::of(&config);
    let drafted = |settings: &str| {
        loads.with(settings, |loads, _| {
            let answer = loads.answer("m");
            let series = "mortise_speculation_draft_steps_total{model=\"m\"";
            (loads.managed.server.metric(series) > 0.0, answer)
        })
    };
    let (configured, none) = (drafted(""), drafted(r#"{"draft_model": null}"#));
    assert_eq!((configured.0, none.0), (true, false));
    assert_eq!(configured.1, none.1, "guesses change no answer");
    assert_eq!(drafted(r#"{"draft_model": "other"}"#), configured);
    assert_eq!(drafted(r#"{"max_context": 512}"#), configured);
    let text = loads.refused(r#"{"draft_model": "absent"}"#);
    assert!(text.contains("absent"), "{text}");
}
