//! Write plugins for the mortise inference server.
//!
//! A plugin is a WebAssembly component. Implement the trait of its kind, name the type in [`export!`],
//! and build with `cargo build --release --target wasm32-wasip2`:
//!
//! ```
//! use mortise_plugin_sdk::policy::{Allow, Decision, Deny, Facts, Policy};
//! use mortise_plugin_sdk::{Fault, NoSettings};
//!
//! struct WorkingDays;
//!
//! impl Policy for WorkingDays {
//!     type Settings = NoSettings;
//!
//!     fn prepare(_: NoSettings) -> Result<Self, Fault> {
//!         Ok(Self)
//!     }
//!
//!     fn authorize(&self, facts: Facts) -> Result<Decision, Fault> {
//!         Ok(match facts.header("x-tenant") {
//!             Some(tenant) => Allow::subject(tenant).tenant(tenant).into(),
//!             None => Deny::new(401, "authentication_error", "no_tenant", "say who you are").into(),
//!         })
//!     }
//! }
//!
//! mortise_plugin_sdk::export!(policy: WorkingDays);
//! ```
//!
//! The traits are plain Rust: a plugin is tested natively with `cargo test` as well as with
//! `mortise plugin test`. What the host gives (settings, the model, the vocabulary) comes in as
//! arguments; only [`policy::ledger`], [`policy::secrets`], [`unix_millis`] and [`outbound_http`] call the host,
//! and panic outside of it.

pub mod bindings;
pub mod chat_template;
pub mod formats;
pub mod grammar;
pub mod guardrail;
#[cfg(feature = "inner")]
pub mod inner;
pub mod json;
pub mod log;
pub mod output_parser;
pub mod policy;
pub mod retriever;
pub mod stream;
pub mod tool;
pub mod tools;

mod prepared;

pub use bindings::imports::mortise::plugin::clock::unix_millis;
pub use bindings::imports::mortise::plugin::model::{
    ControlToken, Description as Model, response_template,
};
pub use bindings::imports::mortise::plugin::outbound_http;
pub use bindings::imports::mortise::plugin::types::Fault;
pub use {serde, serde_json};

/// Settings of a plugin that has none: any key is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Make a type that implements the trait of a kind the plugin of this component:
/// `export!(policy: MyPolicy)`, likewise `chat_template`, `output_parser`, `grammar`,
/// `tool`, `guardrail` and `retriever`.
///
/// With `export!(policy: MyPolicy, settings: "settings.schema.json")` the component carries that file of
/// its package, a JSON Schema (2020-12), and the server checks the operator's settings by it before it
/// runs anything of the plugin.
#[macro_export]
macro_rules! export {
    ($kind:ident: $plugin:ty, settings: $schema:literal) => {
        $crate::export!($kind: $plugin);
        #[used]
        #[cfg_attr(target_family = "wasm", unsafe(link_section = "mortise:settings-schema"))]
        static MORTISE_SETTINGS_SCHEMA: [u8; include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $schema))
            .len()] = *include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $schema));
    };
    (chat_template: $plugin:ty) => {
        $crate::export!(@ chat_template export_chat_template $plugin);
    };
    (output_parser: $plugin:ty) => {
        $crate::export!(@ output_parser export_output_parser $plugin);
        #[cfg(target_family = "wasm")]
        const _: () = {
            type MortiseMarks = $crate::output_parser::Component<$plugin>;
            $crate::bindings::reasoning::export_reasoning!(
                MortiseMarks with_types_in $crate::bindings::reasoning
            );
        };
    };
    (grammar: $plugin:ty) => {
        $crate::export!(@ grammar export_grammar $plugin);
    };
    (policy: $plugin:ty) => {
        $crate::export!(@ policy export_policy $plugin);
        #[cfg(target_family = "wasm")]
        const _: () = {
            type MortiseQuotas = $crate::policy::Component<$plugin>;
            $crate::bindings::quotas::export_quotas!(
                MortiseQuotas with_types_in $crate::bindings::quotas
            );
        };
    };
    (tool: $plugin:ty) => {
        $crate::export!(@ tool export_tool $plugin);
    };
    (guardrail: $plugin:ty) => {
        $crate::export!(@ guardrail export_guardrail $plugin);
    };
    (retriever: $plugin:ty) => {
        $crate::export!(@ retriever export_retriever $plugin);
    };
    (@ $kind:ident $export:ident $plugin:ty) => {
        // Natively there is no host to export to, and linkers do not know such names.
        #[cfg(target_family = "wasm")]
        const _: () = {
            type MortisePlugin = $crate::$kind::Component<$plugin>;
            $crate::bindings::lifecycle::export_lifecycle!(
                MortisePlugin with_types_in $crate::bindings::lifecycle
            );
            $crate::bindings::$kind::$export!(MortisePlugin with_types_in $crate::bindings::$kind);
        };
    };
}
