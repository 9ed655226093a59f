//! Tokens that a post-processor puts around and between two texts.

use serde_json::Value;
use tokenizers::{Encoding, PostProcessor, Token};

use crate::around_size::{AROUND_MAX, is_too_large};
use crate::error::guarded;

/// Ids that no token has, which stand for two texts while the post-processor is tried.
const FIRST: [u32; 2] = [u32::MAX - 3, u32::MAX - 2];
const SECOND: [u32; 2] = [u32::MAX - 1, u32::MAX];

/// Tokens around and between two texts, and the segment of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AroundPair {
    pub(crate) before: Vec<u32>,
    pub(crate) between: Vec<u32>,
    pub(crate) after: Vec<u32>,
    /// Place of the second segment's first token, with texts of no tokens; `None` where all are of the first.
    pub(crate) second: Option<Border>,
}

/// Place where the second segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Border {
    /// A token between the texts, or the beginning of the second text behind them all.
    Between(usize),
    /// A token behind the second text.
    After(usize),
}

impl AroundPair {
    /// Try the post-processor with two texts; `entry` is its own in the files. `None` if it does anything but put a few tokens around them, or orders them or
    /// their segments in another way.
    pub(crate) fn of(tokenizer: &tokenizers::Tokenizer, entry: &Value) -> Option<Self> {
        let processor = tokenizer.get_post_processor()?;
        if is_too_large(entry, 2) {
            return None;
        }
        let encoding = |ids: [u32; 2], segment| {
            let token = |id| Token::new(id, String::new(), (0, 0));
            Encoding::from_tokens(ids.map(token).into(), segment)
        };
        let (first, second) = (encoding(FIRST, 0), encoding(SECOND, 0));
        let tried = guarded(|| processor.process(first, Some(second), true));
        let processed = tried.ok()?.ok()?;
        let (ids, segments) = (processed.get_ids(), processed.get_type_ids());
        if ids.len() > AROUND_MAX || ids.len() != segments.len() {
            return None;
        }
        let place = |text: [u32; 2]| {
            let once = ids.iter().filter(|id| text.contains(id)).count() == text.len();
            let found = ids.windows(2).position(|pair| pair == text);
            found.filter(|_| once)
        };
        let (one, two) = (place(FIRST)?, place(SECOND)?);
        if two < one {
            return None;
        }
        let border = segments.iter().position(|segment| *segment != 0);
        let ordered = |at: usize| segments[at..].iter().all(|segment| *segment == 1);
        if border.is_some_and(|at| !ordered(at) || at < one + FIRST.len()) {
            return None;
        }
        let behind = two + SECOND.len();
        Some(Self {
            before: ids[..one].to_vec(),
            between: ids[one + FIRST.len()..two].to_vec(),
            after: ids[behind..].to_vec(),
            second: match border {
                None => None,
                Some(at) if at <= two => Some(Border::Between(at - one - FIRST.len())),
                // Within a text no segment ends.
                Some(at) => Some(Border::After(at.checked_sub(behind)?)),
            },
        })
    }

    /// Number of tokens around and between the texts.
    pub(crate) fn tokens(&self) -> usize {
        self.before.len() + self.between.len() + self.after.len()
    }
}
