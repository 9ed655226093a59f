//! Quota of an owner.

use crate::error::StoreError;

/// Quota of an owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The oldest records make room, and all of them may have so many bytes; `None` refuses what is too much.
    pub(crate) evict_above: Option<u64>,
}

impl Quota {
    /// Refuse an owner that has more records or bytes than it may.
    pub(crate) fn check(&self, (records, bytes): (u64, u64)) -> Result<(), StoreError> {
        self.within(records, bytes)
    }

    /// Refuse an owner that may have no more.
    pub(crate) fn check_room(&self, (records, bytes): (u64, u64)) -> Result<(), StoreError> {
        self.within(records.saturating_add(1), bytes.saturating_add(1))
    }

    fn within(&self, records: u64, bytes: u64) -> Result<(), StoreError> {
        for (used, limit, unit) in [
            (records, self.records, "records"),
            (bytes, self.bytes, "bytes"),
        ] {
            if used > limit {
                return Err(StoreError::Quota { limit, unit });
            }
        }
        Ok(())
    }
}
