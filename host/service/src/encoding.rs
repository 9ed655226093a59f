//! Encoding texts without keeping others waiting: short ones where they come, longer ones on threads for
//! blocking work, and of large ones only so many at a time that the engines keep most processors.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;

use crate::error::ServiceError;

/// Texts up to this are encoded where they come.
const INLINE_BYTES: usize = 4096;

/// Texts beyond this take turns: a MiB takes half a second of a processor.
const LARGE_BYTES: usize = 256 << 10;

/// The turns of large texts, over all models: a quarter of the processors.
fn turns() -> &'static Semaphore {
    static TURNS: OnceLock<Semaphore> = OnceLock::new();
    TURNS.get_or_init(|| {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Semaphore::new((processors / 4).max(1))
    })
}

/// Do the work of encoding texts of so many bytes.
///
/// # Errors
/// When the work panics, or the runtime ends before it is done.
pub(crate) async fn encode<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServiceError> {
    if bytes <= INLINE_BYTES {
        return Ok(work());
    }
    // Nobody closes it, so it fails for nobody.
    let _turn = match bytes > LARGE_BYTES {
        true => turns().acquire().await.ok(),
        false => None,
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ServiceError::Engine(format!("a text was not encoded: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn large_texts_take_turns_and_others_do_not_wait_for_them() {
        let at_once = turns().available_permits();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let waits = Arc::new(std::sync::Mutex::new(waits));
        let large: Vec<_> = (0..at_once + 3)
            .map(|_| {
                let (running, most, waits) =
                    (Arc::clone(&running), Arc::clone(&most), Arc::clone(&waits));
                tokio::spawn(encode(LARGE_BYTES + 1, move || {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    waits.lock().unwrap().recv().unwrap();
                    running.fetch_sub(1, Ordering::SeqCst);
                }))
            })
            .collect();
        for bytes in [1, INLINE_BYTES + 1, LARGE_BYTES] {
            assert_eq!(encode(bytes, || 7).await.unwrap(), 7);
        }
        (0..large.len()).for_each(|_| go_on.send(()).unwrap());
        for task in large {
            task.await.unwrap().unwrap();
        }
        assert!((1..=at_once).contains(&most.load(Ordering::SeqCst)));
        let broken = encode(INLINE_BYTES + 1, || panic!("a defect")).await;
        assert!(matches!(broken, Err(ServiceError::Engine(_))));
    }
}
