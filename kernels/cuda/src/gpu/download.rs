//! Copies from the device that are waited for one by one, by events: work queued after a copy goes on
//! meanwhile.

use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex};

use cudarc::driver::{result, sys};

use super::{Driver, failed, locked};
use crate::device::{Address, DeviceError, Download};

/// Pinned memory of copies that are done, for the next ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Downloads {
    free: Arc<Mutex<Vec<Landing>>>,
}

/// Pinned memory, and the event that says when what was copied last is there.
#[derive(Debug)]
struct Landing {
    driver: Arc<Driver>,
    memory: NonNull<u8>,
    bytes: usize,
    event: sys::CUevent,
}

// SAFETY: memory and event are this struct's alone; the driver's calls are thread-safe.
unsafe impl Send for Landing {}

/// A copy that was queued.
#[derive(Debug)]
struct Queued {
    downloads: Downloads,
    /// There until this is dropped.
    landing: Option<Landing>,
    bytes: usize,
}

impl Downloads {
    /// Queue a copy.
    ///
    /// # Safety
    /// The source holds as many bytes as are copied.
    pub(super) unsafe fn begin(
        &self,
        driver: &Arc<Driver>,
        from: Address,
        bytes: usize,
    ) -> Result<Box<dyn Download>, DeviceError> {
        let found = {
            let mut free = locked(&self.free);
            let place = free.iter().position(|landing| landing.bytes >= bytes);
            place.map(|place| free.swap_remove(place))
        };
        let landing = match found {
            Some(landing) => landing,
            None => Landing::new(driver, bytes.next_power_of_two())?,
        };
        if bytes > 0 {
            // SAFETY: the memory has so many bytes, and nobody looks at it until the copy is done,
            // since whoever holds a landing waits for its event first.
            let staged = unsafe { std::slice::from_raw_parts_mut(landing.memory.as_ptr(), bytes) };
            // SAFETY: the caller vouches for what lies there; the memory stays until the event.
            unsafe { result::memcpy_dtoh_async(staged, from.0, driver.stream) }
                .map_err(failed("cuMemcpyDtoHAsync"))?;
        }
        // SAFETY: both are there.
        let recorded = unsafe { result::event::record(landing.event, driver.stream) };
        let queued = Queued {
            downloads: self.clone(),
            landing: Some(landing),
            bytes,
        };
        recorded.map_err(failed("cuEventRecord"))?;
        Ok(Box::new(queued))
    }
}

impl Landing {
    fn new(driver: &Arc<Driver>, bytes: usize) -> Result<Self, DeviceError> {
        // SAFETY: a context is current; nothing is read before it is written.
        let memory = unsafe { result::malloc_host(bytes, 0) }.map_err(failed("cuMemHostAlloc"))?;
        let memory = NonNull::new(memory.cast()).ok_or(DeviceError::OutOfMemory { bytes })?;
        // From here on, dropping it releases the memory.
        let mut landing = Self {
            driver: Arc::clone(driver),
            memory,
            bytes,
            event: null_mut(),
        };
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        landing.event = result::event::create(flags).map_err(failed("cuEventCreate"))?;
        Ok(landing)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.driver.make_current()?;
        // SAFETY: the event is there.
        unsafe { result::event::synchronize(self.event) }.map_err(failed("cuEventSynchronize"))
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let _ = self.driver.make_current();
        // SAFETY: allocated and created by `new`; the queue is waited for, so that no copy needs them.
        unsafe {
            let _ = result::stream::synchronize(self.driver.stream);
            if !self.event.is_null() {
                let _ = result::event::destroy(self.event);
            }
            let _ = result::free_host(self.memory.as_ptr().cast());
        }
    }
}

impl Download for Queued {
    fn wait(self: Box<Self>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(bytes.len(), self.bytes);
        if let Some(landing) = &self.landing {
            landing.wait()?;
            // SAFETY: the copy has written so many bytes and is done.
            bytes.copy_from_slice(unsafe {
                std::slice::from_raw_parts(landing.memory.as_ptr(), self.bytes)
            });
        }
        Ok(())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // Whoever takes the memory next finds the copy done.
        if let Some(landing) = self.landing.take()
            && landing.wait().is_ok()
        {
            locked(&self.downloads.free).push(landing);
        }
    }
}
