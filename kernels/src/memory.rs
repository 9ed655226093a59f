//! Memory for packed weights: zeroed, and in huge pages where the system has them, which saves a
//! fifth of the time to read weights that are larger than the caches.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::{MmapMut, MmapOptions};

/// A huge page, to which regions are aligned.
const HUGE_PAGE: usize = 2 << 20;
/// Size of the regions that smaller pieces share. Untouched pages take no memory.
const REGION: usize = 64 << 20;
/// A cache line, to which pieces are aligned.
const LINE: usize = 64;

/// Reason for which a matrix was not packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system refuses {bytes} bytes for packed weights")]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub bytes: usize,
}

/// Bytes of their own, aligned to a cache line.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Keeps the memory.
    _region: Arc<Region>,
    start: *mut u8,
    length: usize,
}

#[allow(unsafe_code, reason = "owns its bytes through a pointer")]
// SAFETY: a piece is the only one that points at its bytes, as a box is.
unsafe impl Send for Piece {}
#[allow(unsafe_code, reason = "owns its bytes through a pointer")]
// SAFETY: as above; they change through a `&mut` only.
unsafe impl Sync for Piece {}

/// Memory of the system, from which pieces are cut.
#[derive(Debug)]
struct Region {
    map: MmapMut,
}

/// A region and how much of it is given away. The pieces keep it: with the last of them it is gone, and what a model
/// took is free when the model is.
struct Open {
    region: Weak<Region>,
    used: usize,
    start: *mut u8,
    length: usize,
}

#[allow(unsafe_code, reason = "points into a region that it keeps")]
// SAFETY: the pointer is only added to, under the lock.
unsafe impl Send for Open {}

/// The region that small pieces are cut from.
struct Shared(Mutex<Option<Open>>);

static SHARED: Shared = Shared(Mutex::new(None));

impl Piece {
    /// Allocate zeroed bytes.
    pub(crate) fn new(length: usize) -> Result<Self, OutOfMemory> {
        SHARED.find(length).ok_or(OutOfMemory { bytes: length })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the region is mapped and initialised, and the piece lies in it.
        #[allow(unsafe_code, reason = "owns its bytes through a pointer")]
        unsafe {
            std::slice::from_raw_parts(self.start, self.length)
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has this piece.
        #[allow(unsafe_code, reason = "owns its bytes through a pointer")]
        unsafe {
            std::slice::from_raw_parts_mut(self.start, self.length)
        }
    }
}

impl Shared {
    fn find(&self, length: usize) -> Option<Piece> {
        let size = length.max(1).checked_next_multiple_of(LINE)?;
        if size > REGION / 2 {
            let (mut open, _region) = Open::new(size)?;
            return open.cut(length, size);
        }
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = shared.as_mut().and_then(|open| open.cut(length, size)) {
            return Some(piece);
        }
        let (open, _region) = Open::new(REGION)?;
        shared.insert(open).cut(length, size)
    }
}

impl Open {
    /// A region of at least so many bytes, which lives until the first piece is cut from it by what is returned beside it.
    fn new(length: usize) -> Option<(Self, Arc<Region>)> {
        let mut map = MmapOptions::new()
            .len(length.checked_add(HUGE_PAGE)?)
            .map_anon()
            .ok()?;
        // A wish only: without huge pages all is as it was, but for the speed.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skipped = map.as_mut_ptr().align_offset(HUGE_PAGE);
        let start = map.as_mut_ptr().wrapping_add(skipped);
        let region = Arc::new(Region { map });
        let open = Self {
            region: Arc::downgrade(&region),
            used: 0,
            start,
            length,
        };
        Some((open, region))
    }

    fn cut(&mut self, length: usize, size: usize) -> Option<Piece> {
        if size > self.length - self.used {
            return None;
        }
        let region = self.region.upgrade()?;
        debug_assert!(region.map.len() >= self.length);
        let start = self.start.wrapping_add(self.used);
        self.used += size;
        Some(Piece {
            _region: region,
            start,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::{LINE, Piece, REGION, Shared};

    #[test]
    fn pieces_are_zeroed_aligned_and_apart() {
        let lengths = [1, 64, 65, 4096, 3 << 20, REGION / 2, REGION / 2 + 1, 7];
        let mut pieces: Vec<Piece> = lengths
            .iter()
            .map(|length| Piece::new(*length).unwrap())
            .collect();
        for (number, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.bytes().as_ptr().addr().is_multiple_of(LINE));
            assert!(piece.bytes().iter().all(|byte| *byte == 0));
            piece.bytes_mut().fill(number as u8 + 1);
        }
        for (number, (piece, length)) in pieces.iter().zip(lengths).enumerate() {
            assert_eq!(piece.bytes().len(), length);
            assert!(piece.bytes().iter().all(|byte| *byte == number as u8 + 1));
        }
    }

    #[test]
    fn a_region_is_gone_with_its_last_piece() {
        let shared = Shared(Mutex::new(None));
        let keeps = || {
            let open = shared.0.lock().unwrap();
            open.as_ref()
                .is_some_and(|open| open.region.strong_count() > 0)
        };
        let (one, two) = (shared.find(100).unwrap(), shared.find(REGION / 2).unwrap());
        drop(one);
        assert!(keeps());
        let mut three = shared.find(5000).unwrap();
        three.bytes_mut().fill(7);
        drop(two);
        assert!(keeps() && three.bytes().iter().all(|byte| *byte == 7));
        drop(three);
        assert!(!keeps());
        let again = shared.find(5000).unwrap();
        assert!(keeps() && again.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(Piece::new(usize::MAX).is_err());
        assert!(Piece::new(usize::MAX / 4).is_err());
    }
}
