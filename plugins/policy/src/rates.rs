//! Withdrawals of a request from the buckets of its caller and its tenant, their headers, and the settlement when the
//! request has ended.

use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::settings::{Rates, Settings};
use crate::wit::{Deny, Facts, Host, Quota, Unit, Verdict, Withdrawal};

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
    let tenant = tenant_of(settings, caller).map(|(_, account, rates)| (account, rates));
    let own = (caller.account.clone(), &caller.limits.rates);
    let tokens = estimate(caller.limits.max_tokens, facts);
    let mut draws = Vec::new();
    for (account, rates) in std::iter::once(own).chain(tenant) {
        of_account(&account, rates, tokens, facts.model.is_some(), &mut draws);
    }
    draws
}

/// A kind of limit, and how much of it there is.
struct Limit {
    unit: Unit,
    /// Name of the term.
    term: &'static str,
    /// End of the names of its headers, and beginning of the name of its bucket.
    name: &'static str,
    /// The period in words.
    per: &'static str,
    capacity: Option<u64>,
    period_ms: u64,
}

/// All kinds of limits, with those that are set.
fn limits(rates: &Rates) -> [Limit; 6] {
    let limit = |unit, term, name, per, capacity, period_ms| Limit {
        unit,
        term,
        name,
        per,
        capacity,
        period_ms,
    };
    // Places come back when answers end. Should one be lost, it comes back after a day.
    let lost = DAY_MS.saturating_mul(rates.max_concurrent.unwrap_or(0));
    let (requests, tokens, answers) = (Unit::Requests, Unit::Tokens, Unit::Answers);
    let (second, minute, day) = (" per second", " per minute", " per day");
    let (of_tokens, of_requests) = (rates.tokens_per_day, rates.requests_per_day);
    let at_once = rates.max_concurrent;
    let (tokens_a_minute, a_minute) = (rates.tokens_per_minute, rates.requests_per_minute);
    let a_second = rates.requests_per_second;
    [
        limit(
            tokens,
            "tokens_per_minute",
            "tokens",
            minute,
            tokens_a_minute,
            MINUTE_MS,
        ),
        limit(
            tokens,
            "tokens_per_day",
            "tokens-day",
            day,
            of_tokens,
            DAY_MS,
        ),
        limit(
            requests,
            "requests_per_second",
            "requests-second",
            second,
            a_second,
            SECOND_MS,
        ),
        limit(
            requests,
            "requests_per_minute",
            "requests",
            minute,
            a_minute,
            MINUTE_MS,
        ),
        limit(
            requests,
            "requests_per_day",
            "requests-day",
            day,
            of_requests,
            DAY_MS,
        ),
        limit(
            answers,
            "max_concurrent",
            "~answers",
            " at once",
            at_once,
            lost,
        ),
    ]
}

/// Limits of an account, with the buckets that count them.
fn quotas_of(account: &str, shared_by: Option<&str>, rates: &Rates) -> Vec<Quota> {
    let quotas = limits(rates).into_iter().filter_map(|limit| {
        Some(Quota {
            name: limit.term,
            unit: limit.unit,
            shared_by: shared_by.map(str::to_owned),
            bucket: bucket(&limit, account),
            capacity: limit.capacity?,
            period_ms: limit.period_ms,
        })
    });
    quotas.collect()
}

/// Limits that requests of a caller count against: its own, then those of its tenant.
pub(crate) fn quotas(settings: &Settings, caller: &Caller) -> Vec<Quota> {
    let mut quotas = quotas_of(&caller.account, None, &caller.limits.rates);
    if let Some((name, account, rates)) = tenant_of(settings, caller) {
        let holder = format!("tenant {name}");
        quotas.extend(quotas_of(&account, Some(&holder), rates));
    }
    quotas
}

fn bucket(limit: &Limit, account: &str) -> String {
    format!("{}.{account}", limit.name)
}

/// Name, account and limits of the tenant of a caller, if it has limits.
fn tenant_of<'a>(settings: &'a Settings, caller: &Caller) -> Option<(&'a str, String, &'a Rates)> {
    let name = caller.tenant.as_deref()?;
    let tenant = settings.tenants.iter().find(|tenant| tenant.name == name)?;
    Some((&tenant.name, format!("tenant.{name}"), &tenant.rates))
}

fn of_account(account: &str, rates: &Rates, tokens: u64, answers: bool, draws: &mut Vec<Draw>) {
    for limit in limits(rates) {
        let Some(capacity) = limit.capacity else {
            continue;
        };
        let cost = match limit.unit {
            Unit::Requests => 1,
            // More than the bucket holds takes all of it, so that it is served when nothing else is.
            Unit::Tokens if answers => tokens.clamp(1, capacity.max(1)),
            Unit::Tokens => 0,
            Unit::Answers if answers => 1,
            Unit::Answers => continue,
        };
        draws.push(Draw {
            unit: limit.unit,
            name: limit.name,
            per: limit.per,
            bucket: bucket(&limit, account),
            cost,
            capacity,
            period_ms: limit.period_ms,
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
