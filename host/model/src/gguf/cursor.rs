//! Reading numbers and texts one after the other, never beyond the end.

use super::{GgufError, Place};

/// A position in the bytes of a file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Go to a place that was read before.
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes of the file.
    pub(super) fn file_length(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next bytes. `what` names them if they are not there.
    pub(super) fn take(
        &mut self,
        length: u64,
        what: impl FnOnce() -> String,
    ) -> Result<&'a [u8], GgufError> {
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes[self.at..].get(..length));
        let Some(taken) = taken else {
            return Err(GgufError::Truncated { what: what() });
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(
        &mut self,
        what: impl FnOnce() -> String,
    ) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: impl FnOnce() -> String) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: impl FnOnce() -> String) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things that follow.
    pub(super) fn count(&mut self, what: &'static str, limit: u64) -> Result<u64, GgufError> {
        let found = self.u64(|| format!("the number of {what}"))?;
        if found > limit {
            return Err(GgufError::Limit { what, found, limit });
        }
        Ok(found)
    }

    /// Range of a byte string that its length precedes.
    pub(super) fn sized(
        &mut self,
        limit: u64,
        what: impl Fn() -> String,
    ) -> Result<Place, GgufError> {
        let length = self.u64(&what)?;
        if length > limit {
            return Err(GgufError::Limit {
                what: "bytes of text",
                found: length,
                limit,
            });
        }
        let start = self.at;
        self.take(length, what)?;
        Ok(start..self.at)
    }

    /// A text of at most `limit` bytes.
    pub(super) fn text(
        &mut self,
        limit: u64,
        what: impl Fn() -> String,
    ) -> Result<&'a str, GgufError> {
        let place = self.sized(limit, &what)?;
        std::str::from_utf8(&self.bytes[place]).map_err(|_| GgufError::Text { what: what() })
    }
}
