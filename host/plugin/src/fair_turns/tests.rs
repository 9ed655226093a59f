use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn tenant(name: &str) -> Arc<str> {
    Arc::from(name)
}

/// Bounds of work in slices.
fn slices(turns: usize) -> TurnBounds {
    TurnBounds {
        turns,
        started: 64,
        kept: 0,
        timed: false,
    }
}

/// A job of so many slices on a thread of its own, which writes its tenant down for each.
async fn job(
    turns: Arc<FairTurns>,
    name: &'static str,
    slices: usize,
    log: Arc<Mutex<Vec<&'static str>>>,
) {
    let mut turn = turns.take(&tenant(name)).await.expect("a turn");
    let work = tokio::task::spawn_blocking(move || {
        for _ in 0..slices {
            log.lock().unwrap().push(name);
            turn.pause(100);
        }
    });
    work.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_behind_the_whole_of_anothers_work() {
    let turns = FairTurns::new(slices(1));
    let log = Arc::new(Mutex::new(Vec::new()));
    // Held back until all are queued.
    let first = turns.take(&tenant("z")).await.expect("a turn");
    let mut jobs = Vec::new();
    for (name, slices) in [("large", 100), ("large", 100), ("small", 3), ("other", 5)] {
        jobs.push(tokio::spawn(job(
            Arc::clone(&turns),
            name,
            slices,
            Arc::clone(&log),
        )));
        while turns
            .state()
            .owners
            .get(name)
            .is_none_or(|tenant| tenant.waiting.is_empty())
        {
            tokio::task::yield_now().await;
        }
    }
    drop(first);
    for job in jobs {
        job.await.expect("no panic");
    }
    let log = log.lock().unwrap();
    let last = |name: &str| {
        log.iter()
            .rposition(|found| *found == name)
            .expect("it ran")
    };
    assert_eq!(log.len(), 208);
    assert!(last("small") < 12, "{log:?}");
    assert!(last("other") < 18, "{log:?}");
    let state = turns.state();
    assert_eq!((state.free, state.started), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_never_more_at_once_than_turns() {
    let turns = FairTurns::new(slices(3));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let jobs = (0..40).map(|number| {
        let (turns, running, most) = (Arc::clone(&turns), Arc::clone(&running), Arc::clone(&most));
        tokio::spawn(async move {
            let name = tenant(&format!("tenant {}", number % 7));
            let mut turn = turns.take(&name).await.expect("a turn");
            let work = tokio::task::spawn_blocking(move || {
                for _ in 0..20 {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    turn.pause(10);
                }
            });
            work.await.expect("no panic");
        })
    });
    for job in jobs.collect::<Vec<_>>() {
        job.await.expect("no panic");
    }
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    let state = turns.state();
    assert_eq!((state.free, state.started), (3, 0));
}

#[tokio::test]
async fn who_goes_while_waiting_leaves_the_turn_to_others() {
    let turns = FairTurns::new(slices(1));
    let first = turns.take(&tenant("a")).await.expect("a turn");
    let gone = tokio::spawn({
        let turns = Arc::clone(&turns);
        async move { turns.take(&tenant("b")).await.is_some() }
    });
    tokio::task::yield_now().await;
    gone.abort();
    assert!(gone.await.is_err());
    drop(first);
    let next = turns.take(&tenant("c")).await.expect("a turn");
    drop(next);
    assert_eq!(turns.state().free, 1);
}

#[tokio::test]
async fn tenants_that_are_done_are_forgotten() {
    let turns = FairTurns::new(slices(1));
    for number in 0..5000 {
        drop(turns.take(&tenant(&format!("tenant {number}"))).await);
    }
    assert!(turns.state().owners.len() <= IDLE_OWNERS_MAX + 1);
}

/// Turns that an owner gets until it would have to wait.
fn fill(turns: &Arc<FairTurns>, owner: &str) -> Vec<FairTurn> {
    std::iter::from_fn(|| turns.try_take(&tenant(owner))).collect()
}

#[test]
fn an_owner_leaves_the_last_places_to_those_who_hold_fewer() {
    for (count, one, other, third) in [(1, 1, 0, 0), (2, 1, 1, 0), (8, 7, 1, 0), (64, 56, 8, 0)] {
        let turns = FairTurns::new(TurnBounds::places(count));
        let held = ["a", "b", "c"].map(|owner| fill(&turns, owner));
        let counts = held.each_ref().map(Vec::len);
        assert_eq!(counts, [one, other, third], "{count} places");
        drop(held);
        assert_eq!(fill(&turns, "c").len(), one, "{count} places");
    }
}

/// Waits in the background, and tells its name with its turn.
async fn wait(
    turns: &Arc<FairTurns>,
    owner: &'static str,
    got: &tokio::sync::mpsc::UnboundedSender<(&'static str, FairTurn)>,
) -> tokio::task::JoinHandle<()> {
    let before = waiters(turns, owner);
    let task = tokio::spawn({
        let (turns, got) = (Arc::clone(turns), got.clone());
        async move {
            let turn = turns.take(&tenant(owner)).await.expect("a turn");
            got.send((owner, turn)).expect("a listener");
        }
    });
    while waiters(turns, owner) == before {
        tokio::task::yield_now().await;
    }
    task
}

fn waiters(turns: &Arc<FairTurns>, owner: &str) -> usize {
    let state = turns.state();
    state
        .owners
        .get(owner)
        .map_or(0, |owner| owner.waiting.len())
}

#[tokio::test]
async fn a_place_that_comes_free_is_that_of_whoever_holds_fewest() {
    let turns = FairTurns::new(TurnBounds::places(8));
    let (got, mut gets) = tokio::sync::mpsc::unbounded_channel();
    let mut held = fill(&turns, "flood");
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(wait(&turns, "flood", &got).await);
    }
    let first = turns.try_take(&tenant("late"));
    assert!(first.is_some(), "a place is kept");
    for _ in 0..5 {
        waiting.push(wait(&turns, "late", &got).await);
    }
    // One of eight stays free for a third owner, once one of the flood has ended.
    let mut order = Vec::new();
    let mut late = Vec::new();
    for _ in 0..4 {
        held.pop();
        while let Ok((owner, turn)) = gets.try_recv() {
            order.push(owner);
            late.push(turn);
        }
        tokio::task::yield_now().await;
        while let Ok((owner, turn)) = gets.try_recv() {
            order.push(owner);
            late.push(turn);
        }
    }
    // Until both hold alike.
    assert_eq!(order, ["late", "late", "flood"]);
    assert!(turns.try_take(&tenant("third")).is_some());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn waiters_who_have_gone_take_no_memory() {
    let turns = FairTurns::new(TurnBounds::places(1));
    let _held = turns.try_take(&tenant("a")).expect("a turn");
    for _ in 0..10_000 {
        let owner = tenant("a");
        let gone = turns.take(&owner);
        assert!(futures_now(gone).is_none());
    }
    assert!(waiters(&turns, "a") <= 2);
}

/// The outcome of a future that is polled once.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn time_that_places_are_held_decides_between_those_who_hold_as_many() {
    let turns = FairTurns::new(TurnBounds::places(1));
    let mut long = turns.try_take(&tenant("a")).expect("a turn");
    long.since -= std::time::Duration::from_secs(5);
    let (got, mut gets) = tokio::sync::mpsc::unbounded_channel();
    let waiting = [
        wait(&turns, "a", &got).await,
        wait(&turns, "b", &got).await,
        wait(&turns, "b", &got).await,
    ];
    long.count_time();
    drop(long);
    let mut order = Vec::new();
    for _ in 0..3 {
        let (owner, mut turn) = gets.recv().await.expect("a turn");
        turn.since -= std::time::Duration::from_secs(1);
        turn.count_time();
        order.push(owner);
    }
    assert_eq!(order, ["b", "b", "a"]);
    for task in waiting {
        task.await.expect("no panic");
    }
}
