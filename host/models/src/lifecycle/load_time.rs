//! Time of a load: in all, and without progress. A thread that waits for a file system which does not answer can neither
//! be ended nor woken, so a load that is late is left behind on its thread, and fails.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::progress::LoadProgress;

/// Looks at a load within its time without progress.
const LOOKS: u32 = 10;

/// Longest pause between two looks at a load.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bounds of the time of a load; `None` is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadTime {
    /// Without progress: no file that is fetched grows, and the thread that loads reads and computes nothing.
    pub stall: Option<Duration>,
    /// From its beginning to its end, without the wait for other loads and for room.
    pub whole: Option<Duration>,
}

/// Why a load has no result.
#[derive(Debug)]
pub(super) enum Broken {
    /// Failure of the load, with its reason.
    Failed(String),
    /// Timeout of the load. Its thread may go on.
    Late(String, LeftBehind),
}

/// The thread of a load that was given up.
#[derive(Debug, Clone)]
pub(super) struct LeftBehind(Weak<Activity>);

impl LeftBehind {
    /// Whether it still runs.
    pub(super) fn goes_on(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// The time that a load has.
pub(super) struct Clock {
    bounds: LoadTime,
    spent: Duration,
}

impl Clock {
    pub(super) fn new(bounds: LoadTime) -> Self {
        let spent = Duration::ZERO;
        Self { bounds, spent }
    }

    /// Do a part of the load on a thread that may block, within the time.
    pub(super) async fn run<T: Send + 'static>(
        &mut self,
        progress: LoadProgress,
        part: impl FnOnce(&LoadProgress) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, Broken> {
        let begun = Instant::now();
        let result = self.watch(begun, Arc::new(progress), part).await;
        self.spent += begun.elapsed();
        result
    }

    async fn watch<T: Send + 'static>(
        &self,
        begun: Instant,
        progress: Arc<LoadProgress>,
        part: impl FnOnce(&LoadProgress) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, Broken> {
        let activity = Arc::<Activity>::default();
        let mut loading = tokio::task::spawn_blocking({
            let (progress, activity) = (Arc::clone(&progress), Arc::clone(&activity));
            move || {
                activity.begin();
                part(&progress)
            }
        });
        let behind = LeftBehind(Arc::downgrade(&activity));
        let mut seen = (progress.changes(), activity.computed());
        let mut moved = Instant::now();
        loop {
            tokio::select! {
                ended = &mut loading => return match ended {
                    Ok(Ok(loaded)) => Ok(loaded),
                    Ok(Err(error)) => Err(Broken::Failed(format!("{error:#}"))),
                    Err(panic) => Err(Broken::Failed(format!("the load broke off: {panic}"))),
                },
                () = tokio::time::sleep(self.pause()) => {}
            }
            let now = (progress.changes(), activity.computed());
            // Where the system does not tell what a thread does, it is taken to do something.
            if now != seen || now.1.is_none() {
                (seen, moved) = (now, Instant::now());
            }
            if let Some(reason) = self.late(begun.elapsed(), moved.elapsed()) {
                return Err(Broken::Late(reason, behind));
            }
        }
    }

    fn pause(&self) -> Duration {
        let shortest = self.bounds.stall.into_iter().chain(self.bounds.whole).min();
        shortest.map_or(PAUSE_MAX, |bound| (bound / LOOKS).min(PAUSE_MAX))
    }

    fn late(&self, running: Duration, still: Duration) -> Option<String> {
        if let Some(stall) = self.bounds.stall.filter(|stall| still >= *stall) {
            return Some(format!(
                "it made no progress for {} s (`lifecycle.load_stall_seconds`): nothing was read and nothing computed; \
                 the file system that its files are on may not answer",
                stall.as_secs_f32()
            ));
        }
        let whole = self
            .bounds
            .whole
            .filter(|whole| self.spent + running >= *whole)?;
        Some(format!(
            "it took longer than {} s (`lifecycle.load_timeout_seconds`)",
            whole.as_secs_f32()
        ))
    }
}

/// Processor time of a load's thread.
#[derive(Debug, Default)]
struct Activity {
    /// Its file of times on a processor.
    file: OnceLock<PathBuf>,
}

impl Activity {
    /// Called on the thread.
    fn begin(&self) {
        if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
            let _ = self
                .file
                .set(PathBuf::from("/proc").join(thread).join("schedstat"));
        }
    }

    /// Nanoseconds for which it had a processor. A page that is read from a disk takes some of them, since the thread
    /// copies or maps it; a read that waits takes none.
    fn computed(&self) -> Option<u64> {
        let times = std::fs::read_to_string(self.file.get()?).ok()?;
        times.split_whitespace().next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn clock(stall: Option<Duration>, whole: Option<Duration>) -> Clock {
        Clock::new(LoadTime { stall, whole })
    }

    fn is_late(broken: &Broken, key: &str) -> bool {
        matches!(broken, Broken::Late(text, _) if text.contains(key))
    }

    #[tokio::test]
    async fn a_load_that_stands_still_is_left_behind() {
        let (leave, gate) = mpsc::channel::<()>();
        let mut clock = clock(Some(Duration::from_millis(200)), None);
        let stuck = clock.run(LoadProgress::default(), move |_| {
            let _ = gate.recv();
            Ok(())
        });
        let broken = stuck.await.unwrap_err();
        assert!(is_late(&broken, "lifecycle.load_stall_seconds"));
        let Broken::Late(_, behind) = broken else {
            panic!("it is late");
        };
        assert!(behind.goes_on());
        drop(leave);
        while behind.goes_on() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_slow_load_that_goes_on_may_take_its_time() {
        let stall = Duration::from_secs(2);
        // Work, and files that grow while the thread itself only waits.
        for works in [true, false] {
            let mut clock = clock(Some(stall), None);
            let slow = clock.run(LoadProgress::default(), move |progress| {
                let begun = Instant::now();
                while begun.elapsed() < stall * 2 {
                    if !works {
                        progress.advance(1);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(7)
            });
            assert_eq!(slow.await.expect("it is loaded"), 7);
        }
    }

    #[tokio::test]
    async fn all_parts_together_have_a_bound() {
        let whole = Duration::from_millis(400);
        let mut clock = clock(None, Some(whole));
        let quick = clock.run(LoadProgress::default(), |_| Ok(()));
        quick.await.expect("in time");
        clock.spent = whole;
        let endless = clock.run(LoadProgress::default(), |_| {
            std::thread::sleep(Duration::from_secs(1));
            Ok(())
        });
        let broken = endless.await.unwrap_err();
        assert!(is_late(&broken, "lifecycle.load_timeout_seconds"));
    }

    #[tokio::test]
    async fn a_load_says_why_it_failed() {
        let mut clock = clock(None, None);
        let failed = clock.run(LoadProgress::default(), |_| -> anyhow::Result<()> {
            anyhow::bail!("no such file")
        });
        let broken = failed.await.unwrap_err();
        assert!(matches!(broken, Broken::Failed(text) if text == "no such file"));
    }
}
