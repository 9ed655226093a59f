//! Machine code of a component: embedded, from the cache, or compiled, which takes seconds for a large one.

use std::time::Instant;

use mortise_aot::Code;
use rayon_core::ThreadPoolBuilder;
use wasmtime::component::Component as Compiled;
use wasmtime::{Engine, Module};

use crate::cache::CompileCache;
use crate::{LoadError, compile_cost};

/// Size from which on the log tells that a component is compiled: those with an interpreter in them take
/// seconds.
const TOLD_FROM_BYTES: usize = 1 << 20;

/// A component before it is compiled.
pub(crate) struct CompileInput<'a> {
    pub(crate) name: &'a str,
    /// Name and place, for errors.
    pub(crate) label: &'a str,
    pub(crate) wasm: &'a [u8],
    /// Machine code of our own build; may be empty.
    pub(crate) precompiled: &'a [u8],
    /// SHA-256 of `wasm` in hexadecimal.
    pub(crate) digest: &'a str,
}

/// A compiled component.
#[derive(Clone)]
pub(crate) struct MachineCode {
    pub(crate) component: Compiled,
    /// The memory that an instance begins with, where it is apart from the component; or the reason for which it
    /// is not.
    pub(crate) image: Result<Module, Box<str>>,
}

/// Compiles for one engine.
pub(crate) struct Compiler<'a> {
    pub(crate) engine: &'a Engine,
    /// Engine that compiles large components instead, quickly.
    pub(crate) quick: Option<&'a Engine>,
    pub(crate) cache: Option<&'a CompileCache>,
    /// Threads to compile on; `None` for as many as there are processors.
    pub(crate) threads: Option<usize>,
}

impl Compiler<'_> {
    pub(crate) fn compile(&self, source: &CompileInput<'_>) -> Result<MachineCode, LoadError> {
        if let Some(kept) = self.kept(source) {
            return Ok(kept);
        }
        let damaged = |error: wasmtime::Error| LoadError::Compile {
            origin: source.label.to_owned(),
            message: format!("{error:#}"),
        };
        compile_cost::check(source.label, source.wasm)?;
        let told = source.wasm.len() >= TOLD_FROM_BYTES;
        let megabytes = format!("{:.1} MB", source.wasm.len() as f64 / 1e6);
        if told {
            tracing::info!(
                plugin = source.name,
                size = megabytes,
                threads = self.threads,
                "compiling a plugin; what served before goes on"
            );
        }
        let begun = Instant::now();
        let by = self.quick.filter(|_| told).unwrap_or(self.engine);
        let code = self.translate(by, source.wasm).map_err(damaged)?;
        let compiled = deserialize(self.engine, &code).map_err(damaged)?;
        if told {
            let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
            tracing::info!(
                plugin = source.name,
                size = megabytes,
                seconds,
                "compiled a plugin"
            );
        }
        if let Some(cache) = self.cache {
            cache.write(by, source.digest, &code);
        }
        Ok(compiled)
    }

    /// Code that was compiled before, if it is there and suits this machine.
    fn kept(&self, source: &CompileInput<'_>) -> Option<MachineCode> {
        if !source.precompiled.is_empty() {
            match deserialize(self.engine, source.precompiled) {
                Ok(compiled) => return Some(compiled),
                // A binary that was built on another machine: its processor may lack something.
                Err(error) => tracing::info!(
                    plugin = source.name,
                    error = format!("{error:#}"),
                    "the embedded code does not suit this machine, compiling"
                ),
            }
        }
        // The better code is preferred.
        let engines = [Some(self.engine), self.quick];
        engines
            .into_iter()
            .flatten()
            .find_map(|by| self.cached(by, source))
    }

    /// Code that the cache has of an engine.
    fn cached(&self, by: &Engine, source: &CompileInput<'_>) -> Option<MachineCode> {
        let cache = self.cache?;
        let cached = cache.read(by, source.digest)?;
        let compiled = deserialize(self.engine, &cached);
        if compiled.is_err() {
            cache.remove(by, source.digest);
        }
        compiled.ok()
    }

    /// Compile on the threads that there are for it. The compiler shares its work among those of the pool that
    /// it is called in.
    fn translate(&self, by: &Engine, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
        let pool = self.threads.map(|threads| {
            let builder = ThreadPoolBuilder::new().num_threads(threads);
            builder
                .thread_name(|index| format!("mortise-compile-{index}"))
                .build()
        });
        match pool {
            None => mortise_aot::compile(by, wasm),
            Some(Ok(pool)) => pool.install(|| mortise_aot::compile(by, wasm)),
            Some(Err(error)) => Err(wasmtime::Error::msg(format!("no threads: {error}"))),
        }
    }
}

/// Load code that we compiled ourselves.
#[allow(unsafe_code, reason = "compiled code is run as it is")]
fn deserialize(engine: &Engine, compiled: &[u8]) -> wasmtime::Result<MachineCode> {
    let code = Code::of(compiled);
    let code = code.ok_or_else(|| wasmtime::Error::msg("it is the code of another version"))?;
    // SAFETY: the bytes are the output of wasmtime's own compiler: either embedded by our build,
    // or read from the cache folder, which only the user of this process may write to and whose
    // files match the digest written with them. Operators cannot hand in compiled code.
    let component = unsafe { Compiled::deserialize(engine, code.component) }?;
    let image = match code.image {
        // SAFETY: as above.
        Ok(image) => Ok(unsafe { Module::deserialize(engine, image) }?),
        Err(reason) => Err(reason.into()),
    };
    Ok(MachineCode { component, image })
}

/// Make a core module of data only, which new instances map instead of copying it.
#[allow(unsafe_code, reason = "a compiled module is taken as it is")]
pub(crate) fn data_module(engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Module> {
    let compiled = engine.precompile_module(wasm)?;
    if let Some(file) = in_memory_file(&compiled) {
        // SAFETY: the bytes are the output of wasmtime's own compiler, and nobody else has the file, which is
        // sealed.
        return unsafe { Module::deserialize_open_file(engine, file) };
    }
    // SAFETY: as above. There is one copy more in memory.
    unsafe { Module::deserialize(engine, &compiled) }
}

/// A file without a name that holds these bytes and cannot be changed; `None` if the system has no such thing.
#[cfg(target_os = "linux")]
fn in_memory_file(bytes: &[u8]) -> Option<std::fs::File> {
    use std::io::Write as _;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("mortise-image", flags).ok()?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).ok()?;
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}

#[cfg(not(target_os = "linux"))]
fn in_memory_file(_bytes: &[u8]) -> Option<std::fs::File> {
    None
}
