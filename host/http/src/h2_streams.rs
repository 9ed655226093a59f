//! Streams of HTTP/2 whose peer makes no room for an answer. A connection is watched by its socket, which says nothing
//! of one stream among others: hyper asks a body for more only when there is room, and waits without a bound. So each
//! stream, which hyper has on a task of its own, is watched there, and is reset when its peer is too slow.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep_until};

tokio::task_local! {
    static STREAM: Arc<Handover>;
}

/// Progress of the answer on one stream.
#[derive(Debug, Default)]
pub(super) struct Handover(Mutex<State>);

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// Since when something is ready that the peer has no room for.
    waits_since: Option<Instant>,
    /// Since when an answer for nobody in particular is handed over.
    unclaimed_since: Option<Instant>,
}

impl Handover {
    /// Handover of the stream whose task this is; `None` over HTTP/1.
    pub(super) fn here() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Something is ready, and waits for room.
    pub(super) fn waits(&self) {
        self.change(|state| state.waits_since = Some(Instant::now()));
    }

    /// The peer has room for more.
    pub(super) fn goes_on(&self) {
        self.change(|state| state.waits_since = None);
    }

    /// The answer is for nobody in particular: it has a bound of time in all.
    pub(super) fn hand_to_nobody(&self) {
        self.change(|state| state.unclaimed_since = Some(Instant::now()));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// When the stream is to be reset, if nothing changes until then.
    fn due(&self, limit: Duration) -> Option<Instant> {
        let state = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waits_since = state.waits_since?;
        Some(state.unclaimed_since.unwrap_or(waits_since) + limit)
    }
}

/// Runs the streams of connections, each until it ends or its peer has not read for `limit`.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamExecutor {
    pub(super) limit: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let handover = Arc::<Handover>::default();
        let watched = Watched {
            stream: Box::pin(stream),
            handover: Arc::clone(&handover),
            limit: self.limit,
            timer: None,
        };
        tokio::spawn(STREAM.scope(handover, watched));
    }
}

/// A stream that is dropped when it is due, which resets it.
struct Watched<F> {
    stream: Pin<Box<F>>,
    handover: Arc<Handover>,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(due) = this.handover.due(this.limit) else {
            this.timer = None;
            return Poll::Pending;
        };
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        let ended = timer.as_mut().poll(context);
        if ended.is_ready() {
            tracing::debug!("a stream was reset: its peer does not read an answer in time");
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;

    /// Watch a task that does this. It is told of an end of its own; one that was dropped says nothing.
    fn watched<F>(limit: Duration, steps: impl FnOnce(Arc<Handover>) -> F) -> oneshot::Receiver<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (ended, end) = oneshot::channel();
        let handover = Arc::<Handover>::default();
        let stream = steps(Arc::clone(&handover));
        tokio::spawn(Watched {
            stream: Box::pin(async move {
                stream.await;
                let _ = ended.send(());
            }),
            handover,
            limit,
            timer: None,
        });
        end
    }

    #[tokio::test]
    async fn a_peer_without_room_is_not_waited_for_and_a_slow_model_is() {
        let limit = Duration::from_millis(50);
        let still = watched(limit, |handover| async move {
            handover.waits();
            std::future::pending().await
        });
        assert!(still.await.is_err());
        let slow = watched(limit, move |handover| async move {
            handover.waits();
            handover.goes_on();
            sleep(limit * 5).await;
        });
        assert!(slow.await.is_ok());
    }

    #[tokio::test]
    async fn progress_counts_for_callers_that_are_known_only() {
        let limit = Duration::from_secs(3);
        let dripping = move |handover: Arc<Handover>| async move {
            for _ in 0..5 {
                handover.waits();
                sleep(limit / 4).await;
                handover.goes_on();
            }
        };
        let known = watched(limit, dripping);
        let unclaimed = watched(limit, move |handover| async move {
            handover.hand_to_nobody();
            dripping(handover).await;
        });
        assert!(known.await.is_ok());
        assert!(unclaimed.await.is_err());
    }
}
