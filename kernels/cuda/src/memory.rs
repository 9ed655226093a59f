//! Copies within the device's memory, the measure of its bandwidth.

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::Slice;
use crate::device::{Address, Device, DeviceError, Launch};

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CopyParams {
    from: Address,
    to: Address,
    length: u64,
}

/// Copy all of `from`, a multiple of 16 bytes that does not overlap `to`.
#[allow(unsafe_code, reason = "shapes are checked first")]
pub fn copy(
    device: &dyn Device,
    from: Slice<'_, u8>,
    to: Slice<'_, u8>,
) -> Result<(), DeviceError> {
    assert!(from.len() <= to.len() && from.len().is_multiple_of(16));
    let aligned = |slice: Slice<'_, u8>| slice.address().0.is_multiple_of(16);
    assert!(aligned(from) && aligned(to));
    if from.is_empty() {
        return Ok(());
    }
    let length = from.len() / 16;
    let params = CopyParams {
        from: from.address(),
        to: to.address(),
        length: length as u64,
    };
    let launch = Launch {
        kernel: "copy_16_bytes",
        grid: [length.div_ceil(1024).min(1 << 16) as u32, 1, 1],
        threads: 256,
        shared: 0,
        params: params.as_bytes(),
    };
    // SAFETY: both hold so many bytes.
    unsafe { device.launch(&launch) }
}
