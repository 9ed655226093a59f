//! Wakers of the engine's thread, which parks while it has nothing to compute.
//!
//! New requests, readers that make room in their streams, and masks that become ready all unpark the
//! same thread. A wake-up before the thread parks is not lost: the next park returns at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks a thread.
pub(crate) fn thread_waker(thread: Thread) -> Waker {
    Waker::from(Arc::new(ThreadWaker(thread)))
}

/// Set while the engine waits for room in a stream.
pub(crate) type Stalled = Arc<AtomicBool>;

/// Wakes the engine on behalf of one stream.
#[derive(Debug)]
pub(crate) struct StreamWaker {
    engine: Waker,
    stalled: Stalled,
}

impl StreamWaker {
    pub(crate) fn new(engine: Waker, stalled: Stalled) -> Self {
        Self { engine, stalled }
    }

    /// Wake the engine.
    pub(crate) fn wake(&self) {
        self.engine.wake_by_ref();
    }

    /// Wake the engine if it found the stream full. The engine sets the flag and then tries to send
    /// again; a reader receives and then reads the flag. At least one of the two sees the other.
    pub(crate) fn wake_if_stalled(&self) {
        if self.stalled.swap(false, Ordering::SeqCst) {
            self.engine.wake_by_ref();
        }
    }
}
