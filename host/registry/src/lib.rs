//! Plugins in OCI registries: the artifacts of WebAssembly components, pushed, pulled, pinned in a lock file.
//!
//! A registry is not believed: what it sends counts by its digest and within bounds, redirects lead to public addresses
//! only, and credentials go to the registry and to its token service alone.

mod artifact;
mod challenge;
mod client;
mod cosign;
mod credentials;
mod digest;
mod error;
mod layout;
mod limits;
mod lock;
mod manifest;
mod reference;
mod store;

pub use artifact::{PluginArtifact, Pulled, describe, pull, push};
pub use client::{RegistryClient, RegistryConfig};
pub use cosign::{CosignSignature, cosign_payload, cosign_signatures, push_cosign_signature};
pub use digest::Digest;
pub use error::RegistryError;
pub use layout::{Layout, write as write_file};
pub use lock::{LOCK_FILE, Lock, LockedPlugin, is_file_name};
pub use mortise_outbound::{Origin, OriginError};
pub use reference::{Reference, ReferenceError};
pub use store::ArtifactStore;
