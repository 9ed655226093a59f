//! Properties of a GPU.

/// A GPU that the driver lists.
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
