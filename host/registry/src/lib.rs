//! Models and what runs them: public names to backends.
//!
//! This room does not know HTTP, text or plugins.

mod backend;

pub use backend::{Backend, Load};
