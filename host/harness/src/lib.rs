//! One plugin by itself: bound, asked with JSON, and held to its golden cases, without a server and
//! without inference.

mod console;
mod demo;
mod embedded;
mod golden;
mod grants;
mod guardrail;
mod harness;
mod retriever;

use std::sync::Arc;

use mortise_plugin_manager::Prove;

pub use console::{print, print_as, print_json, read};
pub use demo::model_files;
pub use embedded::{GoldenCases, default_plugin, model_template};
pub use golden::{
    Case, CaseBudget, PluginUnderTest, carried, check_number, check_pieces, checked, difference,
    prove, shortened,
};
pub use grants::{Moment, MomentError, TestGrants};
pub use harness::Harness;

/// The check that plugin files must pass before they serve: the golden cases that they carry.
pub fn golden_cases() -> Prove {
    Arc::new(prove)
}
