//! Which GPUs there are.

use std::sync::Arc;

use crate::device::{Device, DeviceError};

/// A GPU that the driver shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its number for the driver.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Its compute capability: 9.0 is Hopper.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The CUDA version that the driver knows: 13000 is 13.0.
    pub driver: u32,
}

/// All GPUs that the driver shows, or why there is none.
pub fn find() -> Result<Vec<Gpu>, DeviceError> {
    #[cfg(feature = "cuda")]
    return crate::gpu::find();
    #[cfg(not(feature = "cuda"))]
    Err(DeviceError::NotBuilt)
}

/// Open a GPU by its number.
pub fn open(number: usize) -> Result<Arc<dyn Device>, DeviceError> {
    #[cfg(feature = "cuda")]
    return Ok(Arc::new(crate::gpu::CudaDevice::open(number)?));
    #[cfg(not(feature = "cuda"))]
    {
        let _ = number;
        Err(DeviceError::NotBuilt)
    }
}
