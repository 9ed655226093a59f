//! The versions of the contract. A component's exports are those of one version, found under its names; handles
//! call them through the functions of their kind, with the types of the present version where a kind has not
//! changed, and know the host's own types otherwise.

mod bindings;
pub(crate) mod convert;
mod exports;
mod functions;
mod policy;

pub(crate) use bindings::v0_3::mortise::plugin as wit;
pub(crate) use exports::{
    ChatTemplateExports, GrammarExports, GuardrailExports, OutputParserExports, RetrieverExports,
    ToolExports,
};
pub(crate) use policy::{PolicyExports, quotas_of};
