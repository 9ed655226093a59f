//! The WIT package as authors' tools need it: wraps a core module that was built for one of its worlds
//! into a component, adds the custom sections that servers read, and writes the reference.
//!
//! The crate runs no component and must not depend on wasmtime: `mortise-plugin` loads and calls components.

mod component;
mod compose;
mod reference;
mod section;

pub use component::{is_core_module, wrap};
pub use compose::{compose, inner_kinds};
pub use reference::reference;
pub use section::add_section;

use wit_parser::{PackageId, Resolve, SourceMap};

/// The package, file by file: name and text.
pub const FILES: &[(&str, &str)] = &[
    ("types.wit", include_str!("../../../wit/v0.3/types.wit")),
    (
        "capabilities.wit",
        include_str!("../../../wit/v0.3/capabilities.wit"),
    ),
    ("kinds.wit", include_str!("../../../wit/v0.3/kinds.wit")),
    ("worlds.wit", include_str!("../../../wit/v0.3/worlds.wit")),
];

/// Error of a tool.
#[derive(Debug, thiserror::Error)]
pub enum WitError {
    /// The package itself is wrong: a defect of this program.
    #[error("the WIT package of this program cannot be read: {0}")]
    Package(String),
    /// There is no such world.
    #[error("`{kind}` is no kind of plugin; the kinds are: {kinds}")]
    Kind {
        /// Kind that was asked for.
        kind: String,
        /// Kinds that there are.
        kinds: String,
    },
    /// The module was not built for this world.
    #[error(
        "the module is no {kind} plugin: {message}; it must export what the world `{kind}-plugin` of {package} says, and import nothing else (`mortise plugin new` writes the headers of this version)"
    )]
    Module {
        /// Kind that it should be.
        kind: String,
        /// The package with its version.
        package: String,
        /// Part that is missing or wrong.
        message: String,
    },
    /// Two components cannot be put into each other.
    #[error("the {part} plugin cannot be composed: {message}")]
    Compose {
        /// The part that is at fault: `outer` or `inner`.
        part: &'static str,
        /// Thing that is wrong with it.
        message: String,
    },
    /// A section would be too large for a server.
    #[error("the section `{name}` would have {bytes} bytes; servers read at most {limit}")]
    Section {
        /// Its name.
        name: String,
        /// Its size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
}

/// The package, parsed.
///
/// # Errors
/// [`WitError::Package`] when it is wrong, which the tests of this crate exclude.
pub fn package() -> Result<(Resolve, PackageId), WitError> {
    let wrong = |error: String| WitError::Package(error);
    let mut map = SourceMap::new();
    for (name, text) in FILES {
        map.push_str(name, *text);
    }
    let group = map
        .parse()
        .map_err(|(_, error)| wrong(format!("{error:?}")))?;
    let mut resolve = Resolve::default();
    let package = resolve
        .push_group(group)
        .map_err(|error| wrong(format!("{error:?}")))?;
    Ok((resolve, package))
}
