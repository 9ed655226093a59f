//! Counters in each of their homes: one suite for those of this process and for those that hosts share.

use std::sync::Arc;
use std::time::Duration;

use mortise_plugin::{Ledger, Rate, RateCounters, Verdict};
use mortise_test_support::valkey::Valkey as Server;
use mortise_valkey::{LedgerCounters, Valkey, ValkeyAuthorities, ValkeyConfig, WhenLost};
use tokio::task::JoinSet;

const HOUR: Rate = Rate {
    capacity: 1_000,
    period_ms: 3_600_000,
};

/// Bucket of which nothing flows back while a test runs.
pub(crate) const CENTURY: Rate = Rate {
    capacity: 1_000,
    period_ms: 3_155_760_000_000,
};

pub(crate) fn config(server: &Server, when_lost: WhenLost) -> ValkeyConfig {
    ValkeyConfig {
        address: server.url().parse().expect("an address"),
        username: None,
        password: None,
        prefix: "test".to_owned(),
        timeout: Duration::from_secs(20),
        lease: Duration::from_secs(5),
        when_lost,
        authorities: ValkeyAuthorities::public().expect("authorities"),
    }
}

/// Counters of both homes, and the name of each. The second home has three hosts that share one ledger.
pub(crate) async fn homes(
    server: Option<&Server>,
) -> Vec<(&'static str, Vec<Arc<dyn RateCounters>>)> {
    let local: Arc<dyn RateCounters> = Arc::new(Ledger::new());
    let mut homes = vec![("process", vec![local])];
    if let Some(server) = server {
        let mut hosts: Vec<Arc<dyn RateCounters>> = Vec::new();
        for _ in 0..3 {
            let valkey = Valkey::open(config(server, WhenLost::Refuse)).await;
            assert!(valkey.stats().up);
            let keeper = Arc::clone(&valkey);
            tokio::spawn(async move { keeper.keep().await });
            hosts.push(Arc::new(LedgerCounters::of(&valkey, "ledger")));
        }
        homes.push(("valkey", hosts));
    }
    homes
}

pub(crate) async fn take(
    counters: &Arc<dyn RateCounters>,
    bucket: &str,
    cost: u64,
    rate: Rate,
) -> Verdict {
    counters.take(bucket, cost, rate).await.expect("counters")
}

#[tokio::test]
async fn feature_z3_a_bucket_begins_full_and_never_gives_more_than_it_has() {
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        let last = hosts.last().expect("a host");
        let first = take(&hosts[0], "a", 400, CENTURY).await;
        assert_eq!((first.allowed, first.remaining), (true, 600), "{name}");
        let second = take(last, "a", 601, CENTURY).await;
        assert_eq!((second.allowed, second.remaining), (false, 600), "{name}");
        assert!(second.retry_after_ms > 3_000_000_000, "{name}: {second:?}");
        let peeked = hosts[0].peek("a", 600, CENTURY).await.expect("counters");
        assert!(peeked.allowed, "{name}");
        assert_eq!(take(last, "a", 600, CENTURY).await.remaining, 0, "{name}");
        assert!(!take(&hosts[0], "a", 1, CENTURY).await.allowed, "{name}");
        assert!(
            !hosts[0]
                .peek("a", 1, CENTURY)
                .await
                .expect("counters")
                .allowed
        );
        assert!(
            take(&hosts[0], "b", 1_000, CENTURY).await.allowed,
            "buckets are apart"
        );
        assert_eq!(
            take(&hosts[0], "c", 1_001, CENTURY).await,
            Verdict::NEVER,
            "{name}"
        );
        assert_eq!(
            take(&hosts[0], &"n".repeat(257), 1, HOUR).await,
            Verdict::NEVER
        );
    }
}

#[tokio::test]
async fn feature_z3_a_settlement_charges_and_gives_back() {
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        let last = hosts.last().expect("a host");
        assert!(take(&hosts[0], "a", 500, CENTURY).await.allowed);
        last.adjust("a", 700, CENTURY).await;
        let asked = take(&hosts[0], "a", 0, CENTURY).await;
        assert_eq!(
            (asked.allowed, asked.remaining),
            (false, 0),
            "{name}: it is overdrawn"
        );
        last.adjust("a", -1_190, CENTURY).await;
        assert_eq!(
            take(&hosts[0], "a", 0, CENTURY).await.remaining,
            990,
            "{name}"
        );
        last.adjust("a", -50_000, CENTURY).await;
        assert_eq!(
            take(&hosts[0], "a", 0, CENTURY).await.remaining,
            1_000,
            "{name}: it is full"
        );
        let extreme = Rate {
            capacity: u64::MAX,
            period_ms: u64::MAX,
        };
        last.adjust("x", i64::MAX, extreme).await;
        last.adjust("x", i64::MAX, extreme).await;
        last.adjust("x", i64::MAX, extreme).await;
        assert!(!take(&hosts[0], "x", 1, extreme).await.allowed, "{name}");
    }
}

#[tokio::test]
async fn feature_z3_a_bucket_refills() {
    let rate = Rate {
        capacity: 10,
        period_ms: 500,
    };
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        take(&hosts[0], "a", 10, rate).await;
        let last = hosts.last().expect("a host");
        let mut tries = 0;
        while !take(last, "a", 10, rate).await.allowed {
            tries += 1;
            assert!(tries < 2_000, "{name}: it does not refill");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_z3_limits_are_exact_under_64_clients_at_once() {
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        for (bucket, capacity) in [("rate", 1_000), ("~places", 100)] {
            let rate = Rate {
                capacity,
                ..CENTURY
            };
            let mut clients = JoinSet::new();
            for client in 0..64 {
                let counters = Arc::clone(&hosts[client % hosts.len()]);
                clients.spawn(async move {
                    let mut granted = 0;
                    for _ in 0..30 {
                        granted += u64::from(take(&counters, bucket, 1, rate).await.allowed);
                    }
                    granted
                });
            }
            let granted: u64 = clients.join_all().await.into_iter().sum();
            assert_eq!(granted, capacity, "{name} {bucket}");
        }
    }
}

#[tokio::test]
async fn feature_z3_places_come_back_when_answers_end() {
    let places = Rate {
        capacity: 2,
        period_ms: 2 * 86_400_000,
    };
    let server = Server::start();
    for (name, hosts) in homes(server.as_ref()).await {
        let last = hosts.last().expect("a host");
        assert!(take(&hosts[0], "~a", 1, places).await.allowed);
        assert!(take(last, "~a", 1, places).await.allowed);
        assert!(!take(&hosts[0], "~a", 1, places).await.allowed, "{name}");
        last.adjust("~a", -1, places).await;
        assert!(take(&hosts[0], "~a", 1, places).await.allowed, "{name}");
    }
}

#[tokio::test]
async fn feature_z8_the_places_of_a_host_that_died_come_back() {
    let Some(server) = Server::start() else {
        return;
    };
    let (dead, left, alive) = (
        Valkey::open(config(&server, WhenLost::Refuse)).await,
        Valkey::open(config(&server, WhenLost::Refuse)).await,
        Valkey::open(config(&server, WhenLost::Refuse)).await,
    );
    let keeper = Arc::clone(&alive);
    let keeping = tokio::spawn(async move { keeper.keep().await });
    let rate = Rate {
        capacity: 2,
        period_ms: 86_400_000,
    };
    let counters: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&alive, "l"));
    for host in [&dead, &left] {
        let its: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(host, "l"));
        assert!(take(&its, "~a", 1, rate).await.allowed);
    }
    assert!(!take(&counters, "~a", 1, rate).await.allowed);
    // One that stops in an orderly way gives up its lease, and another's runs out, since nobody renews it.
    left.leave().await;
    assert!(take(&counters, "~a", 1, rate).await.allowed);
    let mut tries = 0;
    while !take(&counters, "~a", 1, rate).await.allowed {
        tries += 1;
        assert!(tries < 3_000, "the lease does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Those of a host that lives are counted for as long as it does.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let other = Valkey::open(config(&server, WhenLost::Refuse)).await;
    let other: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&other, "l"));
    assert!(!take(&other, "~a", 1, rate).await.allowed);
    keeping.abort();
}

/// Wait until the server has been found again.
async fn found(valkey: &Valkey) {
    let mut tries = 0;
    while !valkey.stats().up {
        tries += 1;
        assert!(tries < 6_000, "the server is not found again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn feature_z8_a_lost_server_refuses_or_leaves_it_to_each_host() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let strict = Valkey::open(config(&server, WhenLost::Refuse)).await;
    let local = Valkey::open(config(&server, WhenLost::Local)).await;
    let keepers: Vec<_> = [&strict, &local]
        .map(|valkey| {
            let valkey = Arc::clone(valkey);
            tokio::spawn(async move { valkey.keep().await })
        })
        .into();
    let by_strict: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&strict, "l"));
    let by_local: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&local, "l"));
    assert!(take(&by_local, "a", 300, CENTURY).await.allowed);
    assert!(take(&by_local, "~a", 2, CENTURY).await.allowed);
    server.kill();
    assert!(by_strict.take("a", 1, CENTURY).await.is_err());
    assert!(by_strict.peek("a", 1, CENTURY).await.is_err());
    // What was last heard of a bucket is where this host goes on from.
    assert_eq!(take(&by_local, "a", 200, CENTURY).await.remaining, 500);
    assert!(!take(&by_local, "a", 501, CENTURY).await.allowed);
    assert!(take(&by_local, "~a", 1, CENTURY).await.allowed);
    by_local.adjust("~a", -1, CENTURY).await;
    by_local.adjust("a", -50, CENTURY).await;
    assert!(!strict.stats().up && !local.stats().up);
    assert!(local.stats().without >= 3);
    server.restart();
    found(&strict).await;
    found(&local).await;
    // The server began empty. It has been told of what changed without it, and of what is under way.
    assert_eq!(take(&by_strict, "a", 0, CENTURY).await.remaining, 850);
    assert_eq!(take(&by_strict, "~a", 0, CENTURY).await.remaining, 998);
    assert_eq!(local.stats().lost, 1);
    keepers.iter().for_each(|keeper| keeper.abort());
}

#[tokio::test]
async fn feature_z8_a_server_that_stands_still_costs_one_timeout() {
    let Some(server) = Server::start() else {
        return;
    };
    let settings = ValkeyConfig {
        timeout: Duration::from_millis(200),
        ..config(&server, WhenLost::Local)
    };
    let valkey = Valkey::open(settings).await;
    let counters: Arc<dyn RateCounters> = Arc::new(LedgerCounters::of(&valkey, "l"));
    server.pause();
    assert!(take(&counters, "a", 1, CENTURY).await.allowed);
    assert!(!valkey.stats().up, "the first timeout tells");
    // Nobody keeps it here, so nothing can wait for it again.
    for _ in 0..100 {
        assert!(take(&counters, "a", 1, CENTURY).await.allowed);
    }
    assert_eq!(valkey.stats().lost, 1);
    server.resume();
}

#[tokio::test]
async fn feature_z8_a_password_is_needed_where_the_server_asks_for_one() {
    let Some(server) = Server::start_with(&["--requirepass", "secret"]) else {
        return;
    };
    for (password, up) in [
        (None, false),
        (Some("wrong"), false),
        (Some("secret"), true),
    ] {
        let settings = ValkeyConfig {
            password: password.map(str::to_owned),
            ..config(&server, WhenLost::Refuse)
        };
        assert!(!format!("{settings:?}").contains("secret"));
        assert_eq!(Valkey::open(settings).await.stats().up, up, "{password:?}");
    }
}
