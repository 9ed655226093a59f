//! Times of the parts of a start, for the log.

use std::future::Future;
use std::time::{Duration, Instant};

/// A part that takes longer is told of at the usual level.
const LONG: Duration = Duration::from_secs(1);

/// Do a part of the start, and log how long it took.
pub(crate) async fn timed<F: Future>(part: &'static str, work: F) -> F::Output {
    let begun = Instant::now();
    let done = work.await;
    let time = begun.elapsed();
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match time >= LONG {
        true => tracing::info!(part, ms, "a part of the start took long"),
        false => tracing::debug!(part, ms, "a part of the start is done"),
    }
    done
}
