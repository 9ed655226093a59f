//! Cost of the default policy for a request whose caller has limits: `identify` before the body, `authorize` behind it and
//! `account` at the end, with counters in this process and in a Valkey server on this machine. Beside them, in the same run, what is
//! the least: the same calls for a caller without limits, and one exchange with the server.
//!
//! `cargo run --release -p mortise --example accounting_cost`
//!
//! `accounting_cost instructions PART N [LIMITS]` makes N calls of a part (`identify`, `authorize` or `account`) for a caller with
//! `none`, `three` or `six` limits, and prints nothing: what a call costs in instructions is the difference of two runs by their
//! numbers of calls, under `valgrind --tool=callgrind`, which counts the same whatever else the machine does.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_plugin::{
    Binding, CallContext, ComponentSource, Decision, Facts, Finish, HostConfig, Kind, Ledger,
    PluginHost, Policy, RateCounters, UsageReport,
};
use mortise_test_support::valkey::Valkey as Server;
use mortise_valkey::{LedgerCounters, Valkey, ValkeyAuthorities, ValkeyConfig, WhenLost};

const WARM_UP: usize = 500;
const CALLS: usize = 10_000;

/// Terms of a caller, as many as most have, and all that there are, with limits that hold nobody up.
const TERMS: [(&str, &str); 3] = [
    ("no limits", ""),
    (
        "three limits",
        r#""requests_per_minute": 1000000000, "tokens_per_minute": 1000000000000, "max_concurrent": 1000000"#,
    ),
    (
        "six limits",
        r#""requests_per_second": 1000000000, "requests_per_minute": 1000000000, "requests_per_day": 1000000000,
           "tokens_per_minute": 1000000000000, "tokens_per_day": 1000000000000, "max_concurrent": 1000000"#,
    ),
];

/// Terms by their names as arguments.
const NAMED: [&str; 3] = ["none", "three", "six"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["instructions", part, calls, limits @ ..] = &arguments[..] {
        let limits = limits.first().unwrap_or(&"three");
        let at = NAMED.iter().position(|name| name == limits);
        let (_, terms) = TERMS[at.ok_or("limits are none, three or six")?];
        return repeat(part, calls.parse()?, terms).await;
    }
    println!(
        "| counters, terms | before the answer: p50 | p99 | after it: p50 | p99 |\n|---|---|---|---|---|"
    );
    for (name, terms) in TERMS {
        measure(
            &format!("this process, {name}"),
            terms,
            Arc::new(Ledger::new()),
        )
        .await?;
    }
    let Some(server) = Server::start() else {
        return Ok(());
    };
    let valkey = Valkey::open(ValkeyConfig {
        address: server.url().parse()?,
        username: None,
        password: None,
        prefix: "cost".to_owned(),
        timeout: Duration::from_secs(1),
        lease: Duration::from_secs(60),
        when_lost: WhenLost::Refuse,
        authorities: ValkeyAuthorities::public()?,
    })
    .await;
    println!(
        "| one exchange with the server (PING) | {} | – | – |",
        pings(&server)?
    );
    for (name, terms) in TERMS.into_iter().skip(1) {
        let counters = LedgerCounters::of(&valkey, name);
        measure(&format!("Valkey, {name}"), terms, Arc::new(counters)).await?;
    }
    println!("\nlost: {}", valkey.stats().lost);
    Ok(())
}

/// Times of exchanges over the server's socket, as cells.
fn pings(server: &Server) -> Result<String, Box<dyn Error>> {
    let url = server.url();
    let path = url
        .strip_prefix("unix://")
        .ok_or("the server has no socket")?;
    let mut socket = UnixStream::connect(path)?;
    let mut times = Vec::new();
    for _ in 0..WARM_UP + CALLS {
        let began = Instant::now();
        socket.write_all(b"PING\r\n")?;
        socket.read_exact(&mut [0; 7])?;
        times.push(began.elapsed());
    }
    times.drain(..WARM_UP);
    times.sort_unstable();
    let [p50, p99] = [times[CALLS / 2], times[CALLS * 99 / 100]].map(|time| time.as_micros());
    Ok(format!("{p50} µs | {p99} µs"))
}

/// Make so many calls of one part.
async fn repeat(part: &str, calls: usize, terms: &str) -> Result<(), Box<dyn Error>> {
    let cache = std::env::temp_dir().join("mortise-accounting-cost");
    let policy = policy(Arc::new(Ledger::new()), Some(cache)).await?;
    let context = CallContext::new("cost");
    let Decision::Allow(allowance) = policy.authorize(&context, facts(terms)).await? else {
        return Err("the policy refused".into());
    };
    for _ in 0..calls {
        match part {
            "identify" => drop(policy.identify(&context, facts(terms)).await?),
            "authorize" => drop(policy.authorize(&context, facts(terms)).await?),
            "account" => {
                policy
                    .account(&context, usage(allowance.lease.clone()))
                    .await?
            }
            _ => return Err("parts are identify, authorize and account".into()),
        }
    }
    Ok(())
}

/// `cache` keeps machine code that is not embedded.
async fn policy(
    ledger: Arc<dyn RateCounters>,
    cache: Option<PathBuf>,
) -> Result<Policy, Box<dyn Error>> {
    let host = PluginHost::new(HostConfig {
        cache_dir: cache,
        ..HostConfig::default()
    })?;
    let mut policy = None;
    // Others would be compiled where the embedded machine code is of another processor, as under valgrind.
    let is_policy = |source: &ComponentSource| matches!(source, ComponentSource::Embedded { name, .. } if name.contains("policy"));
    for source in mortise_bundle::plugins().into_iter().filter(is_policy) {
        let component = host.load(source)?;
        if component.kinds() == [Kind::Policy] {
            policy = Some(component);
        }
    }
    let component = policy.ok_or("there is no policy")?;
    let binding = Binding {
        ledger,
        ..Binding::default()
    };
    Ok(Policy::bind(&host, &component, binding).await?)
}

async fn measure(
    name: &str,
    terms: &str,
    ledger: Arc<dyn RateCounters>,
) -> Result<(), Box<dyn Error>> {
    let policy = policy(ledger, None).await?;
    let context = CallContext::new("cost");
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP + CALLS {
        let began = Instant::now();
        policy.identify(&context, facts(terms)).await?;
        let decision = policy.authorize(&context, facts(terms)).await?;
        before.push(began.elapsed());
        let Decision::Allow(allowance) = decision else {
            return Err("the policy refused".into());
        };
        let usage = usage(allowance.lease);
        let began = Instant::now();
        policy.account(&context, usage).await?;
        after.push(began.elapsed());
    }
    let [before, after] = [before, after].map(|mut times| {
        times.drain(..WARM_UP);
        times.sort_unstable();
        [times[CALLS / 2], times[CALLS * 99 / 100]].map(|time| time.as_micros())
    });
    println!(
        "| {name} | {} µs | {} µs | {} µs | {} µs |",
        before[0], before[1], after[0], after[1]
    );
    Ok(())
}

fn facts(terms: &str) -> Facts {
    let identity = format!(r#"{{"caller": {{"id": "a", "kind": "key", "terms": {{{terms}}}}}}}"#);
    Facts {
        request_id: "cost".to_owned(),
        route: "/v1/chat/completions".to_owned(),
        method: "POST".to_owned(),
        peer: "127.0.0.1".to_owned(),
        headers: vec![
            ("content-length".to_owned(), "2000".to_owned()),
            ("mortise-identity".to_owned(), identity),
        ],
        model: Some("cost".to_owned()),
        max_tokens: Some(200),
        ..Facts::default()
    }
}

fn usage(lease: Option<String>) -> UsageReport {
    UsageReport {
        request_id: "cost".to_owned(),
        lease,
        subject: "a".to_owned(),
        tenant: None,
        model: "cost".to_owned(),
        prompt_tokens: 500,
        cached_tokens: 0,
        completion_tokens: 100,
        finish: Finish::Stop,
        wall_ms: 1_000,
    }
}
