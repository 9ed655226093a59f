//! Encoding texts without keeping others waiting: short ones where they come, longer ones on a few
//! threads, in slices. Tenants take turns, and a request that is dropped ends its encoding.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::available_parallelism;

use mortise_plugin::{FairTurns, TurnBounds};
use mortise_tokenizer::EncodeLimits;

use crate::error::ServiceError;

/// Texts up to this are encoded where they come.
const INLINE_BYTES: usize = 4096;
/// Jobs that have begun and not ended, at most: each has a thread, even while it waits between slices.
const STARTED_MAX: usize = 64;

/// The turns of longer texts, over all models: a quarter of the processors, so that the engines keep
/// most.
fn turns() -> &'static Arc<FairTurns> {
    static TURNS: OnceLock<Arc<FairTurns>> = OnceLock::new();
    TURNS.get_or_init(|| {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        FairTurns::new(TurnBounds {
            turns: processors / 4,
            started: STARTED_MAX,
            kept: 0,
            timed: false,
        })
    })
}

/// Encode texts of so many bytes that belong to `tenant`: `work` gets the bounds that it must keep,
/// `max_tokens` among them.
///
/// # Errors
/// When the work panics, or the runtime ends before it is done.
pub(crate) async fn encode<T: Send + 'static>(
    tenant: &Arc<str>,
    bytes: usize,
    max_tokens: usize,
    work: impl FnOnce(EncodeLimits<'_>) -> T + Send + 'static,
) -> Result<T, ServiceError> {
    if bytes <= INLINE_BYTES {
        return Ok(work(EncodeLimits {
            max_tokens,
            ..EncodeLimits::NONE
        }));
    }
    let turn = turns().take(tenant).await.ok_or(ServiceError::Stopping)?;
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let still = Arc::clone(&wanted.0);
    let task = tokio::task::spawn_blocking(move || {
        let turn = Mutex::new(turn);
        let proceed = |done| {
            let wanted = || still.load(Ordering::Relaxed);
            if wanted() {
                turn.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pause(done);
            }
            wanted()
        };
        work(EncodeLimits {
            max_tokens,
            proceed: &proceed,
        })
    });
    let done = task.await;
    drop(wanted);
    done.map_err(|error| ServiceError::Engine(format!("a text was not encoded: {error}")))
}

/// Whether somebody waits for the result.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn short_texts_wait_for_nobody_and_dropped_requests_end_their_work() {
        let tenant: Arc<str> = Arc::from("a");
        let (began, begins) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        let long = tokio::spawn({
            let tenant = Arc::clone(&tenant);
            async move {
                encode(&tenant, INLINE_BYTES + 1, 7, move |limits| {
                    began.send(limits.max_tokens).unwrap();
                    while (limits.proceed)(1) {
                        std::thread::yield_now();
                    }
                    ended.send(()).unwrap();
                })
                .await
            }
        });
        let max_tokens = tokio::task::spawn_blocking(move || begins.recv())
            .await
            .unwrap();
        assert_eq!(max_tokens.unwrap(), 7);
        let short = encode(&tenant, INLINE_BYTES, 9, |limits| limits.max_tokens).await;
        assert_eq!(short.unwrap(), 9);
        long.abort();
        // It would go on for ever if nobody told it.
        tokio::task::spawn_blocking(move || ends.recv())
            .await
            .unwrap()
            .unwrap();
        let broken = encode(&tenant, INLINE_BYTES + 1, 1, |_| panic!("a defect")).await;
        assert!(matches!(broken, Err(ServiceError::Engine(_))));
        // The turn of a panic is not lost.
        let again = encode(&tenant, INLINE_BYTES + 1, 1, |_| 3).await;
        assert_eq!(again.unwrap(), 3);
    }
}
