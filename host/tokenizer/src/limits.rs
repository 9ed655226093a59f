//! Bounds of one encoding: how many tokens its reader can use, and whether it is still wanted.

use crate::error::TokenizerError;

/// Work between two looks at whether an encoding is still wanted, in bytes of text or what takes as long.
/// A slice takes a millisecond or two of a processor.
const SLICE: usize = 16 << 10;

/// Bounds of one encoding.
#[derive(Clone, Copy)]
pub struct EncodeLimits<'a> {
    /// Tokens that can be used. Encoding stops soon after there are more.
    pub max_tokens: usize,
    /// Called between slices of work with what was done since, in bytes. `false` ends the encoding.
    pub proceed: &'a (dyn Fn(usize) -> bool + 'a),
}

impl EncodeLimits<'_> {
    /// No bounds.
    pub const NONE: EncodeLimits<'static> = EncodeLimits {
        max_tokens: usize::MAX,
        proceed: &|_| true,
    };
}

/// The work of one encoding.
pub(crate) struct Meter<'a> {
    limits: EncodeLimits<'a>,
    /// Work since the last slice ended.
    work: usize,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(limits: EncodeLimits<'a>) -> Self {
        Self { limits, work: 0 }
    }

    /// Count work, in bytes of text or what takes as long.
    ///
    /// # Errors
    /// When nobody wants the result any more.
    pub(crate) fn spend(&mut self, work: usize) -> Result<(), TokenizerError> {
        self.work = self.work.saturating_add(work);
        if self.work < SLICE {
            return Ok(());
        }
        match (self.limits.proceed)(std::mem::take(&mut self.work)) {
            true => Ok(()),
            false => Err(TokenizerError::Cancelled),
        }
    }

    /// There are at least so many tokens.
    ///
    /// # Errors
    /// When they are too many.
    pub(crate) fn check_tokens(&self, at_least: usize) -> Result<(), TokenizerError> {
        match at_least > self.limits.max_tokens {
            true => Err(TokenizerError::TooLong { at_least }),
            false => Ok(()),
        }
    }
}
