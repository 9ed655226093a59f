//! Content of one file of a model.

use std::fs::File;
use std::ops::{Deref, Range};

use memmap2::Mmap;

/// Content of one file: read, embedded in the program, or mapped.
#[derive(Debug)]
pub struct FileBytes(Bytes);

#[derive(Debug)]
enum Bytes {
    Owned(Vec<u8>),
    Embedded(&'static [u8]),
    Mapped(Mmap),
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Embedded(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

impl FileBytes {
    /// Map a file, which must not be empty.
    pub(crate) fn map(file: &File) -> std::io::Result<Self> {
        // SAFETY: the mapping is only read, as bytes and as numbers, for which all bits are valid.
        // Writing to a model file while it is mapped changes what is computed, and truncating it kills
        // the process, as with every program that maps files; docs/models.md tells operators to rename
        // instead.
        #[allow(unsafe_code, reason = "memory-maps the weights")]
        let map = unsafe { Mmap::map(file) }?;
        Ok(Self(Bytes::Mapped(map)))
    }

    /// Drop the resident pages of a range. The next access reads them from the file again.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = &self.0 {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: pages of a mapping that is never written are read again as they were. If the
            // system refuses, they stay resident, which is harmless.
            #[allow(unsafe_code, reason = "memory-maps the weights")]
            let _ = unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Owned(bytes))
    }
}

impl From<&'static [u8]> for FileBytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Bytes::Embedded(bytes))
    }
}
