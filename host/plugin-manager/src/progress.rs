//! Progress of a reload, and its duration: files may lie on a file system that does not answer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A step that takes longer is overdue, and operators are told.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

/// A step that takes longer is given up.
pub(crate) const GIVEN_UP: Duration = Duration::from_secs(600);

/// The steps under way, the oldest first. Several may be: the plugin folder is looked at while settings are read.
#[derive(Debug, Default)]
pub(crate) struct ReloadProgress(Mutex<Steps>);

#[derive(Debug, Default)]
struct Steps {
    under_way: Vec<(u64, &'static str, Instant)>,
    /// Number of the next one.
    next: u64,
}

impl ReloadProgress {
    /// A step begins; it ends with what is returned.
    pub(crate) fn begin(&self, step: &'static str) -> ReloadStep<'_> {
        let mut steps = self.lock();
        let number = steps.next;
        steps.next += 1;
        steps.under_way.push((number, step, Instant::now()));
        ReloadStep(self, number)
    }

    /// The step that has been overdue for longest, and how long it has taken.
    pub(crate) fn overdue(&self) -> Option<(&'static str, Duration)> {
        let (_, step, begun) = *self.lock().under_way.first()?;
        let taken = begun.elapsed();
        (taken >= OVERDUE).then_some((step, taken))
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step under way.
#[derive(Debug)]
pub(crate) struct ReloadStep<'a>(&'a ReloadProgress, u64);

impl Drop for ReloadStep<'_> {
    fn drop(&mut self) {
        let mut steps = self.0.lock();
        steps.under_way.retain(|(number, ..)| *number != self.1);
    }
}

/// Run what blocks on a thread of its own, and say so when it is overdue. `None` if it was given up, or
/// panicked; what was given up goes on, and its outcome is forgotten.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    progress: &ReloadProgress,
    step: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let _step = progress.begin(step);
    let mut running = tokio::task::spawn_blocking(work);
    let outcome = match tokio::time::timeout(OVERDUE, &mut running).await {
        Ok(outcome) => Ok(outcome),
        Err(_) => {
            tracing::error!(
                step,
                seconds = OVERDUE.as_secs(),
                "a reload is overdue; does the file system answer on which the files lie?"
            );
            tokio::time::timeout(GIVEN_UP, &mut running).await
        }
    };
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{step} failed: {error}")),
        Err(_) => Err(format!(
            "{step} was given up after {} s",
            (OVERDUE + GIVEN_UP).as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_step_that_panics_is_told_and_the_next_one_runs() {
        let progress = ReloadProgress::default();
        let failed = on_a_thread(&progress, "reading", || panic!("injected")).await;
        let failed: Result<(), String> = failed;
        assert!(failed.expect_err("failed").contains("reading failed"));
        assert_eq!(on_a_thread(&progress, "reading", || 7).await, Ok(7));
        assert!(progress.overdue().is_none());
    }

    #[test]
    fn a_step_is_overdue_until_it_ends() {
        let progress = ReloadProgress::default();
        let step = progress.begin("reading");
        assert!(progress.overdue().is_none());
        if let Some(begun) = Instant::now().checked_sub(OVERDUE) {
            progress.lock().under_way[0].2 = begun;
            // Another one that begins later and ends before it hides nothing.
            let second = progress.begin("looking");
            assert_eq!(progress.overdue().map(|(step, _)| step), Some("reading"));
            drop(second);
            assert_eq!(progress.overdue().map(|(step, _)| step), Some("reading"));
        }
        drop(step);
        assert!(progress.overdue().is_none());
    }
}
