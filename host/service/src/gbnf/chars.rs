//! Sets of characters as ranges, and characters in regular expressions.

use std::fmt::Write as _;

/// Ranges of code points, in rising order and apart from each other.
pub(super) type Ranges = Vec<(u32, u32)>;

const LAST: u32 = char::MAX as u32;

/// Ranges in rising order, joined where they touch.
pub(super) fn joined(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut all: Ranges = Vec::with_capacity(ranges.len());
    for (from, to) in ranges {
        match all.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// All characters that are not in these ranges.
pub(super) fn complement(ranges: &Ranges) -> Ranges {
    let mut all = Vec::with_capacity(ranges.len() + 1);
    let mut next = 0;
    for &(from, to) in ranges {
        if from > next {
            all.push((next, from - 1));
        }
        next = to + 1;
    }
    if next <= LAST {
        all.push((next, LAST));
    }
    all
}

/// A class of a regular expression between slashes.
pub(super) fn class(ranges: &Ranges) -> String {
    let mut class = "[".to_owned();
    for &(from, to) in ranges {
        push(&mut class, from);
        if to > from {
            class.push('-');
            push(&mut class, to);
        }
    }
    class.push(']');
    class
}

/// A text of a regular expression between slashes.
pub(super) fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut escaped, u32::from(c)));
    escaped
}

/// Letters and digits as they are, all else by number.
fn push(into: &mut String, code: u32) {
    match char::from_u32(code) {
        Some(c) if c.is_ascii_alphanumeric() || (!c.is_ascii() && c.is_alphanumeric()) => {
            into.push(c);
        }
        // Half of a surrogate pair only ends a range, where its neighbour does as well.
        None if code < 0xDC00 => into.push_str("\\x{D7FF}"),
        None => into.push_str("\\x{E000}"),
        Some(_) => {
            let _ = write!(into, "\\x{{{code:X}}}");
        }
    }
}
