//! A service of fakes, asked as the server asks it.

use std::time::{Duration, Instant};

use mortise_plugin::{Allowance, Decision, Principal};

use crate::fakes::Collected;

mod answers;
mod cached;
mod embeddings;
mod observer;
mod policies;
mod prompts;
mod replace;
mod runtimes;
mod tenants;
mod tools;
mod turns;

fn one(all: &Collected) -> &crate::fakes::CollectedChoice {
    assert!(all.error.is_none(), "{:?}", all.error);
    &all.choices[0]
}

fn allow() -> Decision {
    Decision::Allow(Allowance {
        principal: Principal {
            subject: "alice".to_owned(),
            ..Principal::default()
        },
        headers: vec![("x-remaining".to_owned(), "7".to_owned())],
        lease: Some("lease-1".to_owned()),
        ..Allowance::default()
    })
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
