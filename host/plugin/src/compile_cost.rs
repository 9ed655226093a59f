//! Cost of compiling a file, read off it before anything is compiled. The size of a file is
//! bounded, but a small file can make a large one: segments of data far apart stretch to an image of
//! the whole memory, and components that hold each other several times multiply.

use std::ops::Range;

use wasmparser::{
    ComponentInstance, ConstExpr, Data, DataKind, Operator, Parser, Payload, SectionLimited,
    TypeRef,
};

use crate::LoadError;
use crate::limits::{
    MAX_CODE_BYTES, MAX_FUNCTION_BYTES, MAX_FUNCTIONS, MAX_IMAGE_BYTES, MAX_MODULE_MEMORIES,
    MAX_NESTED, MAX_NESTED_INSTANCES,
};

/// Refuse what would take too long or too much memory to compile.
///
/// # Errors
/// [`LoadError::TooCostly`], or [`LoadError::Compile`] for a file that cannot be read to its end.
pub(crate) fn check(label: &str, wasm: &[u8]) -> Result<(), LoadError> {
    let cost = Cost::of(wasm).map_err(|error| LoadError::Compile {
        origin: label.to_owned(),
        message: error.to_string(),
    })?;
    let bounds = [
        ("functions", cost.functions, MAX_FUNCTIONS),
        ("bytes of code", cost.code, MAX_CODE_BYTES),
        (
            "bytes in one function",
            cost.largest_function,
            MAX_FUNCTION_BYTES,
        ),
        ("bytes of initial memory", cost.image, MAX_IMAGE_BYTES),
        (
            "memories in one module",
            cost.most_memories,
            MAX_MODULE_MEMORIES,
        ),
        ("modules and components inside", cost.nested, MAX_NESTED),
        (
            "instances of components inside",
            cost.instances,
            MAX_NESTED_INSTANCES,
        ),
    ];
    match bounds.into_iter().find(|(_, found, limit)| found > limit) {
        None => Ok(()),
        Some((what, found, limit)) => Err(LoadError::TooCostly {
            origin: label.to_owned(),
            what,
            found,
            limit,
        }),
    }
}

/// Contents of a file that cost time or memory to compile, at all levels together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    functions: u64,
    code: u64,
    largest_function: u64,
    image: u64,
    /// Memories of the module that has the most.
    most_memories: u64,
    nested: u64,
    instances: u64,
}

impl Cost {
    fn of(wasm: &[u8]) -> wasmparser::Result<Self> {
        let mut cost = Self::default();
        // Memories of the module being read: a module holds no other.
        let mut memories = 0;
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::CodeSectionStart { count, size, .. } => {
                    cost.functions += u64::from(count);
                    cost.code += u64::from(size);
                }
                Payload::CodeSectionEntry(body) => {
                    let bytes = body.range().len() as u64;
                    cost.largest_function = cost.largest_function.max(bytes);
                }
                Payload::Version { .. } => memories = 0,
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        memories += u64::from(matches!(import?.ty, TypeRef::Memory(_)));
                    }
                }
                Payload::MemorySection(section) => memories += u64::from(section.count()),
                Payload::DataSection(segments) => cost.image += image(segments)?,
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                    cost.nested += 1;
                }
                Payload::ComponentInstanceSection(instances) => {
                    for instance in instances {
                        let makes = matches!(instance?, ComponentInstance::Instantiate { .. });
                        cost.instances += u64::from(makes);
                    }
                }
                _ => {}
            }
            cost.most_memories = cost.most_memories.max(memories);
        }
        Ok(cost)
    }
}

/// From the first to the last byte that the active segments of a module write.
fn image(segments: SectionLimited<'_, Data<'_>>) -> wasmparser::Result<u64> {
    let mut written: Option<Range<u64>> = None;
    for segment in segments {
        let segment = segment?;
        let DataKind::Active { offset_expr, .. } = &segment.kind else {
            continue;
        };
        // An offset that is computed makes no image: the segment is written at run time.
        let Some(start) = constant(offset_expr)? else {
            continue;
        };
        let end = start + segment.data.len() as u64;
        written = Some(match written {
            None => start..end,
            Some(range) => range.start.min(start)..range.end.max(end),
        });
    }
    Ok(written.map_or(0, |range| range.end - range.start))
}

fn constant(expression: &ConstExpr<'_>) -> wasmparser::Result<Option<u64>> {
    Ok(match expression.get_operators_reader().read()? {
        Operator::I32Const { value } => Some(u64::from(value.cast_unsigned())),
        Operator::I64Const { value } => Some(value.cast_unsigned()),
        _ => None,
    })
}
