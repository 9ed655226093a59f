//! Version 0.1 of the WIT package: its bindings, what is linked to a component, and the conversion
//! between its types and the host's. Nothing outside knows that versions exist.

pub(crate) mod bindings;
pub(crate) mod convert;
mod exports;
mod imports;
mod linker;
mod mask_sink;

pub(crate) use linker::linker;
