//! Adapters that a load names: in place of the configured ones, all or none, until the unload.

use serde_json::{Value, json};

use crate::code;
use crate::loras::Adapted;
use crate::support::until;

fn load(adapted: &Adapted, settings: &Value) -> crate::Response {
    adapted.managed.act("tiny", "load", &settings.to_string())
}

fn unload(adapted: &Adapted) {
    adapted.managed.act("tiny", "unload", "").ok();
}

/// Names of the adapters that requests may use.
fn adapters(adapted: &Adapted) -> Vec<String> {
    let names = adapted.names().into_iter();
    names.filter(|name| name.contains(':')).collect()
}

#[test]
fn feature_l3_a1_adapters_of_a_load_stand_in_place_of_the_configured_ones() {
    let adapted = Adapted::start_with("", "enabled = false");
    let file = |name: &str| adapted.file(name);
    load(&adapted, &json!({})).ok();
    assert_eq!(adapters(&adapted), ["tiny:polite"]);
    let (plain, polite) = (
        adapted.answer("tiny", None).1,
        adapted.answer("tiny:polite", None).1,
    );
    adapted
        .load("terse", &json!({"path": file("terse.gguf")}))
        .ok();
    let terse = adapted.answer("tiny:terse", None).1;
    unload(&adapted);
    // Another one, and the configured one with other numbers.
    let loras =
        json!([{"name": "terse", "path": file("terse.gguf")}, {"name": "polite", "scale": -2.0}]);
    let row = load(&adapted, &json!({"loras": loras})).ok();
    assert_eq!(row["load_override"]["loras"][0]["name"], "terse");
    assert_eq!(
        row["load_override"]["loras"][1],
        json!({"name": "polite", "path": null, "scale": -2.0})
    );
    assert_eq!(row["definition"]["loras"], json!(["polite"]));
    assert_eq!(adapters(&adapted), ["tiny:polite", "tiny:terse"]);
    assert_eq!(adapted.answer("tiny:terse", None).1, terse);
    let scaled = adapted.answer("tiny:polite", None).1;
    assert!(scaled != polite && scaled != plain);
    unload(&adapted);
    // Null is none, and absent is what is configured.
    load(&adapted, &json!({"loras": null})).ok();
    assert_eq!(adapters(&adapted), [""; 0]);
    let absent = adapted.ask("tiny:polite", None);
    assert_eq!(absent.status(), 404, "{}", absent.text());
    assert_eq!(adapted.answer("tiny", None).1, plain);
    unload(&adapted);
    load(&adapted, &json!({"max_context": 256})).ok();
    assert_eq!(adapters(&adapted), ["tiny:polite"]);
    assert_eq!(adapted.answer("tiny:polite", None).1, polite);
    unload(&adapted);
    for loras in [
        json!([{"name": "terse"}]),
        json!([{"name": "no name", "path": "x"}]),
        json!([{"name": "polite"}, {"name": "polite"}]),
        json!([{"name": "polite", "scale": 101}]),
    ] {
        let refused = load(&adapted, &json!({"loras": loras}));
        assert_eq!(
            code(&refused),
            (400, "invalid_load_request".to_owned()),
            "{loras}"
        );
    }
    let unknown = load(&adapted, &json!({"loras": [{"name": "polite", "size": 1}]}));
    assert_eq!(code(&unknown), (422, "invalid_load_request".to_owned()));
    let scripted = json!({"loras": [{"name": "a", "path": "x"}]}).to_string();
    adapted.managed.act("other", "unload", "").ok();
    let scripted = adapted.managed.act("other", "load", &scripted);
    assert_eq!(code(&scripted), (400, "invalid_load_request".to_owned()));
}

/// Threads of the server that compute.
fn engines(adapted: &Adapted) -> usize {
    let tasks = format!("/proc/{}/task", adapted.managed.server.pid());
    let tasks = std::fs::read_dir(tasks).expect("the threads").flatten();
    let names =
        tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.contains("engine")).count()
}

#[test]
fn feature_l2_a_load_that_fails_after_its_replicas_started_leaves_none_of_them() {
    let adapted = Adapted::start_with("", "enabled = false\nreplica_max = 3\n");
    let before = engines(&adapted);
    load(&adapted, &json!({"replicas": 3})).ok();
    assert_eq!(engines(&adapted), before + 3, "the threads have names");
    adapted.answer("tiny:polite", None);
    unload(&adapted);
    until("the engines are gone", || engines(&adapted) == before);
    // Adapters are read when all replicas run.
    for _ in 0..3 {
        let loras = json!([{"name": "polite"}, {"name": "gone", "path": "/nowhere/adapter.gguf"}]);
        let failed = load(&adapted, &json!({"replicas": 3, "loras": loras}));
        assert_eq!(code(&failed), (500, "model_load_failed".to_owned()));
        assert!(
            failed.text().contains("/nowhere/adapter.gguf"),
            "{}",
            failed.text()
        );
        let row = adapted.managed.row("tiny");
        assert_eq!(row["runtime_state"], "failed");
        assert_eq!(
            (&row["loaded_replicas"], &row["load_override"]),
            (&json!(0), &Value::Null)
        );
        let error = row["last_error"].as_str().expect("a reason");
        assert!(error.contains("/nowhere/adapter.gguf"), "{error}");
        let refused = adapted.ask("tiny", None);
        assert_eq!(code(&refused), (409, "model_failed".to_owned()));
        until("the engines are gone", || engines(&adapted) == before);
    }
    let row = load(&adapted, &json!({"replicas": 3})).ok();
    assert_eq!(
        (&row["loaded_replicas"], &row["last_error"]),
        (&json!(3), &Value::Null)
    );
    adapted.answer("tiny:polite", None);
}
