use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn tenant(name: &str) -> Arc<str> {
    Arc::from(name)
}

/// A job of so many slices on a thread of its own, which writes its tenant down for each.
async fn job(
    turns: Arc<EncodingTurns>,
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
    let turns = EncodingTurns::new(1);
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
            .tenants
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
    let turns = EncodingTurns::new(3);
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
    let turns = EncodingTurns::new(1);
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
    let turns = EncodingTurns::new(1);
    for number in 0..5000 {
        drop(turns.take(&tenant(&format!("tenant {number}"))).await);
    }
    assert!(turns.state().tenants.len() <= IDLE_TENANTS_MAX + 1);
}
