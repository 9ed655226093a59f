//! Interface of a device: memory, launches, recordings.

use std::fmt::Debug;

use zerocopy::{Immutable, IntoBytes};

/// Address in a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Address(pub u64);

impl Address {
    /// Null address, which a kernel takes for an argument that is not given.
    pub const NULL: Self = Self(0);
}

/// Failure of an operation on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The program was built without support for GPUs.
    #[error(
        "this binary was built without the feature `cuda`; build it with --features cuda (see \
         CONTRIBUTING.md)"
    )]
    NotBuilt,
    /// There is no driver.
    #[error("no NVIDIA driver was found (libcuda.so.1 cannot be loaded)")]
    NoDriver,
    /// The driver is older than the kernels.
    #[error(
        "the NVIDIA driver is for CUDA {}.{}; version 580 or later is needed, which is for CUDA 13.0",
        found / 1000,
        found % 1000 / 10
    )]
    OldDriver {
        /// CUDA version that the driver supports: 12040 is 12.4.
        found: u32,
    },
    /// The driver knows no such GPU.
    #[error("there is no GPU {wanted}; the driver shows {found}")]
    NoGpu {
        /// Number of the GPU.
        wanted: usize,
        /// GPUs that there are.
        found: usize,
    },
    /// The memory is full.
    #[error("the device has no {bytes} bytes left; configure less KV cache or a smaller model")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The driver or a library of it refused something.
    #[error("{call} failed: {problem}")]
    Call {
        /// Function that was called.
        call: &'static str,
        /// Error of the driver or the library.
        problem: String,
    },
    /// A kernel cannot be launched like this.
    #[error("kernel `{kernel}` cannot run: {problem}")]
    Kernel {
        /// The kernel.
        kernel: &'static str,
        /// Reason.
        problem: String,
    },
}

/// A kernel, how many threads run it, and its one parameter.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block: whole warps.
    pub threads: u32,
    /// Bytes of shared memory that a block gets.
    pub shared: u32,
    /// Bytes of the parameter, a struct as C lays it out.
    pub params: &'a [u8],
}

/// Format of 16-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalfType {
    /// bf16.
    Bf16,
    /// f16.
    F16,
}

/// Scale of a product, and whether it is added to the output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scalars {
    /// Factor of the product.
    pub scale: f32,
    /// Whether the product is added to what the output held.
    pub accumulate: bool,
}

impl Scalars {
    /// Product without a scale, written and not added.
    pub const PLAIN: Self = Self {
        scale: 1.0,
        accumulate: false,
    };
}

/// `out = scale * x * transpose(weights)`, perhaps added to what was there: `rows` rows of `inputs`
/// halves, `outputs` rows of weights, sums in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Type of weights and of `x`.
    pub halves: HalfType,
    /// Weights, a row an output.
    pub weights: Address,
    /// Activations.
    pub x: Address,
    /// Results in f32.
    pub out: Address,
    /// Rows of `x` and `out`.
    pub rows: usize,
    /// Numbers of a row of `x`.
    pub inputs: usize,
    /// Numbers written to a row of `out`.
    pub outputs: usize,
    /// Numbers from one row of `out` to the next.
    pub out_stride: usize,
    /// Factor, and what becomes of what was there.
    pub scalars: Scalars,
}

/// Work that was recorded and can be done again at the cost of one launch.
pub trait Recording: Debug + Send {
    /// Queue the recorded work.
    fn replay(&self) -> Result<(), DeviceError>;
}

/// A copy from the device that was queued.
pub trait Download: Debug + Send {
    /// Wait for the copy, and for nothing that was queued after it, and give its bytes, which must be
    /// as many.
    fn wait(self: Box<Self>, bytes: &mut [u8]) -> Result<(), DeviceError>;
}

/// Memory and something that computes on it, in the order of the calls.
///
/// Methods that take addresses are unsafe: the caller vouches that those lie in memory
/// that [`Self::allocate`] gave and that is not released yet, with room for what is read and written.
#[allow(
    unsafe_code,
    reason = "addresses of another memory cannot be checked by the compiler"
)]
pub trait Device: Debug + Send + Sync {
    /// Name of the device.
    fn name(&self) -> &str;

    /// Memory of zeros, aligned to 256 bytes.
    fn allocate(&self, bytes: usize) -> Result<Address, DeviceError>;

    /// Give memory back, once all work that was queued is done.
    ///
    /// # Safety
    /// The address is one that [`Self::allocate`] gave for as many bytes, and is used no more.
    unsafe fn release(&self, address: Address, bytes: usize);

    /// Copy bytes to the device. They may be changed when this returns.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Copy bytes from the device, when all work that was queued is done.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Queue a copy of so many bytes from the device.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn begin_download(
        &self,
        from: Address,
        bytes: usize,
    ) -> Result<Box<dyn Download>, DeviceError>;

    /// Queue a kernel.
    ///
    /// # Safety
    /// The parameter is the kernel's, and its addresses are as [`Device`] says.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), DeviceError>;

    /// Queue a product by a library. False where there is none, or where it cannot write to such an
    /// address; a product of no rows asks for that and does nothing.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn multiply(&self, product: &Product) -> Result<bool, DeviceError>;

    /// Record what `work` launches, without doing it. `None` where that is not possible. Until `work` is
    /// done, nothing else may be asked of the device: no memory, no copies, no waiting, and nothing at
    /// all by other threads.
    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Option<Box<dyn Recording>>, DeviceError>;

    /// Wait until everything that was queued is done.
    fn synchronize(&self) -> Result<(), DeviceError>;
}
