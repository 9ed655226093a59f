//! Several withdrawals that are made or none, wherever the counters are kept.

use std::sync::Arc;

use mortise_plugin::{Level, Rate, RateCounters, Verdict, Withdrawal};
use mortise_test_support::valkey::Valkey as Server;
use mortise_valkey::{LedgerCounters, Valkey, WhenLost};
use tokio::task::JoinSet;

use crate::homes::{CENTURY, config, homes, take};

fn of(bucket: &str, cost: u64, capacity: u64) -> Withdrawal {
    Withdrawal {
        bucket: bucket.to_owned(),
        cost,
        rate: Rate {
            capacity,
            ..CENTURY
        },
    }
}

async fn take_all(counters: &Arc<dyn RateCounters>, all: &[Withdrawal]) -> Vec<(bool, u64)> {
    let verdicts = counters.take_all(all, true).await.expect("counters");
    let told = |verdict: &Verdict| (verdict.allowed, verdict.remaining);
    verdicts.iter().map(told).collect()
}

#[tokio::test]
async fn feature_z3_all_withdrawals_are_made_or_none() {
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        let last = hosts.last().expect("a host");
        let both = [of("a", 400, 1_000), of("~p", 1, 2), of("a", 100, 1_000)];
        let asked = hosts[0].take_all(&both, false).await.expect("counters");
        assert!(asked.iter().all(|verdict| verdict.allowed), "{name}");
        assert_eq!(
            take_all(&hosts[0], &both).await,
            [(true, 600), (true, 1), (true, 500)],
            "{name}: as if one after the other, and asking took nothing"
        );
        assert_eq!(
            take_all(last, &[of("b", 1, 5), of("a", 501, 1_000), of("~p", 1, 2)]).await,
            [(true, 5), (false, 500), (true, 1)],
            "{name}: nothing is taken"
        );
        assert_eq!(
            take_all(last, &[of("b", 1, 5), of("~p", 2, 2)]).await,
            [(true, 5), (false, 1)],
            "{name}: places count as well"
        );
        let never = [of("b", 1, 5), of("a", 1_001, 1_000)];
        let never = last.take_all(&never, true).await.expect("counters");
        assert_eq!(
            (never[0].allowed, never[1]),
            (true, Verdict::NEVER),
            "{name}"
        );
        let asked = last.take_all(&[of("a", 501, 1_000)], false).await;
        let asked = asked.expect("counters");
        assert!(
            !asked[0].allowed && asked[0].retry_after_ms > 3_000_000,
            "{name}"
        );
        let five = Rate {
            capacity: 5,
            ..CENTURY
        };
        assert_eq!(
            take(last, "b", 5, five).await.remaining,
            0,
            "{name}: it was left"
        );
        assert_eq!(
            take_all(&hosts[0], &[of("a", 500, 1_000), of("~p", 1, 2)]).await,
            [(true, 0), (true, 0)],
            "{name}"
        );
        assert_eq!(take_all(last, &[]).await, [], "{name}");
    }
}

#[tokio::test]
async fn feature_z3_batches_are_exact_under_64_clients_at_once() {
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        let mut clients = JoinSet::new();
        for number in 0..64 {
            let counters = Arc::clone(&hosts[number % hosts.len()]);
            clients.spawn(async move {
                // Each in another order, so that no lock would hold them apart by luck.
                let mut all = vec![of("x", 1, 40), of("y", 2, 60), of("~z", 1, 50)];
                all.rotate_left(number % 3);
                take_all(&counters, &all)
                    .await
                    .iter()
                    .all(|(allowed, _)| *allowed)
            });
        }
        let granted = clients.join_all().await;
        let granted = granted.iter().filter(|granted| **granted).count();
        assert_eq!(granted, 30, "{name}: `y` is the narrowest");
        let left = [of("x", 10, 40), of("~z", 20, 50)];
        let left = hosts[0].take_all(&left, false).await.expect("counters");
        assert!(
            left.iter().all(|verdict| verdict.allowed),
            "{name}: {left:?}"
        );
    }
}

#[tokio::test]
async fn feature_z8_a_lost_server_leaves_batches_to_each_host_or_refuses() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let strict = Valkey::open(config(&server, WhenLost::Refuse)).await;
    let local = Valkey::open(config(&server, WhenLost::Local)).await;
    let by_strict: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&strict, "l"));
    let by_local: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&local, "l"));
    let both = [of("a", 300, 1_000), of("~a", 1, 2)];
    assert_eq!(take_all(&by_local, &both).await, [(true, 700), (true, 1)]);
    server.kill();
    assert!(by_strict.take_all(&both, true).await.is_err());
    assert_eq!(take_all(&by_local, &both).await, [(true, 400), (true, 0)]);
    assert_eq!(
        take_all(&by_local, &both).await,
        [(true, 400), (false, 0)],
        "places are full, so nothing flows"
    );
    assert_eq!(take(&by_local, "a", 0, CENTURY).await.remaining, 400);
}

/// Buckets of a century each, with what they hold.
fn asked(buckets: &[(&str, u64)]) -> Vec<(String, Rate)> {
    let rate = |capacity| Rate {
        capacity,
        ..CENTURY
    };
    let buckets = buckets.iter();
    buckets
        .map(|(bucket, capacity)| ((*bucket).to_owned(), rate(*capacity)))
        .collect()
}

#[tokio::test]
async fn feature_z3_all_hosts_tell_what_is_used_on_any_and_nothing_is_taken() {
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        let (first, last) = (&hosts[0], hosts.last().expect("a host"));
        let buckets = asked(&[("a", 1_000), ("~p", 2), ("new", 5)]);
        take_all(first, &[of("a", 400, 1_000), of("~p", 1, 2)]).await;
        for _ in 0..3 {
            let levels = last.levels(&buckets).await.expect("counters");
            assert_eq!((levels[0].used, levels[0].remaining), (400, 600), "{name}");
            // A century is full again in two fifths of one.
            let wait = levels[0].full_in_ms.expect("an end");
            let part = CENTURY.time_for(400) / 1_000_000;
            let wait = u128::from(wait);
            assert!(
                (part - 60_000..=part + 1_000).contains(&wait),
                "{name}: {wait}"
            );
            assert_eq!(levels[1], Level::of_places(1, 2), "{name}");
            let full = Level {
                used: 0,
                remaining: 5,
                full_in_ms: Some(0),
            };
            assert_eq!(levels[2], full, "{name}");
        }
        // An answer was longer than what was reserved for it.
        first.adjust("a", 700, buckets[0].1).await;
        let levels = last.levels(&buckets[..1]).await.expect("counters");
        assert_eq!((levels[0].used, levels[0].remaining), (1_100, 0), "{name}");
        assert_eq!(last.levels(&[]).await.expect("counters"), [], "{name}");
    }
}

#[tokio::test]
async fn feature_z3_without_the_server_nothing_is_told_of_use() {
    let Some(server) = Server::start() else {
        return;
    };
    let local = Valkey::open(config(&server, WhenLost::Local)).await;
    let counters: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&local, "l"));
    take_all(&counters, &[of("a", 400, 1_000)]).await;
    drop(server);
    let decided = local.stats().without;
    assert!(counters.levels(&asked(&[("a", 1_000)])).await.is_err());
    assert_eq!(local.stats().without, decided, "nothing was decided");
}
