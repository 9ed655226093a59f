//! Output of a model's process: its last lines.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::clock::now_ms;
use crate::limits::{MAX_OUTPUT_LINE_BYTES, MAX_OUTPUT_LINES};

/// One line that a process wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLine {
    /// Number of the line since the server's start, from 1.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The line, without control characters.
    pub text: String,
}

/// The last lines that the processes of one model wrote. It outlives them.
#[derive(Debug, Default)]
pub struct OutputLog(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<OutputLine>,
    written: u64,
}

impl OutputLog {
    /// Keep a line, and forget the oldest where there are too many.
    pub fn push(&self, text: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.written += 1;
        let line = OutputLine {
            number: lines.written,
            at_ms: now_ms(),
            text: shortened(text),
        };
        if lines.kept.len() >= MAX_OUTPUT_LINES {
            lines.kept.pop_front();
        }
        lines.kept.push_back(line);
    }

    /// The last lines, at most `count`, the oldest first.
    pub fn last(&self, count: usize) -> Vec<OutputLine> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = lines.kept.len().saturating_sub(count);
        lines.kept.iter().skip(skipped).cloned().collect()
    }

    /// Lines that were ever written.
    pub fn written(&self) -> u64 {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.written
    }
}

/// A line within its bound, cut between characters.
fn shortened(mut text: String) -> String {
    let mut end = text.len().min(MAX_OUTPUT_LINE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_stay_and_are_numbered() {
        let log = OutputLog::default();
        for line in 0..MAX_OUTPUT_LINES + 3 {
            log.push(format!("line {line}"));
        }
        let last = log.last(2);
        let texts: Vec<_> = last.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["line 1001", "line 1002"]);
        assert_eq!(last[1].number, log.written());
        assert_eq!(log.last(usize::MAX).len(), MAX_OUTPUT_LINES);
        log.push("é".repeat(MAX_OUTPUT_LINE_BYTES));
        let long = &log.last(1)[0].text;
        assert!(long.len() <= MAX_OUTPUT_LINE_BYTES && long.ends_with('é'));
    }
}
