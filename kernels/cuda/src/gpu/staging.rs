//! Copies by way of memory that the driver has pinned: those of a step do not wait for one another,
//! and run at the speed of the bus.

use std::ptr::NonNull;

use cudarc::driver::{result, sys};

use super::failed;
use crate::device::{Address, DeviceError};

/// Bytes of pinned memory: a step's metadata many times, or the logits of a batch.
const BYTES: usize = 16 << 20;
/// Alignment of copies.
const ALIGNMENT: usize = 64;

/// Pinned memory, given out from its beginning to its end until the queue is waited for.
#[derive(Debug)]
pub(super) struct Staging {
    stream: sys::CUstream,
    memory: NonNull<u8>,
    used: usize,
}

// SAFETY: the memory is this struct's alone; the stream is the driver's, whose calls are
// thread-safe.
unsafe impl Send for Staging {}

impl Staging {
    pub(super) fn new(stream: sys::CUstream) -> Result<Self, DeviceError> {
        // SAFETY: a context is current; nothing is read before it is written.
        let memory = unsafe { result::malloc_host(BYTES, 0) }.map_err(failed("cuMemHostAlloc"))?;
        let memory =
            NonNull::new(memory.cast()).ok_or(DeviceError::OutOfMemory { bytes: BYTES })?;
        Ok(Self {
            stream,
            memory,
            used: 0,
        })
    }

    /// Copy to the device. What is larger than the pinned memory is copied in pieces.
    ///
    /// # Safety
    /// There is room for the bytes.
    pub(super) unsafe fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut to = to.0;
        for piece in bytes.chunks(BYTES) {
            if self.used + piece.len() > BYTES {
                self.wait()?;
            }
            // SAFETY: `used` and the piece lie within the pinned memory, whose part from `used` on no
            // queued copy reads.
            let staged = unsafe {
                let staged = self.memory.as_ptr().add(self.used);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), staged, piece.len());
                std::slice::from_raw_parts(staged, piece.len())
            };
            // SAFETY: the caller vouches for the room; the pinned memory stays as it is until the
            // queue was waited for.
            unsafe { result::memcpy_htod_async(to, staged, self.stream) }
                .map_err(failed("cuMemcpyHtoDAsync"))?;
            self.used = (self.used + piece.len()).next_multiple_of(ALIGNMENT);
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Copy from the device, when what was queued is done.
    ///
    /// # Safety
    /// The source holds as many bytes as are copied.
    pub(super) unsafe fn download(
        &mut self,
        from: Address,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        let mut from = from.0;
        for piece in bytes.chunks_mut(BYTES) {
            if self.used + piece.len() > BYTES {
                self.wait()?;
            }
            // SAFETY: `used` and the piece lie within the pinned memory, whose part from `used` on no
            // queued copy touches.
            let staged = unsafe {
                let staged = self.memory.as_ptr().add(self.used);
                std::slice::from_raw_parts_mut(staged, piece.len())
            };
            // SAFETY: the caller vouches for what lies there; the copy is waited for.
            unsafe { result::memcpy_dtoh_async(staged, from, self.stream) }
                .map_err(failed("cuMemcpyDtoHAsync"))?;
            self.wait()?;
            piece.copy_from_slice(staged);
            from += piece.len() as u64;
        }
        Ok(())
    }

    /// Wait for the queue: all of the memory is free then.
    fn wait(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the stream is there as long as the device.
        unsafe { result::stream::synchronize(self.stream) }
            .map_err(failed("cuStreamSynchronize"))?;
        self.used = 0;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; no queued copy needs it once the queue was waited for.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            let _ = result::free_host(self.memory.as_ptr().cast());
        }
    }
}
