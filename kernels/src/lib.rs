//! Ops on plain slices: the arithmetic of a decoder, one op a file.
//!
//! Every op computes in f32 and is deterministic. A row's result depends on that row alone, never
//! on the rows beside it, on the number of threads or on how a prompt was cut into chunks: a
//! sequence gives the same tokens alone and in a batch.
//!
//! Shapes are the caller's promise. An op panics on slices that break it, before it touches
//! memory; the model checks all input. Ops that fan out use the [`pool`] of the
//! calling thread.
//!
//! This room knows no tensors, no models and no files.
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod attention;
pub mod byte_dot;
mod exp;
pub mod floats;
pub mod full_attention;
pub mod gate_mul;
pub mod gelu;
pub mod isa;
pub mod kv_page;
pub mod kv_q8;
pub mod layer_norm;
pub mod linear;
pub mod log_softmax;
pub mod mask;
mod memory;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod pool;
pub mod qkv;
pub mod quant;
pub mod rms_norm;
pub mod rope;
pub mod route;
mod row_order;
pub mod select;
pub mod soft_cap;

pub use memory::OutOfMemory;

/// Multiply-adds below which waking another thread costs more than it saves.
const PARALLEL_MULTIPLY_ADDS: usize = 1 << 20;

/// Whether so much work is worth sharing among the threads of the current pool.
fn worth_sharing(multiply_adds: usize) -> bool {
    multiply_adds >= PARALLEL_MULTIPLY_ADDS && pool::threads() > 1
}

/// Whether the vector paths of this crate can run on this machine. Every processor with AVX2 and
/// fused multiply-adds converts half precision too.
#[cfg(target_arch = "x86_64")]
fn has_avx2_fma() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
}

/// Whether the hand-written vector code can run: AVX2 with FMA and F16C, or NEON.
#[cfg(target_arch = "x86_64")]
fn has_vectors() -> bool {
    has_avx2_fma()
}

/// As above.
#[cfg(target_arch = "aarch64")]
fn has_vectors() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}
