//! Ahead-of-time compilation of WebAssembly components to machine code.
//!
//! The same wasmtime settings apply when the default plugins are compiled at build time and when the
//! plugin host loads them: machine code that was compiled with others is refused.

use std::num::NonZeroUsize;

use wasmtime::{Config, Engine, OptLevel, RegallocAlgorithm};

/// Frames kept of a trap's backtrace: enough to tell runaway recursion from a stray pointer.
pub const BACKTRACE_FRAMES: usize = 64;

/// Settings that decide what compiled code looks like.
pub fn compile_settings() -> Config {
    let mut config = Config::new();
    config
        // On by default, and makes each call three to five times dearer.
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .memory_init_cow(true)
        // Sparse images above the default of 16 MiB would silently lose copy-on-write.
        .memory_guaranteed_dense_image_size(128 << 20)
        .cranelift_opt_level(OptLevel::Speed)
        // What joins two components within one has the memories of both. The host refuses other modules with several.
        .wasm_multi_memory(true)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        // Offsets into the file for each instruction of a backtrace. Nothing shows them, looking them up
        // is a tenth of what a trap takes, and the map is a tenth of the compiled code. Names of
        // functions remain.
        .generate_address_map(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES));
    config
}

/// Settings for code that is made sooner and runs more slowly. An engine of [`compile_settings`] takes it.
pub fn quick_settings() -> Config {
    let mut config = compile_settings();
    config
        .cranelift_opt_level(OptLevel::None)
        .cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    config
}

/// Compile a component to machine code for the processor that this runs on.
///
/// # Errors
/// When the bytes are not a valid component, or this processor has no code generator.
pub fn precompile(wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
    Engine::new(&compile_settings())?.precompile_component(wasm)
}
