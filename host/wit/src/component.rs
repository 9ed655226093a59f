//! Components out of core modules, for compilers that make no components themselves.

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{PackageId, Resolve, WorldId, WorldItem, WorldKey};

use crate::{WitError, package};

/// First bytes of every core module: the magic number and version 1.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// Interfaces that a component may export beside that of its kind, with the kind.
const OPTIONAL: [(&str, &str); 2] = [("output-parser", "reasoning"), ("policy", "quotas")];

/// Whether these bytes are a core module, and not a component or anything else.
pub fn is_core_module(wasm: &[u8]) -> bool {
    wasm.starts_with(CORE_MODULE)
}

/// Wrap a core module that was built for the world of a kind, such as `policy`, into a component.
///
/// # Errors
/// When there is no such kind, or the module lacks an export of its world or imports what the world
/// does not have.
pub fn wrap(module: &[u8], kind: &str) -> Result<Vec<u8>, WitError> {
    let (mut resolve, package) = package()?;
    let worlds = &resolve.packages[package].worlds;
    let Some(&world) = worlds.get(format!("{kind}-plugin").as_str()) else {
        let kinds = worlds
            .keys()
            .filter_map(|name| name.strip_suffix("-plugin"));
        return Err(WitError::Kind {
            kind: kind.to_owned(),
            kinds: kinds.collect::<Vec<_>>().join(", "),
        });
    };
    let optional = OPTIONAL.iter().filter(|(of, _)| *of == kind);
    for (_, interface) in optional {
        add_if_exported(&mut resolve, package, world, interface, module);
    }
    let mut module = module.to_vec();
    let encoder = ComponentEncoder::default();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .and_then(|()| encoder.validate(true).module(&module)?.encode())
        .map_err(|error| WitError::Module {
            kind: kind.to_owned(),
            package: resolve.packages[package].name.to_string(),
            message: format!("{error:#}"),
        })
}

/// Add an interface to what a world exports, if the module has functions of it.
fn add_if_exported(
    resolve: &mut Resolve,
    package: PackageId,
    world: WorldId,
    interface: &str,
    module: &[u8],
) {
    let Some(&id) = resolve.packages[package].interfaces.get(interface) else {
        return;
    };
    let name = resolve.id_of(id).unwrap_or_default();
    let exports = &mut resolve.worlds[world].exports;
    let Some(mut item) = exports.values().next().cloned() else {
        return;
    };
    if let (true, WorldItem::Interface { id: of, .. }) = (exports_of(module, &name), &mut item) {
        *of = id;
        exports.insert(WorldKey::Interface(id), item);
    }
}

/// Whether a module exports functions of an interface. What is no module exports nothing.
fn exports_of(module: &[u8], interface: &str) -> bool {
    let mut sections = Parser::new(0).parse_all(module).map_while(Result::ok);
    let section = sections.find_map(|payload| match payload {
        Payload::ExportSection(section) => Some(section),
        _ => None,
    });
    let mut exports = section.into_iter().flatten().map_while(Result::ok);
    exports.any(|export| {
        let function = export.name.split_once('#');
        function.is_some_and(|(of, _)| of == interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = CORE_MODULE;

    #[test]
    fn a_module_without_the_exports_is_refused_by_name() {
        let error = wrap(EMPTY, "policy").unwrap_err().to_string();
        assert!(
            error.contains("policy") && error.contains("prepare") && error.contains("@0.3.0"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_kind_is_told_with_those_there_are() {
        let error = wrap(EMPTY, "cook").unwrap_err().to_string();
        assert!(
            error.contains("`cook`") && error.contains("output-parser"),
            "{error}"
        );
    }

    #[test]
    fn core_modules_are_told_from_components() {
        assert!(is_core_module(EMPTY));
        assert!(!is_core_module(b"\0asm\x0d\0\x01\0"));
        assert!(!is_core_module(b""));
    }
}
