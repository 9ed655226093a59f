//! A plugin file: read, recognised, compiled, and checked against what its kinds may import.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wasmtime::component::Component as Compiled;
use wasmtime::{Engine, Module};

use crate::cache::hex_digest;
use crate::compiler::{CompileInput, Compiler, MachineCode};
use crate::kind::{ContractVersion, INNER_SETTINGS, InterfaceName, PACKAGE, supported_versions};
use crate::limits::MAX_COMPONENT_BYTES;
use crate::wasm_file::{FileKind, cases, declared_version, file_kind, serves, settings_schema};
use crate::{Kind, LoadError};

/// Source of a plugin.
#[derive(Debug, Clone)]
pub enum ComponentSource {
    /// A `.wasm` file; the plugin is named after it.
    File(PathBuf),
    /// A `.wasm` file that the caller has read, such as after checking its signature.
    Read {
        /// Its path.
        path: PathBuf,
        /// The component.
        wasm: Vec<u8>,
    },
    /// Bytes in memory.
    Bytes {
        /// Name of the plugin.
        name: String,
        /// The component.
        wasm: Vec<u8>,
    },
    /// A plugin that is part of the program.
    Embedded {
        /// Name of the plugin.
        name: &'static str,
        /// The component.
        wasm: Vec<u8>,
        /// Machine code from `mortise_aot::precompile` at build time; may be empty.
        precompiled: Vec<u8>,
    },
}

/// The origin of plugins that are part of the program.
const EMBEDDED: &str = "embedded";

/// A loaded plugin, compiled and checked, of which instances can be made.
pub struct Component {
    name: String,
    version: String,
    digest: String,
    origin: String,
    kinds: Vec<Kind>,
    contract: ContractVersion,
    built_against: String,
    exports: Vec<String>,
    imports: Vec<String>,
    settings_schema: Option<String>,
    cases: Option<String>,
    serves: Option<String>,
    bytes: usize,
    code: MachineCode,
}

impl Component {
    /// Name of the plugin: of the file without `.wasm`, or the one given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that its author gave in the custom section `version`, or the first 12 digits
    /// of its digest.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// SHA-256 of the component in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The path of the file, `embedded`, or `memory`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it is one of those that are part of the program.
    pub(crate) fn is_embedded(&self) -> bool {
        self.origin == EMBEDDED
    }

    /// Kinds of the plugin.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The package with its version that the plugin was built against, such as `mortise:plugin@0.2.0`.
    pub fn built_against(&self) -> &str {
        &self.built_against
    }

    /// The version of its exports.
    pub(crate) fn contract(&self) -> ContractVersion {
        self.contract
    }

    /// True if it exports this interface of ours, whatever the version.
    pub(crate) fn exports_interface(&self, interface: &str) -> bool {
        let mut names = self.exports.iter();
        names.any(|name| InterfaceName::parse(name).is_some_and(|name| name.interface == interface))
    }

    /// Names of our interfaces that it exports.
    pub fn exports(&self) -> &[String] {
        &self.exports
    }

    /// Names of the interfaces that it imports.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// True if it is an outer plugin with an inner one in it, which has settings of its own.
    pub(crate) fn is_composed(&self) -> bool {
        let mut imports = self
            .imports
            .iter()
            .filter_map(|name| InterfaceName::parse(name));
        imports.any(|name| name.is_ours() && name.interface == INNER_SETTINGS)
    }

    /// Number of its linear memories, each of which takes the place of an instance in the pool.
    pub(crate) fn memories(&self) -> u32 {
        let needs = self.code.component.resources_required();
        needs.map_or(1, |needs| needs.num_memories.max(1))
    }

    /// True if what it prints to standard error reaches the host.
    pub(crate) fn has_standard_error(&self) -> bool {
        self.imports
            .iter()
            .any(|name| name.starts_with("wasi:cli/stderr@"))
    }

    /// The JSON Schema of its settings, from the custom section `mortise:settings-schema`; as the
    /// author wrote it, so it may be no schema at all.
    pub fn settings_schema(&self) -> Option<&str> {
        self.settings_schema.as_deref()
    }

    /// The golden cases that it carries in the custom section `mortise:cases`, as the author wrote them.
    pub fn cases(&self) -> Option<&str> {
        self.cases.as_deref()
    }

    /// Content of the custom section `mortise:serves`, the models that it serves, as the author wrote it.
    pub fn serves(&self) -> Option<&str> {
        self.serves.as_deref()
    }

    /// Size of the WebAssembly file.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn compiled(&self) -> &Compiled {
        &self.code.component
    }

    /// The memory that a new instance begins with, where it is apart from the code.
    pub(crate) fn image(&self) -> Option<&Module> {
        self.code.image.as_ref().ok()
    }

    /// Reason for which every instance is prepared anew; without one, further instances begin with the memory of a
    /// prepared one where that saves time.
    pub fn prepared_anew(&self) -> Option<&str> {
        self.code.image.as_ref().err().map(|reason| &**reason)
    }

    /// Name and place, for error texts.
    pub(crate) fn label(&self) -> String {
        label(&self.name, &self.origin)
    }

    /// Compile what is no plugin: neither its imports nor its exports are looked at.
    pub(crate) fn compile(
        compiler: &Compiler<'_>,
        source: ComponentSource,
    ) -> Result<MachineCode, LoadError> {
        let bytes = SourceBytes::read(source)?;
        let label = label(&bytes.name, &bytes.origin);
        check_file(&label, &bytes.wasm)?;
        bytes.compile(compiler, &label, &hex_digest(&bytes.wasm))
    }

    /// `known` finds a living component by its digest, whose code is then shared.
    pub(crate) fn load(
        compiler: &Compiler<'_>,
        source: ComponentSource,
        known: impl FnOnce(&str) -> Option<Arc<Component>>,
    ) -> Result<Arc<Self>, LoadError> {
        let bytes = SourceBytes::read(source)?;
        let label = label(&bytes.name, &bytes.origin);
        check_file(&label, &bytes.wasm)?;
        let digest = hex_digest(&bytes.wasm);
        let code = match known(&digest) {
            Some(component) => component.code.clone(),
            None => bytes.compile(compiler, &label, &digest)?,
        };
        let (mut exports, mut imports) = interface_names(compiler.engine, &code.component);
        if code.image.is_ok() {
            imports.retain(|name| ![mortise_aot::IMAGE, mortise_aot::TAKE].contains(&&**name));
        }
        let Exported {
            kinds,
            contract,
            built_against,
        } = Exported::read(&label, &exports)?;
        check_imports(&label, &kinds, &imports)?;
        exports.retain(|name| InterfaceName::parse(name).is_some_and(|name| name.is_ours()));
        let version = declared_version(&bytes.wasm).unwrap_or_else(|| digest[..12].to_owned());
        Ok(Arc::new(Self {
            name: bytes.name,
            version,
            digest,
            origin: bytes.origin,
            kinds,
            contract,
            built_against,
            exports,
            imports,
            settings_schema: settings_schema(&bytes.wasm).map(str::to_owned),
            cases: cases(&bytes.wasm).map(str::to_owned),
            serves: serves(&bytes.wasm).map(str::to_owned),
            bytes: bytes.wasm.len(),
            code,
        }))
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Component")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("origin", &self.origin)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

fn label(name: &str, origin: &str) -> String {
    match origin {
        EMBEDDED | "memory" => format!("{name} ({origin})"),
        path => path.to_owned(),
    }
}

/// A source that has been read.
struct SourceBytes {
    name: String,
    origin: String,
    wasm: Cow<'static, [u8]>,
    precompiled: Vec<u8>,
}

impl SourceBytes {
    fn compile(
        &self,
        compiler: &Compiler<'_>,
        label: &str,
        digest: &str,
    ) -> Result<MachineCode, LoadError> {
        compiler.compile(&CompileInput {
            name: &self.name,
            label,
            wasm: &self.wasm,
            precompiled: &self.precompiled,
            digest,
        })
    }

    fn read(source: ComponentSource) -> Result<Self, LoadError> {
        match source {
            ComponentSource::File(path) => {
                let wasm = read_component(&path)?;
                Self::read(ComponentSource::Read { path, wasm })
            }
            ComponentSource::Read { path, wasm } => {
                let name = path.file_stem().unwrap_or(path.as_os_str());
                Ok(Self {
                    name: name.to_string_lossy().into_owned(),
                    origin: path.to_string_lossy().into_owned(),
                    wasm: wasm.into(),
                    precompiled: Vec::new(),
                })
            }
            ComponentSource::Bytes { name, wasm } => Ok(Self {
                name,
                origin: "memory".to_owned(),
                wasm: wasm.into(),
                precompiled: Vec::new(),
            }),
            ComponentSource::Embedded {
                name,
                wasm,
                precompiled,
            } => Ok(Self {
                name: name.to_owned(),
                origin: EMBEDDED.to_owned(),
                wasm: wasm.into(),
                precompiled,
            }),
        }
    }
}

/// Read a plugin file. Of one that is larger than [`MAX_COMPONENT_BYTES`], only the beginning is
/// read; loading it says that it is too large.
///
/// # Errors
/// When the file cannot be read.
pub fn read_component(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut wasm = Vec::new();
    // One byte more than allowed, so that a larger file is told from one that just fits.
    file.take(MAX_COMPONENT_BYTES + 1)
        .read_to_end(&mut wasm)
        .map_err(unreadable)?;
    Ok(wasm)
}

fn check_file(label: &str, wasm: &[u8]) -> Result<(), LoadError> {
    let origin = label.to_owned();
    let bytes = wasm.len() as u64;
    if bytes > MAX_COMPONENT_BYTES {
        return Err(LoadError::TooLarge {
            origin,
            bytes,
            limit: MAX_COMPONENT_BYTES,
        });
    }
    match file_kind(wasm) {
        FileKind::Component => Ok(()),
        FileKind::CoreModule => Err(LoadError::CoreModule { origin }),
        FileKind::Other(found) => Err(LoadError::NotWasm { origin, found }),
    }
}

fn interface_names(engine: &Engine, compiled: &Compiled) -> (Vec<String>, Vec<String>) {
    let ty = compiled.component_type();
    let exports = ty
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    let imports = ty
        .imports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    (exports, imports)
}

/// Kinds and version that the names of a component's exports tell.
struct Exported {
    kinds: Vec<Kind>,
    contract: ContractVersion,
    built_against: String,
}

impl Exported {
    fn read(label: &str, exports: &[String]) -> Result<Self, LoadError> {
        let mut kinds = Vec::new();
        let mut lifecycle = false;
        let mut found: Option<(ContractVersion, &str)> = None;
        for export in exports {
            let Some(name) = InterfaceName::parse(export).filter(InterfaceName::is_ours) else {
                continue;
            };
            let Some(contract) = name.contract() else {
                return Err(LoadError::Version {
                    origin: label.to_owned(),
                    found: export.clone(),
                    supported: supported_versions(),
                });
            };
            match found {
                Some((other, version)) if other != contract => {
                    let message = format!("it exports both {version} and {} of it", name.version);
                    return Err(unfit(label, message));
                }
                _ => found = Some((contract, name.version)),
            }
            lifecycle |= name.interface == "lifecycle";
            kinds.extend(Kind::from_interface(name.interface));
        }
        let Some((contract, version)) = found.filter(|_| !kinds.is_empty()) else {
            let names = exports.join(", ");
            return Err(LoadError::NoKind {
                origin: label.to_owned(),
                exports: if names.is_empty() {
                    "nothing".to_owned()
                } else {
                    names
                },
            });
        };
        if !lifecycle {
            let message = "it does not export the interface `lifecycle`";
            return Err(unfit(label, message.to_owned()));
        }
        kinds.sort_unstable();
        Ok(Self {
            kinds,
            contract,
            built_against: format!("{PACKAGE}@{version}"),
        })
    }
}

fn unfit(label: &str, message: String) -> LoadError {
    LoadError::Interface {
        origin: label.to_owned(),
        message,
    }
}

/// Every import must be grantable to one of the component's kinds. What is granted to one kind
/// only is linked to a trap when the component serves as another.
fn check_imports(label: &str, kinds: &[Kind], imports: &[String]) -> Result<(), LoadError> {
    let mut names = imports
        .iter()
        .filter_map(|import| InterfaceName::parse(import));
    let called =
        names.find_map(|name| Kind::from_interface(name.interface).filter(|_| name.is_ours()));
    if let Some(inner) = called {
        let origin = label.to_owned();
        return Err(LoadError::Outer { origin, inner });
    }
    for import in imports {
        let name = InterfaceName::parse(import);
        let granted = name.is_some_and(|name| {
            if name.is_ours() {
                let ours = |kind: &Kind| kind.grants().contains(&name.interface);
                return name.contract().is_some() && kinds.iter().any(ours);
            }
            name.is_tolerated()
        });
        if !granted {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            return Err(LoadError::Import {
                origin: label.to_owned(),
                import: import.clone(),
                kind: names.join(" and "),
            });
        }
    }
    Ok(())
}
