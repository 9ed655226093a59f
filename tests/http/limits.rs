//! Limits of callers: exact under a crowd, told in headers, kept over a kill where they are of days.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::answers::CHAT;
use crate::support::client::{Request, Response};
use crate::support::{Server, until};

const SCRIPT: &str = "default = \"Hello.\"";

fn ask(key: &str) -> Request {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "scripted", "max_tokens": 8, "messages": messages});
    let request = Request::post(CHAT, &body);
    match key {
        "" => request,
        key => request.header("authorization", &format!("Bearer {key}")),
    }
}

fn number(response: &Response, name: &str) -> u64 {
    let value = response.header(name).unwrap_or_else(|| panic!("no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

/// Requests of 64 clients at once.
fn crowd(server: &Server, requests: Vec<Request>) -> Vec<Response> {
    assert_eq!(requests.len(), 64);
    let server = &server;
    std::thread::scope(|scope| {
        let asked = requests
            .iter()
            .map(|request| scope.spawn(|| server.send(request)));
        let asked: Vec<_> = asked.collect();
        asked
            .into_iter()
            .map(|asked| asked.join().expect("an answer"))
            .collect()
    })
}

/// Refusals tell the limit that refused, exactly.
fn check_refusals(answers: &[Response]) {
    for answer in answers.iter().filter(|answer| answer.status() == 429) {
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "rate_limit_exceeded");
        assert_eq!(number(answer, "x-ratelimit-remaining"), 0, "{error}");
        let limit = number(answer, "x-ratelimit-limit");
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains(&format!("{limit} requests per day")),
            "{message}"
        );
        // One flows in after a 17th, or a 40th, of a day, counted from the first withdrawal.
        let (wait, whole) = (number(answer, "retry-after"), 86_400 / limit);
        assert!(wait <= whole + 1 && wait + 60 >= whole, "{wait} of {whole}");
    }
}

fn allowed(answers: &[Response]) -> usize {
    answers
        .iter()
        .filter(|answer| answer.status() == 200)
        .count()
}

#[test]
fn feature_z3_t9_limits_are_exact_under_64_clients() {
    // Of a day, so that nothing flows back while the test runs: a 40th of it is half an hour.
    let server = Server::scripted(
        SCRIPT,
        "[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\nrequests_per_day = 17\n\
         [[auth.api_keys]]\nid = \"b\"\nkey = \"sk-b\"\ntenant = \"t\"\nrequests_per_day = 17\n\
         [[auth.api_keys]]\nid = \"c\"\nkey = \"sk-c\"\ntenant = \"t\"\n\
         [[auth.tenants]]\nname = \"t\"\nrequests_per_day = 40\n",
    );
    let answers = crowd(&server, (0..64).map(|_| ask("sk-a")).collect());
    assert_eq!(allowed(&answers), 17);
    check_refusals(&answers);
    // Two keys of a tenant share its 40, and one of them has 17 at most.
    let keys = (0..64).map(|index: usize| match index.is_multiple_of(2) {
        true => ask("sk-b"),
        false => ask("sk-c"),
    });
    let answers = crowd(&server, keys.collect());
    assert_eq!(allowed(&answers), 40);
    check_refusals(&answers);
    let of_b: Vec<Response> = answers.into_iter().step_by(2).collect();
    assert!((8..=17).contains(&allowed(&of_b)), "{}", allowed(&of_b));
}

#[test]
fn feature_z3_callers_without_a_key_have_limits_by_address() {
    let server = Server::scripted(
        SCRIPT,
        "[auth]\nanonymous = true\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
         denied_addresses = [\"203.0.113.0/24\"]\n\
         [auth.anonymous_limits]\nrequests_per_day = 2\n[server]\ncors_origins = [\"https://page.test\"]\n",
    );
    let from = |address: &str| server.send(&ask("").header("x-forwarded-for", address));
    for (address, status) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        // Whoever invents proxies before its own address is who it is.
        ("198.51.100.1, 192.0.2.1", 429),
        ("192.0.2.2", 200),
        ("203.0.113.7", 403),
    ] {
        let response = from(address);
        assert_eq!(response.status(), status, "{address}: {}", response.text());
    }
    let page = ask("").header("origin", "https://page.test");
    let read = server.send(&page.header("x-forwarded-for", "192.0.2.9"));
    let exposed = read
        .header("access-control-expose-headers")
        .expect("a list");
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        assert!(read.header(name).is_some(), "{name}");
        assert!(exposed.split(", ").any(|other| other == name), "{exposed}");
    }
}

#[test]
fn feature_q7_answers_at_once_are_counted_until_they_end() {
    let server = Server::scripted(
        "default = \"One two three four five six seven eight nine ten.\"\ntoken_delay_ms = 1000\n",
        "[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\nmax_concurrent = 2\n",
    );
    let stream = || {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let body = json!({"model": "scripted", "stream": true, "messages": messages});
        Request::post(CHAT, &body).header("authorization", "Bearer sk-a")
    };
    let begin = || {
        let mut stream = stream().begin(server.address());
        let head = stream.head();
        assert_eq!(head.status, 200);
        stream
    };
    let (first, second) = (begin(), begin());
    let refused = server.send(&stream());
    assert_eq!(
        (refused.status(), refused.header("retry-after")),
        (429, Some("1"))
    );
    let message = refused.json()["error"]["message"].clone();
    assert!(
        message
            .as_str()
            .is_some_and(|text| text.contains("2 answers under way")),
        "{message}"
    );
    // Lists and such are no answers.
    let list = Request::get("/v1/models").header("authorization", "Bearer sk-a");
    assert_eq!(server.send(&list).status(), 200);
    drop(first);
    until("the place of the stream that was left is free", || {
        let mut stream = stream().begin(server.address());
        stream.head().status == 200
    });
    drop(second);
}

/// Requests that a key has left today.
fn left(server: &Server) -> u64 {
    let list = Request::get("/v1/models").header("authorization", "Bearer sk-a");
    number(&server.send(&list), "x-ratelimit-remaining-requests-day")
}

fn counting(path: &Path) -> Server {
    let more = format!(
        "[store]\npath = {path:?}\n[[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\nrequests_per_day = 1000\n\
         max_concurrent = 50\n"
    );
    Server::scripted(SCRIPT, &more)
}

#[test]
fn feature_z3_counts_of_days_survive_sigkill_but_for_the_last_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let mut server = counting(&path);
    for _ in 0..5 {
        assert_eq!(server.send(&ask("sk-a")).status(), 200);
    }
    assert_eq!(left(&server), 994);
    until("the counts are written", || {
        holds(&path, "requests-day.key.a")
    });
    server.signal("KILL");
    server.wait();
    server = counting(&path);
    // Asking counts too. What flowed in meanwhile is one in 86 seconds.
    let after = left(&server);
    assert!((993..=999).contains(&after), "{after}");
    for _ in 0..3 {
        assert_eq!(server.send(&ask("sk-a")).status(), 200);
    }
    let before = left(&server);
    // A server that stops loses nothing.
    server.signal("TERM");
    server.wait();
    let server = counting(&path);
    let after = left(&server);
    assert!(
        after < before && after + 1 >= before,
        "{before} before, {after} after"
    );
    // Answers under way ended with the process, and are not kept.
    assert!(!holds(&path, "~answers"));
}

/// Whether a text stands in the file of a store, or in its log.
fn holds(path: &Path, text: &str) -> bool {
    let log = path.with_extension("db-wal");
    let files = [path.to_owned(), log].map(|file| std::fs::read(file).unwrap_or_default());
    let has = |bytes: &Vec<u8>| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    files.iter().any(has)
}

/// Hash that `mortise keys password` prints for a password.
pub(crate) fn hashed(password: &str) -> String {
    let mut child = Command::new(crate::support::binary())
        .args(["keys", "password"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run mortise");
    let mut input = child.stdin.take().expect("an input");
    writeln!(input, "{password}").expect("write the password");
    drop(input);
    let output = child.wait_with_output().expect("an end");
    String::from_utf8(output.stdout)
        .expect("a text")
        .trim()
        .to_owned()
}

#[test]
fn feature_e24_users_log_in_and_get_tokens() {
    let hash = hashed("sesame");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let user = format!(
        "[store]\npath = {path:?}\n[[auth.users]]\nname = \"ann\"\npassword_hash = \"{}\"\n\
         tenant = \"acme\"\nmodels = [\"scripted\"]\nrequests_per_day = 9\n",
        hash
    );
    let mut server = Server::scripted(SCRIPT, &user);
    let log_in = |server: &Server, body: Value| server.post("/api/v1/auth/login", &body);
    let right = || json!({"username": "ann", "password": "sesame"});
    let answer = log_in(&server, right());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let token = answer.ok()["token"].as_str().expect("a token").to_owned();
    let used = server.send(&ask(&token));
    assert_eq!(
        (
            used.status(),
            number(&used, "x-ratelimit-remaining-requests-day")
        ),
        (200, 8)
    );
    for (body, status, code) in [
        (
            json!({"username": "ann", "password": "Sesame"}),
            401,
            "UNAUTHORIZED",
        ),
        (
            json!({"username": "ben", "password": "sesame"}),
            401,
            "UNAUTHORIZED",
        ),
        (
            json!({"username": "ann", "password": ""}),
            401,
            "UNAUTHORIZED",
        ),
        (json!({"username": "ann"}), 400, "INVALID_REQUEST"),
        (
            json!({"username": "ann", "password": 1}),
            400,
            "INVALID_REQUEST",
        ),
        (
            json!({"username": "ann", "password": "sesame", "otp": "1"}),
            400,
            "INVALID_REQUEST",
        ),
    ] {
        let refused = log_in(&server, body);
        assert_eq!(refused.status(), status);
        assert_eq!(refused.json()["error"]["code"], code);
    }
    assert_eq!(
        server.send(&ask("")).status(),
        401,
        "a server with users is closed"
    );
    // The signing key is kept, so a token holds over a restart; tries do not.
    server.signal("KILL");
    server.wait();
    let server = Server::scripted(SCRIPT, &user);
    assert_eq!(server.send(&ask(&token)).status(), 200);
    let mut refused = None;
    for _ in 0..11 {
        let answer = log_in(&server, json!({"username": "ann", "password": "wrong"}));
        match answer.status() {
            401 => assert!(refused.is_none()),
            status => {
                assert_eq!(status, 429);
                refused = Some(answer);
            }
        }
    }
    let refused = refused.expect("the eleventh is one too many");
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "RATE_LIMIT_EXCEEDED");
    assert_eq!(
        error["retry_after_seconds"],
        number(&refused, "retry-after")
    );
    assert_eq!(
        log_in(&server, right()).status(),
        429,
        "the right password does not help"
    );
    let log = server.log().join("\n");
    assert!(!log.contains("sesame") && !log.contains(&token));
}
