use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BlockPool, Parent};

const ROOT: Parent = Parent::Root(None);

/// Take a block and commit it.
fn grown(pool: &mut BlockPool, parent: Parent, tokens: &[u32]) -> u32 {
    let block = pool.take().expect("a block");
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
    let salted = Parent::Root(Some(Arc::from("a")));
    assert_eq!(pool.find(&salted, &[1, 2]), None, "another salt");
    // Whoever computed the same block meanwhile gives it up for the one that is there.
    let again = pool.take().unwrap();
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
    let evicted: Vec<u32> = (0..4).map(|_| pool.take().unwrap()).collect();
    assert_eq!(
        evicted,
        [b, d, c, a],
        "leaves first, each the oldest of its time"
    );
    assert_eq!((pool.take(), pool.evictions()), (None, 4));
    assert_eq!(pool.find(&ROOT, &[1, 1]), None);
    pool.audit(&evicted.iter().map(|block| (*block, 1)).collect());
}

#[test]
fn blocks_in_use_are_never_evicted() {
    let mut pool = BlockPool::new(3, 1, true);
    let parent = grown(&mut pool, ROOT, &[1]);
    let child = grown(&mut pool, Parent::Block(parent), &[2]);
    pool.release([child]);
    let taken = [pool.take().unwrap(), pool.take().unwrap()];
    assert!(taken.contains(&child) && !taken.contains(&parent));
    assert_eq!(pool.take(), None);
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
