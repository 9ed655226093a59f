//! Tokens of issuers that the server trusts: made by PyJWT (`tests/tokens`), good ones and all kinds of bad ones; keys
//! that rotate, and a server of keys that is down.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::Server;
use crate::support::client::{Request, Response};

const SCRIPT: &str = "default = \"Hello.\"";

fn data() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tokens/tokens.json");
    let text = std::fs::read_to_string(path).expect("read the tokens");
    serde_json::from_str(&text).expect("JSON")
}

fn ask(server: &Server, token: &str) -> Response {
    let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]});
    let request = Request::post(CHAT, &body);
    server.send(&request.header("authorization", &format!("Bearer {token}")))
}

fn code(response: &Response) -> (u16, String) {
    let code = response.json()["error"]["code"].as_str().map(str::to_owned);
    (response.status(), code.unwrap_or_default())
}

/// Configuration of the issuer of the tokens, whose keys come from `keys`.
fn issuer(keys: &str) -> String {
    format!(
        "[[auth.jwt]]\nissuer = \"https://issuer.test\"\naudience = [\"mortise\"]\n{keys}\n\
         algorithms = [\"RS256\", \"PS256\", \"ES256\", \"ES384\", \"EdDSA\"]\n\
         required_claims = {{ org = \"one\" }}\ntenant_claim = \"tid\"\n\
         [[auth.jwt.grants]]\nscope = \"chat\"\nrequests_per_minute = 1000\nmodels = [\"scripted\"]\n"
    )
}

#[test]
fn feature_z1_tokens_are_taken_that_hold_and_no_others() {
    let data = data();
    let folder = tempfile::tempdir().expect("a folder");
    let (keys, secret) = (folder.path().join("jwks.json"), &data["shared"]["secret"]);
    std::fs::write(&keys, data["jwks"].to_string()).expect("write the keys");
    let shared = "[[auth.jwt]]\nissuer = \"https://shared.test\"\naudience = [\"mortise\"]\n\
                  secret_env = \"MORTISE_TEST_SHARED\"\n";
    let model = crate::support::model::byte_level();
    let config = issuer(&format!("jwks_file = {keys:?}"))
        + shared
        + &format!(
            "[[models]]\nname = \"scripted\"\npath = {model:?}\nbackend = \"scripted\"\n\
             [models.script]\n{SCRIPT}\n"
        );
    let secret = Path::new(secret.as_str().expect("a secret"));
    let server = Server::configured_with(&config, &[("MORTISE_TEST_SHARED", secret)]);
    for case in data["cases"].as_array().expect("cases") {
        let response = ask(&server, case["token"].as_str().expect("a token"));
        let (status, code) = code(&response);
        assert_eq!(
            u64::from(status),
            case["status"],
            "{}: {}",
            case["name"],
            response.text()
        );
        assert_eq!(
            code,
            case["code"].as_str().expect("a code"),
            "{}",
            case["name"]
        );
        if status == 200 {
            assert_eq!(response.header("x-ratelimit-limit-requests"), Some("1000"));
        }
    }
    let token = |name: &str| data["shared"][name].as_str().expect("a token");
    assert_eq!(ask(&server, token("token")).status(), 200);
    assert_eq!(
        code(&ask(&server, token("wrong"))),
        (401, "invalid_token".to_owned())
    );
    // Whoever sends nothing is nobody, and nobody can say that the host had recognised them.
    let forged = json!({"caller": {"id": "root", "kind": "key", "terms": {}}}).to_string();
    let forged = Request::get("/v1/models").header("mortise-identity", &forged);
    assert_eq!(
        code(&server.send(&forged)),
        (401, "invalid_api_key".to_owned())
    );
}

/// A server of keys: what it says, and how often it was asked.
struct KeyServer {
    url: String,
    says: Arc<Mutex<Option<Value>>>,
    asked: Arc<AtomicUsize>,
}

impl KeyServer {
    fn start(says: Option<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/jwks", listener.local_addr().expect("an address"));
        let (says, asked) = (Arc::new(Mutex::new(says)), Arc::<AtomicUsize>::default());
        let (answers, count) = (Arc::clone(&says), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut request = [0; 2048];
                let _ = stream.read(&mut request);
                count.fetch_add(1, Ordering::Relaxed);
                let (status, body) = match &*answers.lock().expect("lock") {
                    Some(keys) => ("200 OK", keys.to_string()),
                    None => ("503 Service Unavailable", String::new()),
                };
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        Self { url, says, asked }
    }
}

#[test]
fn feature_z1_keys_of_an_issuer_are_kept_and_asked_for_again_within_bounds() {
    let data = data();
    let good = data["cases"][0]["token"].as_str().expect("a token");
    let next = data["rotated"]["token"].as_str().expect("a token");
    let keys = KeyServer::start(Some(data["jwks"].clone()));
    let server = Server::scripted(SCRIPT, &issuer(&format!("jwks_url = {:?}", keys.url)));
    for _ in 0..3 {
        assert_eq!(ask(&server, good).status(), 200);
    }
    assert_eq!(keys.asked.load(Ordering::Relaxed), 1, "the keys are kept");
    // A flood of tokens that name unknown keys asks no more often than may be, and what is known goes on.
    for _ in 0..20 {
        assert_eq!(
            code(&ask(&server, next)),
            (401, "unknown_token_key".to_owned())
        );
    }
    assert_eq!(keys.asked.load(Ordering::Relaxed), 1);
    *keys.says.lock().expect("lock") = None;
    assert_eq!(ask(&server, good).status(), 200, "an outage ends nothing");
    // After the time between two readings, a key that is new is found at once.
    *keys.says.lock().expect("lock") = Some(data["rotated"]["jwks"].clone());
    crate::support::until("the new key is read", || ask(&server, next).status() == 200);
    assert_eq!(keys.asked.load(Ordering::Relaxed), 2);
    assert_eq!(
        code(&ask(&server, good)),
        (401, "unknown_token_key".to_owned())
    );
}

#[test]
fn feature_z1_without_an_issuers_keys_nobody_is_let_in() {
    let data = data();
    let good = data["cases"][0]["token"].as_str().expect("a token");
    let keys = KeyServer::start(None);
    let more = "[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\n";
    let server = Server::scripted(
        SCRIPT,
        &(issuer(&format!("jwks_url = {:?}", keys.url)) + more),
    );
    for _ in 0..3 {
        let response = ask(&server, good);
        assert_eq!(code(&response), (503, "identity_unavailable".to_owned()));
        assert_eq!(response.header("retry-after"), Some("10"));
    }
    assert_eq!(keys.asked.load(Ordering::Relaxed), 1);
    assert_eq!(ask(&server, "sk-a").status(), 200, "keys need no issuer");
}
