//! Bounded queue between the threads that log and the one thread that writes.
//!
//! A request never waits for the log: a line that finds the queue full is dropped and counted, and a write
//! that fails (a reader that went away, a full disk) is counted and forgotten. `tracing-appender` has such a
//! queue too, but it bounds lines instead of bytes, does not count failed writes, and prints to standard
//! error when its shutdown takes too long, which blocks if that is what stalls.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of lines that wait for the writer. A line that does not fit is dropped.
pub(crate) const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Pause before a write is repeated that the sink could not take at once (a non-blocking pipe).
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Least time between two lines that say how many were dropped.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// Log lines that were lost, since the start.
#[derive(Debug, Default)]
pub(crate) struct LogLosses {
    dropped: AtomicU64,
    write_errors: AtomicU64,
}

impl LogLosses {
    /// Lines dropped because the queue was full, or because writing them failed.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Writes that failed.
    pub(crate) fn write_errors(&self) -> u64 {
        self.write_errors.load(Relaxed)
    }
}

/// Lines on their way to the log.
#[derive(Debug, Default)]
pub(crate) struct LineQueue {
    pending: Mutex<Pending>,
    /// There are lines to write.
    filled: Condvar,
    /// All lines have been written.
    drained: Condvar,
    losses: LogLosses,
}

#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    lines: u64,
    /// The writer has taken lines and has not finished with them.
    writing: bool,
}

impl LineQueue {
    /// Queue a line with its line break. Never blocks for longer than a copy takes, never fails.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut pending = self.lock();
        if pending.bytes.len() + line.len() > MAX_QUEUED_BYTES {
            self.losses.dropped.fetch_add(1, Relaxed);
            return;
        }
        pending.bytes.extend_from_slice(line);
        pending.lines += 1;
        self.filled.notify_one();
    }

    /// Counts of lost lines.
    pub(crate) fn losses(&self) -> &LogLosses {
        &self.losses
    }

    /// Wait until all lines are written, for `limit` at most. Returns whether they are.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut pending = self.lock();
        while !pending.bytes.is_empty() || pending.writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.drained.wait_timeout(pending, left);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Write lines to `sink` for as long as the process lives. `notice` makes the line that tells of a number
    /// of dropped lines. `fault` is called before each turn, when no line is under way.
    pub(crate) fn write_to(
        &self,
        mut sink: impl Write,
        notice: impl Fn(u64) -> String,
        fault: Option<fn()>,
    ) -> ! {
        // A writer before this one may have ended within a turn.
        self.lock().writing = false;
        let mut taken = Vec::new();
        let (mut told, mut told_at) = (0, None::<Instant>);
        loop {
            if let Some(fault) = fault {
                fault();
            }
            let lines = self.take(&mut taken);
            let written = write_patiently(&mut sink, &taken);
            taken.clear();
            match written {
                Ok(()) => {
                    let dropped = self.losses.dropped_lines();
                    let due = told_at.is_none_or(|at| at.elapsed() >= NOTICE_INTERVAL);
                    if dropped > told && due {
                        let text = notice(dropped - told);
                        if write_patiently(&mut sink, text.as_bytes()).is_ok() {
                            (told, told_at) = (dropped, Some(Instant::now()));
                        }
                    }
                }
                Err(_) => {
                    self.losses.dropped.fetch_add(lines, Relaxed);
                    self.losses.write_errors.fetch_add(1, Relaxed);
                }
            }
            let mut pending = self.lock();
            pending.writing = false;
            if pending.bytes.is_empty() {
                self.drained.notify_all();
            }
        }
    }

    /// Wait for lines and swap them into `taken`. Returns how many there are.
    fn take(&self, taken: &mut Vec<u8>) -> u64 {
        let mut pending = self.lock();
        while pending.bytes.is_empty() {
            let woken = self.filled.wait(pending);
            pending = woken.unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut pending.bytes, taken);
        pending.writing = true;
        std::mem::take(&mut pending.lines)
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Bytes and counts are valid whatever a panic interrupted.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Write all of `bytes`; a sink that is full for the moment is tried again.
fn write_patiently(sink: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

/// One line being formatted: what `tracing-subscriber` writes an event to.
#[derive(Debug, Clone)]
pub(crate) struct LineWriter(pub(crate) Arc<LineQueue>);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A sink that waits for permission before each write and then does what it is told.
    struct Gate {
        permits: mpsc::Receiver<io::Result<()>>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.permits.recv() {
                Ok(Ok(())) => {
                    let _ = self.written.send(bytes.to_vec());
                    Ok(bytes.len())
                }
                Ok(Err(error)) => Err(error),
                // The test is over.
                Err(_) => loop {
                    std::thread::park();
                },
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start() -> (
        Arc<LineQueue>,
        mpsc::Sender<io::Result<()>>,
        mpsc::Receiver<Vec<u8>>,
    ) {
        let queue = Arc::<LineQueue>::default();
        let (permit, permits) = mpsc::channel();
        let (written, seen) = mpsc::channel();
        let writer = Arc::clone(&queue);
        std::thread::spawn(move || {
            writer.write_to(
                Gate { permits, written },
                |lines| format!("dropped {lines}\n"),
                None,
            );
        });
        (queue, permit, seen)
    }

    #[test]
    fn a_stalled_sink_costs_lines_and_no_time() {
        let (queue, permit, seen) = start();
        let line = vec![b'x'; 1024];
        let lines = 4 * MAX_QUEUED_BYTES / line.len();
        for _ in 0..lines {
            queue.push(&line);
        }
        let dropped = queue.losses().dropped_lines();
        // The writer may have taken one batch out of the queue meanwhile.
        let fit = (2 * MAX_QUEUED_BYTES / line.len()) as u64;
        assert!(
            dropped >= lines as u64 - fit && dropped < lines as u64,
            "{dropped} of {lines}"
        );
        assert!(!queue.flush(Duration::from_millis(10)));
        // It comes to itself: what was kept is written, and a line says what was not. The writer may have taken a batch
        // before the others came; the line then stands between the two.
        let kept = (lines as u64 - dropped) * 1024;
        let notice = format!("dropped {dropped}\n");
        let (mut written, mut told) = (0, false);
        while written < kept || !told {
            permit.send(Ok(())).expect("the writer lives");
            let bytes = seen.recv_timeout(Duration::from_secs(60)).expect("a write");
            if bytes == notice.as_bytes() {
                assert!(!told, "a loss is told twice");
                told = true;
            } else {
                assert!(bytes.iter().all(|byte| *byte == b'x'));
                written += bytes.len() as u64;
            }
        }
        assert_eq!(written, kept);
        permit.send(Ok(())).expect("the writer lives");
        assert!(queue.flush(Duration::from_secs(60)));
    }

    #[test]
    fn failed_writes_are_counted_and_the_next_line_is_written() {
        for kind in [
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::StorageFull,
            io::ErrorKind::Other,
        ] {
            let (queue, permit, seen) = start();
            permit.send(Err(kind.into())).expect("the writer lives");
            queue.push(b"lost\n");
            assert!(queue.flush(Duration::from_secs(60)));
            assert_eq!(queue.losses().write_errors(), 1);
            assert_eq!(queue.losses().dropped_lines(), 1);
            for _ in 0..2 {
                permit.send(Ok(())).expect("the writer lives");
            }
            queue.push(b"kept\n");
            assert_eq!(
                seen.recv_timeout(Duration::from_secs(60)).expect("a write"),
                b"kept\n"
            );
            assert_eq!(
                seen.recv_timeout(Duration::from_secs(60)).expect("a write"),
                b"dropped 1\n"
            );
        }
    }

    #[test]
    fn a_sink_that_is_full_for_a_moment_loses_nothing() {
        let (queue, permit, seen) = start();
        for answer in [
            Err(io::ErrorKind::WouldBlock.into()),
            Err(io::ErrorKind::Interrupted.into()),
            Ok(()),
        ] {
            permit.send(answer).expect("the writer lives");
        }
        queue.push(b"line\n");
        assert_eq!(
            seen.recv_timeout(Duration::from_secs(60)).expect("a write"),
            b"line\n"
        );
        assert!(queue.flush(Duration::from_secs(60)));
        assert_eq!(queue.losses().write_errors(), 0);
    }
}
