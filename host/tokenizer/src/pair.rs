//! Two texts as one input.

use crate::around_pair::{AroundPair, Border};
use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;

/// Two texts as one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPair {
    /// All tokens.
    pub tokens: Vec<u32>,
    /// First token of the second segment; the number of tokens where all are of the first.
    pub second: usize,
}

impl Tokenizer {
    /// True if the files tell how two texts become one input.
    pub fn joins_pairs(&self) -> bool {
        self.pipeline.around_pair.is_some()
    }

    /// Two texts, encoded without anything around them, as one input of at most `most` tokens. The longer of the two is cut at
    /// its end as far as need be, then both, as `longest_first` of the Hugging Face libraries does.
    ///
    /// # Errors
    /// When the files do not tell how two texts become one input, or `most` leaves them no room.
    pub fn join_pair(
        &self,
        first: &[u32],
        second: &[u32],
        most: usize,
    ) -> Result<EncodedPair, TokenizerError> {
        let Some(around) = &self.pipeline.around_pair else {
            let what = "two texts as one input, which the post-processor tells nothing of";
            return Err(TokenizerError::Unsupported(what.to_owned()));
        };
        let Some(room) = most.checked_sub(around.tokens()) else {
            let at_least = around.tokens();
            return Err(TokenizerError::TooLong { at_least });
        };
        let (one, two) = lengths(first.len(), second.len(), room);
        let (first, second) = (&first[..one], &second[..two]);
        let parts = [
            &around.before[..],
            first,
            &around.between[..],
            second,
            &around.after[..],
        ];
        let tokens = parts.concat();
        let behind_first = around.before.len() + one;
        let second = match around.second {
            None => tokens.len(),
            Some(Border::Between(at)) => behind_first + at,
            Some(Border::After(at)) => behind_first + around.between.len() + two + at,
        };
        Ok(EncodedPair { tokens, second })
    }

    /// Tokens that [`join_pair`](Self::join_pair) puts around and between two texts.
    pub fn around_pair(&self) -> usize {
        self.pipeline
            .around_pair
            .as_ref()
            .map_or(0, AroundPair::tokens)
    }
}

/// Lengths of two texts that have `room` tokens together.
fn lengths(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first.saturating_add(second) <= room {
        return (first, second);
    }
    let (short, long) = (first.min(second), first.max(second));
    // Halves where both are too long; the odd token is of the longer.
    let (short, long) = match short <= room / 2 {
        true => (short, (room - short).min(long)),
        false => (room / 2, room - room / 2),
    };
    match first <= second {
        true => (short, long),
        false => (long, short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_is_cut_first() {
        for (first, second, room, expected) in [
            (3, 4, 7, (3, 4)),
            (3, 40, 10, (3, 7)),
            (40, 3, 10, (7, 3)),
            (40, 50, 11, (5, 6)),
            (50, 40, 11, (6, 5)),
            (5, 6, 10, (5, 5)),
            (40, 50, 0, (0, 0)),
            (usize::MAX, usize::MAX, 1, (0, 1)),
        ] {
            assert_eq!(lengths(first, second, room), expected);
        }
    }
}
