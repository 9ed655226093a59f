//! Fault injection into the running server, to see what becomes of it when a task that must go on panics.
//!
//! `MORTISE_FAULTS` names a folder. A file in it with the name of a task makes that task panic once, where it
//! is then; the file is removed. While there is a file `TASK-stall`, a thread of that name stands still; where it is a FIFO,
//! the thread waits to open it, as it would for a file system that does not answer. CONTRIBUTING.md lists the tasks.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Interval at which an asynchronous task looks for its file.
const LOOK: Duration = Duration::from_millis(20);

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Inject faults as files in `folder` say. Called once, before the tasks start.
pub fn enable(folder: PathBuf) {
    let _ = FOLDER.set(folder);
}

/// Say in the log that faults may be injected.
pub fn warn() {
    if let Some(folder) = FOLDER.get() {
        tracing::warn!(folder = %folder.display(), "MORTISE_FAULTS is set: tasks panic when files there say so");
    }
}

/// Panic if a file asks for it, which is removed.
pub fn point(task: &str) {
    if let Some(folder) = FOLDER.get()
        && std::fs::remove_file(folder.join(task)).is_ok()
    {
        panic!("a fault was injected into {task}");
    }
}

/// Stand still while a file asks for it.
pub fn stall(task: &str) {
    if let Some(folder) = FOLDER.get() {
        let file = folder.join(format!("{task}-stall"));
        while let Ok(found) = std::fs::metadata(&file) {
            match found.is_file() {
                true => std::thread::sleep(LOOK),
                // Until somebody opens it to write.
                false => drop(std::fs::File::open(&file)),
            }
        }
    }
}

/// Panic when a file asks for it. Without fault injection it waits for ever.
pub async fn strike(task: &str) {
    if FOLDER.get().is_none() {
        return std::future::pending().await;
    }
    loop {
        point(task);
        tokio::time::sleep(LOOK).await;
    }
}

/// The fault point of a thread, for crates that know nothing of faults: `None` without fault injection.
#[macro_export]
macro_rules! fault_in {
    ($task:literal) => {
        $crate::faults::enabled().then_some(
            (|| {
                $crate::faults::stall($task);
                $crate::faults::point($task);
            }) as fn(),
        )
    };
}

/// Whether faults are injected.
pub fn enabled() -> bool {
    FOLDER.get().is_some()
}
