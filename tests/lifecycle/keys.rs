//! Issued keys: made over admin and by the command line, in force at once, kept over SIGKILL, told once.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Server;
use crate::support::client::{Request, Response};
use crate::{KEY, Managed, asked, code, scripted};

const KEYS: &str = "/v1/admin/keys";

fn managed(more: &str) -> Managed {
    let says = "default = \"Hello.\"";
    let models = scripted("one", says, "") + &scripted("two", says, "");
    Managed::start(&format!("{more}\n{models}"))
}

/// A key with these terms; its secret.
fn create(managed: &Managed, body: &Value) -> String {
    let created = managed.ask(Request::post(KEYS, body));
    assert_eq!(created.status(), 201, "{}", created.text());
    let secret = created.json()["key"].as_str().map(str::to_owned);
    secret.expect("a secret")
}

fn change(managed: &Managed, path: &str, method: &str, body: &Value) -> Value {
    let request = Request::post(&format!("{KEYS}/{path}"), body).method(method);
    managed.ask(request).ok()
}

fn chat(server: &Server, key: &str, model: &str) -> Response {
    let request = Request::post("/v1/chat/completions", &asked(model));
    server.send(&request.header("authorization", &format!("Bearer {key}")))
}

fn is(response: &Response, status: u16, expected: &str) {
    assert_eq!(code(response), (status, expected.to_owned()));
}

#[test]
fn feature_z1_a_key_is_in_force_rotated_disabled_and_revoked_at_once() {
    let managed = managed("");
    let server = &managed.server;
    assert_eq!(managed.chat("one").status(), 200, "no key, no guard");
    let terms = json!({"models": ["one"], "requests_per_minute": 100});
    let first = create(
        &managed,
        &json!({"id": "ann", "tenant": "acme", "terms": terms}),
    );
    assert!(
        first.starts_with("sk-mortise-") && first.len() > 50,
        "{first}"
    );
    is(&managed.chat("one"), 401, "invalid_api_key");
    assert_eq!(chat(server, &first, "one").status(), 200);
    is(&chat(server, &first, "two"), 403, "model_not_allowed");
    is(
        &chat(server, &format!("{first}x"), "one"),
        401,
        "invalid_api_key",
    );

    let rotated = change(
        &managed,
        "ann/rotate",
        "POST",
        &json!({"overlap_seconds": 3600}),
    );
    let second = rotated["key"].as_str().expect("a secret").to_owned();
    assert_eq!(rotated["secrets"], 2);
    assert_eq!(chat(server, &first, "one").status(), 200, "the overlap");
    let rotated = change(&managed, "ann/rotate", "POST", &json!({}));
    let third = rotated["key"].as_str().expect("a secret").to_owned();
    for old in [&first, &second] {
        is(&chat(server, old, "one"), 401, "expired_api_key");
    }
    // What was used before the rotation counts: the limit is the key's, not the secret's.
    let counted = chat(server, &third, "one");
    assert_eq!(counted.header("x-ratelimit-remaining-requests"), Some("97"));

    let body = json!({"tenant": "acme", "disabled": true, "terms": {"models": ["two"]}});
    assert_eq!(change(&managed, "ann", "PUT", &body)["state"], "disabled");
    is(&chat(server, &third, "two"), 401, "disabled_api_key");
    let body = json!({"tenant": "acme", "terms": {"models": ["two"], "routes": ["*/models"]}});
    assert_eq!(change(&managed, "ann", "PUT", &body)["state"], "active");
    is(&chat(server, &third, "two"), 403, "route_not_allowed");
    let body = json!({"expires_at": 1});
    assert_eq!(change(&managed, "ann", "PUT", &body)["state"], "expired");
    is(&chat(server, &third, "two"), 401, "expired_api_key");
    change(&managed, "ann", "PUT", &json!({}));
    assert_eq!(chat(server, &third, "two").status(), 200);
    assert_eq!(
        change(&managed, "ann/revoke", "POST", &json!({}))["state"],
        "revoked"
    );
    is(&chat(server, &third, "two"), 401, "revoked_api_key");
    let again = Request::post(&format!("{KEYS}/ann/rotate"), &json!({}));
    is(&managed.ask(again), 409, "key_revoked");
    let log = managed.server.log().join("\n");
    let list = managed.ask(Request::get(KEYS)).text();
    for secret in [&first, &second, &third] {
        assert!(!log.contains(secret.as_str()) && !list.contains(secret.as_str()));
    }
}

#[test]
fn feature_z1_wishes_for_keys_are_refused_by_field() {
    let managed = managed("");
    create(&managed, &json!({"id": "ann"}));
    for (body, status, code) in [
        (json!({"id": "ann"}), 409, "key_exists"),
        (json!({"id": "a b"}), 400, "invalid_key"),
        (json!({"id": ""}), 400, "invalid_key"),
        (json!({"id": "b", "tenant": "a/b"}), 400, "invalid_key"),
        (
            json!({"id": "b", "terms": {"max_tokens": 0}}),
            400,
            "invalid_key",
        ),
        (
            json!({"id": "b", "terms": {"models": [""]}}),
            400,
            "invalid_key",
        ),
        (json!({"id": "b", "terms": {"rpm": 1}}), 422, "invalid_key"),
        (json!({"id": "b", "key": "mine"}), 422, "invalid_key"),
        (json!({}), 422, "invalid_key"),
    ] {
        let response = managed.ask(Request::post(KEYS, &body));
        is(&response, status, code);
    }
    let overlap = json!({"overlap_seconds": 2_592_001});
    let long = Request::post(&format!("{KEYS}/ann/rotate"), &overlap);
    is(&managed.ask(long), 400, "invalid_key");
    // The key of a caller opens no door of the admin side.
    let secret = create(&managed, &json!({"id": "ben"}));
    for path in [KEYS, "/v1/admin/keys/ann", "/v1/admin/models"] {
        let request = Request::get(path).header("authorization", &format!("Bearer {secret}"));
        assert_eq!(request.send(&managed.admin).status(), 403);
    }
}

/// Output of `mortise keys …`, and whether it succeeds.
fn keys(arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let output = Command::new(crate::support::binary())
        .arg("keys")
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("run mortise");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).trim().to_owned(),
    )
}

#[test]
fn feature_z1_keys_survive_sigkill_and_are_changed_with_and_without_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let store = path.to_str().expect("a path in UTF-8");
    let (made, offline) = keys(
        &[
            "create",
            "offline",
            "--store",
            store,
            "--set",
            "models=[\"one\"]",
        ],
        &[],
    );
    assert!(made && offline.starts_with("sk-mortise-"), "{offline}");
    let config = format!("[store]\npath = {path:?}\n");
    let mut first = managed(&config);
    assert_eq!(chat(&first.server, &offline, "one").status(), 200);
    let (changed, refusal) = keys(&["revoke", "offline", "--store", store], &[]);
    assert!(!changed && refusal.contains("--admin-url"), "{refusal}");

    let url = format!("http://{}", first.admin);
    let online = ["--admin-url", &url, "--admin-key-env", "ADMIN_KEY"];
    let ask = |arguments: &[&str]| keys(&[arguments, &online].concat(), &[("ADMIN_KEY", KEY)]);
    let (made, secret) = ask(&[
        "create",
        "online",
        "--tenant",
        "acme",
        "--expires-in",
        "3600",
    ]);
    assert!(made, "{secret}");
    assert_eq!(chat(&first.server, &secret, "two").status(), 200);
    assert!(ask(&["revoke", "offline"]).0);
    is(
        &chat(&first.server, &offline, "one"),
        401,
        "revoked_api_key",
    );
    first.server.signal("KILL");
    first.server.wait();

    let bytes = ["state.db", "state.db-wal"].map(|name| std::fs::read(folder.path().join(name)));
    for bytes in bytes.into_iter().flatten() {
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "the secret stands in the file");
    }
    let second = managed(&config);
    assert_eq!(chat(&second.server, &secret, "two").status(), 200);
    is(
        &chat(&second.server, &offline, "one"),
        401,
        "revoked_api_key",
    );
    drop(second);
    let (listed, rows) = keys(&["list", "--store", store], &[]);
    assert!(
        listed && rows.contains("online") && rows.contains("revoked"),
        "{rows}"
    );
    let (rotated, third) = keys(&["rotate", "online", "--store", store], &[]);
    assert!(rotated && third != secret, "{third}");
}
