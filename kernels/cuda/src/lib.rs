//! Ops on an accelerator: CUDA kernels, their launches, and the memory that they work on.
//!
//! The kernels lie in `kernels/*.cu`. Each op here checks shapes, then launches one; it writes to
//! slices of [`Buffer`]s on a [`Device`]. Devices are the GPUs that the feature `cuda` finds, and, for
//! tests on machines without, the emulator beside this crate, which runs the same kernels.
//!
//! Work is queued in order and nothing waits for it but [`Buffer::download`], [`Pending::wait`] and
//! [`Device::synchronize`]. Shapes are the caller's promise: an op panics on slices that break it,
//! before anything is launched.
//!
//! Sums are in f32. The same rows give the same bits on the same device, and rows of a product of at
//! most [`linear::FEW_ROWS`] rows do not depend on their neighbours; products of more rows are
//! cuBLASLt's where it is there, whose order of additions depends on their number.

pub mod attention;
mod buffer;
mod device;
pub mod experts;
mod find;
#[cfg(feature = "cuda")]
mod gpu;
mod gpu_info;
pub mod linear;
mod matrix;
pub mod memory;
pub mod rows;
pub mod sample;

pub use buffer::{Buffer, Number, Pending, Slice};
pub use device::{
    Address, Device, DeviceError, Download, HalfType, Launch, Product, Recording, Scalars,
};
pub use find::{find, open};
#[cfg(feature = "cuda")]
pub use gpu::CudaDevice;
pub use gpu_info::Gpu;
pub use matrix::{FP8_SCALED, Format, Matrix};
