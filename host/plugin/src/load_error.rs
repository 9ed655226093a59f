//! Errors of loading a plugin. Each text says which file, what is wrong and what to do.

use std::path::PathBuf;

use crate::{Kind, PluginError};

/// Error of loading or binding a plugin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read plugin `{}`; check the path and its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any plugin.
    #[error(
        "plugin `{origin}` has {bytes} bytes, more than the {limit} allowed; build it with `--release` and strip debug information"
    )]
    TooLarge {
        /// File or name.
        origin: String,
        /// Size of the file.
        bytes: u64,
        /// The largest size.
        limit: u64,
    },
    /// The bytes are not WebAssembly.
    #[error(
        "plugin `{origin}` is not a WebAssembly component: it {found}; give a file built with `cargo build --target wasm32-wasip2`"
    )]
    NotWasm {
        /// File or name.
        origin: String,
        /// Description of the first bytes of the file.
        found: String,
    },
    /// The bytes are a core module.
    #[error(
        "plugin `{origin}` is a core WebAssembly module and not a component; build it with `--target wasm32-wasip2`, or wrap it with `wasm-tools component new`"
    )]
    CoreModule {
        /// File or name.
        origin: String,
    },
    /// The component is damaged or uses what this host does not support.
    #[error(
        "plugin `{origin}` does not compile: {message}; build or copy it again, it may be truncated"
    )]
    Compile {
        /// File or name.
        origin: String,
        /// Message of the compiler.
        message: String,
    },
    /// Compiling the plugin would take more time or memory than any plugin needs.
    #[error(
        "plugin `{origin}` has {found} {what}, more than the {limit} allowed; leave out what it does not need"
    )]
    TooCostly {
        /// File or name.
        origin: String,
        /// Name of the quantity that is too large.
        what: &'static str,
        /// Value of the quantity.
        found: u64,
        /// Largest value that is allowed.
        limit: u64,
    },
    /// The plugin was built for another version of the WIT package.
    #[error(
        "plugin `{origin}` is built for `{found}`, and this server speaks mortise:plugin {supported}; rebuild it against `wit/` of this server's release"
    )]
    Version {
        /// File or name.
        origin: String,
        /// The interface of another version.
        found: String,
        /// The versions that work.
        supported: String,
    },
    /// The plugin exports no interface of a kind.
    #[error(
        "plugin `{origin}` exports no kind of plugin (it exports: {exports}); export one of mortise:plugin/chat-template, output-parser, grammar, policy or tool"
    )]
    NoKind {
        /// File or name.
        origin: String,
        /// Names of the exports.
        exports: String,
    },
    /// The plugin is not of the wanted kind.
    #[error(
        "plugin `{origin}` is no {wanted} (it is: {found}); name another plugin for this place"
    )]
    WrongKind {
        /// File or name.
        origin: String,
        /// The kind asked for.
        wanted: Kind,
        /// Kinds of the plugin.
        found: String,
    },
    /// The plugin imports something that its kind is not granted.
    #[error(
        "plugin `{origin}` imports `{import}`, which is not grantable to a {kind} plugin; remove what uses it (a plugin has no files, no network and no clock beyond its world)"
    )]
    Import {
        /// File or name.
        origin: String,
        /// The import.
        import: String,
        /// The kinds that the component has.
        kind: String,
    },
    /// The plugin calls another plugin, and there is none in its file.
    #[error(
        "plugin `{origin}` is written around another {inner} plugin; put one into it with `mortise plugin compose`"
    )]
    Outer {
        /// File or name.
        origin: String,
        /// Kind of the plugin that is called.
        inner: Kind,
    },
    /// The interfaces of the plugin do not have the agreed types.
    #[error(
        "plugin `{origin}` does not fit mortise:plugin: {message}; rebuild it against `wit/` of this server's release"
    )]
    Interface {
        /// File or name.
        origin: String,
        /// Difference.
        message: String,
    },
    /// The binding lacks something that the kind needs.
    #[error("plugin `{origin}` cannot serve as {kind} without {missing}; bind it to a model")]
    Missing {
        /// File or name.
        origin: String,
        /// The kind.
        kind: Kind,
        /// `a vocabulary` or `a model description`.
        missing: &'static str,
    },
    /// The settings are not a JSON object.
    #[error("settings of plugin `{origin}` are not a JSON object: {message}")]
    Settings {
        /// File or name.
        origin: String,
        /// Message of the parser.
        message: String,
    },
    /// The plugin failed while it was being prepared.
    #[error("plugin `{origin}` could not be prepared; check its settings")]
    Prepare {
        /// File or name.
        origin: String,
        /// The failed call.
        #[source]
        source: Box<PluginError>,
    },
    /// The runtime cannot start.
    #[error("cannot start the WebAssembly runtime: {message}")]
    Runtime {
        /// Message of wasmtime.
        message: String,
    },
}
