//! A core module of a component that is separated: what of it is state, and how it is written without.

use std::collections::BTreeMap;

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    ImportSection, MemoryType, Module, RawSection, Section, StartSection, ValType,
};
use wasmparser::{DataKind, Operator, Parser, Payload, TypeRef};

use crate::parts::{IMAGE_MODULE, MEMORY, RESTORED, constant, unreadable};

/// Beginning of the names by which modules export mutable globals.
const KEPT: &str = "mortise:global-";

/// The name by which a module exports a mutable global.
pub(crate) fn kept_global(index: u32) -> String {
    format!("{KEPT}{index}")
}

/// Position of a section, by its id, in the order that a module has them in.
fn position(id: u8) -> usize {
    const ORDER: [u8; 13] = [1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11];
    let found = ORDER.iter().position(|known| *known == id);
    found.unwrap_or(ORDER.len())
}

/// A core module.
pub(crate) struct CoreModule<'a> {
    pub(crate) bytes: &'a [u8],
    /// The memory that it defines.
    pub(crate) memory: Option<MemoryType>,
    /// Index and type of its mutable globals.
    pub(crate) globals: Vec<(u32, ValType)>,
    start: Option<Start>,
}

/// A start function.
struct Start {
    function: u32,
    /// Type of the function.
    ty: u32,
    /// Number of functions of the module.
    functions: u32,
}

/// Facts about a module that is being read.
#[derive(Default)]
struct Reading {
    imported_functions: Vec<u32>,
    functions: Vec<u32>,
    start: Option<u32>,
    /// Globals so far, imported ones included.
    globals: u32,
    segments: u32,
    imports_memory: bool,
}

impl<'a> CoreModule<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut module = Self {
            bytes,
            memory: None,
            globals: Vec::new(),
            start: None,
        };
        let mut reading = Reading::default();
        for payload in Parser::new(0).parse_all(bytes) {
            module.section(&mut reading, payload.map_err(unreadable)?)?;
        }
        if reading.segments > 0 && module.memory.is_none() {
            return Err("a module writes to the memory of another".to_owned());
        }
        if module.memory.is_some() && reading.imports_memory {
            return Err("a module has two memories".to_owned());
        }
        if let Some(function) = reading.start {
            if module.has_state() || reading.globals > 0 {
                return Err("a module with state has a start function".to_owned());
            }
            let all = [reading.imported_functions, reading.functions].concat();
            let ty = all.get(function as usize).copied();
            module.start = Some(Start {
                function,
                ty: ty.ok_or_else(|| unreadable("no such start function"))?,
                functions: u32::try_from(all.len()).unwrap_or(u32::MAX),
            });
        }
        Ok(module)
    }

    fn section(&mut self, reading: &mut Reading, payload: Payload<'a>) -> Result<(), String> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(unreadable)?;
                    if import.module == IMAGE_MODULE {
                        return Err(format!("a module imports from `{IMAGE_MODULE}` itself"));
                    }
                    match import.ty {
                        TypeRef::Func(ty) => reading.imported_functions.push(ty),
                        TypeRef::Global(_) => reading.globals += 1,
                        TypeRef::Memory(_) => reading.imports_memory = true,
                        TypeRef::Table(_) => {}
                        _ => return Err("a module imports what is not known".to_owned()),
                    }
                }
            }
            Payload::FunctionSection(section) => {
                for ty in section {
                    reading.functions.push(ty.map_err(unreadable)?);
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    self.define(memory.map_err(unreadable)?)?;
                }
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    let ty = global.map_err(unreadable)?.ty;
                    if ty.mutable {
                        let val_type = number(ty.content_type)?;
                        self.globals.push((reading.globals, val_type));
                    }
                    reading.globals += 1;
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    if export.map_err(unreadable)?.name.starts_with(KEPT) {
                        return Err(format!("a module exports `{KEPT}…` itself"));
                    }
                }
            }
            Payload::StartSection { func, .. } => reading.start = Some(func),
            Payload::DataSection(section) => {
                for segment in section {
                    reading.segments += 1;
                    check_segment(&segment.map_err(unreadable)?.kind)?;
                }
            }
            Payload::CodeSectionEntry(body) => check_code(&body)?,
            Payload::TagSection(_) => return Err("a module has exceptions".to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn define(&mut self, memory: wasmparser::MemoryType) -> Result<(), String> {
        let plain = !memory.memory64 && !memory.shared && memory.page_size_log2.is_none();
        if !plain || self.memory.is_some() {
            return Err("a module has two memories, or a memory of a special kind".to_owned());
        }
        self.memory = Some(memory.into());
        Ok(())
    }

    fn has_state(&self) -> bool {
        self.memory.is_some() || !self.globals.is_empty()
    }

    /// Whether it is written anew.
    pub(crate) fn is_changed(&self) -> bool {
        self.has_state() || self.start.is_some()
    }

    /// Whether what is written imports something of the image.
    pub(crate) fn imports_image(&self) -> bool {
        self.memory.is_some() || self.start.is_some()
    }

    /// The module without its memory, with its mutable globals exported, and with its start function only where
    /// the image is no prepared one.
    pub(crate) fn write(&self) -> Result<Vec<u8>, String> {
        let mut sections: BTreeMap<usize, Box<dyn Section + 'a>> = BTreeMap::new();
        let mut custom = Vec::new();
        let mut imports = ImportSection::new();
        let mut exports = ExportSection::new();
        let mut functions = FunctionSection::new();
        let mut code = CodeSection::new();
        let mut same = RoundtripReencoder;
        for payload in Parser::new(0).parse_all(self.bytes) {
            let payload = payload.map_err(unreadable)?;
            let at = payload.as_section();
            match payload {
                Payload::ImportSection(section) => same
                    .parse_import_section(&mut imports, section)
                    .map_err(unreadable)?,
                Payload::ExportSection(section) => same
                    .parse_export_section(&mut exports, section)
                    .map_err(unreadable)?,
                Payload::FunctionSection(section) => same
                    .parse_function_section(&mut functions, section)
                    .map_err(unreadable)?,
                Payload::CodeSectionEntry(body) => {
                    code.raw(body.as_bytes());
                }
                Payload::CodeSectionStart { .. } | Payload::StartSection { .. } => {}
                Payload::MemorySection(_)
                | Payload::DataSection(_)
                | Payload::DataCountSection { .. }
                    if self.memory.is_some() => {}
                Payload::CustomSection(_) => custom.extend(at),
                _ => {
                    if let Some((id, range)) = at {
                        let data = &self.bytes[range];
                        sections.insert(position(id), Box::new(RawSection { id, data }));
                    }
                }
            }
        }
        self.import_image(&mut imports);
        self.export_globals(&mut exports);
        if let Some(start) = &self.start {
            functions.function(start.ty);
            code.function(&start.unless_restored());
            let function_index = start.functions;
            let start = StartSection { function_index };
            sections.insert(position(start.id()), Box::new(start));
        }
        let ours: [(bool, Box<dyn Section + 'a>); 4] = [
            (imports.is_empty(), Box::new(imports)),
            (exports.is_empty(), Box::new(exports)),
            (functions.is_empty(), Box::new(functions)),
            (code.is_empty(), Box::new(code)),
        ];
        let ours = ours.into_iter().filter(|(is_empty, _)| !is_empty);
        sections.extend(ours.map(|(_, section)| (position(section.id()), section)));
        let mut module = Module::HEADER.to_vec();
        for section in sections.values() {
            section.append_to(&mut module);
        }
        // Names of functions, among others. Their place is anywhere.
        for (id, range) in custom {
            let data = &self.bytes[range];
            RawSection { id, data }.append_to(&mut module);
        }
        Ok(module)
    }

    fn import_image(&self, imports: &mut ImportSection) {
        if let Some(memory) = self.memory {
            imports.import(IMAGE_MODULE, MEMORY, EntityType::Memory(memory));
        }
        if self.start.is_some() {
            let restored = EntityType::Global(constant(ValType::I32));
            imports.import(IMAGE_MODULE, RESTORED, restored);
        }
    }

    fn export_globals(&self, exports: &mut ExportSection) {
        for (index, _) in &self.globals {
            exports.export(&kept_global(*index), ExportKind::Global, *index);
        }
    }
}

impl Start {
    /// A function that calls this one where the image is no prepared one.
    fn unless_restored(&self) -> Function {
        let mut function = Function::new([]);
        let mut code = function.instructions();
        code.global_get(0).i32_eqz().if_(BlockType::Empty);
        code.call(self.function).end().end();
        function
    }
}

fn number(ty: wasmparser::ValType) -> Result<ValType, String> {
    match ty {
        wasmparser::ValType::I32 => Ok(ValType::I32),
        wasmparser::ValType::I64 => Ok(ValType::I64),
        wasmparser::ValType::F32 => Ok(ValType::F32),
        wasmparser::ValType::F64 => Ok(ValType::F64),
        other => Err(format!("a module has a global of type {other}")),
    }
}

/// Segments that are written when an instance is made, to places that do not depend on it.
fn check_segment(kind: &DataKind<'_>) -> Result<(), String> {
    let DataKind::Active { offset_expr, .. } = kind else {
        return Err("a module has passive data".to_owned());
    };
    let mut operators = offset_expr.get_operators_reader();
    let first = operators.read().map_err(unreadable)?;
    match first {
        Operator::I32Const { .. } if operators.is_end_then_eof() => Ok(()),
        _ => Err("a module computes where its data goes".to_owned()),
    }
}

/// State beside memory and globals that code changes, which no image has.
fn check_code(body: &wasmparser::FunctionBody<'_>) -> Result<(), String> {
    let mut operators = body.get_operators_reader().map_err(unreadable)?;
    while !operators.eof() {
        match operators.read().map_err(unreadable)? {
            Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. } => {
                return Err("a module changes its tables".to_owned());
            }
            Operator::MemoryInit { .. } | Operator::DataDrop { .. } => {
                return Err("a module has passive data".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}
