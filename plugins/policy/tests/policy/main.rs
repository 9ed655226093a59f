//! The policy against a ledger and secrets of our own.

mod callers;

use std::cell::RefCell;
use std::collections::HashMap;

use mortise_policy::decide::{self, Allow, Decision, Deny, Facts, Host, Verdict, Withdrawal};
use mortise_policy::settings::Settings;
use sha2::{Digest, Sha256};

/// Time of the test's beginning.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// Buckets that refill evenly by a clock that the test turns.
#[derive(Default)]
struct Ledger {
    now_ms: RefCell<f64>,
    buckets: RefCell<HashMap<String, (f64, f64)>>,
    secrets: HashMap<String, String>,
}

impl Ledger {
    fn wait(&self, ms: f64) {
        *self.now_ms.borrow_mut() += ms;
    }

    fn level(&self, bucket: &str, capacity: u64, period_ms: u64) -> f64 {
        let now = *self.now_ms.borrow();
        let mut buckets = self.buckets.borrow_mut();
        let full = capacity as f64;
        let (level, at) = buckets.entry(bucket.to_owned()).or_insert((full, now));
        *level = (*level + (now - *at) * full / period_ms as f64).min(full);
        *at = now;
        *level
    }
}

impl Ledger {
    /// Verdict on a withdrawal, which is not made. No two withdrawals are from one bucket.
    fn ask(&self, one: &Withdrawal<'_>) -> Verdict {
        let level = self.level(one.bucket, one.capacity, one.period_ms);
        let allowed = level >= one.cost as f64 && level >= 0.0;
        let missing = (one.cost as f64 - level).max(-level).max(0.0);
        Verdict {
            allowed,
            remaining: level.max(0.0) as u64,
            retry_after_ms: if allowed {
                0
            } else {
                (missing * one.period_ms as f64 / one.capacity as f64).ceil() as u64
            },
        }
    }
}

impl Host for Ledger {
    fn take_all(&self, withdrawals: &[Withdrawal<'_>]) -> Vec<Verdict> {
        let verdicts: Vec<Verdict> = withdrawals.iter().map(|one| self.ask(one)).collect();
        if verdicts.iter().any(|verdict| !verdict.allowed) {
            return verdicts;
        }
        let taken = withdrawals.iter().zip(verdicts).map(|(one, verdict)| {
            self.buckets.borrow_mut().get_mut(one.bucket).unwrap().0 -= one.cost as f64;
            Verdict {
                remaining: verdict.remaining - one.cost,
                ..verdict
            }
        });
        taken.collect()
    }

    fn adjust(&self, bucket: &str, delta: i64, capacity: u64, period_ms: u64) {
        self.level(bucket, capacity, period_ms);
        self.buckets.borrow_mut().get_mut(bucket).unwrap().0 -= delta as f64;
    }

    fn find_secret(&self, candidate: &str) -> Option<String> {
        self.secrets.get(candidate).cloned()
    }

    fn now_ms(&self) -> u64 {
        EPOCH_MS + *self.now_ms.borrow() as u64
    }
}

fn hex(key: &str) -> String {
    Sha256::digest(key.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn settings(extra: &str) -> Settings {
    let json = format!(
        r#"{{"keys": [
            {{"id": "team-a", "sha256": "{}", "tenant": "acme", "models": ["qwen*"],
              "requests_per_minute": 2, "tokens_per_minute": 100, "max_tokens": 64, "priority": 3}},
            {{"id": "team-b", "secret": "TEAM_B"}}
        ]{extra}}}"#,
        hex("sk-a").to_uppercase()
    );
    Settings::parse(&json).unwrap()
}

fn ask(settings: &Settings, host: &Ledger, headers: &[(&str, &str)], model: &str) -> Decision {
    let headers: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    decide::authorize(
        settings,
        host,
        Facts {
            route: "/v1/chat/completions",
            peer: "10.0.0.7",
            headers: &headers,
            model: Some(model),
            max_tokens: None,
            tools: &[],
            server_tools: &[],
        },
    )
}

fn allowed(decision: Decision) -> Allow {
    match decision {
        Decision::Allow(allow) => allow,
        Decision::Deny(deny) => panic!("denied: {deny:?}"),
    }
}

fn denied(decision: Decision) -> Deny {
    match decision {
        Decision::Deny(deny) => deny,
        Decision::Allow(allow) => panic!("allowed: {allow:?}"),
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers
        .iter()
        .find(|(header, _)| header == name)
        .map(|(_, value)| value.as_str())
        .unwrap_or_else(|| panic!("no header {name} in {headers:?}"))
}

#[test]
fn without_settings_everybody_is_anonymous() {
    let settings = Settings::parse("{}").unwrap();
    for headers in [&[][..], &[("authorization", "Bearer anything")]] {
        let allow = allowed(ask(&settings, &Ledger::default(), headers, "any"));
        assert_eq!(allow.subject, "anonymous");
        assert_eq!(allow.max_tokens, None);
        assert!(allow.headers.is_empty());
    }
}

#[test]
fn a_key_is_read_from_the_usual_headers() {
    let settings = settings("");
    for headers in [
        [("authorization", "Bearer sk-a")],
        [("authorization", "bearer   sk-a ")],
        [("x-api-key", "sk-a")],
        [("api-key", "sk-a")],
    ] {
        let allow = allowed(ask(&settings, &Ledger::default(), &headers, "qwen3"));
        assert_eq!(allow.subject, "team-a");
        assert_eq!(allow.tenant.as_deref(), Some("acme"));
        assert_eq!(allow.priority, 3);
        assert_eq!(allow.max_tokens, Some(64));
    }
}

#[test]
fn a_missing_or_wrong_key_is_401() {
    let settings = settings("");
    let long = "k".repeat(5_000);
    for headers in [
        &[][..],
        &[("authorization", "Bearer sk-wrong")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Basic sk-a")],
        &[("x-api-key", long.as_str())],
    ] {
        let deny = denied(ask(&settings, &Ledger::default(), headers, "qwen3"));
        assert_eq!(
            (deny.status, deny.kind, deny.code.as_str()),
            (401, "authentication_error", "invalid_api_key")
        );
        assert_eq!(header(&deny.headers, "www-authenticate"), "Bearer");
        assert!(
            !deny.message.contains("sk-wrong"),
            "keys stay out of messages"
        );
    }
}

#[test]
fn a_wrong_key_is_refused_even_where_anonymous_is_allowed() {
    let settings = settings(r#", "anonymous": {"allow": true, "requests_per_minute": 1}"#);
    let host = Ledger::default();
    assert_eq!(
        denied(ask(&settings, &host, &[("x-api-key", "no")], "m")).status,
        401
    );
    assert_eq!(
        allowed(ask(&settings, &host, &[], "m")).subject,
        "anonymous"
    );
    assert_eq!(denied(ask(&settings, &host, &[], "m")).status, 429);
}

#[test]
fn secrets_of_the_host_stand_for_keys() {
    let host = Ledger {
        secrets: HashMap::from([
            ("sk-b".to_owned(), "TEAM_B".to_owned()),
            ("sk-x".to_owned(), "OTHER".to_owned()),
        ]),
        ..Ledger::default()
    };
    let settings = settings("");
    let allow = allowed(ask(&settings, &host, &[("x-api-key", "sk-b")], "any"));
    assert_eq!(allow.subject, "team-b");
    assert_eq!(
        denied(ask(&settings, &host, &[("x-api-key", "sk-x")], "any")).status,
        401
    );
}

#[test]
fn models_are_limited_by_patterns() {
    let settings = settings("");
    let host = Ledger::default();
    let deny = denied(ask(&settings, &host, &[("x-api-key", "sk-a")], "llama"));
    assert_eq!(
        (deny.status, deny.kind, deny.code.as_str()),
        (403, "permission_error", "model_not_allowed")
    );
    assert!(deny.message.contains("`team-a`") && deny.message.contains("`llama`"));
}

#[test]
fn tools_are_limited_by_patterns() {
    let settings = Settings::parse(&format!(
        r#"{{"keys": [{{"id": "a", "sha256": "{}", "tools": ["get_*"], "server_tools": []}}]}}"#,
        hex("sk-a")
    ))
    .unwrap();
    let headers = [("x-api-key".to_owned(), "sk-a".to_owned())];
    let names =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let (tools, server_tools) = (names(&["get_weather", "rm", "get"]), names(&["calculate"]));
    let facts = Facts {
        route: "/v1/chat/completions",
        peer: "10.0.0.7",
        headers: &headers,
        model: Some("any"),
        max_tokens: None,
        tools: &tools,
        server_tools: &server_tools,
    };
    let allow = allowed(decide::authorize(&settings, &Ledger::default(), facts));
    assert_eq!(allow.denied_tools, ["rm", "get"]);
    assert_eq!(allow.denied_server_tools, ["calculate"]);

    let everybody = Settings::parse("{}").unwrap();
    let allow = allowed(decide::authorize(&everybody, &Ledger::default(), facts));
    assert!(allow.denied_tools.is_empty() && allow.denied_server_tools.is_empty());
}

#[test]
fn requests_run_out_and_come_back() {
    let settings = settings("");
    let host = Ledger::default();
    let headers = [("x-api-key", "sk-a")];
    let first = allowed(ask(&settings, &host, &headers, "qwen3"));
    assert_eq!(header(&first.headers, "x-ratelimit-limit-requests"), "2");
    assert_eq!(
        header(&first.headers, "x-ratelimit-remaining-requests"),
        "1"
    );
    assert_eq!(header(&first.headers, "x-ratelimit-reset-requests"), "30s");
    assert_eq!(header(&first.headers, "x-ratelimit-remaining-tokens"), "36");
    decide::account(&host, first.lease.as_deref(), 0);
    let second = allowed(ask(&settings, &host, &headers, "qwen3"));
    decide::account(&host, second.lease.as_deref(), 0);
    let deny = denied(ask(&settings, &host, &headers, "qwen3"));
    assert_eq!(
        (deny.status, deny.kind, deny.code.as_str()),
        (429, "rate_limit_error", "rate_limit_exceeded")
    );
    assert_eq!(deny.retry_after_ms, Some(30_000));
    assert_eq!(header(&deny.headers, "x-ratelimit-remaining-requests"), "0");
    // Waiting for requests took no tokens away.
    assert_eq!(host.level("tokens.key.team-a", 100, 60_000), 100.0);
    host.wait(30_000.0);
    allowed(ask(&settings, &host, &headers, "qwen3"));
}

#[test]
fn what_a_request_used_beyond_its_reservation_is_charged() {
    let settings = settings("");
    let host = Ledger::default();
    let headers = [("x-api-key", "sk-a")];
    let allow = allowed(ask(&settings, &host, &headers, "qwen3"));
    decide::account(&host, allow.lease.as_deref(), 150);
    let deny = denied(ask(&settings, &host, &headers, "qwen3"));
    assert_eq!(deny.status, 429);
    assert!(
        deny.message.contains("100 tokens per minute"),
        "{}",
        deny.message
    );
    assert_eq!(header(&deny.headers, "x-ratelimit-remaining-tokens"), "0");
    // Overdrawn by 50, and 64 are to be reserved. Waiting for tokens took no request away.
    assert_eq!(deny.retry_after_ms, Some(68_400));
    host.wait(68_401.0);
    let allow = allowed(ask(&settings, &host, &headers, "qwen3"));
    assert_eq!(
        header(&allow.headers, "x-ratelimit-remaining-requests"),
        "1"
    );
}

/// A key with this many tokens a minute, asked on a route with a body of `bytes`.
fn reserve(
    host: &Ledger,
    capacity: u64,
    route: &str,
    bytes: u64,
    max_tokens: Option<u32>,
) -> Decision {
    let json = format!(
        r#"{{"keys": [{{"id": "k", "sha256": "{}", "tokens_per_minute": {capacity}}}]}}"#,
        hex("sk-a")
    );
    let headers = [
        ("x-api-key".to_owned(), "sk-a".to_owned()),
        ("content-length".to_owned(), bytes.to_string()),
    ];
    let facts = Facts {
        route,
        peer: "10.0.0.7",
        headers: &headers,
        model: Some("any"),
        max_tokens,
        tools: &[],
        server_tools: &[],
    };
    decide::authorize(&Settings::parse(&json).unwrap(), host, facts)
}

#[test]
fn requests_at_once_get_no_more_than_a_minutes_tokens() {
    const CHAT: &str = "/v1/chat/completions";
    for max_tokens in [None, Some(1), Some(100), Some(300), Some(5_000)] {
        let host = Ledger::default();
        let leases: Vec<String> = (0..40)
            .filter_map(|_| match reserve(&host, 500, CHAT, 80, max_tokens) {
                Decision::Allow(allow) => allow.lease,
                Decision::Deny(deny) => {
                    assert_eq!(deny.status, 429);
                    None
                }
            })
            .collect();
        let reserved = 500.0 - host.level("tokens.key.k", 500, 60_000);
        assert!(
            !leases.is_empty() && reserved <= 500.0,
            "{max_tokens:?}: {reserved}"
        );
        // Each used less than it might have, and the rest is free again.
        for lease in &leases {
            decide::account(&host, Some(lease), 10);
        }
        let left = 500.0 - 10.0 * leases.len() as f64;
        assert_eq!(host.level("tokens.key.k", 500, 60_000), left);
        // A lease of another version settles nothing, and breaks nothing.
        decide::account(&host, Some("500@key.k"), 7);
        assert_eq!(host.level("tokens.key.k", 500, 60_000), left);
    }
}

#[test]
fn a_reservation_is_the_prompt_and_the_answer() {
    let left = |route: &str, bytes, max_tokens| {
        let allow = allowed(reserve(
            &Ledger::default(),
            10_000,
            route,
            bytes,
            max_tokens,
        ));
        let left = header(&allow.headers, "x-ratelimit-remaining-tokens").to_owned();
        10_000 - left.parse::<u64>().unwrap()
    };
    assert_eq!(left("/v1/chat/completions", 400, Some(50)), 150);
    assert_eq!(left("/v1/chat/completions", 400, None), 100 + 1_024);
    assert_eq!(left("/v1/embeddings", 401, None), 101);
    assert_eq!(
        left("/v1/embeddings", 0, None),
        1,
        "an overdrawn key embeds nothing"
    );
    assert_eq!(
        left("/v1/chat/completions", u64::MAX, Some(u32::MAX)),
        10_000
    );
}

#[test]
fn public_routes_need_no_key() {
    let settings = settings(r#", "public_routes": ["/v1/models*", "/v1/chat/completions"]"#);
    let allow = allowed(ask(&settings, &Ledger::default(), &[], "anything"));
    assert_eq!((allow.subject.as_str(), allow.lease), ("anonymous", None));
}

#[test]
fn settings_are_refused_with_key_and_field() {
    let digest = hex("k");
    for (json, expected) in [
        ("[]".to_owned(), "must be a table"),
        (r#"{"kyes": []}"#.to_owned(), "`kyes` is unknown"),
        (r#"{"keys": {}}"#.to_owned(), "`keys` must be an array"),
        (
            r#"{"keys": [{}]}"#.to_owned(),
            "`keys[0]` (id `?`): missing field `id`",
        ),
        (
            r#"{"keys": [{"id": "a"}]}"#.to_owned(),
            "`keys[0]` (id `a`): exactly one of `sha256` and `secret`",
        ),
        (
            r#"{"keys": [{"id": "a", "sha256": "12"}]}"#.to_owned(),
            "field `sha256` must be the 64 hexadecimal digits",
        ),
        (
            format!(r#"{{"keys": [{{"id": "a b", "sha256": "{digest}"}}]}}"#),
            "field `id` must be 1 to",
        ),
        (
            format!(r#"{{"keys": [{{"id": "a", "sha256": "{digest}", "rpm": 1}}]}}"#),
            "unknown field `rpm`",
        ),
        (
            format!(r#"{{"keys": [{{"id": "a", "sha256": "{digest}", "max_tokens": 0}}]}}"#),
            "field `max_tokens` must be at least 1",
        ),
        (
            format!(
                r#"{{"keys": [{{"id": "a", "sha256": "{digest}"}}, {{"id": "a", "secret": "S"}}]}}"#
            ),
            "`keys[1]` (id `a`): field `id` is used",
        ),
        (
            format!(
                r#"{{"keys": [{{"id": "a", "sha256": "{digest}"}}, {{"id": "b", "sha256": "{digest}"}}]}}"#
            ),
            "`keys[1]` (id `b`): an earlier key",
        ),
        (
            r#"{"anonymous": {}}"#.to_owned(),
            "`anonymous`: missing field `allow`",
        ),
        (
            r#"{"anonymous": {"allow": true, "models": [""]}}"#.to_owned(),
            "`anonymous`: field `models` holds a pattern of 0 bytes",
        ),
        (r#"{"public_routes": "x"}"#.to_owned(), "`public_routes`"),
        (
            r#"{"trusted_proxies": ["10.0.0.0/33"]}"#.to_owned(),
            "`trusted_proxies`: \"10.0.0.0/33\" is neither",
        ),
        (
            r#"{"tenants": [{"name": "a"}, {"name": "a"}]}"#.to_owned(),
            "`tenants`: `a` is there twice",
        ),
        (
            r#"{"tenants": [{"name": "a", "max_concurrent": 0}]}"#.to_owned(),
            "`tenants`: field `max_concurrent` must be at least 1",
        ),
    ] {
        let error = Settings::parse(&json).unwrap_err().to_string();
        assert!(error.contains(expected), "{json}\n{error}\n{expected}");
    }
}

/// The names between backquotes in a refusal of a name, without that name.
fn known_names(settings: &str) -> Vec<String> {
    let refusal = Settings::parse(settings).unwrap_err().to_string();
    let quoted = refusal.split('`').skip(1).step_by(2);
    let mut names: Vec<String> = quoted.map(str::to_owned).collect();
    let unknown = names.iter().position(|name| name == "no_such_name");
    names.drain(..=unknown.unwrap());
    names.sort();
    names
}

#[test]
fn the_schema_knows_the_names_that_are_read() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../settings.schema.json")).unwrap();
    for (settings, place) in [
        (r#"{"no_such_name": 1}"#, ""),
        (
            r#"{"keys": [{"no_such_name": 1}]}"#,
            "/properties/keys/items",
        ),
        (
            r#"{"tenants": [{"no_such_name": 1}]}"#,
            "/properties/tenants/items",
        ),
        (
            r#"{"anonymous": {"no_such_name": 1}}"#,
            "/properties/anonymous",
        ),
    ] {
        let part = schema.pointer(place).unwrap();
        assert_eq!(part["additionalProperties"], false, "{place}");
        let mut names: Vec<String> = part["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        names.sort();
        assert_eq!(names, known_names(settings), "{place}");
    }
}
