//! Processes between this server and a command. Each is this program under a hidden subcommand.
//!
//! - The *guard* starts the command, obeys its standard input, and says on its standard output which process the
//!   command is and how it ended. When its input ends, this server has ended, however it did. What the command
//!   leaves behind, in its group or out of it, falls to the guard as its next living ancestor, which ends it.
//! - The *guarded* process asks the system to be killed when the guard dies, and becomes the command.

use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getppid, kill_process, kill_process_group,
    wait, waitid,
};

use crate::limits::MAX_SWEEP_TIME;

/// This program, though its file may have been replaced since it was started.
#[cfg(target_os = "linux")]
const THIS_PROGRAM: &str = "/proc/self/exe";
#[cfg(not(target_os = "linux"))]
const THIS_PROGRAM: &str = "mortise";

/// Hidden subcommand of the program.
const SUBCOMMAND: &str = "child-process";
/// Status with which the guarded process ends if there is no such program, as shells have it.
const NO_PROGRAM: u8 = 127;

/// A command that starts a guard of `words`.
pub(crate) fn guard_command(words: &[String]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.args([SUBCOMMAND, "guard", "--"]).args(words);
    command.process_group(0);
    command
}

/// A command that becomes `words`, guarded by this process.
fn guarded_command(words: &[String]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    let guard = std::process::id().to_string();
    command
        .args([SUBCOMMAND, "guarded", "--guard", &guard, "--"])
        .args(words);
    command.process_group(0);
    command
}

/// Orders of the server to a guard, and answers, one a line.
pub(crate) mod words {
    /// `stop MILLISECONDS`: SIGTERM now, SIGKILL after that time.
    pub(crate) const STOP: &str = "stop ";
    /// `pid NUMBER`: the command runs.
    pub(crate) const PID: &str = "pid ";
    /// `end TEXT`: the command has ended, and so has all that it left behind.
    pub(crate) const END: &str = "end ";
}

/// A command that may still be signalled: its number is nobody else's until it is reaped.
#[derive(Clone)]
struct Guarded {
    pid: Pid,
    reaped: Arc<Mutex<bool>>,
}

impl Guarded {
    fn if_unreaped(&self, act: impl FnOnce(Pid)) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            act(self.pid);
        }
    }

    fn terminate(&self) {
        self.if_unreaped(|pid| {
            let _ = kill_process(pid, Signal::TERM);
        });
    }

    /// Kill the command and all of its group.
    fn kill(&self) {
        self.if_unreaped(|pid| {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        });
    }
}

/// Be a guard of this command until it ends.
///
/// # Errors
/// When the command cannot be started or waited for.
pub fn run_guard(words: &[String]) -> io::Result<ExitCode> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let output = || io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
    let mut child = guarded_command(words)
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .spawn()?;
    let guarded = Guarded {
        pid: Pid::from_child(&child),
        reaped: Arc::default(),
    };
    say(&format!("{}{}", words::PID, child.id()));
    let obeying = guarded.clone();
    std::thread::spawn(move || obey(&obeying));
    let status = ended(&mut child, &guarded)?;
    sweep();
    say(&format!("{}{status}", words::END));
    Ok(ExitCode::SUCCESS)
}

/// Do what the server says, until there is no server any more.
fn obey(guarded: &Guarded) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let limit = line.strip_prefix(words::STOP);
        if let Some(milliseconds) = limit.and_then(|limit| limit.parse().ok()) {
            guarded.terminate();
            // The guard ends with the command, in most cases before this does.
            std::thread::sleep(Duration::from_millis(milliseconds));
            guarded.kill();
        }
    }
    guarded.kill();
}

/// Wait for the end of the command, and end what is left in its group.
fn ended(child: &mut Child, guarded: &Guarded) -> io::Result<std::process::ExitStatus> {
    loop {
        // Without reaping: the group keeps its number until the rest of it is killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(guarded.pid), options) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    guarded.kill();
    let mut reaped = guarded
        .reaped
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    *reaped = true;
    child.wait()
}

/// End what left the command's group: as its parents end, it becomes a child of the guard.
fn sweep() {
    let begun = Instant::now();
    while begun.elapsed() < MAX_SWEEP_TIME {
        for pid in children() {
            let _ = kill_process(pid, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            // No children.
            Err(_) => return,
        }
    }
}

/// Children of this process, of all of its threads.
fn children() -> Vec<Pid> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let numbers = lists.flat_map(|list| {
        let numbers = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        numbers.collect::<Vec<i32>>()
    });
    numbers.filter_map(Pid::from_raw).collect()
}

/// A line for the server. If it has ended, nobody needs it.
fn say(line: &str) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
}

/// Become this command, to be killed when the process `guard` ends. Returns only if that fails, with the status
/// to end with.
pub fn run_guarded(guard: u32, words: &[String]) -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("mortise: the process cannot be tied to its guard: {error}");
        return ExitCode::FAILURE;
    }
    // It may have ended before the system was asked.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    if parent.and_then(|pid| u32::try_from(pid).ok()) != Some(guard) {
        return ExitCode::FAILURE;
    }
    let Some((program, arguments)) = words.split_first() else {
        return ExitCode::from(NO_PROGRAM);
    };
    let error = Command::new(program).args(arguments).exec();
    eprintln!("mortise: cannot run `{program}`: {error}");
    ExitCode::from(NO_PROGRAM)
}
