//! Work that outlives a call. Tasks and what they drop are of one type each, whatever the kind of the instance, so that
//! what a runtime makes of a task is compiled once.

use std::pin::Pin;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Work of a task.
pub(crate) type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Start a task that nobody waits for.
pub(crate) fn start(runtime: &Handle, task: BackgroundTask) {
    drop(runtime.spawn(task));
}

/// Run what blocks on a thread for such work.
pub(crate) fn on_a_thread(runtime: &Handle, work: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
    runtime.spawn_blocking(work)
}

/// Drop a value on a thread for work that blocks.
pub(crate) fn drop_on_a_thread(runtime: &Handle, value: Box<dyn Send>) -> JoinHandle<()> {
    runtime.spawn_blocking(move || drop(value))
}
