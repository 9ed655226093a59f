//! Headers and secrets that a policy is granted: keys as handles, ids as names.

use serde_json::{Value, json};

use crate::refused_with as refused;
use crate::support::Server;
use crate::support::client::Request;
use crate::support::example::every_kind as guest;

const CHAT: &str = "/v1/chat/completions";

const KEYS: &str = "[[auth.api_keys]]\nid = \"alice\"\nkey = \"alices-key\"\n\
     [[auth.api_keys]]\nid = \"ci-1\"\n\
     sha256 = \"ec654fac9599f62e79e2706abef23dfb7c07c08185aa86db4d8695f0b718d1b3\"\n";

/// The key that the digest above is of.
const CI_KEY: &str = "valid";

/// A binding of the guest as a policy, before which nothing is asked.
fn bound(more: &str) -> String {
    let file = guest();
    format!(
        "[plugins]\nwatch_ms = 0\n\
         [[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\nbreaker = {{ failures = 0 }}\n{more}\n{KEYS}"
    )
}

fn server(more: &str) -> Server {
    Server::scripted("default = \"The answer.\"", &bound(more))
}

/// Value that the guest sees in a header of a request with the headers `sent`, and the owner of the key that it takes
/// the value for.
fn seen(server: &Server, header: &str, sent: &[(&str, &str)]) -> (String, String) {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "scripted", "messages": messages});
    let request = Request::post(CHAT, &body).header("x-ask", &format!("header:{header}"));
    let request = sent.iter().fold(request, |request, (name, value)| {
        request.header(name, value)
    });
    let response = server.send(&request);
    assert_eq!(response.status(), 403, "{}", response.text());
    let error: Value = response.json()["error"].clone();
    let told = error["message"].as_str().expect("a message");
    let (value, owner) = told.rsplit_once(" of ").expect("both");
    (value.to_owned(), owner.to_owned())
}

#[test]
fn feature_w1_a_policy_without_a_grant_sees_no_key() {
    let server = server("");
    let sent = [
        ("authorization", "Bearer alices-key"),
        ("x-api-key", CI_KEY),
        ("x-team", "blue"),
    ];
    let (value, owner) = seen(&server, "authorization", &sent);
    let handle = value
        .strip_prefix("Bearer mortise-credential-")
        .expect("a handle");
    assert_eq!((handle.len(), owner.as_str()), (32, "alice"));
    let (value, owner) = seen(&server, "x-api-key", &sent);
    assert!(value.starts_with("mortise-credential-"), "{value}");
    assert_eq!(
        owner, "ci-1",
        "a key that is given by its digest is known too"
    );
    assert_eq!(seen(&server, "x-team", &sent).0, "blue");
    // The same key has the same handle; a key that nobody has is nobody's.
    let again = [("x-api-key", "alices-key")];
    let expected = (format!("mortise-credential-{handle}"), "alice".to_owned());
    assert_eq!(seen(&server, "x-api-key", &again), expected);
    let (value, owner) = seen(
        &server,
        "authorization",
        &[("authorization", "Bearer no-such")],
    );
    assert!(
        !value.contains("no-such") && owner == "nobody",
        "{value} {owner}"
    );
}

#[test]
fn feature_w1_headers_are_granted_by_name() {
    let server = server("headers = [\"X-Te*\", \"Authorization\", \"x-ask\"]");
    let sent = [
        ("authorization", "Bearer alices-key"),
        ("x-team", "blue"),
        ("x-other", "1"),
        ("cookie", "s=1"),
    ];
    let told = |header| seen(&server, header, &sent);
    assert_eq!(
        told("authorization"),
        ("Bearer alices-key".to_owned(), "alice".to_owned())
    );
    assert_eq!(told("x-team").0, "blue");
    assert_eq!(told("x-other").0, "absent");
    assert!(told("cookie").0.starts_with("mortise-credential-"));
}

#[test]
fn feature_w1_a_handle_is_worth_nothing_to_whoever_reads_it() {
    let plain = server("");
    let (value, _) = seen(&plain, "x-api-key", &[("x-api-key", "alices-key")]);
    let stolen = [("x-api-key", value.as_str())];
    assert_eq!(seen(&plain, "x-api-key", &stolen).1, "nobody");
    // Where the policy sees the header as it was sent, too.
    let raw = server("headers = [\"x-*\", \"x-api-key\", \"api-key\"]");
    assert_eq!(
        seen(&raw, "x-api-key", &[("x-api-key", "alices-key")]).1,
        "alice"
    );
    assert_eq!(seen(&raw, "x-api-key", &stolen).1, "nobody");
    let both = [stolen[0], ("cookie", "alices-key")];
    assert_eq!(seen(&plain, "x-api-key", &both).1, "nobody");
}

#[test]
fn feature_w1_secrets_are_granted_by_the_ids_of_keys() {
    let server = server("secrets = [\"ci-*\"]");
    let of = |key: &str| seen(&server, "x-api-key", &[("x-api-key", key)]).1;
    assert_eq!([of("alices-key"), of(CI_KEY)], ["nobody", "ci-1"]);
    let message = refused(&bound("secrets = [\"bob\"]"));
    assert!(
        message.contains("plugins.bindings[0].secrets[0]") && message.contains("`bob`"),
        "{message}"
    );
    let message = refused(&bound("headers = [\"x team\"]"));
    assert!(
        message.contains("plugins.bindings[0].headers[0]"),
        "{message}"
    );
}

#[test]
fn feature_w1_other_kinds_have_no_such_grants() {
    for key in ["secrets", "headers"] {
        let file = guest();
        let message = refused(&format!(
            "[plugins]\n[[plugins.bindings]]\nkind = \"tool\"\nfile = {file:?}\n{key} = []\n"
        ));
        assert!(
            message.contains(&format!("plugins.bindings[0].{key}")),
            "{message}"
        );
    }
}
