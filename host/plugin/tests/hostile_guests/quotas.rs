//! Policies that tell limits of callers, and what comes of it when they do not.

use std::sync::Arc;

use mortise_plugin::{
    Binding, BreakerLimits, Facts, Fault, Ledger, Policy, QuotaCaller, QuotaUnit, QuotasUntold,
    Rate, RateCounters,
};

use crate::guests::{binding, context, hasty, shared, source, telling_policy};

const DAY: Rate = Rate {
    capacity: 10,
    period_ms: 86_400_000,
};

fn caller(id: &str) -> QuotaCaller {
    QuotaCaller {
        id: id.to_owned(),
        kind: "key",
        tenant: None,
        terms: "{}".to_owned(),
    }
}

async fn bound(binding: Binding) -> Policy {
    let component = shared().host.load(source("telling", telling_policy()));
    Policy::bind(&shared().host, &component.unwrap(), binding)
        .await
        .unwrap()
}

#[tokio::test]
async fn limits_are_told_with_what_the_ledger_has_of_them() {
    let ledger: Arc<dyn RateCounters> = Arc::new(Ledger::new());
    let mut binding = binding();
    binding.ledger = Arc::clone(&ledger);
    let policy = bound(binding).await;
    let told = async |id: &str| {
        policy
            .quotas(&context(), &caller(id))
            .await
            .unwrap()
            .remove(0)
    };
    let before = told("ann").await;
    assert_eq!(
        (before.quota.name.as_str(), before.quota.unit),
        ("{}", QuotaUnit::Other)
    );
    assert_eq!(before.quota.rate, DAY);
    assert_eq!((before.level.used, before.level.full_in_ms), (0, Some(0)));
    let facts = Facts {
        route: "day".to_owned(),
        ..Facts::default()
    };
    for _ in 0..2 {
        policy.authorize(&context(), facts.clone()).await.unwrap();
    }
    assert_eq!(told("ann").await.level.used, 2);
    // In the call the ledger answers as ever and stays as it is, and nothing is sent.
    let busy = told("busy").await;
    assert_eq!(busy.quota.name, "true 3 true");
    assert_eq!(busy.level.used, 2);
    let level = ledger.levels(&[("day".to_owned(), DAY)]).await.unwrap();
    assert_eq!(level[0].used, 2);
    let none = policy.quotas(&context(), &caller("nobody")).await;
    assert_eq!(none, Err(QuotasUntold::NotTold));
    // A policy that says why it does not tell can be asked again.
    for _ in 0..2 {
        let refused = policy.quotas(&context(), &caller("refuse")).await;
        let Err(QuotasUntold::Failed(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.fault, Fault::Unsupported("as it was told".to_owned()));
    }
}

/// A breaker that one more failure would trip.
fn brittle(mut binding: Binding) -> Binding {
    binding.limits.breaker = BreakerLimits {
        failures: 2,
        ..BreakerLimits::default()
    };
    binding
}

#[tokio::test]
async fn who_looks_at_limits_suspends_no_policy() {
    for (id, label) in [
        ("panic", "trap"),
        ("loop", "deadline"),
        ("nameless", "invalid-result"),
        ("many", "invalid-result"),
    ] {
        let policy = bound(brittle(hasty())).await;
        let failed = policy.quotas(&context(), &caller(id)).await.unwrap_err();
        let QuotasUntold::Failed(error) = failed else {
            panic!("{id}: {failed:?}");
        };
        assert_eq!(
            (error.function, error.fault.label()),
            ("quotas.describe", label)
        );
        for _ in 0..10 {
            let again = policy.quotas(&context(), &caller(id)).await;
            assert_eq!(again, Err(QuotasUntold::FailedLately), "{id}");
        }
        let decided = policy.authorize(&context(), Facts::default()).await;
        assert!(decided.is_ok(), "{id}: {decided:?}");
    }
}

#[tokio::test]
async fn a_policy_without_the_interface_says_so() {
    let policy = shared().policy(binding()).await;
    let told = policy.quotas(&context(), &caller("ann")).await;
    assert_eq!(told, Err(QuotasUntold::NotExported));
    let refused = Fault::CountersLost.to_string();
    assert_eq!(
        QuotasUntold::from(mortise_plugin::CountersLost).to_string(),
        refused
    );
}
