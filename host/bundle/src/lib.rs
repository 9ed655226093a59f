//! What is part of the program: the default plugins, compiled to WebAssembly and ahead of time to
//! machine code by the build script, and the demo model's files.

use mortise_plugin::ComponentSource;

include!(concat!(env!("OUT_DIR"), "/plugins.rs"));
include!(concat!(env!("OUT_DIR"), "/demo_model.rs"));

/// The default plugins: one of each kind.
pub fn plugins() -> Vec<ComponentSource> {
    PLUGINS
        .iter()
        .map(|&(name, wasm, precompiled)| ComponentSource::Embedded {
            name,
            wasm,
            precompiled,
        })
        .collect()
}

/// The files of the demo model, by name.
pub fn demo_model() -> &'static [(&'static str, &'static [u8])] {
    DEMO_MODEL
}
