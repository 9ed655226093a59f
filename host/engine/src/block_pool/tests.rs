use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BlockPool, Parent, Salt};
use crate::cache_shares::{AccountId, PROTECTED_TURNS};

const ROOT: Parent = Parent::Root(Salt {
    own: None,
    adapter: None,
});

/// The account of a tenant with weight 1.
fn enter(pool: &mut BlockPool, tenant: &str) -> AccountId {
    pool.enter(&Arc::from(tenant), 1)
}

/// Take a block and commit it.
fn grown(pool: &mut BlockPool, parent: Parent, tokens: &[u32]) -> u32 {
    let account = enter(pool, "a");
    let block = pool.take(account).expect("a block");
    pool.commit(parent, tokens, block)
}

#[test]
fn full_blocks_are_found_by_everything_before_them() {
    let mut pool = BlockPool::new(8, 2, true);
    let first = grown(&mut pool, ROOT, &[1, 2]);
    let second = grown(&mut pool, Parent::Block(first), &[3, 4]);
    assert_eq!(pool.find(&ROOT, &[1, 2]), Some(first));
    assert_eq!(pool.find(&Parent::Block(first), &[3, 4]), Some(second));
    assert_eq!(pool.find(&ROOT, &[3, 4]), None, "the same tokens elsewhere");
    assert_eq!(pool.find(&Parent::Block(first), &[4, 3]), None);
    let salted = Parent::Root(Salt::new(Some(Arc::from("a")), None));
    assert_eq!(pool.find(&salted, &[1, 2]), None, "another salt");
    let adapted = Parent::Root(Salt::new(None, Some(1)));
    assert_eq!(pool.find(&adapted, &[1, 2]), None, "an adapter");
    // A sequence that computed the same block meanwhile releases its own for the one in the tree.
    let account = enter(&mut pool, "a");
    let again = pool.take(account).unwrap();
    assert_eq!(pool.commit(ROOT, &[1, 2], again), first);
    pool.audit(&BTreeMap::from([(first, 2), (second, 1)]));
}

#[test]
fn idle_blocks_are_evicted_leaf_by_leaf_the_oldest_first() {
    let mut pool = BlockPool::new(4, 2, true);
    let a = grown(&mut pool, ROOT, &[1, 1]);
    let b = grown(&mut pool, Parent::Block(a), &[2, 2]);
    let c = grown(&mut pool, ROOT, &[3, 3]);
    let d = grown(&mut pool, Parent::Block(c), &[4, 4]);
    pool.release([b, a]);
    pool.release([d, c]);
    assert_eq!((pool.idle(), pool.available(), pool.used()), (4, 4, 0));
    // Used again, and so younger than the other path.
    pool.acquire(a);
    pool.release([a]);
    let account = enter(&mut pool, "a");
    let evicted: Vec<u32> = (0..4).map(|_| pool.take(account).unwrap()).collect();
    assert_eq!(
        evicted,
        [b, d, c, a],
        "leaves first, each the oldest of its time"
    );
    assert_eq!((pool.take(account), pool.evictions()), (None, 4));
    assert_eq!(pool.find(&ROOT, &[1, 1]), None);
    pool.audit(&evicted.iter().map(|block| (*block, 1)).collect());
}

#[test]
fn blocks_in_use_are_never_evicted() {
    let mut pool = BlockPool::new(3, 1, true);
    let parent = grown(&mut pool, ROOT, &[1]);
    let child = grown(&mut pool, Parent::Block(parent), &[2]);
    pool.release([child]);
    let account = enter(&mut pool, "a");
    let taken = [pool.take(account).unwrap(), pool.take(account).unwrap()];
    assert!(taken.contains(&child) && !taken.contains(&parent));
    assert_eq!(pool.take(account), None);
    assert_eq!(pool.find(&ROOT, &[1]), Some(parent));
}

#[test]
fn without_caching_nothing_is_kept() {
    let mut pool = BlockPool::new(2, 1, false);
    let block = grown(&mut pool, ROOT, &[1]);
    assert_eq!(pool.find(&ROOT, &[1]), None);
    pool.release([block]);
    assert_eq!((pool.idle(), pool.available()), (0, 2));
    pool.audit(&BTreeMap::new());
}

/// Fill the pool with idle prefixes of a tenant, each a block below the root with its salt, as far as it
/// gets blocks. Returns how many it got.
fn cache(pool: &mut BlockPool, tenant: &str, weight: u32, tokens: std::ops::Range<u32>) -> usize {
    let salt = Salt::new(Some(Arc::from(tenant)), None);
    let account = pool.enter(&Arc::from(tenant), weight);
    let mut got = 0;
    for token in tokens {
        let Some(block) = pool.take(account) else {
            break;
        };
        let block = pool.commit(Parent::Root(salt.clone()), &[token], block);
        pool.release([block]);
        got += 1;
    }
    pool.leave(account);
    got
}

fn cached(pool: &BlockPool, tenant: &str, tokens: std::ops::Range<u32>) -> Vec<u32> {
    let parent = Parent::Root(Salt::new(Some(Arc::from(tenant)), None));
    let mut tokens: Vec<u32> = tokens.collect();
    tokens.retain(|token| pool.find(&parent, &[*token]).is_some());
    tokens
}

#[test]
fn a_flood_evicts_its_own_prefixes_and_not_those_of_a_tenant_within_its_share() {
    let mut pool = BlockPool::new(12, 1, true);
    cache(&mut pool, "modest", 1, 0..4);
    // It borrows what is free, and then evicts its own least recently used.
    assert_eq!(cache(&mut pool, "flood", 1, 0..50), 50);
    assert_eq!(cached(&pool, "modest", 0..4), [0, 1, 2, 3]);
    assert_eq!(cached(&pool, "flood", 0..50), (42..50).collect::<Vec<_>>());
    assert_eq!(pool.shares().held("flood"), 8, "two more than its share");
    // The lender takes back what it is entitled to, and no more.
    cache(&mut pool, "modest", 1, 4..20);
    assert_eq!(pool.shares().held("modest"), 6);
    assert_eq!(cached(&pool, "flood", 0..50), (44..50).collect::<Vec<_>>());
    pool.audit(&BTreeMap::new());
}

#[test]
fn shares_of_the_cache_follow_weights() {
    let mut pool = BlockPool::new(12, 1, true);
    for round in 0..5 {
        for (tenant, weight) in [("a", 1), ("b", 2), ("c", 3)] {
            cache(&mut pool, tenant, weight, 20 * round..20 * round + 20);
        }
    }
    let held = ["a", "b", "c"].map(|tenant| pool.shares().held(tenant));
    assert_eq!(held, [2, 4, 6]);
}

#[test]
fn blocks_in_use_do_not_displace_prefixes_within_a_share() {
    let mut pool = BlockPool::new(8, 1, true);
    cache(&mut pool, "modest", 1, 0..3);
    let account = enter(&mut pool, "flood");
    let taken: Vec<u32> = std::iter::from_fn(|| pool.take(account)).collect();
    assert_eq!((taken.len(), pool.available_to(account)), (5, 0));
    assert_eq!(cached(&pool, "modest", 0..3), [0, 1, 2]);
    let own = enter(&mut pool, "modest");
    assert_eq!(pool.available_to(own), 3, "its own");
    // As a last resort, for a sequence that runs alone.
    assert!(pool.take_unprotected(account).is_some());
    assert_eq!(cached(&pool, "modest", 0..3), [1, 2]);
}

#[test]
fn a_tenant_that_never_returns_loses_its_entitlement() {
    let mut pool = BlockPool::new(8, 1, true);
    cache(&mut pool, "gone", 1, 0..3);
    let turns = PROTECTED_TURNS as u32 * 8;
    cache(&mut pool, "flood", 1, 0..turns - 1);
    assert_eq!(cached(&pool, "gone", 0..3), [0, 1, 2]);
    cache(&mut pool, "flood", 1, turns..turns + 9);
    assert_eq!(cached(&pool, "gone", 0..3), [0u32; 0]);
    assert_eq!(pool.shares().held("flood"), 8);
    pool.audit(&BTreeMap::new());
}

#[test]
fn all_that_is_idle_is_cleared_and_what_is_in_use_stays() {
    let mut pool = BlockPool::new(12, 1, true);
    cache(&mut pool, "a", 1, 0..4);
    cache(&mut pool, "b", 1, 10..13);
    let salted = Salt::new(Some(Arc::from("a")), None);
    let used = pool.find(&Parent::Root(salted), &[0]);
    let used = used.or_else(|| pool.find(&ROOT, &[0]));
    let used = used.expect("the first block of a prefix");
    pool.acquire(used);
    assert_eq!((pool.clear(), pool.idle(), pool.used()), (6, 0, 1));
    assert_eq!(pool.evictions(), 0);
    pool.audit(&BTreeMap::from([(used, 1)]));
    pool.release([used]);
    assert_eq!((pool.clear(), pool.available()), (1, 12));
    pool.audit(&BTreeMap::new());
}
