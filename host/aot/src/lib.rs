//! Ahead-of-time compilation of WebAssembly components to machine code.
//!
//! The same wasmtime settings apply when the default plugins are compiled at build time and when the
//! plugin host loads them: machine code that was compiled with others is refused.

mod core_module;
mod keeper;
mod parts;
mod prepared;
mod separate;

use std::num::NonZeroUsize;

use wasmtime::{Config, Engine, OptLevel, RegallocAlgorithm};

pub use parts::{IMAGE, KEEP_GLOBALS, KEEP_MEMORY, MEMORY_ITEM, PAGES_ITEM, TAKE};
pub use prepared::PreparedState;
pub use separate::{MAX_GLOBALS, Separated, separate};

/// Extent up to which the image of a memory is mapped, however many gaps it has. Larger ones are if they have
/// more data than gaps.
pub const MAX_SPARSE_IMAGE_BYTES: u64 = 128 << 20;

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
        .memory_guaranteed_dense_image_size(MAX_SPARSE_IMAGE_BYTES)
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

/// Compile a component to machine code for the processor that this runs on, as [`Code`] reads it.
///
/// # Errors
/// When the bytes are not a valid component, or this processor has no code generator.
pub fn precompile(wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
    compile(&Engine::new(&compile_settings())?, wasm)
}

/// Compile a component to machine code with a given wasmtime engine, as [`Code`] reads it.
///
/// # Errors
/// When the bytes are not a valid component.
pub fn compile(engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let apart = separate(wasm).and_then(|separated| {
        let component = engine.precompile_component(&separated.component);
        let component = component.map_err(|error| format!("{error:#}"))?;
        let image = engine.precompile_module(&separated.image);
        Ok((component, image.map_err(|error| format!("{error:#}"))?))
    });
    Ok(match apart {
        Ok((component, image)) => Code {
            component: &component,
            image: Ok(&image),
        }
        .to_bytes(),
        Err(reason) => Code {
            component: &engine.precompile_component(wasm)?,
            image: Err(&reason),
        }
        .to_bytes(),
    })
}

/// Machine code of a component.
#[derive(Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// The component.
    pub component: &'a [u8],
    /// The core module with the memory that a new instance begins with; or the reason for which the component has
    /// it within.
    pub image: Result<&'a [u8], &'a str>,
}

/// Beginning of machine code in two parts.
const MAGIC: &[u8; 8] = b"mortise\x01";

impl<'a> Code<'a> {
    fn to_bytes(&self) -> Vec<u8> {
        let length = self.component.len() as u64;
        let (is_apart, rest) = match self.image {
            Ok(image) => (1, image),
            Err(reason) => (0, reason.as_bytes()),
        };
        [
            &MAGIC[..],
            &length.to_le_bytes(),
            self.component,
            &[is_apart],
            rest,
        ]
        .concat()
    }

    /// Read what [`compile`] made; `None` if it is something else.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (length, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (component, rest) = rest.split_at_checked(length)?;
        let image = match rest.split_first()? {
            (1, image) => Ok(image),
            (0, reason) => Err(str::from_utf8(reason).ok()?),
            _ => return None,
        };
        Some(Self { component, image })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_as_it_was_written() {
        for image in [Ok(&b"image"[..]), Err("because")] {
            let code = Code {
                component: b"component",
                image,
            };
            let bytes = code.to_bytes();
            assert_eq!(Code::of(&bytes), Some(code));
            for end in 0..17 + b"component".len() {
                assert_eq!(Code::of(&bytes[..end]), None, "{end}");
            }
        }
        assert_eq!(Code::of(b"\x7fELF, as others write it"), None);
    }
}
