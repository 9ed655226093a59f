//! Header and custom sections of a WebAssembly file: its kind, the version that its author gave, and what
//! else tools read of it without compiling.

use wasmparser::{Parser, Payload};

/// Kind of file, by its first eight bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileKind {
    Component,
    CoreModule,
    /// Not WebAssembly; how its beginning reads.
    Other(String),
}

const MAGIC: &[u8] = b"\0asm";
const CORE_VERSION: &[u8] = &[1, 0, 0, 0];
const COMPONENT_VERSION: &[u8] = &[0x0d, 0, 1, 0];

/// The name of the custom section that holds a JSON Schema of the settings.
pub const SCHEMA_SECTION: &str = "mortise:settings-schema";

/// The name of the custom section that holds golden cases: a JSON object of cases by their names.
pub const CASES_SECTION: &str = "mortise:cases";

/// The name of the custom section that says which models a plugin serves: a JSON object.
pub const SERVES_SECTION: &str = "mortise:serves";

/// Longest section that is read, in bytes; longer ones count as absent.
pub const MAX_SECTION_BYTES: usize = 1 << 20;

/// The name of the custom section that holds a version, as tools write it.
pub const VERSION_SECTION: &str = "version";

/// Longest version that is believed.
const MAX_VERSION_BYTES: usize = 64;

/// Sections that say something of a component, as its author wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sections<'a> {
    /// Version, if it is a plausible one.
    pub version: Option<String>,
    /// JSON Schema of the settings.
    pub settings_schema: Option<&'a str>,
    /// Models that it serves.
    pub serves: Option<&'a str>,
}

impl<'a> Sections<'a> {
    /// Read the sections of a file as far as it is sound.
    pub fn of(wasm: &'a [u8]) -> Self {
        Self {
            version: declared_version(wasm),
            settings_schema: settings_schema(wasm),
            serves: serves(wasm),
        }
    }
}

pub(crate) fn file_kind(wasm: &[u8]) -> FileKind {
    if wasm.is_empty() {
        return FileKind::Other("is empty".to_owned());
    }
    match wasm.strip_prefix(MAGIC) {
        Some(rest) if rest.starts_with(COMPONENT_VERSION) => FileKind::Component,
        Some(rest) if rest.starts_with(CORE_VERSION) => FileKind::CoreModule,
        Some(rest) if rest.len() < 4 => FileKind::Other("ends within its header".to_owned()),
        Some(_) => FileKind::Other("has an unknown WebAssembly version".to_owned()),
        None if wasm.len() < 8 && MAGIC.starts_with(wasm) => {
            FileKind::Other("ends within its header".to_owned())
        }
        None => {
            let start = &wasm[..wasm.len().min(16)];
            FileKind::Other(format!("begins with \"{}\"", start.escape_ascii()))
        }
    }
}

/// The version in the component's custom section `version`, if it has a plausible one.
pub(crate) fn declared_version(wasm: &[u8]) -> Option<String> {
    plausible_version(custom_section(wasm, VERSION_SECTION)?)
}

/// The JSON Schema that the author gave for the settings, if it is text of a plausible size.
pub(crate) fn settings_schema(wasm: &[u8]) -> Option<&str> {
    text_section(wasm, SCHEMA_SECTION)
}

/// The golden cases that the plugin carries, if they are text of a plausible size.
pub(crate) fn cases(wasm: &[u8]) -> Option<&str> {
    text_section(wasm, CASES_SECTION)
}

/// Models that it serves, as its author says, if it is text of a plausible size.
pub(crate) fn serves(wasm: &[u8]) -> Option<&str> {
    text_section(wasm, SERVES_SECTION)
}

fn text_section<'a>(wasm: &'a [u8], name: &str) -> Option<&'a str> {
    let section = custom_section(wasm, name)?;
    let fits = section.len() <= MAX_SECTION_BYTES;
    std::str::from_utf8(section).ok().filter(|_| fits)
}

/// The first custom section of this name: of the component itself, or else of a core module in it, where
/// compilers put what a program declares with a link section. A file is read as far as it is sound.
fn custom_section<'a>(wasm: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    // Whether each level within the component is a core module.
    let mut levels: Vec<bool> = Vec::new();
    let mut of_module = None;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload {
            Ok(Payload::ModuleSection { .. }) => levels.push(true),
            Ok(Payload::ComponentSection { .. }) => levels.push(false),
            Ok(Payload::End(_)) => drop(levels.pop()),
            Ok(Payload::CustomSection(section)) if section.name() == wanted => match levels[..] {
                [] => return Some(section.data()),
                [true] => of_module = of_module.or(Some(section.data())),
                _ => {}
            },
            Ok(_) => {}
            Err(_) => break,
        }
    }
    of_module
}

fn plausible_version(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-+_".contains(c);
    let fits = !text.is_empty() && text.len() <= MAX_VERSION_BYTES;
    (fits && text.chars().all(plain)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn component(sections: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = [MAGIC, COMPONENT_VERSION].concat();
        for (id, body) in sections {
            bytes.push(*id);
            bytes.push(u8::try_from(body.len()).unwrap());
            bytes.extend_from_slice(body);
        }
        bytes
    }

    #[test]
    fn files_are_told_apart() {
        let core = [MAGIC, CORE_VERSION].concat();
        assert_eq!(file_kind(&core), FileKind::CoreModule);
        assert_eq!(file_kind(&component(&[])), FileKind::Component);
        for other in [
            &b""[..],
            b"\0as",
            b"\0asm",
            b"\0asm\x09\0\0\0",
            b"\x7fELF",
            b"#!/bin/sh",
        ] {
            assert!(matches!(file_kind(other), FileKind::Other(_)), "{other:?}");
        }
    }

    #[test]
    fn the_version_section_is_found_behind_others() {
        let module = [MAGIC, CORE_VERSION].concat();
        let wasm = component(&[
            (1, &module),
            (0, b"\x04nameabc"),
            (0, b"\x07version1.2.3-rc1"),
        ]);
        assert_eq!(declared_version(&wasm).as_deref(), Some("1.2.3-rc1"));
        assert_eq!(declared_version(&component(&[(0, b"\x07version")])), None);
        assert_eq!(
            declared_version(&component(&[(0, b"\x07versiona b")])),
            None
        );
    }

    #[test]
    fn the_schema_is_found_in_a_core_module() {
        const NAME: &[u8] = b"mortise:settings-schema";
        let name_size = u8::try_from(NAME.len()).unwrap();
        let section = [&[name_size], NAME, b"{}"].concat();
        let size = u8::try_from(section.len()).unwrap();
        let module = [MAGIC, CORE_VERSION, &[0, 2, 1, b'x', 0, size], &section].concat();
        let wasm = component(&[(7, b"types"), (1, &module), (0, b"\x04nameabc")]);
        assert_eq!(settings_schema(&wasm), Some("{}"));
        assert_eq!(settings_schema(&component(&[(0, &section)])), Some("{}"));
        assert_eq!(settings_schema(&component(&[(7, &section)])), None);
        let torn = &wasm[..wasm.len() - 12];
        assert_eq!(settings_schema(torn), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let wasm = [MAGIC, COMPONENT_VERSION, &bytes].concat();
            let _ = declared_version(&wasm);
            let _ = declared_version(&bytes);
            let _ = settings_schema(&wasm);
            let _ = file_kind(&bytes);
        }
    }
}
