//! Output of a process: bytes to lines, kept in a ring and passed to the log within a rate.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use mortise_models::lifecycle::{OutputLine, OutputLog};
use mortise_models::limits::MAX_OUTPUT_LINE_BYTES;

use crate::limits::{MAX_LOGGED_LINES_PER_SECOND, MAX_QUOTED_CHARS, MAX_QUOTED_LINES};

/// Read a process's output to its end.
pub(crate) fn read(mut source: impl Read, model: &str, kept: &OutputLog) {
    let mut lines = Lines::default();
    let mut rate = Rate::new(Instant::now());
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        lines.feed(&buffer[..count], |line| take(line, model, kept, &mut rate));
    }
    lines.end(|line| take(line, model, kept, &mut rate));
    rate.tell(model);
}

fn take(line: String, model: &str, kept: &OutputLog, rate: &mut Rate) {
    if rate.passes(Instant::now(), model) {
        tracing::info!(model, line, "output of the model's process");
    }
    kept.push(line);
}

/// Lines of a stream of bytes. A line longer than the bound is cut; the rest of it is dropped.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(String)) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let room = MAX_OUTPUT_LINE_BYTES - self.begun.len();
            self.begun
                .extend_from_slice(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                take(text(&std::mem::take(&mut self.begun)));
            }
        }
    }

    fn end(self, take: impl FnOnce(String)) {
        if !self.begun.is_empty() {
            take(text(&self.begun));
        }
    }
}

/// A line as text, without what a terminal would obey.
fn text(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.trim_end().chars().map(plain).collect()
}

/// Bound of the lines that reach the log.
#[derive(Debug)]
struct Rate {
    second: Instant,
    passed: u32,
    left_out: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self {
            second: now,
            passed: 0,
            left_out: 0,
        }
    }

    fn passes(&mut self, now: Instant, model: &str) -> bool {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            self.tell(model);
            *self = Self::new(now);
        }
        match self.passed < MAX_LOGGED_LINES_PER_SECOND {
            true => self.passed += 1,
            false => self.left_out += 1,
        }
        self.left_out == 0
    }

    fn tell(&self, model: &str) {
        if self.left_out > 0 {
            tracing::warn!(
                model,
                lines = self.left_out,
                "output of the model's process was left out of the log"
            );
        }
    }
}

/// The last lines of a process, for the text of an error.
pub(crate) fn quoted(lines: &[OutputLine]) -> String {
    let spoken: Vec<&OutputLine> = lines.iter().filter(|line| !line.text.is_empty()).collect();
    let skipped = spoken.len().saturating_sub(MAX_QUOTED_LINES);
    let shortened = |line: &&OutputLine| line.text.chars().take(MAX_QUOTED_CHARS).collect();
    let last: Vec<String> = spoken[skipped..].iter().map(shortened).collect();
    match last.is_empty() {
        true => "it said nothing".to_owned(),
        false => format!("it said last: {}", last.join(" | ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_the_pieces_and_have_a_bound() {
        let text = format!("one\r\ntwo \u{1b}[31mred\n\n{}\nlast", "x".repeat(10_000));
        let read = |size: usize| {
            let (mut lines, mut read) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.feed(piece, |line| read.push(line));
            }
            lines.end(|line| read.push(line));
            read
        };
        let whole = read(text.len());
        assert_eq!(whole[..3], ["one", "two  [31mred", ""]);
        assert_eq!(whole[3].len(), MAX_OUTPUT_LINE_BYTES);
        assert_eq!(whole[4], "last");
        for size in [1, 2, 3, 7, 4096] {
            assert_eq!(read(size), whole, "{size}");
        }
    }

    #[test]
    fn a_flood_reaches_the_log_within_its_rate() {
        let begun = Instant::now();
        let mut rate = Rate::new(begun);
        let passed = (0..1000).filter(|_| rate.passes(begun, "m")).count();
        assert_eq!(passed, 50);
        assert_eq!(rate.left_out, 950);
        assert!(rate.passes(begun + Duration::from_secs(1), "m"));
    }

    #[test]
    fn errors_quote_the_last_lines() {
        let log = OutputLog::default();
        assert_eq!(quoted(&log.last(9)), "it said nothing");
        for line in ["a", "", "b", "c", "d", "e", "f"] {
            log.push(line.to_owned());
        }
        assert_eq!(quoted(&log.last(9)), "it said last: b | c | d | e | f");
    }
}
