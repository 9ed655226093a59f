//! A policy that tells limits, and does what the id of the caller says.

wit_bindgen::generate!({
    path: "../../wit/v0.3",
    inline: "
        package test:guests;
        world telling {
            include mortise:plugin/policy-plugin@0.3.0;
            export mortise:plugin/quotas@0.3.0;
        }
    ",
    world: "test:guests/telling",
    generate_all,
});

use exports::mortise::plugin::{lifecycle, policy, quotas};
use mortise::plugin::types::Fault;
use mortise::plugin::{ledger, outbound_http};

const CAPACITY: u64 = 10;
const DAY_MS: u64 = 86_400_000;

struct Telling;

impl lifecycle::Guest for Telling {
    fn prepare() -> Result<(), Fault> {
        Ok(())
    }
}

impl policy::Guest for Telling {
    /// Takes one from the bucket of the route.
    fn authorize(facts: policy::Facts) -> Result<policy::Decision, Fault> {
        ledger::take(&facts.route, 1, CAPACITY, DAY_MS);
        Ok(policy::Decision::Abstain)
    }

    fn account(_usage: policy::Usage) -> Result<(), Fault> {
        Ok(())
    }
}

fn quota(name: &str, bucket: &str) -> quotas::Quota {
    quotas::Quota {
        name: name.to_owned(),
        unit: quotas::Unit::Other,
        shared_by: None,
        bucket: bucket.to_owned(),
        capacity: CAPACITY,
        period_ms: DAY_MS,
    }
}

/// Takes from the ledger, gives to it, and sends a request; what came of it is the name of the limit.
fn busy() -> quotas::Quota {
    let taken = ledger::take("day", 5, CAPACITY, DAY_MS);
    ledger::adjust("day", 3, CAPACITY, DAY_MS);
    let sent = outbound_http::send(&outbound_http::Request {
        method: "GET".to_owned(),
        url: "https://example.com/".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout_ms: None,
    });
    let spent = matches!(sent, Err(outbound_http::Error::Spent));
    quota(
        &format!("{} {} {spent}", taken.allowed, taken.remaining),
        "day",
    )
}

impl quotas::Guest for Telling {
    fn describe(caller: quotas::Caller) -> Result<Option<Vec<quotas::Quota>>, String> {
        Ok(match caller.id.as_str() {
            "nobody" => None,
            "panic" => panic!("as it was told"),
            "loop" => loop {
                std::hint::black_box(0);
            },
            "refuse" => return Err("as it was told".to_owned()),
            "nameless" => Some(vec![quota("", "day")]),
            "many" => Some(vec![quota("day", "day"); 65]),
            "busy" => Some(vec![busy()]),
            _ => Some(vec![quota(&caller.terms, "day")]),
        })
    }
}

export!(Telling);
