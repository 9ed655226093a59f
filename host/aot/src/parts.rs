//! Names that the parts of a separated component know each other by.

use wasm_encoder::{GlobalType, ValType};

/// The core module that a separated component imports: the image.
pub const IMAGE: &str = "mortise-image";

/// The function that a separated component imports, of `(u32, u64, list<u8>)`: takes what it keeps.
pub const TAKE: &str = "mortise-take";

/// The function that a separated component exports, of `(u32, u32)`: hands over the memory from one address to
/// another, as item [`MEMORY_ITEM`].
pub const KEEP_MEMORY: &str = "mortise-keep-memory";

/// The function that a separated component exports: hands over each global, as the item of its number, and then the
/// pages of its memory, as item [`PAGES_ITEM`].
pub const KEEP_GLOBALS: &str = "mortise-keep-globals";

/// Item of a piece of memory.
pub const MEMORY_ITEM: u32 = u32::MAX;

/// Item of the number of pages.
pub const PAGES_ITEM: u32 = u32::MAX - 1;

/// The import that the image comes by.
pub(crate) const IMAGE_MODULE: &str = "mortise:image";

/// The image's memory.
pub(crate) const MEMORY: &str = "memory";

/// The image's constant that is 1 if it is of a prepared instance.
pub(crate) const RESTORED: &str = "restored";

/// Beginning of the names of the image's constants with the values of globals.
pub(crate) const GLOBAL: &str = "global-";

/// A global that does not change.
pub(crate) fn constant(val_type: ValType) -> GlobalType {
    GlobalType {
        val_type,
        mutable: false,
        shared: false,
    }
}

/// Reason for which something is not separated.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> String {
    format!("it cannot be read: {error}")
}
