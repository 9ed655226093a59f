//! Models and what runs them: public names to backends.
//!
//! This room does not know HTTP, text or plugins.

mod backend;
mod local;
mod names;
mod scripted;

pub use backend::Backend;
pub use names::{Entry, Ladder, Registry, RegistryError, UnknownModel};
pub use scripted::{DecodeTokens, EncodeText, Script, ScriptCodec, ScriptLine, Scripted};
