//! Keeps background tasks alive: one that panics or returns is started again. Faults can be injected into them.

pub mod faults;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::faults::strike;

/// Pauses before a task is started again.
#[derive(Debug, Clone, Copy)]
struct Backoff {
    /// The first one; it doubles with each restart.
    first: Duration,
    longest: Duration,
    /// A task that ran for so long begins with the first pause again.
    steady: Duration,
}

const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(30),
    steady: Duration::from_secs(60),
};

impl Backoff {
    /// The pause after a run, and the one after the next.
    fn after(self, pause: Duration, ran: Duration) -> (Duration, Duration) {
        let pause = if ran >= self.steady {
            self.first
        } else {
            pause
        };
        (pause, (2 * pause).min(self.longest))
    }
}

/// Restarts of tasks, by name.
static RESTARTS: Mutex<Vec<(&str, u64)>> = Mutex::new(Vec::new());

/// Run a task that must not end. `make` makes its future, again after each end. The handle ends with the
/// runtime, or when it is aborted.
pub fn supervise<F, T>(name: &'static str, make: F) -> JoinHandle<()>
where
    F: FnMut() -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    supervise_with(name, BACKOFF, make)
}

fn supervise_with<F, T>(name: &'static str, backoff: Backoff, mut make: F) -> JoinHandle<()>
where
    F: FnMut() -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    restarted(name, backoff, Box::new(move || Box::pin(make())))
}

/// A task of any type. The runtime's frame of a task is compiled once for it, not once for each task.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

fn restarted(
    name: &'static str,
    backoff: Backoff,
    mut make: Box<dyn FnMut() -> Task + Send>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut next = backoff.first;
        loop {
            let begun = Instant::now();
            let end = match spawn(name, make()).join().await {
                Ok(()) => "it returned",
                Err(error) if error.is_panic() => "it panicked",
                // The runtime is shutting down.
                Err(_) => return,
            };
            let (pause, following) = backoff.after(next, begun.elapsed());
            next = following;
            count(name);
            tracing::error!(
                task = name,
                end,
                restart_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "a task that must go on has ended and is started again"
            );
            tokio::time::sleep(pause).await;
        }
    })
}

/// Run a task to its end. What ends the process with it says why.
///
/// # Errors
/// When it panics.
pub async fn must_go_on<F>(name: &'static str, task: F) -> Result<(), JoinError>
where
    F: Future<Output = ()> + Send + 'static,
{
    spawn(name, Box::pin(task)).join().await
}

/// Start a task, or what panics in its place when a fault is injected.
fn spawn(name: &'static str, task: Task) -> Running {
    Running(tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            () = strike(name) => {}
        }
    }))
}

/// Restarts of supervised tasks, by name.
pub fn restarts() -> Vec<(&'static str, u64)> {
    RESTARTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn count(name: &'static str) {
    let mut restarts = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    match restarts.iter_mut().find(|(known, _)| *known == name) {
        Some((_, count)) => *count += 1,
        None => restarts.push((name, 1)),
    }
}

/// A task that ends with the one that waits for it.
struct Running(JoinHandle<()>);

impl Running {
    async fn join(mut self) -> Result<(), JoinError> {
        (&mut self.0).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::sync::Notify;

    use super::*;

    fn restarts_of(name: &str) -> u64 {
        let all = restarts();
        all.iter()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, count)| *count)
    }

    const QUICK: Backoff = Backoff {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(4),
        steady: Duration::from_secs(60),
    };

    #[tokio::test]
    async fn a_task_that_ends_is_started_again_however_it_ends() {
        let faults: [(&str, fn()); 2] = [("returns", || {}), ("panics", || panic!("injected"))];
        for (name, fault) in faults {
            let (runs, lives) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
            let (counted, told) = (Arc::clone(&runs), Arc::clone(&lives));
            let handle = supervise_with(name, QUICK, move || {
                let (runs, lives) = (Arc::clone(&counted), Arc::clone(&told));
                async move {
                    if runs.fetch_add(1, SeqCst) < 3 {
                        fault();
                        return;
                    }
                    lives.notify_one();
                    std::future::pending::<()>().await;
                }
            });
            lives.notified().await;
            assert_eq!(runs.load(SeqCst), 4, "{name}");
            assert_eq!(restarts_of(name), 3, "{name}");
            handle.abort();
        }
    }

    #[test]
    fn pauses_grow_to_a_bound_and_shrink_after_a_steady_run() {
        let (mut next, mut pauses) = (BACKOFF.first, Vec::new());
        for _ in 0..12 {
            let (pause, following) = BACKOFF.after(next, Duration::ZERO);
            pauses.push(pause);
            next = following;
        }
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(pauses.first(), Some(&BACKOFF.first));
        assert_eq!(pauses.last(), Some(&BACKOFF.longest));
        let (pause, following) = BACKOFF.after(next, BACKOFF.steady);
        assert_eq!((pause, following), (BACKOFF.first, 2 * BACKOFF.first));
    }

    #[tokio::test]
    async fn what_is_no_longer_supervised_ends() {
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let begun = Arc::<Notify>::default();
        let told = Arc::clone(&begun);
        let handle = supervise("ends with its supervisor", move || {
            let (held, begun) = (Arc::clone(&held), Arc::clone(&told));
            async move {
                let _held = held;
                begun.notify_one();
                std::future::pending::<()>().await;
            }
        });
        begun.notified().await;
        assert_eq!(Arc::strong_count(&alive), 3);
        handle.abort();
        while Arc::strong_count(&alive) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
