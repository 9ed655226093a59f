//! Prompt-lookup speculation: draft tokens without a model, copied from behind the latest earlier
//! occurrence of the last tokens. Quotations from the prompt, code that is edited, and lists are full of
//! such repetitions.

/// Lengths of the suffix that must have occurred before, the longest first: longer matches predict better.
const SUFFIXES: [usize; 2] = [3, 2];

/// Tokens of history that are searched.
const LOOKBACK: usize = 8192;

/// The tokens behind the latest earlier occurrence of the last tokens, at most `most`.
pub(crate) fn lookup(tokens: &[u32], most: usize) -> &[u32] {
    let tokens = &tokens[tokens.len().saturating_sub(LOOKBACK)..];
    for length in SUFFIXES {
        let Some(start) = tokens.len().checked_sub(length) else {
            continue;
        };
        let (before, suffix) = (&tokens[..tokens.len() - 1], &tokens[start..]);
        if let Some(found) = before.windows(length).rposition(|window| window == suffix) {
            let follows = &tokens[found + length..];
            return &follows[..follows.len().min(most)];
        }
    }
    &[]
}

/// Adaptive number of draft tokens: it grows while drafts are accepted and shrinks when they are rejected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DraftLength {
    now: usize,
    most: usize,
}

impl DraftLength {
    /// At most `most`; 0 drafts nothing.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            now: most.div_ceil(2),
            most,
        }
    }

    pub(crate) fn get(self) -> usize {
        self.now
    }

    /// Record that of `drafted` tokens, at least one, the first `accepted` were accepted.
    pub(crate) fn update(&mut self, drafted: usize, accepted: usize) {
        if accepted == drafted {
            self.now = (2 * self.now).min(self.most);
        } else {
            self.now = (accepted + 1).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_the_longest_matches_is_continued() {
        let tokens = [1, 2, 3, 9, 9, 8, 2, 3, 7, 1, 2, 3];
        assert_eq!(lookup(&tokens, 3), [9, 9, 8], "three tokens beat two");
        assert_eq!(lookup(&tokens[1..], 2), [7, 1], "two, the latest");
        assert_eq!(lookup(&[4, 5, 6, 4, 5], 9), [6, 4, 5], "up to the end");
        assert_eq!(lookup(&[5, 5, 5], 9), [5], "overlaps count");
        for nothing in [&[][..], &[1], &[1, 2], &[1, 2, 3], &[1, 1]] {
            assert_eq!(lookup(nothing, 9), [0u32; 0]);
        }
    }

    #[test]
    fn drafts_grow_while_they_are_accepted() {
        let mut length = DraftLength::new(8);
        assert_eq!(length.get(), 4);
        length.update(4, 4);
        assert_eq!(length.get(), 8);
        length.update(8, 8);
        assert_eq!(length.get(), 8);
        length.update(8, 0);
        assert_eq!(length.get(), 1);
        length.update(1, 1);
        assert_eq!(length.get(), 2);
        assert_eq!(DraftLength::new(0).get(), 0);
    }
}
