//! Withdrawals of a request from the buckets of its caller and its tenant, their headers, and the settlement when the
//! request has ended.

use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::settings::{Rates, Settings};
use crate::wit::{Deny, Facts, Host, Verdict, Withdrawal};

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
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

/// Unit that a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Requests,
    Tokens,
    /// Answers under way.
    Answers,
}

/// One withdrawal.
struct Draw {
    unit: Unit,
    /// End of the names of its headers, such as `requests` or `tokens-day`.
    name: &'static str,
    /// The period in words, such as ` per minute`.
    per: &'static str,
    bucket: String,
    cost: u64,
    capacity: u64,
    period_ms: u64,
}

/// Withdrawals of an allowed request, as they are handed back to the policy when it has ended.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Lease {
    /// Buckets of tokens, with what was reserved there.
    tokens: Vec<Held>,
    /// Buckets of answers under way.
    answers: Vec<Held>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Held {
    bucket: String,
    cost: u64,
    capacity: u64,
    period_ms: u64,
}

/// Headers of an allowed request, and its lease.
pub(crate) struct Taken {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) lease: Option<String>,
}

/// Take all that a request costs, or nothing.
pub(crate) fn take(
    settings: &Settings,
    host: &impl Host,
    caller: &Caller,
    facts: Facts<'_>,
) -> Result<Taken, Deny> {
    let draws = draws(settings, caller, facts);
    let withdrawals = draws.iter().map(|draw| Withdrawal {
        bucket: &draw.bucket,
        cost: draw.cost,
        capacity: draw.capacity,
        period_ms: draw.period_ms,
    });
    let withdrawals: Vec<Withdrawal<'_>> = withdrawals.collect();
    let mut verdicts = match withdrawals.is_empty() {
        true => Vec::new(),
        false => host.take_all(&withdrawals),
    };
    let refused = draws.iter().zip(&verdicts).enumerate();
    let refused = refused
        .into_iter()
        .find(|(_, (_, verdict))| !verdict.allowed);
    if let Some((at, (draw, verdict))) = refused {
        let verdict = *verdict;
        // Limits behind the one that refuses are not told of.
        verdicts.truncate(at + 1);
        let headers = headers(&draws, &verdicts, Some(at), host.now_ms());
        return Err(limited(&caller.subject, draw, verdict, headers));
    }
    Ok(Taken {
        headers: headers(&draws, &verdicts, None, host.now_ms()),
        lease: lease(draws),
    })
}

/// Settle the withdrawals of a request that has ended: charge what it used beyond its reservation, or give back what
/// it did not, and free its places.
pub(crate) fn settle(host: &impl Host, lease: &str, tokens: u64) {
    // A lease of an earlier version of this policy cannot be read, and what it reserved stays spent.
    let Ok(lease) = serde_json::from_str::<Lease>(lease) else {
        return;
    };
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let tokens = lease
        .tokens
        .iter()
        .map(|held| (held, signed(tokens).saturating_sub(signed(held.cost))));
    let answers = lease.answers.iter().map(|held| (held, -signed(held.cost)));
    for (held, delta) in tokens.chain(answers).filter(|(_, delta)| *delta != 0) {
        host.adjust(&held.bucket, delta, held.capacity, held.period_ms);
    }
}

fn lease(draws: Vec<Draw>) -> Option<String> {
    let mut lease = Lease::default();
    for draw in draws {
        let held = Held {
            bucket: draw.bucket,
            cost: draw.cost,
            capacity: draw.capacity,
            period_ms: draw.period_ms,
        };
        match draw.unit {
            Unit::Requests => {}
            Unit::Tokens => lease.tokens.push(held),
            Unit::Answers => lease.answers.push(held),
        }
    }
    let empty = lease.tokens.is_empty() && lease.answers.is_empty();
    (!empty).then(|| serde_json::to_string(&lease).unwrap_or_default())
}

/// The withdrawals of a request, those of its key first, then those of its tenant.
fn draws(settings: &Settings, caller: &Caller, facts: Facts<'_>) -> Vec<Draw> {
    let tenant = caller.tenant.as_deref();
    let tenant = tenant.and_then(|name| {
        let limits = settings.tenants.iter().find(|tenant| tenant.name == name)?;
        Some((format!("tenant.{name}"), &limits.rates))
    });
    let own = (caller.account.clone(), &caller.limits.rates);
    let tokens = estimate(caller.limits.max_tokens, facts);
    let mut draws = Vec::new();
    for (account, rates) in std::iter::once(own).chain(tenant) {
        of_account(&account, rates, tokens, facts.model.is_some(), &mut draws);
    }
    draws
}

fn of_account(account: &str, rates: &Rates, tokens: u64, answers: bool, draws: &mut Vec<Draw>) {
    let limits = [
        (
            Unit::Tokens,
            "tokens",
            " per minute",
            rates.tokens_per_minute,
            MINUTE_MS,
        ),
        (
            Unit::Tokens,
            "tokens-day",
            " per day",
            rates.tokens_per_day,
            DAY_MS,
        ),
        (
            Unit::Requests,
            "requests-second",
            " per second",
            rates.requests_per_second,
            SECOND_MS,
        ),
        (
            Unit::Requests,
            "requests",
            " per minute",
            rates.requests_per_minute,
            MINUTE_MS,
        ),
        (
            Unit::Requests,
            "requests-day",
            " per day",
            rates.requests_per_day,
            DAY_MS,
        ),
        (
            Unit::Answers,
            "~answers",
            " at once",
            rates.max_concurrent,
            0,
        ),
    ];
    for (unit, name, per, limit, period_ms) in limits {
        let Some(capacity) = limit else { continue };
        let (cost, period_ms) = match unit {
            Unit::Requests => (1, period_ms),
            // More than the bucket holds takes all of it, so that it is served when nothing else is.
            Unit::Tokens if answers => (tokens.clamp(1, capacity.max(1)), period_ms),
            Unit::Tokens => (0, period_ms),
            // Places come back when answers end. Should one be lost, it comes back after a day.
            Unit::Answers if answers => (1, DAY_MS.saturating_mul(capacity)),
            Unit::Answers => continue,
        };
        draws.push(Draw {
            unit,
            name,
            per,
            bucket: format!("{name}.{account}"),
            cost,
            capacity,
            period_ms,
        });
    }
}

/// Tokens to reserve for a request: what its prompt is estimated at, and the longest answer that it may get.
fn estimate(limit: Option<u32>, facts: Facts<'_>) -> u64 {
    let mut headers = facts.headers.iter();
    let length = headers.find(|(name, _)| name == "content-length");
    let bytes = length.and_then(|(_, value)| value.trim().parse::<u64>().ok());
    let prompt = bytes.unwrap_or(0).div_ceil(BYTES_PER_TOKEN);
    let answer = match (facts.max_tokens, limit) {
        _ if WITHOUT_ANSWER.iter().any(|end| facts.route.ends_with(end)) => 0,
        (Some(asked), Some(limit)) => u64::from(asked.min(limit)),
        (Some(limit), None) | (None, Some(limit)) => u64::from(limit),
        (None, None) => DEFAULT_ANSWER_TOKENS,
    };
    prompt.saturating_add(answer)
}

/// Headers of the limits that were looked at. Of a key's limit and its tenant's of the same name, the one of which
/// less is left is told.
fn headers(
    draws: &[Draw],
    verdicts: &[Verdict],
    refused: Option<usize>,
    now_ms: u64,
) -> Vec<(String, String)> {
    let looked_at = || draws.iter().zip(verdicts).enumerate();
    let mut told: Vec<(&Draw, &Verdict)> = Vec::new();
    for (at, (draw, verdict)) in looked_at() {
        if draw.unit == Unit::Answers {
            continue;
        }
        match told.iter_mut().find(|(other, _)| other.name == draw.name) {
            Some(other) if refused == Some(at) || verdict.remaining < other.1.remaining => {
                *other = (draw, verdict);
            }
            Some(_) => {}
            None => told.push((draw, verdict)),
        }
    }
    let mut headers: Vec<(String, String)> = Vec::new();
    for (draw, verdict) in &told {
        let (name, limit) = (draw.name, draw.capacity);
        let reset = duration(reset_ms(draw, verdict));
        headers.push((format!("x-ratelimit-limit-{name}"), limit.to_string()));
        let remaining = verdict.remaining.to_string();
        headers.push((format!("x-ratelimit-remaining-{name}"), remaining));
        headers.push((format!("x-ratelimit-reset-{name}"), reset));
    }
    let refused = refused.and_then(|at| Some((draws.get(at)?, verdicts.get(at)?)));
    let tightest = || {
        let share = |(draw, verdict): &(&Draw, &Verdict)| {
            let tokens = draw.unit != Unit::Requests;
            (
                tokens,
                u128::from(verdict.remaining) * 1_000_000 / u128::from(draw.capacity.max(1)),
            )
        };
        told.iter().copied().min_by_key(share)
    };
    if let Some((draw, verdict)) = refused.or_else(tightest) {
        let at = now_ms
            .saturating_add(reset_ms(draw, verdict))
            .div_ceil(1_000);
        for (name, value) in [
            ("limit", draw.capacity),
            ("remaining", verdict.remaining),
            ("reset", at),
        ] {
            headers.push((format!("x-ratelimit-{name}"), value.to_string()));
        }
    }
    headers
}

/// Time until the bucket is full, or until the request could succeed if that is later.
fn reset_ms(draw: &Draw, verdict: &Verdict) -> u64 {
    if draw.unit == Unit::Answers {
        return SECOND_MS;
    }
    let missing = draw.capacity.saturating_sub(verdict.remaining);
    let full_in =
        u128::from(missing) * u128::from(draw.period_ms) / u128::from(draw.capacity.max(1));
    let full_in = u64::try_from(full_in).unwrap_or(u64::MAX);
    match verdict.retry_after_ms {
        u64::MAX => full_in,
        _ if verdict.allowed => full_in,
        retry => full_in.max(retry),
    }
}

fn limited(subject: &str, draw: &Draw, verdict: Verdict, headers: Vec<(String, String)>) -> Deny {
    let retry_after_ms = match draw.unit {
        // When an answer under way ends, nobody knows.
        Unit::Answers => Some(SECOND_MS),
        _ => (verdict.retry_after_ms != u64::MAX).then_some(verdict.retry_after_ms),
    };
    let (limit, per) = (draw.capacity, draw.per);
    let whose = match draw.bucket.contains(".tenant.") {
        true => format!("the tenant of `{subject}`"),
        false => format!("`{subject}`"),
    };
    let message = match (draw.unit, retry_after_ms) {
        (Unit::Answers, _) => {
            format!(
                "{whose} has {limit} answers under way, which is all that it may have at once; try again when one has ended"
            )
        }
        (unit, retry) => {
            let unit = if unit == Unit::Tokens {
                "tokens"
            } else {
                "requests"
            };
            let cure = match retry {
                Some(ms) => format!("try again in {}", duration(ms)),
                None => "ask the operator of this server for a higher limit".to_owned(),
            };
            format!("{whose} has used its {limit} {unit}{per}; {cure}")
        }
    };
    Deny {
        status: 429,
        kind: "rate_limit_error",
        code: "rate_limit_exceeded".to_owned(),
        message,
        retry_after_ms,
        headers,
    }
}

/// `250ms`, `1.5s`, `2m5s` or `3h0m2s`, as OpenAI writes durations.
fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{}s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!(
            "{}h{}m{}s",
            ms / 3_600_000,
            ms % 3_600_000 / 60_000,
            ms % 60_000 / 1_000
        ),
    }
}
