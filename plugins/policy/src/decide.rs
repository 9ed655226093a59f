//! Decision on one request, and settlement of its reservation when it has ended.

use sha2::{Digest, Sha256};

use crate::glob;
use crate::settings::{Key, Limits, Proof, Settings};

/// All limits are per minute.
const PERIOD_MS: u64 = 60_000;
/// Bytes of a request body that are taken for one token of its prompt. English takes four, and JSON around
/// it makes the estimate a little too high.
const BYTES_PER_TOKEN: u64 = 4;
/// Tokens that are reserved for an answer whose length neither the request nor the key limits.
const DEFAULT_ANSWER_TOKENS: u64 = 1_024;
/// Ends of the route patterns whose answers have no generated tokens.
const WITHOUT_ANSWER: [&str; 7] = [
    "/embeddings",
    "/embed",
    "/embedding",
    "/rerank",
    "/score",
    "/tokenize",
    "/detokenize",
];
/// A credential longer than this is refused unread.
const MAX_CREDENTIAL_BYTES: usize = 4_096;

/// Host functions that the policy uses.
pub trait Host {
    /// `ledger.take`
    fn take(&self, bucket: &str, cost: u64, capacity: u64, period_ms: u64) -> Verdict;
    /// `ledger.adjust`
    fn adjust(&self, bucket: &str, delta: i64, capacity: u64, period_ms: u64);
    /// `secrets.find`
    fn find_secret(&self, candidate: &str) -> Option<String>;
}

/// `ledger.verdict`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The cost was taken.
    pub allowed: bool,
    /// Amount left.
    pub remaining: u64,
    /// Time until it could be taken; `u64::MAX` for never.
    pub retry_after_ms: u64,
}

/// The parts of `policy.facts` that this policy looks at.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Route pattern.
    pub route: &'a str,
    /// IP address of the peer.
    pub peer: &'a str,
    /// Headers, names in lower case.
    pub headers: &'a [(String, String)],
    /// The model asked for.
    pub model: Option<&'a str>,
    /// Limit on generated tokens over all choices, if the request set one.
    pub max_tokens: Option<u32>,
    /// Names of the functions that the caller declares.
    pub tools: &'a [String],
    /// Names of the server's tools that the request opts in to.
    pub server_tools: &'a [String],
}

/// `policy.decision`; this policy never abstains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on.
    Allow(Allow),
    /// The request ends here.
    Deny(Deny),
}

/// `policy.allow`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// Id of the key, or `anonymous`.
    pub subject: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Higher is served first.
    pub priority: i32,
    /// A tighter limit on generated tokens.
    pub max_tokens: Option<u32>,
    /// Of the functions that the caller declares, those that it may not.
    pub denied_tools: Vec<String>,
    /// Of the server's tools that the request opts in to, those that it may not use.
    pub denied_server_tools: Vec<String>,
    /// Response headers.
    pub headers: Vec<(String, String)>,
    /// The reservation: names the caller's buckets and the tokens that were taken; handed back to
    /// [`account`].
    pub lease: Option<String>,
}

/// `policy.deny`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deny {
    /// HTTP status.
    pub status: u16,
    /// `error.type`
    pub kind: &'static str,
    /// `error.code`
    pub code: &'static str,
    /// `error.message`
    pub message: String,
    /// Becomes `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Response headers.
    pub headers: Vec<(String, String)>,
}

/// A caller that has been recognised.
struct Caller<'a> {
    subject: &'a str,
    tenant: Option<&'a str>,
    limits: &'a Limits,
    /// Distinguishes its buckets: `key.ID` or `anonymous.PEER`.
    account: String,
}

/// Decide on a request.
pub fn authorize(settings: &Settings, host: &impl Host, facts: Facts<'_>) -> Decision {
    if settings
        .public_routes
        .iter()
        .any(|pattern| glob::matches(pattern, facts.route))
    {
        return Decision::Allow(Allow {
            subject: "anonymous".to_owned(),
            tenant: None,
            priority: 0,
            max_tokens: None,
            denied_tools: Vec::new(),
            denied_server_tools: Vec::new(),
            headers: Vec::new(),
            lease: None,
        });
    }
    let caller = match recognise(settings, host, facts) {
        Ok(caller) => caller,
        Err(deny) => return Decision::Deny(deny),
    };
    let reserved = estimate(caller.limits, facts);
    let checked = check_model(&caller, facts.model);
    match checked.and_then(|()| check_rates(&caller, host, reserved)) {
        Ok(headers) => Decision::Allow(Allow {
            subject: caller.subject.to_owned(),
            tenant: caller.tenant.map(str::to_owned),
            priority: caller.limits.priority,
            max_tokens: caller.limits.max_tokens,
            denied_tools: denied(&caller.limits.tools, facts.tools),
            denied_server_tools: denied(&caller.limits.server_tools, facts.server_tools),
            headers,
            lease: Some(format!("{reserved}@{}", caller.account)),
        }),
        Err(deny) => Decision::Deny(deny),
    }
}

/// Tokens to reserve for a request: what its prompt is estimated at, and the longest answer that it may get.
/// A request for more than a minute's tokens takes a full minute's, so that it is served when nothing else is.
fn estimate(limits: &Limits, facts: Facts<'_>) -> u64 {
    let Some(capacity) = limits.tokens_per_minute else {
        return 0;
    };
    if facts.model.is_none() {
        return 0;
    }
    let mut headers = facts.headers.iter();
    let length = headers.find(|(name, _)| name == "content-length");
    let bytes = length.and_then(|(_, value)| value.trim().parse::<u64>().ok());
    let prompt = bytes.unwrap_or(0).div_ceil(BYTES_PER_TOKEN);
    let answer = match (facts.max_tokens, limits.max_tokens) {
        _ if WITHOUT_ANSWER.iter().any(|end| facts.route.ends_with(end)) => 0,
        (Some(asked), Some(limit)) => u64::from(asked.min(limit)),
        (Some(limit), None) | (None, Some(limit)) => u64::from(limit),
        (None, None) => DEFAULT_ANSWER_TOKENS,
    };
    prompt.saturating_add(answer).clamp(1, capacity.max(1))
}

/// Settle the reservation of a finished request: charge what it used beyond, or give back what it did not.
pub fn account(settings: &Settings, host: &impl Host, lease: Option<&str>, tokens: u64) {
    let Some(lease) = lease else { return };
    // A lease of an earlier version of this policy reserved nothing.
    let (reserved, account) = match lease.split_once('@') {
        Some((reserved, account)) => (reserved.parse::<u64>().unwrap_or(0), account),
        None => (0, lease),
    };
    let limits = match account.split_once('.') {
        Some(("key", id)) => settings
            .keys
            .iter()
            .find(|key| key.id == id)
            .map(|key| &key.limits),
        Some(("anonymous", _)) => settings.anonymous.as_ref(),
        _ => None,
    };
    let capacity = limits.and_then(|limits| limits.tokens_per_minute);
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let delta = signed(tokens).saturating_sub(signed(reserved));
    if let (Some(capacity), true) = (capacity, delta != 0) {
        host.adjust(&format!("tokens.{account}"), delta, capacity, PERIOD_MS);
    }
}

fn recognise<'a>(
    settings: &'a Settings,
    host: &impl Host,
    facts: Facts<'_>,
) -> Result<Caller<'a>, Deny> {
    let credential = credential(facts.headers);
    if let (Some(credential), false) = (credential, settings.keys.is_empty()) {
        return match find_key(&settings.keys, host, credential) {
            Some(key) => Ok(Caller {
                subject: &key.id,
                tenant: key.tenant.as_deref(),
                limits: &key.limits,
                account: format!("key.{}", key.id),
            }),
            None => Err(unauthorized(
                "the API key is not known to this server; check the key you send",
            )),
        };
    }
    match &settings.anonymous {
        Some(limits) => Ok(Caller {
            subject: "anonymous",
            tenant: None,
            limits,
            account: format!("anonymous.{}", facts.peer),
        }),
        None => Err(unauthorized(
            "no API key was sent; send it as `Authorization: Bearer KEY`",
        )),
    }
}

/// The key that the caller sent, wherever the common clients put it.
fn credential(headers: &[(String, String)]) -> Option<&str> {
    let value = |name: &str| {
        headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    };
    let bearer = value("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer
        .filter(|key| !key.is_empty())
        .or_else(|| value("x-api-key"))
        .or_else(|| value("api-key"))
}

/// Every key is visited and every byte compared, so the time tells nothing about the keys.
fn find_key<'a>(keys: &'a [Key], host: &impl Host, credential: &str) -> Option<&'a Key> {
    if credential.len() > MAX_CREDENTIAL_BYTES {
        return None;
    }
    let digest: [u8; 32] = Sha256::digest(credential.as_bytes()).into();
    let by_secret = keys
        .iter()
        .any(|key| matches!(key.proof, Proof::Secret(_)))
        .then(|| host.find_secret(credential))
        .flatten();
    let mut found = None;
    for key in keys {
        let same = match &key.proof {
            Proof::Sha256(known) => equal(known, &digest),
            Proof::Secret(name) => by_secret.as_deref() == Some(name),
        };
        if same {
            found = Some(key);
        }
    }
    found
}

fn equal(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let difference = left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// The names that no pattern matches.
fn denied(patterns: &[String], names: &[String]) -> Vec<String> {
    let matched = |name: &&String| patterns.iter().any(|pattern| glob::matches(pattern, name));
    names
        .iter()
        .filter(|name| !matched(name))
        .cloned()
        .collect()
}

fn check_model(caller: &Caller<'_>, model: Option<&str>) -> Result<(), Deny> {
    let Some(model) = model else { return Ok(()) };
    let allowed = caller
        .limits
        .models
        .iter()
        .any(|pattern| glob::matches(pattern, model));
    if allowed {
        return Ok(());
    }
    Err(Deny {
        status: 403,
        kind: "permission_error",
        code: "model_not_allowed",
        message: format!(
            "`{}` may not use the model `{}`; ask the operator of this server to allow it",
            caller.subject,
            excerpt(model)
        ),
        retry_after_ms: None,
        headers: Vec::new(),
    })
}

/// Take the reserved tokens and one request. If there is no request left, the tokens go back.
fn check_rates(
    caller: &Caller<'_>,
    host: &impl Host,
    reserved: u64,
) -> Result<Vec<(String, String)>, Deny> {
    let mut headers = Vec::new();
    let rates = [
        ("tokens", reserved, caller.limits.tokens_per_minute),
        ("requests", 1, caller.limits.requests_per_minute),
    ];
    for (unit, cost, limit) in rates {
        let Some(limit) = limit else { continue };
        let bucket = format!("{unit}.{}", caller.account);
        let verdict = host.take(&bucket, cost, limit, PERIOD_MS);
        headers.extend(rate_headers(unit, limit, verdict));
        if !verdict.allowed {
            if let (Some(capacity), "requests", 1..) =
                (caller.limits.tokens_per_minute, unit, reserved)
            {
                let back = i64::try_from(reserved).map_or(i64::MIN, |tokens| -tokens);
                let bucket = format!("tokens.{}", caller.account);
                host.adjust(&bucket, back, capacity, PERIOD_MS);
            }
            return Err(limited(caller.subject, unit, limit, verdict, headers));
        }
    }
    Ok(headers)
}

fn rate_headers(unit: &str, limit: u64, verdict: Verdict) -> [(String, String); 3] {
    let missing = limit.saturating_sub(verdict.remaining);
    let full_in = u64::try_from(u128::from(missing) * u128::from(PERIOD_MS) / u128::from(limit))
        .unwrap_or(u64::MAX);
    let reset_ms = if verdict.allowed || verdict.retry_after_ms == u64::MAX {
        full_in
    } else {
        full_in.max(verdict.retry_after_ms)
    };
    [
        (format!("x-ratelimit-limit-{unit}"), limit.to_string()),
        (
            format!("x-ratelimit-remaining-{unit}"),
            verdict.remaining.to_string(),
        ),
        (format!("x-ratelimit-reset-{unit}"), duration(reset_ms)),
    ]
}

fn limited(
    subject: &str,
    unit: &str,
    limit: u64,
    verdict: Verdict,
    headers: Vec<(String, String)>,
) -> Deny {
    let retry_after_ms = (verdict.retry_after_ms != u64::MAX).then_some(verdict.retry_after_ms);
    let cure = match retry_after_ms {
        Some(ms) => format!("try again in {}", duration(ms)),
        None => "ask the operator of this server for a higher limit".to_owned(),
    };
    Deny {
        status: 429,
        kind: "rate_limit_error",
        code: "rate_limit_exceeded",
        message: format!("`{subject}` has used its {limit} {unit} per minute; {cure}"),
        retry_after_ms,
        headers,
    }
}

fn unauthorized(message: &str) -> Deny {
    Deny {
        status: 401,
        kind: "authentication_error",
        code: "invalid_api_key",
        message: message.to_owned(),
        retry_after_ms: None,
        headers: vec![("www-authenticate".to_owned(), "Bearer".to_owned())],
    }
}

/// `250ms`, `1.5s` or `2m5s`, as OpenAI writes durations.
fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m{}s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

/// The start of a name that a caller chose.
fn excerpt(name: &str) -> String {
    name.chars().take(64).filter(|c| !c.is_control()).collect()
}
