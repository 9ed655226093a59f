//! Contents of the binary: the four default plugins, as WebAssembly and as machine code, the reader of documents, all
//! compressed, and the demo model. `build.rs` gathers them.

use std::sync::LazyLock;

use mortise_plugin::ComponentSource;
use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};

include!(concat!(env!("OUT_DIR"), "/bundle.rs"));

/// The default plugins: `chat-template`, `output-parser`, `grammar` and `policy`. Their machine code
/// is for the processor that built the server; on a lesser one the plugin host compiles them anew.
pub fn plugins() -> Vec<ComponentSource> {
    PLUGINS.iter().map(source).collect()
}

/// The component that reads documents which are no text. It comes without machine code: what loads it compiles it.
pub fn document_reader() -> ComponentSource {
    let (name, wasm) = &READER;
    ComponentSource::Embedded {
        name,
        wasm: wasm.unpacked(),
        precompiled: Vec::new(),
    }
}

fn source((name, wasm, precompiled): &(&'static str, Packed, Packed)) -> ComponentSource {
    ComponentSource::Embedded {
        name,
        wasm: wasm.unpacked(),
        // Without machine code, a plugin is compiled anew.
        precompiled: precompiled.unpacked(),
    }
}

/// Bytes that `build.rs` compressed.
struct Packed {
    /// Bytes before that.
    length: usize,
    bytes: &'static [u8],
}

impl Packed {
    /// The bytes. What is broken is empty, and is refused where a component is expected.
    fn unpacked(&self) -> Vec<u8> {
        let mut unpacked = vec![0; self.length];
        match decompress_slice(&mut unpacked, self.bytes, InflateConfig::default()) {
            (_, ReturnCode::Ok) => unpacked,
            _ => Vec::new(),
        }
    }
}

/// The files of the demo model by name, as they stand in `examples/demo-model/model`.
pub fn demo_model() -> &'static [(&'static str, &'static [u8])] {
    static FILES: LazyLock<Vec<(&'static str, &'static [u8])>> = LazyLock::new(|| {
        let unpacked = |(name, file): &(&'static str, Packed)| (*name, &*file.unpacked().leak());
        DEMO_MODEL.iter().map(unpacked).collect()
    });
    &FILES
}

#[cfg(test)]
mod tests {
    use mortise_plugin::{HostConfig, Kind, PluginHost};

    use super::*;

    #[test]
    fn every_default_plugin_loads_as_its_kind() {
        let host = PluginHost::new(HostConfig::default()).unwrap();
        let kinds: Vec<(String, Vec<Kind>)> = plugins()
            .into_iter()
            .map(|source| host.load(source).unwrap())
            .map(|component| (component.name().to_owned(), component.kinds().to_vec()))
            .collect();
        // No tool, guardrail or retriever serves unless an operator brings it.
        let kinds_with_default = Kind::ALL
            .into_iter()
            .filter(|kind| !matches!(kind, Kind::Tool | Kind::Guardrail | Kind::Retriever));
        let expected: Vec<_> = kinds_with_default
            .map(|kind| (kind.to_string(), vec![kind]))
            .collect();
        assert_eq!(kinds, expected);
    }

    #[test]
    fn the_version_of_a_default_plugin_is_ours() {
        let host = PluginHost::new(HostConfig::default()).unwrap();
        let policy = plugins().pop().unwrap();
        assert_eq!(
            host.load(policy).unwrap().version(),
            env!("CARGO_PKG_VERSION")
        );
    }

    #[test]
    fn the_demo_model_has_its_files() {
        let names: Vec<&str> = demo_model().iter().map(|(name, _)| *name).collect();
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            assert!(names.contains(&file), "{file} is not among {names:?}");
        }
    }
}
