//! How others wake the engine's thread, which sleeps while it has nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Set while the engine waits for room in a stream.
pub(crate) type Stalled = Arc<AtomicBool>;

/// A stream's bell at the engine that feeds it.
#[derive(Debug)]
pub(crate) struct StreamDoorbell {
    engine: Thread,
    stalled: Stalled,
}

impl StreamDoorbell {
    pub(crate) fn new(engine: Thread, stalled: Stalled) -> Self {
        Self { engine, stalled }
    }

    /// Wake the engine.
    pub(crate) fn ring(&self) {
        self.engine.unpark();
    }

    /// Wake the engine if it found the stream full. The engine sets the flag and then looks again
    /// whether there is room; a reader makes room and then looks at the flag. One sees the other.
    pub(crate) fn ring_if_stalled(&self) {
        if self.stalled.swap(false, Ordering::SeqCst) {
            self.engine.unpark();
        }
    }
}
