//! Modules that are added to a separated component: images, and the keeper.

use wasm_encoder::{
    CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, ImportSection, InstructionSink, MemorySection, MemoryType, Module,
    StartSection, TypeSection, ValType,
};

use crate::core_module::kept_global;
use crate::parts::{
    GLOBAL, IMAGE_MODULE, KEEP_GLOBALS, KEEP_MEMORY, MEMORY, MEMORY_ITEM, PAGES_ITEM, RESTORED,
    constant,
};

/// The keeper's import of what the host gives it.
pub(crate) const HOST: &str = "host";

/// The host's function among them.
pub(crate) const TAKE: &str = "take";

/// A memory of any size.
pub(crate) const ANY_MEMORY: MemoryType = MemoryType {
    minimum: 0,
    maximum: None,
    memory64: false,
    shared: false,
    page_size_log2: None,
};

/// The keeper's import of the globals of an instance.
pub(crate) fn owner(instance: u32) -> String {
    format!("instance-{instance}")
}

/// An image without its data.
pub(crate) fn image(memory: MemoryType, restored: bool, globals: &[u64]) -> Module {
    let mut memories = MemorySection::new();
    memories.memory(memory);
    let mut values = GlobalSection::new();
    values.global(
        constant(ValType::I32),
        &ConstExpr::i32_const(restored.into()),
    );
    let mut exports = ExportSection::new();
    exports.export(MEMORY, ExportKind::Memory, 0);
    exports.export(RESTORED, ExportKind::Global, 0);
    for (number, value) in (0u32..).zip(globals) {
        let value = ConstExpr::i64_const(value.cast_signed());
        values.global(constant(ValType::I64), &value);
        exports.export(&format!("{GLOBAL}{number}"), ExportKind::Global, number + 1);
    }
    let mut module = Module::new();
    module.section(&memories).section(&values).section(&exports);
    module
}

/// The keeper: sets the mutable globals when it is instantiated, if the image is of a prepared instance, and hands
/// memory and globals to the host when it is called. `globals` are instance, index and type.
pub(crate) fn module(globals: &[(u32, u32, ValType)]) -> Module {
    const FUNCTIONS: [u32; 3] = [1, 2, 2];
    let mut types = TypeSection::new();
    let (i32_type, i64_type) = (ValType::I32, ValType::I64);
    types
        .ty()
        .function([i32_type, i64_type, i32_type, i32_type], []);
    types.ty().function([i32_type, i32_type], []);
    types.ty().function([], []);
    let mut imports = ImportSection::new();
    imports.import(HOST, TAKE, EntityType::Function(0));
    imports.import(IMAGE_MODULE, MEMORY, EntityType::Memory(ANY_MEMORY));
    imports.import(
        IMAGE_MODULE,
        RESTORED,
        EntityType::Global(constant(i32_type)),
    );
    for (number, _) in globals.iter().enumerate() {
        let value = EntityType::Global(constant(i64_type));
        imports.import(IMAGE_MODULE, &format!("{GLOBAL}{number}"), value);
    }
    for (instance, index, val_type) in globals {
        let global = EntityType::Global(GlobalType {
            val_type: *val_type,
            mutable: true,
            shared: false,
        });
        imports.import(&owner(*instance), &kept_global(*index), global);
    }
    let mut functions = FunctionSection::new();
    for ty in FUNCTIONS {
        functions.function(ty);
    }
    let mut exports = ExportSection::new();
    exports.export(KEEP_MEMORY, ExportKind::Func, 1);
    exports.export(KEEP_GLOBALS, ExportKind::Func, 2);
    let mut code = CodeSection::new();
    code.function(&keep_memory());
    code.function(&keep_globals(globals));
    code.function(&restore(globals));
    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&exports);
    module
        .section(&StartSection { function_index: 3 })
        .section(&code);
    module
}

fn keep_memory() -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.i32_const(MEMORY_ITEM.cast_signed())
        .i64_const(0)
        .local_get(0);
    code.local_get(1).local_get(0).i32_sub().call(0).end();
    function
}

/// Index of the constant with a global's value, and that of the global.
fn places(count: usize) -> impl Iterator<Item = (u32, u32)> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    (0..count).map(move |number| (1 + number, 1 + count + number))
}

fn keep_globals(globals: &[(u32, u32, ValType)]) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for (item, ((_, global), (.., ty))) in (0..).zip(places(globals.len()).zip(globals)) {
        code.i32_const(item).global_get(global);
        to_bits(&mut code, *ty);
        code.i32_const(0).i32_const(0).call(0);
    }
    code.i32_const(PAGES_ITEM.cast_signed())
        .memory_size(0)
        .i64_extend_i32_u();
    code.i32_const(0).i32_const(0).call(0).end();
    function
}

fn to_bits(code: &mut InstructionSink<'_>, ty: ValType) {
    match ty {
        ValType::I32 => code.i64_extend_i32_u(),
        ValType::F32 => code.i32_reinterpret_f32().i64_extend_i32_u(),
        ValType::F64 => code.i64_reinterpret_f64(),
        _ => code,
    };
}

fn restore(globals: &[(u32, u32, ValType)]) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.global_get(0).if_(wasm_encoder::BlockType::Empty);
    for ((value, global), (.., ty)) in places(globals.len()).zip(globals) {
        code.global_get(value);
        match ty {
            ValType::I32 => code.i32_wrap_i64(),
            ValType::F32 => code.i32_wrap_i64().f32_reinterpret_i32(),
            ValType::F64 => code.f64_reinterpret_i64(),
            _ => &mut code,
        };
        code.global_set(global);
    }
    code.end().end();
    function
}
