//! Callers whom the host recognised, and limits of time, number and address.

use super::*;

/// The decision on a request by what the host says of the caller.
fn ask_as(settings: &str, host: &Ledger, identity: &str, headers: &[(&str, &str)]) -> Decision {
    let settings = Settings::parse(settings).unwrap();
    let all = [&[("mortise-identity", identity)], headers].concat();
    ask(&settings, host, &all, "qwen3")
}

#[test]
fn whom_the_host_recognised_has_the_terms_that_the_host_says() {
    let host = Ledger::default();
    let known = r#"{"caller": {"id": "issuer:ann", "kind": "token", "tenant": "acme",
        "terms": {"models": ["qwen*"], "requests_per_minute": 1, "priority": 2}}}"#;
    let allow = allowed(ask_as("{}", &host, known, &[]));
    assert_eq!(allow.subject, "issuer:ann");
    assert_eq!(allow.tenant.as_deref(), Some("acme"));
    assert_eq!(allow.priority, 2);
    let deny = denied(ask_as("{}", &host, known, &[]));
    assert_eq!((deny.status, deny.retry_after_ms), (429, Some(60_000)));
    for (identity, status, code) in [
        (
            r#"{"refused": {"status": 401, "code": "expired_token", "message": "m"}}"#,
            401,
            "expired_token",
        ),
        (
            r#"{"refused": {"status": 403, "code": "missing_scope", "message": "m"}}"#,
            403,
            "missing_scope",
        ),
        (r#"{"closed": true}"#, 401, "invalid_api_key"),
        ("{", 403, "unreadable_terms"),
        (
            r#"{"caller": {"id": "a", "kind": "key", "terms": {"no_such": 1}}}"#,
            403,
            "unreadable_terms",
        ),
        (
            r#"{"caller": {"id": "a", "kind": "key", "terms": {"max_concurrent": 0}}}"#,
            403,
            "unreadable_terms",
        ),
        (
            r#"{"caller": {"id": "a", "kind": "key", "terms": {"models": ["llama"]}}}"#,
            403,
            "model_not_allowed",
        ),
        (
            r#"{"caller": {"id": "a", "kind": "key", "terms": {"routes": ["/v1/models*"]}}}"#,
            403,
            "route_not_allowed",
        ),
        (
            r#"{"caller": {"id": "a", "kind": "key", "terms": {"environments": ["prod"]}}}"#,
            403,
            "environment_not_allowed",
        ),
    ] {
        let deny = denied(ask_as("{}", &host, identity, &[("x-api-key", "sk")]));
        assert_eq!(
            (deny.status, deny.code.as_str()),
            (status, code),
            "{identity}"
        );
    }
    let prod = r#"{"environment": "prod"}"#;
    let bound = r#"{"caller": {"id": "a", "kind": "key", "terms": {"environments": ["prod"]}}}"#;
    allowed(ask_as(prod, &host, bound, &[]));
    let open = r#"{"anonymous": {"allow": true}}"#;
    assert_eq!(
        allowed(ask_as(open, &host, r#"{"closed": true}"#, &[])).subject,
        "anonymous"
    );
}

#[test]
fn keys_end_and_pause() {
    let (now, digest) = (EPOCH_MS / 1_000, hex("sk-a"));
    for (field, code) in [
        (format!(r#""expires_at": {}"#, now + 1), None),
        (format!(r#""expires_at": {now}"#), Some("expired_api_key")),
        (r#""disabled": true"#.to_owned(), Some("disabled_api_key")),
    ] {
        let json = format!(r#"{{"keys": [{{"id": "a", "sha256": "{digest}", {field}}}]}}"#);
        let settings = Settings::parse(&json).unwrap();
        let headers = [("x-api-key", "sk-a")];
        match (ask(&settings, &Ledger::default(), &headers, "m"), code) {
            (Decision::Allow(_), None) => {}
            (Decision::Deny(deny), Some(code)) => {
                assert_eq!((deny.status, deny.code.as_str()), (401, code));
            }
            (decision, _) => panic!("{field}: {decision:?}"),
        }
    }
}

#[test]
fn answers_at_once_are_counted_and_come_back() {
    let settings = r#"{"keys": [], "tenants": [{"name": "acme", "max_concurrent": 3}]}"#;
    let host = Ledger::default();
    let known = |id: &str| {
        format!(
            r#"{{"caller": {{"id": "{id}", "kind": "key", "tenant": "acme", "terms": {{"max_concurrent": 2, "requests_per_minute": 9}}}}}}"#
        )
    };
    let (ann, ben) = (known("ann"), known("ben"));
    let first = allowed(ask_as(settings, &host, &ann, &[]));
    allowed(ask_as(settings, &host, &ann, &[]));
    let deny = denied(ask_as(settings, &host, &ann, &[]));
    assert_eq!((deny.status, deny.retry_after_ms), (429, Some(1_000)));
    assert!(
        deny.message.contains("`ann` has 2 answers under way"),
        "{}",
        deny.message
    );
    // What it took before it was refused is back.
    assert_eq!(header(&deny.headers, "x-ratelimit-remaining-requests"), "7");
    assert_eq!(host.level("requests.key.ann", 9, 60_000), 7.0);
    allowed(ask_as(settings, &host, &ben, &[]));
    let deny = denied(ask_as(settings, &host, &ben, &[]));
    assert!(
        deny.message.contains("the tenant of `ben` has 3 answers"),
        "{}",
        deny.message
    );
    decide::account(&host, first.lease.as_deref(), 5);
    allowed(ask_as(settings, &host, &ben, &[]));
}

#[test]
fn every_period_has_its_bucket_and_the_plain_headers_tell_the_tightest() {
    let terms = r#"{"caller": {"id": "a", "kind": "key", "terms": {"requests_per_second": 5,
        "requests_per_minute": 100, "requests_per_day": 4, "tokens_per_day": 2000, "max_tokens": 100}}}"#;
    let host = Ledger::default();
    let allow = allowed(ask_as("{}", &host, terms, &[]));
    for (name, value) in [
        ("x-ratelimit-limit-requests-second", "5"),
        ("x-ratelimit-remaining-requests", "99"),
        ("x-ratelimit-remaining-requests-day", "3"),
        ("x-ratelimit-reset-requests-day", "6h0m0s"),
        ("x-ratelimit-remaining-tokens-day", "1900"),
        ("x-ratelimit-limit", "4"),
        ("x-ratelimit-remaining", "3"),
        ("x-ratelimit-reset", "1800021600"),
    ] {
        assert_eq!(header(&allow.headers, name), value, "{name}");
    }
    for _ in 0..3 {
        allowed(ask_as("{}", &host, terms, &[]));
    }
    let deny = denied(ask_as("{}", &host, terms, &[]));
    assert_eq!(deny.retry_after_ms, Some(6 * 3_600_000));
    assert!(
        deny.message
            .contains("4 requests per day; try again in 6h0m0s"),
        "{}",
        deny.message
    );
    assert_eq!(header(&deny.headers, "x-ratelimit-remaining"), "0");
}

#[test]
fn anonymous_callers_are_limited_by_the_address_behind_the_proxies() {
    let json = r#"{"anonymous": {"allow": true, "requests_per_minute": 1},
        "trusted_proxies": ["10.0.0.0/8"], "denied_addresses": ["203.0.113.0/24"],
        "public_routes": ["*/models"]}"#;
    let settings = Settings::parse(json).unwrap();
    let host = Ledger::default();
    for (client, status) in [
        ("192.0.2.1", 0),
        ("192.0.2.1", 429),
        ("192.0.2.2", 0),
        ("203.0.113.9", 403),
    ] {
        match (
            ask(&settings, &host, &[("x-forwarded-for", client)], "m"),
            status,
        ) {
            (Decision::Allow(_), 0) => {}
            (Decision::Deny(deny), status) => assert_eq!(deny.status, status, "{client}"),
            (decision, _) => panic!("{client}: {decision:?}"),
        }
    }
    let only = Settings::parse(r#"{"allowed_addresses": ["192.0.2.0/24"]}"#).unwrap();
    let deny = denied(ask(&only, &host, &[], "m"));
    assert_eq!(
        (deny.status, deny.code.as_str()),
        (403, "address_not_allowed")
    );
}

proptest::proptest! {
    #[test]
    fn whatever_the_headers_hold_a_stranger_is_refused(name in "[a-z-]{1,16}", value in "\\PC{0,64}") {
        let settings = settings("");
        let decision = ask(&settings, &Ledger::default(), &[(&name, &value), ("authorization", &value)], "qwen3");
        let refused = matches!(decision, Decision::Deny(Deny { status: 401, .. }));
        proptest::prop_assert!(refused);
    }

    #[test]
    fn settings_never_panic(json in "\\PC{0,200}") {
        let _ = Settings::parse(&json);
    }
}

/// A ledger that notes what is asked of it.
#[derive(Default)]
struct Noted(RefCell<Vec<(String, u64, u64)>>);

impl Host for Noted {
    fn take_all(&self, withdrawals: &[Withdrawal<'_>]) -> Vec<Verdict> {
        let buckets = withdrawals
            .iter()
            .map(|one| (one.bucket.to_owned(), one.capacity, one.period_ms));
        self.0.borrow_mut().extend(buckets);
        let verdict = Verdict {
            allowed: true,
            remaining: 0,
            retry_after_ms: 0,
        };
        vec![verdict; withdrawals.len()]
    }

    fn adjust(&self, _: &str, _: i64, _: u64, _: u64) {
        panic!("no request has ended")
    }

    fn find_secret(&self, _: &str) -> Option<String> {
        panic!("the host recognised the caller")
    }

    fn now_ms(&self) -> u64 {
        EPOCH_MS
    }
}

#[test]
fn the_limits_that_are_told_are_those_that_a_request_takes_from() {
    let settings =
        r#"{"tenants": [{"name": "acme", "requests_per_minute": 7, "max_concurrent": 3}]}"#;
    let settings = Settings::parse(settings).unwrap();
    let terms = r#"{"models": ["qwen*"], "requests_per_second": 1, "requests_per_minute": 2, "requests_per_day": 3,
        "tokens_per_minute": 4, "tokens_per_day": 5, "max_concurrent": 6, "max_tokens": 9, "priority": 1}"#;
    for (tenant, id, count) in [
        (None, "ann", 6),
        (Some("acme"), "ann", 8),
        (Some("umbrella"), "issuer \u{fc}ber ann", 6),
    ] {
        let told = decide::quotas(
            &settings,
            "key".to_owned(),
            id.to_owned(),
            tenant.map(str::to_owned),
            terms,
        );
        let told = told.unwrap();
        let identity = format!(
            r#"{{"caller": {{"id": {id:?}, "kind": "key", "tenant": {}, "terms": {terms}}}}}"#,
            tenant.map_or("null".to_owned(), |tenant| format!("{tenant:?}"))
        );
        let noted = Noted::default();
        let headers = [("mortise-identity".to_owned(), identity)];
        let facts = Facts {
            route: "/v1/chat/completions",
            peer: "10.0.0.7",
            headers: &headers,
            model: Some("qwen3"),
            max_tokens: None,
            tools: &[],
            server_tools: &[],
        };
        allowed(decide::authorize(&settings, &noted, facts));
        let buckets = told
            .iter()
            .map(|quota| (quota.bucket.clone(), quota.capacity, quota.period_ms));
        assert_eq!(
            buckets.collect::<Vec<_>>(),
            noted.0.into_inner(),
            "{id} of {tenant:?}"
        );
        assert_eq!(told.len(), count);
        let shared = told
            .iter()
            .filter(|quota| quota.shared_by.as_deref() == Some("tenant acme"));
        assert_eq!(shared.count(), count - 6);
    }
    let told =
        |terms: &str| decide::quotas(&settings, "key".to_owned(), "ann".to_owned(), None, terms);
    let names: Vec<&str> = told(terms)
        .unwrap()
        .iter()
        .map(|quota| quota.name)
        .collect();
    let in_order = [
        "tokens_per_minute",
        "tokens_per_day",
        "requests_per_second",
        "requests_per_minute",
        "requests_per_day",
        "max_concurrent",
    ];
    assert_eq!(names, in_order);
    assert_eq!(told("{}").unwrap(), []);
    for wrong in ["{", r#"{"requests_per_day": 0}"#, r#"{"no_such": 1}"#] {
        assert!(
            told(wrong).unwrap_err().contains("cannot be read"),
            "{wrong}"
        );
    }
}
