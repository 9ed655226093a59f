//! Ctrl-C in commands that end one piece of work by it, and not themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// A mark that Ctrl-C sets.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Take Ctrl-C from now on, for as long as the process lives.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let mark = Arc::clone(&interrupt.0);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot listen for Ctrl-C")?;
        let mut signals = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?
        };
        std::thread::spawn(move || {
            runtime.block_on(async {
                while signals.recv().await.is_some() {
                    mark.store(true, Ordering::Relaxed);
                }
            });
        });
        Ok(interrupt)
    }

    /// True if Ctrl-C came; the mark is then taken off.
    pub(crate) fn came(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
