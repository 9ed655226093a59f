//! A running process with its guard, as this server sees it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use mortise_models::lifecycle::OutputLog;
use mortise_models::{ChildConfig, RuntimeEnd, UnexpectedEnd};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::watch;

use crate::guard::{guard_command, words};
use crate::limits::MAX_SWEEP_TIME;
use crate::output::{quoted, read};

/// Time for the last output of a process that has ended to be read.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// A process. Dropping it ends it, and waits for that.
#[derive(Debug)]
pub(crate) struct Process {
    /// Orders to the guard; the guard ends the process when this is closed.
    orders: Option<ChildStdin>,
    stop_timeout: Duration,
    state: Arc<State>,
    end: RuntimeEnd,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the command's process; 0 until the guard has told it.
    pid: AtomicU32,
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Process {
    /// Start a command under a guard.
    pub(crate) fn start(
        model: &str,
        command: &[String],
        config: &ChildConfig,
        output: &Arc<OutputLog>,
    ) -> io::Result<Self> {
        let mut guard = guard_command(command);
        guard
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .envs(&config.variables);
        if let Some(directory) = &config.directory {
            guard.current_dir(directory);
        }
        let mut guard = guard.spawn()?;
        let orders = guard.stdin.take();
        let (answers, errors) = (guard.stdout.take(), guard.stderr.take());
        let (Some(answers), Some(errors)) = (answers, errors) else {
            return Err(io::Error::other("the guard has no pipes"));
        };
        let (told, end) = watch::channel(None);
        let state = Arc::<State>::default();
        let written = output.written();
        let (drained, drain) = channel();
        let (name, kept) = (model.to_owned(), Arc::clone(output));
        let reader = move || {
            read(errors, &name, &kept);
            // Nobody may wait any more.
            let _ = drained.send(());
        };
        thread("child-output", reader)?;
        let follower = Follower {
            guard,
            answers,
            drain,
            state: Arc::clone(&state),
            output: Arc::clone(output),
            written,
        };
        thread("child-guard", move || {
            let ended = follower.follow();
            told.send_replace(Some(ended));
        })?;
        Ok(Self {
            orders,
            stop_timeout: config.stop_timeout,
            state,
            end,
        })
    }

    /// Whether the process has ended, and how.
    pub(crate) fn end(&self) -> RuntimeEnd {
        self.end.clone()
    }

    /// Number of the process, once it is known.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self.state.pid.load(Relaxed) {
            0 => None,
            pid => Some(pid),
        }
    }

    /// Resident memory of the process and of those that it has started, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.pid().map_or(0, group_memory_bytes)
    }
}

/// Resident memory of a process group; pages that its processes share count once for each.
fn group_memory_bytes(group: u32) -> u64 {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let members = entries.filter(|entry| {
        let stat = read(entry.path().join("stat"));
        // `PID (NAME) STATE PARENT GROUP`, where a name may have any byte.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
        let number = fields.and_then(|fields| fields.split(' ').nth(2));
        number.and_then(|number| number.parse().ok()) == Some(group)
    });
    let resident = members.filter_map(|entry| {
        let status = read(entry.path().join("status"));
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    resident.sum::<u64>() * 1024
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(orders) = &mut self.orders {
            let limit = self.stop_timeout.as_millis();
            // A guard that has ended needs no order.
            let _ = writeln!(orders, "{}{limit}", words::STOP).and_then(|()| orders.flush());
        }
        let ended = self.state.ended.lock();
        let ended = ended.unwrap_or_else(PoisonError::into_inner);
        let limit = self.stop_timeout + MAX_SWEEP_TIME;
        let waited = self
            .state
            .changed
            .wait_timeout_while(ended, limit, |ended| !*ended);
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::error!(
                pid = self.pid(),
                "a process did not end within its time; it is left to its guard"
            );
        }
    }
}

/// Follows one process to its end.
struct Follower {
    guard: Child,
    answers: ChildStdout,
    drain: Receiver<()>,
    state: Arc<State>,
    output: Arc<OutputLog>,
    /// Lines that were written before this process was started.
    written: u64,
}

impl Follower {
    fn follow(mut self) -> UnexpectedEnd {
        let mut status = None;
        for line in BufReader::new(&mut self.answers)
            .lines()
            .map_while(Result::ok)
        {
            if let Some(pid) = line.strip_prefix(words::PID) {
                self.state.pid.store(pid.parse().unwrap_or(0), Relaxed);
            } else if let Some(text) = line.strip_prefix(words::END) {
                status = Some(text.to_owned());
            }
        }
        let guard = self.guard.wait();
        let cause = match status {
            Some(status) => format!("the process ended ({status})"),
            None => {
                self.kill_group();
                let how = guard.map_or_else(|error| error.to_string(), |status| status.to_string());
                format!("the guard of the process ended ({how})")
            }
        };
        let _ = self.drain.recv_timeout(LAST_OUTPUT);
        let lines = self.output.written().saturating_sub(self.written);
        let lines = self
            .output
            .last(usize::try_from(lines).unwrap_or(usize::MAX));
        let ended = UnexpectedEnd {
            detail: format!("{cause}; {}", quoted(&lines)),
            cause,
        };
        let mut flag = self
            .state
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *flag = true;
        drop(flag);
        self.state.changed.notify_all();
        ended
    }

    /// The guard was killed: the command died with it, and its group is ended from here.
    fn kill_group(&self) {
        let pid = i32::try_from(self.state.pid.load(Relaxed)).ok();
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop)
}
