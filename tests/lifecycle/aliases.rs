//! Names that stand for models: switched, rolled back, and shared between two models.

use serde_json::{Value, json};

use crate::support::client::{Request, Response};
use crate::{Managed, asked, code, said, scripted};

fn two(more: &str) -> Managed {
    let (old, new) = (
        scripted("old", "default = \"old\"", ""),
        scripted("new", "default = \"new\"", ""),
    );
    Managed::start(&format!("{more}\n{old}{new}"))
}

fn put(managed: &Managed, name: &str, body: &Value) -> Response {
    let path = format!("/v1/admin/aliases/{name}");
    managed.ask(Request::post(&path, body).method("PUT"))
}

fn row(managed: &Managed, name: &str) -> Value {
    let path = format!("/v1/admin/aliases/{name}");
    managed.ask(Request::get(&path)).ok()
}

#[test]
fn feature_m2_z9_an_alias_is_switched_and_rolled_back_over_admin() {
    let managed = two("[[aliases]]\nname = \"prod\"\ntarget = \"old\"\n");
    assert_eq!(said(&managed.chat("prod")), "old");
    let model = managed.server.get("/v1/models/prod").ok();
    assert_eq!(
        (&model["id"], &model["root"]),
        (&json!("prod"), &json!("old"))
    );
    assert_eq!(
        put(&managed, "prod", &json!({"target": "new"})).status(),
        200
    );
    assert_eq!(said(&managed.chat("prod")), "new");
    let back = Request::raw("/v1/admin/aliases/prod/rollback", b"");
    assert_eq!(managed.ask(back).ok()["target"], "old");
    assert_eq!(said(&managed.chat("prod")), "old");
    let row = row(&managed, "prod");
    assert_eq!(row["previous"]["target"], "new");
    assert_eq!(row["targets"]["old"]["requests"], 2);
    assert_eq!(row["targets"]["new"]["requests"], 1);
    assert_eq!(row["targets"]["new"]["errors"], 0);
    let all = managed.ask(Request::get("/v1/admin/aliases")).ok();
    assert_eq!(all["data"][0]["name"], "prod");
    let path = "/v1/admin/aliases/prod";
    let removed = managed.ask(Request::get(path).method("DELETE"));
    assert_eq!(removed.ok()["deleted"], true);
    assert_eq!(code(&managed.chat("prod")).0, 404);
}

#[test]
fn feature_m2_a_wrong_alias_changes_nothing() {
    let managed = two("");
    for (name, body, refusal) in [
        ("prod", json!({"target": "nobody"}), (400, "unknown_model")),
        ("old", json!({"target": "new"}), (409, "name_in_use")),
        (
            "prod",
            json!({"target": "old", "canary": {"target": "new", "percent": 101}}),
            (400, "invalid_alias"),
        ),
        ("prod", json!({"goal": "old"}), (422, "invalid_alias")),
    ] {
        let response = put(&managed, name, &body);
        let (status, found) = code(&response);
        assert_eq!((status, found.as_str()), refusal, "{body}");
    }
    let back = Request::raw("/v1/admin/aliases/prod/rollback", b"");
    assert_eq!(code(&managed.ask(back)), (404, "unknown_alias".to_owned()));
    assert_eq!(
        put(&managed, "prod", &json!({"target": "old"})).status(),
        201
    );
    let back = Request::raw("/v1/admin/aliases/prod/rollback", b"");
    assert_eq!(
        code(&managed.ask(back)),
        (409, "no_previous_target".to_owned())
    );
}

#[test]
fn feature_m2_q8_z9_a_canary_gets_a_part_of_the_sessions_and_each_stays() {
    let managed = two("");
    let canary = json!({"target": "old", "canary": {"target": "new", "percent": 30}});
    assert_eq!(put(&managed, "prod", &canary).status(), 201);
    let answers = || {
        let sessions = (0..60).map(|number| {
            let mut body = asked("prod");
            body["fairness_key"] = json!(format!("session {number}"));
            said(&managed.server.post("/v1/chat/completions", &body))
        });
        sessions.collect::<Vec<String>>()
    };
    let first = answers();
    let new = first.iter().filter(|answer| *answer == "new").count();
    assert!((6..=30).contains(&new), "{new} of 60");
    assert_eq!(answers(), first, "each stays where it was");
    let row = row(&managed, "prod");
    assert_eq!(row["targets"]["new"]["requests"], 2 * new);
    assert_eq!(row["targets"]["old"]["requests"], 2 * (60 - new));
}

#[test]
fn feature_m2_z9_a_canary_gets_the_tenants_that_it_names() {
    let key = |id: &str| {
        format!("[[auth.api_keys]]\nid = \"{id}\"\nkey = \"key-of-{id}\"\ntenant = \"{id}\"\n")
    };
    let managed = two(&format!(
        "[[aliases]]\nname = \"prod\"\ntarget = \"old\"\n\
         canary = {{ target = \"new\", tenants = [\"lab\"] }}\n{}{}",
        key("lab"),
        key("shop")
    ));
    for (tenant, answer) in [("lab", "new"), ("shop", "old")] {
        let request = Request::post("/v1/chat/completions", &asked("prod"));
        let request = request.header("authorization", &format!("Bearer key-of-{tenant}"));
        assert_eq!(said(&managed.server.send(&request)), answer);
    }
}

#[test]
fn feature_m1_steps_of_the_resolution_can_be_switched() {
    let managed = two("[names]\ncase_insensitive = false\nsubstring = true\n");
    assert_eq!(said(&managed.chat("ol")), "old");
    assert_eq!(code(&managed.chat("OLDER")).0, 404);
    let managed = two("[names]\ncase_insensitive = false\n");
    assert_eq!(code(&managed.chat("OLD")).0, 404);
    assert_eq!(code(&managed.chat("ol")).0, 404);
    let managed = two("");
    assert_eq!(said(&managed.chat("OLD")), "old");
}

#[test]
fn feature_e5_m2_lists_have_aliases_with_what_they_stand_for() {
    let models = scripted("old", "default = \"old\"", "aliases = [\"stable\"]")
        + &scripted("new", "default = \"new\"", "hidden = true");
    let managed = Managed::start(&models);
    for (name, target) in [("prod", "old"), ("next", "new"), ("stable", "new")] {
        assert_eq!(
            put(&managed, name, &json!({"target": target})).status(),
            201
        );
    }
    let listed = managed.server.get("/v1/models").ok();
    let rows = listed["data"].as_array().expect("models").iter();
    let mut rows: Vec<(&str, &str)> = rows
        .map(|row| {
            let root = row["root"].as_str().unwrap_or("a model");
            (row["id"].as_str().expect("an id"), root)
        })
        .collect();
    rows.sort_unstable();
    // One name is one row, that of the model which requests get.
    let expected = [
        ("next", "new"),
        ("old", "a model"),
        ("prod", "old"),
        ("stable", "new"),
    ];
    assert_eq!(rows, expected);
    assert_eq!(said(&managed.chat("stable")), "new");
    let unknown = managed.chat("nobody");
    let message = unknown.json()["error"]["message"].to_string();
    for name in ["prod", "next", "stable"] {
        assert!(message.contains(name), "{name}: {message}");
    }
}

#[test]
fn feature_m1_aliases_are_found_regardless_of_case_where_models_are() {
    let managed = two("[[aliases]]\nname = \"Prod\"\ntarget = \"new\"\n");
    for name in ["Prod", "prod", "PROD"] {
        assert_eq!(said(&managed.chat(name)), "new", "{name}");
    }
    // What differs from two aliases in case is neither of them.
    assert_eq!(
        put(&managed, "prod", &json!({"target": "old"})).status(),
        201
    );
    assert_eq!(said(&managed.chat("prod")), "old");
    assert_eq!(code(&managed.chat("PROD")).0, 404);
    let exact =
        two("[names]\ncase_insensitive = false\n[[aliases]]\nname = \"Prod\"\ntarget = \"new\"\n");
    assert_eq!(code(&exact.chat("prod")).0, 404);
    for name in [" prod", "prod ", "%0A"] {
        let refused = put(
            &managed,
            &name.replace(' ', "%20"),
            &json!({"target": "old"}),
        );
        assert_eq!(
            code(&refused),
            (400, "invalid_alias".to_owned()),
            "{name:?}"
        );
    }
}

#[test]
fn feature_l4_an_alias_is_not_loaded_itself() {
    let managed = two("[[aliases]]\nname = \"prod\"\ntarget = \"old\"\n");
    for action in ["load", "unload"] {
        let refused = managed.act("prod", action, "");
        assert_eq!(code(&refused), (404, "unknown_model".to_owned()));
        assert!(
            refused.text().contains("alias of `old`"),
            "{}",
            refused.text()
        );
    }
}
