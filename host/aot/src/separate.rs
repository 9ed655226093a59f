//! A component in two parts: its code, and the image of its memory that an instance begins with.
//!
//! The code imports a core module, the image, which defines the memory. So one piece of machine code runs with the
//! image that the component's own data segments make, and with images of instances that have been prepared. Of the
//! latter, nothing is compiled: they hold data only.
//!
//! Functions are copied byte by byte. What is added: the memory becomes an import, mutable globals become exports,
//! start functions run only where the image is no prepared one, and a last core module, the keeper, hands memory and
//! globals to the host and sets the globals that an image holds.

use std::ops::Range;

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, RoundtripReencoder};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, Component, ComponentAliasSection,
    ComponentExportKind, ComponentExportSection, ComponentImportSection, ComponentTypeRef,
    ComponentTypeSection, ComponentValType, CoreTypeSection, DataSection, EntityType, ExportKind,
    InstanceSection, ModuleArg, ModuleSection, ModuleType, PrimitiveValType, RawSection, ValType,
};
use wasmparser::{
    CanonicalFunction, Chunk, ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind,
    ComponentTypeRef as TypeRef, ExternalKind, Instance, Parser, Payload,
};

use crate::core_module::CoreModule;
use crate::keeper;
use crate::parts::{
    GLOBAL, IMAGE, IMAGE_MODULE, KEEP_GLOBALS, KEEP_MEMORY, MEMORY, RESTORED, TAKE, constant,
    unreadable,
};

/// Mutable globals of a component. Compilers give a module one to five, and each is a few instructions more.
pub const MAX_GLOBALS: usize = 1000;

/// A component in two parts.
#[derive(Debug)]
pub struct Separated {
    /// The component, without its memory.
    pub component: Vec<u8>,
    /// The core module with the memory that a new instance begins with.
    pub image: Vec<u8>,
}

/// Separate a component.
///
/// # Errors
/// When its state is not all in one memory and in globals, or when it cannot be read; the text says why.
pub fn separate(wasm: &[u8]) -> Result<Separated, String> {
    let plan = Plan::of(wasm)?;
    let component = Writer::new(wasm, &plan).write()?;
    let image = initial_image(plan.memory_module(), plan.globals().count())?;
    Ok(Separated { component, image })
}

/// The sections of a component, without those of what is in it.
fn payloads<'a>(
    wasm: &'a [u8],
    mut each: impl FnMut(Payload<'a>) -> Result<(), String>,
) -> Result<(), String> {
    let mut parser = Parser::new(0);
    let mut rest = wasm;
    while !rest.is_empty() {
        let Chunk::Parsed { consumed, payload } = parser.parse(rest, true).map_err(unreadable)?
        else {
            return Err(unreadable("it is cut off"));
        };
        rest = &rest[consumed..];
        if let Payload::ModuleSection {
            unchecked_range, ..
        }
        | Payload::ComponentSection {
            unchecked_range, ..
        } = &payload
        {
            rest = rest
                .get(unchecked_range.len()..)
                .ok_or_else(|| unreadable("it is cut off"))?;
        }
        each(payload)?;
    }
    Ok(())
}

/// Contents of a component that the separation depends on.
#[derive(Default)]
struct Plan<'a> {
    modules: Vec<CoreModule<'a>>,
    /// The only instance of each module; none yet, or of those without state, more than one.
    instances: Vec<Vec<u32>>,
    memory_module: usize,
    counts: Counts,
}

/// Lengths of the index spaces that are added to.
#[derive(Default)]
struct Counts {
    core_functions: u32,
    core_memories: u32,
    core_instances: u32,
    modules: u32,
    types: u32,
    functions: u32,
}

impl Counts {
    fn add(&mut self, kind: ComponentExternalKind) -> Result<(), String> {
        match kind {
            ComponentExternalKind::Func => self.functions += 1,
            ComponentExternalKind::Type => self.types += 1,
            ComponentExternalKind::Module => return Err("it hands modules on".to_owned()),
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Plan<'a> {
    fn of(wasm: &'a [u8]) -> Result<Self, String> {
        let mut plan = Self::default();
        payloads(wasm, |payload| plan.read(wasm, payload))?;
        let with_memory: Vec<usize> = (0..plan.modules.len())
            .filter(|index| plan.modules[*index].memory.is_some())
            .collect();
        let [memory_module] = with_memory[..] else {
            return Err(format!(
                "it has {} memories, and one is needed",
                with_memory.len()
            ));
        };
        plan.memory_module = memory_module;
        let globals = plan.globals().count();
        if globals > MAX_GLOBALS {
            return Err(format!(
                "it has {globals} globals, of at most {MAX_GLOBALS}"
            ));
        }
        for (module, instances) in plan.modules.iter().zip(&plan.instances) {
            if module.is_changed() && instances.len() != 1 {
                let times = instances.len();
                return Err(format!("a module with state is instantiated {times} times"));
            }
        }
        Ok(plan)
    }

    fn read(&mut self, wasm: &'a [u8], payload: Payload<'a>) -> Result<(), String> {
        let within =
            |range: Range<usize>| wasm.get(range).ok_or_else(|| unreadable("it is cut off"));
        let counts = &mut self.counts;
        match payload {
            Payload::ModuleSection {
                unchecked_range, ..
            } => {
                self.modules
                    .push(CoreModule::read(within(unchecked_range)?)?);
                self.instances.push(Vec::new());
                counts.modules += 1;
            }
            Payload::ComponentSection {
                unchecked_range, ..
            } => {
                check_nested(within(unchecked_range)?)?;
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    if let Instance::Instantiate { module_index, .. } =
                        instance.map_err(unreadable)?
                    {
                        let instances = self.instances.get_mut(module_index as usize);
                        let instances = instances.ok_or_else(|| unreadable("no such module"))?;
                        // One further on, behind the image.
                        instances.push(counts.core_instances + 1);
                    }
                    counts.core_instances += 1;
                }
            }
            Payload::CoreTypeSection(_) => return Err("it declares core types".to_owned()),
            Payload::ComponentStartSection { .. } => {
                return Err("it has a start function".to_owned());
            }
            other => counts.read(other)?,
        }
        Ok(())
    }

    fn memory_module(&self) -> &CoreModule<'a> {
        &self.modules[self.memory_module]
    }

    /// Instance, index within its module and type of each mutable global.
    fn globals(&self) -> impl Iterator<Item = (u32, u32, ValType)> {
        let modules = self.modules.iter().zip(&self.instances);
        modules.flat_map(|(module, instances)| {
            let instance = instances.first().copied().unwrap_or_default();
            let globals = module.globals.iter();
            globals.map(move |(index, ty)| (instance, *index, *ty))
        })
    }
}

impl Counts {
    /// Count what a section adds.
    fn read(&mut self, payload: Payload<'_>) -> Result<(), String> {
        match payload {
            Payload::ComponentTypeSection(section) => self.types += section.count(),
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    match function.map_err(unreadable)? {
                        CanonicalFunction::Lift { .. } => self.functions += 1,
                        _ => self.core_functions += 1,
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.alias(&alias.map_err(unreadable)?)?;
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import.map_err(unreadable)?;
                    if [IMAGE, TAKE].contains(&import.name.name) {
                        return Err(format!("it imports `{}` itself", import.name.name));
                    }
                    match import.ty {
                        TypeRef::Func(_) => self.functions += 1,
                        TypeRef::Type(_) => self.types += 1,
                        TypeRef::Module(_) => return Err("it imports a module".to_owned()),
                        _ => {}
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export.map_err(unreadable)?;
                    if [KEEP_MEMORY, KEEP_GLOBALS].contains(&export.name.name) {
                        return Err(format!("it exports `{}` itself", export.name.name));
                    }
                    self.add(export.kind)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), String> {
        match alias {
            ComponentAlias::InstanceExport { kind, .. } => self.add(*kind)?,
            ComponentAlias::CoreInstanceExport { kind, .. } => match kind {
                ExternalKind::Func | ExternalKind::FuncExact => self.core_functions += 1,
                ExternalKind::Memory => self.core_memories += 1,
                _ => {}
            },
            ComponentAlias::Outer { kind, .. } => match kind {
                ComponentOuterAliasKind::Type => self.types += 1,
                ComponentOuterAliasKind::Component => {}
                _ => return Err("it hands modules on".to_owned()),
            },
        }
        Ok(())
    }
}

/// A component within, which renames things, has no code of its own.
fn check_nested(wasm: &[u8]) -> Result<(), String> {
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(unreadable)? {
            Payload::ModuleSection { .. }
            | Payload::InstanceSection(_)
            | Payload::CoreTypeSection(_) => {
                return Err("it is made of several components".to_owned());
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    Counts::default().alias(&alias.map_err(unreadable)?)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Renumbers what stands behind the image: core modules and core instances.
struct BehindImage;

impl Reencode for BehindImage {
    type Error = std::convert::Infallible;
}

impl ReencodeComponent for BehindImage {
    fn module_index(&mut self, module: u32) -> u32 {
        module + 1
    }

    fn instance_index(&mut self, instance: u32) -> u32 {
        instance + 1
    }
}

type Encoded = Result<(), Error<std::convert::Infallible>>;

/// Writes the component.
struct Writer<'a, 'p> {
    wasm: &'a [u8],
    plan: &'p Plan<'a>,
    out: Component,
    module: usize,
}

impl<'a, 'p> Writer<'a, 'p> {
    fn new(wasm: &'a [u8], plan: &'p Plan<'a>) -> Self {
        Self {
            wasm,
            plan,
            out: Component::new(),
            module: 0,
        }
    }

    fn write(mut self) -> Result<Vec<u8>, String> {
        self.import_image();
        payloads(self.wasm, |payload| self.section(payload))?;
        self.add_keeper();
        Ok(self.out.finish())
    }

    /// The first core module and the first core instance are the image.
    fn import_image(&mut self) {
        let memory = self.plan.memory_module().memory;
        let mut ty = ModuleType::new();
        ty.export(
            MEMORY,
            EntityType::Memory(memory.unwrap_or(keeper::ANY_MEMORY)),
        );
        ty.export(RESTORED, EntityType::Global(constant(ValType::I32)));
        for (number, _) in self.plan.globals().enumerate() {
            ty.export(
                &format!("{GLOBAL}{number}"),
                EntityType::Global(constant(ValType::I64)),
            );
        }
        let mut types = CoreTypeSection::new();
        types.ty().module(&ty);
        self.out.section(&types);
        let mut imports = ComponentImportSection::new();
        imports.import(IMAGE, ComponentTypeRef::Module(0));
        self.out.section(&imports);
        let mut instances = InstanceSection::new();
        instances.instantiate(0, std::iter::empty::<(&str, ModuleArg)>());
        self.out.section(&instances);
    }

    fn section(&mut self, payload: Payload<'a>) -> Result<(), String> {
        match payload {
            Payload::ModuleSection { .. } => {
                let module = &self.plan.modules[self.module];
                self.module += 1;
                let written = module.is_changed().then(|| module.write()).transpose()?;
                let data = written.as_deref().unwrap_or(module.bytes);
                let id = wasm_encoder::ComponentSectionId::CoreModule.into();
                self.out.section(&RawSection { id, data });
            }
            Payload::InstanceSection(section) => {
                let mut instances = InstanceSection::new();
                for instance in section {
                    let instance = instance.map_err(unreadable)?;
                    self.instance(&mut instances, instance)
                        .map_err(unreadable)?;
                }
                self.out.section(&instances);
            }
            Payload::ComponentAliasSection(section) => {
                let mut aliases = ComponentAliasSection::new();
                let parsed = BehindImage.parse_component_alias_section(&mut aliases, section);
                parsed.map_err(unreadable)?;
                self.out.section(&aliases);
            }
            other => {
                if let Some((id, range)) = other.as_section() {
                    let data = &self.wasm[range];
                    self.out.section(&RawSection { id, data });
                }
            }
        }
        Ok(())
    }

    /// An instance of a core module; one that is changed gets the image.
    fn instance(&self, instances: &mut InstanceSection, instance: Instance<'_>) -> Encoded {
        let changed = match &instance {
            Instance::Instantiate { module_index, .. } => {
                self.plan.modules.get(*module_index as usize)
            }
            Instance::FromExports(_) => None,
        };
        let imports_image = changed.is_some_and(CoreModule::imports_image);
        let Instance::Instantiate { module_index, args } = &instance else {
            return BehindImage.parse_instance(instances, instance);
        };
        let args = args
            .iter()
            .map(|arg| (arg.name, ModuleArg::Instance(arg.index + 1)));
        let image = imports_image.then_some((IMAGE_MODULE, ModuleArg::Instance(0)));
        let args: Vec<_> = args.chain(image).collect();
        instances.instantiate(module_index + 1, args);
        Ok(())
    }

    /// The keeper, with the function that it calls and those that the host calls.
    fn add_keeper(&mut self) {
        let counts = &self.plan.counts;
        let (list, take, memory, none) = (
            counts.types,
            counts.types + 1,
            counts.types + 2,
            counts.types + 3,
        );
        self.types(list);
        let mut imports = ComponentImportSection::new();
        imports.import(TAKE, ComponentTypeRef::Func(take));
        self.out.section(&imports);
        let mut aliases = ComponentAliasSection::new();
        aliases.alias(Alias::CoreInstanceExport {
            instance: 0,
            kind: ExportKind::Memory,
            name: MEMORY,
        });
        self.out.section(&aliases);
        let mut lowered = CanonicalFunctionSection::new();
        lowered.lower(
            counts.functions,
            [
                CanonicalOption::UTF8,
                CanonicalOption::Memory(counts.core_memories),
            ],
        );
        self.out.section(&lowered);
        let globals: Vec<_> = self.plan.globals().collect();
        self.out.section(&ModuleSection(&keeper::module(&globals)));
        let keeper = self.keeper_instance(&globals);
        let mut aliases = ComponentAliasSection::new();
        for name in [KEEP_MEMORY, KEEP_GLOBALS] {
            aliases.alias(Alias::CoreInstanceExport {
                instance: keeper,
                kind: ExportKind::Func,
                name,
            });
        }
        self.out.section(&aliases);
        // Behind the lowered function, and behind the imported one.
        let (core, lifted) = (counts.core_functions + 1, counts.functions + 1);
        let mut functions = CanonicalFunctionSection::new();
        functions.lift(core, memory, []);
        functions.lift(core + 1, none, []);
        self.out.section(&functions);
        let mut exports = ComponentExportSection::new();
        exports.export(KEEP_MEMORY, ComponentExportKind::Func, lifted, None);
        exports.export(KEEP_GLOBALS, ComponentExportKind::Func, lifted + 1, None);
        self.out.section(&exports);
    }

    /// Types of the functions; `list` is the index of the first.
    fn types(&mut self, list: u32) {
        let u32_type = ComponentValType::Primitive(PrimitiveValType::U32);
        let u64_type = ComponentValType::Primitive(PrimitiveValType::U64);
        let mut types = ComponentTypeSection::new();
        types.defined_type().list(PrimitiveValType::U8);
        let bytes = ComponentValType::Type(list);
        let take = [("item", u32_type), ("value", u64_type), ("bytes", bytes)];
        types.function().params(take).result(None);
        types
            .function()
            .params([("from", u32_type), ("to", u32_type)])
            .result(None);
        types
            .function()
            .params(Vec::<(&str, ComponentValType)>::new())
            .result(None);
        self.out.section(&types);
    }

    /// Make an instance of the keeper, and return its index.
    fn keeper_instance(&mut self, globals: &[(u32, u32, ValType)]) -> u32 {
        // Behind the image and all others.
        let host = self.plan.counts.core_instances + 1;
        let mut instances = InstanceSection::new();
        instances.export_items([(
            keeper::TAKE,
            ExportKind::Func,
            self.plan.counts.core_functions,
        )]);
        let mut args = vec![
            (keeper::HOST.to_owned(), ModuleArg::Instance(host)),
            (IMAGE_MODULE.to_owned(), ModuleArg::Instance(0)),
        ];
        let mut owners: Vec<u32> = globals.iter().map(|(instance, ..)| *instance).collect();
        owners.dedup();
        let owners = owners.into_iter();
        args.extend(owners.map(|owner| (keeper::owner(owner), ModuleArg::Instance(owner))));
        instances.instantiate(self.plan.counts.modules + 1, args);
        self.out.section(&instances);
        host + 1
    }
}

/// The image that a new instance begins with: the data segments of the module, and globals that nobody reads.
fn initial_image(module: &CoreModule<'_>, globals: usize) -> Result<Vec<u8>, String> {
    let mut image = keeper::image(
        module.memory.unwrap_or(keeper::ANY_MEMORY),
        false,
        &vec![0; globals],
    );
    let mut segments = DataSection::new();
    for payload in Parser::new(0).parse_all(module.bytes) {
        if let Payload::DataSection(section) = payload.map_err(unreadable)? {
            let parsed = RoundtripReencoder.parse_data_section(&mut segments, section);
            parsed.map_err(unreadable)?;
        }
    }
    image.section(&segments);
    Ok(image.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_component_is_refused() {
        for bytes in [
            &b""[..],
            b"\0asm\x0d\0\x01\0",
            b"\0asm\x01\0\0\0",
            b"nonsense",
        ] {
            assert!(separate(bytes).is_err(), "{bytes:?}");
        }
    }
}
