//! Lists GPUs and opens them.

use std::sync::Arc;

use crate::device::{Device, DeviceError};
use crate::gpu_info::Gpu;

/// All GPUs that the driver lists, or the reason why there is none.
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
